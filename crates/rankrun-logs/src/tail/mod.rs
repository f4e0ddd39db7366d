//! The tail engine's face: [`Tail`] and what it takes and tells. Not here: the thread's loop (`engine`), the pure core
//! (`core`), consoles (`console`), watches (`watch`).

mod console;
mod core;
mod engine;
mod outputs;
mod positions;
pub(crate) mod row;
pub(crate) mod trail;
pub(crate) mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use self::engine::Engine;
pub(crate) use self::engine::timeout;
use self::outputs::Plan;
pub use self::positions::TailPositions;
use crate::error::LogsError;
use crate::last_lines::last_lines_of;
use crate::options::TailOptions;
use crate::prefix::LinePrefix;

/// Which of the two consoles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SinkId {
    /// The launcher's stdout.
    Stdout,
    /// The launcher's stderr.
    Stderr,
}

impl fmt::Display for SinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        })
    }
}

/// One file to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TailSource {
    /// The file; it exists already, see [`open_log`](crate::open_log).
    pub path: PathBuf,
    /// What stands before each of its lines, see [`PrefixTemplate`](crate::PrefixTemplate).
    pub prefix: LinePrefix,
    /// Where its lines go.
    pub sink: SinkId,
}

/// The two consoles to write to.
///
/// Their open file descriptions may be shared with other processes: no flag of them is changed. Where both are the
/// same pipe, terminal or file, lines of the two stay whole among each other.
#[derive(Debug)]
pub struct Consoles {
    /// Where lines of [`SinkId::Stdout`] go.
    pub stdout: OwnedFd,
    /// Where lines of [`SinkId::Stderr`] go.
    pub stderr: OwnedFd,
}

impl Consoles {
    /// Copies of this process's own stdout and stderr.
    ///
    /// # Errors
    /// [`TailError::Console`] if one is closed.
    pub fn inherit() -> Result<Self, TailError> {
        let copy = |console, fd: BorrowedFd<'_>| {
            fd.try_clone_to_owned().map_err(|source| TailError::Console { console, source })
        };
        Ok(Self {
            stdout: copy(SinkId::Stdout, io::stdout().as_fd())?,
            stderr: copy(SinkId::Stderr, io::stderr().as_fd())?,
        })
    }
}

/// The tail engine could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TailError {
    /// A file could not be opened.
    #[error("cannot open log file {} to follow it: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What should be a log file is something else.
    #[error("cannot follow {}: not a regular file", path.display())]
    NotARegularFile {
        /// The path.
        path: PathBuf,
    },
    /// A console could not be copied.
    #[error("cannot copy {console} for tee: {source}")]
    Console {
        /// Which.
        console: SinkId,
        /// Why.
        source: io::Error,
    },
    /// A file for chosen lines could not be opened.
    #[error("cannot filter lines: {source}")]
    Filtered {
        /// Which file, and why.
        source: LogsError,
    },
    /// The eventfd to wake the thread, or the thread, could not be had.
    #[error("cannot start the tail engine: {what}: {source}")]
    Start {
        /// What could not be had.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// Whether everything that the files held was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainOutcome {
    /// Each line was written to its console, or the console's reader had gone away.
    Complete,
    /// Something was not shown; the files have it.
    Incomplete {
        /// Why.
        why: IncompleteDrain,
    },
}

/// Why output was not shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IncompleteDrain {
    /// The console did not take it before the deadline.
    #[error("{console} did not take the last {bytes} bytes before the deadline")]
    Late {
        /// Which console.
        console: SinkId,
        /// How many bytes are left, prefixes not counted for those that were not read yet.
        bytes: u64,
    },
    /// Writing to the console failed; not for a reader that went away, which is no fault.
    #[error("writing to {console} failed: {}", Errno::from_raw(*errno))]
    ConsoleFailed {
        /// Which console.
        console: SinkId,
        /// The error number.
        errno: i32,
    },
    /// A file of chosen lines did not take them before the deadline.
    #[error("{} did not take the last {bytes} bytes before the deadline", path.display())]
    FilteredLate {
        /// The file.
        path: PathBuf,
        /// How many bytes of the log files were not looked at or not written.
        bytes: u64,
    },
    /// Writing to a file of chosen lines failed.
    #[error("writing to {} failed: {}", path.display(), Errno::from_raw(*errno))]
    FilteredFailed {
        /// The file.
        path: PathBuf,
        /// The error number.
        errno: i32,
    },
    /// A log file could not be read to its end.
    #[error("reading {} failed: {}", path.display(), Errno::from_raw(*errno))]
    FileUnreadable {
        /// The file.
        path: PathBuf,
        /// The error number.
        errno: i32,
    },
    /// The engine's thread has not answered: it hangs in a write, or was not asked to finish.
    #[error("the tail engine had not ended by the deadline")]
    StillRunning,
    /// The engine's thread ended without an outcome: a fault in this crate.
    #[error("the tail engine ended unexpectedly")]
    Crashed,
}

impl IncompleteDrain {
    /// What was said when it happened, as a warning of the crate `log`; `None` for what is known only in the end.
    ///
    /// For who repeats it in the end in the same words.
    #[must_use]
    pub fn said(&self) -> Option<String> {
        let (what, then, errno): (&dyn fmt::Display, _, _) = match self {
            Self::ConsoleFailed { console, errno } => (console, "output goes to the log files only", errno),
            Self::FilteredFailed { path, errno } => (&path.display(), "nothing more is written to it", errno),
            Self::FileUnreadable { path, errno } => {
                let error = io::Error::from_raw_os_error(*errno);
                return Some(format!("reading {} failed, it is not shown any more: {error}", path.display()));
            }
            _ => return None,
        };
        Some(format!("writing to {what} failed, {then}: {}", io::Error::from_raw_os_error(*errno)))
    }
}

/// Follows log files and writes their lines, whole and with a prefix, to the consoles.
///
/// One thread, `rankrun-tail`, serves all files. It wakes when a file is written to (inotify; a timer of 1 to 20 ms
/// where there is none), and while nobody writes it does not wake at all. It reads from each file in turn, and reads no
/// file whose console takes nothing: the files hold what is not shown yet. Lines of one file keep their order; a
/// console gets each line once, and in one write when it is at most 4 KiB long.
///
/// A console whose reader goes away (`EPIPE`) or that fails ends its own output only. The thread blocks all signals,
/// so that SIGPIPE does no harm even in a program that has not ignored it.
///
/// A file that was cut, as by copytruncate or by a worker that opens `/dev/stderr` anew, is read again from its start, which
/// is said once for each file. It is known by being shorter than what was read of it, or by other bytes in the last 64
/// that were read; one that has the same there cannot be told from one that only grew. A beginning that was freed (see
/// [`LogLimiter`](crate::LogLimiter)) is skipped, not shown as NUL bytes.
///
/// [`AsFd`] gives an eventfd that is readable once the engine has ended. Dropping a `Tail` asks the engine to stop at
/// once and does not wait for it.
///
/// ```
/// use std::io::{Read, Write};
/// use std::time::{Duration, Instant};
/// use rankrun_logs::{Consoles, DrainOutcome, SinkId, Tail, TailSource, line_prefix, open_log};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("stdout.log");
/// let mut worker = open_log(&path)?;
/// let (mut reader, writer) = std::io::pipe()?;
/// let consoles = Consoles { stdout: writer.try_clone()?.into(), stderr: writer.into() };
/// let source = TailSource { path, prefix: line_prefix("default", 0).into(), sink: SinkId::Stdout };
/// let tail = Tail::start(vec![source], consoles)?;
///
/// worker.write_all(b"hello")?;
///
/// let deadline = Instant::now() + Duration::from_secs(5);
/// tail.finish(Duration::ZERO, deadline);
/// assert_eq!(tail.wait(deadline), DrainOutcome::Complete);
/// let mut console = String::new();
/// reader.read_to_string(&mut console)?;
/// assert_eq!(console, "[default0]:hello\n");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Tail {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the handle and the thread share.
#[derive(Debug)]
struct Shared {
    wake: Arc<EventFd>,
    /// Readable once the thread has let go of files and consoles; never read.
    done: EventFd,
    /// How many bytes the consoles have taken.
    shown: AtomicU64,
    positions: TailPositions,
    request: Mutex<Option<Request>>,
    /// Which process each of these sources is of, not taken yet.
    pids: Mutex<Vec<(usize, u32)>>,
    outcome: Mutex<Option<DrainOutcome>>,
    /// The ends of files that were not where they had been when the engine ended.
    gone: Mutex<BTreeMap<PathBuf, Vec<u8>>>,
}

/// A request to end.
#[derive(Debug, Clone, Copy)]
struct Request {
    idle: Duration,
    deadline: Instant,
}

impl Tail {
    /// Opens the files and starts the thread.
    ///
    /// Does not block. Files are read from their start, so what was written before is shown too.
    ///
    /// # Errors
    /// [`TailError`]; no thread runs then. A lack of inotify instances or watches is no error: a warning is logged and
    /// a timer stands in.
    pub fn start(sources: Vec<TailSource>, consoles: Consoles) -> Result<Self, TailError> {
        Self::start_with(sources, consoles, TailOptions::default())
    }

    pub(crate) fn start_with(
        sources: Vec<TailSource>,
        consoles: Consoles,
        options: TailOptions,
    ) -> Result<Self, TailError> {
        let eventfd = || {
            EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
                .map_err(|errno| TailError::Start { what: "eventfd", source: errno.into() })
        };
        let plan = Plan::new(sources, consoles, &options)?;
        let shared = Arc::new(Shared {
            wake: Arc::new(eventfd()?),
            done: eventfd()?,
            shown: AtomicU64::new(0),
            positions: TailPositions::new(plan.files.iter().map(|(path, _)| path.clone())),
            request: Mutex::new(None),
            pids: Mutex::new(Vec::new()),
            outcome: Mutex::new(None),
            gone: Mutex::default(),
        });
        let watcher = if options.timer {
            None
        } else {
            watch::Watcher::new()
                .inspect_err(|errno| log::warn!("no inotify for log files ({errno}): looking at them every 1 to 20 ms"))
                .ok()
        };
        let engine = Engine::new(plan, watcher, (options.health, options.unsaved), Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name("rankrun-tail".to_owned())
            .spawn(move || {
                let _done = Done(Arc::clone(&engine.shared));
                let outcome = engine.run();
                *lock(&_done.0.outcome) = Some(outcome);
            })
            .map_err(|source| TailError::Start { what: "thread", source })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Asks the engine to show what the files hold and to end.
    ///
    /// Call it when the workers have ended. Does not block. The engine reads each file to the length that it has now,
    /// so that a process that goes on writing does not hold up the end; then it goes on as before until nothing has
    /// come for `idle` (zero: not at all); then it shows unfinished last lines and ends. At `deadline` it ends in any
    /// case. A later call replaces `idle` and `deadline`.
    pub fn finish(&self, idle: Duration, deadline: Instant) {
        *lock(&self.shared.request) = Some(Request { idle, deadline });
        signal(&self.shared.wake);
    }

    /// Says which process writes to a source, counted as given to the start.
    ///
    /// For sources whose prefix names the process ([`LinePrefix::needs_pid`]), which are not read before; for others it
    /// does nothing. When the end is asked for, those that were not told of are read with `?` instead. Does not block.
    pub fn set_pid(&self, source: usize, pid: u32) {
        lock(&self.shared.pids).push((source, pid));
        signal(&self.shared.wake);
    }

    /// How many bytes, prefixes included, the consoles have taken so far: whether it gets on, for who waits for its end.
    #[must_use]
    pub fn shown(&self) -> u64 {
        self.shared.shown.load(Ordering::Relaxed)
    }

    /// How far each file was read, also from now on.
    #[must_use]
    pub fn positions(&self) -> TailPositions {
        self.shared.positions.clone()
    }

    /// The last lines of a file that was removed, renamed or replaced while it was followed, at most `count`, as
    /// [`last_lines`](crate::last_lines) gives them; `None` of one that is where it was.
    ///
    /// To be asked once the engine has ended. At most the last 16 KiB are looked at.
    #[must_use]
    pub fn last_lines_of_gone(&self, path: impl AsRef<Path>, count: usize) -> Option<Vec<String>> {
        lock(&self.shared.gone).get(path.as_ref()).map(|end| last_lines_of(end, count))
    }

    /// Waits until the engine has ended, at most until `deadline`, and says whether everything was shown.
    ///
    /// Call [`Tail::finish`] first. With a `deadline` in the past it does not block. Later calls give the same answer
    /// once the engine has ended. [`IncompleteDrain::StillRunning`] means that it has not: then its thread is left
    /// behind when the `Tail` is dropped, and ends when it can. Give `wait` a little longer than `finish` to hear of
    /// [`IncompleteDrain::Late`] instead.
    pub fn wait(&self, deadline: Instant) -> DrainOutcome {
        if !wait_readable(self.shared.done.as_fd(), deadline) {
            return DrainOutcome::Incomplete { why: IncompleteDrain::StillRunning };
        }
        if let Some(thread) = lock(&self.thread).take() {
            // It has said that it is done; a panic shows in the outcome.
            let _ = thread.join();
        }
        let outcome = lock(&self.shared.outcome).clone();
        outcome.unwrap_or(DrainOutcome::Incomplete { why: IncompleteDrain::Crashed })
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.finish(Duration::ZERO, Instant::now());
    }
}

impl AsFd for Tail {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.done.as_fd()
    }
}

/// Says that the thread is done, also when it panics.
struct Done(Arc<Shared>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.positions.set_all_done();
        signal(&self.0.done);
    }
}

/// Waits until it is readable, at most until `deadline`, and says whether it is. Does not block if that is past.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, deadline: Instant) -> bool {
    loop {
        let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
        let left = deadline.saturating_duration_since(Instant::now());
        match poll(&mut fds, engine::timeout(Some(left))) {
            Ok(0) if left.is_zero() => return false,
            Ok(0) | Err(_) => {}
            Ok(_) => return true,
        }
    }
}

fn signal(event: &EventFd) {
    // It fails only when the counter is full, and then it is readable already.
    let _ = event.write(1);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open_source(source: &TailSource) -> Result<File, TailError> {
    let failed = |error| TailError::Open { path: source.path.clone(), source: error };
    // O_NONBLOCK: opening a FIFO by mistake must not wait for its writer.
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(&source.path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(TailError::NotARegularFile { path: source.path.clone() });
    }
    Ok(file)
}
