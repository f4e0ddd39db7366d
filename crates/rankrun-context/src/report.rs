//! Turning what the driver saw into a [`RunProcsResult`]. Not here: seeing it (`driver`), or the rules (`outcome`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rankrun_errors::{ObservedExit, ProcessFailure, excerpt};
use rankrun_functions::{NoReturnValue, ReturnValue};
use rankrun_logs::{LogsDest, SinkId, Tail, Unsaved, last_lines};
use rankrun_process::{Exit, Usage};
use rankrun_types::{ExitKind, PerRank, Signal};

use crate::evidence::Evidence;
use crate::machine::Machine;
use crate::outcome::{Cause, RunProcsResult, RunState, StopReason, WorkerReport, cause, state};

/// How many of a worker's last lines are kept.
const TAIL_LINES: usize = 10;

/// How many are looked at for the one that says most, as runtimes print stacks after it.
const LOOKED_AT: usize = 200;

/// What was seen of one worker.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) pid: Option<u32>,
    pub(crate) started: Option<SystemTime>,
    pub(crate) ended: Option<SystemTime>,
    pub(crate) exit: Option<Exit>,
    /// A stop signal was sent to it while it ran.
    pub(crate) signalled: bool,
    /// What its function returned, where it was one and has ended.
    pub(crate) returned: Option<Result<ReturnValue, NoReturnValue>>,
}

/// Where workers' output is.
pub(crate) struct Logs<'a> {
    pub(crate) dest: &'a LogsDest,
    /// What files did not take of it.
    pub(crate) unsaved: Option<&'a Unsaved>,
    /// Has the ends of teed files that are gone.
    pub(crate) tail: Option<&'a Tail>,
    /// Files may lack some of it, or are gone.
    pub(crate) incomplete: bool,
}

impl Logs<'_> {
    fn last_lines(&self, path: &Path) -> Vec<String> {
        let gone = self.tail.and_then(|tail| tail.last_lines_of_gone(path, LOOKED_AT));
        let lines = gone.unwrap_or_else(|| match self.unsaved {
            Some(unsaved) => unsaved.last_lines(path, LOOKED_AT),
            None => last_lines(path, LOOKED_AT),
        });
        excerpt(lines, TAIL_LINES)
    }

    /// The last lines of a worker and the stream they are of: its stderr or, where nothing of that is to be had, its stdout.
    fn tail(&self, local_rank: usize) -> Option<(SinkId, Vec<String>)> {
        let files = [(SinkId::Stderr, &self.dest.stderrs), (SinkId::Stdout, &self.dest.stdouts)];
        let read = |(stream, paths): (SinkId, &PerRank<Option<PathBuf>>)| {
            Some((stream, self.last_lines(&captured(&paths[local_rank])?)))
        };
        let says_anything = |(_, lines): &(_, Vec<String>)| lines.iter().any(|line| !line.trim().is_empty());
        files.into_iter().filter_map(read).find(says_anything)
    }
}

/// The result of a group whose machine is done. Reads the error files and log ends of workers that may have failed.
///
/// `current_dir` gives the directory that a worker was started in, if it is another than this program's.
pub(crate) fn result<'a>(
    machine: &Machine,
    facts: &PerRank<Facts>,
    logs: &Logs<'_>,
    stop_began: Option<SystemTime>,
    evidence: &Evidence,
    current_dir: impl Fn(usize) -> Option<&'a Path>,
) -> RunProcsResult {
    let dest = logs.dest;
    let mut failures = BTreeMap::new();
    // Looked for at most once.
    let mut memory_kills = None;
    let workers = facts.map(|local_rank, facts| {
        let life = machine.lives()[local_rank];
        let stopped_at = stop_began.filter(|_| facts.signalled);
        let mut failure = suspected_failure(local_rank, facts, dest, stopped_at, evidence.start_ticks());
        let failed_before_stop = failure
            .as_ref()
            .zip(stop_began)
            .is_some_and(|(failure, stop_began)| failure.error_file_data.is_some() && failure.time() < stop_began);
        let mut cause = cause(life, matches!(facts.returned, Some(Err(_))), facts.signalled, failed_before_stop);
        if machine.reason() == Some(StopReason::StartFailed) && cause == Cause::Failed {
            cause = Cause::Collateral;
        }
        if let (Cause::Failed | Cause::Lost, Some(failure)) = (cause, failure.take()) {
            let mut failure = with_logs(failure, local_rank, logs);
            if may_be_out_of_memory(failure.exit) {
                failure.memory_kills = *memory_kills.get_or_insert_with(|| evidence.memory_kills());
            }
            failure.core_dump = evidence.core_dump(failure.pid, failure.exit, current_dir(local_rank));
            failures.insert(local_rank, failure);
        }
        let usage = facts.exit.map_or(Usage::default(), |exit| exit.usage);
        WorkerReport {
            pid: facts.pid,
            started: facts.started,
            ended: facts.ended,
            exit: facts.exit.map(|exit| exit.kind),
            cause,
            user_time: usage.user,
            system_time: usage.system,
            peak_memory: usage.peak_memory,
            tail: Vec::new(),
            tail_stream: None,
        }
    });
    let state = state(machine.reason(), !failures.is_empty());
    // After a success nobody asks, and a thousand files are not read.
    let workers = if state == RunState::Succeeded { workers } else { with_tails(&workers, &failures, logs) };
    RunProcsResult {
        state,
        return_values: facts.map(|_, facts| facts.returned.clone().and_then(Result::ok)),
        failures,
        stdouts: dest.stdouts.clone(),
        stderrs: dest.stderrs.clone(),
        workers,
        stop_reason: machine.reason(),
        stall: None,
        left_behind: Vec::new(),
        warnings: Vec::new(),
        drained: machine.drained(),
    }
}

/// The failure that a worker's exit and error file tell of; `None` if it has not ended, or exited 0 with all that it should
/// have left.
fn suspected_failure(
    local_rank: usize,
    facts: &Facts,
    dest: &LogsDest,
    stopped_at: Option<SystemTime>,
    start_ticks: Option<u64>,
) -> Option<ProcessFailure> {
    let (pid, exit, ended_at) = (facts.pid?, facts.exit?.kind, facts.ended?);
    let missing = facts.returned.as_ref().and_then(|returned| returned.as_ref().err());
    if exit.is_success() && missing.is_none() {
        return None;
    }
    let started_at = facts.started;
    let observed = ObservedExit { local_rank, pid, exit, started_at, start_ticks, stopped_at, ended_at };
    let mut failure = ProcessFailure::observe_exit(observed, Some(&dest.error_files[local_rank]));
    failure.function = missing.map(|missing| missing.function().to_owned());
    match missing {
        Some(missing) if exit.is_success() => failure.set_note(format!("exited 0{missing}")),
        Some(missing) => failure.set_note_on_exit(&missing.to_string()),
        None => {}
    }
    Some(failure)
}

/// Adds the last lines of each worker that ran.
fn with_tails(
    workers: &PerRank<WorkerReport>,
    failures: &BTreeMap<usize, ProcessFailure>,
    logs: &Logs<'_>,
) -> PerRank<WorkerReport> {
    workers.map(|local_rank, worker| {
        let mut worker = worker.clone();
        if worker.pid.is_some() {
            let known = failures.get(&local_rank).and_then(|failure| {
                let streams = [(SinkId::Stderr, &failure.stderr_tail), (SinkId::Stdout, &failure.stdout_tail)];
                streams.into_iter().find(|(_, lines)| !lines.is_empty())
            });
            let tail = known.map(|(stream, lines)| (stream, lines.clone())).or_else(|| logs.tail(local_rank));
            (worker.tail_stream, worker.tail) = tail.map_or((None, Vec::new()), |(stream, tail)| (Some(stream), tail));
        }
        worker
    })
}

/// The file of a stream that goes to one of the worker's own.
fn captured(file: &Option<PathBuf>) -> Option<PathBuf> {
    file.clone().filter(|path| path != Path::new("/dev/null"))
}

/// SIGKILL, or a shell that tells of it.
fn may_be_out_of_memory(exit: ExitKind) -> bool {
    exit.signal() == Some(Signal::KILL) || exit == ExitKind::Code(128 + Signal::KILL.as_raw())
}

/// Adds where the worker's output is, and its last lines.
fn with_logs(mut failure: ProcessFailure, local_rank: usize, logs: &Logs<'_>) -> ProcessFailure {
    let (stdout, stderr) = (captured(&logs.dest.stdouts[local_rank]), captured(&logs.dest.stderrs[local_rank]));
    if stderr.is_some() {
        failure.stderr_captured = true;
        failure.stderr_incomplete = logs.incomplete;
    }
    match logs.tail(local_rank) {
        Some((SinkId::Stderr, lines)) => failure.stderr_tail = lines,
        Some((SinkId::Stdout, lines)) => failure.stdout_tail = lines,
        None => {}
    }
    // A path to a file that is gone helps nobody.
    failure.log_files = stdout.into_iter().chain(stderr).filter(|path| path.try_exists().unwrap_or(true)).collect();
    failure
}
