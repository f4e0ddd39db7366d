//! Signals to the launcher: passed on with grace, then by force; and SIGKILL, which it cannot answer.

use std::time::Duration;

use nix::sys::signal::{Signal as NixSignal, kill};
use nix::unistd::Pid;
use rankrun::Signal;
use rankrun_testkit::{Launcher, MARK, Running, assert_no_process_left, eventually, processes_with_env};

const SOON: Duration = Duration::from_secs(20);

fn start(script: &str, n: usize) -> Running {
    let running = Launcher::rankrun().args(["-n", &n.to_string(), "-t", "1", "sh", "-c", script]).spawn();
    for rank in 0..n {
        running.wait_for_stdout(&format!("[default{rank}]:ready"), SOON);
    }
    running
}

#[test]
fn a_stop_signal_ends_the_workers_and_the_exit_code_says_which() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        let mut running = start("echo ready; exec sleep 600", 2);
        running.signal(signal);
        let output = running.wait_timeout(SOON);
        assert_eq!(output.code, Some(code), "{}", output.stderr_text());
        assert!(output.stderr_text().contains(&format!("stopped by {signal}")), "{}", output.stderr_text());
        assert!(processes_with_env(MARK, running.mark()).is_empty());
    }
}

#[test]
fn workers_that_got_the_stop_signal_before_the_launcher_are_not_to_blame() {
    // The last ones are shells whose program dies of it, and exit with its code.
    for (n, script) in [
        (1, "echo ready; exec sleep 600"),
        (3, "echo ready; exec sleep 600"),
        (2, "echo ready; (exec sleep 600); exit"),
    ] {
        let mut running = start(script, n);
        // As an engine does that signals each process of a job step.
        for worker in running.processes().into_iter().filter(|process| process.comm == "sleep") {
            kill(Pid::from_raw(worker.pid), NixSignal::SIGTERM).unwrap();
        }
        running.signal(Signal::TERM);
        let output = running.wait_timeout(SOON);
        let text = output.stderr_text();
        assert!(text.contains("stopped by SIGTERM") && !text.contains("Root Cause"), "{text}");
        assert_eq!(output.code, Some(143));
        assert!(processes_with_env(MARK, running.mark()).is_empty());
    }
}

#[test]
fn a_worker_that_somebody_else_ends_is_a_failure() {
    let mut running = start("echo ready; exec sleep 600", 2);
    let worker = running.processes().into_iter().find(|process| process.comm == "sleep").unwrap();
    kill(Pid::from_raw(worker.pid), NixSignal::SIGTERM).unwrap();
    let output = running.wait_timeout(SOON);
    assert_eq!(output.code, Some(143));
    assert!(output.stderr_text().contains("SIGTERM") && !output.stderr_text().contains("stopped by SIGTERM"));
}

#[test]
fn workers_get_the_signal_itself_and_time_to_end() {
    let mut running = start("trap 'echo got it; exit 0' INT; echo ready; while :; do sleep 0.05; done", 2);
    running.signal(Signal::INT);
    let output = running.wait_timeout(SOON);
    assert_eq!(output.code, Some(130));
    assert_eq!(output.stdout_text().matches("got it").count(), 2, "{}", output.stdout_text());
}

#[test]
fn the_same_signal_twice_at_once_is_one_request() {
    let mut running = start("trap 'sleep 0.5; echo saved; exit 0' HUP; echo ready; while :; do sleep 0.05; done", 2);
    // As when a terminal goes away whose session rankrun leads.
    running.signal(Signal::HUP);
    running.signal(Signal::HUP);
    let output = running.wait_timeout(SOON);
    assert_eq!(output.code, Some(129));
    assert_eq!(output.stdout_text().matches("saved").count(), 2, "{}", output.stdout_text());
}

#[test]
fn a_second_signal_kills_who_ignores_the_first() {
    let script = "trap '' INT; trap 'echo got it' TERM; echo ready; while :; do sleep 0.05; done";
    let mut running = start(script, 2);
    running.signal(Signal::TERM);
    // Of two that wait at once the kernel gives the one with the lower number first.
    running.wait_for_stdout("got it", SOON);
    running.signal(Signal::INT);
    let output = running.wait_timeout(SOON);
    assert_eq!(output.code, Some(143), "the first signal is the reason");
    assert!(processes_with_env(MARK, running.mark()).is_empty());
}

#[test]
fn the_shutdown_timeout_bounds_the_grace() {
    let script = "trap '' TERM; echo ready; while :; do sleep 600; done";
    let args = ["-n", "2", "-t", "1", "--shutdown-timeout", "0.2", "sh", "-c", script];
    let mut running = Launcher::rankrun().args(args).spawn();
    running.wait_for_stdout("[default0]:ready", SOON);
    running.wait_for_stdout("[default1]:ready", SOON);
    running.signal(Signal::TERM);
    assert_eq!(running.wait_timeout(SOON).code, Some(143));
}

#[test]
fn workers_die_with_a_launcher_that_is_killed() {
    let mut running = start("echo ready; exec sleep 600", 3);
    eventually("three workers and the launcher run", SOON, || running.processes().len() >= 4);
    running.signal(Signal::KILL);
    running.wait_timeout(SOON);
    assert_no_process_left(MARK, running.mark());
}

#[test]
fn an_ignored_hangup_stays_ignored() {
    let script = "trap '' HUP; exec \"$0\" -n 1 -t 1 sh -c 'echo ready; while [ ! -e \"$FLAG\" ]; do sleep 0.02; done'";
    let dir = tempfile::tempdir().unwrap();
    let flag = dir.path().join("flag");
    let rankrun = rankrun_testkit::binary("rankrun-cli", "rankrun");
    let mut running = Launcher::new("sh").args(["-c", script]).arg(rankrun).env("FLAG", &flag).spawn();
    running.wait_for_stdout("ready", SOON);
    running.signal(Signal::HUP);
    std::fs::write(&flag, "").unwrap();
    let output = running.wait_timeout(SOON);
    assert_eq!(output.code, Some(0), "{}", output.stderr_text());
}
