//! `record` with fatal signals: the error files of `rankrun-errors` and the handlers of `rankrun-process` put together.
//! Not here: either of them.

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use rankrun_errors::{ErrorRecord, get_error_handler};
use rankrun_process::{FatalPart, FatalSignals};
use rankrun_types::Signal;

/// Runs a worker's function; an error, a panic or a fatal signal is left in the error file that the launcher asked for.
///
/// As [`rankrun_errors::record`], and besides: while the function runs, SIGSEGV, SIGABRT, SIGBUS, SIGFPE and SIGILL of any
/// thread leave a record with the signal and the thread, unless there is a record already. The signal then goes on to what was
/// there before, so exit status, core dump and the message of a stack overflow are as ever. A program that lives by
/// such signals, as some JIT compilers do, takes `rankrun_errors::record`.
///
/// # Errors
/// The function's own.
///
/// # Panics
/// If the function panics, with the same payload.
///
/// ```
/// let sum: Result<u32, std::num::ParseIntError> = rankrun_functions::record(|| Ok("20".parse::<u32>()? + 1));
/// assert_eq!(sum, Ok(21));
/// ```
pub fn record<T, E: Error + 'static>(f: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let _guard = record_fatal_signals();
    rankrun_errors::record(f)
}

/// The same as [`record`] for a whole `main`: prints the error to stderr and gives the exit code, 1 for an error.
///
/// # Panics
/// If the function panics, with the same payload; the process then ends with exit code 101.
///
/// ```no_run
/// use std::{error::Error, process::ExitCode};
///
/// fn main() -> ExitCode {
///     rankrun_functions::record_main(|| -> Result<(), Box<dyn Error>> {
///         let rank: usize = std::env::var("RANK")?.parse()?;
///         println!("rank {rank} is here");
///         Ok(())
///     })
/// }
/// ```
pub fn record_main<E: Into<Box<dyn Error>>>(f: impl FnOnce() -> Result<(), E>) -> ExitCode {
    let _guard = record_fatal_signals();
    rankrun_errors::record_main(f)
}

/// The same as [`record`] for any error that `?` can make of others, boxed.
pub(crate) fn record_boxed<T, E: Into<Box<dyn Error>>>(f: impl FnOnce() -> Result<T, E>) -> Result<T, Box<dyn Error>> {
    let _guard = record_fatal_signals();
    rankrun_errors::record_boxed(f)
}

/// `None` if no launcher asked for an error file, or it cannot be done, as within another `record`.
fn record_fatal_signals() -> Option<FatalSignals> {
    let path = get_error_handler().error_file()?;
    // What is lost where it fails is a record for a case that is told by the exit too.
    FatalSignals::record(&path, parts).ok()
}

/// The record of a signal to this process, with gaps for what is known only when it comes.
fn parts(signal: Signal) -> Vec<FatalPart> {
    // Stand-ins with the digits that times have now.
    const SECONDS: u64 = 1_000_000_001;
    const THREAD: &str = "THREAD-NUMBER";
    let message = format!("Signal {} ({signal}) received by PID {}", signal.as_raw(), std::process::id());
    let record = ErrorRecord::new(message)
        .with_callstack(format!("signal {} ({signal}) in thread {THREAD}", signal.as_raw()))
        .with_time(UNIX_EPOCH + Duration::from_secs(SECONDS))
        .with_exit_code(-signal.as_raw());
    let mut parts = vec![FatalPart::Text(record.to_json())];
    fill(&mut parts, "\"timestamp\":\"", &SECONDS.to_string(), &FatalPart::Seconds);
    fill(&mut parts, "\"timestamp_ns\":", &format!("{SECONDS}000000000"), &FatalPart::Nanoseconds);
    fill(&mut parts, "in thread ", THREAD, &FatalPart::Thread);
    parts
}

/// Puts a part in the place of a text's stand-in, which goes after what names it.
fn fill(parts: &mut Vec<FatalPart>, name: &str, stand_in: &str, part: &FatalPart) {
    let sought = format!("{name}{stand_in}");
    for at in 0..parts.len() {
        let FatalPart::Text(text) = &parts[at] else { continue };
        if let Some((before, after)) = text.split_once(&sought) {
            let split = [FatalPart::Text(format!("{before}{name}")), part.clone(), FatalPart::Text(after.to_owned())];
            parts.splice(at..=at, split);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_of_a_signal_is_torchs_form_with_the_moment_filled_in() {
        let text: String = parts(Signal::SEGV)
            .iter()
            .map(|part| match part {
                FatalPart::Text(text) => text.clone(),
                FatalPart::Seconds => "1796070000".to_owned(),
                FatalPart::Nanoseconds => "1796070000250000001".to_owned(),
                _ => "77".to_owned(),
            })
            .collect();
        let data = rankrun_errors::parse_error_file(text.as_bytes()).unwrap();
        assert_eq!(data.message, format!("Signal 11 (SIGSEGV) received by PID {}", std::process::id()));
        assert_eq!(data.traceback.as_deref(), Some("signal 11 (SIGSEGV) in thread 77"));
        assert_eq!(data.time.unwrap().unix_ns, 1_796_070_000_250_000_001);
        assert_eq!((data.pid, data.start_ticks.is_some()), (Some(std::process::id()), true));
        assert_eq!(data.exit_code, Some(-11));
        assert!(data.raw.contains(r#""timestamp":"1796070000""#), "{}", data.raw);
    }
}
