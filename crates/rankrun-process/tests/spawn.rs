//! What a started process has and lacks, and how a start that fails is reported. Real processes, no helper program.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rankrun_process::{Child, Command, SpawnError, SpawnStep, Spawner, Stdio};
use rankrun_types::{ExitKind, Signal};

fn shell(script: &str) -> Command {
    Command::new("/bin/sh").args(["-c", script]).envs([("PATH", "/usr/bin:/bin")])
}

fn spawn(command: Command) -> Child {
    Spawner::new().unwrap().spawn(command).unwrap()
}

/// Runs a script to its end and returns what it wrote.
fn output(script: &str) -> String {
    let (mut read_end, write_end) = std::io::pipe().unwrap();
    let mut child = spawn(shell(script).stdout(Stdio::Fd(OwnedFd::from(write_end))));
    let mut text = String::new();
    read_end.read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().kind, ExitKind::Code(0), "{text}");
    text
}

fn eventually(what: &str, mut fact: impl FnMut() -> bool) {
    let start = Instant::now();
    while !fact() {
        assert!(start.elapsed() < Duration::from_secs(10), "not within 10 s: {what}");
        std::thread::yield_now();
    }
}

fn refused(command: Command) -> SpawnError {
    Spawner::new().unwrap().spawn(command).unwrap_err()
}

#[test]
fn a_missing_program_is_reported_with_step_and_errno() {
    let error = refused(Command::new("/no/such/program"));
    assert_eq!((error.step(), error.errno()), (Some(SpawnStep::Exec), Some(2)));
    assert_eq!(error.to_string(), "cannot start `/no/such/program`: exec: No such file or directory (os error 2)");
    assert_eq!(refused(Command::new("no-such-name").envs([("PATH", "/bin")])).errno(), Some(2));
    assert_eq!(refused(Command::new("")).errno(), Some(2));
}

#[test]
fn a_program_that_may_not_be_executed_is_told_from_a_missing_one() {
    assert_eq!(refused(Command::new("/etc/passwd")).errno(), Some(13));
    assert_eq!(refused(Command::new("passwd").envs([("PATH", "/nowhere:/etc")])).errno(), Some(13));
}

#[test]
fn a_missing_working_directory_is_its_own_step() {
    let error = refused(shell("true").current_dir("/no/such/dir"));
    assert_eq!((error.step(), error.errno()), (Some(SpawnStep::CurrentDir), Some(2)));
}

#[test]
fn an_environment_too_large_is_refused_by_exec() {
    let error = refused(shell("true").envs([("BIG", "x".repeat(4 << 20))]));
    assert_eq!((error.step(), error.errno()), (Some(SpawnStep::Exec), Some(7)));
}

#[test]
fn a_program_with_arguments_environment_and_directory_runs() {
    let dir = fs::canonicalize(std::env::temp_dir()).unwrap();
    let (mut read_end, write_end) = std::io::pipe().unwrap();
    let command = shell("echo \"$1 $A $(pwd)\"; env | wc -l")
        .args(["sh", "one arg"])
        .envs([("A", "b")])
        .current_dir(&dir)
        .stdout(Stdio::Fd(write_end.into()));
    let mut child = spawn(command);
    let mut text = String::new();
    read_end.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().kind.is_success());
    assert_eq!(text.lines().next().unwrap(), format!("one arg b {}", dir.display()));
    // PATH, A and what the shell adds of its own (PWD, _, SHLVL at most), not this test's environment.
    assert!(text.lines().nth(1).unwrap().trim().parse::<u32>().unwrap() <= 5, "{text}");
}

#[test]
fn it_has_no_descriptor_but_the_three_streams() {
    let _held = File::open("/dev/null").unwrap();
    let _high = nix::fcntl::fcntl(_held.as_fd(), nix::fcntl::FcntlArg::F_DUPFD(200)).unwrap();
    // ls itself opens the directory, as descriptor 3.
    assert_eq!(output("exec ls /proc/self/fd"), "0\n1\n2\n3\n");
}

#[test]
fn its_signal_mask_is_empty_and_nothing_is_ignored_or_caught() {
    // Rust's own start-up ignores SIGPIPE in this test program; the child must not inherit that.
    let status = output("exec cat /proc/self/status");
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!(field("SigBlk:"), "0000000000000000");
    assert_eq!(field("SigIgn:"), "0000000000000000");
}

#[test]
fn it_leads_a_session_and_a_process_group_of_its_own() {
    let (mut read_end, write_end) = std::io::pipe().unwrap();
    let mut child = spawn(shell("cut -d' ' -f5,6 /proc/$$/stat").stdout(Stdio::Fd(write_end.into())));
    let mut text = String::new();
    read_end.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().kind.is_success());
    assert_eq!(text, format!("{0} {0}\n", child.pid()));
}

#[test]
fn streams_that_come_with_crossed_numbers_arrive_at_the_right_place() {
    let (mut out, out_end) = std::io::pipe().unwrap();
    let (mut err, err_end) = std::io::pipe().unwrap();
    let command =
        shell("echo to-out; echo to-err >&2").stdout(Stdio::Fd(out_end.into())).stderr(Stdio::Fd(err_end.into()));
    let mut child = spawn(command);
    let (mut out_text, mut err_text) = (String::new(), String::new());
    out.read_to_string(&mut out_text).unwrap();
    err.read_to_string(&mut err_text).unwrap();
    assert!(child.wait().unwrap().kind.is_success());
    assert_eq!((out_text.as_str(), err_text.as_str()), ("to-out\n", "to-err\n"));
}

#[test]
fn exits_are_told_apart_real_time_signals_too() {
    for (script, expected) in [
        ("exit 0", ExitKind::Code(0)),
        ("exit 255", ExitKind::Code(255)),
        ("kill -KILL $$", ExitKind::Signal { signal: Signal::KILL, core_dumped: false }),
        ("kill -40 $$", ExitKind::Signal { signal: Signal::from_raw(40).unwrap(), core_dumped: false }),
    ] {
        let mut child = spawn(shell(script));
        assert_eq!(child.wait().unwrap().kind, expected, "{script}");
        assert_eq!(child.wait().unwrap().kind, expected, "asked again: {script}");
    }
}

#[test]
fn cpu_time_and_peak_memory_are_measured() {
    let mut child = spawn(shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"));
    let usage = child.wait().unwrap().usage;
    assert!(usage.user + usage.system > Duration::ZERO, "{usage:?}");
    assert!(usage.peak_memory > 100_000, "{usage:?}");
}

#[test]
fn the_descriptor_is_readable_once_the_process_has_ended() {
    let mut child = spawn(shell("exec sleep 60"));
    let readable = |child: &Child| {
        let mut poll = [nix::poll::PollFd::new(child.as_fd(), nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut poll, nix::poll::PollTimeout::ZERO).unwrap() == 1
    };
    assert!(!readable(&child));
    assert_eq!(child.try_wait().unwrap(), None);
    child.signal(Signal::TERM).unwrap();
    eventually("the pidfd is readable", || readable(&child));
    assert_eq!(child.try_wait().unwrap().unwrap().kind.signal(), Some(Signal::TERM));
    child.signal(Signal::TERM).unwrap();
}

#[test]
fn a_group_outlives_its_leader_and_can_still_be_ended() {
    let mut child = spawn(shell("sleep 60 & exit 0"));
    assert_eq!(child.wait().unwrap().kind, ExitKind::Code(0));
    assert!(!child.group_is_empty());
    child.signal_group(Signal::KILL).unwrap();
    eventually("the group is empty", || child.group_is_empty());
    child.signal_group(Signal::KILL).unwrap();
}

#[test]
fn a_process_dies_with_the_thread_that_started_it() {
    let child = std::thread::spawn(|| spawn(shell("exec sleep 60"))).join().unwrap();
    let mut child = child;
    eventually("the child is gone", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().kind.signal(), Some(Signal::KILL));
}

#[test]
fn no_zombie_is_left_when_a_start_fails_or_an_ended_child_is_dropped() {
    let (mut read_end, write_end) = std::io::pipe().unwrap();
    let child = spawn(shell("exit 0").stdout(Stdio::Fd(write_end.into())));
    read_end.read_to_end(&mut Vec::new()).unwrap();
    let _ = refused(Command::new("/no/such/program"));
    let mut child = child;
    child.wait().unwrap();
    let pid = child.pid();
    drop(child);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}
