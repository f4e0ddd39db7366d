//! rankrun as PID 1 of a PID namespace, as in a container without an init.

use std::time::Duration;

use nix::sys::signal::Signal as NixSignal;
use rankrun_testkit::{Launcher, binary, children_of, eventually};
use rankrun_tests::{Group, LIMIT, Pidfds, Script, has, signal_to, with_and_without_pidfds, worker};

with_and_without_pidfds!(
    the_exit_code_is_right,
    orphans_are_reaped,
    a_stop_signal_ends_the_job,
    a_second_stop_signal_kills_what_does_not_listen,
    restarts_leave_no_zombies,
    a_table_of_other_processes_is_not_taken_for_its_own,
    daemons_end_with_the_job,
);

const UNSHARE: [&str; 4] = ["unshare", "--pid", "--fork", "--mount-proc"];

fn start(pidfds: Pidfds, n: usize, args: &[&str], script: Script<'_>) -> Option<Group> {
    let check: Vec<&str> = UNSHARE.into_iter().chain(["true"]).collect();
    if !has("rankrun as PID 1", "no PID namespace can be made", &check) {
        return None;
    }
    let launcher = Launcher::new(UNSHARE[0]).args(&UNSHARE[1..]).arg(binary("rankrun-cli", "rankrun"));
    Some(Group::start_as(pidfds.apply(launcher), n, args, script))
}

/// The pid, outside, of what has pid 1 inside.
fn inside(group: &Group) -> i32 {
    eventually("rankrun runs", LIMIT, || children_of(group.pid()).first().map(|child| child.pid))
}

fn the_exit_code_is_right(pidfds: Pidfds) {
    for (words, code) in [("exit 0", 0), ("if-rank 1 exit 7 hang", 7), ("if-rank 0 raise KILL hang", 137)] {
        let Some(mut group) = start(pidfds, 2, &[], worker(words)) else { return };
        let output = group.end();
        assert_eq!(output.code, Some(code), "{output}");
    }
}

fn orphans_are_reaped(pidfds: Pidfds) {
    let script = "pids repeat 10 daemon exit 9 touch {ready} wait-for {go} exit 0";
    let Some(mut group) = start(pidfds, 1, &[], worker(script)) else { return };
    group.wait_for_files(&["ready"]);
    let one = inside(&group);
    // The worker and the guardian.
    eventually("no orphan is left", LIMIT, || children_of(one).len() == 2);
    group.touch("go");
    let output = group.end();
    assert_eq!(output.code, Some(0), "{output}");
    let pids = output.stdout_text();
    assert_eq!(pids.split_whitespace().nth(1), Some("1"), "the worker's parent is PID 1: {pids}");
}

fn a_stop_signal_ends_the_job(pidfds: Pidfds) {
    let script = "on TERM [ touch {told} exit 0 ] touch {ready} hang";
    let Some(mut group) = start(pidfds, 1, &[], worker(script)) else { return };
    group.wait_for_files(&["ready"]);
    signal_to(inside(&group), NixSignal::SIGTERM);
    let output = group.end();
    assert_eq!(output.code, Some(143), "{output}");
    assert!(group.file("told").exists());
}

fn daemons_end_with_the_job(pidfds: Pidfds) {
    let script = "env -i setsid {W} on TERM [ touch {told} exit 0 ] touch {d} hang & \
                  until test -e {d}; do sleep 0.01; done; exit 0";
    let Some(mut group) = start(pidfds, 1, &[], Script::Shell(script)) else { return };
    let output = group.end();
    assert_eq!(output.code, Some(0), "{output}");
    assert!(group.file("told").exists(), "it had the death signal; the namespace's end alone would kill it");
}

fn a_second_stop_signal_kills_what_does_not_listen(pidfds: Pidfds) {
    let (term, int) = (NixSignal::SIGTERM, NixSignal::SIGINT);
    for (first, second, code) in [(term, int, 143), (int, term, 130)] {
        let script = "on TERM touch {told} on INT touch {told} daemon [ ignore TERM ignore INT touch {d} hang ] \
                      touch {ready} hang";
        let Some(mut group) = start(pidfds, 1, &["--shutdown-timeout", "600"], worker(script)) else { return };
        group.wait_for_files(&["d", "ready"]);
        let one = inside(&group);
        signal_to(one, first);
        group.wait_for_files(&["told"]);
        signal_to(one, second);
        let output = group.end();
        assert_eq!(output.code, Some(code), "{output}");
    }
}

fn restarts_leave_no_zombies(pidfds: Pidfds) {
    let script = "if [ $TORCHELASTIC_RESTART_COUNT != 2 ]; then (setsid {W} exit 0 &) ; env -i setsid {W} hang & exit 5; fi; \
                  exec {W} touch {ready} wait-for {go} exit 0";
    let Some(mut group) = start(pidfds, 1, &["--max-restarts", "2"], Script::Shell(script)) else { return };
    group.wait_for_files(&["ready"]);
    let one = inside(&group);
    // The worker and the guardian.
    eventually("nothing of earlier attempts is left", LIMIT, || children_of(one).len() == 2);
    group.touch("go");
    let output = group.end();
    assert_eq!(output.code, Some(0), "{output}");
}

fn a_table_of_other_processes_is_not_taken_for_its_own(pidfds: Pidfds) {
    // Without --mount-proc, /proc has the numbers of the namespace outside.
    let check = ["unshare", "--pid", "--fork", "true"];
    if !has("a /proc of another namespace", "no PID namespace can be made", &check) {
        return;
    }
    let launcher = || pidfds.apply(Launcher::new(check[0]).args(&check[1..3]).arg(binary("rankrun-cli", "rankrun")));
    let script = "setsid {W} touch {d} hang & until test -e {d}; do sleep 0.01; done; exit 5";
    let mut group = Group::start_as(launcher(), 2, &[], Script::Shell(script));
    let output = group.end();
    assert_eq!(output.code, Some(5), "{output}");
    // Nobody was waited for that is somebody else.
    assert!(output.elapsed < Duration::from_secs(20), "{output}");
    let mut group = Group::start_as(launcher(), 2, &[], Script::Shell("exit 0"));
    let output = group.end();
    assert_eq!((output.code, output.elapsed < Duration::from_secs(20)), (Some(0), true), "{output}");
}
