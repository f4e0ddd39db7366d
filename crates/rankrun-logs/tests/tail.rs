//! The tail engine with real files and consoles.

#![allow(clippy::unwrap_used, reason = "a test's helpers may fail as the test may")]

use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rankrun_logs::{
    Consoles, DrainOutcome, IncompleteDrain, SinkId, Tail, TailError, TailOptions, TailSource, line_prefix, open_log,
};

/// Far enough away that only a fault reaches it.
const LONG: Duration = Duration::from_secs(20);

/// Files of some ranks, teed.
struct Group {
    dir: tempfile::TempDir,
    sources: Vec<TailSource>,
    workers: Vec<File>,
}

impl Group {
    fn new(sinks: &[SinkId]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut group = Self { dir, sources: Vec::new(), workers: Vec::new() };
        for (local_rank, sink) in sinks.iter().enumerate() {
            let path = group.path(local_rank);
            group.workers.push(open_log(&path).unwrap());
            group.sources.push(TailSource { path, prefix: prefix(local_rank).into(), sink: *sink });
        }
        group
    }

    fn path(&self, local_rank: usize) -> PathBuf {
        self.dir.path().join(format!("{local_rank}.log"))
    }

    fn start(&self, consoles: Consoles) -> Tail {
        Tail::start(self.sources.clone(), consoles).unwrap()
    }

    fn write(&mut self, local_rank: usize, bytes: &[u8]) {
        self.workers[local_rank].write_all(bytes).unwrap();
    }
}

fn prefix(local_rank: usize) -> Vec<u8> {
    line_prefix("default", local_rank).into_bytes()
}

/// One pipe for both consoles.
fn one_pipe() -> (PipeReader, Consoles) {
    let (reader, writer) = io::pipe().unwrap();
    (reader, Consoles { stdout: writer.try_clone().unwrap().into(), stderr: writer.into() })
}

fn two_pipes() -> (PipeReader, PipeReader, Consoles) {
    let (out_reader, out) = io::pipe().unwrap();
    let (err_reader, err) = io::pipe().unwrap();
    (out_reader, err_reader, Consoles { stdout: out.into(), stderr: err.into() })
}

fn readable(fd: &impl AsFd, within: Duration) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::try_from(within).unwrap()).unwrap() > 0
}

/// Reads exactly this, or fails.
#[track_caller]
fn expect(reader: &mut (impl Read + AsFd), want: &[u8]) {
    let mut got = Vec::new();
    while got.len() < want.len() {
        let so_far = String::from_utf8_lossy(&got).into_owned();
        assert!(readable(reader, LONG), "nothing came after {so_far:?}");
        let mut buffer = vec![0; want.len() - got.len()];
        let count = reader.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "it ended after {so_far:?}");
        got.extend_from_slice(&buffer[..count]);
    }
    assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(want));
}

/// Finishes and reads the rest of a console.
#[track_caller]
fn finish(tail: &Tail) {
    let deadline = Instant::now() + LONG;
    tail.finish(Duration::ZERO, deadline);
    assert_eq!(tail.wait(deadline), DrainOutcome::Complete);
}

fn rest(mut reader: impl Read) -> Vec<u8> {
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    rest
}

fn lines_of(shown: &[u8], local_rank: usize) -> Vec<u8> {
    let prefix = prefix(local_rank);
    let lines = shown.split_inclusive(|byte| *byte == b'\n');
    lines.filter_map(|line| line.strip_prefix(&prefix[..])).flatten().copied().collect()
}

/// What a worker writes: numbered lines of many lengths.
fn script(local_rank: usize, lines: usize) -> Vec<u8> {
    let mut script = Vec::new();
    for i in 0..lines {
        let fill = "x".repeat((i * 37 + local_rank * 11) % 300);
        writeln!(script, "rank {local_rank} line {i} {fill}").unwrap();
    }
    script
}

fn many_ranks(start: impl FnOnce(Vec<TailSource>, Consoles) -> Result<Tail, TailError>) {
    const RANKS: usize = 6;
    let group = Group::new(&[SinkId::Stdout; RANKS]);
    let (reader, consoles) = one_pipe();
    let tail = start(group.sources.clone(), consoles).unwrap();
    let console = std::thread::spawn(move || rest(reader));
    let scripts: Vec<_> = (0..RANKS).map(|local_rank| script(local_rank, 5_000)).collect();
    std::thread::scope(|scope| {
        for (local_rank, script) in scripts.iter().enumerate() {
            let mut worker = group.workers[local_rank].try_clone().unwrap();
            // Pieces that end anywhere, of another size for each rank.
            scope
                .spawn(move || script.chunks(17 + 700 * local_rank).for_each(|piece| worker.write_all(piece).unwrap()));
        }
    });
    finish(&tail);
    let shown = console.join().unwrap();
    for (local_rank, script) in scripts.iter().enumerate() {
        assert!(lines_of(&shown, local_rank) == *script, "rank {local_rank}");
        assert!(std::fs::read(group.path(local_rank)).unwrap() == *script);
    }
    let prefixes = RANKS * 5_000 * prefix(0).len();
    assert_eq!(shown.len(), scripts.iter().map(Vec::len).sum::<usize>() + prefixes);
}

#[test]
fn each_line_of_many_ranks_is_shown_once_whole_and_in_order_and_the_files_stay_exact() {
    many_ranks(Tail::start);
}

#[test]
fn without_inotify_the_same_is_shown() {
    many_ranks(|sources, consoles| TailOptions::new().timer().start(sources, consoles));
}

#[test]
fn a_line_is_shown_while_the_worker_runs_and_again_after_a_pause() {
    let mut group = Group::new(&[SinkId::Stdout]);
    let (mut reader, consoles) = one_pipe();
    let _tail = group.start(consoles);
    for i in 0..50 {
        group.write(0, format!("{i}\n").as_bytes());
        expect(&mut reader, format!("[default0]:{i}\n").as_bytes());
    }
}

#[test]
fn a_line_written_in_pieces_stays_one_line() {
    let mut group = Group::new(&[SinkId::Stdout; 2]);
    let (mut reader, consoles) = one_pipe();
    let tail = group.start(consoles);
    for piece in [b"epoch".as_slice(), b" 1", b" loss 0.5"] {
        group.write(0, piece);
        // The other rank's line shows that the engine has looked.
        group.write(1, b"busy\n");
        expect(&mut reader, b"[default1]:busy\n");
    }
    group.write(0, b"\nnext");
    expect(&mut reader, b"[default0]:epoch 1 loss 0.5\n");
    finish(&tail);
    assert_eq!(rest(reader), b"[default0]:next\n");
}

#[test]
fn what_was_written_before_the_start_is_shown() {
    let mut group = Group::new(&[SinkId::Stdout]);
    group.write(0, b"early\n");
    let (mut reader, consoles) = one_pipe();
    let _tail = group.start(consoles);
    expect(&mut reader, b"[default0]:early\n");
}

#[test]
fn nul_bytes_and_invalid_utf8_pass_unchanged() {
    let mut group = Group::new(&[SinkId::Stdout]);
    let (reader, consoles) = one_pipe();
    let tail = group.start(consoles);
    group.write(0, b"\0\xff\xfe\r\n\n\x1b[31mred");
    finish(&tail);
    assert_eq!(rest(reader), b"[default0]:\0\xff\xfe\r\n[default0]:\n[default0]:\x1b[31mred\x1b[0m\n");
}

#[test]
fn stdout_and_stderr_each_go_to_their_own_console() {
    let mut group = Group::new(&[SinkId::Stdout, SinkId::Stderr]);
    let (out, err, consoles) = two_pipes();
    let tail = group.start(consoles);
    group.write(0, b"result\n");
    group.write(1, b"warning\n");
    finish(&tail);
    assert_eq!((rest(out), rest(err)), (b"[default0]:result\n".to_vec(), b"[default1]:warning\n".to_vec()));
}

#[test]
fn lines_of_both_streams_stay_whole_in_one_pipe() {
    let mut group = Group::new(&[SinkId::Stdout, SinkId::Stderr]);
    let long = [vec![b'a'; 50_000], b"\n".to_vec()].concat().repeat(8);
    group.write(0, &long);
    group.write(1, &long);
    let (reader, consoles) = one_pipe();
    let console = std::thread::spawn(move || rest(reader));
    finish(&group.start(consoles));
    let shown = console.join().unwrap();
    assert!(lines_of(&shown, 0) == long && lines_of(&shown, 1) == long);
}

#[test]
fn a_reader_that_goes_away_ends_its_own_console_only() {
    let mut group = Group::new(&[SinkId::Stdout, SinkId::Stderr]);
    let (out, mut err, consoles) = two_pipes();
    let tail = group.start(consoles);
    drop(out);
    for _ in 0..3 {
        group.write(0, b"nobody sees this\n");
        group.write(1, b"somebody sees this\n");
        expect(&mut err, b"[default1]:somebody sees this\n");
    }
    finish(&tail);
}

#[test]
fn a_console_that_nobody_reads_holds_up_neither_the_end_nor_the_other_console() {
    let mut group = Group::new(&[SinkId::Stdout, SinkId::Stderr]);
    let (out, mut err, consoles) = two_pipes();
    let tail = group.start(consoles);
    let script = script(0, 10_000);
    group.write(0, &script);
    group.write(1, b"still here\n");
    expect(&mut err, b"[default1]:still here\n");

    let begin = Instant::now();
    tail.finish(Duration::ZERO, begin + Duration::from_millis(50));
    let outcome = tail.wait(begin + LONG);
    assert!(begin.elapsed() < LONG / 2);
    let DrainOutcome::Incomplete { why: IncompleteDrain::Late { console: SinkId::Stdout, bytes } } = outcome else {
        panic!("{outcome:?}");
    };
    let shown = rest(out);
    assert!(script.starts_with(&lines_of(&shown, 0)));
    assert!(shown.ends_with(b"\n"));
    // The file's bytes, and the prefixes of some of them.
    assert!(bytes + shown.len() as u64 >= script.len() as u64, "{bytes}");
    assert!(std::fs::read(group.path(0)).unwrap() == script);
}

#[test]
fn waiting_ends_at_its_deadline_though_the_engine_has_not() {
    let group = Group::new(&[SinkId::Stdout]);
    let (_reader, consoles) = one_pipe();
    let tail = group.start(consoles);
    let running = DrainOutcome::Incomplete { why: IncompleteDrain::StillRunning };
    assert_eq!(tail.wait(Instant::now()), running);
    assert_eq!(tail.wait(Instant::now() + Duration::from_millis(20)), running);
    assert!(!readable(&tail, Duration::ZERO));
    finish(&tail);
    assert!(readable(&tail, Duration::ZERO));
    assert_eq!(tail.wait(Instant::now()), DrainOutcome::Complete);
}

#[test]
fn a_reader_that_comes_back_gets_everything() {
    let mut group = Group::new(&[SinkId::Stdout; 2]);
    let (reader, consoles) = one_pipe();
    let tail = group.start(consoles);
    let scripts = [script(0, 10_000), script(1, 10_000)];
    (0..2).for_each(|local_rank| group.write(local_rank, &scripts[local_rank]));
    let deadline = Instant::now() + LONG;
    tail.finish(Duration::ZERO, deadline);
    assert!(!readable(&tail, Duration::from_millis(20)));
    let shown = std::thread::spawn(move || rest(reader));
    assert_eq!(tail.wait(deadline), DrainOutcome::Complete);
    let shown = shown.join().unwrap();
    (0..2).for_each(|local_rank| assert!(lines_of(&shown, local_rank) == scripts[local_rank]));
}

/// A socket cannot be opened a second time: its flags are shared.
fn socket_console(nonblocking: bool) {
    let mut group = Group::new(&[SinkId::Stdout]);
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(nonblocking).unwrap();
    let tail = group.start(Consoles { stdout: ours.try_clone().unwrap().into(), stderr: ours.into() });
    let script = script(0, 10_000);
    group.write(0, &script);
    let deadline = Instant::now() + LONG;
    tail.finish(Duration::ZERO, deadline);
    assert!(!readable(&tail, Duration::from_millis(20)));
    let shown = std::thread::spawn(move || rest(theirs));
    assert_eq!(tail.wait(deadline), DrainOutcome::Complete);
    assert!(lines_of(&shown.join().unwrap(), 0) == script);
}

#[test]
fn a_blocking_socket_is_a_console() {
    socket_console(false);
}

#[test]
fn a_non_blocking_socket_is_a_console() {
    socket_console(true);
}

#[test]
fn a_file_is_a_console_and_keeps_what_it_has() {
    let mut group = Group::new(&[SinkId::Stdout]);
    let path = group.dir.path().join("console");
    let mut console = File::create(&path).unwrap();
    console.write_all(b"before\n").unwrap();
    let copy = console.try_clone().unwrap();
    let tail = group.start(Consoles { stdout: console.try_clone().unwrap().into(), stderr: copy.into() });
    group.write(0, b"line\n");
    finish(&tail);
    console.write_all(b"after\n").unwrap();
    assert_eq!(std::fs::read(path).unwrap(), b"before\n[default0]:line\nafter\n");
}

#[test]
fn a_console_that_is_full_is_said() {
    let mut group = Group::new(&[SinkId::Stdout]);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let tail = group.start(Consoles { stdout: full.try_clone().unwrap().into(), stderr: full.into() });
    group.write(0, b"line\n");
    let deadline = Instant::now() + LONG;
    tail.finish(Duration::ZERO, deadline);
    let DrainOutcome::Incomplete { why } = tail.wait(deadline) else { panic!("complete") };
    assert_eq!(why.to_string(), "writing to stdout failed: ENOSPC: No space left on device");
}

#[test]
fn a_file_that_was_cut_is_followed_from_its_start() {
    let mut group = Group::new(&[SinkId::Stdout]);
    let (mut reader, consoles) = one_pipe();
    let tail = group.start(consoles);
    group.write(0, b"a longer line\nunfinished");
    expect(&mut reader, b"[default0]:a longer line\n");
    group.workers[0].set_len(0).unwrap();
    // Shown once the engine has seen that the file was cut.
    expect(&mut reader, b"[default0]:unfinished\n");
    group.write(0, b"new\n");
    expect(&mut reader, b"[default0]:new\n");
    finish(&tail);
    assert_eq!(rest(reader), b"");
}

#[test]
fn a_file_that_was_cut_and_has_outgrown_what_was_read_is_followed_from_its_start() {
    let mut group = Group::new(&[SinkId::Stdout]);
    let (mut reader, consoles) = one_pipe();
    let tail = group.start(consoles);
    let mut before = "first".to_owned();
    group.write(0, b"first\n");
    for round in 0..20 {
        expect(&mut reader, format!("[default0]:{before}\n").as_bytes());
        // As `echo` does that opens /dev/stderr anew: cut and written in one, and as long as before or longer.
        before = format!("{round:-<width$}", width = before.len() + round % 2);
        std::fs::write(group.path(0), format!("{before}\n")).unwrap();
    }
    expect(&mut reader, format!("[default0]:{before}\n").as_bytes());
    finish(&tail);
    assert_eq!(rest(reader), b"");
}

#[test]
fn a_file_that_was_renamed_or_removed_is_followed_on() {
    let mut group = Group::new(&[SinkId::Stdout]);
    let (mut reader, consoles) = one_pipe();
    let _tail = group.start(consoles);
    group.write(0, b"one\n");
    expect(&mut reader, b"[default0]:one\n");
    std::fs::remove_file(group.path(0)).unwrap();
    for _ in 0..3 {
        group.write(0, b"more\n");
        expect(&mut reader, b"[default0]:more\n");
    }
}

#[test]
fn a_process_that_goes_on_writing_does_not_hold_up_the_end() {
    let group = Group::new(&[SinkId::Stdout]);
    let (reader, consoles) = one_pipe();
    let tail = group.start(consoles);
    let console = std::thread::spawn(move || rest(reader));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut worker = group.workers[0].try_clone().unwrap();
        let stop = &stop;
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                worker.write_all(b"again and again\n").unwrap();
            }
        });
        let deadline = Instant::now() + LONG;
        tail.finish(Duration::ZERO, deadline);
        let outcome = tail.wait(deadline);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(outcome, DrainOutcome::Complete);
    });
    console.join().unwrap();
}

#[test]
fn what_comes_within_the_idle_time_is_shown() {
    let mut group = Group::new(&[SinkId::Stdout]);
    let (mut reader, consoles) = one_pipe();
    let tail = group.start(consoles);
    tail.finish(LONG, Instant::now() + LONG);
    for i in 0..3 {
        group.write(0, format!("{i}\n").as_bytes());
        expect(&mut reader, format!("[default0]:{i}\n").as_bytes());
    }
    assert!(!readable(&tail, Duration::ZERO));
    // A later request replaces the first.
    finish(&tail);
}

#[test]
fn an_unfinished_line_is_shown_also_when_the_deadline_comes_before_the_idle_time() {
    let mut group = Group::new(&[SinkId::Stdout]);
    let (reader, consoles) = one_pipe();
    let tail = group.start(consoles);
    group.write(0, b"unfinished");
    let now = Instant::now();
    tail.finish(LONG, now + Duration::from_millis(20));
    assert_eq!(tail.wait(now + LONG), DrainOutcome::Complete);
    assert_eq!(rest(reader), b"[default0]:unfinished\n");
}

#[test]
fn dropping_the_tail_stops_its_thread() {
    let group = Group::new(&[SinkId::Stdout]);
    let (reader, consoles) = one_pipe();
    drop(group.start(consoles));
    // Ends when the thread has let go of the pipe.
    assert_eq!(rest(reader), b"");
}

#[test]
fn a_file_that_is_missing_or_no_file_is_an_error_with_its_path() {
    let mut group = Group::new(&[SinkId::Stdout; 2]);
    let fifo = group.dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (path, text) in [
        (
            group.dir.path().join("missing"),
            "cannot open log file {} to follow it: No such file or directory (os error 2)",
        ),
        (group.dir.path().to_owned(), "cannot follow {}: not a regular file"),
        (fifo, "cannot follow {}: not a regular file"),
    ] {
        group.sources[1].path = path.clone();
        let error = Tail::start(group.sources.clone(), one_pipe().1).unwrap_err();
        assert_eq!(error.to_string(), text.replace("{}", path.to_str().unwrap()));
    }
}

#[test]
fn without_files_it_ends_when_asked() {
    let (reader, consoles) = one_pipe();
    finish(&Tail::start(Vec::new(), consoles).unwrap());
    assert_eq!(rest(reader), b"");
}

#[test]
fn the_same_file_may_go_to_both_consoles() {
    let mut group = Group::new(&[SinkId::Stdout]);
    group.sources.push(TailSource { sink: SinkId::Stderr, ..group.sources[0].clone() });
    let (mut out, mut err, consoles) = two_pipes();
    let _tail = group.start(consoles);
    for i in 0..20 {
        group.write(0, format!("{i}\n").as_bytes());
        expect(&mut out, format!("[default0]:{i}\n").as_bytes());
        expect(&mut err, format!("[default0]:{i}\n").as_bytes());
    }
}
