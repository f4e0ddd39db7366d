//! The command `rankrun logs`: shows the log files of a run. Not here: its arguments (`logs_args`), the layout and the
//! reading of files (the crate `rankrun-logs`).

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rankrun::crates::logs::{LinePrefix, LogsError, Run, RunLog, RunPhase, RunTail, TerminalSize, WriteLinesError};
use rankrun::crates::types::{escape_line, escape_os_str};

use crate::console::say;
use crate::exit_code;
use crate::logs_args::{HELP, LogsArgs};
use crate::output::OutputEnv;
use crate::places;

/// What most terminals have that do not say how wide they are.
const USUAL_COLUMNS: usize = 80;

/// Enough lines for one write.
const PIECE: usize = 64 * 1024;

/// The time between two looks at a run that prepares an attempt, in milliseconds: nothing tells of that.
const REST: u8 = 50;

/// Why not everything was shown.
#[derive(Debug, thiserror::Error)]
enum ShowError {
    #[error(transparent)]
    Logs(#[from] LogsError),
    #[error("invalid value '{}' for '--rank': there is no rank {rank} in {}: expected local ranks, those on one host: {}", escape_line(.text), escape_os_str(dir.as_os_str()), known)]
    NoRank { text: String, rank: usize, dir: PathBuf, known: String },
    #[error("invalid value '{}' for '--node': there is no node {node} in {}: expected {}", escape_line(.text), escape_os_str(dir.as_os_str()), known)]
    NoNode { text: String, node: usize, dir: PathBuf, known: String },
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
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
            let (text, code) = match &error {
                ShowError::NoRank { .. } | ShowError::NoNode { .. } => (error.to_string(), exit_code::USAGE),
                ShowError::Logs(error) => places::run_dir(&args.dir, error, HELP),
                _ => (error.to_string(), exit_code::LAUNCHER_FAILED),
            };
            say(&text);
            code
        }
    }
}

fn show(args: &LogsArgs) -> Result<(), ShowError> {
    let mut shown: BTreeSet<PathBuf> = BTreeSet::new();
    let mut console = Console::new(args);
    let mut parts = open(args)?;
    let mut missing_was_said = false;
    let mut unreadable = Unreadable::default();
    // A later attempt of the run may begin while one is followed.
    loop {
        let look = |part: &Part| {
            let phase = if args.follow { part.run.phase() } else { RunPhase::Over };
            let (logs, errors) = part.run.readable_logs();
            errors.into_iter().for_each(|error| unreadable.add(error));
            let last = logs.iter().map(|log| log.attempt).max();
            (stage(phase, part.run.info().and_then(|info| info.attempt), last), logs)
        };
        let logs: Vec<(Stage, Vec<RunLog>)> = parts.iter().map(look).collect();
        if logs.iter().any(|(stage, _)| *stage == Stage::Starting) {
            rest()?;
            parts = reopen(args, &parts)?;
            continue;
        }
        check_ranks(args, &parts, &logs)?;
        let all: Vec<&RunLog> = logs.iter().flat_map(|(_, logs)| logs).collect();
        // Files of a run that goes on may be still to come.
        if !missing_was_said
            && unreadable.0.is_empty()
            && (!all.is_empty() || logs.iter().all(|(stage, _)| *stage == Stage::Over))
            && let Some(missing) = not_captured(args, &all)
        {
            say(&missing);
            missing_was_said = true;
        }
        console.align(parts.iter().zip(&logs).flat_map(|(part, (_, logs))| {
            logs.iter().filter(|log| is_wanted(args, log)).map(move |log| part.prefix(log).width())
        }));
        let mut followed = Vec::new();
        for (part, (stage, logs)) in parts.iter().zip(&logs) {
            let wanted = |log: &&RunLog| is_wanted(args, log) && !shown.contains(&log.path);
            let now = |log: &RunLog| matches!(stage, Stage::Attempt(attempt) if *attempt <= Some(log.attempt));
            let (now, before): (Vec<&RunLog>, Vec<&RunLog>) = logs.iter().filter(wanted).partition(|log| now(log));
            let before: Vec<&RunLog> = before.into_iter().filter(|log| is_recent(log, args.since)).collect();
            write_all(part, &before, &console, &mut unreadable)?;
            shown.extend(before.iter().chain(&now).map(|log| log.path.clone()));
            if matches!(stage, Stage::Attempt(_)) {
                followed.push((part, now));
            }
        }
        if logs.iter().all(|(stage, _)| *stage == Stage::Over) {
            return unreadable.end();
        }
        if followed.is_empty() {
            rest()?;
        } else {
            follow(&followed, &console)?;
        }
        parts = reopen(args, &parts)?;
    }
}

/// What cannot be read, each said once when the rest has been shown.
#[derive(Default)]
struct Unreadable(Vec<LogsError>);

impl Unreadable {
    fn add(&mut self, error: LogsError) {
        if !self.0.iter().any(|known| known.to_string() == error.to_string()) {
            self.0.push(error);
        }
    }

    /// All are said but the last, which is the outcome.
    fn end(mut self) -> Result<(), ShowError> {
        let last = self.0.pop();
        self.0.iter().for_each(|error| say(&error.to_string()));
        last.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// What a part of a run does, as far as its files go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Files of an attempt are being made; what is there now would be taken for all of it.
    Starting,
    /// This attempt goes on, and earlier ones are complete; `None` where all that is there may be of it.
    Attempt(Option<u64>),
    /// All files are complete, and others may follow.
    Resting,
    Over,
}

/// `attempt`: which one the run says it is at; `last`: the last one that has files.
fn stage(phase: RunPhase, attempt: Option<u64>, last: Option<u64>) -> Stage {
    match phase {
        RunPhase::Over => Stage::Over,
        RunPhase::Attempt if attempt.is_none() => Stage::Attempt(last),
        // It was read before the phase, and is of the attempt before.
        RunPhase::Attempt | RunPhase::Between if last > attempt => Stage::Starting,
        RunPhase::Attempt => Stage::Attempt(attempt),
        RunPhase::Between if attempt.is_none() => Stage::Starting,
        RunPhase::Between => Stage::Resting,
    }
}

/// Waits a moment, or finds that nobody reads any more.
fn rest() -> Result<(), ShowError> {
    let stdout = io::stdout();
    // Asked for nothing, poll(2) tells of a pipe whose reader has gone.
    let mut fds = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    match poll(&mut fds, PollTimeout::from(REST)) {
        Ok(0) | Err(Errno::EINTR) => Ok(()),
        Ok(_) => Err(ShowError::Closed),
        Err(errno) => Err(ShowError::Output(errno.into())),
    }
}

/// The same run as before, whatever is the newest meanwhile.
fn reopen(args: &LogsArgs, parts: &[Part]) -> Result<Vec<Part>, ShowError> {
    let run = parts[0].run.dir();
    let run = if parts[0].label.is_empty() { run } else { run.parent().unwrap_or(run) };
    open(&LogsArgs { dir: run.to_owned(), ..args.clone() })
}

fn is_wanted(args: &LogsArgs, log: &RunLog) -> bool {
    is_of_rank(args, log) && args.stream.is_none_or(|stream| log.stream == stream.sink())
}

fn is_of_rank(args: &LogsArgs, log: &RunLog) -> bool {
    args.rank.is_empty() || args.rank.contains(&log.local_rank)
}

/// Says why nothing can be shown, where there is no file of what was asked for.
fn not_captured(args: &LogsArgs, logs: &[&RunLog]) -> Option<String> {
    if logs.iter().any(|log| is_wanted(args, log)) {
        return None;
    }
    let dir = args.dir.display();
    let of_ranks = if args.rank.is_empty() { "" } else { " of --rank" };
    let other = args.stream.filter(|_| logs.iter().any(|log| is_of_rank(args, log)));
    Some(match other {
        Some(stream) => {
            let (stream, other) = (stream.sink(), stream.other().sink());
            format!("no {stream}{of_ranks} was captured in {dir}, only {other}: use --tee or --redirects with 3")
        }
        None => format!("no output{of_ranks} was captured in {dir}: use --tee or --redirects"),
    })
}

/// Standard output, and how lines look there.
struct Console {
    colored: bool,
    is_terminal: bool,
    /// Progress bars are shown while they grow.
    live: bool,
    /// How many columns prefixes take at least: on a terminal as many as the widest.
    columns: usize,
}

impl Console {
    fn new(args: &LogsArgs) -> Self {
        let (stdout, env) = (io::stdout(), OutputEnv::of_this_process());
        let is_terminal = stdout.is_terminal();
        Self {
            colored: args.color.holds_for(&stdout, &env),
            is_terminal,
            live: is_terminal && !env.is_dumb(),
            columns: 0,
        }
    }

    fn align(&mut self, widths: impl Iterator<Item = usize>) {
        if self.is_terminal {
            self.columns = widths.max().unwrap_or(0);
        }
    }

    fn prefix(&self, part: &Part, log: &RunLog) -> Vec<u8> {
        part.prefix(log).to_bytes(self.colored, self.columns)
    }
}

/// Standard output without a buffer that keeps half of a line; waits where it takes nothing now.
struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stdout = io::stdout();
        loop {
            match nix::unistd::write(stdout.as_fd(), bytes) {
                Ok(count) => return Ok(count),
                Err(Errno::EINTR) => {}
                // Who shares the terminal or pipe may have made it so.
                Err(Errno::EAGAIN) => {
                    let mut fds = [PollFd::new(stdout.as_fd(), PollFlags::POLLOUT)];
                    // What is wrong with it the next write says.
                    let _ = poll(&mut fds, PollTimeout::NONE);
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_failed(error: io::Error) -> ShowError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => ShowError::Closed,
        _ => ShowError::Output(error),
    }
}

/// A run, or a node's part of it.
struct Part {
    run: Run,
    /// Stands before the run's own prefixes; empty where there is nothing to tell apart.
    label: String,
}

impl Part {
    fn prefix(&self, log: &RunLog) -> LinePrefix {
        let text = format!("{}{}", self.label, self.run.line_prefix(log.local_rank, log.stream));
        LinePrefix::from(text.as_str()).color(log.local_rank)
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
        return Err(ShowError::NoNode { text: args.node.text.clone(), node: *node, dir: args.dir.clone(), known });
    }
    let is_shared = runs.len() > 1 || runs.iter().any(|run| run.node().is_some() && run.dir() != args.dir);
    let label = |run: &Run| run.node().filter(|_| is_shared).map_or(String::new(), |node| format!("node_{node} "));
    let wanted = |run: &Run| args.node.is_empty() || run.node().is_some_and(|node| args.node.contains(&node));
    Ok(runs.into_iter().filter(wanted).map(|run| Part { label: label(&run), run }).collect())
}

fn is_recent(log: &RunLog, since: Option<SystemTime>) -> bool {
    since.is_none_or(|since| log.modified >= since)
}

fn check_ranks(args: &LogsArgs, parts: &[Part], logs: &[(Stage, Vec<RunLog>)]) -> Result<(), ShowError> {
    let size = parts.iter().filter_map(|part| part.run.info()).map(|info| info.local_world_size).max();
    let captured: BTreeSet<usize> = logs.iter().flat_map(|(_, logs)| logs).map(|log| log.local_rank).collect();
    let known = |rank: usize| size.is_some_and(|size| rank < size) || captured.contains(&rank);
    match args.rank.iter().find(|rank| !known(**rank)) {
        None => Ok(()),
        Some(rank) => {
            let last = size.map(|size| size.saturating_sub(1)).or(captured.last().copied());
            let known = last.map_or("none".to_owned(), |last| format!("0 to {last}"));
            Err(ShowError::NoRank { text: args.rank.text.clone(), rank: *rank, dir: args.dir.clone(), known })
        }
    }
}

/// Writes what files have now, one after the other.
fn write_all(part: &Part, logs: &[&RunLog], console: &Console, unreadable: &mut Unreadable) -> Result<(), ShowError> {
    for log in logs {
        match log.write_lines(&console.prefix(part, log), &mut Stdout) {
            Ok(()) => {}
            Err(WriteLinesError::Write { source, .. }) => return Err(write_failed(source)),
            Err(WriteLinesError::Read(error)) => unreadable.add(error),
            Err(error) => return Err(write_failed(io::Error::other(error))),
        }
    }
    Ok(())
}

/// Shows lines as they come until the run, or its attempt, has ended on all nodes.
fn follow(parts: &[(&Part, Vec<&RunLog>)], console: &Console) -> Result<(), ShowError> {
    // Each file stays open. What cannot be raised the first file that does not open says.
    let _ = rankrun::crates::process::raise_open_files();
    let logs = parts.iter().flat_map(|(part, logs)| logs.iter().map(move |log| (part, log)));
    let mut tail = RunTail::open(logs.map(|(part, log)| (log.path.clone(), console.prefix(part, log))))?;
    if parts.iter().any(|(part, _)| !part.label.is_empty()) {
        // Nothing tells of what other hosts write.
        tail = tail.timed();
    }
    if console.live {
        tail = tail.on_terminal(console.columns);
    }
    let (ended, waiting) = wait_for_end(parts.iter().map(|(part, _)| part.run.clone()).collect())?;
    let stdout = io::stdout();
    let mut lines = Vec::new();
    loop {
        while tail.take(&mut lines) && lines.len() < PIECE {}
        tail.draw(Instant::now(), columns(), &mut lines);
        Stdout.write_all(&lines).map_err(write_failed)?;
        // After a full piece there may be more already.
        let more = lines.len() >= PIECE;
        lines.clear();
        // Asked for nothing, poll(2) tells of a pipe whose reader has gone.
        let mut fds =
            vec![PollFd::new(ended.as_fd(), PollFlags::POLLIN), PollFd::new(stdout.as_fd(), PollFlags::empty())];
        fds.extend(tail.watched().map(|watched| PollFd::new(watched, PollFlags::POLLIN)));
        let timeout = match tail.timeout(Instant::now()) {
            _ if more => PollTimeout::ZERO,
            None => PollTimeout::NONE,
            // Rounded up: not to wake just before.
            Some(time) => u16::try_from(time.as_millis() + 1).map_or(PollTimeout::MAX, PollTimeout::from),
        };
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(ShowError::Output(errno.into())),
        }
        if fds[1].any() == Some(true) {
            return Err(ShowError::Closed);
        }
        if fds[0].any() == Some(true) {
            break;
        }
        tail.look();
    }
    let outcome = tail.finish(&mut lines);
    Stdout.write_all(&lines).map_err(write_failed)?;
    outcome?;
    // A panic of it would have been shown.
    Ok(waiting.join().unwrap_or(Ok(()))?)
}

fn columns() -> usize {
    TerminalSize::of(io::stdout().as_fd()).map_or(USUAL_COLUMNS, |size| size.columns.into())
}

/// A pipe that has an end when all runs have.
fn wait_for_end(runs: Vec<Run>) -> Result<(io::PipeReader, JoinHandle<Result<(), LogsError>>), ShowError> {
    let (ended, end) = io::pipe().map_err(ShowError::Output)?;
    let waiting = std::thread::spawn(move || {
        let outcome = runs.iter().try_for_each(Run::wait_for_end);
        drop(end);
        outcome
    });
    Ok((ended, waiting))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_followed_once_all_its_files_are_there() {
        use RunPhase::{Attempt, Between, Over};
        for (phase, attempt, last, expected) in [
            (Between, None, None, Stage::Starting),
            (Between, None, Some(0), Stage::Starting),
            (Attempt, Some(0), None, Stage::Attempt(Some(0))),
            (Attempt, Some(0), Some(0), Stage::Attempt(Some(0))),
            (Between, Some(0), Some(0), Stage::Resting),
            (Between, Some(0), None, Stage::Resting),
            (Between, Some(0), Some(1), Stage::Starting),
            (Attempt, Some(0), Some(1), Stage::Starting),
            (Attempt, Some(1), Some(1), Stage::Attempt(Some(1))),
            (Over, Some(1), Some(1), Stage::Over),
            (Over, None, Some(0), Stage::Over),
            // A launcher that does not say which attempt it is at.
            (Attempt, None, Some(2), Stage::Attempt(Some(2))),
            (Attempt, None, None, Stage::Attempt(None)),
        ] {
            assert_eq!(stage(phase, attempt, last), expected, "{phase:?} {attempt:?} {last:?}");
        }
    }
}
