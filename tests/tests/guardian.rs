//! The guardian: one for a group, small, and gone with the group, however that ends.

use nix::sys::signal::Signal as NixSignal;
use rankrun::Signal;
use rankrun_testkit::{private_memory_kib, process_state, thread_count, wakeups};
use rankrun_tests::{Group, Pidfds, signal_to, with_and_without_pidfds, worker};

with_and_without_pidfds!(
    it_is_gone_after_a_normal_end,
    it_is_gone_after_a_failure,
    it_is_gone_after_a_stop,
    the_job_goes_on_without_it,
    signals_that_were_meant_for_the_launcher_do_not_end_it,
);

const WAIT: &str = "touch {ready} wait-for {go}";

fn start(pidfds: Pidfds, script: &str) -> (Group, i32) {
    let mut group = Group::start(pidfds, 2, &[], worker(script));
    group.wait_for_files(&["ready"]);
    let guardians = group.guardians();
    assert_eq!(guardians.len(), 1, "{guardians:?}");
    let guardian = &guardians[0];
    assert_eq!(guardian.ppid, group.pid());
    // A signal to rankrun's process group, such as Ctrl-C, must not reach it.
    assert_eq!((guardian.pgid, guardian.sid), (guardian.pid, guardian.pid));
    let pid = guardian.pid;
    (group, pid)
}

fn it_is_gone_after_a_normal_end(pidfds: Pidfds) {
    let (mut group, guardian) = start(pidfds, &format!("{WAIT} exit 0"));
    group.touch("go");
    assert_eq!(group.end().code, Some(0));
    assert_eq!(process_state(guardian), None);
}

fn it_is_gone_after_a_failure(pidfds: Pidfds) {
    let (mut group, guardian) = start(pidfds, &format!("{WAIT} if-rank 1 exit 9 hang"));
    group.touch("go");
    assert_eq!(group.end().code, Some(9));
    assert_eq!(process_state(guardian), None);
}

fn it_is_gone_after_a_stop(pidfds: Pidfds) {
    let (mut group, guardian) = start(pidfds, "touch {ready} hang");
    group.signal(Signal::INT);
    assert_eq!(group.end().code, Some(130));
    assert_eq!(process_state(guardian), None);
}

fn the_job_goes_on_without_it(pidfds: Pidfds) {
    let (mut group, guardian) = start(pidfds, &format!("{WAIT} exit 0"));
    signal_to(guardian, NixSignal::SIGKILL);
    rankrun_testkit::eventually("the guardian has ended", rankrun_tests::LIMIT, || {
        process_state(guardian).is_none_or(|state| state == 'Z')
    });
    group.touch("go");
    let output = group.end();
    assert_eq!(output.code, Some(0), "{output}");
}

fn signals_that_were_meant_for_the_launcher_do_not_end_it(pidfds: Pidfds) {
    let (mut group, guardian) = start(pidfds, "spawn hang touch {ready} hang");
    group.wait_for_state(&[guardian], 'S');
    for signal in [NixSignal::SIGTERM, NixSignal::SIGINT, NixSignal::SIGHUP, NixSignal::SIGQUIT, NixSignal::SIGUSR1] {
        signal_to(guardian, signal);
    }
    // It still does what it is there for.
    group.signal(Signal::KILL);
    group.running().wait_timeout(rankrun_tests::LIMIT);
    group.running().assert_nothing_left();
    rankrun_testkit::eventually("the guardian has ended", rankrun_tests::LIMIT, || {
        process_state(guardian).is_none_or(|state| state == 'Z')
    });
}

#[test]
fn it_is_small_and_sleeps() {
    let (mut group, guardian) = start(Pidfds::Used, &format!("{WAIT} exit 0"));
    group.wait_for_state(&[guardian], 'S');
    let before = wakeups(guardian).unwrap();
    let memory = private_memory_kib(guardian).unwrap();
    eprintln!("the guardian's private memory: {memory} KiB");
    assert!(memory < 1024, "{memory} KiB");
    assert_eq!(thread_count(guardian), Some(1));
    group.touch("go");
    group.running().wait_timeout(rankrun_tests::LIMIT);
    assert!(before < 50, "{before} wake-ups for nothing");
}
