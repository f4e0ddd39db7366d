//! `--dump-signal`: a chance to write stacks before the death signal.

use std::time::{Duration, Instant};

use rankrun::Signal;
use rankrun_tests::{Group, Pidfds, touch_by_rank, with_and_without_pidfds, worker};

with_and_without_pidfds!(
    it_comes_before_the_death_signal,
    workers_that_end_of_it_are_not_waited_for,
    it_comes_after_a_failure_too,
);

fn it_comes_before_the_death_signal(pidfds: Pidfds) {
    let script = "on USR1 [ out usr1 ] on TERM [ out term exit 0 ] touch {ready} hang";
    let args = ["--dump-signal", "SIGUSR1", "--dump-timeout", "0.5"];
    let mut group = Group::start(pidfds, 1, &args, worker(script));
    group.wait_for_files(&["ready"]);
    let told = Instant::now();
    group.signal(Signal::TERM);
    let output = group.end();
    assert!(told.elapsed() >= Duration::from_millis(500), "{:?}", told.elapsed());
    assert_eq!((output.code, output.stdout_text().as_str()), (Some(143), "usr1\nterm\n"), "{output}");
}

fn workers_that_end_of_it_are_not_waited_for(pidfds: Pidfds) {
    let script = format!("on USR1 [ out dumped exit 1 ] {} hang", touch_by_rank("ready", 2));
    let args = ["--dump-signal", "10", "--dump-timeout", "3600"];
    let mut group = Group::start(pidfds, 2, &args, worker(&script));
    group.wait_for_each("ready", 2);
    group.signal(Signal::TERM);
    let output = group.end();
    assert_eq!((output.code, output.stdout_text().as_str()), (Some(143), "dumped\ndumped\n"), "{output}");
}

fn it_comes_after_a_failure_too(pidfds: Pidfds) {
    let script =
        "if-rank 1 [ wait-for {ready} exit 7 ] on USR1 [ out usr1 ] on TERM [ out term exit 0 ] touch {ready} hang";
    let args = ["--dump-signal", "USR1", "--dump-timeout", "0.5"];
    let mut group = Group::start(pidfds, 2, &args, worker(script));
    let output = group.end();
    assert_eq!((output.code, output.stdout_text().as_str()), (Some(7), "usr1\nterm\n"), "{output}");
}
