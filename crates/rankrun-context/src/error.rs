//! Why a group could not be started or waited for: [`StartError`], [`WaitError`]. Not here: workers that failed.

use std::ffi::OsString;
use std::io;

use rankrun_errors::SignalException;
use rankrun_functions::CallError;
use rankrun_logs::{LogsError, TailError};
use rankrun_process::{Resource, SpawnError};
use rankrun_types::Signal;

/// A group could not be started; none of its workers is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The context was started before.
    #[error("group `{name}` was started before")]
    AlreadyStarted {
        /// The group's name.
        name: String,
    },
    /// The function that the workers are to run cannot be called so, or this process is a worker that has not run its own.
    #[error("group `{name}`: {source}")]
    Function {
        /// The group's name.
        name: String,
        /// What is wrong.
        source: CallError,
    },
    /// The log directories or a log file could not be made.
    #[error("group `{name}`: {source}{}", logs_hint(source))]
    Logs {
        /// The group's name.
        name: String,
        /// What went wrong.
        source: LogsError,
    },
    /// The log files could not be followed.
    #[error("group `{name}`: {source}{}", cause_hint(source))]
    Tail {
        /// The group's name.
        name: String,
        /// What went wrong.
        source: TailError,
    },
    /// A worker could not be started. Those before it have been killed and reaped.
    #[error("local rank {local_rank}: {source}{}", hint_text(hint.as_ref()))]
    Worker {
        /// The worker's local rank.
        local_rank: usize,
        /// What went wrong.
        source: SpawnError,
        /// What is likely to be behind it.
        hint: Option<StartHint>,
    },
    /// The group's guardian could not be started; no worker was.
    #[error("group `{name}`: no guardian: {source}{}", hint_text(StartHint::of(source).as_ref()))]
    Guardian {
        /// The group's name.
        name: String,
        /// What went wrong.
        source: SpawnError,
    },
    /// The group was asked to stop before all its workers had been started.
    #[error("group `{name}` was stopped{} when {started} of its {local_world_size} workers had been started", by(*signal))]
    Stopped {
        /// The signal to this program that asked for it, if it was one.
        signal: Option<Signal>,
        /// The group's name.
        name: String,
        /// How many workers had been started.
        started: usize,
        /// How many there should have been.
        local_world_size: usize,
    },
    /// The kernel refused what the driver itself needs.
    #[error(
        "group `{name}`: cannot make {what}: {}{}", io::Error::from_raw_os_error(*errno), hint_text(StartHint::of_errno(*errno).as_ref())
    )]
    Driver {
        /// The group's name.
        name: String,
        /// `thread`, `epoll`, `eventfd`.
        what: &'static str,
        /// The errno.
        errno: i32,
    },
}

fn by(signal: Option<Signal>) -> String {
    signal.map_or(String::new(), |signal| format!(" by {signal}"))
}

/// What is likely to be behind a worker that could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartHint {
    /// Arguments and environment are too large: the largest variables with their sizes in bytes, largest first.
    LargestVariables(Vec<(OsString, usize)>),
    /// This program has too many open files.
    OpenFiles,
    /// The user or the control group has too many processes.
    Processes,
    /// A resource limit above this program's hard limit, which takes privileges.
    HardLimit(Resource),
    /// The program is there, but the interpreter that its first line names is not.
    Interpreter,
    /// This program itself was to be started again, which needs a /proc.
    NoProc,
}

/// What the system's error that an error stands for tells, as a text.
fn cause_hint(error: &dyn std::error::Error) -> String {
    let errno = error.source().and_then(|source| source.downcast_ref::<io::Error>()).and_then(io::Error::raw_os_error);
    hint_text(errno.and_then(StartHint::of_errno).as_ref())
}

fn logs_hint(error: &LogsError) -> String {
    // Which has its own.
    if matches!(error, LogsError::Terminal { .. }) { String::new() } else { cause_hint(error) }
}

fn hint_text(hint: Option<&StartHint>) -> String {
    match hint {
        None => String::new(),
        Some(StartHint::LargestVariables(largest)) => {
            let shown: Vec<String> =
                largest.iter().map(|(name, size)| format!("{} ({size} bytes)", name.display())).collect();
            let shown = shown.join(", ");
            format!("; its arguments or environment are too large: the largest variables are {shown}")
        }
        Some(StartHint::OpenFiles) => "; the limit on open files is too low (ulimit -n)".to_owned(),
        Some(StartHint::Processes) => {
            "; there are too many processes (ulimit -u, or the control group's pids.max)".to_owned()
        }
        Some(StartHint::HardLimit(resource)) => {
            let hard = resource.get().map_or_else(|_| "not known".to_owned(), |(_, hard)| hard.to_string());
            // Even root may not go beyond this one.
            let most = if *resource == Resource::Nofile { ", for nofile at most fs.nr_open" } else { "" };
            format!("; the hard limit of {resource} is {hard}, which only root may raise{most}")
        }
        Some(StartHint::Interpreter) => {
            "; the program is there, but not the interpreter that it needs (its #! line, or a dynamic loader)"
                .to_owned()
        }
        Some(StartHint::NoProc) => "; /proc is not mounted".to_owned(),
    }
}

/// A wait ended without a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The group was never started, so that no result will ever come.
    #[error("group `{name}` was not started")]
    NotStarted {
        /// The group's name.
        name: String,
    },
    /// This program got a signal that it asked the context to watch. The group goes on until it is closed.
    #[error(transparent)]
    Signal(#[from] SignalException),
}
