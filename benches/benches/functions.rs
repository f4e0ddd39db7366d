//! Functions as workers: from start to result against the same program without one, and large return values against a
//! copy of the same bytes.
//!
//! The workers are this program itself, and take their function before `main`, as those of a test do.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::memfd::{MFdFlags, memfd_create};
use rankrun::{Entrypoint, RunProcsResult, WorkerGroup, entrypoint, start_processes};
use rankrun_benches::{BenchError, Limit, Session, Verdict, os};

/// The first argument of this program as a worker that is no function.
const AS_WORKER: &str = "--as-worker";
const WORKERS: usize = 4;
const MIB: usize = 1 << 20;
const VALUE: usize = 64 * MIB;

const AGAINST_BINARY: Limit = Limit::Ratio(1.5);
/// Half the speed.
const AGAINST_COPY: Limit = Limit::Ratio(2.0);
/// Of the values themselves.
const MEMORY: f64 = 1.25;

fn nothing(_: ()) {}
entrypoint!(nothing);

fn bytes(len: usize) -> Vec<u8> {
    vec![7; len]
}
entrypoint!(bytes);

fn numbers(len: usize) -> Vec<f64> {
    vec![0.1; len / 8]
}
entrypoint!(numbers);

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|arg| arg == AS_WORKER) {
        return ExitCode::SUCCESS;
    }
    Session::main("functions: start to result, and what they return", |session| {
        println!("A: {WORKERS} functions, B: {WORKERS} of the same program that do nothing");
        session.compare("start to result", 60, AGAINST_BINARY, functions, binaries)?;
        println!("A: {WORKERS} functions return 64 MiB each, B: a copy of the same bytes through a memory file");
        session.compare("bytes", 10, AGAINST_COPY, return_bytes, copy)?;
        session.compare("numbers", 5, Limit::None, return_numbers, copy)?;
        memory(session)
    })
}

fn end(group: WorkerGroup) -> Result<Arc<RunProcsResult>, BenchError> {
    match start_processes(group)?.wait(None)? {
        Some(result) if !result.is_failed() => Ok(result),
        other => Err(BenchError::Unexpected(format!("the group ended as {other:?}"))),
    }
}

fn functions() -> Result<Duration, BenchError> {
    let start = Instant::now();
    let result = end(WorkerGroup::new("bench", Entrypoint::function(nothing).with(()), WORKERS))?;
    let returned = result.return_values_of(nothing)?.values().iter().flatten().count();
    let time = start.elapsed();
    if returned == WORKERS { Ok(time) } else { Err(BenchError::Unexpected(format!("{returned} returned"))) }
}

fn binaries() -> Result<Duration, BenchError> {
    let start = Instant::now();
    let own = std::env::current_exe().map_err(os("own program"))?;
    end(WorkerGroup::new("bench", Entrypoint::binary(own), WORKERS).args([AS_WORKER]))?;
    Ok(start.elapsed())
}

fn return_bytes() -> Result<Duration, BenchError> {
    let start = Instant::now();
    let result = end(WorkerGroup::new("bench", Entrypoint::function(bytes).with(VALUE), WORKERS))?;
    let values = result.take_return_values_of(bytes)?;
    let time = start.elapsed();
    let whole =
        values.values().iter().flatten().filter(|value| value.len() == VALUE && value.iter().all(|byte| *byte == 7));
    match whole.count() {
        WORKERS => Ok(time),
        whole => Err(BenchError::Unexpected(format!("{whole} values are whole"))),
    }
}

fn return_numbers() -> Result<Duration, BenchError> {
    let start = Instant::now();
    let result = end(WorkerGroup::new("bench", Entrypoint::function(numbers).with(VALUE), WORKERS))?;
    result.take_return_values_of(numbers)?;
    Ok(start.elapsed())
}

/// Writes a value to a memory file and reads it into fresh memory, as often as there are workers. All values live at once,
/// as those that are returned do.
fn copy() -> Result<Duration, BenchError> {
    let value = bytes(VALUE);
    let mut values = Vec::with_capacity(WORKERS);
    let start = Instant::now();
    for _ in 0..WORKERS {
        let mut file = File::from(memfd_create("copy", MFdFlags::MFD_CLOEXEC).map_err(os("memfd"))?);
        file.write_all(&value).map_err(os("write to a memory file"))?;
        file.rewind().map_err(os("rewind a memory file"))?;
        let mut copy = Vec::with_capacity(VALUE);
        file.read_to_end(&mut copy).map_err(os("read a memory file"))?;
        values.push(copy);
    }
    Ok(start.elapsed())
}

/// The most memory that this program has resident while it gets four values. What the workers wrote is not in it, and is
/// freed while it is read.
fn memory(session: &mut Session) -> Result<(), BenchError> {
    const CASE: &str = "peak memory";
    if !session.selects(CASE) {
        return Ok(());
    }
    // Resets the peak.
    std::fs::write("/proc/self/clear_refs", "5").map_err(os("/proc/self/clear_refs"))?;
    let result = end(WorkerGroup::new("bench", Entrypoint::function(bytes).with(VALUE), WORKERS))?;
    let values = result.take_return_values_of(bytes)?;
    let status = std::fs::read_to_string("/proc/self/status").map_err(os("/proc/self/status"))?;
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse::<usize>().ok());
    let peak = peak.ok_or_else(|| BenchError::Unexpected("no VmHWM in /proc/self/status".to_owned()))? * 1024;
    let all: usize = values.values().iter().flatten().map(Vec::len).sum();
    let ratio = peak as f64 / all as f64;
    let value = format!("{} MiB of {} MiB: {ratio:.2}", peak / MIB, all / MIB);
    session.value(CASE, &value, &format!("<= {MEMORY:.2}"), Verdict::of(ratio <= MEMORY));
    Ok(())
}
