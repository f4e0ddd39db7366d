//! The records of a job's nodes put together: [`JobRecord`]. Not here: its text for people (`job_report`).

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use rankrun::Signal;
use rankrun::crates::logs::{LogsError, Run};
use rankrun::crates::types::escape_os_str;
use serde::Serialize;

use super::run_record::{AttemptRecord, CauseClass, ExitRecord, RecordState, RunRecord, SCHEMA_VERSION, WorkerRecord};
use super::starts::{OneStart, disagreement, of_one_start};
use super::time;

/// The exit code of a job whose nodes disagree, and that came to nothing worse: that of wrong usage.
const DISAGREE: u8 = 2;

/// What became of a job of one or more nodes, from the `result.json` of each.
///
/// As JSON it is the object of its fields, and described by [`JOB_SCHEMA`](super::JOB_SCHEMA). `Display` is a report for
/// people.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct JobRecord {
    /// [`SCHEMA_VERSION`] of who put it together.
    pub schema_version: u32,
    /// The run's id.
    pub run_id: String,
    /// The workers' role.
    pub role: String,
    /// How the job stands: failed if any node is; else running if any is; else failed if nodes disagree; else unknown if any
    /// node has no result; else stopped if any was; else succeeded.
    pub state: RecordState,
    /// The exit code of the node that failed first, or was stopped first; 0 after a success; 2 where nodes disagree and none
    /// failed; `None` while it is not over.
    pub exit_code: Option<u8>,
    /// `TORCHELASTIC_RESTART_COUNT` of the start that this is about.
    pub restart_count: u64,
    /// How many nodes the job has.
    pub nodes: usize,
    /// The nodes that have no result of that start.
    pub missing_nodes: Vec<usize>,
    /// The nodes, also beyond those of that start, whose result is of another start, and was left aside.
    pub other_start_nodes: Vec<usize>,
    /// The nodes whose result cannot be read: see [`problems`](Self::problems).
    pub unreadable_nodes: Vec<usize>,
    /// The nodes that say that they run, and whose launcher does not, as far as can be seen from here.
    pub lost_nodes: Vec<usize>,
    /// What the nodes do not agree about, for people: how many there are, or how many workers each has.
    pub disagreement: Option<String>,
    /// The first failing rank of the whole job; `None` if nothing failed.
    pub first_failure: Option<JobFailure>,
    /// What could not be read, for people.
    pub problems: Vec<String>,
    /// The records of that start, by node.
    pub results: Vec<RunRecord>,
}

/// A node's failure.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct JobFailure {
    /// The node.
    pub node_rank: usize,
    /// Its host.
    pub host: String,
    /// When it was seen, by that host's clock.
    #[serde(with = "time")]
    pub time: SystemTime,
    /// The exit code of the node's launcher.
    pub exit_code: Option<u8>,
    /// The worker; `None` if it was not one of them.
    pub worker: Option<WorkerRecord>,
    /// Why it was none of the workers.
    pub error: Option<String>,
}

/// A part of a job, as found.
#[derive(Debug, Clone, PartialEq)]
pub struct JobPart {
    /// What the node wrote.
    pub record: RunRecord,
    /// Whether its launcher still runs.
    pub goes_on: bool,
    /// The number of the last attempt that the node has a directory of: how often it was started before, also where nobody
    /// counts that.
    pub last_attempt: Option<u64>,
}

/// There is nothing to put together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobRecordError {
    /// There is no run.
    #[error(transparent)]
    Logs(#[from] LogsError),
    /// None of the nodes has a result that can be read.
    #[error("there is no result in {path}: {why}")]
    NoResult {
        /// The directory.
        path: String,
        /// What is wrong with the first.
        why: String,
    },
}

impl JobRecord {
    /// Reads the results of a run's directory, of one that nodes share, or of the newest run in a log directory.
    ///
    /// `restart_count`: of which start; `None` for the newest that there is.
    ///
    /// # Errors
    /// [`JobRecordError`]. Where some nodes' results cannot be read, the rest counts, and
    /// [`problems`](Self::problems) says why.
    pub fn read(dir: &Path, restart_count: Option<u64>) -> Result<Self, JobRecordError> {
        let (mut parts, mut problems, mut unreadable) = (Vec::new(), Vec::new(), BTreeSet::new());
        for run in Run::open_nodes(dir)? {
            match RunRecord::read(run.dir()) {
                Ok(record) => {
                    parts.push(JobPart { record, goes_on: run.goes_on(), last_attempt: run.last_attempt() });
                }
                // A node of which there is nothing else to say.
                Err(error) if error.source.kind() == io::ErrorKind::NotFound && run.node().is_some() => {}
                Err(error) => {
                    unreadable.extend(run.node());
                    problems.push(error.to_string());
                }
            }
        }
        let why = problems.first().cloned().unwrap_or_else(|| "no node has written one".to_owned());
        let mut job = Self::join(parts, restart_count)
            .ok_or(JobRecordError::NoResult { path: escape_os_str(dir.as_os_str()), why })?;
        // Such a node may be the last.
        if let Some(beyond) = unreadable.last().map(|last| last + 1).filter(|count| *count > job.nodes) {
            job.missing_nodes.extend(job.nodes..beyond);
            job.nodes = beyond;
        }
        job.unreadable_nodes = unreadable.into_iter().collect();
        job.problems = problems;
        Ok(job)
    }

    /// Puts the records of nodes together, in any order; `None` if there are none. Pure.
    ///
    /// `restart_count`: of which start; `None` for the newest. Records of other starts count as missing. Where no engine counts
    /// the starts, a record is of an earlier one if it had ended before the one that began last did begin, and its node had been
    /// started another number of times, or for a job of another size.
    ///
    /// The first failure is the earliest by the clocks of the hosts, which may differ; a worker that ended by the signal that
    /// stopped its launcher as well comes after all others, as the engine sent that to the rest of the job because of them.
    #[must_use]
    pub fn join(parts: Vec<JobPart>, restart_count: Option<u64>) -> Option<Self> {
        let OneStart { restart_count, now, aside } = of_one_start(parts, restart_count)?;
        let (run_id, role) = {
            let any = &now.first().or(aside.first())?.record;
            (any.run_id.clone(), any.role.clone())
        };
        let known: BTreeSet<usize> = now.iter().map(|part| part.record.node_rank).collect();
        let said = |parts: &[JobPart]| parts.iter().map(|part| part.record.nodes.max(part.record.node_rank + 1)).max();
        let nodes = said(&now).or_else(|| said(&aside)).unwrap_or(1);
        let missing_nodes: Vec<usize> = (0..nodes).filter(|node| !known.contains(node)).collect();
        let other_starts: BTreeSet<usize> = aside.iter().map(|part| part.record.node_rank).collect();
        let other_start_nodes: Vec<usize> = other_starts.difference(&known).copied().collect();
        let is_running = |part: &&JobPart| part.record.state == RecordState::Running;
        let lost = now.iter().filter(is_running).filter(|part| !part.goes_on);
        let lost_nodes: Vec<usize> = lost.map(|part| part.record.node_rank).collect();
        let goes_on = now.iter().filter(is_running).any(|part| part.goes_on);
        let disagreement = disagreement(&now);

        let failures = now.iter().filter_map(|part| failure(&part.record));
        let first_failure = failures.min_by_key(|(by_engine, failure)| (*by_engine, failure.time, failure.node_rank));
        let first_failure = first_failure.map(|(_, failure)| failure);
        let stopped = now.iter().map(|part| &part.record).filter(|record| record.state == RecordState::Stopped);
        let stopped = stopped.min_by_key(|record| (record.ended, record.node_rank));
        let all_succeeded = now.iter().all(|part| part.record.state == RecordState::Succeeded);
        let (state, exit_code) = match (&first_failure, stopped) {
            (Some(failure), _) => (RecordState::Failed, failure.exit_code),
            (None, _) if goes_on => (RecordState::Running, None),
            (None, _) if disagreement.is_some() => (RecordState::Failed, Some(DISAGREE)),
            (None, _) if !missing_nodes.is_empty() || !lost_nodes.is_empty() => (RecordState::Unknown, None),
            (None, Some(record)) => (RecordState::Stopped, record.exit_code),
            (None, None) if all_succeeded => (RecordState::Succeeded, Some(0)),
            (None, None) => (RecordState::Unknown, None),
        };
        Some(Self {
            schema_version: SCHEMA_VERSION,
            run_id,
            role,
            state,
            exit_code,
            restart_count,
            nodes,
            missing_nodes,
            other_start_nodes,
            unreadable_nodes: Vec::new(),
            lost_nodes,
            disagreement,
            first_failure,
            problems: Vec::new(),
            results: now.into_iter().map(|part| part.record).collect(),
        })
    }
}

/// A record's failure, if it is one, and whether it is rather the engine's stop.
fn failure(record: &RunRecord) -> Option<(bool, JobFailure)> {
    if record.state != RecordState::Failed {
        return None;
    }
    let attempt = record.attempts.last();
    // An attempt that could not be started is the failure, not one before it.
    let worker = attempt.and_then(first_worker).filter(|_| record.error.is_none()).cloned();
    let attempt = attempt.filter(|_| record.error.is_none());
    let ended = worker.as_ref().and_then(|worker| worker.ended);
    let time = ended.or(attempt.and_then(|attempt| attempt.ended)).or(record.ended).unwrap_or(record.started);
    let stop_signal = record.stop_signal.as_deref();
    let by_engine = match worker.as_ref().and_then(|worker| worker.exit.as_ref()) {
        Some(ExitRecord::Signal { number, .. }) => {
            stop_signal.is_some() && Signal::from_raw(*number).map(|signal| signal.name()).as_deref() == stop_signal
        }
        _ => false,
    };
    let stalled = attempt.and_then(|attempt| attempt.stall.as_ref());
    let stalled = stalled.map(|stall| format!("stalled: no output for {:.1} s", stall.quiet_seconds));
    // Who was told to end after a stall is not its cause.
    let worker = worker.filter(|_| stalled.is_none());
    let error = if worker.is_some() { None } else { stalled.or_else(|| record.error.clone()) };
    let (node_rank, host, exit_code) = (record.node_rank, record.host.clone(), record.exit_code);
    Some((by_engine, JobFailure { node_rank, host, time, exit_code, worker, error }))
}

/// The worker whose failure is the attempt's.
pub(super) fn first_worker(attempt: &AttemptRecord) -> Option<&WorkerRecord> {
    let of = |cause: CauseClass| {
        let workers = attempt.workers.iter().filter(move |worker| worker.cause == cause);
        workers.min_by_key(|worker| (worker.ended.is_none(), worker.ended, worker.rank))
    };
    of(CauseClass::Root).or_else(|| of(CauseClass::Failed)).or_else(|| of(CauseClass::Lost))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const SECOND: &str = "2026-12-01T10:15:00";

    /// The part of a node: its worker of local rank 1 ended so many milliseconds after the second.
    fn part(node: usize, state: &str, change: impl FnOnce(&mut Value)) -> JobPart {
        let mut record = json!({
            "schema_version": 1, "run_id": "7.0", "role": "trainer", "command": ["true"], "host": format!("host{node}"),
            "launcher_pid": 10, "nodes": 3, "node_rank": node, "restart_count": 0, "state": state,
            "started": "2026-12-01T10:00:00Z", "ended": "2026-12-01T10:16:00Z",
            "exit_code": if state == "SUCCEEDED" { 0 } else { 143 },
        });
        change(&mut record);
        JobPart { record: serde_json::from_value(record).unwrap(), goes_on: false, last_attempt: Some(0) }
    }

    fn ok(node: usize) -> JobPart {
        part(node, "SUCCEEDED", |_| {})
    }

    fn failed(node: usize, millis: u32, exit: Value, change: impl FnOnce(&mut Value)) -> JobPart {
        part(node, "FAILED", |record| {
            let time = format!("{SECOND}.{millis:03}Z");
            record["exit_code"] = exit.get("code").unwrap_or(&json!(143)).clone();
            record["attempts"] = json!([{
                "attempt": 0, "state": "FAILED", "started": "2026-12-01T10:00:00Z", "ended": "2026-12-01T10:15:30Z",
                "workers": [
                    {"rank": 2 * node, "local_rank": 0, "cause": "collateral", "ended": format!("{SECOND}.000Z")},
                    {"rank": 2 * node + 1, "local_rank": 1, "cause": "root", "ended": time, "exit": exit, "message": "why",
                     "stderr": "attempt_0/1/stderr.log"},
                ],
            }]);
            change(record);
        })
    }

    fn code(code: u8) -> Value {
        json!({"kind": "code", "code": code})
    }

    fn term() -> Value {
        json!({"kind": "signal", "signal": "SIGTERM", "number": 15, "core_dumped": false})
    }

    fn join(parts: Vec<JobPart>) -> JobRecord {
        JobRecord::join(parts, None).unwrap()
    }

    fn first(job: &JobRecord) -> (usize, Option<usize>) {
        let failure = job.first_failure.as_ref().unwrap();
        (failure.node_rank, failure.worker.as_ref().map(|worker| worker.rank))
    }

    #[test]
    fn a_job_succeeds_if_all_nodes_do() {
        let job = join(vec![ok(2), ok(0), ok(1)]);
        assert_eq!((job.state, job.exit_code, job.nodes), (RecordState::Succeeded, Some(0), 3));
        let order: Vec<usize> = job.results.iter().map(|record| record.node_rank).collect();
        assert_eq!((order, job.first_failure), (vec![0, 1, 2], None));
        assert_eq!(JobRecord::join(Vec::new(), None), None);
    }

    #[test]
    fn the_earliest_failure_of_all_nodes_is_the_first_and_gives_the_code() {
        let stopped = part(1, "STOPPED", |record| record["stop_signal"] = json!("SIGTERM"));
        let job = join(vec![failed(0, 900, code(1), |_| {}), stopped, failed(2, 100, code(7), |_| {})]);
        assert_eq!((job.state, job.exit_code, first(&job)), (RecordState::Failed, Some(7), (2, Some(5))));
        let (failure, host) = (job.first_failure.unwrap(), "host2");
        assert_eq!((failure.host.as_str(), failure.worker.unwrap().message.as_deref()), (host, Some("why")));
    }

    #[test]
    fn a_worker_that_ended_by_the_engines_signal_is_not_the_first_whatever_the_clocks_say() {
        let signalled = failed(0, 50, term(), |record| record["stop_signal"] = json!("SIGTERM"));
        let job = join(vec![signalled.clone(), failed(1, 900, code(7), |_| {}), ok(2)]);
        assert_eq!((first(&job), job.exit_code), ((1, Some(3)), Some(7)));
        // Its launcher was not stopped: somebody sent it to the worker alone.
        let of_its_own = failed(0, 50, term(), |_| {});
        assert_eq!(first(&join(vec![of_its_own, failed(1, 900, code(7), |_| {}), ok(2)])).0, 0);
        // There is no other.
        assert_eq!(first(&join(vec![signalled, ok(1), ok(2)])).0, 0);
    }

    #[test]
    fn a_start_that_failed_and_a_stall_are_failures_without_a_worker() {
        let not_started = part(1, "FAILED", |record| {
            (record["exit_code"], record["error"]) = (json!(127), json!("cannot start `x`"));
            record["ended"] = json!(format!("{SECOND}.020Z"));
        });
        let job = join(vec![failed(0, 30, code(1), |_| {}), not_started, ok(2)]);
        assert_eq!((first(&job), job.exit_code), ((1, None), Some(127)));
        assert_eq!(job.first_failure.unwrap().error.as_deref(), Some("cannot start `x`"));
        // An attempt before it had failed.
        let not_started_again = failed(1, 10, code(1), |record| {
            (record["exit_code"], record["error"]) = (json!(127), json!("cannot start `x`"));
            record["ended"] = json!(format!("{SECOND}.040Z"));
        });
        let failure = join(vec![ok(0), not_started_again, ok(2)]).first_failure.unwrap();
        assert_eq!((failure.worker, failure.error.as_deref()), (None, Some("cannot start `x`")));
        let stalled = failed(0, 30, term(), |record| {
            record["attempts"][0]["stall"] = json!({"quiet_seconds": 90.0, "processes": []});
        });
        let failure = join(vec![stalled, ok(1), ok(2)]).first_failure.unwrap();
        assert_eq!((failure.worker, failure.error.as_deref()), (None, Some("stalled: no output for 90.0 s")));
    }

    #[test]
    fn a_node_without_a_result_of_this_start_is_missing() {
        let job = join(vec![ok(0), ok(2)]);
        assert_eq!((job.state, job.exit_code, job.missing_nodes), (RecordState::Unknown, None, vec![1]));
        let again = |node| part(node, "SUCCEEDED", |record| record["restart_count"] = json!(1));
        let job = join(vec![again(0), failed(1, 0, code(7), |_| {}), again(2)]);
        assert_eq!((job.state, job.missing_nodes, job.restart_count), (RecordState::Unknown, vec![1], 1));
        assert_eq!((job.first_failure, job.other_start_nodes), (None, vec![1]), "it is of an earlier start");
    }

    #[test]
    fn of_a_start_that_nobody_wrote_anything_of_nothing_is_known() {
        let job = JobRecord::join(vec![failed(0, 0, code(85), |_| {}), ok(1), ok(2)], Some(1)).unwrap();
        assert_eq!((job.state, job.exit_code, job.restart_count), (RecordState::Unknown, None, 1));
        assert_eq!((job.first_failure.as_ref(), job.results.len(), job.nodes), (None, 0, 3));
        assert_eq!(
            job.to_string(),
            "run 7.0: not known: nodes 0-2 without a result of this start (start 2 of the job)

Nodes (3 in all):
  nodes 0-2: no result of this start: what there is is of another one
"
        );
        assert_eq!(JobRecord::join(vec![ok(0), ok(1), ok(2)], Some(0)).unwrap().state, RecordState::Succeeded);
    }

    #[test]
    fn what_a_larger_start_left_before_is_no_part_of_a_smaller_one() {
        let again = |node| {
            let mut part = part(node, "SUCCEEDED", |record| {
                (record["nodes"], record["started"]) = (json!(2), json!("2026-12-01T11:00:00Z"));
                record["ended"] = json!("2026-12-01T11:01:00Z");
            });
            part.last_attempt = Some(1);
            part
        };
        let job = join(vec![again(0), again(1), failed(2, 1, code(7), |_| {})]);
        assert_eq!((job.state, job.exit_code, job.nodes), (RecordState::Succeeded, Some(0), 2));
        assert_eq!(
            job.to_string(),
            "run 7.0: succeeded, exit code 0

Nodes (2 in all):
  nodes 0-1: succeeded, exit code 0

Left aside: node 2, whose result is of another start
"
        );
        let job = join(vec![again(0), failed(1, 1, code(7), |_| {})]);
        assert_eq!((job.state, job.missing_nodes, job.other_start_nodes), (RecordState::Unknown, vec![1], vec![1]));
    }

    #[test]
    fn nodes_that_disagree_about_the_world_size_have_not_succeeded() {
        let larger = |part: JobPart| JobPart { record: RunRecord { nodes: 4, ..part.record }, ..part };
        let job = join(vec![ok(0), larger(ok(1)), ok(2)]);
        assert_eq!((job.state, job.exit_code), (RecordState::Failed, Some(2)));
        let text = job.to_string();
        assert!(
            text.starts_with(
                "run 7.0: FAILED, exit code 2: nodes disagree about the world size\n\nNodes (4 in all):\n"
            ) && text.contains("\nDisagree: nodes 0,2: 3 nodes, node 1: 4 nodes: all need the same --nnodes and -n\n"),
            "{text}"
        );
        // A failure says more.
        let job = join(vec![larger(ok(0)), failed(1, 1, code(7), |_| {}), ok(2)]);
        assert_eq!((job.state, job.exit_code), (RecordState::Failed, Some(7)));
        assert!(job.to_string().contains("\nDisagree: "));
    }

    #[test]
    fn a_node_that_runs_makes_the_job_run_unless_its_launcher_is_gone() {
        let running = JobPart { goes_on: true, ..part(0, "RUNNING", |_| {}) };
        let job = join(vec![running.clone(), ok(1)]);
        assert_eq!((job.state, job.exit_code, job.lost_nodes), (RecordState::Running, None, vec![]));
        let job = join(vec![part(0, "RUNNING", |_| {}), ok(1), ok(2)]);
        assert_eq!((job.state, job.exit_code, job.lost_nodes), (RecordState::Unknown, None, vec![0]));
        let job = join(vec![running, failed(1, 0, code(7), |_| {})]);
        assert_eq!((job.state, job.exit_code), (RecordState::Failed, Some(7)), "the failure is known");
    }

    #[test]
    fn a_job_that_was_stopped_has_the_code_of_who_was_stopped_first() {
        let stopped = |node: usize, code: u8, ended: &str| {
            part(node, "STOPPED", |record| (record["exit_code"], record["ended"]) = (json!(code), json!(ended)))
        };
        let (early, late) = ("2026-12-01T10:16:00Z", "2026-12-01T10:17:00Z");
        let job = join(vec![stopped(0, 130, late), stopped(1, 143, early), ok(2)]);
        assert_eq!((job.state, job.exit_code), (RecordState::Stopped, Some(143)));
    }

    #[test]
    fn the_report_names_the_first_failure_the_nodes_by_their_end_and_what_is_missing() {
        let stopped = |node| {
            part(node, "STOPPED", |record| {
                (record["stop_signal"], record["nodes"]) = (json!("SIGTERM"), json!(1000));
            })
        };
        let parts = (0..998).map(|node| {
            if node == 5 { failed(5, 1, code(7), |record| record["nodes"] = json!(1000)) } else { stopped(node) }
        });
        let text = join(parts.collect()).to_string();
        assert_eq!(
            text,
            "run 7.0: FAILED, exit code 7: rank 11 on node 5 (host5): exit code 7: why

Nodes (1000 in all):
  nodes 0-4,6-997: stopped by SIGTERM, exit code 143
  node 5: FAILED, exit code 7
  nodes 998-999: no result: not started, killed, or writing elsewhere

First failure:
  time:       2026-12-01T10:15:00.001000000Z
  node:       5 (host5)
  rank:       11 (local rank 1)
  end:        exit code 7
  stderr:     node_5/attempt_0/1/stderr.log
  message:    why
  note:       times are those of each host's clock
"
        );
        let one = part(0, "SUCCEEDED", |record| record["nodes"] = json!(1));
        assert_eq!(join(vec![one]).to_string(), "run 7.0: succeeded, exit code 0\n");
    }
    /// A node that says that it runs in its second attempt, after rank 0 had failed with 3.
    fn lost(node: usize, nodes: usize) -> JobPart {
        let worker = |cause: &str| json!({"rank": 2 * node, "local_rank": 0, "pid": 70, "cause": cause});
        let mut failed = worker("root");
        failed["exit"] = code(3);
        part(node, "RUNNING", |record| {
            (record["nodes"], record["ended"], record["exit_code"]) = (json!(nodes), Value::Null, Value::Null);
            record["attempts"] = json!([
                {"attempt": 0, "state": "FAILED", "started": "2026-12-01T10:00:00Z", "workers": [failed]},
                {"attempt": 1, "state": "RUNNING", "started": "2026-12-01T10:01:00Z", "workers": [worker("running")]},
            ]);
        })
    }

    #[test]
    fn the_report_of_a_lost_launcher_says_so_and_what_is_known() {
        assert_eq!(
            join(vec![lost(0, 1)]).to_string(),
            "run 7.0: not known: its launcher was killed or lost: it left no end of the run, and does not run, as far as can be seen from here

Last known of node 0 (host0):
  launcher:   pid 10
  started:    2026-12-01T10:00:00.000000000Z
  attempt:    1, started 2026-12-01T10:01:00.000000000Z
  workers:    rank 0 ran (pid 70)
  failed:     rank 0 in attempt 0: exit code 3
"
        );
        let text = join((0..7).map(|node| lost(node, 8)).collect()).to_string();
        assert!(
            text.starts_with("run 7.0: not known: launcher of nodes 0-6 killed or lost, node 7 without a result\n"),
            "{text}"
        );
        assert!(
            text.contains("  nodes 0-6: its launcher was killed or lost") && text.contains("\n3 more nodes were lost"),
            "{text}"
        );
    }
}
