//! Which rank is named: the first that failed, not the first that was seen to end. Not here: the whole table, which is
//! a unit test of `rankrun-errors`.

use rankrun_testkit::{Launcher, scripted_worker};
use rankrun_tests::LIMIT;

/// Runs a script of each rank and gives the report.
fn report(grace: &str, ranks: &[&str]) -> String {
    let mut launcher = Launcher::rankrun().args(["-n", &ranks.len().to_string(), "--shutdown-timeout", grace]);
    launcher = launcher.arg(scripted_worker());
    for (rank, script) in ranks.iter().enumerate() {
        launcher = launcher.args(["if-rank", &rank.to_string(), "["]).args(script.split('~')).arg("]");
    }
    let output = launcher.run_with_timeout(LIMIT);
    assert_ne!(output.code, Some(0), "{output}");
    output.stderr_text()
}

#[track_caller]
fn assert_named(report: &str, rank: usize, message: &str) {
    let first = report.lines().next().unwrap_or_default();
    assert!(first.starts_with(&format!("default FAILED: rank {rank} ")) && first.contains(message), "{report}");
}

const TORCH: &str =
    r#"error-file~{"message": {"message": "loss is NaN", "extraInfo": {"py_callstack": "s", "timestamp": "1"}}}"#;
const TENSORPLAY: &str = r#"error-file~{"message": "peer closed", "extraInfo": {"traceback": "s"}}"#;

#[test]
fn a_rank_that_takes_long_to_shut_down_after_its_error_is_named_before_its_peers_that_exit_meanwhile() {
    let report = report("5", &["sleep~400~exit~3", &format!("{TORCH}~sleep~2000~exit~1"), "sleep~60000"]);
    assert_named(&report, 1, "loss is NaN");
    assert!(report.contains("\nOther failures (1):\n  rank 0 (local rank 0, pid "), "{report}");
    assert!(report.contains("\nrank 2: stopped by rankrun\n"), "{report}");
}

#[test]
fn a_peer_that_raises_because_of_a_crash_is_not_named() {
    let raises = format!("ignore~TERM~sleep~400~{TORCH}~exit~1");
    let report = report("5", &[&raises, "sleep~200~segv", &raises]);
    assert_named(&report, 1, "signal 11 (SIGSEGV)");
    assert!(report.contains("\nranks 0,2: stopped by rankrun\n") && !report.contains("Other failures"), "{report}");
}

#[test]
fn of_two_dialects_without_a_fine_time_the_file_that_was_written_first_counts() {
    let first = format!("sleep~200~{TENSORPLAY}~sleep~600~exit~1");
    let second = format!("sleep~500~{TORCH}~exit~1");
    assert_named(&report("5", &[&second, &first]), 1, "peer closed");
}

#[test]
fn a_clock_in_the_future_makes_no_rank_the_last() {
    let future = r#"error-file~{"message": "from the future", "timestamp": 4000000000.5}"#;
    let first = format!("sleep~200~{future}~sleep~600~exit~1");
    assert_named(&report("5", &["sleep~500~exit~4", &first]), 1, "from the future");
}
