//! The guardian: one for a group, small, and gone with the group, however that ends.

use nix::sys::signal::Signal as NixSignal;
use rankrun::Signal;
use rankrun_testkit::{eventually, private_memory_kib, process_state, thread_count, wakeups};
use rankrun_tests::{Group, LIMIT, Pidfds, control_groups_of, signal_to, with_and_without_pidfds, worker};

with_and_without_pidfds!(
    its_name_and_command_line_say_whose_it_is,
    it_is_gone_after_a_normal_end,
    it_is_gone_after_a_failure,
    it_is_gone_after_a_stop,
    another_takes_its_place,
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

fn its_name_and_command_line_say_whose_it_is(pidfds: Pidfds) {
    let (mut group, guardian) = start(pidfds, &format!("{WAIT} exit 0"));
    let read = |name| std::fs::read_to_string(format!("/proc/{guardian}/{name}"));
    eventually("it has its name", LIMIT, || read("comm").is_ok_and(|name| name == "rankrun-guard\n"));
    assert_eq!(read("cmdline").ok(), Some(format!("rankrun-guard\0of\0{}\0", group.pid())));
    group.touch("go");
    assert_eq!(group.end().code, Some(0));
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

fn another_takes_its_place(pidfds: Pidfds) {
    let (mut group, first) = start(pidfds, &format!("spawn [ setsid hang ] {WAIT} exit 0"));
    signal_to(first, NixSignal::SIGKILL);
    let second = eventually("there is another guardian", LIMIT, || {
        group.guardians().into_iter().find(|guardian| guardian.pid != first).map(|guardian| guardian.pid)
    });
    eventually("the first one was reaped", LIMIT, || process_state(first).is_none());
    group.wait_for_state(&[second], 'S');
    // It knows of the workers, and ends what they started.
    group.signal(Signal::KILL);
    group.running().wait_timeout(LIMIT);
    eventually("nothing is left", LIMIT, || group.left().is_empty() && control_groups_of(group.pid()).is_empty());
}

#[test]
fn the_job_goes_on_without_it_and_says_so_when_each_is_killed() {
    let (mut group, mut guardian) = start(Pidfds::Used, &format!("{WAIT} exit 0"));
    for round in 1..=4 {
        signal_to(guardian, NixSignal::SIGKILL);
        eventually("the guardian was reaped", LIMIT, || process_state(guardian).is_none());
        if round < 4 {
            guardian = eventually("there is another", LIMIT, || group.guardians().first().map(|found| found.pid));
        }
    }
    assert_eq!(group.guardians().len(), 0);
    group.touch("go");
    let output = group.end();
    assert_eq!(output.code, Some(0), "{output}");
    assert!(output.stderr_text().contains("has ended again and again"), "{output}");
}

fn signals_that_were_meant_for_the_launcher_do_not_end_it(pidfds: Pidfds) {
    let (mut group, guardian) = start(pidfds, "spawn hang touch {ready} hang");
    group.wait_for_state(&[guardian], 'S');
    for signal in [NixSignal::SIGTERM, NixSignal::SIGINT, NixSignal::SIGHUP, NixSignal::SIGQUIT, NixSignal::SIGUSR1] {
        signal_to(guardian, signal);
    }
    // It still does what it is there for.
    group.signal(Signal::KILL);
    group.running().wait_timeout(LIMIT);
    group.running().assert_nothing_left();
    eventually("the guardian has ended", LIMIT, || process_state(guardian).is_none_or(|state| state == 'Z'));
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
    group.running().wait_timeout(LIMIT);
    assert!(before < 50, "{before} wake-ups for nothing");
}
