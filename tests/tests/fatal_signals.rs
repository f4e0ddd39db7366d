//! Rust workers under `record` whose process a signal ends: the workers are this test program, run again. Not here: what
//! the handlers do to a process (`rankrun-process`).

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::error::Error;

use rankrun_testkit::Launcher;
use rankrun_tests::LIMIT;

const SCENARIO: &str = "RANKRUN_TESTS_SCENARIO";

/// Uses up the stack.
#[expect(unconditional_recursion, reason = "that is how a stack overflows")]
fn overflow(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 512]);
    overflow(depth + 1) + frame[(depth % 512) as usize]
}

/// What rank 1 does in each scenario; the others wait to be stopped.
#[test]
#[ignore = "the body of the workers that the other tests start"]
fn worker() {
    let outcome = rankrun::record(|| -> Result<(), std::io::Error> {
        if std::env::var("RANK").unwrap() != "1" {
            std::thread::sleep(LIMIT); // sleep: until rankrun ends it
        }
        match std::env::var(SCENARIO).unwrap().as_str() {
            "abort" => std::process::abort(),
            "overflow" => drop(std::thread::spawn(|| overflow(0)).join()),
            "error-then-abort" => return Err(std::io::Error::other("the disk is full")),
            other => panic!("no scenario {other}"),
        }
        Ok(())
    });
    let _: &dyn Error = &outcome.unwrap_err();
    std::process::abort();
}

/// The report of a group of three, of which rank 1 fails so.
fn report(scenario: &str) -> String {
    let launcher = Launcher::rankrun().env(SCENARIO, scenario).args(["-n", "3", "-r", "3"]);
    let launcher = launcher.arg(std::env::current_exe().unwrap());
    let output = launcher.args(["--exact", "worker", "--ignored", "--nocapture"]).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(134), "{output}");
    let report = output.stderr_text();
    assert!(report.starts_with("default FAILED: rank 1 "), "{report}");
    assert!(report.contains("\nranks 0,2: stopped by rankrun\n"), "{report}");
    report
}

#[test]
fn a_fatal_signal_leaves_a_record_with_the_signal_and_its_thread() {
    let report = report("abort");
    assert!(report.lines().next().unwrap().contains("signal 6 (SIGABRT)"), "{report}");
    assert!(report.contains("/attempt_0/1/error.json\n"), "{report}");
    assert!(report.contains("\n    signal 6 (SIGABRT) in thread "), "{report}");
}

#[test]
fn a_stack_overflow_is_told_with_its_fault_and_the_words_of_the_standard_library() {
    let report = report("overflow");
    assert!(report.contains("\n    signal 11 (SIGSEGV) in thread "), "{report}");
    assert!(report.contains("has overflowed its stack"), "{report}");
}

#[test]
fn a_record_of_an_error_stays_when_the_process_then_crashes() {
    let report = report("error-then-abort");
    let first = report.lines().next().unwrap();
    assert!(first.contains("signal 6 (SIGABRT)") && first.ends_with(": the disk is full"), "{report}");
}
