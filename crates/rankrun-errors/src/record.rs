//! Running a worker's function so that its error or panic reaches the launcher: [`record`].
//! Not here: where and how the error is written (`handler`, `write`).

use std::any::Any;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use crate::child_failed::ChildFailedError;
use crate::handler::{DumpErrorFileError, ErrorHandler, get_error_handler};
use crate::panics::{OnPanic, PanicNote, PanicWatch, first_of, payload_message};
use crate::provisional::Provisional;
use crate::report::said_last;
use crate::write::{ErrorRecord, chain};

/// The exit code of a program whose `main` returns an error.
pub(crate) const ERROR_CODE: i32 = 1;

/// The exit code of a program whose main thread panics.
const PANIC_CODE: i32 = 101;

/// Runs a worker's function; if it returns an error or panics, writes the error file and passes the failure on.
///
/// An error is written with its sources, a panic with its thread, place and backtrace. A
/// [`ChildFailedError`], as the error or among its sources, passes its root cause on to the launcher above.
///
/// A panic of any thread is written as it starts, marked as [provisional](ErrorRecord::as_provisional), since the process may
/// end of it: in a hook, by the `exit` of who had waited for the thread, by a second panic. When the function returns, that
/// record is taken back, or gives way to that of the error. If the process ends in another way, the launcher says
/// how, and then which panic came before that. A panic that the function catches costs a small file, and its backtrace some
/// milliseconds.
///
/// The record says with which exit code the process will end: 1 for an error, as if `main` returned it, 101 for a panic. Where
/// the process is a child of the worker, not the worker, the record only counts if the worker ended so, or with 1. A
/// program that ends with another code has a handler ([`record_with`]) that says so
/// ([`ErrorRecord::with_exit_code`]).
///
/// While the function runs a panic hook is installed that calls the one before it. A hook that the function sets itself must
/// call the one that it replaces, before it ends the process. Without `TORCHELASTIC_ERROR_FILE` in the environment nothing is
/// written; that the file cannot be written is logged and changes nothing else.
///
/// Mirrors the `record` decorator of torch and TensorPlay.
///
/// # Errors
/// The function's own.
///
/// # Panics
/// If the function panics, with the same payload.
///
/// ```
/// let sum: Result<u32, std::num::ParseIntError> = rankrun_errors::record(|| Ok("20".parse::<u32>()? + 1));
/// assert_eq!(sum, Ok(21));
/// ```
pub fn record<T, E: Error + 'static>(f: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    record_with(get_error_handler(), f)
}

/// The same as [`record`] with a handler of one's own.
///
/// # Errors
/// The function's own.
///
/// # Panics
/// If the function panics, with the same payload.
pub fn record_with<T, E: Error + 'static>(
    handler: Arc<dyn ErrorHandler>,
    f: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    guarded(&handler, f, |error| error)
}

/// The same as [`record`] for a whole `main`: prints the error to stderr and gives the exit code, 1 for an error.
///
/// It takes any error that `?` can make of others: `Box<dyn Error>`, a text, or one of a crate for errors.
///
/// # Panics
/// If the function panics, with the same payload; the process then ends with exit code 101.
///
/// ```no_run
/// use std::{error::Error, process::ExitCode};
///
/// fn main() -> ExitCode {
///     rankrun_errors::record_main(|| -> Result<(), Box<dyn Error>> {
///         let rank: usize = std::env::var("RANK")?.parse()?;
///         println!("rank {rank} is here");
///         Ok(())
///     })
/// }
/// ```
pub fn record_main<E: Into<Box<dyn Error>>>(f: impl FnOnce() -> Result<(), E>) -> ExitCode {
    match record_boxed(f) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {}", error_in_full(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// What a program says of the error that ends it: its message and those of its sources, a line each; of one that has none, how
/// it is written for debugging.
///
/// ```
/// let error = u8::from_str_radix("x", 10).unwrap_err();
/// assert_eq!(rankrun_errors::error_in_full(&error), "invalid digit found in string");
/// let silent: Box<dyn std::error::Error> = "".into();
/// assert_eq!(rankrun_errors::error_in_full(&*silent), "an error without a message: \"\"");
/// ```
#[must_use]
pub fn error_in_full(error: &(dyn Error + 'static)) -> String {
    let text = ErrorRecord::from_error(error).callstack;
    match text.trim_end() {
        "" => format!("an error without a message: {error:?}"),
        text => text.to_owned(),
    }
}

/// The same as [`record`] for any error that `?` can make of others, boxed.
///
/// # Errors
/// The function's own.
///
/// # Panics
/// If the function panics, with the same payload.
pub fn record_boxed<T, E: Into<Box<dyn Error>>>(f: impl FnOnce() -> Result<T, E>) -> Result<T, Box<dyn Error>> {
    guarded(&get_error_handler(), || f().map_err(Into::into), AsRef::as_ref)
}

fn guarded<T, E>(
    handler: &Arc<dyn ErrorHandler>,
    f: impl FnOnce() -> Result<T, E>,
    as_error: impl Fn(&E) -> &(dyn Error + 'static),
) -> Result<T, E> {
    handler.initialize();
    let pid = std::process::id();
    let provisional =
        handler.error_file().filter(|_| cfg!(panic = "unwind")).map(|path| Arc::new(Provisional::at(path)));
    let on_panic: Option<Box<OnPanic>> = match &provisional {
        Some(provisional) => Some(Box::new({
            let provisional = Arc::clone(provisional);
            move |notes| provisional.write(notes)
        })),
        // Where a panic aborts, the hook is the last chance to write.
        None => cfg!(panic = "abort").then(|| write_at_once(Arc::clone(handler), pid)),
    };
    let watch = PanicWatch::begin(on_panic);
    // The payload is passed on untouched, so nobody sees what the panic left half done.
    let outcome = catch_unwind(AssertUnwindSafe(f));
    if std::process::id() != pid {
        // A child of fork(2) came back here too: what it ends of is not what the process ends of that it was made by.
        drop(watch);
        return outcome.unwrap_or_else(|payload| resume_unwind(payload));
    }
    if let (Some(_), Ok(Err(error))) = (&provisional, &outcome) {
        // If showing it panics, that is recorded as any panic is, as long as that goes on.
        let _ = ErrorRecord::from_error(as_error(error));
    }
    if let (Some(provisional), Err(_) | Ok(Err(_))) = (&provisional, &outcome) {
        provisional.end();
    }
    match outcome {
        Ok(Ok(value)) => {
            if let Some(provisional) = provisional {
                provisional.withdraw();
            }
            Ok(value)
        }
        Ok(Err(error)) => {
            log_outcome(record_error(&**handler, as_error(&error), &watch.of_other_threads()));
            Err(error)
        }
        Err(payload) => {
            let record = panic_record(&watch, &*payload);
            drop(watch);
            log_outcome(handler.write_record(&record).map_err(DumpErrorFileError::from));
            resume_unwind(payload)
        }
    }
}

/// In the process of this id: a child of fork(2) is not the one that the error file is for.
fn write_at_once(handler: Arc<dyn ErrorHandler>, pid: u32) -> Box<OnPanic> {
    Box::new(move |notes| {
        let Some(note) = notes.get(first_of(notes)).filter(|_| std::process::id() == pid) else { return };
        let record = ErrorRecord::new(note.headline()).with_callstack(note.in_full()).with_exit_code(-libc::SIGABRT);
        log_outcome(handler.write_record(&record).map_err(DumpErrorFileError::from));
    })
}

/// Writes the error, or passes on the failure of a child if that is what it comes from.
fn record_error(
    handler: &dyn ErrorHandler,
    error: &(dyn Error + 'static),
    earlier: &[Arc<PanicNote>],
) -> Result<Option<PathBuf>, DumpErrorFileError> {
    if let Some(failed) = chain(error).find_map(|error| error.downcast_ref::<ChildFailedError>()) {
        return record_child_failure(handler, failed);
    }
    if earlier.is_empty() {
        return Ok(handler.record_exception(error)?);
    }
    let record = ErrorRecord::from_error(error).with_exit_code(ERROR_CODE);
    let callstack = with_earlier(record.callstack.clone(), earlier);
    Ok(handler.write_record(&record.with_callstack(callstack))?)
}

/// Passes the root cause of failed children on as this process's own error, and returns where; `None` if no launcher
/// asked for it.
///
/// The first failure's error file goes up with its exit code; without a usable one, a record of what is known of it.
/// For a launcher that is a worker itself and does not run under [`record`], which does the same.
///
/// # Errors
/// [`DumpErrorFileError`] if this process's error file cannot be written.
pub fn record_child_failure(
    handler: &dyn ErrorHandler,
    failed: &ChildFailedError,
) -> Result<Option<PathBuf>, DumpErrorFileError> {
    if handler.error_file().is_none() {
        return Ok(None);
    }
    let (_, failure) = failed.get_first_failure();
    // A panic that came before the end is no more than a part of what is known.
    let whole = failure.error_file_data.as_ref().filter(|data| !data.provisional);
    if let (Some(path), Some(_)) = (&failure.error_file, whole) {
        match handler.dump_error_file(path, failure.exitcode) {
            // It was there when the failure was seen, and its facts are still known.
            Err(gone @ (DumpErrorFileError::Absent { .. } | DumpErrorFileError::Unusable { .. })) => {
                log::warn!("{gone}")
            }
            done => return done,
        }
    }
    let tail = || failure.tail().map_or(String::new(), |(_, lines)| lines.join("\n"));
    let stack = failure.traceback().map_or_else(tail, str::to_owned);
    let said = said_last(failure).filter(|_| failure.own_message().is_none());
    let said = said.map_or(String::new(), |(stream, last)| format!(", last on {stream}: {}", last.text));
    let message = format!("{}{said}", failure.message);
    let record = ErrorRecord::new(&message).with_callstack(stack).with_pid(failure.pid);
    Ok(handler.write_record(&record.with_error_code(failure.exitcode).as_passed_on())?)
}

fn panic_record(watch: &PanicWatch, payload: &(dyn Any + Send)) -> ErrorRecord {
    let record = match watch.caught(payload) {
        (Some(note), earlier) => {
            ErrorRecord::new(note.headline()).with_callstack(with_earlier(note.in_full(), &earlier))
        }
        (None, earlier) => {
            let message = format!("panicked: {}", payload_message(payload));
            ErrorRecord::new(&message).with_callstack(with_earlier(message, &earlier))
        }
    };
    record.with_exit_code(PANIC_CODE)
}

fn with_earlier(mut callstack: String, earlier: &[Arc<PanicNote>]) -> String {
    for note in earlier {
        callstack.push_str("\nbefore that, ");
        callstack.push_str(&note.in_full());
    }
    callstack
}

fn log_outcome(outcome: Result<Option<PathBuf>, DumpErrorFileError>) {
    match outcome {
        Ok(Some(path)) => log::debug!("wrote the error file {}", path.display()),
        Ok(None) => log::info!("no error file is defined for this process, so its error is not written to one"),
        Err(error) => {
            let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
            log::error!("the error of this process is not recorded: {error}{source}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::DefaultErrorHandler;
    use crate::read::{ErrorFileReading, read_error_file};

    #[test]
    fn where_a_panic_aborts_the_hook_has_written_before_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("error.json");
        let write = |pid| write_at_once(Arc::new(DefaultErrorHandler::with_path(&path)), pid);
        let watch = PanicWatch::begin(None);
        let payload = catch_unwind(|| panic!("boom {}", 7)).unwrap_err();
        let (note, _) = watch.caught(&*payload);
        let notes = [note.unwrap()];
        write(1)(&notes);
        assert!(!path.exists(), "a process that was forked is another one");
        write(std::process::id())(&notes);
        let ErrorFileReading::Record(data) = read_error_file(&path) else { panic!("no record") };
        assert!(data.message.ends_with(": boom 7"), "{}", data.message);
    }
}
