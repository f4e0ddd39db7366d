//! Who gets the death signal when: the worker first and then its group, or all at once; and what does not delay it.

use std::time::{Duration, Instant};

use rankrun::Signal;
use rankrun_tests::{Group, Pidfds, Script, touch_by_rank, with_and_without_pidfds, worker};

with_and_without_pidfds!(
    a_worker_that_needs_its_helper_to_end_well_has_it,
    with_order_group_all_get_the_signal_while_the_leader_runs,
    signals_of_the_keyboard_reach_the_whole_process_group,
    a_shell_around_the_program_does_not_shield_it,
    a_stopped_worker_costs_no_grace,
    a_stopped_child_of_a_worker_costs_no_grace,
    a_daemon_gets_the_death_signal_once_the_workers_are_gone,
);

/// Far less than the default grace of 30 s, and far more than anything here takes.
const NO_GRACE_USED: Duration = Duration::from_secs(20);

fn stop_without_using_the_grace(group: &mut Group) -> rankrun_testkit::Output {
    let told = Instant::now();
    group.signal(Signal::TERM);
    let output = group.end();
    assert!(told.elapsed() < NO_GRACE_USED, "{:?}\n{output}", told.elapsed());
    assert_eq!(output.code, Some(143), "{output}");
    output
}

fn a_worker_that_needs_its_helper_to_end_well_has_it(pidfds: Pidfds) {
    // The helper would end of SIGTERM, and could answer no more.
    let script = "spawn [ touch {helper} wait-for {question} touch {answer} hang ] \
                  on TERM [ touch {question} wait-for {answer} touch {checkpoint} exit 0 ] \
                  wait-for {helper} touch {ready} hang";
    let mut group = Group::start(pidfds, 1, &[], worker(script));
    group.wait_for_files(&["ready"]);
    stop_without_using_the_grace(&mut group);
    assert!(group.file("checkpoint").exists());
}

fn with_order_group_all_get_the_signal_while_the_leader_runs(pidfds: Pidfds) {
    // The leader ends only if its child got the signal.
    let script = "ignore TERM spawn [ on TERM [ touch {got} exit 0 ] touch {child} hang ] \
                  wait-for {child} touch {ready} wait-for {got} exit 0";
    let mut group = Group::start(pidfds, 1, &["--stop-order", "group"], worker(script));
    group.wait_for_files(&["ready"]);
    stop_without_using_the_grace(&mut group);
    assert!(group.file("got").exists());
}

fn signals_of_the_keyboard_reach_the_whole_process_group(pidfds: Pidfds) {
    for (name, signal, code) in [("INT", Signal::INT, 130), ("QUIT", Signal::QUIT, 131)] {
        let script = format!(
            "ignore {name} spawn [ on {name} [ touch {{got}} exit 0 ] touch {{child}} hang ] \
             wait-for {{child}} touch {{ready}} wait-for {{got}} exit 0"
        );
        let mut group = Group::start(pidfds, 1, &[], worker(&script));
        group.wait_for_files(&["ready"]);
        group.signal(signal);
        let output = group.end();
        assert_eq!(output.code, Some(code), "{output}");
        assert!(group.file("got").exists(), "the leader runs until its child has the signal");
    }
}

fn a_shell_around_the_program_does_not_shield_it(pidfds: Pidfds) {
    let script = "{W} on TERM [ touch {got} exit 0 ] touch {ready} hang; true";
    let mut group = Group::start(pidfds, 2, &[], Script::Shell(script));
    group.wait_for_files(&["ready"]);
    stop_without_using_the_grace(&mut group);
    assert!(group.file("got").exists(), "the program got the death signal, not SIGKILL");
}

fn a_stopped_worker_costs_no_grace(pidfds: Pidfds) {
    let script = format!("{} stop hang", touch_by_rank("ready", 2));
    let mut group = Group::start(pidfds, 2, &[], worker(&script));
    group.wait_for_each("ready", 2);
    let pids: Vec<i32> = group.workers().iter().map(|worker| worker.pid).collect();
    assert_eq!(pids.len(), 2);
    group.wait_for_state(&pids, 'T');
    stop_without_using_the_grace(&mut group);
}

fn a_stopped_child_of_a_worker_costs_no_grace(pidfds: Pidfds) {
    let script = "spawn [ touch {child} stop hang ] wait-for {child} touch {ready} hang";
    let mut group = Group::start(pidfds, 1, &[], worker(script));
    group.wait_for_files(&["ready"]);
    let leader = group.workers()[0].pid;
    let child = rankrun_testkit::children_of(leader)[0].pid;
    group.wait_for_state(&[child], 'T');
    stop_without_using_the_grace(&mut group);
}

fn a_daemon_gets_the_death_signal_once_the_workers_are_gone(pidfds: Pidfds) {
    let script = "daemon [ on TERM [ touch {got} exit 0 ] touch {daemon} hang ] wait-for {daemon} \
                  on TERM [ touch {first} exit 0 ] touch {ready} hang";
    let mut group = Group::start(pidfds, 1, &[], worker(script));
    group.wait_for_files(&["ready"]);
    stop_without_using_the_grace(&mut group);
    let time = |name| std::fs::metadata(group.file(name)).and_then(|file| file.modified()).expect("the file is there");
    assert!(time("first") <= time("got"), "the worker came first");
}
