//! A library that adopts orphans reaps those of its groups, and none of its host program's children.
//!
//! In a program of its own, because it makes the whole program a subreaper.

#![expect(clippy::unwrap_used, reason = "clippy knows test functions, not their helpers")]

use std::process::Command;

use rankrun::{Entrypoint, Orphans, WorkerGroup, start_processes};
use rankrun_testkit::{MARK, Process, assert_no_process_left, children_of, eventually, scripted_worker, unique_id};
use rankrun_tests::{LIMIT, NO_CGROUP};

fn zombies() -> Vec<Process> {
    children_of(std::process::id().cast_signed()).into_iter().filter(|child| child.state == 'Z').collect()
}

/// Runs a group whose worker leaves this and then exits 0; returns the workers' pids, which are their sessions.
fn run(leave: &str, control_group: bool) -> Vec<i32> {
    let mark = unique_id("zombies");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("there").to_string_lossy().into_owned();
    let script = leave.replace("{W}", &scripted_worker().to_string_lossy()).replace("{file}", &file);
    let script = format!("{script}\nuntil test -e {file}; do sleep 0.01; done");
    let group = WorkerGroup::new("g", Entrypoint::binary("sh"), 2).args(["-c", &script]).env(MARK, &mark);
    let group = group.orphans(Orphans::Adopt).control_group(control_group);
    let result = start_processes(group).unwrap().wait(Some(LIMIT)).unwrap().unwrap();
    assert!(!result.is_failed(), "{result:?}");
    assert_no_process_left(MARK, &mark);
    result.workers.values().iter().map(|worker| worker.pid.unwrap().cast_signed()).collect()
}

#[test]
fn zombies_of_the_group_are_reaped_and_a_child_of_the_host_program_is_not() {
    let mut host = Command::new("true").spawn().unwrap();
    eventually("the host's child has ended", LIMIT, || zombies().len() == 1);
    let host_pid = host.id().cast_signed();
    let only_the_hosts = || zombies().iter().map(|zombie| zombie.pid).collect::<Vec<_>>() == [host_pid];

    // In the worker's session; in one of its own, seen alive and ended by us.
    let in_session = "(sh -c 'exec true' &) ; {W} daemon [ exit 3 ]; (touch {file} &)";
    let seen_alive = "{W} daemon [ touch {file} hang ]";
    for leave in [in_session, seen_alive] {
        for control_group in [false, true] {
            let sessions = run(leave, control_group);
            // What ends in a session of its own before anyone has seen it is known by its control group alone.
            let mut left = zombies();
            left.retain(|zombie| zombie.pid != host_pid);
            if leave == seen_alive || (control_group && std::env::var_os(NO_CGROUP).is_none()) {
                assert_eq!(left, [], "{leave}, control group: {control_group}");
            }
            for zombie in left {
                assert!(!sessions.contains(&zombie.sid), "one in a worker's session was not reaped: {zombie}");
                nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(zombie.pid), None).unwrap();
            }
        }
    }
    assert!(only_the_hosts(), "{:?}", zombies());
    assert_eq!(host.wait().unwrap().code(), Some(0));
}
