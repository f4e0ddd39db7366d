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
fn what_a_launcher_fails_of_itself_goes_up_with_its_exit_code() {
    let inner = binary("rankrun-cli", "rankrun");
    let stall = ["--stall-timeout", "0.3", "-r", "3", "sh", "-c", "echo step 7; exec sleep 600"];
    for (code, args, reason, detail) in [
        (127, &["no-such-program"][..], "no-such-program", ""),
        (126, &["/"], "`/`", ""),
        (2, &["--log-dir", "/proc/x", "true"], "/proc/x", ""),
        (2, &["--no-such-option", "true"], "--no-such-option", ""),
        (2, &["--chdir", "/no/such/place", "true"], "/no/such/place", ""),
        (2, &["--nnodes", "x", "true"], "--nnodes", ""),
        (124, &stall, "stalled: no output for 0.", "Last lines of rank 0 (stdout):\n      step 7\n"),
    ] {
        // By itself, and below a shell.
        for script in [r#"exec "$@""#, r#""$@"; exit $?"#] {
            let launcher = Launcher::rankrun().args(["--role", "outer", "-r", "3", "sh", "-c", script, "sh"]);
            let output = launcher.arg(&inner).args(args).run_with_timeout(LIMIT);
            let report = output.stderr_text();
            assert_eq!(output.code, Some(code), "{output}");
            let outer = report.lines().find(|line| line.starts_with("outer FAILED: ")).unwrap();
            let (_, message) = outer.split_once(&format!("exit code {code}: ")).unwrap();
            assert!(message.contains(reason) && !message.contains("last on"), "{report}");
            assert!(report.contains(detail) && !report.contains("inside it:"), "{report}");
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("error.json");
    let launcher = Launcher::rankrun().env("TORCHELASTIC_ERROR_FILE", &path);
    assert_eq!(launcher.arg("no-such-program").run_with_timeout(LIMIT).code, Some(127));
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(r#""errorCode":127"#) && text.contains("no-such-program"), "{text}");
}

#[test]
fn what_a_launcher_passes_on_counts_where_the_worker_can_have_ended_of_it() {
    let inner = binary("rankrun-cli", "rankrun");
    let record = r#"{"message": {"message": "no cache", "extraInfo": {"py_callstack": "s", "timestamp": "7"}}}"#;
    for (script, code, headline) in [
        (r#""$@"; exit $?"#, 3, "exit code 3: no cache"),
        (r#""$@" || exit 1"#, 1, "exit code 1: no cache"),
        (r#""$@"; exit 6"#, 6, "exit code 6"),
    ] {
        let launcher = Launcher::rankrun().args(["--role", "outer", "sh", "-c", script, "sh"]).arg(&inner);
        let output = launcher.arg(scripted_worker()).args(["error-file", record, "exit", "3"]).run_with_timeout(LIMIT);
        let report = output.stderr_text();
        assert_eq!(output.code, Some(code), "{output}");
        let outer = report.lines().find(|line| line.starts_with("outer FAILED: ")).unwrap();
        assert!(outer.ends_with(headline), "{report}");
        let problem = [
            "(not used: it was passed on by process ",
            ", whose worker ended with code 3, not by the worker ",
            ", which ended with code 6; it says: no cache)",
        ];
        assert_eq!(problem.iter().all(|part| report.contains(part)), code == 6, "{report}");
    }
}

#[test]
fn a_launcher_that_only_shows_something_leaves_no_error_file() {
    let dir = tempfile::tempdir().unwrap();
    for (code, args) in [(0, &["--help"][..]), (2, &["logs", "--no-such-option"]), (2, &["result", "/no/such/run"])] {
        let launcher = Launcher::rankrun().env("TORCHELASTIC_ERROR_FILE", dir.path().join("error.json"));
        assert_eq!(launcher.args(args).run_with_timeout(LIMIT).code, Some(code), "{args:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{args:?}");
    }
}

#[test]
fn a_run_that_ends_well_leaves_no_error_file() {
    let dir = tempfile::tempdir().unwrap();
    let launcher = Launcher::rankrun().env("TORCHELASTIC_ERROR_FILE", dir.path().join("error.json"));
    assert_eq!(launcher.args(["-n", "2", "true"]).run_with_timeout(LIMIT).code, Some(0));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
