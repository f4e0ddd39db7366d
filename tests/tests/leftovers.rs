//! What workers leave behind dies with the group: children, daemons, what ignores the death signal, what has neither
//! the group's environment nor its session.

use std::time::Duration;

use rankrun::Signal;
use rankrun_tests::{Group, Pidfds, Script, with_and_without_pidfds, worker};

with_and_without_pidfds!(
    children_of_a_leader_that_failed_end,
    children_of_a_leader_that_succeeded_end,
    a_child_that_ignores_the_death_signal_is_killed,
    a_daemon_in_its_own_session_ends,
    a_daemon_whose_parent_is_gone_ends,
    a_daemon_without_environment_ends,
    all_of_them_end_when_rankrun_is_told_to_stop,
    daemons_that_are_just_being_made_end,
);

/// Leaves a child that says it is there before the leader goes on.
const CHILD: &str = "spawn [ touch {child} hang ] wait-for {child}";

fn children_of_a_leader_that_failed_end(pidfds: Pidfds) {
    let mut group = Group::start(pidfds, 2, &[], worker(&format!("{CHILD} exit 7")));
    assert_eq!(group.end().code, Some(7));
}

fn children_of_a_leader_that_succeeded_end(pidfds: Pidfds) {
    let mut group = Group::start(pidfds, 2, &[], worker(&format!("{CHILD} exit 0")));
    let output = group.end();
    assert_eq!(output.code, Some(0), "{output}");
    assert!(group.file("child").exists());
}

fn a_child_that_ignores_the_death_signal_is_killed(pidfds: Pidfds) {
    for code in [0, 7] {
        let script = format!("spawn [ ignore TERM touch {{child}} hang ] wait-for {{child}} exit {code}");
        let mut group = Group::start(pidfds, 1, &["--shutdown-timeout", "0.2"], worker(&script));
        let output = group.end();
        assert_eq!(output.code, Some(code), "{output}");
        assert!(output.elapsed >= Duration::from_millis(200), "the child had the grace");
    }
}

fn a_daemon_in_its_own_session_ends(pidfds: Pidfds) {
    for code in [0, 7] {
        let script = format!("spawn [ setsid ignore TERM touch {{daemon}} hang ] wait-for {{daemon}} exit {code}");
        let mut group = Group::start(pidfds, 2, &["--shutdown-timeout", "0.2"], worker(&script));
        let output = group.end();
        assert_eq!(output.code, Some(code), "{output}");
    }
}

fn a_daemon_whose_parent_is_gone_ends(pidfds: Pidfds) {
    for code in [0, 7] {
        let script = format!("daemon [ touch {{daemon}} hang ] wait-for {{daemon}} exit {code}");
        let mut group = Group::start(pidfds, 2, &[], worker(&script));
        let output = group.end();
        assert_eq!(output.code, Some(code), "{output}");
    }
}

fn a_daemon_without_environment_ends(pidfds: Pidfds) {
    // It is found by who adopted it, and by nothing else.
    for code in [0, 7] {
        let script =
            format!("env -i setsid {{W}} touch {{d}} hang & until test -e {{d}}; do sleep 0.01; done; exit {code}");
        let mut group = Group::start(pidfds, 1, &[], Script::Shell(&script));
        let output = group.end();
        assert_eq!(output.code, Some(code), "{output}");
        assert!(group.file("d").exists());
    }
}

fn all_of_them_end_when_rankrun_is_told_to_stop(pidfds: Pidfds) {
    let script = "{W} ignore TERM touch {a} hang & setsid {W} touch {b} hang & \
                  {W} daemon [ ignore TERM touch {c} hang ] & env -i setsid {W} ignore TERM touch {d} hang & \
                  touch {ready}; exec sleep 600";
    let mut group = Group::start(pidfds, 2, &["--shutdown-timeout", "0.2"], Script::Shell(script));
    group.wait_for_files(&["ready", "a", "b", "c", "d"]);
    group.signal(Signal::TERM);
    assert_eq!(group.end().code, Some(143));
}

fn daemons_that_are_just_being_made_end(pidfds: Pidfds) {
    // Each starts the next and is gone: one look at the process table sees one, or the next, or neither.
    let chain = "setsid sh -c 'next() { test $1 = 0 && exec sleep 600; next $(($1 - 1)) & }; next 100' &\n";
    for round in 0..10 {
        let script = format!("{chain} {chain} sleep 0.0{round}; exit 3");
        let mut group = Group::start(pidfds, 1, &["--shutdown-timeout", "0.2"], Script::Shell(&script));
        let output = group.end();
        assert_eq!(output.code, Some(3), "{output}");
    }
}
