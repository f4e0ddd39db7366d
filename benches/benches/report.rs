//! The report of 512 failed workers, reading their 512 error files included. Not here: how a failure is noticed (`detect`).

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use rankrun::crates::errors::{ErrorRecord, write_error_file};
use rankrun::{ChildFailedError, ExitKind, ProcessFailure};
use rankrun_benches::{BenchError, Limit, Scratch, Session, os};

const FAILURES: usize = 512;
const ROUNDS: usize = 50;
const LIMIT: Limit = Limit::Time(Duration::from_millis(50));

fn main() -> ExitCode {
    let title = "report: of 512 failed workers, from their error files to the text\n\
                 A: read, find the root cause, make the text, B: read the files' bytes";
    Session::main(title, |session| {
        let scratch = Scratch::new()?;
        // All alike, as when one fault hits all; then each with words of its own, which no two share.
        for (case, differ) in [("512 alike", false), ("512 different", true)] {
            let files = error_files(&scratch, case, differ)?;
            session.compare(case, ROUNDS, LIMIT, || report(&files), || read(&files))?;
        }
        Ok(())
    })
}

fn error_files(scratch: &Scratch, case: &str, differ: bool) -> Result<Vec<PathBuf>, BenchError> {
    let stack: Vec<String> = (0..40).map(|frame| format!("  File \"train.py\", line {frame}, in step")).collect();
    let mut files = Vec::with_capacity(FAILURES);
    for rank in 0..FAILURES {
        let path = scratch.path().join(format!("{case}-{rank}.json"));
        let message = if differ { format!("KeyError: 'sample-{rank}'") } else { "loss is NaN".to_owned() };
        let record = ErrorRecord::new(message).with_callstack(stack.join("\n"));
        let written = write_error_file(&path, &record);
        written.map_err(|error| BenchError::Unexpected(error.to_string()))?;
        files.push(path);
    }
    Ok(files)
}

fn report(files: &[PathBuf]) -> Result<Duration, BenchError> {
    let start = Instant::now();
    let failure = |(rank, path): (usize, &PathBuf)| {
        (rank, ProcessFailure::observe(rank, 7, ExitKind::Code(1), SystemTime::now(), Some(path)))
    };
    let failures: BTreeMap<_, _> = files.iter().enumerate().map(failure).collect();
    let error = ChildFailedError::new("trainer", failures);
    let text = error.map_err(|error| BenchError::Unexpected(error.to_string()))?.to_string();
    let time = start.elapsed();
    // Of those that differ the first by name and the rest by number; those that are alike once.
    if text.contains("later ones: ranks ") || text.contains("(511 workers)") {
        Ok(time)
    } else {
        Err(BenchError::Unexpected(text))
    }
}

fn read(files: &[PathBuf]) -> Result<Duration, BenchError> {
    let start = Instant::now();
    for path in files {
        black_box(std::fs::read(path).map_err(os(path.display().to_string()))?);
    }
    Ok(start.elapsed())
}
