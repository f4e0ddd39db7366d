//! A stop signal while workers are being started: none is left, and the exit code says which signal.

use rankrun::Signal;
use rankrun_testkit::{children_of, eventually};
use rankrun_tests::{Group, LIMIT, Pidfds, with_and_without_pidfds, worker};

with_and_without_pidfds!(
    a_signal_in_the_middle_of_starting_200_workers,
    two_signals_in_the_middle_of_starting_200_workers,
    a_worker_that_fails_at_once_in_the_middle_of_starting_200_workers,
);

fn start(pidfds: Pidfds, started: usize) -> Group {
    // No shell: one that is about to start a program can lose a SIGINT.
    let group = Group::start(pidfds, 200, &["--shutdown-timeout", "3600"], worker("hang"));
    let pid = group.pid();
    eventually("some workers have been started", LIMIT, || children_of(pid).len() > started);
    group
}

fn a_signal_in_the_middle_of_starting_200_workers(pidfds: Pidfds) {
    for (started, signal, code) in [(1, Signal::TERM, 143), (60, Signal::INT, 130), (150, Signal::HUP, 129)] {
        let mut group = start(pidfds, started);
        group.signal(signal);
        let output = group.end();
        assert_eq!(output.code, Some(code), "{output}");
        assert_eq!(output.stderr_text().lines().count(), 1, "{output}");
    }
}

fn two_signals_in_the_middle_of_starting_200_workers(pidfds: Pidfds) {
    let mut group = start(pidfds, 30);
    group.signal(Signal::TERM);
    group.signal(Signal::QUIT);
    let output = group.end();
    assert!(matches!(output.code, Some(143 | 131)), "{output}");
}

fn a_worker_that_fails_at_once_in_the_middle_of_starting_200_workers(pidfds: Pidfds) {
    let mut group = Group::start(pidfds, 200, &[], worker("if-rank 3 exit 5 hang"));
    let output = group.end();
    assert_eq!(output.code, Some(5), "{}", output.stderr_text());
}
