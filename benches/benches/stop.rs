//! Ending groups: workers that end at once, workers that do not want to, and a thousand of them; against a plain loop
//! of kill and waitpid. In this process; what a thousand cost the `rankrun` binary is in `cli`.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rankrun::{Entrypoint, PContext, RunState, Std, WorkerGroup, start_processes};
use rankrun_benches::{BenchError, Limit, PlainProcess, PlainProgram, Scratch, Session};
use rankrun_testkit::{eventually, process};

const MANY: usize = 64;
const VERY_MANY: usize = 1000;
const STUBBORN: usize = 8;
const GRACE: Duration = Duration::from_secs(1);

/// More than any program takes to start, even here.
const SOON: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let title = "stop: from close() to its return, all workers reaped\n\
                 A: rankrun, B: kill and waitpid in a loop (or as the case says)";
    Session::main(title, |session| {
        let sleep = PlainProgram::new(Path::new("/bin/sleep"), &["600"])?;
        let limit = Limit::Time(Duration::from_millis(20));
        session.compare("64 workers", 30, limit, || close(MANY), || plain_loop(&sleep, MANY))?;
        let limit = Limit::Time(GRACE + Duration::from_millis(100));
        session.compare("8 ignore SIGTERM, grace 1 s (B: 1)", 5, limit, || stubborn(STUBBORN), || stubborn(1))?;
        let per_worker = |n: usize| move || Ok(start_and_close(n)? / n as u32);
        let limit = Limit::Ratio(1.5);
        session.compare("start and close, per worker, 1000 (B: 64)", 5, limit, per_worker(VERY_MANY), per_worker(MANY))
    })
}

fn start(n: usize) -> Result<PContext, BenchError> {
    let group = WorkerGroup::new("bench", Entrypoint::binary("/bin/sleep"), n).args(["600"]);
    Ok(start_processes(group)?)
}

/// Ends a group with SIGTERM and returns how long that took.
fn end(context: &PContext, grace: Duration) -> Result<Duration, BenchError> {
    let begin = Instant::now();
    let result = context.close(None, grace);
    let time = begin.elapsed();
    match result {
        Some(result) if result.state == RunState::Stopped => Ok(time),
        other => Err(BenchError::Unexpected(format!("close: {:?}", other.map(|result| result.state)))),
    }
}

fn until_asleep(pids: impl IntoIterator<Item = i32>) {
    for pid in pids {
        let asleep = || process(pid).is_some_and(|process| process.comm == "sleep" && process.state == 'S');
        eventually(&format!("{pid} sleeps"), SOON, asleep);
    }
}

fn close(n: usize) -> Result<Duration, BenchError> {
    let context = start(n)?;
    until_asleep(context.pids().into_iter().flat_map(|pids| pids.values()).map(|pid| *pid as i32));
    end(&context, SOON)
}

fn plain_loop(program: &PlainProgram, n: usize) -> Result<Duration, BenchError> {
    let mut started: Vec<PlainProcess> = (0..n).map(|_| program.start()).collect::<Result<_, _>>()?;
    until_asleep(started.iter().map(PlainProcess::pid));
    let begin = Instant::now();
    for process in &started {
        process.terminate()?;
    }
    for process in &mut started {
        process.wait()?;
    }
    Ok(begin.elapsed())
}

fn start_and_close(n: usize) -> Result<Duration, BenchError> {
    let begin = Instant::now();
    let context = start(n)?;
    end(&context, SOON)?;
    Ok(begin.elapsed())
}

/// Ends workers that ignore the death signal and have said so.
fn stubborn(n: usize) -> Result<Duration, BenchError> {
    let root = Scratch::new()?;
    let group = WorkerGroup::new("bench", Entrypoint::binary("/bin/sh"), n)
        .args(["-c", "trap '' TERM; : > \"$READY/$LOCAL_RANK\"; while :; do sleep 600; done"])
        .env("READY", root.path())
        .redirects(Std::NONE);
    let context = start_processes(group)?;
    let ready = || std::fs::read_dir(root.path()).map_or(0, Iterator::count) == n;
    eventually("all workers ignore SIGTERM", SOON, ready);
    let time = end(&context, GRACE)?;
    Ok(time)
}
