//! SIGKILL to rankrun: its workers, all that they had started and its guardian are gone soon.

use std::time::{Duration, Instant};

use rankrun::Signal;
use rankrun_testkit::{Launcher, children_of, eventually};
use rankrun_tests::{
    Group, LIMIT, NO_CGROUP, Pidfds, Script, control_groups, control_groups_of, with_and_without_pidfds, worker,
};

with_and_without_pidfds!(
    all_that_workers_started_goes_within_a_second,
    what_was_stopped_goes_too,
    daemons_that_are_just_being_made_go_too,
    killed_in_the_middle_of_starting_200_workers,
);

/// A second by design; the rest is for the machine, which does other things as well.
const WITHIN: Duration = Duration::from_secs(3);

fn kill_and_wait(group: &mut Group) {
    group.cookie();
    group.signal(Signal::KILL);
    let killed = Instant::now();
    group.running().wait_timeout(LIMIT);
    eventually("nothing of the group is left", LIMIT, || {
        group.left().is_empty() && control_groups_of(group.pid()).is_empty()
    });
    let gone = killed.elapsed();
    eprintln!("gone {gone:?} after SIGKILL of the launcher");
    assert!(gone < WITHIN, "{gone:?}");
}

fn all_that_workers_started_goes_within_a_second(pidfds: Pidfds) {
    let script = "{W} ignore TERM touch {a} hang & setsid {W} ignore TERM touch {b} hang & \
                  {W} daemon [ ignore TERM touch {c} hang ] & touch {ready}; exec sleep 600";
    let mut group = Group::start(pidfds, 4, &[], Script::Shell(script));
    group.wait_for_files(&["ready", "a", "b", "c"]);
    assert_eq!(group.guardians().len(), 1);
    kill_and_wait(&mut group);
}

#[test]
fn daemons_that_hide_go_too_where_there_is_a_control_group() {
    if control_groups("daemons that hide").is_none() {
        return;
    }
    // Neither session nor environment; the worker that started the first still runs, that of the second is gone.
    let script = "setsid env -i {W} ignore TERM touch {a} hang & (setsid env -i {W} touch {b} hang &); \
                  setsid env -i {W} spawn [ touch {c} stop ] hang & touch {ready}; exec sleep 600";
    for no_pidfd in ["", "1"] {
        let launcher = Launcher::rankrun().env_remove(NO_CGROUP).env("RANKRUN_NO_PIDFD", no_pidfd);
        let mut group = Group::start_as(launcher, 2, &[], Script::Shell(script));
        group.wait_for_files(&["ready", "a", "b", "c"]);
        kill_and_wait(&mut group);
    }
}

#[test]
fn what_kept_its_environment_goes_without_a_control_group() {
    let script =
        "setsid {W} ignore TERM touch {a} hang & {W} daemon [ touch {b} hang ] & touch {ready}; exec sleep 600";
    let launcher = Launcher::rankrun().env(NO_CGROUP, "1");
    let mut group = Group::start_as(launcher, 2, &[], Script::Shell(script));
    group.wait_for_files(&["ready", "a", "b"]);
    kill_and_wait(&mut group);
}

fn what_was_stopped_goes_too(pidfds: Pidfds) {
    let script = "spawn [ touch {child} stop ] daemon [ touch {daemon} stop ] wait-for {child} wait-for {daemon} \
                  touch {ready} stop";
    let mut group = Group::start(pidfds, 1, &[], worker(script));
    group.wait_for_files(&["ready"]);
    let pids: Vec<i32> = group.running().processes().iter().map(|process| process.pid).collect();
    let pids: Vec<i32> = pids.into_iter().filter(|pid| *pid != group.pid()).collect();
    assert_eq!(pids.len(), 3);
    group.wait_for_state(&pids, 'T');
    kill_and_wait(&mut group);
}

fn killed_in_the_middle_of_starting_200_workers(pidfds: Pidfds) {
    for started in [1, 40, 120] {
        let script = "{W} daemon [ hang ] & exec sleep 600";
        let mut group = Group::start(pidfds, 200, &[], Script::Shell(script));
        let pid = group.pid();
        eventually("some workers have been started", LIMIT, || children_of(pid).len() > started);
        group.signal(Signal::KILL);
        group.running().wait_timeout(LIMIT);
        // The guardian of a group of which no worker is left to ask cannot be asked for; the mark tells of the rest.
        eventually("nothing of the group is left", LIMIT, || {
            group.left().is_empty() && control_groups_of(pid).is_empty()
        });
    }
}

fn daemons_that_are_just_being_made_go_too(pidfds: Pidfds) {
    // Each starts the next and is gone: one look at the process table sees one, or the next, or neither.
    let chain = "setsid sh -c 'next() { test $1 = 0 && exec sleep 600; next $(($1 - 1)) & }; next 100' &\n";
    for _ in 0..5 {
        let script = format!("{chain} {chain} touch {{ready}}; exec sleep 600");
        let mut group = Group::start(pidfds, 1, &[], Script::Shell(&script));
        group.wait_for_files(&["ready"]);
        kill_and_wait(&mut group);
    }
}
