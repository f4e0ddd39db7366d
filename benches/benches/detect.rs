//! From a worker's exit to the return of `wait`, with three others ended in between; against a plain loop that does
//! the same.
//!
//! The worker that fails is this program itself: it says when it is ready, waits until it is told to go, says what
//! time it is and exits. The others are `sleep 600`.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use rankrun::{Entrypoint, Std, WorkerGroup, start_processes};
use rankrun_benches::{
    BenchError, Limit, Pipe, PlainProcess, PlainProgram, Scratch, Session, monotonic_nanos, os, wait_for_any,
};
use rankrun_testkit::{eventually, process};

/// The first argument of this program as a worker; two paths of pipes follow.
const AS_WORKER: &str = "--as-worker";
/// How the worker exits.
const EXIT_CODE: i32 = 7;
const EXIT_CODE_AS_BYTE: u8 = 7;

const WORKERS: usize = 4;
const FAILING: usize = 1;
const ROUNDS: usize = 100;
/// Processes that are none of the group's: looking through all of the host must not be what takes the time.
const CROWD: usize = 1000;
const LIMIT: Limit = Limit::Time(Duration::from_millis(3));

/// More than any program takes to start, even here.
const SOON: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if let [_, mode, go, report] = args.as_slice()
        && mode == AS_WORKER
    {
        return match work(Path::new(go), Path::new(report)) {
            Ok(()) => EXIT_CODE_AS_BYTE.into(),
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let title = "detect: a worker's exit to the end of the wait, three others ended by SIGTERM\n\
                 A: rankrun, B: posix_spawn, wait for the first, kill and waitpid the others";
    Session::main(title, |session| {
        let bench = Bench::new()?;
        session.compare("4 workers", ROUNDS, LIMIT, || bench.rankrun(Std::NONE), || bench.plain_loop())?;
        session.compare("4 workers, to files", ROUNDS, LIMIT, || bench.rankrun(Std::ALL), || bench.plain_loop())?;
        let crowded = format!("4 workers, {CROWD} others on host");
        if !session.selects(&crowded) {
            return Ok(());
        }
        let sleep = PlainProgram::new(Path::new("/bin/sleep"), &["600"])?;
        let _crowd: Vec<PlainProcess> = (0..CROWD).map(|_| sleep.start()).collect::<Result<_, _>>()?;
        session.compare(&crowded, ROUNDS, Limit::None, || bench.rankrun(Std::NONE), || bench.plain_loop())
    })
}

/// What the failing worker does.
fn work(go: &Path, report: &Path) -> Result<(), BenchError> {
    let (go, report) = (Pipe::open(go)?, Pipe::open(report)?);
    report.send(0)?;
    go.receive()?;
    report.send(monotonic_nanos()?)
}

struct Bench {
    root: Scratch,
    program: PathBuf,
    go: Pipe,
    report: Pipe,
}

impl Bench {
    fn new() -> Result<Self, BenchError> {
        let root = Scratch::new()?;
        let (go, report) = (Pipe::create(&root.path().join("go"))?, Pipe::create(&root.path().join("report"))?);
        let program = std::env::current_exe().map_err(os("find this program"))?;
        Ok(Self { root, program, go, report })
    }

    /// The arguments of `env`, which becomes the worker of this local rank: all workers of a group share a program.
    fn args(&self, local_rank: usize) -> Vec<String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        if local_rank == FAILING {
            vec![text(&self.program), AS_WORKER.to_owned(), text(self.go.path()), text(self.report.path())]
        } else {
            vec!["sleep".to_owned(), "600".to_owned()]
        }
    }

    /// Waits until all workers do what they are there for.
    fn until_ready(&self, pids: &[i32]) -> Result<(), BenchError> {
        self.report.receive()?;
        for (local_rank, pid) in pids.iter().enumerate().filter(|(local_rank, _)| *local_rank != FAILING) {
            let sleeps = || process(*pid).is_some_and(|process| process.comm == "sleep" && process.state == 'S');
            eventually(&format!("local rank {local_rank} sleeps"), SOON, sleeps);
        }
        Ok(())
    }

    /// The time from the failing worker's last word to `now`.
    fn since_exit(&self, now: u64) -> Result<Duration, BenchError> {
        Ok(Duration::from_nanos(now.saturating_sub(self.report.receive()?)))
    }

    fn rankrun(&self, redirects: Std) -> Result<Duration, BenchError> {
        let log_dir = self.root.path().join("logs");
        let group = WorkerGroup::new("bench", Entrypoint::binary("/usr/bin/env"), WORKERS)
            .args_by_rank(|local_rank| self.args(local_rank))
            .redirects(redirects)
            .settle_time(Duration::ZERO)
            .log_dir(&log_dir);
        let context = start_processes(group)?;
        let pids: Vec<i32> = context.pids().into_iter().flat_map(|pids| pids.values()).map(|pid| *pid as i32).collect();
        self.until_ready(&pids)?;
        self.go.send(1)?;
        let result = context.wait(None)?;
        let time = self.since_exit(monotonic_nanos()?)?;
        drop(context);
        std::fs::remove_dir_all(&log_dir).map_err(os(format!("remove {}", log_dir.display())))?;
        let failures = result.as_ref().map(|result| &result.failures);
        match failures.and_then(|failures| failures.get(&FAILING)) {
            Some(failure) if failure.exitcode == EXIT_CODE => Ok(time),
            _ => Err(BenchError::Unexpected(format!("rankrun: rank {FAILING} did not fail as told: {result:?}"))),
        }
    }

    fn plain_loop(&self) -> Result<Duration, BenchError> {
        let mut started = Vec::with_capacity(WORKERS);
        for local_rank in 0..WORKERS {
            let args = self.args(local_rank);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            started.push(PlainProgram::new(Path::new("/usr/bin/env"), &args)?.start()?);
        }
        let pids: Vec<i32> = started.iter().map(|process| process.pid()).collect();
        self.until_ready(&pids)?;
        self.go.send(1)?;
        let first = wait_for_any()?;
        for process in started.iter().filter(|process| process.pid() != first) {
            process.terminate()?;
        }
        let mut codes = Vec::with_capacity(WORKERS);
        for process in &mut started {
            codes.push(process.wait()?);
        }
        let time = self.since_exit(monotonic_nanos()?)?;
        match codes[..] {
            [143, EXIT_CODE, 143, 143] => Ok(time),
            _ => Err(BenchError::Unexpected(format!("loop: the workers ended with {codes:?}"))),
        }
    }
}
