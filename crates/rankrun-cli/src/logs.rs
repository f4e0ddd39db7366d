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
                ShowError::NoRank { .. } | ShowError::Logs(LogsError::NoRun { .. }) => exit_code::USAGE,
                _ => exit_code::LAUNCHER_FAILED,
            }
        }
    }
}

fn show(args: &LogsArgs) -> Result<(), ShowError> {
    let mut shown: BTreeSet<PathBuf> = BTreeSet::new();
    let mut run = Run::open(&args.dir)?;
    // A later attempt of the run may begin while one is followed.
    loop {
        let goes_on = args.follow && run.goes_on();
        let logs = run.logs()?;
        check_ranks(args, &run, &logs)?;
        if logs.is_empty() && !goes_on {
            say(&format!("no output was captured in {}: use --tee or --redirects", run.dir().display()));
        }
        let last = logs.iter().map(|log| log.attempt).max();
        let wanted = |log: &&RunLog| {
            (args.rank.is_empty() || args.rank.contains(&log.local_rank))
                && args.stream.is_none_or(|stream| log.stream == stream.sink())
        };
        let (now, before): (Vec<&RunLog>, Vec<&RunLog>) =
            logs.iter().filter(wanted).partition(|log| goes_on && Some(log.attempt) == last);
        let before: Vec<&RunLog> =
            before.into_iter().filter(|log| is_recent(log, args.since) && !shown.contains(&log.path)).collect();
        write_all(&run, &before)?;
        shown.extend(before.into_iter().map(|log| log.path.clone()));
        if !goes_on {
            return Ok(());
        }
        let now: Vec<&RunLog> = now.into_iter().filter(|log| !shown.contains(&log.path)).collect();
        follow(&run, &now)?;
        shown.extend(now.into_iter().map(|log| log.path.clone()));
        // The same run, whatever is the newest meanwhile.
        run = Run::open(run.dir())?;
    }
}

fn is_recent(log: &RunLog, since: Option<SystemTime>) -> bool {
    since.is_none_or(|since| log.modified >= since)
}

fn check_ranks(args: &LogsArgs, run: &Run, logs: &[RunLog]) -> Result<(), ShowError> {
    let size = run.info().map(|info| info.local_world_size);
    let captured: BTreeSet<usize> = logs.iter().map(|log| log.local_rank).collect();
    let known = |rank: usize| size.is_some_and(|size| rank < size) || captured.contains(&rank);
    match args.rank.iter().find(|rank| !known(**rank)) {
        None => Ok(()),
        Some(rank) => {
            let last = size.map(|size| size.saturating_sub(1)).or(captured.last().copied());
            let known = last.map_or("none".to_owned(), |last| format!("0 to {last}"));
            Err(ShowError::NoRank { rank: *rank, dir: run.dir().to_owned(), known })
        }
    }
}

/// Writes what files have now, one after the other.
fn write_all(run: &Run, logs: &[&RunLog]) -> Result<(), ShowError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::BrokenPipe => ShowError::Closed,
        _ => ShowError::Output(error),
    };
    let mut out = BufWriter::with_capacity(64 * 1024, io::stdout().lock());
    for log in logs {
        match log.write_lines(run.line_prefix(log.local_rank, log.stream).as_bytes(), &mut out) {
            Ok(()) => {}
            Err(WriteLinesError::Write { source, .. }) => return Err(failed(source)),
            Err(WriteLinesError::Read(error)) => return Err(error.into()),
            Err(error) => return Err(failed(io::Error::other(error))),
        }
    }
    out.flush().map_err(failed)
}

/// Shows lines as they come until the run, or its attempt, has ended.
fn follow(run: &Run, logs: &[&RunLog]) -> Result<(), ShowError> {
    let stdout = || io::stdout().as_fd().try_clone_to_owned();
    let sources = logs.iter().map(|log| TailSource {
        path: log.path.clone(),
        prefix: run.line_prefix(log.local_rank, log.stream).into(),
        sink: SinkId::Stdout,
    });
    let consoles =
        Consoles { stdout: stdout().map_err(ShowError::Output)?, stderr: stdout().map_err(ShowError::Output)? };
    let tail = Tail::start(sources.collect(), consoles)?;
    wait_for_end_or_reader(run)?;
    let deadline = Instant::now() + FOR_EVER;
    tail.finish(Duration::ZERO, deadline);
    match tail.wait(deadline) {
        DrainOutcome::Complete => Ok(()),
        DrainOutcome::Incomplete { why } => Err(ShowError::Incomplete(why)),
    }
}

/// Waits for the end of the run; a reader that goes away before is [`ShowError::Closed`].
fn wait_for_end_or_reader(run: &Run) -> Result<(), ShowError> {
    let (ended, end) = io::pipe().map_err(ShowError::Output)?;
    let waiting = std::thread::spawn({
        let run = run.clone();
        move || {
            let outcome = run.wait_for_end();
            drop(end);
            outcome
        }
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
