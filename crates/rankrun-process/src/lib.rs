//! Processes as the kernel sees them: start, wait, signal, end.
//!
//! Here: [`Command`] and [`Spawner`] (start a worker without fork, in a session of its own), [`Child`] (one started
//! process and its process group, held by pidfd), [`SignalWatcher`] (signals to this program as a readable file
//! descriptor), [`Tree`] (what a group's processes started and left), [`ControlGroup`] (which holds them together, where one
//! can be had), [`Guardian`] (ends what is left when this program is killed), [`Handover`] (what a program gives itself when
//! it is executed again), [`ProcessState`] (what a process does now), [`FatalSignals`] (what this program leaves when it crashes).
//! It is the only crate of rankrun with `unsafe` code, and each block says why it is sound.
//! Not here: what a group of workers should do when one of them ends (`rankrun-context`), and log files.
//!
//! ```
//! use rankrun_process::{Command, Spawner};
//! use rankrun_types::ExitKind;
//!
//! let mut spawner = Spawner::new()?;
//! let mut child = spawner.spawn(Command::new("sh").args(["-c", "exit 3"]))?;
//! assert_eq!(child.wait()?.kind, ExitKind::Code(3));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What a worker gets: file descriptors 0, 1 and 2 as asked for and no other, unless it is handed some; an empty signal mask and the default
//! action for every signal, SIGPIPE too; its own session and process group, whose id is its pid; the environment
//! that the [`Command`] lists and nothing else.

mod before_main;
mod cgroup;
mod child;
mod clone3;
mod command;
mod cpus;
mod entry;
mod fatal;
mod guardian;
mod handover;
mod inspect;
mod limit;
mod memory_kills;
mod numa;
mod placement;
mod sigaction;
mod spawn;
mod sys;
mod sysfs;
mod table;
mod tree;
mod watch;

pub use cgroup::{ControlGroup, ControlGroupError};
pub use child::{Child, Exit, SignalError, Usage, WaitError};
pub use command::{Command, Stdio};
pub use cpus::{AllowedCpusError, CpuSet, ParseCpuSetError};
pub use fatal::{FATAL_SIGNALS, FatalPart, FatalSignals, FatalSignalsError};
pub use guardian::Guardian;
#[doc(hidden)]
pub use handover::BEFORE_MAIN;
pub use handover::{Handover, HandoverError, TakenAt, handover_problem, is_handover_pending, take_handover};
pub use inspect::{ProcessState, RunningState};
pub use limit::{Limit, LimitError, LimitUnit, ParseLimitError, ParseResourceError, Resource, raise_open_files};
pub use memory_kills::MemoryKillCounters;
pub use numa::{NumaBinding, NumaError, NumaTopology, ParseNumaBindingError};
pub use spawn::{SpawnError, SpawnStep, Spawner};
pub use sysfs::gpu_numa_nodes;
pub use tree::{Member, Orphans, Tree, become_subreaper};
pub use watch::{SignalWatcher, WatchError, reset_inherited_signals};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
