//! A rankrun that is a worker itself passes the failure of its worker up. Not here: groups in groups as processes
//! (`leftovers`).

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;

use rankrun_testkit::{Launcher, binary, scripted_worker};
use rankrun_tests::LIMIT;

/// Runs a worker's script under a rankrun whose own launcher wants an error file, and gives that file.
fn error_file(code: i32, script: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("error.json");
    let launcher = Launcher::rankrun().env("TORCHELASTIC_ERROR_FILE", &path).args(["-n", "2", "-r", "3"]);
    let output = launcher.arg(scripted_worker()).args(script).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(code), "{output}");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with(r#"{"message":{"#), "torch's form: {text}");
    text
}

#[test]
fn a_record_goes_up_with_all_its_fields_and_the_exit_code() {
    let record =
        r#"{"message": {"message": "loss is NaN", "extraInfo": {"py_callstack": "s", "timestamp": "7", "x": 1}}}"#;
    let text = error_file(3, &["if-rank", "0", "hang", "error-file", record, "exit", "3"]);
    for part in [r#""message":"loss is NaN""#, r#""x": 1"#, r#""errorCode":3"#] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn without_a_record_what_is_known_goes_up() {
    let text = error_file(139, &["if-rank", "0", "hang", "err", "last words", "segv"]);
    for part in ["Signal 11 (SIGSEGV) received by PID ", "last words", r#""errorCode":-11"#] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn the_launcher_above_names_its_rank_and_the_cause_below() {
    let inner = binary("rankrun-cli", "rankrun");
    let script = r#"test $RANK = 1 || exec sleep 600; exec "$@""#;
    let record = r#"{"message": {"message": "loss is NaN", "extraInfo": {"py_callstack": "s", "timestamp": "7"}}}"#;
    let launcher = Launcher::rankrun().args(["-n", "2", "--role", "outer", "sh", "-c", script, "sh"]);
    let launcher = launcher.arg(inner).args(["-n", "2", "--role", "inner"]).arg(scripted_worker());
    let output = launcher.args(["if-rank", "0", "hang", "error-file", record, "segv"]).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(139), "{output}");
    let report = output.stderr_text();
    assert!(report.lines().any(|line| line.starts_with("inner FAILED: rank 1 ")), "{report}");
    let outer = report.lines().find(|line| line.starts_with("outer FAILED: ")).unwrap();
    assert!(outer.contains("rank 1 ") && outer.ends_with("exit code 139: loss is NaN"), "{report}");
    assert!(report.contains("\n  inside it:  a worker of its own failed first, exit code -11\n"), "{report}");
}

#[test]
fn a_run_that_ends_well_leaves_no_error_file() {
    let dir = tempfile::tempdir().unwrap();
    let launcher = Launcher::rankrun().env("TORCHELASTIC_ERROR_FILE", dir.path().join("error.json"));
    assert_eq!(launcher.args(["-n", "2", "true"]).run_with_timeout(LIMIT).code, Some(0));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
