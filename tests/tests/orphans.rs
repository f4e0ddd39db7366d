//! Orphans that come to rankrun are reaped while the job runs, and never mistaken for workers.

use rankrun_testkit::eventually;
use rankrun_tests::{Group, LIMIT, Pidfds, Script, touch_by_rank, with_and_without_pidfds, worker};

with_and_without_pidfds!(
    they_are_reaped_while_workers_run,
    their_failure_is_not_the_jobs,
    their_success_does_not_end_the_job,
    an_orphan_that_runs_when_its_worker_fails_does_not_hide_the_failure,
);

fn they_are_reaped_while_workers_run(pidfds: Pidfds) {
    let script = format!("repeat 10 daemon exit 0 {} wait-for {{go}} exit 0", touch_by_rank("ready", 2));
    let mut group = Group::start(pidfds, 2, &[], worker(&script));
    group.wait_for_each("ready", 2);
    // rankrun's children now and until the end: two workers and the guardian.
    eventually("all orphans are reaped", LIMIT, || {
        group.zombies().is_empty() && rankrun_testkit::children_of(group.pid()).len() == 3
    });
    assert_eq!(group.workers().len(), 2);
    group.touch("go");
    let output = group.end();
    assert_eq!((output.code, output.stderr_text().as_str()), (Some(0), ""));
}

fn their_failure_is_not_the_jobs(pidfds: Pidfds) {
    let script = "daemon exit 9 daemon abort daemon raise KILL touch {ready} wait-for {go} exit 0";
    let mut group = Group::start(pidfds, 1, &[], worker(script));
    group.wait_for_files(&["ready"]);
    eventually("all orphans are reaped", LIMIT, || rankrun_testkit::children_of(group.pid()).len() == 2);
    group.touch("go");
    let output = group.end();
    assert_eq!((output.code, output.stderr_text().as_str()), (Some(0), ""));
}

fn their_success_does_not_end_the_job(pidfds: Pidfds) {
    let script = "daemon exit 0 touch {ready} wait-for {go} exit 4";
    let mut group = Group::start(pidfds, 1, &[], worker(script));
    group.wait_for_files(&["ready"]);
    eventually("the orphan is reaped", LIMIT, || rankrun_testkit::children_of(group.pid()).len() == 2);
    group.touch("go");
    assert_eq!(group.end().code, Some(4));
}

fn an_orphan_that_runs_when_its_worker_fails_does_not_hide_the_failure(pidfds: Pidfds) {
    let script =
        "{W} daemon [ on TERM exit 0 touch {daemon} hang ]; until test -e {daemon}; do sleep 0.01; done; kill -ABRT $$";
    let mut group = Group::start(pidfds, 1, &[], Script::Shell(script));
    let output = group.end();
    assert_eq!(output.code, Some(134), "{output}");
}
