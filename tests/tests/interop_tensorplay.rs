//! TensorPlay itself: its `record` in our workers, our records in its `ProcessFailure`, which reads them as torch's does.
//! Only where `RANKRUN_TENSORPLAY_PYTHON` names a Python that has it, as in `.ci/run`: it is a download of 87 MB.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use rankrun_testkit::Launcher;
use rankrun_tests::{LIMIT, program, tensorplay_python};

const SCENARIO: &str = "RANKRUN_TESTS_SCENARIO";

#[test]
fn workers_under_tensorplays_record_are_reported_with_their_traceback() {
    let Some(python) = tensorplay_python("TensorPlay's record in workers") else { return };
    let launcher = Launcher::rankrun().args(["-n", "3"]).arg("--").arg(python);
    let output = launcher.arg(program("tensorplay_worker.py")).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(1), "{output}");
    let report = output.stderr_text();
    let report = &report[report.find("default FAILED: ").unwrap()..];
    let first = report.lines().next().unwrap();
    assert!(
        first.contains("rank 1 ") && first.ends_with("exit code 1: ValueError('loss is NaN at step 17')"),
        "{report}"
    );
    assert!(report.contains("\n  traceback:\n    Traceback (most recent call last):\n"), "{report}");
    assert!(report.contains("tensorplay_worker.py\", line 11, in main\n"), "{report}");
    assert!(report.contains("\nranks 0,2: stopped by rankrun"), "{report}");
}

/// What a worker of ours does in each scenario.
#[test]
#[ignore = "the body of the workers that the other test starts"]
fn worker() {
    let outcome = rankrun::record(|| -> Result<(), std::io::Error> {
        match std::env::var(SCENARIO).unwrap().as_str() {
            "error" => Err(std::io::Error::other("the disk is full")),
            "panic" => panic!("loss is {}", "NaN"),
            "signal" => std::process::abort(),
            other => panic!("no scenario {other}"),
        }
    });
    outcome.unwrap();
}

fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("\"{name}\": ")).unwrap();
    rest
}

#[test]
fn tensorplays_process_failure_reads_what_our_record_writes() {
    let Some(python) = tensorplay_python("our records in TensorPlay's ProcessFailure") else { return };
    for (scenario, exit, message, callstack) in [
        ("error", "101", "the disk is full", "the disk is full"),
        ("panic", "101", "thread 'worker' panicked at ", "interop_tensorplay::worker"),
        ("signal", "-6", "Signal 6 (SIGABRT) received by PID ", "signal 6 (SIGABRT) in thread "),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("error.json");
        let mut worker = Command::new(std::env::current_exe().unwrap());
        worker.args(["--exact", "worker", "--ignored"]).env(SCENARIO, scenario).env("TORCHELASTIC_ERROR_FILE", &path);
        assert!(!worker.output().unwrap().status.success(), "{scenario}");
        let text = read(&python, &path, exit);
        assert!(field(&text, "message").starts_with(&format!("\"{message}")), "{scenario}: {text}");
        assert!(field(&text, "callstack").contains(callstack), "{scenario}: {text}");
        let timestamp: u64 = field(&text, "timestamp").split(',').next().unwrap().parse().unwrap();
        assert!(timestamp > 1_700_000_000, "{scenario}: {text}");
        assert!(field(&text, "report").contains("Root Cause (first observed failure)"), "{scenario}: {text}");
    }
}

fn read(python: &OsString, path: &Path, exit: &str) -> String {
    let output =
        Command::new(python).arg(program("tensorplay_reader.py")).arg(path).args(["77", exit]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}
