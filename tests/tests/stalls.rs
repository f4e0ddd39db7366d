//! `--stall-timeout`: a run without a sign of life is dumped, stopped and reported as stalled.

use std::time::Duration;

use rankrun::Signal;
use rankrun_tests::{Group, LIMIT, Pidfds, Script, has_python, with_and_without_pidfds, worker};

with_and_without_pidfds!(
    a_run_without_output_is_dumped_and_fails_as_stalled,
    heartbeats_keep_it_going,
    the_dump_signal_is_what_was_asked_for,
    time_in_which_it_is_suspended_does_not_count,
    a_worker_that_had_failed_before_is_the_reason,
    without_captured_output_the_first_heartbeat_begins_it,
);

const STALLED: Option<i32> = Some(124);

fn a_run_without_output_is_dumped_and_fails_as_stalled(pidfds: Pidfds) {
    // One has said something and waits in the kernel, one is stopped, one runs and one is a shell that waits for what it started.
    let script = "case $RANK in 0) echo step 7; exec sleep 600 ;; 1) kill -STOP $$ ;; 2) while :; do :; done ;; 3) sleep 600; true ;; esac";
    let mut group =
        Group::start(pidfds, 4, &["-r", "3", "--role", "trainer", "--stall-timeout", "0.7"], Script::Shell(script));
    let output = group.end();
    let text = output.stderr_text();
    assert_eq!(output.code, STALLED, "{output}");
    let first = text.lines().next().unwrap_or_default();
    assert!(first.starts_with("trainer FAILED on ") && first.contains(": stalled: no output for 0."), "{text}");
    let row = |rank: &str, name: &str| -> String {
        let fits = |line: &&str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.len() >= 4 && words[0] == rank && words[2] == name
        };
        text.lines().find(fits).unwrap_or_else(|| panic!("no row of rank {rank}, {name}: {text}")).to_owned()
    };
    assert!(row("0", "sleep").contains(" sleeping "), "{text}");
    assert!(row("1", "sh").contains(" stopped "), "{text}");
    assert!(row("2", "sh").contains(" running "), "{text}");
    assert!(row("3", "sh").contains(" sleeping ") && row("3", "sleep").contains(" sleeping "), "{text}");
    assert!(text.contains("\n\nLast lines of rank 0 (stdout):\n  step 7\n"), "{text}");
    assert!(!text.contains("SIGABRT"), "nobody is blamed for what rankrun sent: {text}");
}

fn heartbeats_keep_it_going(pidfds: Pidfds) {
    let beats = "i=0; while [ $i -lt 20 ]; do touch \"$RANKRUN_HEARTBEAT_FILE\"; sleep 0.1; i=$((i + 1)); done";
    let mut group = Group::start(pidfds, 2, &["-r", "3", "--stall-timeout", "1"], Script::Shell(beats));
    let output = group.end();
    assert_eq!(output.code, Some(0), "{output}");
    assert!(output.elapsed >= Duration::from_secs(2));
}

fn the_dump_signal_is_what_was_asked_for(pidfds: Pidfds) {
    let script = "on USR1 [ touch {dumped} ] on TERM [ touch {told} exit 0 ] out ready hang";
    let args = ["-r", "3", "--stall-timeout", "0.5", "--dump-signal", "USR1", "--dump-timeout", "0.2"];
    let mut group = Group::start(pidfds, 1, &args, worker(script));
    let output = group.end();
    assert_eq!(output.code, STALLED, "{output}");
    assert!(group.file("dumped").exists() && group.file("told").exists());
}

fn time_in_which_it_is_suspended_does_not_count(pidfds: Pidfds) {
    let script = "touch {ready} wait-for {go} exit 0";
    let mut group = Group::start(pidfds, 1, &["-r", "3", "--stall-timeout", "2"], worker(script));
    group.wait_for_files(&["ready"]);
    let pid = group.pid();
    group.signal(Signal::TSTP);
    group.wait_for_state(&[pid], 'T');
    // sleep: the time that must not count has to pass.
    std::thread::sleep(Duration::from_millis(2500));
    group.touch("go");
    group.signal(Signal::CONT);
    let output = group.end();
    assert_eq!(output.code, Some(0), "{output}");
}

fn a_worker_that_had_failed_before_is_the_reason(pidfds: Pidfds) {
    let script = r#"if-rank 1 [ error-file {"message":"disk_is_full"} ] hang"#;
    let mut group = Group::start(pidfds, 2, &["-r", "3", "--stall-timeout", "0.5"], worker(script));
    let output = group.end();
    let text = output.stderr_text();
    assert_eq!(output.code, Some(1), "{output}");
    assert!(text.contains("stalled: no output") && text.contains("disk_is_full"), "{text}");
}

fn without_captured_output_the_first_heartbeat_begins_it(pidfds: Pidfds) {
    let mut group = Group::start(pidfds, 1, &["--stall-timeout", "0.3"], Script::Shell("sleep 1"));
    let output = group.end();
    assert_eq!(output.code, Some(0), "{output}");
    assert!(output.stderr_text().contains("--stall-timeout sees no output"), "{output}");
    let script = Script::Shell("touch \"$RANKRUN_HEARTBEAT_FILE\"; exec sleep 600");
    let mut group = Group::start(pidfds, 1, &["--stall-timeout", "0.3"], script);
    assert_eq!(group.end().code, STALLED);
}

#[test]
fn a_python_worker_writes_its_stacks_by_faulthandler() {
    if !has_python("stacks of a stalled Python worker") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let text = "import time\ndef wait_for_rank_7():\n    time.sleep(600)\nprint('ready')\nwait_for_rank_7()\n";
    let run = Pidfds::Used.rankrun().env("PYTHONFAULTHANDLER", "1");
    let run = run.args(["-r", "3", "--stall-timeout", "1", "--log-dir", dir.path().to_str().unwrap()]);
    let output = run.args(["python3", "-c", text]).run_with_timeout(LIMIT);
    assert_eq!(output.code, STALLED, "{output}");
    let stderr = std::fs::read_to_string(dir.path().join("latest/attempt_0/0/stderr.log")).unwrap();
    assert!(stderr.contains("wait_for_rank_7"), "{stderr}");
    let report = output.stderr_text();
    assert!(
        report.contains("\nLast lines of rank 0 (stderr):\n") && report.contains("in wait_for_rank_7\n"),
        "{report}"
    );
}
