//! A group of worker processes from start to result.
//!
//! Here: [`GroupSpec`] (what to run), [`PContext`] (start, poll, wait, close), [`RunProcsResult`] (what became of it).
//! Inside: a pure state machine that decides, and one thread that carries out. Not here: a comfortable builder and the
//! guide (`rankrun`), restarts and the command line.

#![forbid(unsafe_code)]

mod context;
mod driver;
mod error;
mod events;
mod evidence;
mod family;
mod hint;
mod log_files;
mod machine;
mod machine_words;
mod outcome;
mod placement;
mod policy;
mod program;
mod report;
mod signals;
mod signs;
mod spec;
mod stall;
mod status;
mod tee;
mod terminals;

pub use context::PContext;
pub use error::{StartError, StartHint, WaitError};
pub use events::{GroupEvent, GroupEventKind, SignalTarget};
pub use outcome::{Cause, ReturnValuesError, RunProcsResult, RunState, StopReason, WorkerReport};
pub use placement::{Placement, Stdin};
pub use policy::{Descendants, DumpStep, StallPolicy, StopOrder, StopPolicy};
pub use signals::SignalPlan;
pub use spec::{Entrypoint, GroupSpec, GroupSpecError};
pub use stall::{Stall, StalledProcess};
pub use status::GroupStatus;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
