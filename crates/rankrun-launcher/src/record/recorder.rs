//! Keeping `result.json` of a run up to date: [`Recorder`]. Not here: its fields (`run_record`), the file (`file`).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rankrun::{ChildFailedError, PerRank, ProcessFailure, RunProcsResult, Signal, Stall, WorkerReport};

use super::run_record::{
    AttemptRecord, CauseClass, ProcessRecord, RecordState, RunRecord, SCHEMA_VERSION, StallRecord,
    StalledProcessRecord, WorkerRecord,
};
use crate::host::host_name;
use crate::restart::Decision;
use crate::run::{Attempt, Observer, Started};

/// What is known of a run before it starts.
#[derive(Debug, Clone)]
pub struct RunDescription {
    /// The run's id.
    pub run_id: String,
    /// The workers' role.
    pub role: String,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Each worker's rank in the job.
    pub ranks: PerRank<usize>,
    /// How many nodes the job has, 1 or more.
    pub nodes: usize,
    /// Which of them this one is, from 0.
    pub node_rank: usize,
    /// How often the job's engine had started the job before.
    pub restart_count: u64,
}

/// How a run ended.
#[derive(Debug, Clone, Default)]
pub struct RunEnd {
    /// How it stands; `None`: as its last attempt, or failed if there is none.
    pub state: Option<RecordState>,
    /// The launcher's exit code.
    pub exit_code: Option<u8>,
    /// The signal to the launcher that stopped it.
    pub stop_signal: Option<Signal>,
    /// Why it could not go on, if not for its workers.
    pub error: Option<String>,
}

/// Keeps `result.json` in the run's directory: written when an attempt runs, when it has ended, and at the end of the run.
///
/// What cannot be written is one warning in the log, unless the disk is full or the directory gone, of which the group's own
/// result warns; no method fails or waits for the disk, but for
/// [`finish`](Self::finish).
#[derive(Debug)]
pub struct Recorder {
    record: RunRecord,
    ranks: PerRank<usize>,
    run_dir: Option<PathBuf>,
    has_warned: bool,
}

impl Recorder {
    /// For a run that starts now. Writes nothing yet.
    #[must_use]
    pub fn new(run: RunDescription) -> Self {
        let record = RunRecord {
            schema_version: SCHEMA_VERSION,
            run_id: run.run_id,
            role: run.role,
            command: run.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            host: host_name(),
            launcher_pid: std::process::id(),
            nodes: run.nodes,
            node_rank: run.node_rank,
            restart_count: run.restart_count,
            state: RecordState::Running,
            started: SystemTime::now(),
            ended: None,
            exit_code: None,
            stop_signal: None,
            error: None,
            attempts: Vec::new(),
        };
        Self { record, ranks: run.ranks, run_dir: None, has_warned: false }
    }

    /// What is known by now.
    #[must_use]
    pub fn record(&self) -> &RunRecord {
        &self.record
    }

    /// All workers of an attempt run. Writes the file.
    pub fn attempt_started(&mut self, attempt: u64, started: SystemTime, run_dir: Option<&Path>, pids: &PerRank<u32>) {
        self.run_dir = run_dir.map(Path::to_owned);
        let workers = pids.iter().map(|(local_rank, pid)| {
            let worker = WorkerRecord::of(self.rank(local_rank), local_rank, CauseClass::Running);
            WorkerRecord { pid: Some(*pid), started: Some(started), ..worker }
        });
        self.record.attempts.push(AttemptRecord {
            attempt,
            state: RecordState::Running,
            started,
            ended: None,
            stop_reason: None,
            stall: None,
            workers: workers.collect(),
            left_behind: Vec::new(),
            warnings: Vec::new(),
        });
        self.save(false);
    }

    /// The attempt that was started last has ended. Writes nothing: what comes next does, or as an [`Observer`] this if it is
    /// another attempt.
    pub fn attempt_ended(&mut self, ended: SystemTime, result: &RunProcsResult) {
        let root = ChildFailedError::new(&*self.record.role, result.failures.clone()).ok();
        let root = root.map(|error| error.root().failure.local_rank);
        let workers = result.workers.iter().map(|(local_rank, report)| {
            let cause = if root == Some(local_rank) { CauseClass::Root } else { report.cause.into() };
            let worker = WorkerRecord::of(self.rank(local_rank), local_rank, cause);
            let worker = self.with_end(worker, report, result.failures.get(&local_rank));
            let path = |paths: &PerRank<Option<PathBuf>>| paths.get(local_rank)?.as_deref().map(|path| self.path(path));
            WorkerRecord { stdout: path(&result.stdouts), stderr: path(&result.stderrs), ..worker }
        });
        let workers = workers.collect();
        let Some(attempt) = self.record.attempts.last_mut() else { return };
        attempt.state = result.state.into();
        attempt.ended = Some(ended);
        attempt.stop_reason = result.stop_reason.map(|reason| reason.to_string());
        attempt.stall = result.stall.as_ref().map(stall);
        attempt.workers = workers;
        let left = result.left_behind.iter();
        attempt.left_behind = left.map(|(pid, name)| ProcessRecord { pid: *pid, name: name.clone() }).collect();
        attempt.warnings.clone_from(&result.warnings);
    }

    /// The run has ended. Writes nothing: see [`finish`](Self::finish).
    pub fn end(&mut self, end: RunEnd) {
        let last = self.record.attempts.last().map_or(RecordState::Failed, |attempt| attempt.state);
        self.record.state = end.state.unwrap_or(last);
        self.record.ended = Some(SystemTime::now());
        self.record.exit_code = end.exit_code;
        self.record.stop_signal = end.stop_signal.map(|signal| signal.name());
        self.record.error = end.error;
    }

    /// Writes the file for good, and waits until it has reached the disk. `run_dir`: where, if no attempt was started.
    pub fn finish(mut self, run_dir: Option<PathBuf>) {
        self.run_dir = self.run_dir.or(run_dir);
        self.save(true);
    }

    fn save(&mut self, durable: bool) {
        let Some(run_dir) = &self.run_dir else { return };
        match self.record.write(run_dir, durable) {
            Ok(()) => {}
            // That it is full, or gone, is said by who looks after the log files.
            Err(error) if error.is_disk_full() || !run_dir.exists() => log::debug!("{error}"),
            Err(error) if self.has_warned => log::debug!("{error}"),
            Err(error) => {
                self.has_warned = true;
                log::warn!("{error}");
            }
        }
    }

    fn rank(&self, local_rank: usize) -> usize {
        self.ranks.get(local_rank).copied().unwrap_or(local_rank)
    }

    fn with_end(&self, worker: WorkerRecord, report: &WorkerReport, failure: Option<&ProcessFailure>) -> WorkerRecord {
        WorkerRecord {
            pid: report.pid,
            started: report.started,
            ended: report.ended,
            exit: report.exit.map(Into::into),
            message: failure.map(|failure| failure.message.clone()),
            traceback: failure.and_then(|failure| failure.traceback()).map(str::to_owned),
            tail: report.tail.clone(),
            tail_stream: report.tail_stream.map(|stream| stream.to_string()),
            user_seconds: report.user_time.as_secs_f64(),
            system_seconds: report.system_time.as_secs_f64(),
            peak_memory_bytes: report.peak_memory,
            error_file: failure.and_then(|failure| failure.error_file.as_deref()).map(|path| self.path(path)),
            ..worker
        }
    }

    /// The path as it stands in the record.
    fn path(&self, path: &Path) -> String {
        let inside = self.run_dir.as_deref().and_then(|run_dir| path.strip_prefix(run_dir).ok());
        inside.unwrap_or(path).to_string_lossy().into_owned()
    }
}

impl WorkerRecord {
    fn of(rank: usize, local_rank: usize, cause: CauseClass) -> Self {
        Self {
            rank,
            local_rank,
            pid: None,
            started: None,
            ended: None,
            exit: None,
            cause,
            message: None,
            traceback: None,
            tail: Vec::new(),
            tail_stream: None,
            user_seconds: 0.0,
            system_seconds: 0.0,
            peak_memory_bytes: 0,
            stdout: None,
            stderr: None,
            error_file: None,
        }
    }
}

fn stall(stall: &Stall) -> StallRecord {
    let processes = stall.processes.iter().map(|process| StalledProcessRecord {
        local_rank: process.local_rank,
        pid: process.pid,
        name: process.name.clone(),
        state: process.state.to_owned(),
        wchan: process.wchan.clone(),
        cpu_seconds: process.cpu_time.as_secs_f64(),
    });
    StallRecord { quiet_seconds: stall.quiet.as_secs_f64(), processes: processes.collect() }
}

impl Observer for Recorder {
    fn started(&mut self, started: &Started<'_>) {
        let run_dir = started.run_dir.map(PathBuf::as_path);
        self.attempt_started(started.restart_count, started.started, run_dir, started.pids);
    }

    fn ended(&mut self, attempt: &Attempt, next: &Decision) {
        self.attempt_ended(attempt.ended, &attempt.result);
        if let Decision::Restart { .. } = next {
            // The next one may be far, and be the first that is written after this.
            self.save(false);
        }
    }
}
