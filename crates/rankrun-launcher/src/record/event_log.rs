//! Writing down what happens as it happens: [`EventLog`]. Not here: what a line says (`event_line`).

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rankrun::crates::types::escape_os_str;
use rankrun::{GroupEvent, GroupEventKind, PerRank};

use super::event_line::{Details, EventLine, of_group};
use super::recorder::{RunDescription, RunEnd};
use super::run_record::RecordState;
use crate::restart::Decision;
use crate::run::{Attempt, Observer};

/// Where events are written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventTarget {
    /// Standard output. Lines of workers that are shown there stand between them.
    Stdout,
    /// A file, to which they are appended, or a named pipe, which may get its reader later.
    File(PathBuf),
}

/// The event log could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("event log {}: {source}", escape_os_str(path.as_os_str()))]
pub struct EventLogError {
    /// The file.
    pub path: PathBuf,
    /// What went wrong.
    pub source: io::Error,
}

/// Writes one line of JSON for each thing that happens to a run, as it happens.
///
/// A thread of its own writes, so that a reader that does not read holds up nothing: what it does not take is kept in memory.
/// If writing fails, that is one warning in the log, and the rest is dropped. Each line is written at once; its fields are
/// described by [`EVENT_SCHEMA`](super::EVENT_SCHEMA).
#[derive(Debug)]
pub struct EventLog {
    feed: EventFeed,
    /// Ends when all is written.
    written: Receiver<()>,
}

/// Lets the groups of a run tell what happens to them.
#[derive(Debug, Clone)]
pub struct EventFeed {
    messages: Sender<Message>,
    next_attempt: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Message {
    Attempt { attempt: u64, events: Receiver<GroupEvent> },
    Line { time: SystemTime, event: &'static str, attempt: Option<u64>, details: Box<Details> },
    End,
}

impl EventLog {
    /// Opens the log for a run. `first_attempt`: the restart count of its first attempt.
    ///
    /// # Errors
    /// [`EventLogError`]. A named pipe is opened by the thread, which waits for its reader.
    pub fn open(target: &EventTarget, run: &RunDescription, first_attempt: u64) -> Result<Self, EventLogError> {
        let path = match target {
            EventTarget::Stdout => Path::new("-"),
            EventTarget::File(path) => path,
        };
        let failed = |source| EventLogError { path: path.to_owned(), source };
        let file = match target {
            EventTarget::Stdout => Some(io::stdout().as_fd().try_clone_to_owned().map(File::from).map_err(failed)?),
            EventTarget::File(path) if is_pipe(path) => None,
            EventTarget::File(path) => Some(append(path).map_err(failed)?),
        };
        let (messages, received) = channel();
        let (done, written) = channel();
        let writer = Writer {
            file,
            path: path.to_owned(),
            is_broken: false,
            run_id: run.run_id.clone(),
            role: run.role.clone(),
            ranks: run.ranks.clone(),
        };
        let thread = std::thread::Builder::new().name("rankrun-events".to_owned()).spawn(move || {
            writer.write_all(received);
            drop(done);
        });
        thread.map_err(failed)?;
        Ok(Self { feed: EventFeed { messages, next_attempt: Arc::new(AtomicU64::new(first_attempt)) }, written })
    }

    /// What the groups of the run get.
    #[must_use]
    pub fn feed(&self) -> EventFeed {
        self.feed.clone()
    }

    /// The group is started again after this pause.
    pub fn restart(&self, pause: Duration) {
        let details = Details { pause_seconds: Some(pause.as_secs_f64()), ..Details::default() };
        self.feed.line("restart", Some(self.feed.next_attempt.load(Ordering::Relaxed)), details);
    }

    /// The run has ended: writes what is left, for which it waits at most for `patience`.
    ///
    /// A group that has not ended by then is waited for as well. Blocks.
    pub fn finish(self, state: RecordState, end: &RunEnd, patience: Duration) {
        let details = Details {
            state: Some(state),
            exit_code: end.exit_code,
            signal: end.stop_signal.map(|signal| signal.name()),
            error: end.error.clone(),
            ..Details::default()
        };
        self.feed.line("result", None, details);
        let _ = self.feed.messages.send(Message::End);
        if let Err(RecvTimeoutError::Timeout) = self.written.recv_timeout(patience) {
            log::warn!("not all events were written: nobody took them for {patience:?}");
        }
    }
}

impl EventFeed {
    /// Where the group of the next attempt tells what happens to it: see
    /// [`WorkerGroup::events`](rankrun::WorkerGroup::events).
    #[must_use]
    pub fn next_attempt(&self) -> Sender<GroupEvent> {
        let (sender, events) = channel();
        let attempt = self.next_attempt.fetch_add(1, Ordering::Relaxed);
        // Without a writer nobody wants it.
        let _ = self.messages.send(Message::Attempt { attempt, events });
        sender
    }

    fn line(&self, event: &'static str, attempt: Option<u64>, details: Details) {
        let _ =
            self.messages.send(Message::Line { time: SystemTime::now(), event, attempt, details: Box::new(details) });
    }
}

/// The thread's state.
struct Writer {
    /// `None` until a named pipe is opened.
    file: Option<File>,
    path: PathBuf,
    is_broken: bool,
    run_id: String,
    role: String,
    ranks: PerRank<usize>,
}

impl Writer {
    /// One attempt is written to its end before the next is looked at: they follow each other.
    fn write_all(mut self, messages: Receiver<Message>) {
        for message in messages {
            match message {
                Message::End => return,
                Message::Line { time, event, attempt, details } => self.write(time, event, attempt, *details),
                Message::Attempt { attempt, events } => {
                    for event in events {
                        if let Some((name, details)) = of_group(&event, &self.ranks) {
                            self.write(event.time, name, Some(attempt), details);
                        }
                        if matches!(event.kind, GroupEventKind::Ended { .. }) {
                            break;
                        }
                    }
                }
            }
        }
    }

    fn write(&mut self, time: SystemTime, event: &'static str, attempt: Option<u64>, details: Details) {
        if self.is_broken {
            return;
        }
        let line = EventLine { time, event, run_id: self.run_id.clone(), role: self.role.clone(), attempt, details };
        let written = serde_json::to_vec(&line).map_err(io::Error::from).and_then(|mut text| {
            text.push(b'\n');
            if self.file.is_none() {
                self.file = Some(append(&self.path)?);
            }
            self.file.as_mut().map_or(Ok(()), |file| write_whole(file, &text))
        });
        if let Err(error) = written {
            self.is_broken = true;
            log::warn!("event log {}: {error}; further events are not written", self.path.display());
        }
    }
}

/// Writes all of it, also where the file is in non-blocking mode because somebody else wants it so.
fn write_whole(file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // An error is EINTR: try again.
                let _ = poll(&mut [PollFd::new(file.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn append(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).open(path)
}

fn is_pipe(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.file_type().is_fifo())
}

impl Observer for EventLog {
    fn ended(&mut self, _attempt: &Attempt, next: &Decision) {
        if let Decision::Restart { at } = next {
            self.restart(at.saturating_duration_since(Instant::now()));
        }
    }
}
