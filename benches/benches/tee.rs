//! Teed output into a pipe: against redirect only and `cat`, line by line, its latency, and what silence costs.
//!
//! The workers are this program itself. Whatever comes through the pipe is checked line by line: each whole, once, in
//! its rank's order, with its prefix; a run that is not so is an error and no figure.

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::fs::File;
use std::io::{PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use rankrun::{Consoles, Entrypoint, PContext, Std, WorkerGroup, start_processes};
use rankrun_benches::{
    BenchError, LINE, Limit, LineChecker, Pipe, Scratch, Session, Summary, ThreadUse, Verdict, monotonic_nanos, os,
    release_binary, write_lines,
};
use rankrun_testkit::{eventually, open_fds, private_memory_kib};

/// The first argument of this program as a worker.
const AS_WORKER: &str = "--as-worker";
const WORKERS: usize = 4;
const MIB: usize = 1 << 20;
const BLOCK: usize = 8192;

/// Wall and CPU time against redirect only and cat, and lines written one by one against blocks.
const WALL: Limit = Limit::Ratio(1.4);
const CPU_LIMIT: f64 = 2.5;
const BY_LINE: Limit = Limit::Ratio(1.5);

const LATENCY_MEDIAN: Duration = Duration::from_micros(500);
const LATENCY_P99: Duration = Duration::from_millis(5);
const LATENCY_LINES: usize = 250;
const LATENCY_PAUSE: Duration = Duration::from_millis(20);

const MANY: usize = 256;
const MANY_LINES: usize = 1000;
const MANY_FDS: usize = 20;

const SILENT: usize = 64;
/// The caller's own thread, the driver and the tail.
const SILENT_THREADS: u64 = 3;
const SILENT_KIB: u64 = 8 * 1024;
const WATCHED: Duration = Duration::from_secs(2);

const SOON: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|arg| arg == AS_WORKER) {
        return match work(&args[2..]) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let title = "tee: lines of 100 bytes from 4 workers into a pipe, each line checked";
    Session::main(title, |session| {
        let bench = Bench::new()?;
        println!("A: rankrun tee, B: rankrun redirect, then cat of the files");
        bench.blocks(session)?;
        bench.by_line(session)?;
        bench.latency(session)?;
        bench.many(session)?;
        silent(session)
    })
}

/// What a worker does: `lines COUNT PIECE`, `clock COUNT`, or `lines-and-wait COUNT PIPE`.
fn work(args: &[String]) -> Result<(), BenchError> {
    let number = |at: usize| args.get(at).and_then(|text| text.parse().ok()).unwrap_or(0);
    let rank = std::env::var("LOCAL_RANK").ok().and_then(|rank| rank.parse().ok()).unwrap_or(0);
    let stdout = std::io::stdout().as_fd().try_clone_to_owned().map_err(os("stdout"))?;
    let stdout = File::from(stdout);
    match args.first().map(String::as_str) {
        Some("lines") => write_lines(stdout, rank, number(1), number(2)),
        Some("clock") => (0..number(1)).try_for_each(|_| {
            // sleep: the rate that is measured at
            std::thread::sleep(LATENCY_PAUSE);
            (&stdout).write_all(format!("{}\n", monotonic_nanos()?).as_bytes()).map_err(os("write"))
        }),
        Some("lines-and-wait") => {
            let go = Pipe::open(Path::new(&args[2]))?;
            write_lines(stdout, rank, number(1), LINE)?;
            go.receive().map(drop)
        }
        other => Err(BenchError::Unexpected(format!("no work: {other:?}"))),
    }
}

/// The times of one run.
#[derive(Debug, Clone, Copy)]
struct Times {
    wall: Duration,
    /// The launcher's, or cat's.
    cpu: Duration,
}

struct Bench {
    root: Scratch,
    program: PathBuf,
}

/// Who reads the console, checks it and says how much CPU that took.
type Checking = JoinHandle<Result<(LineChecker, Duration), BenchError>>;

impl Bench {
    fn new() -> Result<Self, BenchError> {
        let root = Scratch::new()?;
        // As many descriptors as may be: there are many workers.
        rankrun::crates::process::raise_open_files().map_err(|error| BenchError::Unexpected(error.to_string()))?;
        Ok(Self { root, program: std::env::current_exe().map_err(os("find this program"))? })
    }

    fn group(&self, workers: usize, args: &[&str]) -> WorkerGroup {
        WorkerGroup::new("bench", Entrypoint::binary(&self.program), workers)
            .args([AS_WORKER])
            .args(args)
            .log_dir(self.log_dir())
    }

    fn log_dir(&self) -> PathBuf {
        self.root.path().join("logs")
    }

    fn end(&self, context: PContext) -> Result<Vec<PathBuf>, BenchError> {
        let result = context.wait(None)?;
        match result {
            Some(result) if !result.is_failed() && result.drained && result.warnings.is_empty() => {
                Ok(result.stdouts.values().iter().flatten().cloned().collect())
            }
            other => Err(BenchError::Unexpected(format!("the workers ended as {other:?}"))),
        }
    }

    fn remove_logs(&self) -> Result<(), BenchError> {
        std::fs::remove_dir_all(self.log_dir()).map_err(os("remove the logs"))
    }

    fn blocks(&self, session: &mut Session) -> Result<(), BenchError> {
        let lines = 50 * MIB / LINE;
        let cpu = RefCell::new((Vec::new(), Vec::new()));
        let (tee, redirect) = (
            || {
                let times = self.tee(lines, BLOCK)?;
                cpu.borrow_mut().0.push(times.cpu);
                Ok(times.wall)
            },
            || {
                let (wall, cat) = self.redirect_and_cat(lines, BLOCK)?;
                cpu.borrow_mut().1.push(cat);
                Ok(wall)
            },
        );
        session.compare("50 MiB in 8 KiB, wall", 8, WALL, tee, redirect)?;
        let (subject, baseline) = cpu.take();
        let ratios = subject.iter().zip(&baseline).map(|(a, b)| a.as_secs_f64() / b.as_secs_f64());
        if let Some(ratio) = Summary::of(ratios) {
            let median = |times: &[Duration]| {
                Summary::of(times.iter().map(|time| time.as_secs_f64() * 1e3)).map_or(0.0, |summary| summary.median)
            };
            let value = format!(
                "rankrun {:.0} ms, cat {:.0} ms: {:.2} ({:.2}..{:.2})",
                median(&subject),
                median(&baseline),
                ratio.median,
                ratio.lower,
                ratio.upper
            );
            session.value("50 MiB in 8 KiB, CPU", &value, "A/B <= 2.50", Verdict::of(ratio.median <= CPU_LIMIT));
        }
        Ok(())
    }

    /// One write for each line: that costs the workers themselves much more, whoever reads, so rankrun's part is held
    /// against a limit and the whole is shown beside what the workers take alone.
    fn by_line(&self, session: &mut Session) -> Result<(), BenchError> {
        let lines = 10 * MIB / LINE;
        let (tee, cat) = (|| Ok(self.tee(lines, LINE)?.wall), || Ok(self.redirect_and_cat(lines, LINE)?.0));
        session.compare("10 MiB by line, wall", 8, BY_LINE, tee, cat)?;
        println!("A: one write for each line, B: writes of 8 KiB");
        let (tee, blocks) = (|| Ok(self.tee(lines, LINE)?.cpu), || Ok(self.tee(lines, BLOCK)?.cpu));
        session.compare("10 MiB, rankrun's CPU", 8, BY_LINE, tee, blocks)?;
        println!(
            "no limit on wall by line against blocks: 1.5 is out of reach for any tee, because the workers alone take"
        );
        println!(
            "several times as long by line, with their output in files only (the row \"not teed\"). Judged are the rows above:"
        );
        println!("wall against files only and cat, and rankrun's own CPU time.");
        let (tee, blocks) = (|| Ok(self.tee(lines, LINE)?.wall), || Ok(self.tee(lines, BLOCK)?.wall));
        session.compare("10 MiB, wall", 8, Limit::None, tee, blocks)?;
        let (tee, blocks) = (|| self.redirect(lines, LINE), || self.redirect(lines, BLOCK));
        session.compare("10 MiB, wall, not teed", 8, Limit::None, tee, blocks)
    }

    /// Teed into a pipe that is read and checked.
    fn tee(&self, lines: usize, piece: usize) -> Result<Times, BenchError> {
        let (reader, consoles) = pipe()?;
        let checking = check(reader, LineChecker::new(WORKERS, |rank| format!("[bench{rank}]:")), None);
        let before = cpu(UsageWho::RUSAGE_SELF)?;
        let start = Instant::now();
        let args = ["lines", &lines.to_string(), &piece.to_string()];
        let context = start_processes(self.group(WORKERS, &args).tee(Std::OUT).consoles(consoles))?;
        self.end(context)?;
        let (checker, reading) = joined(checking)?;
        let wall = start.elapsed();
        let used = cpu(UsageWho::RUSAGE_SELF)?.saturating_sub(before);
        checker.finish(lines)?;
        self.remove_logs()?;
        Ok(Times { wall, cpu: used.saturating_sub(reading) })
    }

    /// To files only; the files are left.
    fn redirected(&self, lines: usize, piece: usize) -> Result<(Duration, Vec<PathBuf>), BenchError> {
        let start = Instant::now();
        let args = ["lines", &lines.to_string(), &piece.to_string()];
        let context = start_processes(self.group(WORKERS, &args).redirects(Std::OUT))?;
        let files = self.end(context)?;
        Ok((start.elapsed(), files))
    }

    fn redirect(&self, lines: usize, piece: usize) -> Result<Duration, BenchError> {
        let (wall, _) = self.redirected(lines, piece)?;
        self.remove_logs()?;
        Ok(wall)
    }

    /// To files only, then one `cat` of them into a pipe that is read and checked; the wall time and cat's CPU time.
    fn redirect_and_cat(&self, lines: usize, piece: usize) -> Result<(Duration, Duration), BenchError> {
        let start = Instant::now();
        let (_, files) = self.redirected(lines, piece)?;
        let (reader, writer) = std::io::pipe().map_err(os("pipe"))?;
        let checking = check(reader, LineChecker::new(WORKERS, |_| String::new()), None);
        let before = cpu(UsageWho::RUSAGE_CHILDREN)?;
        let mut command = Command::new("cat");
        command.args(files).stdin(Stdio::null()).stdout(writer);
        let status = command.status().map_err(os("cat"))?;
        // It holds the pipe too.
        drop(command);
        let (checker, _) = joined(checking)?;
        let wall = start.elapsed();
        let used = cpu(UsageWho::RUSAGE_CHILDREN)?.saturating_sub(before);
        checker.finish(lines)?;
        self.remove_logs()?;
        if status.success() { Ok((wall, used)) } else { Err(BenchError::Unexpected(format!("cat: {status}"))) }
    }

    fn latency(&self, session: &mut Session) -> Result<(), BenchError> {
        let case = "latency";
        if !session.selects(case) {
            return Ok(());
        }
        let (mut reader, consoles) = pipe()?;
        let context = start_processes(
            self.group(WORKERS, &["clock", &LATENCY_LINES.to_string()]).tee(Std::OUT).consoles(consoles),
        )?;
        let mut delays = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        let mut text = Vec::new();
        loop {
            let count = reader.read(&mut buffer).map_err(os("read the console"))?;
            if count == 0 {
                break;
            }
            let now = monotonic_nanos()?;
            text.extend_from_slice(&buffer[..count]);
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                let number = String::from_utf8_lossy(&line);
                let number = number.trim().rsplit(':').next().and_then(|number| number.parse::<u64>().ok());
                let written = number.ok_or_else(|| BenchError::Unexpected(format!("no time in {line:?}")))?;
                delays.push(Duration::from_nanos(now.saturating_sub(written)));
            }
            if delays.len() == WORKERS * LATENCY_LINES {
                break;
            }
        }
        self.end(context)?;
        self.remove_logs()?;
        delays.sort();
        let at = |part: usize| delays[(delays.len() * part / 100).min(delays.len() - 1)];
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let value = format!("median {:.3} ms, p99 {:.3} ms", millis(at(50)), millis(at(99)));
        let kept = at(50) < LATENCY_MEDIAN && at(99) < LATENCY_P99;
        session.value(case, &value, "< 0.5, < 5 ms", Verdict::of(kept));
        Ok(())
    }

    fn many(&self, session: &mut Session) -> Result<(), BenchError> {
        let case = "256 workers x 1000";
        if !session.selects(case) {
            return Ok(());
        }
        let own = std::process::id() as i32;
        let go = Pipe::create(&self.root.path().join("go"))?;
        let before = open_fds(own).len();
        let (reader, consoles) = pipe()?;
        let (all, all_came) = channel();
        let checker = LineChecker::new(MANY, |rank| format!("[bench{rank}]:"));
        let checking = check(reader, checker, Some((MANY * MANY_LINES, all)));
        let start = Instant::now();
        let args = ["lines-and-wait", &MANY_LINES.to_string(), &go.path().to_string_lossy()];
        let context = start_processes(self.group(MANY, &args).tee(Std::ALL).consoles(consoles))?;
        let came = all_came.recv_timeout(SOON);
        let time = start.elapsed();
        let fds = open_fds(own).len().saturating_sub(before);
        (0..MANY as u64).try_for_each(|number| go.send(number))?;
        self.end(context)?;
        let (checker, _) = joined(checking)?;
        came.map_err(|error| BenchError::Unexpected(format!("not all lines in time: {error}")))?;
        checker.finish(MANY_LINES)?;
        self.remove_logs()?;
        // Both streams are teed.
        let more = fds.saturating_sub(2 * MANY + MANY);
        let value = format!("{} ms, {fds} descriptors: {more} beyond files and workers", time.as_millis());
        session.value(case, &value, "<= 20 beyond", Verdict::of(more <= MANY_FDS));
        Ok(())
    }
}

fn pipe() -> Result<(PipeReader, Consoles), BenchError> {
    let (reader, writer) = std::io::pipe().map_err(os("pipe"))?;
    let stdout = writer.try_clone().map_err(os("pipe"))?;
    Ok((reader, Consoles { stdout: stdout.into(), stderr: writer.into() }))
}

/// Reads to the end and checks each line; tells when so many have come.
fn check(mut reader: PipeReader, mut checker: LineChecker, tell: Option<(usize, Sender<()>)>) -> Checking {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        let mut tell = tell;
        loop {
            let count = reader.read(&mut buffer).map_err(os("read the console"))?;
            if count == 0 {
                return Ok((checker, cpu(UsageWho::RUSAGE_THREAD)?));
            }
            checker.push(&buffer[..count])?;
            if let Some((_, tell)) = tell.take_if(|(lines, _)| checker.lines() >= *lines) {
                // Nobody waits any more if it took too long.
                let _ = tell.send(());
            }
        }
    })
}

fn joined(checking: Checking) -> Result<(LineChecker, Duration), BenchError> {
    checking.join().map_err(|_| BenchError::Unexpected("the reader panicked".to_owned()))?
}

/// User and system time.
fn cpu(who: UsageWho) -> Result<Duration, BenchError> {
    let usage = getrusage(who).map_err(os("getrusage"))?;
    let time = |value: nix::sys::time::TimeVal| Duration::new(value.tv_sec() as u64, value.tv_usec() as u32 * 1000);
    Ok(time(usage.user_time()) + time(usage.system_time()))
}

/// What a launcher of silent teed workers uses: in a process of its own, which is the `rankrun` binary.
fn silent(session: &mut Session) -> Result<(), BenchError> {
    let case = "64 silent workers";
    if !session.selects(case) {
        return Ok(());
    }
    let Some(binary) = release_binary() else {
        session.value(case, "skipped: no release binary", "-", Verdict::None);
        return Ok(());
    };
    let logs = Scratch::new()?;
    let mut command = Command::new(&binary);
    command.arg("--log-dir").arg(logs.path()).args(["-n", &SILENT.to_string(), "--tee", "3", "sleep", "600"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut launcher = command.spawn().map_err(os(format!("{command:?}")))?;
    let pid = launcher.id();
    eventually("all workers sleep", SOON, || {
        let asleep = |process: &rankrun_testkit::Process| process.comm == "sleep" && process.state == 'S';
        rankrun_testkit::children_of(pid as i32).iter().filter(|process| asleep(process)).count() == SILENT
    });
    let mut before = ThreadUse::of(pid)?;
    eventually("the launcher has settled", SOON, || -> bool {
        // sleep: the span in which nothing must happen
        std::thread::sleep(Duration::from_millis(100));
        let now = ThreadUse::of(pid).unwrap_or_default();
        std::mem::replace(&mut before, now) == now
    });
    // sleep: the span that is measured
    std::thread::sleep(WATCHED);
    let used = ThreadUse::of(pid)?.since(before);
    let kib = private_memory_kib(pid as i32).unwrap_or(u64::MAX);
    let pid = nix::unistd::Pid::from_raw(pid as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::SIGTERM).map_err(os(format!("kill {pid}")))?;
    launcher.wait().map_err(os(format!("wait for {pid}")))?;
    let value = format!("{} threads, {} switches, {:.1} MiB", used.threads, used.switches, kib as f64 / 1024.0);
    let kept = used.threads <= SILENT_THREADS && used.switches == 0 && kib < SILENT_KIB;
    session.value(case, &value, "3, none in 2 s, < 8 MiB", Verdict::of(kept));
    Ok(())
}
