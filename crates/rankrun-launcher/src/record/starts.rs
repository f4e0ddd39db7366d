//! Which of the nodes' records are of one start of the job, and whether those agree: [`of_one_start`], [`disagreement`],
//! pure. Not here: what they come to (`job`).

use std::cmp::Reverse;
use std::time::SystemTime;

use rankrun::crates::types::ranges;

use super::job::JobPart;
use super::run_record::RunRecord;

/// The parts of a job by their start.
#[derive(Debug)]
pub(super) struct OneStart {
    /// `TORCHELASTIC_RESTART_COUNT` of the start.
    pub(super) restart_count: u64,
    /// Those of it, by node, one of each.
    pub(super) now: Vec<JobPart>,
    /// Those of others.
    pub(super) aside: Vec<JobPart>,
}

/// Takes the parts of one start: the one with this count of restarts, else the newest; `None` if there are no parts at all.
///
/// Where nobody counts the starts, a part is of an earlier one if it had ended before the one that began last did begin, and
/// its node had been started another number of times, or for a job of another size. Each of that alone proves nothing: nodes
/// need not begin together, one may have been forgotten at first.
pub(super) fn of_one_start(parts: Vec<JobPart>, restart_count: Option<u64>) -> Option<OneStart> {
    let newest = parts.iter().map(|part| part.record.restart_count).max()?;
    let restart_count = restart_count.unwrap_or(newest);
    let (mut now, mut aside): (Vec<JobPart>, Vec<JobPart>) =
        parts.into_iter().partition(|part| part.record.restart_count == restart_count);
    now.sort_by_key(|part| (part.record.node_rank, Reverse(part.record.started)));
    now.dedup_by_key(|part| part.record.node_rank);
    if let Some(last) = now.iter().max_by_key(|part| part.record.started).cloned() {
        let (of_it, earlier): (Vec<JobPart>, Vec<JobPart>) = now.into_iter().partition(|part| !is_before(part, &last));
        now = of_it;
        aside.extend(earlier);
    }
    Some(OneStart { restart_count, now, aside })
}

fn is_before(part: &JobPart, last: &JobPart) -> bool {
    let is_other = part.last_attempt != last.last_attempt || part.record.nodes != last.record.nodes;
    is_other && !part.goes_on && last_heard_of(&part.record) < last.record.started
}

/// When the launcher ended, or, if it left no end, was known to run.
fn last_heard_of(record: &RunRecord) -> SystemTime {
    let attempt = record.attempts.last().map(|attempt| attempt.ended.unwrap_or(attempt.started));
    record.ended.or(attempt).unwrap_or(record.started)
}

/// What the nodes of one start do not agree about: how many there are, or how many workers each has. Of a node whose workers
/// were not started only the former is known.
pub(super) fn disagreement(parts: &[JobPart]) -> Option<String> {
    let mut sizes: Vec<(usize, usize, Vec<usize>)> = Vec::new();
    for record in parts.iter().map(|part| &part.record) {
        let workers = record.attempts.last().map_or(0, |attempt| attempt.workers.len());
        match sizes.iter_mut().find(|(nodes, known, _)| (*nodes, *known) == (record.nodes, workers)) {
            Some((.., members)) => members.push(record.node_rank),
            None => sizes.push((record.nodes, workers, vec![record.node_rank])),
        }
    }
    let differs = |of: fn(&(usize, usize, Vec<usize>)) -> usize| {
        let mut known: Vec<usize> = sizes.iter().map(of).filter(|size| *size > 0).collect();
        known.sort_unstable();
        known.dedup();
        known.len() > 1
    };
    if !differs(|(nodes, ..)| *nodes) && !differs(|(_, workers, _)| *workers) {
        return None;
    }
    let said = sizes.iter().map(|(nodes, workers, members)| {
        let of = ranges("node", members.iter().copied());
        match workers {
            0 => format!("{of}: {nodes} nodes"),
            1 => format!("{of}: WORLD_SIZE={nodes} ({nodes} nodes with 1 worker each)"),
            _ => format!("{of}: WORLD_SIZE={} ({nodes} nodes with {workers} workers each)", nodes * workers),
        }
    });
    Some(said.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::json;

    use super::*;

    /// A node's part of a job of `nodes`, in seconds; `attempt` counts its starts.
    fn part(node: usize, nodes: usize, attempt: u64, started: u64, ended: Option<u64>) -> JobPart {
        let record = json!({
            "schema_version": 1, "run_id": "x", "role": "r", "command": [], "host": "h", "launcher_pid": 1,
            "nodes": nodes, "node_rank": node, "state": "RUNNING", "started": "2026-12-01T10:00:00Z",
        });
        let mut record: RunRecord = serde_json::from_value(record).unwrap();
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        (record.started, record.ended) = (at(started), ended.map(at));
        JobPart { record, goes_on: ended.is_none(), last_attempt: Some(attempt) }
    }

    /// The nodes that count, and those that were left aside.
    fn sorted(parts: Vec<JobPart>) -> (Vec<usize>, Vec<usize>) {
        let nodes = |parts: &[JobPart]| parts.iter().map(|part| part.record.node_rank).collect::<Vec<_>>();
        let start = of_one_start(parts, None).unwrap();
        (nodes(&start.now), nodes(&start.aside))
    }

    #[test]
    fn a_record_is_of_an_earlier_start_if_it_had_ended_before_and_its_node_was_started_another_number_of_times() {
        // The same number: whoever starts nodes by hand takes his time.
        assert_eq!(sorted(vec![part(0, 2, 0, 10, Some(20)), part(1, 2, 0, 90, Some(95))]), (vec![0, 1], vec![]));
        // Only node 0 was started again.
        assert_eq!(sorted(vec![part(0, 2, 1, 30, Some(40)), part(1, 2, 0, 10, Some(20))]), (vec![0], vec![1]));
        // Node 0 had been started alone often, and was not this time.
        assert_eq!(
            sorted(vec![part(0, 3, 5, 10, Some(20)), part(1, 3, 0, 90, Some(95)), part(2, 3, 0, 91, None)]),
            (vec![1, 2], vec![0])
        );
        // Node 1 was forgotten at first; then both ran at once.
        assert_eq!(sorted(vec![part(0, 2, 1, 30, Some(40)), part(1, 2, 0, 33, Some(41))]), (vec![0, 1], vec![]));
        assert_eq!(sorted(vec![part(0, 2, 1, 30, None), part(1, 2, 0, 33, Some(41))]), (vec![0, 1], vec![]));
    }

    #[test]
    fn a_job_of_another_size_that_was_over_before_is_another_start() {
        let again = vec![part(0, 2, 1, 30, Some(40)), part(1, 2, 1, 31, Some(40)), part(2, 3, 0, 10, Some(20))];
        assert_eq!(sorted(again), (vec![0, 1], vec![2]));
        assert_eq!(sorted(vec![part(0, 2, 0, 30, Some(40)), part(1, 3, 0, 10, Some(20))]), (vec![0], vec![1]));
        // At once they are one start that disagrees.
        assert_eq!(sorted(vec![part(0, 2, 0, 10, Some(40)), part(1, 3, 0, 11, Some(20))]), (vec![0, 1], vec![]));
    }

    #[test]
    fn the_engines_count_decides_alone_where_it_differs_and_one_can_be_asked_for() {
        let counted = |count, started, ended| {
            let mut part = part(0, 1, count, started, ended);
            part.record.restart_count = count;
            part
        };
        let both = || vec![counted(0, 10, Some(20)), counted(2, 15, Some(20))];
        assert_eq!(of_one_start(both(), None).unwrap().restart_count, 2);
        for (asked, now, aside) in [(0, 1, 1), (1, 0, 2), (2, 1, 1), (3, 0, 2)] {
            let start = of_one_start(both(), Some(asked)).unwrap();
            assert_eq!((start.restart_count, start.now.len(), start.aside.len()), (asked, now, aside));
        }
        assert!(of_one_start(Vec::new(), Some(1)).is_none());
    }

    #[test]
    fn nodes_that_disagree_are_named_with_what_each_says() {
        let with = |node, nodes, workers: usize| {
            let mut part = part(node, nodes, 0, 10, Some(20));
            let worker = json!({"rank": 0, "local_rank": 0, "cause": "succeeded"});
            let attempt = json!({"attempt": 0, "state": "RUNNING", "started": "2026-12-01T10:00:00Z", "workers": vec![worker; workers]});
            part.record.attempts.extend((workers > 0).then(|| serde_json::from_value(attempt).unwrap()));
            part
        };
        assert_eq!(disagreement(&[with(0, 2, 2), with(1, 2, 2)]), None);
        assert_eq!(disagreement(&[with(0, 2, 2), with(1, 2, 0)]), None);
        assert_eq!(
            disagreement(&[with(0, 3, 1), with(1, 3, 2), with(2, 3, 1)]).as_deref(),
            Some(
                "nodes 0,2: WORLD_SIZE=3 (3 nodes with 1 worker each), node 1: WORLD_SIZE=6 (3 nodes with 2 workers each)"
            )
        );
        assert_eq!(
            disagreement(&[with(0, 2, 2), with(1, 3, 0)]).as_deref(),
            Some("node 0: WORLD_SIZE=4 (2 nodes with 2 workers each), node 1: 3 nodes")
        );
    }
}
