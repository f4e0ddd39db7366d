//! Start to result of a group of `true` whose output goes to files, against a plain loop that opens the same files.
//!
//! The directories of the plain loop are there before the clock starts; rankrun makes its own while it runs.
//!
//! The limits are for a machine with nothing else to do. Where all CPUs are busy, rankrun takes a multiple of the loop:
//! its workers lead sessions, and Linux with `sched_autogroup_enabled` puts a new session behind what runs already.

#![forbid(unsafe_code)]

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rankrun::{Entrypoint, Std, WorkerGroup, start_processes};
use rankrun_benches::{Ballast, BenchError, Limit, PlainProcess, PlainProgram, Scratch, Session, os};

const PROGRAM: &str = "/bin/true";

/// Workers, rounds of the comparison with the loop, rounds with and without a heap, and whether limits hold.
const CASES: [(usize, usize, usize, bool); 4] =
    [(1, 200, 20, false), (8, 100, 20, false), (64, 40, 20, true), (256, 16, 12, true)];

const AGAINST_LOOP: Limit = Limit::Ratio(1.2);
const WITH_HEAP: Limit = Limit::Ratio(1.15);
const HEAP: usize = 1 << 30;

fn main() -> ExitCode {
    Session::main("spawn: start to result, stdout and stderr to files", |session| {
        let bench = Bench::new()?;
        println!("A: rankrun, B: posix_spawn and waitpid in a loop");
        for (workers, rounds, _, limited) in CASES {
            let limit = if limited { AGAINST_LOOP } else { Limit::None };
            let case = format!("{workers} worker{}", if workers == 1 { "" } else { "s" });
            session.compare(&case, rounds, limit, || bench.rankrun(workers, false), || bench.plain_loop(workers))?;
        }
        println!("A: rankrun with a control group where one can be made, B: the loop");
        let (grouped, plain) = (|| bench.rankrun(64, true), || bench.plain_loop(64));
        session.compare("64 workers in a control group", 40, AGAINST_LOOP, grouped, plain)?;
        println!("A: rankrun with 1 GiB of touched heap in the parent, B: rankrun without");
        for (workers, _, rounds, limited) in CASES {
            let limit = if limited { WITH_HEAP } else { Limit::None };
            let case = format!("{workers} with heap");
            let (with, without) =
                (|| with_heap(|| bench.rankrun(workers, false)), || after_heap(|| bench.rankrun(workers, false)));
            session.compare(&case, rounds, limit, with, without)?;
        }
        println!("A: posix_spawn loop with 1 GiB of touched heap in the parent, B: the loop without");
        let (with, without) = (|| with_heap(|| bench.plain_loop(64)), || after_heap(|| bench.plain_loop(64)));
        session.compare("loop of 64 with heap", 20, Limit::None, with, without)
    })
}

fn with_heap(run: impl FnOnce() -> Result<Duration, BenchError>) -> Result<Duration, BenchError> {
    let _heap = Ballast::new(HEAP);
    run()
}

/// Touches a heap too, but gives it back first: so both sides begin with caches that hold nothing of theirs.
fn after_heap(run: impl FnOnce() -> Result<Duration, BenchError>) -> Result<Duration, BenchError> {
    drop(Ballast::new(HEAP));
    run()
}

/// Where the runs write.
struct Bench {
    root: Scratch,
    program: PlainProgram,
}

impl Bench {
    fn new() -> Result<Self, BenchError> {
        let root = Scratch::new()?;
        Ok(Self { root, program: PlainProgram::new(Path::new(PROGRAM), &[])? })
    }

    fn rankrun(&self, workers: usize, control_group: bool) -> Result<Duration, BenchError> {
        let log_dir = self.root.path().join("rankrun");
        let start = Instant::now();
        let group =
            WorkerGroup::new("bench", Entrypoint::binary(PROGRAM), workers).redirects(Std::ALL).log_dir(&log_dir);
        let group = group.control_group(control_group);
        let context = start_processes(group)?;
        let result = context.wait(None)?;
        let time = start.elapsed();
        drop(context);
        remove(&log_dir)?;
        match result {
            Some(result) if !result.is_failed() => Ok(time),
            other => Err(BenchError::Unexpected(format!("rankrun: {workers} of `true` ended as {other:?}"))),
        }
    }

    fn plain_loop(&self, workers: usize) -> Result<Duration, BenchError> {
        let log_dir = self.root.path().join("plain");
        let dirs: Vec<PathBuf> = (0..workers).map(|local_rank| log_dir.join(local_rank.to_string())).collect();
        for dir in &dirs {
            std::fs::create_dir_all(dir).map_err(os(dir.display().to_string()))?;
        }
        let start = Instant::now();
        let null = File::open("/dev/null").map_err(os("/dev/null"))?;
        let mut started: Vec<PlainProcess> = Vec::with_capacity(workers);
        for dir in &dirs {
            let (stdout, stderr) = (dir.join("stdout.log"), dir.join("stderr.log"));
            started.push(self.program.start_into(null.as_fd(), &stdout, &stderr)?);
        }
        let mut failed = 0;
        for process in &mut started {
            failed += i32::from(process.wait()? != 0);
        }
        let time = start.elapsed();
        remove(&log_dir)?;
        if failed == 0 { Ok(time) } else { Err(BenchError::Unexpected(format!("loop: {failed} of `true` failed"))) }
    }
}

fn remove(dir: &Path) -> Result<(), BenchError> {
    std::fs::remove_dir_all(dir).map_err(os(format!("remove {}", dir.display())))
}
