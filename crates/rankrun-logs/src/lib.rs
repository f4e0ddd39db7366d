//! The log files of a worker group: where they are, and how their lines come to the console.
//!
//! Each worker writes straight to files of its own, so that neither the launcher nor a slow console can hold it up, and
//! its output outlives the launcher.
//!
//! - [`DefaultLogsSpecs`] makes the directories and says which file is whose ([`LogsDest`]); [`LogsSpecs`] is the trait
//!   for
//!   another layout. [`open_log`] opens a file for a worker.
//! - [`Tail`] follows the files with one thread and writes each line, whole, once and with its prefix, to the console;
//!   [`LineSplitter`] is the pure part that cuts bytes into lines. [`TailOptions`] says what becomes of progress bars and
//!   colours, and which lines go to files of their own; [`PrefixTemplate`] what stands before a line.
//! - [`Run`] finds and reads the files afterwards; [`RunInfo`] is what a run says about itself for that.
//! - [`WorkerTerminals`] gives workers pseudo-terminals and moves what they write there into the files.
//! - [`LogHealth`] says when files cannot be complete: the disk is full, or the directory gone.
//! - [`LogLimiter`] keeps files that grow without end at about a size; their end is kept, always.
//!
//! Not here: starting the workers (`rankrun-process`), reading error files (`rankrun-errors`).
#![forbid(unsafe_code)]

mod default_specs;
mod error;
mod filter;
mod gap;
mod health;
mod last_lines;
mod latest;
mod limit;
mod lines;
mod made;
mod open;
mod options;
mod prefix;
mod pty;
mod reader;
mod run;
mod run_info;
mod run_tail;
mod sgr;
mod sparse;
mod specs;
mod splitter;
mod tail;
mod temporary;
mod unsaved;
mod utc;

pub use default_specs::{DEFAULT_RUN_ID, DefaultLogsSpecs};
pub use error::LogsError;
pub use filter::{LineFilter, LineFilterError};
pub use health::{HealthWatch, LogHealth};
pub use last_lines::last_lines;
pub use limit::{LogLimiter, LogSize, ParseLogSizeError};
pub use open::open_log;
pub use options::{ColorChoice, Progress, TailOptions};
pub use prefix::{LinePrefix, ParsePrefixError, PrefixTemplate, PrefixValues, line_prefix};
pub use pty::{TerminalSize, WorkerTerminals};
pub use run::{Run, RunLog, RunPhase, WriteLinesError};
pub use run_info::{RunInfo, RunMark};
pub use run_tail::RunTail;
pub use specs::{Env, LogsDest, LogsSpecs};
pub use splitter::{CONTINUES, LineSplitter, MAX_LINE};
pub use tail::{Consoles, DrainOutcome, IncompleteDrain, SinkId, Tail, TailError, TailPositions, TailSource};
pub use unsaved::Unsaved;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
