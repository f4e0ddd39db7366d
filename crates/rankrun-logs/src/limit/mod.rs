//! Keeping log files below a size: [`LogLimiter`], where the scheme is described. Not here: what is freed (`trim`), the
//! last cut (`compact`).

mod compact;
mod size;
mod trim;

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::SigSet;

pub(crate) use self::compact::dropped;
pub use self::size::{LogSize, ParseLogSizeError};
use self::trim::{SLOW, Trim, next_look};
use crate::error::LogsError;
use crate::sparse::punch;
use crate::tail::TailPositions;
use crate::tail::watch::{Told, Watcher};
use crate::unsaved::Unsaved;

/// The time between two looks at files where there is no inotify, for all of them and for ever.
const BLIND: Duration = Duration::from_millis(100);

/// How much longer than its deadline the thread may take to answer: a copy that hangs in the kernel cannot be left.
const PATIENCE: Duration = Duration::from_millis(500);

/// Keeps log files at about a size while they are written to, and below it in the end.
///
/// The end of a file is kept, always. One thread, `rankrun-limit`, serves all files; it does not wake while nobody
/// writes. Dropping it stops the thread and leaves the files as they are.
///
/// # The scheme
///
/// A worker appends to its file (`O_APPEND`) and must never be disturbed, nor may its last lines get lost; so the file is
/// neither renamed nor cut while anybody may write to it.
///
/// - While the run goes on, the *beginning* of a file that has outgrown the size is freed in place: fallocate(2) with
///   `FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE` on ext4, xfs, btrfs, tmpfs. Length and offsets stay, so whoever reads
///   or writes goes on undisturbed; disk use stays at about the size (an eighth more, and what is written between two
///   looks: from 20 ms to 1 ms, the shorter the faster a file grows). The part that was freed reads as NUL bytes; `tail`,
///   the tail engine and `rankrun logs` never see it.
/// - What a tail engine has not read yet is never freed: no line is lost on the console. So a console that takes nothing
///   lets a file grow beyond the size until it does.
/// - When the workers have ended, each file that is too long is replaced (temporary file, rename) by one line that says
///   how many bytes were dropped, and its end from the start of a line; at most the size in all. A reader that has the
///   old file open keeps it. A file that some process still has open for writing is left as it is, with its hole.
/// - Where the file system cannot free a beginning, that is said once, and only the last step is done.
///
/// Nothing wakes while nobody writes: one-shot inotify watches tell of the first write after a pause. No descriptor is
/// held for a file; one that was renamed or replaced by somebody else is no longer ours and left alone.
///
/// Collapsing the freed range instead (`FALLOC_FL_COLLAPSE_RANGE`) would spare the copy at the end. But it shrinks a file
/// under its readers, which then read it again from the start, and tmpfs and btrfs do not have it.
///
/// ```
/// use std::io::Write;
/// use std::time::{Duration, Instant};
/// use rankrun_logs::{LogLimiter, LogSize, open_log};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("stdout.log");
/// let mut worker = open_log(&path)?;
/// let limiter = LogLimiter::start(vec![path.clone()], "4k".parse::<LogSize>()?, None)?;
/// for i in 0..1000 {
///     writeln!(worker, "line {i}")?;
/// }
/// drop(worker);
/// let warnings = limiter.finish(Instant::now() + Duration::from_secs(5));
/// assert!(warnings.is_empty());
/// let text = std::fs::read_to_string(&path)?;
/// assert!(text.starts_with("[rankrun: ") && text.lines().next().unwrap().ends_with(" bytes dropped]"));
/// assert!(text.ends_with("line 998\nline 999\n") && text.len() <= 4096);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LogLimiter {
    shared: Arc<Shared>,
    answer: Receiver<Vec<String>>,
}

/// What the handle and the thread share.
#[derive(Debug)]
struct Shared {
    wake: EventFd,
    order: Mutex<Option<Order>>,
    unsaved: OnceLock<Unsaved>,
}

/// What the thread is to do beside its work.
#[derive(Debug, Clone, Copy)]
enum Order {
    /// Cut what is too long, until this time at most, and end.
    Finish(Instant),
    /// End.
    Stop,
}

impl LogLimiter {
    /// Starts to look after the files, which exist already (see [`open_log`](crate::open_log)); what is no regular file
    /// is left alone.
    ///
    /// `positions`: how far a tail engine that follows some of the files has read, [`Tail::positions`](crate::Tail::positions).
    /// Does not block.
    ///
    /// # Errors
    /// [`LogsError::Limit`] if the thread cannot be started. A lack of inotify is no error: a timer stands in.
    pub fn start(files: Vec<PathBuf>, max: LogSize, positions: Option<TailPositions>) -> Result<Self, LogsError> {
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|errno| LogsError::Limit { source: errno.into() })?;
        let shared = Arc::new(Shared { wake, order: Mutex::new(None), unsaved: OnceLock::new() });
        let files = files.into_iter().filter_map(Limited::new).collect();
        let watcher = Watcher::new()
            .inspect_err(|errno| log::warn!("no inotify for the sizes of log files ({errno}): looking by timer"))
            .ok();
        let worker = Worker {
            shared: Arc::clone(&shared),
            files,
            max: max.bytes(),
            positions,
            watcher,
            punches: true,
            last_look: Instant::now(),
        };
        let (sender, answer) = channel();
        std::thread::Builder::new()
            .name("rankrun-limit".to_owned())
            .spawn(move || {
                // The receiver may be gone: dropped, or tired of waiting.
                let _ = sender.send(worker.run());
            })
            .map_err(|source| LogsError::Limit { source })?;
        Ok(Self { shared, answer })
    }

    /// Has what terminals' files did not take saved at the end ([`Unsaved::save`]), before files are cut: so the end that is
    /// kept is the true one.
    ///
    /// The first call counts.
    #[must_use]
    pub fn with_unsaved(self, unsaved: Unsaved) -> Self {
        let _ = self.shared.unsaved.set(unsaved);
        self
    }

    /// Cuts what is too long, and ends. Blocks until that is done, at most until shortly after `deadline`.
    ///
    /// Call it when the workers have ended and a tail engine has shown what it could. A file within the size is not
    /// touched. One that is longer is replaced by `[rankrun: N bytes dropped]` and its end from the start of a line, its
    /// mode and time of modification kept. Gives what could not be done, a line each, for people; the files concerned
    /// keep their full length, with a hole at the start.
    #[must_use]
    pub fn finish(self, deadline: Instant) -> Vec<String> {
        self.order(Order::Finish(deadline));
        let patience = deadline.saturating_duration_since(Instant::now()) + PATIENCE;
        match self.answer.recv_timeout(patience) {
            Ok(warnings) => warnings,
            Err(RecvTimeoutError::Timeout) => vec!["log files were not cut to their size in time".to_owned()],
            Err(RecvTimeoutError::Disconnected) => vec!["the thread that limits log files broke".to_owned()],
        }
    }

    fn order(&self, order: Order) {
        let mut current = self.shared.order.lock().unwrap_or_else(PoisonError::into_inner);
        if current.is_none() {
            *current = Some(order);
        }
        drop(current);
        // It fails only when the counter is full, and then it is readable already.
        let _ = self.shared.wake.write(1);
    }
}

impl Drop for LogLimiter {
    fn drop(&mut self) {
        self.order(Order::Stop);
    }
}

/// One file.
#[derive(Debug)]
struct Limited {
    path: PathBuf,
    /// Device and inode: what else has the path now is not ours.
    identity: (u64, u64),
    length: u64,
    block: u64,
    trim: Trim,
    /// The number of its watch, while that is set; else it is looked at with each tick.
    watch: Option<i32>,
    gone: bool,
}

impl Limited {
    fn new(path: PathBuf) -> Option<Self> {
        let meta = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
        let identity = (meta.dev(), meta.ino());
        let block = meta.blksize().max(4096);
        Some(Self { path, identity, length: 0, block, trim: Trim::default(), watch: None, gone: false })
    }

    /// The length now; `None` once the file has gone elsewhere.
    fn look(&mut self) -> Option<u64> {
        let meta = fs::metadata(&self.path).ok().filter(|meta| (meta.dev(), meta.ino()) == self.identity);
        self.gone = meta.is_none();
        meta.map(|meta| meta.len())
    }
}

/// The thread's state.
struct Worker {
    shared: Arc<Shared>,
    files: Vec<Limited>,
    max: u64,
    positions: Option<TailPositions>,
    watcher: Option<Watcher>,
    /// The file system can free a beginning, as far as is known.
    punches: bool,
    last_look: Instant,
}

impl Worker {
    fn run(mut self) -> Vec<String> {
        // Handlers of the host program belong to its own threads.
        let _ = SigSet::all().thread_block();
        loop {
            let order = self.shared.order.lock().unwrap_or_else(PoisonError::into_inner).take();
            match order {
                Some(Order::Stop) => return Vec::new(),
                Some(Order::Finish(deadline)) => return self.cut(deadline),
                None => {}
            }
            let now = Instant::now();
            let since = now.duration_since(std::mem::replace(&mut self.last_look, now));
            let mut pause = SLOW;
            for i in 0..self.files.len() {
                if self.punches && self.files[i].watch.is_none() && !self.files[i].gone {
                    let before = self.files[i].length;
                    self.tend(i);
                    pause = pause.min(next_look(self.files[i].length.saturating_sub(before), since, self.max));
                }
            }
            // With very many files it sleeps half of the time.
            self.sleep(pause.max(now.elapsed().min(SLOW)));
        }
    }

    /// Looks at a file, frees what can be freed, and goes over to waiting once it no longer grows.
    fn tend(&mut self, i: usize) {
        let file = &mut self.files[i];
        let Some(mut length) = file.look() else { return };
        if length == file.length
            && let Some(watcher) = &self.watcher
        {
            // Without a watch it is looked at by timer.
            file.watch = watcher.arm(&file.path).ok();
            // A write may have come between.
            match file.look() {
                Some(now) => length = now,
                None => return,
            }
        }
        file.length = length;
        let read_to = self.positions.as_ref().map_or(u64::MAX, |positions| positions.read_to(&file.path));
        if read_to < length.saturating_sub(self.max) {
            // The console is behind, and no write will tell when it has caught up.
            file.watch = None;
        }
        let Some(range) = file.trim.next(length, self.max, file.block, read_to) else { return };
        let opened = File::options().write(true).open(&file.path).and_then(|opened| Ok((opened.metadata()?, opened)));
        let Ok((meta, opened)) = opened else {
            file.gone = true;
            return;
        };
        if meta.len() < length || (meta.dev(), meta.ino()) != file.identity {
            // Cut by somebody since the look: what is there now begins anew, and is not to be freed.
            return;
        }
        if let Err(errno) = punch(&opened, range) {
            self.punches = false;
            let path = file.path.display();
            log::warn!(
                "log files are cut to their size only when the workers have ended: freeing the beginning of {path}: {errno}"
            );
        }
    }

    fn sleep(&mut self, pause: Duration) {
        let active = self.punches && self.files.iter().any(|file| file.watch.is_none() && !file.gone);
        let pause = if self.watcher.is_some() { pause } else { BLIND };
        let timeout = if active { PollTimeout::try_from(pause).unwrap_or(PollTimeout::MAX) } else { PollTimeout::NONE };
        // While files are looked at by timer, events about others can wait for it: fewer wake-ups.
        let mut fds = vec![PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN)];
        fds.extend(
            self.watcher.iter().filter(|_| !active).map(|watcher| PollFd::new(watcher.as_fd(), PollFlags::POLLIN)),
        );
        if poll(&mut fds, timeout).is_err() {
            return;
        }
        // Reading resets it; empty already is as good.
        let _ = self.shared.wake.read();
        let files = &mut self.files;
        if let Some(watcher) = &mut self.watcher {
            watcher.drain(|told| {
                for file in files.iter_mut() {
                    if told == Told::Anything || file.watch.is_some_and(|watch| told == Told::Changed(watch)) {
                        file.watch = None;
                    }
                }
            });
        }
    }

    /// The last step of the scheme.
    fn cut(&mut self, deadline: Instant) -> Vec<String> {
        // All was shown that will be. First what makes room: the rest needs some.
        self.positions = None;
        for i in 0..self.files.len() {
            if self.punches && !self.files[i].gone {
                self.tend(i);
            }
        }
        if let Some(unsaved) = self.shared.unsaved.get() {
            // Who calls asks again for what is missing still.
            let _ = unsaved.save();
        }
        let mut too_long = Vec::new();
        for file in &mut self.files {
            if file.look().is_some_and(|length| length > self.max) {
                too_long.push(compact::File { path: file.path.clone(), identity: file.identity });
            }
        }
        compact::all(&too_long, self.max, deadline)
    }
}
