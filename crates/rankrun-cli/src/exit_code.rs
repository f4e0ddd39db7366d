//! The exit codes of `rankrun`. Not here: when each is used (`run`).
//!
//! Other codes are those of the worker that failed first, as a shell would report it.

use rankrun::{Signal, StartError, StartHint};

/// All workers exited 0.
pub(crate) const SUCCESS: u8 = 0;
/// The worker that failed first had recorded its error and was ended by rankrun before it exited of itself.
pub(crate) const FAILED_BEFORE_STOP: u8 = 1;
/// The command line is wrong; nothing was started.
pub(crate) const USAGE: u8 = 2;
/// No worker made progress for longer than --stall-timeout. The number is that of `timeout`.
pub(crate) const STALLED: u8 = 124;
/// rankrun itself failed: log directory, file descriptors, processes. The number is that of `env`, `timeout`, `docker run`.
pub(crate) const LAUNCHER_FAILED: u8 = 125;
/// The program was found but cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The program was not found.
pub(crate) const NOT_FOUND: u8 = 127;
/// Added to a signal's number: rankrun was stopped by that signal, or the first failing worker was.
pub(crate) const SIGNAL_BASE: u8 = 128;

/// The errno values that tell a missing program from one that cannot be executed.
const ENOENT: i32 = 2;
const ENOTDIR: i32 = 20;

/// For a stop by a signal to rankrun.
pub(crate) fn of_signal(signal: Signal) -> u8 {
    SIGNAL_BASE.saturating_add(u8::try_from(signal.as_raw()).unwrap_or(u8::MAX))
}

/// For a group that could not be started.
pub(crate) fn of_start_error(error: &StartError) -> u8 {
    use rankrun::crates::process::SpawnStep;
    match error {
        StartError::Worker { hint: Some(StartHint::Interpreter), .. } => NOT_EXECUTABLE,
        StartError::Worker { source, .. } => match (source.step(), source.errno()) {
            (Some(SpawnStep::Exec), Some(ENOENT | ENOTDIR)) => NOT_FOUND,
            (Some(SpawnStep::Exec), _) => NOT_EXECUTABLE,
            _ => LAUNCHER_FAILED,
        },
        StartError::Stopped { signal: Some(signal), .. } => of_signal(*signal),
        _ => LAUNCHER_FAILED,
    }
}
