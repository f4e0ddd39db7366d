//! A process that the group did not start is never touched, whoever its parent is.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal as NixSignal, kill};
use nix::unistd::Pid;
use rankrun::{Entrypoint, Orphans, Signal, WorkerGroup, env, start_processes};
use rankrun_testkit::{Launcher, MARK, assert_no_process_left, process_state, scripted_worker, unique_id};
use rankrun_tests::{Group, LIMIT, Pidfds, control_groups_of, with_and_without_pidfds, worker};

with_and_without_pidfds!(
    what_the_test_started_lives_on_when_a_group_ends,
    another_run_of_the_same_program_lives_on_when_one_is_killed,
);

#[test]
fn what_the_shell_had_started_that_became_rankrun_is_not_waited_for_nor_ended() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("pid");
    // The second one, in a session of its own, comes to rankrun when what started it ends.
    let script = "exec 3>&1 4>&2 > /dev/null 2>&1; sleep 600 3>&- 4>&- & echo $! > \"$PIDS\"; \
                  (setsid sleep 600 3>&- 4>&- & echo $! >> \"$PIDS\"); exec \"$0\" -n 1 -t 1 true >&3 2>&4";
    let rankrun = rankrun_testkit::binary("rankrun-cli", "rankrun");
    let mut running = Launcher::new("sh").args(["-c", script]).arg(rankrun).env("PIDS", &file).spawn();
    let output = running.wait_timeout(LIMIT);
    let pids: Vec<i32> =
        fs::read_to_string(&file).expect("the pids").lines().map(|line| line.parse().expect("a pid")).collect();
    let lived: Vec<_> = pids.iter().map(|pid| process_state(*pid)).collect();
    for pid in pids {
        let _ = kill(Pid::from_raw(pid), NixSignal::SIGKILL);
    }
    assert_eq!(output.code, Some(0), "{output}");
    assert!(output.elapsed < Duration::from_secs(10), "{output}");
    assert!(lived.iter().all(Option::is_some), "{lived:?}");
}

/// A process that is none of the group's, and ends with the test.
struct Stranger(Child);

impl Stranger {
    fn new(change: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let mut command = Command::new("sleep");
        command.arg("600").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        change(&mut command);
        Self(command.spawn().expect("sleep can be started"))
    }

    /// Has not ended: nobody but the test reaps it.
    #[track_caller]
    fn assert_lives(&mut self) {
        assert!(matches!(self.0.try_wait(), Ok(None)), "the stranger was ended");
        assert_ne!(process_state(self.0.id().cast_signed()), Some('T'), "the stranger was stopped");
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // It may have been killed by what a failing test is about.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn what_the_test_started_lives_on_when_a_group_ends(pidfds: Pidfds) {
    let script = "ignore TERM daemon [ ignore TERM touch {daemon} hang ] wait-for {daemon} touch {ready} hang";
    let mut group = Group::start(pidfds, 2, &["--shutdown-timeout", "0.2"], worker(script));
    group.wait_for_files(&["ready"]);
    let cookie = group.cookie();
    let mut strangers = [
        Stranger::new(|command| command),
        Stranger::new(|command| command.process_group(0)),
        Stranger::new(|command| command.env_clear()),
        // Cookies that look like ours.
        Stranger::new(|command| command.env(env::RANKRUN_GROUP, &cookie[1..])),
        Stranger::new(|command| command.env(env::RANKRUN_GROUP, format!("{cookie}0:x{cookie}"))),
        Stranger::new(|command| command.env("OTHER", format!("{}={cookie}", env::RANKRUN_GROUP))),
    ];
    group.signal(Signal::TERM);
    assert_eq!(group.end().code, Some(143));
    strangers.iter_mut().for_each(Stranger::assert_lives);
}

fn another_run_of_the_same_program_lives_on_when_one_is_killed(pidfds: Pidfds) {
    let script = "daemon [ touch {daemon} hang ] wait-for {daemon} touch {ready} wait-for {go} exit 0";
    let mut one = Group::start(pidfds, 2, &[], worker(script));
    let mut other = Group::start(pidfds, 2, &[], worker(script));
    one.wait_for_files(&["ready"]);
    other.wait_for_files(&["ready"]);
    one.cookie();
    one.signal(Signal::KILL);
    one.running().wait_timeout(LIMIT);
    rankrun_testkit::eventually("nothing is left of one", LIMIT, || {
        one.left().is_empty() && control_groups_of(one.pid()).is_empty()
    });
    assert_eq!(other.workers().len(), 2);
    other.touch("go");
    assert_eq!(other.end().code, Some(0));
}

#[test]
fn a_child_of_the_host_program_lives_on_when_a_group_in_it_is_closed() {
    for orphans in [Orphans::Leave, Orphans::Adopt] {
        let mark = unique_id("host");
        let dir = tempfile::tempdir().unwrap();
        let daemon = dir.path().join("daemon").to_string_lossy().into_owned();
        let mut strangers = [Stranger::new(|command| command), Stranger::new(|command| command.env_clear())];
        let words = ["daemon", "[", "touch", &daemon, "hang", "]", "wait-for", &daemon, "hang"];
        let group = WorkerGroup::new("g", Entrypoint::binary(scripted_worker()), 2).args(words).env(MARK, &mark);
        let context = start_processes(group.orphans(orphans)).unwrap();
        rankrun_testkit::eventually("the daemon runs", LIMIT, || std::path::Path::new(&daemon).exists());
        context.close(None, LIMIT).unwrap();
        assert_no_process_left(MARK, &mark);
        strangers.iter_mut().for_each(Stranger::assert_lives);
    }
}
