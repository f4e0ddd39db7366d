//! `--events`: a line of JSON for each thing that happens, as it happens, that never holds up the run.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use rankrun::Signal;
use rankrun_launcher::EVENT_SCHEMA;
use rankrun_testkit::{Launcher, eventually, schema_violations};
use rankrun_tests::{Group, LIMIT, Pidfds, worker};
use serde_json::Value;

/// The events of a log, each as the schema says.
fn events(text: &str) -> Vec<Value> {
    let schema: Value = serde_json::from_str(EVENT_SCHEMA).unwrap();
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for event in &events {
        assert_eq!(schema_violations(&schema, event), [""; 0], "{event}");
    }
    let times: Vec<&str> = events.iter().map(|event| event["time"].as_str().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    events
}

fn read(path: &Path) -> Vec<Value> {
    events(&std::fs::read_to_string(path).unwrap())
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

#[test]
fn a_success_is_told_from_start_to_result() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("events.jsonl");
    let args = ["-n", "2", "--run-id", "job", "--role", "trainer", "--events", log.to_str().unwrap()];
    assert_eq!(Launcher::rankrun().args(args).arg("true").run_with_timeout(LIMIT).code, Some(0));
    let events = read(&log);
    assert_eq!(names(&events), ["started", "started", "exited", "exited", "attempt_ended", "result"]);
    assert!(events.iter().all(|event| event["run_id"] == "job" && event["role"] == "trainer"));
    assert_eq!(
        (&events[1]["local_rank"], &events[1]["rank"], &events[1]["attempt"]),
        (&1.into(), &1.into(), &0.into())
    );
    assert_eq!((&events[5]["state"], &events[5]["exit_code"]), (&"SUCCEEDED".into(), &0.into()));
    // Another run appends.
    assert_eq!(Launcher::rankrun().args(args).arg("true").run_with_timeout(LIMIT).code, Some(0));
    assert_eq!(read(&log).len(), 12);
}

#[test]
fn a_failure_is_told_with_who_got_which_signal_and_why() {
    let mut group = Group::start(
        Pidfds::Used,
        2,
        &["--events", "-"],
        worker("if-rank 0 [ wait-for {ready} exit 7 ] on TERM [ exit 3 ] touch {ready} hang"),
    );
    let output = group.end();
    assert_eq!(output.code, Some(7), "{output}");
    let events = events(&output.stdout_text());
    assert_eq!(names(&events), ["started", "started", "exited", "stop", "signal", "exited", "attempt_ended", "result"]);
    assert_eq!((&events[2]["exit"]["code"], &events[2]["cause"]), (&7.into(), &"failed".into()));
    assert_eq!(events[3]["reason"], "failure");
    let signal = &events[4];
    assert_eq!(
        (&signal["signal"], &signal["target"], &signal["reason"]),
        (&"SIGTERM".into(), &"worker".into(), &"failure".into())
    );
    assert_eq!((&signal["local_rank"], &signal["pid"]), (&1.into(), &events[1]["pid"]));
    assert_eq!((&events[5]["exit"]["code"], &events[5]["cause"]), (&3.into(), &"collateral".into()));
    assert_eq!((&events[7]["state"], &events[7]["exit_code"]), (&"FAILED".into(), &7.into()));
}

#[test]
fn events_come_as_they_happen_and_a_stop_signal_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("events.jsonl");
    let args = ["--events", log.to_str().unwrap()];
    let mut group = Group::start(Pidfds::Used, 1, &args, worker("on USR1 [ touch {got} ] touch {ready} hang"));
    group.wait_for_files(&["ready"]);
    let has = |name: &str| std::fs::read_to_string(&log).is_ok_and(|text| text.contains(&format!("\"{name}\"")));
    eventually("the start is told while it runs", LIMIT, || has("started"));
    group.signal(Signal::USR1);
    group.wait_for_files(&["got"]);
    eventually("the signal is told while it runs", LIMIT, || has("SIGUSR1"));
    group.signal(Signal::TERM);
    assert_eq!(group.end().code, Some(143));
    let events = read(&log);
    assert_eq!(names(&events), ["started", "signal", "stop", "signal", "exited", "attempt_ended", "result"]);
    assert!(events[1].get("reason").is_none(), "the run goes on after it");
    assert_eq!((&events[6]["state"], &events[6]["signal"]), (&"STOPPED".into(), &"SIGTERM".into()));
}

#[test]
fn a_stall_and_a_start_that_fails_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("events.jsonl");
    let run = |args: &[&str]| {
        let run = Launcher::rankrun().args(["--events", log.to_str().unwrap()]).args(args).run_with_timeout(LIMIT);
        let events = read(&log);
        std::fs::remove_file(&log).unwrap();
        (run.code, events)
    };
    let (code, events) = run(&["-r", "3", "--stall-timeout", "0.4", "sleep", "600"]);
    assert_eq!(code, Some(124));
    assert_eq!(names(&events)[..4], ["started", "stop", "stalled", "signal"]);
    assert_eq!((&events[1]["reason"], &events[3]["signal"]), (&"stalled".into(), &"SIGABRT".into()));
    let (code, events) = run(&["no-such-program"]);
    assert_eq!(code, Some(127));
    let result = events.last().unwrap();
    assert_eq!((&result["event"], &result["exit_code"]), (&"result".into(), &127.into()));
    assert!(result["error"].as_str().unwrap().contains("no-such-program"));
}

#[test]
fn a_pipe_that_nobody_reads_holds_up_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // Nobody has it open: the thread waits for a reader until the run is over.
    let run = |n: &str| {
        let args = ["-n", n, "--events", pipe.to_str().unwrap(), "sh", "-c", "exit 7"];
        Launcher::rankrun().args(args).run_with_timeout(LIMIT)
    };
    let output = run("2");
    assert_eq!(output.code, Some(7), "{output}");
    assert!(output.elapsed < Duration::from_secs(20), "{output}");
    assert_eq!(output.stderr_text().matches("not all events were written").count(), 1, "{output}");
    // Somebody has it open and does not read; it takes 4 KiB.
    let mut reader = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    nix::fcntl::fcntl(&reader, nix::fcntl::FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    let output = run("40");
    assert_eq!(output.code, Some(7), "{output}");
    assert_eq!(output.stderr_text().matches("not all events were written").count(), 1, "{output}");
    let mut block = vec![0; 4096];
    let count = reader.read(&mut block).unwrap();
    assert!(String::from_utf8_lossy(&block[..count]).contains("\"started\""));
}

#[test]
fn a_disk_that_is_full_is_one_warning_and_a_file_that_cannot_be_made_ends_the_run_before_it_starts() {
    let output = Launcher::rankrun().args(["-n", "4", "--events", "/dev/full", "true"]).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(0), "{output}");
    assert_eq!(output.stderr_text().matches("event log /dev/full").count(), 1, "{output}");
    let output = Launcher::rankrun().args(["--events", "/no/such/dir/x", "echo", "ran"]).run_with_timeout(LIMIT);
    assert_eq!((output.code, output.stdout_text().as_str()), (Some(2), ""), "{output}");
    assert!(output.stderr_text().starts_with("rankrun: invalid value '/no/such/dir/x' for '--events': "), "{output}");
}
