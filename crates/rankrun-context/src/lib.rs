//! A group of worker processes from start to result.
//!
//! Here: [`GroupSpec`] (what to run), [`PContext`] (start, poll, wait, close), [`RunProcsResult`] (what became of it).
//! Inside: a pure state machine that decides, and one thread that carries out. Not here: a comfortable builder and the
//! guide (`rankrun`), restarts and the command line.

#![forbid(unsafe_code)]

mod context;
mod driver;
mod error;
mod family;
mod hint;
mod log_files;
mod machine;
mod outcome;
mod placement;
mod policy;
mod report;
mod signals;
mod spec;
mod tee;
mod terminals;

pub use context::PContext;
pub use error::{StartError, StartHint, WaitError};
pub use outcome::{Cause, RunProcsResult, RunState, WorkerReport};
pub use placement::{Placement, Stdin};
pub use policy::{Descendants, DumpStep, StopOrder, StopPolicy};
pub use signals::SignalPlan;
pub use spec::{Entrypoint, GroupSpec, GroupSpecError};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
