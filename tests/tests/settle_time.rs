//! `--settle-time`: workers that are failing too when the first one fails have time to say why.

use std::time::{Duration, Instant};

use rankrun::Signal;
use rankrun_tests::{Group, LIMIT, Pidfds, with_and_without_pidfds, worker};

with_and_without_pidfds!(
    who_fails_in_it_is_a_failure_of_its_own,
    without_it_the_stop_is_at_once,
    a_stop_signal_ends_it,
    it_does_not_wait_for_who_has_ended,
);

/// Longer than any test may take.
const LONG: &str = "3600";

fn who_fails_in_it_is_a_failure_of_its_own(pidfds: Pidfds) {
    // Rank 1 fails of rank 0's failure, rank 2 does not notice.
    let script = "if-rank 0 [ wait-for {two} exit 7 ] if-rank 1 [ wait-for {two} sleep 100 exit 8 ] touch {two} hang";
    let mut group = Group::start(pidfds, 3, &["--settle-time", "2"], worker(script));
    let output = group.end();
    let text = output.stderr_text();
    assert_eq!(output.code, Some(7), "{output}");
    assert!(text.contains("rank 0") && text.contains("exit code 8"), "{text}");
    assert!(output.elapsed >= Duration::from_secs(2), "rank 2 was left alone for so long: {output}");
}

fn without_it_the_stop_is_at_once(pidfds: Pidfds) {
    let script = "if-rank 0 [ wait-for {one} exit 7 ] on TERM [ exit 8 ] touch {one} hang";
    let mut group = Group::start(pidfds, 2, &["--settle-time", "0"], worker(script));
    let output = group.end();
    let text = output.stderr_text();
    assert_eq!(output.code, Some(7), "{output}");
    assert!(!text.contains("exit code 8"), "rank 1 was told to end: {text}");
}

fn a_stop_signal_ends_it(pidfds: Pidfds) {
    let script = "if-rank 0 [ wait-for {go} exit 7 ] on HUP [ touch {told} exit 0 ] touch {one} hang";
    let mut group = Group::start(pidfds, 2, &["--settle-time", LONG], worker(script));
    group.wait_for_files(&["one"]);
    rankrun_testkit::eventually("both run", LIMIT, || group.workers().len() == 2);
    group.touch("go");
    rankrun_testkit::eventually("rank 0 is gone", LIMIT, || group.workers().len() == 1);
    group.signal(Signal::HUP);
    let output = group.end();
    assert_eq!(output.code, Some(7), "{output}");
    assert!(group.file("told").exists(), "what was asked for is what it got");
}

fn it_does_not_wait_for_who_has_ended(pidfds: Pidfds) {
    let began = Instant::now();
    let mut group = Group::start(pidfds, 2, &["--settle-time", LONG], worker("if-rank 0 exit 7 sleep 100 exit 8"));
    assert_eq!(group.end().code, Some(7));
    assert!(began.elapsed() < Duration::from_secs(60));
}
