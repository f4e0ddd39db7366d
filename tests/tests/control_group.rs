//! The workers' control group: made where it can be, entered by all that workers start, never left behind.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal as NixSignal;
use rankrun::Signal;
use rankrun_testkit::{Launcher, eventually, process_state, processes_with_argument};
use rankrun_tests::{Group, LIMIT, NO_CGROUP, Script, as_nobody, control_groups, control_groups_of, signal_to, worker};

/// A run with a control group, where one can be had.
fn start(n: usize, args: &[&str], script: Script<'_>) -> Group {
    Group::start_as(Launcher::rankrun().env_remove(NO_CGROUP), n, args, script)
}

/// The control group of a process, as it sees it.
fn control_group(pid: i32) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("a process that lives");
    text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default().to_owned()
}

fn own_control_group() -> String {
    control_group(std::process::id().cast_signed())
}

/// Kills whoever has this file in an argument.
fn kill_by_argument(file: &Path) {
    for process in processes_with_argument(&file.to_string_lossy()) {
        signal_to(process.pid, NixSignal::SIGKILL);
    }
}

#[test]
fn workers_and_what_they_start_are_in_one_of_their_own_and_rankrun_and_its_guardian_are_not() {
    if control_groups("workers in a control group").is_none() {
        return;
    }
    let mut group = start(2, &[], worker("daemon [ touch {daemon} hang ] wait-for {daemon} touch {ready} hang"));
    group.wait_for_files(&["ready", "daemon"]);
    let dirs = control_groups_of(group.pid());
    assert_eq!(dirs.len(), 1, "{dirs:?}");
    let name = dirs[0].file_name().unwrap().to_str().unwrap();
    let guardian = group.guardians()[0].pid;
    for process in group.running().processes() {
        let outside = process.pid == group.pid() || process.pid == guardian;
        assert_eq!(control_group(process.pid).ends_with(name), !outside, "{process}");
    }
    group.signal(Signal::TERM);
    assert_eq!(group.end().code, Some(143));
}

#[test]
fn it_is_gone_however_the_run_ends() {
    for (script, code) in [("exit 0", 0), ("exit 5", 5), ("spawn [ ignore TERM hang ] exit 0", 0)] {
        let mut group = start(2, &["--shutdown-timeout", "0.1"], worker(script));
        assert_eq!(group.end().code, Some(code));
    }
    let mut group = Group::start_as(Launcher::rankrun().env_remove(NO_CGROUP), 3, &["/no/such/program"], worker(""));
    assert_eq!(group.end().code, Some(127));
}

#[test]
fn there_is_none_where_it_is_not_wanted() {
    for (launcher, args) in [
        (Launcher::rankrun().env_remove(NO_CGROUP), &["--no-cgroup"][..]),
        (Launcher::rankrun().env(NO_CGROUP, "1"), &[]),
    ] {
        let mut group = Group::start_as(launcher, 1, args, worker("touch {ready} wait-for {go} exit 0"));
        group.wait_for_files(&["ready"]);
        let worker = group.workers()[0].pid;
        assert_eq!((control_group(worker), control_groups_of(group.pid())), (own_control_group(), Vec::new()));
        group.touch("go");
        assert_eq!(group.end().code, Some(0));
    }
}

#[test]
fn there_is_none_and_no_word_about_it_for_a_user_who_may_not_make_one() {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let Some(launcher) = as_nobody("a user without rights", dir.path()) else { return };
    let launcher = launcher.env_remove(NO_CGROUP).args(["-n", "2", "grep", "^0::", "/proc/self/cgroup"]);
    let output = launcher.run_with_timeout(LIMIT);
    assert_eq!((output.code, output.stderr_text().as_str()), (Some(0), ""), "{output}");
    let own = format!("0::{}", own_control_group());
    assert_eq!(output.sorted_stdout_lines(), [own.clone(), own]);
}

#[test]
fn descendants_that_are_kept_go_on_outside_of_it() {
    if control_groups("kept descendants").is_none() {
        return;
    }
    let script = "setsid env -i {W} touch {a} hang & {W} touch {b} hang & \
                  until test -e {a} && test -e {b}; do sleep 0.01; done";
    let mut group = start(1, &["--keep-descendants"], Script::Shell(script));
    let output = group.running().wait_timeout(LIMIT);
    let mut places = Vec::new();
    for name in ["a", "b"] {
        let found = processes_with_argument(&group.file(name).to_string_lossy());
        places.extend(found.iter().map(|process| (process.state, control_group(process.pid))));
        kill_by_argument(&group.file(name));
    }
    eventually("what was kept has ended", LIMIT, || group.left().is_empty());
    assert_eq!(output.code, Some(0), "{output}");
    assert_eq!(places, [('S', own_control_group()), ('S', own_control_group())]);
    assert_eq!(control_groups_of(group.pid()), Vec::<PathBuf>::new());
}

#[test]
fn one_that_was_left_by_launcher_and_guardian_killed_together_is_removed_by_a_later_run_once_it_is_empty() {
    if control_groups("one that was left").is_none() {
        return;
    }
    let mut group = start(1, &[], Script::Shell("setsid env -i {W} touch {a} hang & touch {ready}; exec sleep 600"));
    group.wait_for_files(&["ready", "a"]);
    let guardian = group.guardians()[0].pid;
    signal_to(group.pid(), NixSignal::SIGSTOP);
    signal_to(guardian, NixSignal::SIGKILL);
    group.signal(Signal::KILL);
    group.running().wait_timeout(LIMIT);
    let left = control_groups_of(group.pid());
    assert_eq!(left.len(), 1);
    // Whoever is in it is not the later run's to end.
    let later = || {
        let mut group = start(1, &[], worker("exit 0"));
        assert_eq!(group.end().code, Some(0));
    };
    later();
    let lives = processes_with_argument(&group.file("a").to_string_lossy());
    let still = left[0].exists();
    kill_by_argument(&group.file("a"));
    assert!(lives.len() == 1 && still, "{lives:?}");
    eventually("the hidden process has ended", LIMIT, || process_state(lives[0].pid).is_none_or(|state| state == 'Z'));
    let populated =
        || std::fs::read_to_string(left[0].join("cgroup.events")).is_ok_and(|text| text.contains("populated 1"));
    eventually("the control group is empty", LIMIT, || !populated());
    later();
    assert!(!left[0].exists());
}

#[test]
fn a_run_within_a_worker_goes_with_the_outer_one() {
    let Some(parent) = control_groups("a run within a run") else { return };
    let rankrun = rankrun_testkit::binary("rankrun-cli", "rankrun").to_string_lossy().into_owned();
    let script = format!("{rankrun} sh -c 'setsid env -i {{W}} touch {{a}} hang & touch {{ready}}; exec sleep 600'");
    for signal in [Signal::TERM, Signal::KILL] {
        let mut group = start(1, &["--shutdown-timeout", "5"], Script::Shell(&script));
        group.wait_for_files(&["ready", "a"]);
        let mut hidden = processes_with_argument(&group.file("a").to_string_lossy());
        // The shells and the inner rankrun have it in their arguments too.
        hidden.retain(|process| {
            process.sid == process.pid && process.cmdline.first().is_some_and(|program| program.ends_with("worker"))
        });
        let outer = control_groups_of(group.pid());
        assert_eq!(control_group(hidden[0].pid).matches("/rankrun-").count(), 2);
        assert!(outer.len() == 1 && outer[0].parent() == Some(&parent));
        group.signal(signal);
        group.running().wait_timeout(LIMIT);
        eventually("nothing is left", LIMIT, || group.left().is_empty() && !outer[0].exists());
    }
}
