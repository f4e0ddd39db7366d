//! Nothing wakes while nobody writes. A test binary of its own: it looks at this process's only tail thread.

#![allow(clippy::unwrap_used, reason = "a test's helpers may fail as the test may")]

use std::fs;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use rankrun_logs::{Consoles, SinkId, Tail, TailSource, open_log};

/// The switches of the tail thread so far, or `None` while it has not started.
fn switches() -> Option<u64> {
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default();
        if status.starts_with("Name:\trankrun-tail\n") {
            let counts = status.lines().filter(|line| line.contains("ctxt_switches"));
            return Some(counts.map(|line| line.split('\t').next_back().unwrap().parse::<u64>().unwrap()).sum());
        }
    }
    None
}

#[test]
fn silent_files_and_a_blocked_console_cause_no_wake_up() {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..64).map(|i| dir.path().join(i.to_string())).collect();
    let mut workers: Vec<_> = paths.iter().map(|path| open_log(path).unwrap()).collect();
    let sources = paths.iter().map(|path| TailSource { path: path.clone(), prefix: ">".into(), sink: SinkId::Stdout });
    let (mut reader, writer) = std::io::pipe().unwrap();
    let consoles = Consoles { stdout: writer.try_clone().unwrap().into(), stderr: writer.into() };
    let _tail = Tail::start(sources.collect(), consoles).unwrap();

    let quiet = || {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let before = switches();
            // The span that is measured, and not a wait for anything.
            // sleep: the span that is measured
            std::thread::sleep(Duration::from_millis(200));
            if before.is_some() && switches() == before {
                return;
            }
            assert!(Instant::now() < deadline, "it wakes though nobody writes");
        }
    };
    quiet();
    workers[7].write_all(b"line\n").unwrap();
    let mut line = [0; 6];
    reader.read_exact(&mut line).unwrap();
    assert_eq!(&line, b">line\n");
    quiet();
    // More than the pipe takes, and nobody reads.
    workers[7].write_all(&b"0123456789\n".repeat(100_000)).unwrap();
    quiet();
}
