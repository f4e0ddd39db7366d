//! What can go wrong with log directories and files: [`LogsError`]. Not here: the tail engine's errors.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;
use rankrun_types::{escape_line, escape_os_str};

use crate::temporary::listed;

/// Log directories or files could not be made or removed.
///
/// Its text is one line with the path and the error number.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogsError {
    /// The group has no worker.
    #[error("no log destinations for a group without workers")]
    NoWorkers,
    /// `TORCHELASTIC_RESTART_COUNT` of rank 0 is no number.
    #[error("rank 0: TORCHELASTIC_RESTART_COUNT is `{}`: expected a number from 0", escape_line(value))]
    RestartCount {
        /// Its value.
        value: String,
    },
    /// The log directory is something else.
    #[error("log directory {} is not a directory", escape_os_str(path.as_os_str()))]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// A directory could not be made.
    #[error("cannot create log directory {}: {source}", escape_os_str(path.as_os_str()))]
    Create {
        /// The directory; `<run id>_*` stands for a name that was to be found.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another launcher of the same node of the same run goes on.
    #[error(
        "another launcher of node {node} of this run goes on in {}: each node needs a node rank, and each run an id, of its own",
        escape_os_str(path.as_os_str())
    )]
    InUse {
        /// Which node, from 0.
        node: usize,
        /// Its part of the run directory.
        path: PathBuf,
    },
    /// No place for a temporary directory takes one.
    #[error(
        "cannot create a directory for logs and error files in {}: {source}; set TMPDIR or a log directory",
        listed(places)
    )]
    NoTemporary {
        /// The places that were tried, in their order.
        places: Vec<PathBuf>,
        /// What was wrong with the first.
        source: io::Error,
    },
    /// A log file could not be opened for the worker.
    #[error("cannot open log file {}: {source}", escape_os_str(path.as_os_str()))]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file that describes a run could not be written or read.
    #[error("run file {}: {source}", escape_os_str(path.as_os_str()))]
    RunInfo {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A directory has no run in it.
    #[error("{}: {what}", escape_os_str(path.as_os_str()))]
    NoRun {
        /// The directory.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
    },
    /// A log file could not be read.
    #[error("cannot read {}: {source}", escape_os_str(path.as_os_str()))]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The thread that keeps log files at their size could not be started.
    #[error("cannot limit the size of log files: {source}")]
    Limit {
        /// Why.
        source: io::Error,
    },
    /// There is no pseudo-terminal for a worker's stream.
    #[error("cannot open a pseudo-terminal for {}: {source}{}", escape_os_str(path.as_os_str()), terminal_hint(source))]
    Terminal {
        /// The log file of the stream.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The thread that reads the workers' terminals could not be started.
    #[error("cannot read the workers' terminals: {source}")]
    Terminals {
        /// Why.
        source: io::Error,
    },
    /// The thread that looks after log files could not be started.
    #[error("cannot look after log files: {source}")]
    Health {
        /// Why.
        source: io::Error,
    },
    /// A run directory could not be removed.
    #[error("cannot remove log directory {}: {source}", escape_os_str(path.as_os_str()))]
    Remove {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What is likely to be behind a pseudo-terminal that cannot be had.
fn terminal_hint(source: &io::Error) -> &'static str {
    match source.raw_os_error().map(Errno::from_raw) {
        // EAGAIN is what POSIX has for it.
        Some(Errno::ENOSPC | Errno::EAGAIN) => "; as many are open as the system allows (/proc/sys/kernel/pty/max)",
        Some(Errno::EMFILE) => "; the limit on open files is too low (ulimit -n)",
        Some(Errno::ENOENT | Errno::ENODEV) => "; is /dev/pts mounted?",
        _ => "",
    }
}
