//! Start and supervise a homogeneous group of worker processes on one host.
//!
//! ```
//! use rankrun::{Entrypoint, Std, WorkerGroup, start_processes};
//!
//! let group = WorkerGroup::new("trainer", Entrypoint::binary("sh"), 4)
//!     .args(["-c", "echo hello from rank $LOCAL_RANK of $LOCAL_WORLD_SIZE"])
//!     .tee(Std::ALL);
//! let context = start_processes(group)?;
//! let result = context.wait(None)?.expect("a wait without timeout ends with a result");
//! assert!(!result.is_failed());
//! # std::fs::remove_dir_all(result.stdouts[0].as_ref().unwrap().ancestors().nth(4).unwrap())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guide
//!
//! **The group.** [`WorkerGroup`] says what to run: a role's name, an [`Entrypoint`], how many workers; then, for all
//! ranks or for each, arguments and environment. What a group cannot do without are arguments of `new`, so no group
//! is half specified. Maps from outside must name each rank ([`WorkerGroup::args_map`]).
//!
//! **Start.** [`start_processes`] is all or nothing: it returns when each worker runs its program, or with an error
//! that names rank, program, step and errno after the workers before it have been killed and reaped.
//!
//! **The result.** [`PContext`] is a handle to a thread that supervises the group whether or not you ask.
//! [`PContext::poll`] never blocks, [`PContext::wait`] does, and as a file descriptor the context is readable when the
//! result is there, so it fits any event loop. The first worker that fails stops the others: SIGTERM, then SIGKILL
//! when the grace is over. [`RunProcsResult`] tells what became of each; `failures` holds only those that failed of
//! themselves, and [`ChildFailedError`] makes a report of them:
//!
//! ```
//! use rankrun::{ChildFailedError, Entrypoint, WorkerGroup, start_processes};
//!
//! let group = WorkerGroup::new("trainer", Entrypoint::binary("sh"), 3)
//!     .args(["-c", "test $LOCAL_RANK = 1 && exit 7; sleep 60"]);
//! let result = start_processes(group)?.wait(None)?.expect("no timeout");
//! assert!(result.is_failed());
//! let error = ChildFailedError::new("trainer", result.failures.clone())?;
//! let (rank, failure) = error.get_first_failure();
//! assert_eq!((rank, failure.exitcode), (1, 7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Output.** By default workers write where this program writes. [`WorkerGroup::redirects`] sends a stream to a file
//! of its own, [`WorkerGroup::tee`] does so and shows its lines here too, each whole and with a prefix. Both take a
//! [`Std`] for all ranks or a spec such as `0:out,1-3:all` (`"0:out".parse::<StdSpec>()`). A [`PrefixTemplate`] says what
//! the prefix is, [`Progress`] what becomes of progress bars; [`WorkerGroup::duplicate_stdout_filters`] sends chosen lines
//! to a file of their own. With [`WorkerGroup::pty`] workers have terminals for what goes to files, so that they show colours
//! and progress bars.
//!
//! **Errors of workers.** Each worker gets a path in `TORCHELASTIC_ERROR_FILE`. What torch's, TensorPlay's or our own
//! [`record`] writes there becomes the failure's message and traceback; [`record`] also catches panics and fatal signals.
//!
//! **Functions.** An [`Entrypoint::function`] runs a function of this program in each worker, with arguments that the
//! compiler checks. It is registered with [`entrypoint!`]; `main` begins with [`init`], where the worker, which is this
//! program executed again, takes it. In tests, and without `init`, it is taken before `main`. What the function returns is
//! in the result; an `Err` or a panic is the worker's failure, with sources or backtrace, and so is an end without a value.
//!
//! ```
//! use rankrun::{Entrypoint, WorkerGroup, entrypoint, start_processes};
//!
//! fn train((epochs, rate): (u32, f64)) -> Result<f64, std::io::Error> {
//!     Ok(f64::from(epochs) * rate)
//! }
//! entrypoint!(train);
//!
//! let call = Entrypoint::function(train).by_rank(|local_rank| (local_rank as u32, 0.5));
//! let result = start_processes(WorkerGroup::new("trainer", call, 3))?.wait(None)?.expect("no timeout");
//! assert_eq!(result.return_values_of(train)?.into_values(), [Some(0.0), Some(0.5), Some(1.0)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **The end.** [`PContext::close`] ends the group within a bounded time; dropping the context does the same. Workers
//! that outlive this program, because it was killed, get SIGKILL from the kernel.
//!
//! **Signals.** This library catches none unless told to ([`PContext::watch_signals`]); then `wait` returns
//! [`SignalException`] and the group goes on until it is closed. Signals belong to the whole program, so one context at a
//! time can watch them; for a second one it is [`WatchError::InUse`].
//!
//! **What workers start.** Their process groups end with them, and so does what carries the group's cookie in its environment.
//! [`WorkerGroup::orphans`], [`WorkerGroup::control_group`] and [`WorkerGroup::guardian`] are for those that hide, and for when
//! this program is killed.

#![forbid(unsafe_code)]

mod group;

pub use group::{StartProcessesError, WorkerGroup, start_processes};
pub use rankrun_context::{
    Cause, Descendants, DumpStep, Entrypoint, GroupEvent, GroupEventKind, GroupSpec, GroupSpecError, GroupStatus,
    PContext, Placement, ReturnValuesError, RunProcsResult, RunState, SignalPlan, SignalTarget, Stall, StallPolicy,
    StalledProcess, StartError, StartHint, Stdin, StopOrder, StopPolicy, StopReason, WaitError, WorkerReport,
};
pub use rankrun_errors::{
    ChildFailedError, ErrorHandler, MemoryKills, NoFailuresError, ProcessFailure, SignalException,
};
pub use rankrun_functions::{
    CallError, Callable, Function, FunctionCall, LookUpError, ReturnValue, ReturnValueError, ValueError, entrypoint,
    init, record, record_main, returns_result,
};
pub use rankrun_logs::{
    ColorChoice, Consoles, DefaultLogsSpecs, Env, LineFilter, LineFilterError, LogSize, LogsDest, LogsError, LogsSpecs,
    ParseLogSizeError, ParsePrefixError, PrefixTemplate, Progress, SinkId,
};
pub use rankrun_process::{CpuSet, HandoverError, Limit, NumaBinding, NumaError, Orphans, Resource, WatchError};
pub use rankrun_redirects::{
    ParseStdError, RankOutOfWorldError, Redirects, Std, StdMap, StdSpec, to_map, to_map_strict,
};
pub use rankrun_types::{ExitKind, PerRank, RankMapError, Signal, env};

/// The crates that this one composes, for what is not needed by everybody.
pub mod crates {
    pub use rankrun_context as context;
    pub use rankrun_errors as errors;
    pub use rankrun_functions as functions;
    pub use rankrun_logs as logs;
    pub use rankrun_process as process;
    pub use rankrun_redirects as redirects;
    pub use rankrun_types as types;
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
