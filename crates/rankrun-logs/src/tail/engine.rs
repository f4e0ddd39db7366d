//! The tail engine's thread: reads files, writes consoles, sleeps in one poll(2). Not here: how lines are made
//! (`core`).
//!
//! A file is in one of three states. *Watched*: read to its end, its one-shot watch set, costs nothing. *Dirty*: may
//! have bytes. *Ticking*: read to its end a moment ago, looked at again at the next tick, so that a worker that writes
//! often costs a read every millisecond and not an event for each write. A tick that finds nothing sets the watch again
//! and reads once more, because a write may have come between. Where there is no watch, files keep ticking, less and
//! less often.

mod ending;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;

use super::core::TailCore;
use super::outputs::{Output, Plan};
use super::trail::{Found, KEPT, Trail};
use super::watch::{Told, Watcher};
use super::{DrainOutcome, IncompleteDrain, Request, Shared, lock};
use crate::health::{LogHealth, PAUSE};
use crate::limit::dropped;
use crate::options::StatusLine;
use crate::sparse::data_from;
use crate::unsaved::{Follower, Next, Unsaved};

/// How much is read of a file at once, in bytes.
const CHUNK: usize = 64 * 1024;

/// The time between looks at a file that is being written to, and the longest where there are no watches.
const TICK: Duration = Duration::from_millis(1);
const LONGEST_TICK: Duration = Duration::from_millis(20);

/// The time between two looks at the status.
const STATUS: Duration = Duration::from_secs(1);

/// The time between two draws of a progress bar.
const DRAW: Duration = Duration::from_millis(100);

/// The thread's state.
pub(super) struct Engine {
    pub(super) shared: Arc<Shared>,
    core: TailCore,
    files: Vec<Followed>,
    outputs: Vec<Output>,
    /// Which sources are of each source that was given, for what is told of those.
    given: Vec<Vec<usize>>,
    last_draw: Instant,
    status: Option<Status>,
    watcher: Option<Watcher>,
    buffer: Box<[u8]>,
    tick: Tick,
    /// When something was last read.
    last_read: Instant,
    ending: Option<Ending>,
    unreadable: Option<IncompleteDrain>,
    warned_of_watches: bool,
    /// Of the run, as long as nothing was said.
    health: Option<Health>,
    log_health: Option<LogHealth>,
    unsaved: Option<Unsaved>,
}

struct Followed {
    file: File,
    path: PathBuf,
    /// The same file by descriptor, which stays true when it is renamed or replaced.
    by_fd: PathBuf,
    offset: u64,
    /// What was just before the offset.
    trail: Trail,
    /// The number of its watch, while that is set.
    watch: Option<i32>,
    ticking: bool,
    /// How far to read at the end.
    target: Option<u64>,
    dead: bool,
    /// Where what it did not take comes from.
    unsaved: Option<Follower>,
    /// It was cut, and that was said.
    cut: bool,
}

/// What is shown below all lines.
struct Status {
    line: StatusLine,
    output: usize,
    /// When to ask for its text again.
    next: Instant,
}

struct Tick {
    next: Option<Instant>,
    interval: Duration,
}

struct Ending {
    request: Request,
    since: Instant,
    /// Nothing is read any more; what is pending is to be written.
    flushing: bool,
}

/// What is looked at beside the files themselves.
struct Health {
    run: LogHealth,
    /// The watches that tell of what goes away in its directories.
    directories: Vec<i32>,
    look_at: Option<Instant>,
}

impl Engine {
    pub(super) fn new(
        plan: Plan,
        watcher: Option<Watcher>,
        (health, unsaved): (Option<LogHealth>, Option<Unsaved>),
        shared: Arc<Shared>,
    ) -> Self {
        let followed = plan.files.into_iter().map(|(path, file)| Followed {
            offset: data_from(&file, 0),
            by_fd: format!("/proc/self/fd/{}", file.as_raw_fd()).into(),
            file,
            unsaved: unsaved.as_ref().and_then(|unsaved| unsaved.follow(&path, &shared.wake)),
            path,
            trail: Trail::new(),
            watch: None,
            ticking: false,
            target: None,
            dead: false,
            cut: false,
        });
        let files: Vec<Followed> = followed.collect();
        let live: Vec<bool> = plan.outputs.iter().map(|output| output.live).collect();
        let log_health = health.clone();
        let health = health.map(|run| Health {
            directories: watcher.as_ref().map_or(Vec::new(), |watcher| run.arm(watcher)),
            run,
            look_at: None,
        });
        let mut core = TailCore::new(plan.sources, &live);
        (0..files.len()).for_each(|source| core.mark_dirty(source));
        Self {
            shared,
            core,
            files,
            outputs: plan.outputs,
            given: plan.given,
            last_draw: Instant::now(),
            status: plan.status.map(|(output, line)| Status { line, output, next: Instant::now() + STATUS }),
            watcher,
            buffer: vec![0; CHUNK + KEPT].into(),
            tick: Tick { next: None, interval: TICK },
            last_read: Instant::now(),
            ending: None,
            unreadable: None,
            warned_of_watches: false,
            health,
            log_health,
            unsaved,
        }
    }

    /// Runs until it was asked to end and has ended.
    pub(super) fn run(mut self) -> DrainOutcome {
        // Handlers of the host program belong to its own threads; SIGPIPE would kill where it is not ignored.
        let _ = SigSet::all().thread_block();
        loop {
            let now = Instant::now();
            self.take_request(now);
            self.tick(now);
            while let Some(source) = self.core.next_source() {
                self.read(source, now);
            }
            self.flush();
            self.ask_status(Instant::now());
            self.draw(Instant::now());
            self.check_health(Instant::now());
            if let Some(outcome) = self.ended(Instant::now()) {
                return outcome;
            }
            self.sleep();
        }
    }

    fn take_request(&mut self, now: Instant) {
        for (given, pid) in std::mem::take(&mut *lock(&self.shared.pids)) {
            for source in self.given.get(given).into_iter().flatten() {
                self.core.set_pid(*source, Some(pid));
            }
        }
        if self.unsaved.as_ref().is_some_and(Unsaved::has_news) {
            let waiting = |followed: &Followed| followed.unsaved.as_ref().is_some_and(Follower::is_waiting);
            (0..self.files.len())
                .filter(|source| !self.files[*source].dead && waiting(&self.files[*source]))
                .for_each(|source| self.core.mark_dirty(source));
        }
        let Some(request) = lock(&self.shared.request).take() else { return };
        if let Some(ending) = &mut self.ending {
            ending.request = request;
            return;
        }
        self.ending = Some(Ending { request, since: now, flushing: false });
        for (source, followed) in self.files.iter_mut().enumerate() {
            followed.target = followed.file.metadata().map(|meta| meta.len()).ok();
            // Of a worker that was not started there will be none.
            self.core.set_pid(source, None);
            if !followed.dead {
                self.core.mark_dirty(source);
            }
        }
    }

    /// Looks at the ticking files again when it is time, and says when the next time is.
    fn tick(&mut self, now: Instant) {
        if self.tick.next.is_some_and(|next| next <= now) {
            self.tick.next = None;
            // Longer and longer while nothing comes; reading makes it short again.
            self.tick.interval = (self.tick.interval * 2).min(LONGEST_TICK);
            for (source, followed) in self.files.iter_mut().enumerate() {
                if std::mem::take(&mut followed.ticking) {
                    self.core.mark_dirty(source);
                }
            }
        }
    }

    fn start_ticking(&mut self, source: usize, now: Instant) {
        self.files[source].ticking = true;
        self.tick.next.get_or_insert(now + self.tick.interval);
    }

    /// Reads one chunk of a file, or finds its end.
    fn read(&mut self, source: usize, now: Instant) {
        let followed = &mut self.files[source];
        let again = followed.trail.len();
        match followed.file.read_at(&mut self.buffer[..CHUNK + again], followed.offset - again as u64) {
            Ok(count) => match followed.trail.find(&self.buffer[..count]) {
                Found::Next(bytes) => {
                    let length = bytes.len();
                    match followed.unsaved.as_ref().map(|unsaved| unsaved.next(followed.offset)) {
                        None if length == 0 => self.at_end(source, now),
                        None => self.take(source, again..count, u64::MAX, now),
                        Some(Next::File { .. }) if length == 0 => self.at_end(source, now),
                        Some(Next::File { until }) => self.take(source, again..count, until, now),
                        Some(piece) => self.take_unsaved(source, piece, now),
                    }
                }
                Found::Short => self.at_end(source, now),
                Found::Other => self.start_again(source, None),
            },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => self.give_up(source, &error),
        }
    }

    /// Takes what was read now, but for what is from `until` on in the file; before it in the buffer is what was read before.
    fn take(&mut self, source: usize, mut new: Range<usize>, until: u64, now: Instant) {
        let followed = &mut self.files[source];
        let at_end = new.len() < CHUNK;
        let most = usize::try_from(until - followed.offset).unwrap_or(usize::MAX);
        let limited = new.len() > most;
        new.end = new.start + new.len().min(most);
        if self.buffer[new.start] == 0 {
            // Freed by who limits its size, before it was read here.
            let data = data_from(&followed.file, followed.offset).min(until);
            if data > followed.offset {
                (followed.offset, followed.trail) = (data, Trail::new());
                return self.core.finish_line(source);
            }
        }
        followed.offset += new.len() as u64;
        followed.trail.follow(&self.buffer[..new.end]);
        self.shared.positions.set(source, followed.offset);
        self.core.feed(source, &self.buffer[new.clone()], SystemTime::now);
        self.note_read(now);
        if at_end && !limited {
            // Its end, a moment ago. A watch that was set before tells of whatever came since.
            self.core.mark_clean(source);
            if self.files[source].watch.is_none() {
                self.start_ticking(source, now);
            }
        }
    }

    fn note_read(&mut self, now: Instant) {
        self.last_read = now;
        if let Some(health) = &mut self.health {
            health.look_at.get_or_insert(now + PAUSE);
        }
        self.tick.interval = TICK;
    }

    /// Takes what the file does not have.
    fn take_unsaved(&mut self, source: usize, piece: Next, now: Instant) {
        match piece {
            Next::File { .. } => {}
            Next::Bytes(bytes) => self.core.feed(source, &bytes, SystemTime::now),
            Next::Missing(count) => {
                self.core.finish_line(source);
                self.core.feed(source, dropped(count).as_bytes(), SystemTime::now);
            }
            Next::Behind(offset) => {
                let followed = &mut self.files[source];
                (followed.offset, followed.trail) = (offset, Trail::new());
                self.shared.positions.set(source, offset);
            }
        }
        self.note_read(now);
    }

    fn at_end(&mut self, source: usize, now: Instant) {
        let followed = &mut self.files[source];
        let waiting = followed.unsaved.as_ref().filter(|unsaved| unsaved.is_waiting());
        let length = match followed.file.metadata() {
            Ok(meta) => meta.len(),
            Err(error) => return self.give_up(source, &error),
        };
        if let Some(target) = &mut followed.target {
            // A file that was cut while it was drained.
            *target = length.min(*target);
        }
        if length < followed.offset {
            return self.start_again(source, Some(length));
        }
        if let Some(unsaved) = waiting {
            // It stands where the file was before it was cut; or it has come since the file was read, which is then read on.
            if length == followed.offset {
                let piece = unsaved.next_of_cut();
                self.take_unsaved(source, piece, now);
            }
            return;
        }
        let enough = self.ending.as_ref().is_some_and(|ending| ending.request.idle.is_zero());
        if followed.watch.is_some() || enough {
            self.core.mark_clean(source);
        } else if self.watch(source).is_none() {
            self.core.mark_clean(source);
            self.start_ticking(source, now);
        }
        // Else the watch is new: it stays dirty, to be read once more.
    }

    /// Follows from its start a file that was cut: to this length, or to one that it has outgrown.
    fn start_again(&mut self, source: usize, length: Option<u64>) {
        let Followed { path, offset, .. } = &self.files[source];
        // Followed once more for those lines that are chosen; and some workers do it again and again.
        if !self.files.iter().any(|followed| followed.cut && followed.path == *path) {
            let to = length.map_or("and written anew".to_owned(), |length| format!("from {offset} to {length} bytes"));
            log::warn!("{} was cut {to}: following it from its start", path.display());
        }
        let followed = &mut self.files[source];
        (followed.offset, followed.trail, followed.cut) = (0, Trail::new(), true);
        self.shared.positions.set(source, 0);
        self.core.finish_line(source);
    }

    /// Sets the watch of a file; `None` where there are no watches.
    fn watch(&mut self, source: usize) -> Option<i32> {
        let watcher = self.watcher.as_ref()?;
        let followed = &mut self.files[source];
        let watch = watcher.arm(&followed.by_fd).or_else(|_| watcher.arm(&followed.path));
        match watch {
            Ok(watch) => followed.watch = Some(watch),
            Err(errno) => {
                if !std::mem::replace(&mut self.warned_of_watches, true) {
                    let path = followed.path.display();
                    log::warn!("no inotify watch for {path} ({errno}): looking at it every 1 to 20 ms");
                }
            }
        }
        followed.watch
    }

    fn give_up(&mut self, source: usize, error: &io::Error) {
        let followed = &mut self.files[source];
        let errno = error.raw_os_error().unwrap_or(Errno::EIO as i32);
        let why = IncompleteDrain::FileUnreadable { path: followed.path.clone(), errno };
        log::warn!("{}", why.said().unwrap_or_default());
        followed.dead = true;
        self.shared.positions.set(source, u64::MAX);
        self.core.mark_clean(source);
        self.core.finish_line(source);
        self.unreadable.get_or_insert(why);
    }

    /// Writes what is pending, as much as the consoles take at once.
    fn flush(&mut self) {
        for (i, output) in self.outputs.iter_mut().enumerate() {
            while !output.blocked && !self.core.pending(i).is_empty() {
                match output.console.write_some(self.core.pending(i)) {
                    Ok(count) => {
                        self.core.wrote(i, count);
                        self.shared.shown.fetch_add(count as u64, Ordering::Relaxed);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => output.blocked = true,
                    Err(error) => {
                        self.core.close(i);
                        (0..self.files.len())
                            .filter(|source| self.core.output_of(*source) == i)
                            .for_each(|source| self.shared.positions.set(source, u64::MAX));
                        output.fail(&error, self.log_health.as_ref());
                    }
                }
            }
        }
    }

    /// Asks what the status is, if it is time.
    fn ask_status(&mut self, now: Instant) {
        let Some(status) = self.status.as_mut().filter(|status| status.next <= now) else { return };
        // Not twice in a row where it could not be asked for a while.
        status.next = now + STATUS;
        if self.core.is_closed(status.output) {
            self.status = None;
        } else {
            self.core.set_status(status.output, &status.line.text());
        }
    }

    /// Shows the newest state of progress bars, if it is time.
    fn draw(&mut self, now: Instant) {
        if self.draw_at().is_none_or(|at| at > now) {
            return;
        }
        self.last_draw = now;
        for (i, output) in self.outputs.iter().enumerate() {
            if self.core.wants_draw(i) {
                self.core.draw(i, output.console.columns());
            }
        }
        self.flush();
    }

    /// Looks at the directory and its disk, if it is time.
    fn check_health(&mut self, now: Instant) {
        let Some(health) = &mut self.health else { return };
        if health.look_at.is_none_or(|at| at > now) {
            return;
        }
        health.look_at = None;
        if health.run.look().is_some() {
            // It is said; there is no more to say.
            self.health = None;
        }
    }

    /// When to draw next: `None` while there is nothing new, so that nothing wakes the thread.
    fn draw_at(&self) -> Option<Instant> {
        let wanted = self.outputs.iter().enumerate().any(|(i, output)| !output.blocked && self.core.wants_draw(i));
        wanted.then(|| self.last_draw + DRAW)
    }

    /// Sleeps until there is something to do, and notes what.
    fn sleep(&mut self) {
        let timeout = if self.core.has_work() { PollTimeout::ZERO } else { timeout(self.until_next()) };
        let mut fds = vec![PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN)];
        let watcher = self.watcher.as_ref().map(|watcher| {
            fds.push(PollFd::new(watcher.as_fd(), PollFlags::POLLIN));
            fds.len() - 1
        });
        let blocked: Vec<usize> = (0..self.outputs.len()).filter(|output| self.outputs[*output].blocked).collect();
        let first_blocked = fds.len();
        fds.extend(blocked.iter().map(|output| PollFd::new(self.outputs[*output].console.as_fd(), PollFlags::POLLOUT)));
        if poll(&mut fds, timeout).is_err() {
            return;
        }
        let ready = |i: usize| fds[i].any().unwrap_or(false);
        let woken = ready(0);
        let told = watcher.is_some_and(ready);
        let writable: Vec<usize> =
            blocked.iter().enumerate().filter(|(i, _)| ready(first_blocked + i)).map(|(_, output)| *output).collect();
        if woken {
            // Reading resets it; empty already is as good.
            let _ = self.shared.wake.read();
        }
        for output in writable {
            self.outputs[output].blocked = false;
        }
        if told {
            self.take_news();
        }
    }

    fn take_news(&mut self) {
        let Some(watcher) = &mut self.watcher else { return };
        let (files, core, health) = (&mut self.files, &mut self.core, &mut self.health);
        watcher.drain(|told| {
            if let (Some(health), Told::Changed(watch)) = (health.as_mut(), told)
                && health.directories.contains(&watch)
            {
                // The last thing in it goes a moment before it goes itself.
                health.look_at = Some(Instant::now() + PAUSE);
            }
            for (source, followed) in files.iter_mut().enumerate() {
                let changed = match told {
                    Told::Anything => true,
                    Told::Changed(watch) => followed.watch == Some(watch),
                };
                if changed && !followed.dead {
                    followed.watch = None;
                    core.mark_dirty(source);
                }
            }
        });
    }

    /// How long it may sleep; `None` for ever.
    fn until_next(&self) -> Option<Duration> {
        let deadline = self.ending.as_ref().map(|ending| ending.request.deadline);
        let health = self.health.as_ref().and_then(|health| health.look_at);
        let status = self.status.as_ref().map(|status| status.next);
        let next = [self.tick.next, deadline, self.idle_until(), self.draw_at(), health, status];
        let next = next.into_iter().flatten().min();
        next.map(|next| next.saturating_duration_since(Instant::now()))
    }
}

/// The timeout for poll(2): in whole milliseconds, rounded up; `None` waits for ever.
pub(crate) fn timeout(duration: Option<Duration>) -> PollTimeout {
    let Some(duration) = duration else { return PollTimeout::NONE };
    let millis = duration.as_nanos().div_ceil(1_000_000);
    // A longer one ends early, and its caller looks at the clock again.
    PollTimeout::from(u16::try_from(millis).unwrap_or(u16::MAX))
}
