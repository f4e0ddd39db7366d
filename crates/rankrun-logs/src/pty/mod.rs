//! Pseudo-terminals for workers: [`WorkerTerminals`], where the scheme is described. Not here: opening one (`terminal`),
//! moving its bytes (`mover`).

mod mover;
mod terminal;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};

use self::mover::{Mover, Stream};
use self::terminal::Master;
pub use self::terminal::TerminalSize;
use crate::error::LogsError;
use crate::health::LogHealth;
use crate::open::open_log;
use crate::unsaved::Unsaved;

/// epoll's token for a wish of the handle; others are numbers of streams.
const WISH: u64 = u64::MAX;

/// Terminals for workers' streams, each with a log file that gets every byte.
///
/// A worker whose stdout is a file has no colours, no progress bars, and writes in blocks. Here it gets a
/// pseudo-terminal for each stream instead, so that the two stay apart; one thread, `rankrun-pty`, moves what is
/// written to it to the log file, byte by byte as it came, where [`Tail`](crate::Tail) finds it as ever.
///
/// - The thread writes to files only, so a console that nobody reads holds up no worker. Nor does a full disk: what a
///   file does not take is dropped, with one warning, and a line in the file says how much when it takes more again. The
///   console, reports and the end of the file need not miss it ([`unsaved`](Self::unsaved)). It does not wake while nobody writes.
/// - Output passes as it is: no `\r` is put before `\n` (`OPOST` is off). There is no input: the worker's end is open for
///   writing only, and echo is off.
/// - It is nobody's controlling terminal. A session can have only one, and when its leader ends, the kernel hangs it up
///   for all others: what the processes that a worker left still write would be lost. So no Ctrl-C and no SIGHUP come
///   from it, and `/dev/tty` cannot be opened, as without it.
/// - The buffer is the kernel's (some 20 KiB), so a worker waits while the thread does not come to it, and what is in
///   the buffer when the launcher is killed is lost. Without a terminal a worker writes straight to its file.
///
/// [`finish`](Self::finish) moves what was written by then, then closes the terminals; processes that still have one open
/// get `EIO`. Dropping it does the same without waiting for any.
///
/// ```
/// use std::io::{IsTerminal, Write};
/// use std::time::{Duration, Instant};
/// use rankrun_logs::{LogHealth, TerminalSize, WorkerTerminals};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("stdout.log");
/// let size = TerminalSize { rows: 24, columns: 80 };
/// let terminals = WorkerTerminals::start(vec![(path.clone(), size)], LogHealth::new(dir.path()))?;
/// let mut worker = std::fs::File::from(terminals.worker_end(0)?);
/// assert!(worker.is_terminal());
/// worker.write_all(b"10%\r20%\ndone\n")?;
/// drop(worker);
/// let deadline = Instant::now() + Duration::from_secs(5);
/// terminals.finish(deadline);
/// assert_eq!(terminals.wait(deadline), Some(vec![]));
/// assert_eq!(std::fs::read(&path)?, b"10%\r20%\ndone\n");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct WorkerTerminals {
    masters: Vec<(PathBuf, Arc<Master>)>,
    shared: Arc<Shared>,
    unsaved: Unsaved,
}

/// How long the thread may go on when nobody waits for it.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the handle and the thread share.
#[derive(Debug)]
struct Shared {
    wake: EventFd,
    /// Readable once the thread has ended; never read.
    done: EventFd,
    deadline: Mutex<Option<Instant>>,
    moved: AtomicU64,
    warnings: Mutex<Vec<String>>,
}

impl Shared {
    fn deadline(&self) -> Option<Instant> {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that the thread is done, also when it panics.
struct Done(Arc<Shared>);

impl Drop for Done {
    fn drop(&mut self) {
        let _ = self.0.done.write(1);
    }
}

impl WorkerTerminals {
    /// Opens a terminal for each log file, which is made if need be, and starts the thread.
    ///
    /// All or none. Does not block. A file that takes nothing is said by `health`. Takes two descriptors for each, and five more.
    ///
    /// # Errors
    /// [`LogsError::Terminal`] if one cannot be had, [`LogsError::Open`] for a file, [`LogsError::Terminals`] for the thread.
    pub fn start(logs: Vec<(PathBuf, TerminalSize)>, health: LogHealth) -> Result<Self, LogsError> {
        let failed = |source| LogsError::Terminals { source };
        let eventfd = || {
            EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(|errno| failed(errno.into()))
        };
        let shared = Arc::new(Shared {
            wake: eventfd()?,
            done: eventfd()?,
            deadline: Mutex::new(None),
            moved: AtomicU64::new(0),
            warnings: Mutex::new(Vec::new()),
        });
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|errno| failed(errno.into()))?;
        let watch = |fd: BorrowedFd<'_>, token| {
            epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token)).map_err(|errno| failed(errno.into()))
        };
        watch(shared.wake.as_fd(), WISH)?;
        let unsaved = Unsaved::new(logs.iter().map(|(path, _)| path.clone()));
        let (mut masters, mut streams) = (Vec::new(), Vec::new());
        for (token, (path, size)) in (0..).zip(logs) {
            let file: File = open_log(&path)?;
            let master = Master::open(size).map_err(|source| LogsError::Terminal { path: path.clone(), source })?;
            watch(master.as_fd(), token)?;
            let master = Arc::new(master);
            streams.push(Some(Stream::new(Arc::clone(&master), file, path.clone(), (unsaved.clone(), masters.len()))));
            masters.push((path, master));
        }
        let mover = Mover::new(epoll, streams, health, Arc::clone(&shared));
        let done = Done(Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("rankrun-pty".to_owned()).spawn(move || {
            let _done = done;
            mover.run();
        });
        thread.map_err(failed)?;
        Ok(Self { masters, shared, unsaved })
    }

    /// The end of a terminal that a worker gets as its stdout or stderr, counted as given to the start.
    ///
    /// Our own copy is to be closed once the worker has it: a terminal is at its end when nobody has it open.
    ///
    /// # Errors
    /// [`LogsError::Terminal`] if it cannot be opened.
    ///
    /// # Panics
    /// If there is no such terminal.
    pub fn worker_end(&self, number: usize) -> Result<OwnedFd, LogsError> {
        let (path, master) = &self.masters[number];
        master.worker_end().map_err(|source| LogsError::Terminal { path: path.clone(), source })
    }

    /// Sets the size of a terminal. Programs that look see it; SIGWINCH is the caller's to send. Does not block.
    ///
    /// # Panics
    /// If there is no such terminal.
    pub fn resize(&self, number: usize, size: TerminalSize) {
        let (path, master) = &self.masters[number];
        if let Err(error) = master.resize(size) {
            log::debug!("the terminal of {} keeps its size: {error}", path.display());
        }
    }

    /// What the files have not taken and will not take, also from now on, for a tail and for reports.
    #[must_use]
    pub fn unsaved(&self) -> Unsaved {
        self.unsaved.clone()
    }

    /// How many bytes were moved so far: whether it gets on, for who waits for its end.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.shared.moved.load(Ordering::Relaxed)
    }

    /// Asks the thread to move what was written until now, to close the files, and to end; at `deadline` in any case.
    ///
    /// Call it when the workers have ended. What a process that goes on writing writes later does not hold it up, and
    /// is lost. Does not block. A later call replaces the deadline.
    pub fn finish(&self, deadline: Instant) {
        *self.shared.deadline.lock().unwrap_or_else(PoisonError::into_inner) = Some(deadline);
        // It fails only when the counter is full, and then it is readable already.
        let _ = self.shared.wake.write(1);
    }

    /// Waits until the thread has ended, at most until `deadline`, and gives what went wrong, a line each, for people;
    /// `None` if it has not ended. With a deadline in the past it does not block.
    #[must_use]
    pub fn wait(&self, deadline: Instant) -> Option<Vec<String>> {
        crate::tail::wait_readable(self.shared.done.as_fd(), deadline)
            .then(|| self.shared.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl AsFd for WorkerTerminals {
    /// Readable once the thread has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.done.as_fd()
    }
}

impl Drop for WorkerTerminals {
    fn drop(&mut self) {
        self.finish(Instant::now() + PATIENCE);
    }
}
