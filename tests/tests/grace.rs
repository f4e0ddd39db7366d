//! The grace counts once for the whole group, on each path to the end.

use std::time::{Duration, Instant};

use rankrun::Signal;
use rankrun_tests::{Group, Pidfds, touch_by_rank, with_and_without_pidfds, worker};

with_and_without_pidfds!(
    it_counts_once_for_eight_workers_when_told_to_stop,
    it_counts_once_for_eight_workers_after_a_failure,
    it_counts_once_for_workers_children_and_daemons,
    none_means_sigkill_at_once,
);

const ONE_SECOND: [&str; 2] = ["--shutdown-timeout", "1"];
/// Far less than one after the other would take.
const ONCE: std::ops::Range<Duration> = Duration::from_secs(1)..Duration::from_secs(4);

fn eight_ready(pidfds: Pidfds, script: &str) -> Group {
    let shell = format!("trap '' TERM; {script}");
    let mut group = Group::start(pidfds, 8, &ONE_SECOND, rankrun_tests::Script::Shell(&shell));
    // A worker's file is named after its rank, which only a shell knows: {ready}0 to {ready}7.
    group.wait_for_each("ready", 8);
    group
}

fn it_counts_once_for_eight_workers_when_told_to_stop(pidfds: Pidfds) {
    let mut group = eight_ready(pidfds, "touch {ready}$RANK; while :; do sleep 600; done");
    let told = Instant::now();
    group.signal(Signal::TERM);
    let output = group.end();
    assert!(ONCE.contains(&told.elapsed()), "{:?}", told.elapsed());
    assert_eq!(output.code, Some(143));
}

fn it_counts_once_for_eight_workers_after_a_failure(pidfds: Pidfds) {
    let script = "touch {ready}$RANK; test $RANK = 3 && until test -e {go}; do sleep 0.01; done && exit 7; \
                  while :; do sleep 600; done";
    let mut group = eight_ready(pidfds, script);
    let told = Instant::now();
    group.touch("go");
    let output = group.end();
    assert!(ONCE.contains(&told.elapsed()), "{:?}", told.elapsed());
    assert_eq!(output.code, Some(7));
}

fn it_counts_once_for_workers_children_and_daemons(pidfds: Pidfds) {
    let script = "ignore TERM spawn [ ignore TERM touch {child} hang ] daemon [ ignore TERM touch {daemon} hang ] \
                  wait-for {child} wait-for {daemon} touch {ready} hang";
    let mut group = Group::start(pidfds, 1, &["--shutdown-timeout", "2"], worker(script));
    group.wait_for_files(&["ready"]);
    let told = Instant::now();
    group.signal(Signal::TERM);
    let output = group.end();
    let (once, twice) = (Duration::from_secs(2), Duration::from_secs(4));
    assert!((once..twice).contains(&told.elapsed()), "{:?}", told.elapsed());
    assert_eq!(output.code, Some(143));
}

fn none_means_sigkill_at_once(pidfds: Pidfds) {
    let script = format!("ignore TERM {} hang", touch_by_rank("ready", 2));
    let mut group = Group::start(pidfds, 2, &["--shutdown-timeout", "0"], worker(&script));
    group.wait_for_each("ready", 2);
    group.signal(Signal::TERM);
    assert_eq!(group.end().code, Some(143));
}
