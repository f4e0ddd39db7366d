//! What `result.json` says: [`RunRecord`]. Not here: making it (`recorder`), the file (`file`).
//!
//! The names of fields and values are a contract, described by [`RESULT_SCHEMA`](super::RESULT_SCHEMA): a version that
//! changes or removes one has another [`SCHEMA_VERSION`]; new fields and values may come without.

use std::time::SystemTime;

use rankrun::{Cause, ExitKind, RunState};
use serde::{Deserialize, Serialize};

use super::time;

/// The version of what `result.json` says.
pub const SCHEMA_VERSION: u32 = 1;

/// What became of a run, or is becoming.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunRecord {
    /// [`SCHEMA_VERSION`] of who wrote it.
    pub schema_version: u32,
    /// The run's id.
    pub run_id: String,
    /// The workers' role.
    pub role: String,
    /// The program and its arguments; what is no text is replaced.
    pub command: Vec<String>,
    /// The launcher's host.
    pub host: String,
    /// The launcher's process id.
    pub launcher_pid: u32,
    /// How many nodes the job has.
    #[serde(default = "one")]
    pub nodes: usize,
    /// Which of them this one is, from 0.
    #[serde(default)]
    pub node_rank: usize,
    /// How often the job's engine had started the job before.
    #[serde(default)]
    pub restart_count: u64,
    /// How the run stands.
    pub state: RecordState,
    /// When it was started.
    #[serde(with = "time")]
    pub started: SystemTime,
    /// When it ended, or `None`.
    #[serde(with = "time::option", default)]
    pub ended: Option<SystemTime>,
    /// The launcher's exit code.
    #[serde(default)]
    pub exit_code: Option<u8>,
    /// The name of the signal to the launcher that stopped the run.
    #[serde(default)]
    pub stop_signal: Option<String>,
    /// Why the run could not go on, if not for its workers: they could not be started, say.
    #[serde(default)]
    pub error: Option<String>,
    /// The attempts that were started, in their order.
    #[serde(default)]
    pub attempts: Vec<AttemptRecord>,
}

fn one() -> usize {
    1
}

/// One start of the whole group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AttemptRecord {
    /// `TORCHELASTIC_RESTART_COUNT` of its workers.
    pub attempt: u64,
    /// How it stands.
    pub state: RecordState,
    /// When it was started.
    #[serde(with = "time")]
    pub started: SystemTime,
    /// When it ended, or `None`.
    #[serde(with = "time::option", default)]
    pub ended: Option<SystemTime>,
    /// Why it was told to end: `failure`, `start failed`, `requested`, `leftovers`, `stalled`; `None` if it was not.
    #[serde(default)]
    pub stop_reason: Option<String>,
    /// What its workers did when it had stalled.
    #[serde(default)]
    pub stall: Option<StallRecord>,
    /// Its workers by local rank.
    pub workers: Vec<WorkerRecord>,
    /// Processes, beyond the workers, that outlived SIGKILL.
    #[serde(default)]
    pub left_behind: Vec<ProcessRecord>,
    /// What went wrong beside the workers, for people.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// One worker of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorkerRecord {
    /// Its rank in the job.
    pub rank: usize,
    /// Its rank on this host.
    pub local_rank: usize,
    /// Its process id; `None` if it was never started.
    #[serde(default)]
    pub pid: Option<u32>,
    /// When it was started.
    #[serde(with = "time::option", default)]
    pub started: Option<SystemTime>,
    /// When its end was seen.
    #[serde(with = "time::option", default)]
    pub ended: Option<SystemTime>,
    /// How it ended.
    #[serde(default)]
    pub exit: Option<ExitRecord>,
    /// What that means.
    pub cause: CauseClass,
    /// The message of its failure.
    #[serde(default)]
    pub message: Option<String>,
    /// The traceback that it left.
    #[serde(default)]
    pub traceback: Option<String>,
    /// Its last lines, of its stderr or, where that has none, its stdout, if they were captured and the run did not succeed.
    #[serde(default)]
    pub tail: Vec<String>,
    /// The stream that they are of: `stderr` or `stdout`; `None` if there are none.
    #[serde(default)]
    pub tail_stream: Option<String>,
    /// CPU time in its own code, in seconds, with that of children it waited for.
    #[serde(default)]
    pub user_seconds: f64,
    /// CPU time in the kernel, in seconds, likewise.
    #[serde(default)]
    pub system_seconds: f64,
    /// The most memory that it had resident at any time.
    #[serde(default)]
    pub peak_memory_bytes: u64,
    /// The file with its stdout, if that was captured: relative to the run's directory if it is in there, else absolute.
    #[serde(default)]
    pub stdout: Option<String>,
    /// The file with its stderr, likewise.
    #[serde(default)]
    pub stderr: Option<String>,
    /// The error file that it left, likewise.
    #[serde(default)]
    pub error_file: Option<String>,
}

/// How a run or an attempt stands, in the words of torch's `WorkerState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[non_exhaustive]
pub enum RecordState {
    /// It goes on, or its launcher was killed.
    Running,
    /// All workers exited 0.
    Succeeded,
    /// A worker failed, or the workers stalled, or could not be started.
    Failed,
    /// It was stopped from outside before any worker failed.
    Stopped,
    /// It cannot be said; also a word of a later version.
    #[serde(other)]
    Unknown,
}

/// How a worker ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ExitRecord {
    /// It exited.
    Code {
        /// Its exit code, 0 to 255.
        code: i32,
    },
    /// A signal ended it.
    Signal {
        /// The signal's name, such as `SIGSEGV`.
        signal: String,
        /// The signal's number.
        number: i32,
        /// Whether the kernel wrote a core dump.
        core_dumped: bool,
    },
    /// Its status was taken by another part of the launcher.
    Lost,
    /// A word of a later version.
    #[serde(other)]
    Unknown,
}

/// What a worker's end means for its attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CauseClass {
    /// Its failure is the root cause.
    Root,
    /// It failed of itself, after the root cause.
    Failed,
    /// It ended after it was told to.
    Collateral,
    /// Its status was lost.
    Lost,
    /// It exited 0 of itself.
    Succeeded,
    /// It runs, or its launcher was killed.
    Running,
    /// It was never started.
    NotStarted,
    /// It was still there after SIGKILL.
    Abandoned,
    /// A word of a later version.
    #[serde(other)]
    Unknown,
}

/// A process that is not a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessRecord {
    /// Its process id.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

/// What workers did when they had stalled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StallRecord {
    /// How long there had been no sign of life.
    pub quiet_seconds: f64,
    /// The processes of the workers' process groups.
    pub processes: Vec<StalledProcessRecord>,
}

/// What a process of a stalled group did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StalledProcessRecord {
    /// The local rank of its worker.
    pub local_rank: usize,
    /// Its process id.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// `running`, `sleeping`, `uninterruptible`, `stopped`, `traced`, `ended` or `unknown`.
    pub state: String,
    /// The function of the kernel that it waits in, where that may be read.
    #[serde(default)]
    pub wchan: Option<String>,
    /// The CPU time that it has used.
    pub cpu_seconds: f64,
}

impl From<RunState> for RecordState {
    fn from(state: RunState) -> Self {
        match state {
            RunState::Succeeded => Self::Succeeded,
            RunState::Failed => Self::Failed,
            RunState::Stopped => Self::Stopped,
            _ => Self::Unknown,
        }
    }
}

impl From<ExitKind> for ExitRecord {
    fn from(exit: ExitKind) -> Self {
        match exit {
            ExitKind::Code(code) => Self::Code { code },
            ExitKind::Signal { signal, core_dumped } => {
                Self::Signal { signal: signal.name(), number: signal.as_raw(), core_dumped }
            }
            ExitKind::Lost => Self::Lost,
        }
    }
}

impl From<Cause> for CauseClass {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Succeeded => Self::Succeeded,
            Cause::Failed => Self::Failed,
            Cause::Collateral => Self::Collateral,
            Cause::Lost => Self::Lost,
            Cause::Abandoned => Self::Abandoned,
            Cause::NotStarted => Self::NotStarted,
            _ => Self::Unknown,
        }
    }
}
