//! The log of a CI job: a file or a pipe gets plain, whole lines, whatever the environment says of terminals.

use std::fs::{self, File};
use std::io::Read;

use rankrun_testkit::Launcher;
use rankrun_tests::LIMIT;

/// A progress bar, a line, and a failure of rank 1.
const SCRIPT: &str = r"for percent in 10 20 30 100; do printf '\r%s%%' $percent; sleep 0.05; done; echo; echo done;
    [ $RANK = 0 ] || { echo out of luck >&2; exit 3; }";

fn launcher() -> Launcher {
    let launcher = Launcher::rankrun().env("CI", "true").env("GITHUB_ACTIONS", "true").env("TERM", "xterm-256color");
    let launcher = launcher.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    launcher.args(["-n", "2", "-t", "3", "--settle-time", "5", "--max-restarts", "1", "sh", "-c", SCRIPT])
}

#[track_caller]
fn check(log: &str) {
    let is_plain = |c: char| c == '\n' || !c.is_control();
    assert!(log.chars().all(is_plain) && log.ends_with('\n'), "{log:?}");
    let count = |line: &str| log.lines().filter(|other| *other == line).count();
    for (line, times) in [
        ("[default0]:100%", 2),
        ("[default1]:100%", 2),
        ("[default0]:done", 2),
        ("[default1]:out of luck", 2),
        ("Root cause (first observed failure):", 1),
        ("rankrun: not started again: the one restart is used up", 1),
    ] {
        assert_eq!(count(line), times, "{line}:\n{log}");
    }
    assert!(!log.contains("10%"), "{log}");
}

#[test]
fn a_file_gets_plain_lines() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    let file = File::options().create(true).append(true).open(&path).expect("a file");
    let launcher = launcher().stderr(file.try_clone().expect("a descriptor")).stdout(file);
    assert_eq!(launcher.run_with_timeout(LIMIT).code, Some(3));
    check(&fs::read_to_string(&path).expect("the log is text"));
}

#[test]
fn a_pipe_gets_plain_lines() {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let launcher = launcher().stderr(writer.try_clone().expect("a descriptor")).stdout(writer);
    let log = std::thread::spawn(move || {
        let mut log = String::new();
        reader.read_to_string(&mut log).map(|_| log)
    });
    assert_eq!(launcher.run_with_timeout(LIMIT).code, Some(3));
    check(&log.join().expect("the reader does not panic").expect("the log is text"));
}
