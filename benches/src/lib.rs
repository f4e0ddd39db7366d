//! Measuring rankrun against what the kernel alone takes.
//!
//! Here: the harness ([`Session`]), its statistics ([`Summary`]), the plain loop that cases are compared with
//! ([`PlainProgram`]), and what they need besides ([`Scratch`], [`Ballast`], [`Pipe`], [`LineChecker`], [`ThreadUse`]).
//! Not here: the cases, which are in `benches/`.

#![forbid(unsafe_code)]

mod ballast;
mod binary;
mod error;
mod lines;
mod options;
mod pipe;
mod plain;
mod scratch;
mod session;
mod stats;
mod table;
mod thread_use;

pub use ballast::Ballast;
pub use binary::release_binary;
pub use error::{BenchError, os};
pub use lines::{LINE, LineChecker, write_lines};
pub use options::{Options, UsageError};
pub use pipe::{Pipe, monotonic_nanos};
pub use plain::{PlainProcess, PlainProgram, wait_for_any};
pub use scratch::Scratch;
pub use session::Session;
pub use stats::{Pair, Summary, summarize};
pub use table::{Limit, Row, Verdict};
pub use thread_use::ThreadUse;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
