//! Files that are kept at a size while they grow.

#![allow(clippy::unwrap_used, reason = "a test's helpers may fail as the test may")]

use std::fs::{self, File};
use std::io::{PipeReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rankrun_logs::{
    Consoles, DrainOutcome, LogLimiter, LogSize, SinkId, Tail, TailSource, last_lines, line_prefix, open_log,
};

const LONG: Duration = Duration::from_secs(30);
const MAX: u64 = 64 << 10;

fn max() -> LogSize {
    LogSize::from_bytes(MAX).unwrap()
}

fn log(dir: &Path) -> (PathBuf, File) {
    let path = dir.join("stdout.log");
    let worker = open_log(&path).unwrap();
    (path, worker)
}

/// What a file has on disk, in bytes.
fn on_disk(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[track_caller]
fn eventually(what: &str, mut found: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !found() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        // sleep: between two looks
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Numbered lines, 16 bytes each.
fn lines(from: usize, count: usize) -> Vec<u8> {
    (from..from + count).flat_map(|i| format!("line {i:010}\n").into_bytes()).collect()
}

/// Whether the file system of a directory has holes; says so if not.
fn has_holes(dir: &Path) -> bool {
    use nix::fcntl::{FallocateFlags, fallocate};
    let path = dir.join("holes");
    let file = File::create(&path).unwrap();
    file.set_len(1 << 16).unwrap();
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let has = fallocate(&file, flags, 0, 4096).is_ok();
    fs::remove_file(path).unwrap();
    if !has {
        eprintln!("skipped: no holes in files on this file system");
    }
    has
}

fn tail(path: &Path) -> (PipeReader, Tail) {
    let (reader, writer) = std::io::pipe().unwrap();
    let consoles = Consoles { stdout: writer.try_clone().unwrap().into(), stderr: writer.into() };
    let prefix = line_prefix("default", 0).into_bytes();
    let source = TailSource { path: path.to_owned(), prefix: prefix.into(), sink: SinkId::Stdout };
    (reader, Tail::start(vec![source], consoles).unwrap())
}

fn shown(reader: PipeReader) -> Vec<u8> {
    let text = std::io::read_to_string(reader).unwrap();
    text.lines().flat_map(|line| format!("{}\n", line.strip_prefix("[default0]:").unwrap()).into_bytes()).collect()
}

#[test]
fn disk_use_stays_bounded_while_the_worker_writes_and_the_end_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    if !has_holes(dir.path()) {
        return;
    }
    let (path, mut worker) = log(dir.path());
    let limiter = LogLimiter::start(vec![path.clone()], max(), None).unwrap();
    for i in 0..20 {
        worker.write_all(&lines(i * 10_000, 10_000)).unwrap();
        eventually("the beginning is freed", || on_disk(&path) <= MAX + MAX / 8 + 2 * 4096);
        assert_eq!(fs::metadata(&path).unwrap().len(), (i as u64 + 1) * 160_000, "length and offsets stay");
        assert_eq!(last_lines(&path, 1), [format!("line {:010}", i * 10_000 + 9_999)]);
    }
    drop(worker);
    assert_eq!(limiter.finish(Instant::now() + LONG), [""; 0]);
    let text = fs::read_to_string(&path).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    assert_eq!(first, format!("[rankrun: {} bytes dropped]", 3_200_000 - rest.len()));
    assert!(lines(0, 200_000).ends_with(rest.as_bytes()) && rest.starts_with("line "));
    assert!(text.len() as u64 <= MAX && text.len() as u64 > MAX - 100);
}

#[test]
fn a_file_within_the_size_is_left_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let (path, mut worker) = log(dir.path());
    let limiter = LogLimiter::start(vec![path.clone(), "/dev/null".into()], max(), None).unwrap();
    let text = lines(0, usize::try_from(MAX).unwrap() / 16);
    worker.write_all(&text).unwrap();
    let inode = fs::metadata(&path).unwrap().ino();
    // Even with a writer: nobody has to be asked.
    assert_eq!(limiter.finish(Instant::now() + LONG), [""; 0]);
    assert!(fs::read(&path).unwrap() == text);
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
}

#[test]
fn what_a_slow_console_has_not_got_is_not_freed_and_every_line_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    if !has_holes(dir.path()) {
        return;
    }
    let (path, mut worker) = log(dir.path());
    let (reader, tail) = tail(&path);
    let limiter = LogLimiter::start(vec![path.clone()], max(), Some(tail.positions())).unwrap();
    let text = lines(0, 100_000);
    for piece in text.chunks(100_000) {
        worker.write_all(piece).unwrap();
    }
    // The engine reads until its console is full.
    eventually("the engine has read", || tail.positions().read_to(&path) > 0);
    assert!(tail.positions().read_to(&path) < text.len() as u64 - MAX);
    let console = std::thread::spawn(move || shown(reader));
    eventually("what was shown is freed", || on_disk(&path) <= MAX + MAX / 8 + 2 * 4096);
    drop(worker);
    let deadline = Instant::now() + LONG;
    tail.finish(Duration::ZERO, deadline);
    assert_eq!(tail.wait(deadline), DrainOutcome::Complete);
    assert!(console.join().unwrap() == text, "each line is shown once");
    assert_eq!(tail.positions().read_to(&path), u64::MAX);
    assert_eq!(limiter.finish(Instant::now() + LONG), [""; 0]);
    assert!(fs::metadata(&path).unwrap().len() <= MAX);
}

#[test]
fn a_follower_skips_what_was_freed_before_it_came() {
    let dir = tempfile::tempdir().unwrap();
    if !has_holes(dir.path()) {
        return;
    }
    let (path, mut worker) = log(dir.path());
    let limiter = LogLimiter::start(vec![path.clone()], max(), None).unwrap();
    let text = lines(0, 100_000);
    worker.write_all(&text).unwrap();
    eventually("the beginning is freed", || on_disk(&path) <= MAX + MAX / 8 + 2 * 4096);
    let (reader, tail) = tail(&path);
    let console = std::thread::spawn(move || shown(reader));
    let deadline = Instant::now() + LONG;
    tail.finish(Duration::ZERO, deadline);
    assert_eq!(tail.wait(deadline), DrainOutcome::Complete);
    let shown = console.join().unwrap();
    assert!(text.ends_with(&shown) && shown.len() as u64 >= MAX && !shown.contains(&0));
    drop(limiter);
}

#[test]
fn a_file_that_was_cut_by_somebody_else_is_kept_at_its_size_from_there() {
    let dir = tempfile::tempdir().unwrap();
    if !has_holes(dir.path()) {
        return;
    }
    let (path, mut worker) = log(dir.path());
    let limiter = LogLimiter::start(vec![path.clone()], max(), None).unwrap();
    worker.write_all(&lines(0, 20_000)).unwrap();
    eventually("the beginning is freed", || on_disk(&path) <= MAX + MAX / 8 + 2 * 4096);
    worker.set_len(0).unwrap();
    worker.write_all(b"new\n").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new\n");
    worker.write_all(&lines(0, 10_000)).unwrap();
    eventually("the beginning is freed again", || on_disk(&path) <= MAX + MAX / 8 + 2 * 4096);
    drop(worker);
    assert_eq!(limiter.finish(Instant::now() + LONG), [""; 0]);
    assert!(fs::read(&path).unwrap().ends_with(b"line 0000009999\n"));
}

#[test]
fn a_file_that_was_replaced_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (path, worker) = log(dir.path());
    let limiter = LogLimiter::start(vec![path.clone()], max(), None).unwrap();
    fs::rename(&path, dir.path().join("stdout.log.1")).unwrap();
    let text = lines(0, 20_000);
    (&worker).write_all(&text).unwrap();
    fs::write(&path, &text).unwrap();
    drop(worker);
    assert_eq!(limiter.finish(Instant::now() + LONG), [""; 0]);
    assert!(fs::read(&path).unwrap() == text && fs::read(dir.path().join("stdout.log.1")).unwrap() == text);
}

#[test]
fn a_console_that_closes_holds_nothing_back() {
    let dir = tempfile::tempdir().unwrap();
    let (path, mut worker) = log(dir.path());
    let (reader, tail) = tail(&path);
    drop(reader);
    worker.write_all(&lines(0, 1000)).unwrap();
    eventually("the console is closed", || tail.positions().read_to(&path) == u64::MAX);
    assert_eq!(tail.positions().read_to(Path::new("another")), u64::MAX);
}

/// The switches of this process's limiting thread so far.
fn switches() -> Option<u64> {
    fs::read_dir("/proc/self/task").unwrap().find_map(|task| {
        let mut status = String::new();
        File::open(task.unwrap().path().join("status")).ok()?.read_to_string(&mut status).ok()?;
        let counts = status.starts_with("Name:\trankrun-limit\n").then_some(status.lines())?;
        let counts = counts.filter(|line| line.contains("ctxt_switches"));
        Some(counts.filter_map(|line| line.split('\t').next_back()?.parse::<u64>().ok()).sum())
    })
}

/// Runs alone, in a process of its own: it looks for the only thread of its name.
#[test]
#[ignore = "the body of nothing_wakes_while_nobody_writes"]
fn body_of_nothing_wakes_while_nobody_writes() {
    let dir = tempfile::tempdir().unwrap();
    let (path, mut worker) = log(dir.path());
    let _limiter = LogLimiter::start(vec![path], max(), None).unwrap();
    for _ in 0..2 {
        worker.write_all(&lines(0, 20_000)).unwrap();
        eventually("200 ms without a wake-up", || {
            let before = switches();
            // sleep: the span that is measured
            std::thread::sleep(Duration::from_millis(200));
            before.is_some() && switches() == before
        });
    }
}

#[test]
fn nothing_wakes_while_nobody_writes() {
    let mut test = std::process::Command::new(std::env::current_exe().unwrap());
    let output = test.args(["--ignored", "--exact", "body_of_nothing_wakes_while_nobody_writes"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}
