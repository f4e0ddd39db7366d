//! What the tests of the workspace share.
//!
//! Here: waiting for facts ([`eventually`]), the process table ([`processes_with_env`], [`assert_no_process_left`]),
//! what a process uses ([`usage`]), building and running the binaries under test ([`binary`], [`Launcher`]) and the
//! language of the `scripted-worker` program ([`script`]).
//! Not here: anything that a published crate needs at run time. These helpers panic, as assertions do.

#![forbid(unsafe_code)]

mod binary;
mod eventually;
mod json_schema;
mod launcher;
mod perform;
mod process_table;
pub mod script;
mod unique;
pub mod usage;

pub use binary::{binary, example, scripted_worker};
pub use eventually::{Observation, eventually, try_eventually};
pub use json_schema::schema_violations;
pub use launcher::{Launcher, MARK, Output, Running};
pub use perform::{EXIT_FAILED, EXIT_IO, EXIT_USAGE, numbered_line, perform};
pub use process_table::{
    Process, assert_no_process_left, assert_no_process_with_cookie, children_of, kill_processes_with_env, process,
    process_env, process_state, processes_with_argument, processes_with_cookie, processes_with_env,
};
pub use unique::unique_id;
pub use usage::{open_fds, peak_memory_kib, private_memory_kib, thread_count, wakeups};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
