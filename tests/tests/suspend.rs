//! Ctrl-Z and `fg`: workers stop and go on with rankrun, and time stands still meanwhile.

use std::time::{Duration, Instant};

use rankrun::Signal;
use rankrun_tests::{Group, LIMIT, Pidfds, touch_by_rank, with_and_without_pidfds, worker};

with_and_without_pidfds!(
    the_whole_job_stops_and_goes_on,
    a_grace_does_not_run_out_meanwhile,
    a_stop_signal_meanwhile_acts_when_it_goes_on,
    killed_while_suspended_nothing_is_left,
    continued_at_once_it_does_not_stay_stopped,
);

/// rankrun, its workers and the children of those: all with the mark.
fn pids(group: &mut Group) -> Vec<i32> {
    group.running().processes().iter().map(|process| process.pid).collect()
}

fn start(pidfds: Pidfds, args: &[&str], before: &str, after: &str) -> Group {
    let script = format!("{before} spawn hang {} {after}", touch_by_rank("ready", 2));
    let mut group = Group::start(pidfds, 2, args, worker(&script));
    group.wait_for_each("ready", 2);
    group
}

fn suspend(group: &mut Group) -> Vec<i32> {
    let all = pids(group);
    assert_eq!(all.len(), 5, "rankrun, two workers, a child of each");
    group.signal(Signal::TSTP);
    group.wait_for_state(&all, 'T');
    all
}

fn the_whole_job_stops_and_goes_on(pidfds: Pidfds) {
    let mut group = start(pidfds, &[], "", "wait-for {go} exit 0");
    for _ in 0..3 {
        let all = suspend(&mut group);
        group.signal(Signal::CONT);
        for pid in all {
            rankrun_testkit::eventually("it goes on", LIMIT, || rankrun_testkit::process_state(pid) != Some('T'));
        }
    }
    group.touch("go");
    let output = group.end();
    assert_eq!((output.code, output.stderr_text().as_str()), (Some(0), ""));
}

fn a_grace_does_not_run_out_meanwhile(pidfds: Pidfds) {
    const GRACE: Duration = Duration::from_secs(2);
    let told = format!("on TERM [ {} ]", touch_by_rank("told", 2));
    let mut group = start(pidfds, &["--shutdown-timeout", "2"], &told, "hang");
    let began = Instant::now();
    group.signal(Signal::TERM);
    group.wait_for_each("told", 2);
    suspend(&mut group);
    let used = began.elapsed();
    // sleep: the time that must not count has to pass.
    std::thread::sleep(GRACE);
    let resumed = Instant::now();
    group.signal(Signal::CONT);
    assert_eq!(group.end().code, Some(143));
    let left = GRACE.saturating_sub(used);
    assert!(resumed.elapsed() >= left, "{used:?} used before, {:?} after", resumed.elapsed());
}

fn a_stop_signal_meanwhile_acts_when_it_goes_on(pidfds: Pidfds) {
    let told = format!("on TERM [ {} exit 0 ]", touch_by_rank("told", 2));
    let mut group = start(pidfds, &[], &told, "hang");
    suspend(&mut group);
    group.signal(Signal::TERM);
    group.signal(Signal::CONT);
    assert_eq!(group.end().code, Some(143));
    assert!(group.file("told0").exists() && group.file("told1").exists());
}

fn killed_while_suspended_nothing_is_left(pidfds: Pidfds) {
    let mut group = start(pidfds, &[], "", "hang");
    group.cookie();
    suspend(&mut group);
    group.signal(Signal::KILL);
    group.running().wait_timeout(LIMIT);
    rankrun_testkit::eventually("nothing is left", LIMIT, || group.left().is_empty());
}

fn continued_at_once_it_does_not_stay_stopped(pidfds: Pidfds) {
    let mut group = start(pidfds, &[], "", "wait-for {go} exit 0");
    // Once: between the last look for a SIGCONT and the stop a microsecond remains in which one comes too early.
    group.signal(Signal::TSTP);
    group.signal(Signal::CONT);
    group.touch("go");
    let output = group.end();
    assert_eq!((output.code, output.stderr_text().as_str()), (Some(0), ""));
}
