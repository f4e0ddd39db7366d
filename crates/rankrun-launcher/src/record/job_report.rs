//! What became of a job, for people: the `Display` of [`JobRecord`]. Not here: finding it out (`job`).

use std::fmt;

use rankrun::crates::types::{escape_block, escape_line, ranges};

use super::job::{JobFailure, JobRecord, first_worker};
use super::run_record::{CauseClass, ExitRecord, RecordState, RunRecord, WorkerRecord};
use super::time;

/// What is said of a node whose record says that it runs, where nothing holds the lock on its `run.json`.
const LOST: &str =
    "its launcher was killed or lost: it left no end of the run, and does not run, as far as can be seen from here";

/// Of how many lost nodes all that is known is shown.
const MOST_LOST: usize = 4;

impl fmt::Display for JobRecord {
    /// First what it comes to, in one line; then the nodes, those with the same end together; then the failure.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (run_id, state) = (escape_line(&self.run_id), state(self.state));
        write!(f, "run {run_id}: {state}")?;
        if let Some(code) = self.exit_code {
            write!(f, ", exit code {code}")?;
        }
        if let Some(failure) = &self.first_failure {
            write!(f, ": {}", failure.short())?;
        } else if self.state == RecordState::Failed && self.disagreement.is_some() {
            write!(f, ": nodes disagree about the world size")?;
        } else if self.state == RecordState::Unknown {
            write!(f, "{}", self.why_unknown())?;
        }
        if self.restart_count > 0 {
            write!(f, " (start {} of the job)", self.restart_count + 1)?;
        }
        if self.nodes > 1 {
            writeln!(f, "\n\nNodes ({} in all):", self.nodes)?;
            for (members, text) in self.groups() {
                writeln!(f, "  {}: {text}", ranges("node", members))?;
            }
        } else {
            writeln!(f)?;
        }
        if let Some(failure) = &self.first_failure {
            writeln!(f, "\nFirst failure:")?;
            failure.details(f, if self.nodes > 1 { format!("node_{}/", failure.node_rank) } else { String::new() })?;
            if self.nodes > 1 {
                writeln!(f, "  note:       times are those of each host's clock")?;
            }
        }
        if let Some(what) = &self.disagreement {
            writeln!(f, "\nDisagree: {}: all need the same --nnodes and -n", escape_line(what))?;
        }
        let beyond: Vec<usize> = self.other_start_nodes.iter().copied().filter(|node| *node >= self.nodes).collect();
        if !beyond.is_empty() {
            writeln!(f, "\nLeft aside: {}, whose result is of another start", ranges("node", beyond))?;
        }
        self.last_known(f)?;
        for problem in &self.problems {
            writeln!(f, "\n{}", escape_line(problem))?;
        }
        Ok(())
    }
}

impl JobRecord {
    /// What became of the nodes: those with the same end together, in the order of the first of each.
    fn groups(&self) -> Vec<(Vec<usize>, String)> {
        let ended = self.results.iter().filter(|record| !self.lost_nodes.contains(&record.node_rank));
        let mut nodes: Vec<(usize, String)> = ended.map(|record| (record.node_rank, end(record))).collect();
        nodes.extend(self.lost_nodes.iter().map(|node| (*node, LOST.to_owned())));
        nodes.extend(self.missing_nodes.iter().map(|node| {
            let text = match node {
                node if self.unreadable_nodes.contains(node) => "its result cannot be read, see below",
                node if self.other_start_nodes.contains(node) => {
                    "no result of this start: what there is is of another one"
                }
                _ => "no result: not started, killed, or writing elsewhere",
            };
            (*node, text.to_owned())
        }));
        nodes.sort();
        let mut groups: Vec<(Vec<usize>, String)> = Vec::new();
        for (node, text) in nodes {
            match groups.iter_mut().find(|(_, known)| *known == text) {
                Some((members, _)) => members.push(node),
                None => groups.push((vec![node], text)),
            }
        }
        groups
    }

    /// Why a state is not known, after it.
    fn why_unknown(&self) -> String {
        let mut why = Vec::new();
        match self.lost_nodes.as_slice() {
            [] => {}
            [_] if self.nodes == 1 => why.push(LOST.to_owned()),
            nodes => why.push(format!("launcher of {} killed or lost", ranges("node", nodes.iter().copied()))),
        }
        if !self.missing_nodes.is_empty() {
            let of = if self.other_start_nodes.is_empty() { "" } else { " of this start" };
            match self.nodes {
                1 => why.push(format!("there is no result{of}")),
                _ => why.push(format!("{} without a result{of}", ranges("node", self.missing_nodes.iter().copied()))),
            }
        }
        if why.is_empty() { String::new() } else { format!(": {}", why.join(", ")) }
    }

    /// What lost nodes had written before.
    fn last_known(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost = self.results.iter().filter(|record| self.lost_nodes.contains(&record.node_rank));
        for record in lost.take(MOST_LOST) {
            let host = escape_line(&record.host);
            writeln!(f, "\nLast known of node {} ({host}):", record.node_rank)?;
            writeln!(f, "  launcher:   pid {}", record.launcher_pid)?;
            writeln!(f, "  started:    {}", time::text(record.started))?;
            let Some(last) = record.attempts.last() else { continue };
            if record.attempts.len() > 1 {
                writeln!(f, "  attempt:    {}, started {}", last.attempt, time::text(last.started))?;
            }
            for (cause, what) in [(CauseClass::Running, "ran"), (CauseClass::NotStarted, "not started")] {
                let workers = last.workers.iter().filter(|worker| worker.cause == cause);
                let members: Vec<usize> = workers.clone().map(|worker| worker.rank).collect();
                if members.is_empty() {
                    continue;
                }
                let pids: Vec<usize> = workers.filter_map(|worker| worker.pid?.try_into().ok()).collect();
                let pids = if pids.is_empty() { String::new() } else { format!(" ({})", ranges("pid", pids)) };
                writeln!(f, "  workers:    {} {what}{pids}", ranges("rank", members))?;
            }
            let failed =
                record.attempts.iter().rev().find_map(|attempt| Some((attempt.attempt, first_worker(attempt)?)));
            if let Some((attempt, worker)) = failed {
                writeln!(f, "  failed:     rank {} in attempt {attempt}: {}", worker.rank, short(worker))?;
            }
        }
        match self.lost_nodes.len().saturating_sub(MOST_LOST) {
            0 => Ok(()),
            more => writeln!(f, "\n{more} more nodes were lost: result.json of each has what it had written"),
        }
    }
}

fn state(state: RecordState) -> &'static str {
    match state {
        RecordState::Running => "running",
        RecordState::Succeeded => "succeeded",
        RecordState::Failed => "FAILED",
        RecordState::Stopped => "stopped",
        RecordState::Unknown => "not known",
    }
}

/// How a node ended, without what only it has.
fn end(record: &RunRecord) -> String {
    let by = record.stop_signal.as_deref().filter(|_| record.state == RecordState::Stopped);
    let by = by.map_or(String::new(), |signal| format!(" by {}", escape_line(signal)));
    let code = record.exit_code.map_or(String::new(), |code| format!(", exit code {code}"));
    format!("{}{by}{code}", state(record.state))
}

impl JobFailure {
    /// In a line.
    fn short(&self) -> String {
        let host = escape_line(&self.host);
        match (&self.worker, &self.error) {
            (Some(worker), _) => {
                format!("rank {} on node {} ({host}): {}", worker.rank, self.node_rank, short(worker))
            }
            (None, Some(error)) => format!("node {} ({host}): {}", self.node_rank, first_line(error)),
            (None, None) => format!("node {} ({host})", self.node_rank),
        }
    }

    /// All that is known. `dir`: where the node's relative paths begin.
    fn details(&self, f: &mut fmt::Formatter<'_>, dir: String) -> fmt::Result {
        writeln!(f, "  time:       {}", time::text(self.time))?;
        writeln!(f, "  node:       {} ({})", self.node_rank, escape_line(&self.host))?;
        if let Some(error) = &self.error {
            indented(f, "error:", error)?;
        }
        let Some(worker) = &self.worker else { return Ok(()) };
        let WorkerRecord { rank, local_rank, .. } = worker;
        writeln!(f, "  rank:       {rank} (local rank {local_rank})")?;
        if let Some(how) = &worker.exit {
            let pid = worker.pid.map_or(String::new(), |pid| format!(", pid {pid}"));
            writeln!(f, "  end:        {}{pid}", exit(how))?;
        }
        for (name, path) in
            [("error file:", &worker.error_file), ("stdout:", &worker.stdout), ("stderr:", &worker.stderr)]
        {
            if let Some(path) = path {
                let dir = if path.starts_with('/') { "" } else { &dir };
                writeln!(f, "  {name:11} {dir}{}", escape_line(path))?;
            }
        }
        if let Some(message) = message(worker).filter(|message| !message.is_empty()) {
            indented(f, "message:", message)?;
        }
        if let Some(traceback) = &worker.traceback {
            indented(f, "traceback:", traceback)?;
        } else if !worker.tail.is_empty() {
            let stream =
                worker.tail_stream.as_deref().map_or(String::new(), |stream| format!(" of {}", escape_line(stream)));
            indented(f, &format!("last lines{stream}:"), &worker.tail.join("\n"))?;
        }
        Ok(())
    }
}

/// A text of several lines below its name; one line beside it.
fn indented(f: &mut fmt::Formatter<'_>, name: &str, text: &str) -> fmt::Result {
    let text = escape_block(text.trim_end());
    if !text.contains('\n') && name.len() < 12 {
        return writeln!(f, "  {name:11} {text}");
    }
    writeln!(f, "  {name}")?;
    text.lines().try_for_each(|line| writeln!(f, "    {line}"))
}

/// How a worker failed, in a line.
fn short(worker: &WorkerRecord) -> String {
    let what = worker.exit.as_ref().map_or_else(|| "failed".to_owned(), exit);
    match first_line(message(worker).unwrap_or_default()) {
        message if what.contains(&message) => what,
        message => format!("{what}: {message}"),
    }
}

/// The worker's message, if it says more than how it ended.
fn message(worker: &WorkerRecord) -> Option<&str> {
    let ended = match worker.exit.as_ref() {
        Some(ExitRecord::Code { code }) => format!("exited with code {code}"),
        _ => String::new(),
    };
    worker.message.as_deref().filter(|message| *message != ended)
}

fn exit(exit: &ExitRecord) -> String {
    match exit {
        ExitRecord::Code { code } => format!("exit code {code}"),
        ExitRecord::Signal { signal, core_dumped, .. } => {
            format!("{}{}", escape_line(signal), if *core_dumped { ", core dumped" } else { "" })
        }
        ExitRecord::Lost => "its exit status was lost".to_owned(),
        ExitRecord::Unknown => "ended in a way that is not known here".to_owned(),
    }
}

fn first_line(text: &str) -> String {
    const MOST: usize = 200;
    let line = text.trim().lines().next().unwrap_or_default();
    let short: String = line.chars().take(MOST).collect();
    escape_line(&short)
}
