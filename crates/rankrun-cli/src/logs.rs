//! The command `rankrun logs`: shows the log files of a run. Not here: its arguments (`logs_args`), the layout and the
//! reading of files (the crate `rankrun-logs`).

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rankrun::Consoles;
use rankrun::crates::logs::{
    DrainOutcome, LogsError, Run, RunLog, SinkId, Tail, TailError, TailSource, WriteLinesError,
};

use crate::console::say;
use crate::exit_code;
use crate::logs_args::LogsArgs;

/// Longer than anybody follows: the console may take its time.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Why not everything was shown.
#[derive(Debug, thiserror::Error)]
enum ShowError {
    #[error(transparent)]
    Logs(#[from] LogsError),
    #[error("there is no rank {rank} in {}: expected {}", dir.display(), known)]
    NoRank { rank: usize, dir: PathBuf, known: String },
    #[error("there is no node {node} in {}: expected {}", dir.display(), known)]
    NoNode { node: usize, dir: PathBuf, known: String },
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    #[error(transparent)]
    Tail(#[from] TailError),
    #[error("not all was shown: {0}")]
    Incomplete(rankrun::crates::logs::IncompleteDrain),
    /// The reader has seen enough.
    #[error("nobody reads")]
    Closed,
}

/// Shows what was asked for and returns the exit code.
pub(crate) fn run(args: &LogsArgs) -> u8 {
    match show(args) {
        // A closed pipe is the reader's choice.
        Ok(()) | Err(ShowError::Closed) => exit_code::SUCCESS,
        Err(error) => {
            say(&error.to_string());
            match error {
                ShowError::NoRank { .. } | ShowError::NoNode { .. } | ShowError::Logs(LogsError::NoRun { .. }) => {
                    exit_code::USAGE
                }
                _ => exit_code::LAUNCHER_FAILED,
            }
        }
    }
}

fn show(args: &LogsArgs) -> Result<(), ShowError> {
    let mut shown: BTreeSet<PathBuf> = BTreeSet::new();
    let mut parts = open(args)?;
    // A later attempt of the run may begin while one is followed.
    loop {
        let logs: Vec<(bool, Vec<RunLog>)> = parts
            .iter()
            .map(|part| {
                let goes_on = args.follow && part.run.goes_on();
                part.run.logs().map(|logs| (goes_on, logs))
            })
            .collect::<Result<_, _>>()?;
        check_ranks(args, &parts, &logs)?;
        if logs.iter().all(|(goes_on, logs)| logs.is_empty() && !goes_on) {
            say(&format!("no output was captured in {}: use --tee or --redirects", args.dir.display()));
        }
        let mut followed = Vec::new();
        for (part, (goes_on, logs)) in parts.iter().zip(&logs) {
            let last = logs.iter().map(|log| log.attempt).max();
            let wanted = |log: &&RunLog| {
                (args.rank.is_empty() || args.rank.contains(&log.local_rank))
                    && args.stream.is_none_or(|stream| log.stream == stream.sink())
                    && !shown.contains(&log.path)
            };
            let (now, before): (Vec<&RunLog>, Vec<&RunLog>) =
                logs.iter().filter(wanted).partition(|log| *goes_on && Some(log.attempt) == last);
            let before: Vec<&RunLog> = before.into_iter().filter(|log| is_recent(log, args.since)).collect();
            write_all(part, &before)?;
            shown.extend(before.iter().chain(&now).map(|log| log.path.clone()));
            if *goes_on {
                followed.push((part, now));
            }
        }
        if followed.is_empty() {
            return Ok(());
        }
        follow(&followed)?;
        // The same run, whatever is the newest meanwhile.
        let run = parts[0].run.dir();
        let run = if parts[0].label.is_empty() { run } else { run.parent().unwrap_or(run) };
        parts = open(&LogsArgs { dir: run.to_owned(), ..args.clone() })?;
    }
}

/// A run, or a node's part of it.
struct Part {
    run: Run,
    /// Stands before the run's own prefixes; empty where there is nothing to tell apart.
    label: String,
}

impl Part {
    fn prefix(&self, log: &RunLog) -> String {
        format!("{}{}", self.label, self.run.line_prefix(log.local_rank, log.stream))
    }
}

fn open(args: &LogsArgs) -> Result<Vec<Part>, ShowError> {
    let runs = Run::open_nodes(&args.dir)?;
    let nodes: BTreeSet<usize> = runs.iter().filter_map(Run::node).collect();
    if let Some(node) = args.node.iter().find(|node| !nodes.contains(node)) {
        let known = match (nodes.first(), nodes.last()) {
            (Some(first), Some(last)) => format!("one of its {} nodes, from {first} to {last}", nodes.len()),
            _ => "none, as it is a run of one host".to_owned(),
        };
        return Err(ShowError::NoNode { node: *node, dir: args.dir.clone(), known });
    }
    let is_shared = runs.len() > 1 || runs.iter().any(|run| run.node().is_some() && run.dir() != args.dir);
    let label = |run: &Run| run.node().filter(|_| is_shared).map_or(String::new(), |node| format!("node_{node} "));
    let wanted = |run: &Run| args.node.is_empty() || run.node().is_some_and(|node| args.node.contains(&node));
    Ok(runs.into_iter().filter(wanted).map(|run| Part { label: label(&run), run }).collect())
}

fn is_recent(log: &RunLog, since: Option<SystemTime>) -> bool {
    since.is_none_or(|since| log.modified >= since)
}

fn check_ranks(args: &LogsArgs, parts: &[Part], logs: &[(bool, Vec<RunLog>)]) -> Result<(), ShowError> {
    let size = parts.iter().filter_map(|part| part.run.info()).map(|info| info.local_world_size).max();
    let captured: BTreeSet<usize> = logs.iter().flat_map(|(_, logs)| logs).map(|log| log.local_rank).collect();
    let known = |rank: usize| size.is_some_and(|size| rank < size) || captured.contains(&rank);
    match args.rank.iter().find(|rank| !known(**rank)) {
        None => Ok(()),
        Some(rank) => {
            let last = size.map(|size| size.saturating_sub(1)).or(captured.last().copied());
            let known = last.map_or("none".to_owned(), |last| format!("0 to {last}"));
            Err(ShowError::NoRank { rank: *rank, dir: args.dir.clone(), known })
        }
    }
}

/// Writes what files have now, one after the other.
fn write_all(part: &Part, logs: &[&RunLog]) -> Result<(), ShowError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::BrokenPipe => ShowError::Closed,
        _ => ShowError::Output(error),
    };
    let mut out = BufWriter::with_capacity(64 * 1024, io::stdout().lock());
    for log in logs {
        match log.write_lines(part.prefix(log).as_bytes(), &mut out) {
            Ok(()) => {}
            Err(WriteLinesError::Write { source, .. }) => return Err(failed(source)),
            Err(WriteLinesError::Read(error)) => return Err(error.into()),
            Err(error) => return Err(failed(io::Error::other(error))),
        }
    }
    out.flush().map_err(failed)
}

/// Shows lines as they come until the run, or its attempt, has ended on all nodes.
fn follow(parts: &[(&Part, Vec<&RunLog>)]) -> Result<(), ShowError> {
    let stdout = || io::stdout().as_fd().try_clone_to_owned();
    let logs = parts.iter().flat_map(|(part, logs)| logs.iter().map(move |log| (part, log)));
    let sources = logs.map(|(part, log)| TailSource {
        path: log.path.clone(),
        prefix: part.prefix(log).into(),
        sink: SinkId::Stdout,
    });
    let consoles =
        Consoles { stdout: stdout().map_err(ShowError::Output)?, stderr: stdout().map_err(ShowError::Output)? };
    let tail = Tail::start(sources.collect(), consoles)?;
    wait_for_end_or_reader(parts.iter().map(|(part, _)| part.run.clone()).collect())?;
    let deadline = Instant::now() + FOR_EVER;
    tail.finish(Duration::ZERO, deadline);
    match tail.wait(deadline) {
        DrainOutcome::Complete => Ok(()),
        DrainOutcome::Incomplete { why } => Err(ShowError::Incomplete(why)),
    }
}

/// Waits for the end of all; a reader that goes away before is [`ShowError::Closed`].
fn wait_for_end_or_reader(runs: Vec<Run>) -> Result<(), ShowError> {
    let (ended, end) = io::pipe().map_err(ShowError::Output)?;
    let waiting = std::thread::spawn(move || {
        let outcome = runs.iter().try_for_each(Run::wait_for_end);
        drop(end);
        outcome
    });
    let stdout = io::stdout();
    loop {
        // Asked for nothing, poll(2) tells of a pipe whose reader has gone.
        let mut fds = [PollFd::new(ended.as_fd(), PollFlags::POLLIN), PollFd::new(stdout.as_fd(), PollFlags::empty())];
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(ShowError::Output(errno.into())),
            Ok(_) if fds[0].any() == Some(true) => break,
            Ok(_) => return Err(ShowError::Closed),
        }
    }
    // A panic of it would have been shown.
    Ok(waiting.join().unwrap_or(Ok(()))?)
}
