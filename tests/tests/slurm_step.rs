//! rankrun as a step of a Slurm job: its end, the ends that Slurm makes, and signals. On the cluster of
//! `cargo xtask slurm-test`; without it each test says that it is skipped.

use rankrun_testkit::{Launcher, assert_no_process_with_cookie};
use rankrun_tests::LIMIT;
use rankrun_tests::slurm::{Slurm, has_slurm};

/// The test's nodes have names that nobody resolves.
const MASTER: &str = "--master-addr=127.0.0.1";

/// Each worker tells that it is up, and goes on until it is told to end.
const UP: &str = "touch {up}$SLURM_NODEID$LOCAL_RANK; trap 'echo term >>{term}$SLURM_NODEID; exit 0' TERM; \
                  while :; do sleep 0.1; done";

const ALL_UP: [&str; 4] = ["up00", "up01", "up10", "up11"];

/// Waits for all four workers, and gives the cookies of their groups.
#[track_caller]
fn cookies(job: &mut Slurm) -> Vec<String> {
    job.wait_for_files(&ALL_UP);
    let cookies = job.values("RANKRUN_GROUP");
    assert_eq!(cookies.len(), 2, "{cookies:?}");
    cookies
}

#[track_caller]
fn assert_no_group(cookies: &[String]) {
    for cookie in cookies {
        assert_no_process_with_cookie(cookie);
    }
}

/// What rankrun says of the job, which has this exit code.
#[track_caller]
fn result(job: &Slurm, code: i32) -> String {
    let result = Launcher::rankrun().args(["result", "--exit-code"]).arg(job.file("logs")).run_with_timeout(LIMIT);
    assert_eq!(result.code, Some(code), "{result}");
    result.stdout_text()
}

/// Both launchers lived to say that they were stopped. Of a job that is cancelled srun may lose the last lines.
#[track_caller]
fn assert_both_were_stopped(job: &Slurm) {
    let text = result(job, 143);
    assert!(text.contains("nodes 0-1: stopped by SIGTERM, exit code 143"), "{text}");
}

#[test]
fn a_worker_that_fails_on_one_node_ends_the_other() {
    if !has_slurm("a failing rank on one of two nodes") {
        return;
    }
    let fail = "if [ $SLURM_NODEID$LOCAL_RANK = 11 ]; then touch {up11}; \
                while [ ! -e {fail} ]; do sleep 0.05; done; exit 7; fi; ";
    let script = format!("{fail}{UP}");
    let mut job = Slurm::srun(
        &["--kill-on-bad-exit=1"],
        &["{rankrun}", MASTER, "-n", "2", "--log-dir", "{logs}", "sh", "-c", &script],
    );
    let cookies = cookies(&mut job);
    std::fs::write(job.file("fail"), "").unwrap();
    let output = job.end();
    let said = output.stderr_text();
    assert!(said.contains("task 1: Exited with exit code 7"), "{output}");
    // srun says the highest code that it has heard of: mostly that of the node it stopped, but it may leave before that ends.
    // What became of each node is in the results below.
    assert!(matches!(output.code, Some(7 | 143)), "{output}");
    assert!(job.text("term0").contains("term"), "{output}");
    assert_no_group(&cookies);
    // All nodes' results together blame the right one.
    let text = result(&job, 7);
    assert!(text.contains(": FAILED, exit code 7: rank 3 on node 1 ("), "{text}");
    assert!(text.contains("node 0: stopped by SIGTERM, exit code 143"), "{text}");
}

#[test]
fn scancel_stops_both_nodes_with_grace_and_leaves_nothing() {
    if !has_slurm("scancel") {
        return;
    }
    // A daemon that neither Slurm's signal nor the worker's end would reach in time.
    let script = format!("[ $LOCAL_RANK = 0 ] && (trap '' TERM; setsid sleep 600 &) ; {UP}");
    let args = ["{rankrun}", MASTER, "-n2", "--log-dir", "{logs}", "--shutdown-timeout", "3", "sh", "-c", &script];
    let mut job = Slurm::srun(&[], &args);
    let cookies = cookies(&mut job);
    job.scancel(&[]);
    let output = job.end();
    assert_eq!(output.code, Some(143), "{output}");
    assert_both_were_stopped(&job);
    for node in ["term0", "term1"] {
        assert!(job.text(node).contains("term"), "{output}");
    }
    assert_no_group(&cookies);
}

#[test]
fn workers_that_ignore_sigterm_are_killed_before_slurm_kills_rankrun() {
    if !has_slurm("scancel with workers that ignore SIGTERM") {
        return;
    }
    let script = "trap '' TERM; touch {up}$SLURM_NODEID$LOCAL_RANK; while :; do sleep 0.1; done";
    let mut job = Slurm::srun(
        &[],
        &["{rankrun}", MASTER, "-n2", "--log-dir", "{logs}", "--shutdown-timeout", "1", "sh", "-c", script],
    );
    let cookies = cookies(&mut job);
    job.scancel(&[]);
    let output = job.end();
    assert_eq!(output.code, Some(143), "{output}");
    assert_both_were_stopped(&job);
    assert_no_group(&cookies);
}

#[test]
fn nothing_is_left_when_slurm_kills_at_once() {
    if !has_slurm("scancel --signal=KILL") {
        return;
    }
    let mut job =
        Slurm::srun(&[], &["{rankrun}", MASTER, "-n", "2", "sh", "-c", &format!("(setsid sleep 600 &); {UP}")]);
    let cookies = cookies(&mut job);
    job.scancel(&["--signal=KILL"]);
    let output = job.end();
    assert_ne!(output.code, Some(0), "{output}");
    assert_no_group(&cookies);
}

#[test]
fn a_warning_signal_reaches_the_workers_and_the_job_goes_on() {
    if !has_slurm("scancel --signal=USR1") {
        return;
    }
    let script = "trap 'touch {usr}$SLURM_NODEID$LOCAL_RANK' USR1; touch {up}$SLURM_NODEID$LOCAL_RANK; \
                  while [ ! -e {go} ]; do sleep 0.05; done; touch {end}$SLURM_NODEID$LOCAL_RANK";
    let mut job = Slurm::srun(&[], &["{rankrun}", MASTER, "-n", "2", "sh", "-c", script]);
    job.wait_for_files(&ALL_UP);
    job.scancel(&["--signal=USR1"]);
    job.wait_for_files(&["usr00", "usr01", "usr10", "usr11"]);
    std::fs::write(job.file("go"), "").unwrap();
    let output = job.end();
    assert_eq!(output.code, Some(0), "{output}");
    for end in ["end00", "end01", "end10", "end11"] {
        assert!(job.file(end).exists(), "{output}");
    }
}
