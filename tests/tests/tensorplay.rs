//! TensorPlay's distributed training on CPUs under rankrun: ranks that meet, a crash, and a restart from a checkpoint.
//! Only where `RANKRUN_TENSORPLAY_PYTHON` names a Python that has it, as in `.ci/run`: it is a large download.

use std::fs;

use rankrun_testkit::Launcher;
use rankrun_tests::{LIMIT, program, tensorplay_python};

#[test]
fn ranks_of_tensorplay_meet_crash_and_go_on_from_a_checkpoint() {
    let Some(python) = tensorplay_python("TensorPlay's training") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (logs, checkpoint) = (dir.path().join("logs"), dir.path().join("checkpoint.json"));
    let launcher = Launcher::rankrun().args(["-n", "2", "-t", "3", "--max-restarts", "1", "--settle-time", "1"]);
    let launcher = launcher.arg("--log-dir").arg(&logs).arg("--python").arg(python);
    let launcher = launcher.arg(program("tensorplay_train.py")).arg(&checkpoint).args(["20", "5"]);
    let output = launcher.run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(0), "{output}");
    let lines = output.stdout_text();
    for rank in 0..2 {
        for line in [
            format!("[default{rank}]:attempt 0: rank {rank} of 2 on gloo goes on after step 0"),
            format!("[default{rank}]:attempt 1: rank {rank} of 2 on gloo goes on after step 4"),
            format!("[default{rank}]:rank {rank}: weight 3.000 after step 20"),
        ] {
            assert!(lines.lines().any(|other| other == line), "`{line}` not in {output}");
        }
    }
    // Its `record` wrote why; the peer that lost its connection then is not the cause.
    let said = output.stderr_text();
    let said = said.lines().find(|line| line.contains("restart 1 of 1")).unwrap_or_default();
    assert!(said.contains("rank 1 ") && said.contains("loss is NaN at step 5"), "{output}");
    let error = fs::read_to_string(logs.join("latest/attempt_0/1/error.json")).expect("the error file");
    assert!(error.contains("loss is NaN at step 5"), "{error}");
    assert!(!logs.join("latest/attempt_1/1/error.json").exists());
}
