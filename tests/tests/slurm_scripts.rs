//! The job scripts of `docs/jobs` as a user would hand them to sbatch. On the cluster of `cargo xtask slurm-test`; without
//! it each test says that it is skipped.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rankrun_testkit::binary;
use rankrun_tests::job_script;
use rankrun_tests::slurm::{Slurm, has_slurm};

/// Hands a script in, with this shell text for the workers.
fn submit(script: &str, worker: &str) -> Slurm {
    submit_with(binary("rankrun-cli", "rankrun").parent().unwrap(), script, worker)
}

/// The same with the rankrun of this directory.
fn submit_with(directory: &Path, script: &str, worker: &str) -> Slurm {
    let path = std::env::var_os("PATH").unwrap();
    let path = std::env::join_paths(std::iter::once(directory.to_owned()).chain(std::env::split_paths(&path))).unwrap();
    // The nodes of the test have names that nobody resolves.
    let export = format!("--export=ALL,MASTER_ADDR=127.0.0.1,WORKERS=2,LOGS={{logs}},PATH={}", path.to_str().unwrap());
    Slurm::sbatch(&[&export], &[job_script(script).to_str().unwrap(), "sh", "-c", worker])
}

#[test]
fn the_job_has_the_exit_code_of_the_first_failure_and_says_whose_it_was() {
    if !has_slurm("slurm.sbatch") {
        return;
    }
    let mut job = submit("slurm.sbatch", "[ $RANK = 2 ] || exec sleep 600; echo 'bad input' >&2; exit 7");
    let output = job.end();
    assert_eq!(output.code, Some(7), "{output}");
    let said = output.stdout_text();
    assert!(said.contains("FAILED, exit code 7: rank 2 on node 1") && said.contains("bad input"), "{output}");
}

#[test]
fn a_job_that_succeeds_exits_0_and_one_of_which_nothing_started_as_srun_does() {
    if !has_slurm("slurm.sbatch without a failing worker") {
        return;
    }
    let mut job = submit("slurm.sbatch", "exit 0");
    let output = job.end();
    assert_eq!(output.code, Some(0), "{output}");
    let directory = binary("rankrun-cli", "rankrun").parent().unwrap().to_owned();
    let export = format!("--export=ALL,LOGS={{logs}},PATH={}:/usr/bin:/bin", directory.display());
    let mut job =
        Slurm::sbatch(&[&export], &[job_script("slurm.sbatch").to_str().unwrap(), "--max-restarts=2", "true"]);
    let output = job.end();
    // Slurm may end the second node before it has refused as well.
    assert!(matches!(output.code, Some(2 | 143)), "{output}");
    assert!(output.stdout_text().contains("--max-restarts 2 with 2 nodes"), "{output}");
}

#[test]
fn workers_that_exit_with_85_after_the_warning_are_started_again_and_count_it() {
    if !has_slurm("slurm-requeue.sbatch") {
        return;
    }
    let worker = "trap 'exit 85' USR1; touch {up}$RANK; \
                  [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; while :; do sleep 0.1; done";
    let mut job = submit("slurm-requeue.sbatch", worker);
    job.wait_for_files(&["up0", "up1", "up2", "up3"]);
    // As Slurm does before the time limit.
    job.scancel(&["--signal=USR1"]);
    job.run_again();
    let output = job.end();
    assert_eq!(output.code, Some(0), "{output}");
    assert!(output.stdout_text().contains("succeeded, exit code 0 (start 2 of the job)"), "{output}");
}

/// A directory for PATH, in which `rankrun` is one that cannot start workers from the second start of the job on.
fn broken_on_second_start() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let rankrun = binary("rankrun-cli", "rankrun");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = result ] || [ \"${{SLURM_RESTART_COUNT:-0}}\" = 0 ] || exit 127\nexec '{}' \"$@\"\n",
        rankrun.display()
    );
    let path = dir.path().join("rankrun");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

#[test]
fn a_start_that_does_not_come_up_is_not_given_the_result_of_the_one_before() {
    if !has_slurm("a second start without rankrun") {
        return;
    }
    // The first start succeeds; somebody starts the job again.
    let broken = broken_on_second_start();
    let mut job = submit_with(broken.path(), "slurm.sbatch", "touch {up}$RANK; exit 0");
    assert_eq!(job.end().code, Some(0));
    job.requeue();
    let output = job.end();
    assert_eq!(output.code, Some(127), "{output}");
    assert!(output.stdout_text().contains("without a result of this start (start 2 of the job)"), "{output}");

    // The first start asks for another one, which must not do so too.
    let mut job = submit_with(broken.path(), "slurm-requeue.sbatch", "touch {up}$RANK; exit 85");
    job.run_again();
    let output = job.end();
    assert_eq!(output.code, Some(127), "{output}");
    assert!(!output.stdout_text().contains("start 3"), "{output}");
}
