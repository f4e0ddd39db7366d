//! `result.json` in the run's directory: what it says of each kind of run, checked against its schema.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rankrun::Signal;
use rankrun_launcher::{CauseClass, ExitRecord, RESULT_FILE, RESULT_SCHEMA, RecordState, RunRecord, WorkerRecord};
use rankrun_testkit::{Launcher, Output, eventually, schema_violations};
use rankrun_tests::{Group, LIMIT, Pidfds, kept_runs, worker};
use serde_json::Value;

/// The only run of a log directory.
fn run_dir(log_dir: &Path) -> PathBuf {
    let runs = kept_runs(log_dir);
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs[0].clone()
}

/// Reads the record of the only run, which must be as the schema says.
fn record(log_dir: &Path) -> RunRecord {
    let dir = run_dir(log_dir);
    let text = std::fs::read_to_string(dir.join(RESULT_FILE)).unwrap();
    let (schema, value): (Value, Value) =
        (serde_json::from_str(RESULT_SCHEMA).unwrap(), serde_json::from_str(&text).unwrap());
    assert_eq!(schema_violations(&schema, &value), [""; 0], "{text}");
    RunRecord::read(&dir).unwrap()
}

fn run(log_dir: &Path, args: &[&str], program: &[&str]) -> Output {
    let run = Launcher::rankrun().args(["--log-dir", log_dir.to_str().unwrap()]).args(args);
    run.args(program).run_with_timeout(LIMIT)
}

fn causes(workers: &[WorkerRecord]) -> Vec<CauseClass> {
    workers.iter().map(|worker| worker.cause).collect()
}

#[test]
fn a_success_says_who_ran_when_and_what_that_took() {
    let (dir, before) = (tempfile::tempdir().unwrap(), SystemTime::now());
    let script = "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; echo done";
    let args = ["-n", "2", "--role", "trainer", "--run-id", "job 7", "-r", "0:1"];
    let output = run(dir.path(), &args, &["sh", "-c", script]);
    assert_eq!(output.code, Some(0), "{output}");
    let record = record(dir.path());
    assert_eq!((record.state, record.exit_code), (RecordState::Succeeded, Some(0)));
    assert_eq!((record.run_id.as_str(), record.role.as_str()), ("job 7", "trainer"));
    assert_eq!(record.command, ["sh", "-c", script]);
    let [attempt] = &record.attempts[..] else { panic!("{record:?}") };
    assert_eq!((attempt.attempt, attempt.state, attempt.stop_reason.as_deref()), (0, RecordState::Succeeded, None));
    assert_eq!(causes(&attempt.workers), [CauseClass::Succeeded; 2]);
    for (rank, worker) in attempt.workers.iter().enumerate() {
        assert_eq!((worker.rank, worker.local_rank), (rank, rank));
        let times = [Some(before), worker.started, worker.ended, record.ended, Some(SystemTime::now())];
        assert!(times.iter().all(Option::is_some) && times.is_sorted(), "{times:?}");
        assert_eq!(worker.exit, Some(ExitRecord::Code { code: 0 }));
        assert!(worker.user_seconds + worker.system_seconds > 0.0 && worker.peak_memory_bytes > 1 << 16, "{worker:?}");
    }
    let stdout = attempt.workers[0].stdout.as_deref();
    assert_eq!((stdout, attempt.workers[1].stdout.as_deref()), (Some("attempt_0/0/stdout.log"), None));
    assert_eq!(std::fs::read_to_string(run_dir(dir.path()).join(stdout.unwrap())).unwrap(), "done\n");
}

#[test]
fn a_failure_says_the_root_cause_and_who_was_told_to_end() {
    let dir = tempfile::tempdir().unwrap();
    let error = r#"{"message":{"message":"loss is NaN","extraInfo":{"py_callstack":"Traceback: here","timestamp":"1"},"errorCode":3}}"#;
    let script = format!(
        "case $RANK in 1) echo last words >&2; echo '{error}' > $TORCHELASTIC_ERROR_FILE; exit 7 ;; *) kill -STOP $$ ;; esac"
    );
    let output = run(dir.path(), &["-n", "3", "-r", "2"], &["sh", "-c", &script]);
    assert_eq!(output.code, Some(7), "{output}");
    let record = record(dir.path());
    assert_eq!((record.state, record.exit_code), (RecordState::Failed, Some(7)));
    let attempt = &record.attempts[0];
    assert_eq!(attempt.stop_reason.as_deref(), Some("failure"));
    assert_eq!(causes(&attempt.workers), [CauseClass::Collateral, CauseClass::Root, CauseClass::Collateral]);
    let root = &attempt.workers[1];
    assert_eq!((root.message.as_deref(), root.traceback.as_deref()), (Some("loss is NaN"), Some("Traceback: here")));
    assert_eq!(
        (&root.tail[..], root.error_file.as_deref()),
        (&["last words".to_owned()][..], Some("attempt_0/1/error.json"))
    );
    let term = ExitRecord::Signal { signal: "SIGTERM".into(), number: 15, core_dumped: false };
    assert_eq!(attempt.workers[0].exit, Some(term));
}

#[test]
fn the_last_lines_of_every_rank_are_kept_when_one_fails() {
    let dir = tempfile::tempdir().unwrap();
    let script = "test $RANK = 1 || { echo rank $RANK was here; touch $SEEN$RANK; exec sleep 600; }
                  until test -e ${SEEN}0 -a -e ${SEEN}2; do sleep 0.01; done; echo broken >&2; exit 4";
    let seen = tempfile::tempdir().unwrap();
    let script = format!("SEEN={}/; {script}", seen.path().display());
    let output = run(dir.path(), &["-n", "3", "-r", "3"], &["sh", "-c", &script]);
    assert_eq!(output.code, Some(4), "{output}");
    let tails: Vec<_> = record(dir.path()).attempts[0].workers.iter().map(|worker| worker.tail.join("|")).collect();
    assert_eq!(tails, ["rank 0 was here", "broken", "rank 2 was here"]);
    let streams = record(dir.path()).attempts.remove(0).workers.into_iter().map(|worker| worker.tail_stream.unwrap());
    assert_eq!(streams.collect::<Vec<_>>(), ["stdout", "stderr", "stdout"]);
}

#[test]
fn a_second_failure_is_a_failure_and_not_the_root() {
    let dir = tempfile::tempdir().unwrap();
    let script = "test $RANK = 0 && exit 3; sleep 0.1; exit 4";
    run(dir.path(), &["-n", "2", "--settle-time", "30"], &["sh", "-c", script]);
    assert_eq!(causes(&record(dir.path()).attempts[0].workers), [CauseClass::Root, CauseClass::Failed]);
}

#[test]
fn while_it_runs_and_when_it_is_stopped_the_record_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--log-dir", dir.path().to_str().unwrap()];
    let mut group = Group::start(Pidfds::Used, 2, &args, worker("if-rank 1 touch {ready} hang"));
    group.wait_for_files(&["ready"]);
    eventually("the record is there", LIMIT, || run_dir(dir.path()).join(RESULT_FILE).exists());
    let running = record(dir.path());
    assert_eq!((running.state, running.ended, running.exit_code), (RecordState::Running, None, None));
    assert_eq!(i64::from(running.launcher_pid), i64::from(group.pid()));
    let attempt = &running.attempts[0];
    assert_eq!((attempt.state, causes(&attempt.workers)), (RecordState::Running, vec![CauseClass::Running; 2]));
    let mut pids: Vec<i32> = group.workers().iter().map(|worker| worker.pid).collect();
    let mut recorded: Vec<i32> = attempt.workers.iter().map(|worker| worker.pid.unwrap() as i32).collect();
    pids.sort_unstable();
    recorded.sort_unstable();
    assert_eq!(pids, recorded);
    group.signal(Signal::TERM);
    assert_eq!(group.end().code, Some(143));
    let stopped = record(dir.path());
    assert_eq!((stopped.state, stopped.exit_code), (RecordState::Stopped, Some(143)));
    assert_eq!(stopped.stop_signal.as_deref(), Some("SIGTERM"));
    assert_eq!(stopped.attempts[0].stop_reason.as_deref(), Some("requested"));
    assert_eq!(causes(&stopped.attempts[0].workers), [CauseClass::Collateral; 2]);
}

#[test]
fn a_launcher_that_is_killed_leaves_a_record_that_says_running() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--log-dir", dir.path().to_str().unwrap()];
    let mut group = Group::start(Pidfds::Used, 1, &args, worker("touch {ready} hang"));
    group.wait_for_files(&["ready"]);
    group.cookie();
    eventually("the record is there", LIMIT, || run_dir(dir.path()).join(RESULT_FILE).exists());
    group.signal(Signal::KILL);
    group.running().wait_timeout(LIMIT);
    eventually("nothing is left", LIMIT, || group.left().is_empty());
    assert_eq!(record(dir.path()).state, RecordState::Running);
}

#[test]
fn a_start_that_fails_says_why_in_a_directory_that_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(dir.path(), &["-n", "2"], &["no-such-program"]).code, Some(127));
    let record = record(dir.path());
    assert_eq!((record.state, record.exit_code, record.attempts.len()), (RecordState::Failed, Some(127), 0));
    assert!(record.error.as_deref().is_some_and(|error| error.contains("no-such-program")), "{record:?}");
}

#[test]
fn a_stall_says_what_each_process_did() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["-n", "2", "-r", "3", "--stall-timeout", "0.5"], &["sleep", "600"]);
    assert_eq!(output.code, Some(124), "{output}");
    let record = record(dir.path());
    assert_eq!((record.state, record.exit_code), (RecordState::Failed, Some(124)));
    let attempt = &record.attempts[0];
    assert_eq!(attempt.stop_reason.as_deref(), Some("stalled"));
    assert_eq!(causes(&attempt.workers), [CauseClass::Collateral; 2], "nobody is blamed");
    let stall = attempt.stall.as_ref().unwrap();
    assert!((0.5..10.0).contains(&stall.quiet_seconds), "{stall:?}");
    let states: Vec<(usize, &str)> = stall.processes.iter().map(|one| (one.local_rank, one.state.as_str())).collect();
    assert_eq!(states, [(0, "sleeping"), (1, "sleeping")]);
}

#[test]
fn where_it_cannot_be_written_that_is_one_warning_and_the_exit_code_stays() {
    let dir = tempfile::tempdir().unwrap();
    // A directory in its place cannot be replaced.
    let script = format!(
        "cd {}/[0-9]*; until [ -e result.json ]; do sleep 0.01; done; rm result.json; mkdir -p result.json/x; exit 7",
        dir.path().display()
    );
    let output = run(dir.path(), &["-n", "1", "-r", "3"], &["sh", "-c", &script]);
    assert_eq!(output.code, Some(7), "{output}");
    assert_eq!(output.stderr_text().matches("result file").count(), 1, "{output}");
}

#[test]
fn a_run_directory_that_is_gone_is_one_warning_and_the_exit_code_stays() {
    let dir = tempfile::tempdir().unwrap();
    let script =
        format!("until [ -e {0}/[0-9]*/result.json ]; do sleep 0.01; done; rm -r {0}; exit 7", dir.path().display());
    let output = run(dir.path(), &["-r", "3"], &["sh", "-c", &script]);
    assert_eq!(output.code, Some(7), "{output}");
    assert_eq!(output.stderr_text().matches("warning: ").count(), 1, "{output}");
}

#[test]
fn what_a_later_version_adds_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), &[], &["false"]);
    let path = run_dir(dir.path()).join(RESULT_FILE);
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text
        .replacen('{', "{\"new\": [1],", 1)
        .replace("\"root\"", "\"cosmic_ray\"")
        .replace("\"FAILED\"", "\"MELTED\"");
    std::fs::write(&path, text).unwrap();
    let record = RunRecord::read(&run_dir(dir.path())).unwrap();
    assert_eq!((record.state, record.attempts[0].workers[0].cause), (RecordState::Unknown, CauseClass::Unknown));
    std::fs::write(&path, "{").unwrap();
    let error = RunRecord::read(&run_dir(dir.path())).unwrap_err().to_string();
    assert!(error.starts_with(&format!("result file {}: ", path.display())), "{error}");
}
