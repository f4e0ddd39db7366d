//! The worker's side: taking the function and running it, in place of `main` or before it. Not here: the launcher's side
//! (`call`, `value`).

use std::error::Error;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::prctl::set_name;
use nix::unistd::{getpid, gettid};
use rankrun_errors::error_in_full;
use rankrun_process::{BEFORE_MAIN, Handover, HandoverError, take_handover};
use serde::Serialize;

use crate::Function;
use crate::codec;
use crate::files::{ArgumentsFile, ResultFile, ResultFileError, Span, State};
use crate::record::record_boxed;
use crate::registry::{AssignmentError, FUNCTIONS, assigned};
use crate::value_error::ValueError;

/// The exit code of a worker whose function returns an error, as that of a `main` that does.
const FAILED: i32 = 1;
/// The exit code of a worker whose function panics, as that of a `main` that does.
const PANICKED: i32 = 101;

/// A worker cannot do what it is for.
#[derive(Debug, thiserror::Error)]
enum WorkerError {
    #[error(transparent)]
    Handover(#[from] HandoverError),
    #[error("this worker was not handed what it needs")]
    Files,
    #[error("what this worker is to run cannot be read: {why}")]
    Assignment { why: ValueError },
    #[error(transparent)]
    Assigned(#[from] AssignmentError),
    #[error("the arguments of `{function}` cannot be decoded as `{type_name}`: {why}")]
    Arguments { function: &'static str, type_name: &'static str, why: ValueError },
    #[error("the return value of `{function}` cannot be encoded: {why}")]
    Encode { function: &'static str, why: ValueError },
    #[error("the return value of `{function}` cannot be decoded as `{type_name}`, which it was: {why}")]
    Decode { function: &'static str, type_name: &'static str, why: ValueError },
    #[error("the return value of `{function}` is not returned: {why}")]
    Return { function: &'static str, why: ResultFileError },
    #[error("the launcher cannot be told how far this worker is: {why}")]
    Header { why: ResultFileError },
}

/// What a worker was handed, with its function already found.
#[derive(Debug)]
pub struct Work {
    arguments: ArgumentsFile,
    span: Span,
    result: ResultFile,
}

/// Whether [`init`] has been called at a place where it will be called in a worker too.
static TAKEN_IN_MAIN: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_taken_in_main() -> bool {
    TAKEN_IN_MAIN.load(Ordering::Acquire)
}

#[linkme::distributed_slice(BEFORE_MAIN)]
static TAKE_OVER: fn() = take_over;

/// Runs this process's function, if it was handed one, and exits; to be the first statement of `main`.
///
/// In a program that was not started as the worker of a function it does nothing and returns. It is not needed: without
/// it, and in tests, whose `main` is not yours, a worker runs its function before `main`. The crate's documentation says
/// what that means and why this is better. It must come first: a worker has none of the arguments of the command line,
/// so a `main` that looks at them before would end there.
pub fn init() {
    // A test's thread is no `main`: a worker would get there in another way, or not at all.
    if gettid() == getpid() {
        TAKEN_IN_MAIN.store(true, Ordering::Release);
    }
    take_over();
}

/// Runs the function that this process was handed, and exits; returns if there is none.
pub(crate) fn take_over() {
    let handover = match take_handover() {
        Ok(None) => return,
        Ok(Some(handover)) => Ok(handover),
        Err(error) => Err(error.into()),
    };
    name_process();
    // All that can go wrong from here on is recorded as the function's own failures are.
    let outcome = catch_unwind(AssertUnwindSafe(|| record_boxed(|| serve(handover))));
    std::process::exit(match outcome {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            eprintln!("Error: {}", error_in_full(&*error));
            FAILED
        }
        // The hook has told of it.
        Err(_) => PANICKED,
    })
}

/// For ps(1), which would show `exe`.
fn name_process() {
    let Ok(program) = std::env::current_exe() else { return };
    let name = program.file_name().unwrap_or_default().as_bytes();
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    if let Ok(name) = CString::new(name) {
        // A name is a comfort.
        let _ = set_name(&name);
    }
}

fn serve(handover: Result<Handover, WorkerError>) -> Result<(), Box<dyn Error>> {
    let Handover { note, fds, .. } = handover?;
    let [arguments, result] = <[_; 2]>::try_from(fds).map_err(|_| WorkerError::Files)?;
    let span = Span::from_note(&note).ok_or(WorkerError::Files)?;
    let arguments = ArgumentsFile::open(arguments);
    let assignment = arguments.assignment().map_err(|why| WorkerError::Assignment { why })?;
    let entry = assigned(&FUNCTIONS, &assignment).map_err(WorkerError::from)?;
    let result = ResultFile::open(result).map_err(|_| WorkerError::Files)?;
    (entry.run)(Work { arguments, span, result })
}

/// Runs the function on its arguments and hands over what it returns.
pub(crate) fn run<M, F: Function<M>>(function: F, work: Work) -> Result<(), Box<dyn Error>> {
    let Work { arguments, span, result } = work;
    let name = function.name();
    let decoded = arguments.arguments(span);
    // They may be large, and other workers' arguments are with them.
    drop(arguments);
    let arguments: F::Arguments = decoded.map_err(|why| {
        let type_name = std::any::type_name::<F::Arguments>();
        WorkerError::Arguments { function: name, type_name, why }
    })?;
    result.set(State::Runs, None).map_err(|why| WorkerError::Header { why })?;
    let value = __rust_begin_short_backtrace(|| function.call(arguments))?;
    hand_over::<F::Value>(name, value, &result).map_err(Into::into)
}

/// The function's own frames end here: the name is the one that std and `rankrun_errors` cut backtraces at.
#[inline(never)]
fn __rust_begin_short_backtrace<T>(call: impl FnOnce() -> T) -> T {
    let returned = call();
    // Not a tail call, so that there is a frame.
    std::hint::black_box(());
    returned
}

fn hand_over<R>(function: &'static str, value: R, result: &ResultFile) -> Result<(), WorkerError>
where
    R: Serialize + serde::de::DeserializeOwned + 'static,
{
    let not_returned = |why| WorkerError::Return { function, why };
    result.set(State::Writes, None).map_err(not_returned)?;
    let span = result.write(&value).map_err(|why| match why {
        ResultFileError::Value(why) => WorkerError::Encode { function, why },
        why => not_returned(why),
    })?;
    drop(value);
    // Here it is known which worker's value it is, and the group hears of it at once.
    if !codec::is_certain(span.encoding) {
        let decoded = result.read(span, false).and_then(|bytes| codec::decode::<R>(span.encoding, bytes));
        decoded.map_err(|why| {
            let type_name = std::any::type_name::<R>();
            WorkerError::Decode { function, type_name, why }
        })?;
    }
    result.set(State::Returned, Some(span)).map_err(not_returned)
}
