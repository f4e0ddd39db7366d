//! The vocabulary of a worker group, without any IO.
//!
//! Here: [`PerRank`] (one value for each local rank, none missing), [`Signal`] (a number with its name),
//! [`ExitKind`] (how a worker ended), [`ranges`](fn@ranges) (ranks as a list), [`escape_line`] (text made harmless for a
//! terminal) and [`env`](mod@env) (the names of the environment variables that workers get).
//! Not here: anything that opens a file, starts a process or reads a clock.
//!
//! A local rank is a plain `usize` from 0 to `local_world_size - 1`, because it indexes; the field's name
//! (`local_rank`, `rank`) says which of the two numberings is meant.
//!
//! ```
//! use rankrun_types::{ExitKind, PerRank, Signal};
//!
//! let ports = PerRank::from_fn(4, |local_rank| 29500 + local_rank);
//! assert_eq!(ports[2], 29502);
//!
//! let exit = ExitKind::Signal { signal: Signal::SEGV, core_dumped: false };
//! assert_eq!(exit.to_string(), "signal 11 (SIGSEGV)");
//! assert_eq!(exit.shell_code(), 139);
//! ```

#![forbid(unsafe_code)]

pub mod env;
mod escape;
mod exit_kind;
mod per_rank;
mod ranges;
mod signal;

pub use escape::{escape_block, escape_line, escape_os_str};
pub use exit_kind::{ExitKind, LOST_EXITCODE};
pub use per_rank::{PerRank, RankMapError};
pub use ranges::ranges;
pub use signal::{ParseSignalError, Signal};

/// The largest local rank that a spec, a map or a group may name.
///
/// Pids on Linux end at 4,194,304 and a group of more than 65,536 workers on one host is a typing error.
pub const MAX_LOCAL_RANK: usize = 65_535;
