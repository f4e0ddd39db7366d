//! rankrun as PID 1 of a PID namespace, as in a container without an init.

use nix::sys::signal::Signal as NixSignal;
use rankrun_testkit::{Launcher, binary, children_of, eventually};
use rankrun_tests::{Group, LIMIT, Pidfds, Script, has, signal_to, with_and_without_pidfds, worker};

with_and_without_pidfds!(
    the_exit_code_is_right,
    orphans_are_reaped,
    a_stop_signal_ends_the_job,
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
