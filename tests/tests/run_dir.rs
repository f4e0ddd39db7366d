//! The run directory: private, removed when nobody needs it, named where it stays.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use rankrun_testkit::{Launcher, Output};
use rankrun_tests::kept_runs;

fn run(tmp: &Path, args: &[&str]) -> Output {
    Launcher::rankrun().env("TMPDIR", tmp).args(args).run_with_timeout(Duration::from_secs(60))
}

#[test]
fn a_run_that_succeeds_without_captured_output_leaves_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    assert_eq!(run(tmp.path(), &["-n", "2", "true"]).code, Some(0));
    assert!(kept_runs(tmp.path()).is_empty());
}

#[test]
fn a_start_that_fails_leaves_nothing_but_its_result_in_a_directory_that_was_asked_for() {
    let tmp = tempfile::tempdir().unwrap();
    let log_dir = tmp.path().join("logs/of/mine");
    assert_eq!(run(tmp.path(), &["-n", "2", "-t", "3", "no-such-program"]).code, Some(127));
    assert!(kept_runs(tmp.path()).is_empty(), "{:?}", kept_runs(tmp.path()));
    let args = ["-n", "2", "-r", "3", "--log-dir", log_dir.to_str().unwrap(), "no-such-program"];
    assert_eq!(run(tmp.path(), &args).code, Some(127));
    let kept = kept_runs(&log_dir);
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(kept[0].join("result.json").exists());
}

#[test]
fn wrong_usage_creates_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let log_dir = tmp.path().join("logs");
    assert_eq!(run(tmp.path(), &["-r", "9:3", "--log-dir", log_dir.to_str().unwrap(), "true"]).code, Some(2));
    assert!(kept_runs(tmp.path()).is_empty());
}

#[test]
fn redirected_output_stays_in_a_private_directory_whose_path_is_said() {
    let tmp = tempfile::tempdir().unwrap();
    let output = run(tmp.path(), &["-n", "2", "-r", "3", "sh", "-c", "echo out $RANK; echo err $RANK >&2"]);
    assert_eq!((output.code, output.stdout_text().as_str()), (Some(0), ""));
    let kept = kept_runs(tmp.path());
    assert_eq!(kept.len(), 1);
    assert_eq!(std::fs::metadata(&kept[0]).unwrap().permissions().mode() & 0o777, 0o700);
    let said = output.stderr_text();
    let dir = Path::new(said.trim_end().rsplit(' ').next().unwrap());
    assert!(dir.starts_with(&kept[0]), "{said}");
    for rank in 0..2 {
        let read = |name: &str| std::fs::read_to_string(dir.join(format!("attempt_0/{rank}/{name}"))).unwrap();
        assert_eq!(read("stdout.log"), format!("out {rank}\n"));
        assert_eq!(read("stderr.log"), format!("err {rank}\n"));
    }
}

#[test]
fn after_a_failure_the_path_is_said() {
    let tmp = tempfile::tempdir().unwrap();
    let output = run(tmp.path(), &["sh", "-c", "exit 1"]);
    assert_eq!(output.code, Some(1));
    assert!(output.stderr_text().contains(kept_runs(tmp.path())[0].to_str().unwrap()), "{}", output.stderr_text());
}

#[test]
fn a_log_directory_gets_one_directory_for_each_run_with_the_documented_layout() {
    let tmp = tempfile::tempdir().unwrap();
    let log_dir = tmp.path().join("logs");
    for runs in 1..=2 {
        let args = ["-n", "2", "-r", "1:3", "--log-dir", log_dir.to_str().unwrap(), "sh", "-c", "echo $RANK"];
        let output = run(tmp.path(), &args);
        assert_eq!((output.code, output.stdout_text().as_str(), output.stderr_text().as_str()), (Some(0), "0\n", ""));
        assert_eq!(kept_runs(&log_dir).len(), runs);
    }
    for run in kept_runs(&log_dir) {
        assert_eq!(std::fs::read_to_string(run.join("attempt_0/1/stdout.log")).unwrap(), "1\n");
        assert!(!run.join("attempt_0/0/stdout.log").exists(), "rank 0 was not redirected");
    }
}
