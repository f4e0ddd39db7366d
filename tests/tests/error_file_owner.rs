//! Whose an error file is: a record counts for a worker that ended of it, and else is named and left aside. Not here: the
//! whole table, which is a unit test of `rankrun-errors`.

use rankrun_testkit::Launcher;
use rankrun_tests::LIMIT;

/// A shell function that leaves a record of the shell it runs in, with pid and start time as rankrun's records have them.
const RECORD: &str = r#"
record() {
    set -- "$1" "$(sh -c 'echo $PPID')"
    set -- "$1" "$2" "$(sed 's/.*) //' "/proc/$2/stat" | cut -d ' ' -f 20)"
    printf '{"message":{"message":"%s","extraInfo":{"pid":%d,"start_ticks":%d}}}' "$1" "$2" "$3" > "$TORCHELASTIC_ERROR_FILE"
}
"#;

fn run(script: &str) -> String {
    let script = format!("{RECORD}{script}");
    let output = Launcher::rankrun().args(["-n", "2", "sh", "-c", &script]).run_with_timeout(LIMIT);
    assert_ne!(output.code, Some(0), "{output}");
    output.stderr_text()
}

#[test]
fn the_record_of_the_worker_itself_counts() {
    let report = run("test $RANK = 1 || exec sleep 600; record 'loss is NaN'; exit 3");
    assert!(report.starts_with("default FAILED: rank 1 "), "{report}");
    assert!(report.contains("exit code 3: loss is NaN\n") && !report.contains("by process"), "{report}");
}

#[test]
fn the_record_of_a_wrappers_child_counts_and_is_marked() {
    let report = run("test $RANK = 1 || exec sleep 600; (record 'loss is NaN'; exit 3); exit $?");
    assert!(report.contains("exit code 3: loss is NaN\n"), "{report}");
    assert!(report.contains("/error.json (by process ") && report.contains("of which the worker ended)"), "{report}");
}

#[test]
fn the_record_of_a_helper_is_not_the_cause_of_the_workers_crash() {
    let report = run("test $RANK = 1 || exec sleep 600; (record harmless); sleep 0.3; kill -SEGV $$");
    let first = report.lines().next().unwrap();
    assert!(first.contains("rank 1 ") && first.ends_with("signal 11 (SIGSEGV)"), "{report}");
    let problem = "(not used: it is by process ";
    assert!(report.contains(problem) && report.contains("; it says: harmless)"), "{report}");
}

/// The report of a run whose rank 1 starts a program of its own under `record`, which ends with an error.
fn with_child(script: &str) -> String {
    let script = format!(r#"test $RANK = 1 || exec sleep 600; "$@"; {script}"#);
    let launcher = Launcher::rankrun().args(["-n", "2", "sh", "-c", &script, "sh"]);
    let launcher = launcher.arg(std::env::current_exe().expect("tests run"));
    let output = launcher.args(["--exact", "child", "--ignored", "--nocapture"]).run_with_timeout(LIMIT);
    assert_ne!(output.code, Some(0), "{output}");
    output.stderr_text()
}

#[test]
#[ignore = "the body of the program that the next test's workers start"]
fn child() {
    let outcome = rankrun::record(|| Err::<(), _>(std::io::Error::other("no cache")));
    // As with `main`, whose error this is.
    std::process::exit(i32::from(outcome.is_err()));
}

#[test]
fn the_record_of_a_child_counts_where_the_worker_can_have_ended_of_it() {
    let wrapped = with_child("exit $?");
    assert!(wrapped.contains("exit code 1: no cache\n") && wrapped.contains("of which the worker ended)"), "{wrapped}");
    let helped = with_child("exit 6");
    assert!(helped.lines().next().unwrap().ends_with("exit code 6"), "{helped}");
    assert!(helped.contains("(not used: it is by process "), "{helped}");
    assert!(helped.contains("which it ends with code 1, not by the worker "), "{helped}");
    assert!(helped.contains(", which ended with code 6; it says: no cache)"), "{helped}");
}

#[test]
fn a_harmless_record_of_a_helper_makes_no_failure_of_a_worker_that_ends_well_or_is_stopped() {
    // Four seconds after it, the helper's record is not what the stop found.
    let report = run("if [ $RANK = 0 ]; then (record harmless); exec sleep 600; fi; sleep 4; exit 5");
    assert!(report.starts_with("default FAILED: rank 1 ") && !report.contains("harmless"), "{report}");
    assert!(report.contains("\nrank 0: stopped by rankrun\n"), "{report}");

    let script = format!("{RECORD} (record harmless); exit 0");
    let output = Launcher::rankrun().args(["-n", "2", "sh", "-c", &script]).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(0), "{output}");
}

#[test]
fn a_record_that_is_older_than_the_worker_is_not_its_own() {
    // What an earlier attempt left, if its directory were used again.
    let script = r#"test $RANK = 1 || exec sleep 600
        printf '{"message": "an old error"}' > "$TORCHELASTIC_ERROR_FILE"; touch -d @1000000000 "$TORCHELASTIC_ERROR_FILE"; exit 6"#;
    let report = run(script);
    assert!(report.contains("exit code 6\n"), "{report}");
    assert!(report.contains("(not used: it is older than the worker; it says: an old error)"), "{report}");
}
