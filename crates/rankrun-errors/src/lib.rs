//! Error files of worker processes, and what a launcher says when workers fail.
//!
//! For workers: [`record`] runs a function and leaves its error or panic in the error file that the launcher named.
//! For launchers: [`read_error_file`] reads what torch, TensorPlay and rankrun workers write and never fails,
//! [`ProcessFailure`] is one failed worker, [`ChildFailedError`] a failed group with its root cause and its report.
//!
//! Not here: starting, watching or stopping processes.
//!
//! ```
//! use std::{collections::BTreeMap, time::SystemTime};
//! use rankrun_errors::{ChildFailedError, ErrorRecord, ProcessFailure, write_error_file};
//! use rankrun_types::ExitKind;
//!
//! // In the worker, if it does not use `record`:
//! let dir = tempfile::tempdir()?;
//! let error_file = dir.path().join("error.json");
//! write_error_file(&error_file, &ErrorRecord::new("loss is NaN at step 17"))?;
//!
//! // In the launcher, when the worker has ended:
//! let failure = ProcessFailure::observe(0, 4242, ExitKind::Code(1), SystemTime::now(), Some(&error_file));
//! let error = ChildFailedError::new("trainer", BTreeMap::from([(8, failure)]))?.with_host("node-3");
//! let report = error.to_string();
//! assert_eq!(
//!     report.lines().next(),
//!     Some("trainer FAILED: rank 8 (local rank 0, pid 4242) on node-3: exit code 1: loss is NaN at step 17")
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod backtrace;
mod child_failed;
mod clip;
mod escape;
mod failure;
mod groups;
mod handler;
mod json;
mod last_words;
mod owner;
mod panics;
mod provisional;
mod read;
mod reason;
mod record;
mod report;
mod root_cause;
mod schema;
mod signal_exception;
mod time;
mod write;

pub use child_failed::{ChildFailedError, NoFailuresError, RankFailure};
pub use escape::{block as escape_block, line as escape_line};
pub use failure::{ObservedExit, ProcessFailure};
pub use handler::{DefaultErrorHandler, DumpErrorFileError, ErrorHandler, get_error_handler, set_error_handler};
pub use last_words::excerpt;
pub use read::{ErrorFileReading, read_error_file};
pub use reason::{MemoryKills, usual_meaning};
pub use record::{error_in_full, record, record_boxed, record_child_failure, record_main, record_with};
pub use report::Report;
pub use root_cause::{FailureKind, FailureOrder, root_cause};
pub use schema::{
    Dialect, ErrorFileData, ErrorTime, MAX_ERROR_FILE_BYTES, TimeResolution, UnusableErrorFile, parse_error_file,
};
pub use signal_exception::SignalException;
pub use write::{ErrorRecord, WriteErrorFileError, write_error_file};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
