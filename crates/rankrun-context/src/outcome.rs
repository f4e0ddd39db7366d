//! What became of a group: [`RunProcsResult`], and which of its workers are to blame. Not here: collecting the facts.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rankrun_errors::ProcessFailure;
use rankrun_functions::{Function, ReturnValue, ReturnValueError};
use rankrun_logs::SinkId;
use rankrun_types::{ExitKind, PerRank};

use crate::machine::Life;
use crate::stall::Stall;

/// How a group ended, in the words of torch's `WorkerState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum RunState {
    /// It cannot be said: the supervision itself broke.
    #[default]
    Unknown,
    /// All workers exited 0.
    Succeeded,
    /// At least one worker failed of itself, or the group stalled.
    Failed,
    /// The caller stopped it before any worker failed.
    Stopped,
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unknown => "UNKNOWN",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Stopped => "STOPPED",
        })
    }
}

/// Why a group was told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// A worker failed.
    Failure,
    /// A worker could not be started.
    StartFailed,
    /// The caller asked for it.
    Requested,
    /// All workers ended well, but left processes behind.
    Leftovers,
    /// No worker gave a sign of life for too long.
    Stalled,
}

impl fmt::Display for StopReason {
    /// In words of lower case, `start failed` for example.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Failure => "failure",
            Self::StartFailed => "start failed",
            Self::Requested => "requested",
            Self::Leftovers => "leftovers",
            Self::Stalled => "stalled",
        })
    }
}

/// What a worker's end means for the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// It exited 0 of itself.
    Succeeded,
    /// It failed of itself.
    Failed,
    /// It ended after it was told to: a consequence of another's failure or of the caller's wish.
    Collateral,
    /// Its exit status was taken by another part of the program. Counts as a failure.
    Lost,
    /// It, or its process group, was still there after SIGKILL: in uninterruptible sleep.
    Abandoned,
    /// It was never started.
    NotStarted,
}

/// One worker's part of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerReport {
    /// Its process id; `None` if it was never started.
    pub pid: Option<u32>,
    /// When it was started.
    pub started: Option<SystemTime>,
    /// When its end was observed.
    pub ended: Option<SystemTime>,
    /// How it ended; `None` if it was never started or has not ended.
    pub exit: Option<ExitKind>,
    /// What that means for the group.
    pub cause: Cause,
    /// CPU time in its own code, with that of the children it waited for.
    pub user_time: Duration,
    /// CPU time in the kernel, likewise.
    pub system_time: Duration,
    /// The most memory that it, or the largest child it waited for, had resident at any time, in bytes.
    pub peak_memory: u64,
    /// Its last lines, of its standard error or, where that has none, its standard output, if they were captured; empty
    /// after a success of the group.
    pub tail: Vec<String>,
    /// The stream that they are of.
    pub tail_stream: Option<SinkId>,
}

/// A worker's return value cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("local rank {local_rank}: {source}")]
pub struct ReturnValuesError {
    /// The worker's local rank.
    pub local_rank: usize,
    /// Why.
    pub source: ReturnValueError,
}

/// The outcome of a group of workers. Mirrors torch's `RunProcsResult`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RunProcsResult {
    /// How the group ended.
    pub state: RunState,
    /// What each worker's function returned, encoded; `None` if it failed or was stopped, and for a binary.
    ///
    /// See [`return_values_of`](Self::return_values_of).
    pub return_values: PerRank<Option<ReturnValue>>,
    /// The workers that failed of themselves, by local rank. Those that were told to end are not among them, so that a
    /// group that failed because it stalled may have none.
    pub failures: BTreeMap<usize, ProcessFailure>,
    /// The file that each worker's standard output went to; `None` where it was not captured.
    pub stdouts: PerRank<Option<PathBuf>>,
    /// The file that each worker's standard error went to; `None` where it was not captured.
    pub stderrs: PerRank<Option<PathBuf>>,
    /// Each worker's times, exit and resources.
    pub workers: PerRank<WorkerReport>,
    /// Why the group was told to end; `None` if it was not.
    pub stop_reason: Option<StopReason>,
    /// What the workers did when the group had stalled, if it had.
    pub stall: Option<Stall>,
    /// Processes of the group, beyond its workers, that outlived SIGKILL and were given up: pid and name.
    pub left_behind: Vec<(u32, String)>,
    /// What went wrong beside the workers, such as output that could not be shown; a line each, for people.
    pub warnings: Vec<String>,
    /// Whether all teed output had reached the console; if not, the rest is in the files.
    pub drained: bool,
}

impl RunProcsResult {
    /// What is said when the supervision itself broke: nothing is known of any worker.
    pub(crate) fn unknown(local_world_size: usize) -> Self {
        let worker = WorkerReport {
            pid: None,
            started: None,
            ended: None,
            exit: None,
            cause: Cause::Lost,
            user_time: Duration::ZERO,
            system_time: Duration::ZERO,
            peak_memory: 0,
            tail: Vec::new(),
            tail_stream: None,
        };
        Self {
            state: RunState::Unknown,
            return_values: PerRank::filled(local_world_size, None),
            failures: BTreeMap::new(),
            stdouts: PerRank::filled(local_world_size, None),
            stderrs: PerRank::filled(local_world_size, None),
            workers: PerRank::filled(local_world_size, worker),
            stop_reason: None,
            stall: None,
            left_behind: Vec::new(),
            warnings: Vec::new(),
            drained: false,
        }
    }

    /// What each worker's function returned; `None` if it failed or was stopped.
    ///
    /// Decodes the values, one after the other. They stay here, encoded, and can be had again.
    ///
    /// # Errors
    /// [`ReturnValuesError`] if the group ran another function, or a value was taken or cannot be decoded.
    pub fn return_values_of<M, F: Function<M>>(
        &self,
        function: F,
    ) -> Result<PerRank<Option<F::Value>>, ReturnValuesError> {
        self.decoded(|value| value.get(function))
    }

    /// The same as [`return_values_of`](Self::return_values_of), once: the memory of what is encoded is freed as it is
    /// decoded, so that values that are `Vec<u8>` are never in memory twice.
    ///
    /// # Errors
    /// [`ReturnValuesError`].
    pub fn take_return_values_of<M, F: Function<M>>(
        &self,
        function: F,
    ) -> Result<PerRank<Option<F::Value>>, ReturnValuesError> {
        self.decoded(|value| value.take(function))
    }

    fn decoded<V>(
        &self,
        decode: impl Fn(&ReturnValue) -> Result<V, ReturnValueError>,
    ) -> Result<PerRank<Option<V>>, ReturnValuesError> {
        let values = self.return_values.iter().map(|(local_rank, value)| {
            value.as_ref().map(&decode).transpose().map_err(|source| ReturnValuesError { local_rank, source })
        });
        Ok(PerRank::from_vec(values.collect::<Result<_, _>>()?))
    }

    /// Whether any worker failed, or nothing is known. Mirrors `is_failed`.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        matches!(self.state, RunState::Failed | RunState::Unknown)
    }
}

/// What a worker's end means. `no_value`: its return value should be there and is not. `signalled`: a stop signal was sent to it while it ran. `failed_before_stop`: its own
/// error file says that it failed before that.
pub(crate) fn cause(life: Life, no_value: bool, signalled: bool, failed_before_stop: bool) -> Cause {
    match life {
        Life::NotStarted => Cause::NotStarted,
        Life::Abandoned(_) | Life::Running => Cause::Abandoned,
        Life::Ended(_) | Life::Leftover(_) if signalled && !failed_before_stop => Cause::Collateral,
        Life::Ended(ExitKind::Lost) | Life::Leftover(ExitKind::Lost) => Cause::Lost,
        Life::Ended(exit) | Life::Leftover(exit) if exit.is_success() && !no_value => Cause::Succeeded,
        Life::Ended(_) | Life::Leftover(_) => Cause::Failed,
    }
}

/// How the group ended, from why it was stopped and whether any worker failed of itself.
pub(crate) fn state(reason: Option<StopReason>, any_failure: bool) -> RunState {
    match reason {
        _ if any_failure => RunState::Failed,
        Some(StopReason::Failure | StopReason::StartFailed | StopReason::Stalled) => RunState::Failed,
        Some(StopReason::Requested) => RunState::Stopped,
        Some(StopReason::Leftovers) | None => RunState::Succeeded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankrun_types::Signal;

    #[test]
    fn only_an_end_of_its_own_makes_a_worker_a_failure() {
        let killed = ExitKind::Signal { signal: Signal::TERM, core_dumped: false };
        for (life, signalled, before, expected) in [
            (Life::Ended(ExitKind::Code(0)), false, false, Cause::Succeeded),
            (Life::Ended(ExitKind::Code(7)), false, false, Cause::Failed),
            (Life::Ended(killed), false, false, Cause::Failed),
            (Life::Ended(killed), true, false, Cause::Collateral),
            (Life::Ended(ExitKind::Code(0)), true, false, Cause::Collateral),
            (Life::Ended(ExitKind::Code(1)), true, true, Cause::Failed),
            (Life::Ended(ExitKind::Lost), false, false, Cause::Lost),
            (Life::Ended(ExitKind::Lost), true, false, Cause::Collateral),
            (Life::Abandoned(Some(ExitKind::Code(0))), true, false, Cause::Abandoned),
            (Life::NotStarted, false, false, Cause::NotStarted),
        ] {
            assert_eq!(cause(life, false, signalled, before), expected, "{life:?} {signalled} {before}");
        }
        let exited = Life::Ended(ExitKind::Code(0));
        assert_eq!(cause(exited, true, false, false), Cause::Failed, "without its return value");
        assert_eq!(cause(exited, true, true, false), Cause::Collateral);
    }

    #[test]
    fn a_stop_on_request_is_no_failure_unless_a_worker_failed_first() {
        assert_eq!(state(Some(StopReason::Requested), false), RunState::Stopped);
        assert_eq!(state(Some(StopReason::Requested), true), RunState::Failed);
        assert_eq!(state(Some(StopReason::Leftovers), false), RunState::Succeeded);
        assert_eq!(state(Some(StopReason::Stalled), false), RunState::Failed);
    }
}
