//! What log files did not take while their disk was full: [`Unsaved`]. Not here: noticing it (`pty::mover`), showing it
//! (`tail::engine`).

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use memchr::memchr;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::eventfd::EventFd;

use crate::last_lines::{end_of, last_lines_of};
use crate::limit::dropped;

/// The most that is held of one file for who shows it, in bytes; what is more is not shown.
const HELD: usize = 1 << 20;

/// The most that is shown at once.
const PIECE: usize = 64 * 1024;

/// How much of the end is kept for a report.
const END: usize = 16 * 1024;

/// What the files of [`WorkerTerminals`](crate::WorkerTerminals) did not take while their disk was full.
///
/// A cheap handle, see [`WorkerTerminals::unsaved`](crate::WorkerTerminals::unsaved). A tail that is given it
/// ([`TailOptions::unsaved`](crate::TailOptions::unsaved)) shows these bytes where they belong among those of the file: so
/// the console is complete where the file is not. At most 1 MiB of each file waits for a slow console; what is more is
/// missing there too, and a line says how much.
#[derive(Debug, Clone)]
pub struct Unsaved(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    files: Vec<(PathBuf, Mutex<State>)>,
    /// Something waits for who shows it, and wakes them.
    news: AtomicBool,
    wake: OnceLock<Arc<EventFd>>,
}

/// Of one file.
#[derive(Debug, Default)]
struct State {
    /// How many bytes the file has not taken since it took the last one.
    missing: u64,
    /// The last of these.
    end: VecDeque<u8>,
    /// One for each who shows it.
    queues: Vec<Queue>,
}

impl Unsaved {
    pub(crate) fn new(paths: impl Iterator<Item = PathBuf>) -> Self {
        let files = paths.map(|path| (path, Mutex::default())).collect();
        Self(Arc::new(Inner { files, news: AtomicBool::new(false), wake: OnceLock::new() }))
    }

    /// The last lines of what was written to a file, at most `count`, oldest first, also where the file did not take them;
    /// else as [`last_lines`](crate::last_lines).
    #[must_use]
    pub fn last_lines(&self, path: impl AsRef<Path>, count: usize) -> Vec<String> {
        let path = path.as_ref();
        let Some(number) = self.number(path) else { return crate::last_lines(path, count) };
        let (missing, end) = {
            let state = self.state(number);
            (state.missing, Vec::from(state.end.clone()))
        };
        // What comes before is lost where not all of the rest was kept.
        let before = if missing == end.len() as u64 { end_of(path).unwrap_or_default() } else { Vec::new() };
        last_lines_of(&[before, end].concat(), count)
    }

    /// Appends what the files have not taken, where there is room now, and says what is missing still, for people.
    ///
    /// For the end of a run, when the terminals are closed. Of each file the last 16 KiB were kept: of more, these from the
    /// start of a line, after a line that says how many bytes are not there. May block as a write to a file does.
    /// Idempotent: what is there is not appended again.
    #[must_use]
    pub fn save(&self) -> Option<String> {
        for (number, (path, _)) in self.0.files.iter().enumerate() {
            if let Err(error) = self.save_one(number, path) {
                log::debug!("not saved to {}: {error}", path.display());
            }
        }
        self.summary()
    }

    fn save_one(&self, number: usize, path: &Path) -> io::Result<()> {
        let mut state = self.state(number);
        if state.missing == 0 {
            return Ok(());
        }
        let mut file = File::options().read(true).append(true).open(path)?;
        let at = file.metadata()?.len();
        let mut last = [b'\n'];
        if at > 0 {
            file.read_exact_at(&mut last, at - 1)?;
        }
        let text = rest(state.missing, state.end.make_contiguous(), last != *b"\n");
        // All of it or nothing, where the file system can promise that.
        let number = |n: u64| i64::try_from(n).map_err(io::Error::other);
        match fallocate(&file, FallocateFlags::FALLOC_FL_KEEP_SIZE, number(at)?, number(text.len() as u64)?) {
            Ok(()) | Err(Errno::EOPNOTSUPP) => {}
            Err(errno) => return Err(errno.into()),
        }
        if let Err(error) = file.write_all(&text) {
            // Half of it would be there twice if it were appended again.
            file.set_len(at)?;
            return Err(error);
        }
        let note = |queue: &mut Queue| queue.pieces.push_back(Piece::Note { at, length: text.len() as u64 });
        state.queues.iter_mut().for_each(note);
        state.missing = 0;
        state.end.clear();
        Ok(())
    }

    /// Says that a file that ends at `at` has not taken these bytes.
    pub(crate) fn lose(&self, number: usize, at: u64, bytes: &[u8]) {
        let mut state = self.state(number);
        state.missing += bytes.len() as u64;
        let kept = &bytes[bytes.len().saturating_sub(END)..];
        let excess = (state.end.len() + kept.len()).saturating_sub(END);
        state.end.drain(..excess);
        state.end.extend(kept);
        state.queues.iter_mut().for_each(|queue| queue.push(at, bytes));
        let followed = !state.queues.is_empty();
        drop(state);
        if followed {
            self.0.news.store(true, Ordering::Release);
            if let Some(wake) = self.0.wake.get() {
                // It fails only when the counter is full, and then it is readable already.
                let _ = wake.write(1);
            }
        }
    }

    /// Lets a note of what is missing be written to a file that ends at `at`; `write` gives how many bytes of it the file
    /// took, and whether it took all.
    ///
    /// Nobody is told of a place in the file meanwhile: who has read some of the note then knows it for one.
    pub(crate) fn note<E>(
        &self,
        number: usize,
        at: u64,
        write: impl FnOnce() -> (usize, Result<(), E>),
    ) -> Result<(), E> {
        let mut state = self.state(number);
        let (length, result) = write();
        if length > 0 {
            state.queues.iter_mut().for_each(|queue| queue.pieces.push_back(Piece::Note { at, length: length as u64 }));
        }
        if result.is_ok() {
            state.missing = 0;
            state.end.clear();
        }
        result
    }

    /// How many bytes a file has not taken since it took the last one.
    pub(crate) fn missing(&self, number: usize) -> u64 {
        self.state(number).missing
    }

    /// What is missing at the end of files, for people; `None` if nothing is.
    fn summary(&self) -> Option<String> {
        let missing = self.0.files.iter().enumerate().map(|(number, (path, _))| (self.missing(number), path));
        let missing: Vec<_> = missing.filter(|(bytes, _)| *bytes > 0).collect();
        let named: Vec<String> =
            missing.iter().take(8).map(|(bytes, path)| format!("{bytes} bytes of {}", path.display())).collect();
        let more: u64 = missing.iter().skip(8).map(|(bytes, _)| bytes).sum();
        let more = if more > 0 { format!(", {more} bytes of {} others", missing.len() - 8) } else { String::new() };
        (!named.is_empty()).then(|| format!("dropped at the end: {}{more}", named.join(", ")))
    }

    /// Follows a file from now on, for who is woken by this; `None` if it is none of these.
    pub(crate) fn follow(&self, path: &Path, wake: &Arc<EventFd>) -> Option<Follower> {
        let number = self.number(path)?;
        let _ = self.0.wake.set(Arc::clone(wake));
        let mut state = self.state(number);
        state.queues.push(Queue::default());
        Some(Follower { unsaved: self.clone(), number, queue: state.queues.len() - 1 })
    }

    /// Whether anything has come since the last call.
    pub(crate) fn has_news(&self) -> bool {
        self.0.news.swap(false, Ordering::Acquire)
    }

    fn number(&self, path: &Path) -> Option<usize> {
        self.0.files.iter().position(|(known, _)| known == path)
    }

    fn state(&self, number: usize) -> MutexGuard<'_, State> {
        self.0.files[number].1.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is appended to a file that has not taken `missing` bytes, of which the `end` was kept; `in_line`: it does not end
/// with a newline.
fn rest(missing: u64, end: &[u8], in_line: bool) -> Vec<u8> {
    if missing == end.len() as u64 {
        return end.to_vec();
    }
    let start = memchr(b'\n', end).map(|newline| newline + 1).filter(|start| *start < end.len()).unwrap_or(0);
    let kept = &end[start..];
    let newline: &[u8] = if in_line { b"\n" } else { b"" };
    [newline, dropped(missing - kept.len() as u64).as_bytes(), kept].concat()
}

/// One who shows what a file did not take.
#[derive(Debug)]
pub(crate) struct Follower {
    unsaved: Unsaved,
    number: usize,
    queue: usize,
}

impl Follower {
    /// What is to be shown next by who has shown the file up to `offset`.
    ///
    /// To be asked after the file was read: what was written to it later stands behind what is told here.
    pub(crate) fn next(&self, offset: u64) -> Next {
        self.with(|queue| queue.next(offset))
    }

    /// What waits for a place that the file does not have any more, because it was cut.
    pub(crate) fn next_of_cut(&self) -> Next {
        self.with(|queue| queue.next(u64::MAX))
    }

    /// Whether anything waits.
    pub(crate) fn is_waiting(&self) -> bool {
        self.with(|queue| !queue.pieces.is_empty())
    }

    /// How many bytes wait.
    pub(crate) fn held(&self) -> u64 {
        self.with(|queue| queue.held as u64)
    }

    fn with<T>(&self, look: impl FnOnce(&mut Queue) -> T) -> T {
        look(&mut self.unsaved.state(self.number).queues[self.queue])
    }
}

/// What is shown next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The file, up to this offset.
    File { until: u64 },
    /// Bytes that the file does not have.
    Bytes(Vec<u8>),
    /// So many bytes that nobody has.
    Missing(u64),
    /// The file from this offset on: before it is a note of what it does not have.
    Behind(u64),
}

/// What waits to be shown, in order.
#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<Piece>,
    /// How many bytes they hold.
    held: usize,
    /// There was too much, and half of it is to be shown first.
    full: bool,
}

#[derive(Debug)]
enum Piece {
    Bytes { at: u64, bytes: Vec<u8> },
    Missing { at: u64, count: u64 },
    Note { at: u64, length: u64 },
}

impl Piece {
    fn at(&self) -> u64 {
        match self {
            Self::Bytes { at, .. } | Self::Missing { at, .. } | Self::Note { at, .. } => *at,
        }
    }
}

impl Queue {
    fn push(&mut self, at: u64, bytes: &[u8]) {
        self.full = self.held + bytes.len() > HELD || (self.full && self.held > HELD / 2);
        match self.pieces.back_mut() {
            Some(Piece::Missing { count, .. }) if self.full => *count += bytes.len() as u64,
            _ if self.full => self.pieces.push_back(Piece::Missing { at, count: bytes.len() as u64 }),
            Some(Piece::Bytes { at: known, bytes: before }) if *known == at && before.len() + bytes.len() <= PIECE => {
                before.extend_from_slice(bytes);
            }
            _ => self.pieces.push_back(Piece::Bytes { at, bytes: bytes.to_vec() }),
        }
        if !self.full {
            self.held += bytes.len();
        }
    }

    fn next(&mut self, offset: u64) -> Next {
        loop {
            match self.pieces.front().map(Piece::at) {
                None => return Next::File { until: u64::MAX },
                Some(at) if at > offset => return Next::File { until: at },
                Some(_) => {}
            }
            match self.pieces.pop_front() {
                Some(Piece::Bytes { bytes, .. }) => {
                    self.held -= bytes.len();
                    return Next::Bytes(bytes);
                }
                Some(Piece::Missing { count, .. }) => return Next::Missing(count),
                Some(Piece::Note { at, length }) if at == offset => return Next::Behind(at + length),
                // The file was cut, and the note with it.
                Some(Piece::Note { .. }) | None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::eventfd::EfdFlags;
    use proptest::prelude::*;

    use super::*;

    fn of(path: &Path) -> (Unsaved, Follower) {
        let unsaved = Unsaved::new([path.to_owned()].into_iter());
        let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap());
        let follower = unsaved.follow(path, &wake).unwrap();
        assert!(unsaved.follow(Path::new("another"), &wake).is_none());
        (unsaved, follower)
    }

    #[test]
    fn what_was_not_taken_is_shown_behind_what_was_and_a_note_is_not() {
        let (unsaved, follower) = of(Path::new("log"));
        assert!(!unsaved.has_news());
        unsaved.lose(0, 10, b"one\ntw");
        unsaved.lose(0, 10, b"o\n");
        assert!(unsaved.has_news() && !unsaved.has_news());
        assert_eq!((unsaved.missing(0), follower.held()), (8, 8));
        unsaved.note(0, 10, || (4, Err(()))).unwrap_err();
        unsaved.lose(0, 14, b"three\n");
        unsaved.note(0, 14, || (20, Ok::<(), ()>(()))).unwrap();
        assert_eq!(unsaved.missing(0), 0);
        assert_eq!(follower.next(3), Next::File { until: 10 });
        assert_eq!(follower.next(10), Next::Bytes(b"one\ntwo\n".to_vec()));
        assert_eq!(follower.next(10), Next::Behind(14));
        assert_eq!(follower.next(14), Next::Bytes(b"three\n".to_vec()));
        assert_eq!(follower.next(14), Next::Behind(34));
        assert_eq!((follower.next(34), follower.held()), (Next::File { until: u64::MAX }, 0));
    }

    #[test]
    fn more_than_is_held_is_counted_until_half_of_it_is_shown() {
        let (unsaved, follower) = of(Path::new("log"));
        let piece = vec![b'x'; PIECE];
        (0..20).for_each(|_| unsaved.lose(0, 0, &piece));
        assert_eq!(follower.held(), HELD as u64);
        (0..8).for_each(|_| assert_eq!(follower.next(0), Next::Bytes(piece.clone())));
        unsaved.lose(0, 0, b"again\n");
        (0..8).for_each(|_| assert_eq!(follower.next(0), Next::Bytes(piece.clone())));
        assert_eq!(follower.next(0), Next::Missing(4 * PIECE as u64));
        assert_eq!(follower.next(0), Next::Bytes(b"again\n".to_vec()));
    }

    #[test]
    fn what_waits_for_a_place_that_was_cut_off_is_shown_and_its_note_is_no_more() {
        let (unsaved, follower) = of(Path::new("log"));
        unsaved.lose(0, 100, b"lost\n");
        unsaved.note(0, 100, || (20, Ok::<(), ()>(()))).unwrap();
        assert_eq!(follower.next_of_cut(), Next::Bytes(b"lost\n".to_vec()));
        assert_eq!(follower.next_of_cut(), Next::File { until: u64::MAX });
    }

    #[test]
    fn what_was_kept_is_appended_once_and_what_was_not_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "one\ntw").unwrap();
        let (unsaved, follower) = of(&path);
        unsaved.lose(0, 6, b"o\nthree\n");
        assert_eq!((unsaved.save(), unsaved.save()), (None, None));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\nthree\n");
        assert_eq!(follower.next(6), Next::Bytes(b"o\nthree\n".to_vec()));
        assert_eq!(follower.next(6), Next::Behind(14));

        let line = format!("{}\n", "x".repeat(999));
        unsaved.lose(0, 14, line.repeat(20).as_bytes());
        assert_eq!(unsaved.save(), None);
        let kept = END / 1000;
        let added = format!("{}{}", dropped((20 - kept as u64) * 1000), line.repeat(kept));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("one\ntwo\nthree\n{added}"));

        std::fs::remove_file(&path).unwrap();
        unsaved.lose(0, 0, b"gone");
        assert_eq!(unsaved.save().unwrap(), format!("dropped at the end: 4 bytes of {}", path.display()));
    }

    #[test]
    fn the_line_that_counts_what_was_not_kept_is_one_of_its_own() {
        assert_eq!(rest(3, b"abc", true), b"abc");
        assert_eq!(rest(10, b"b\nc", true), b"\n[rankrun: 9 bytes dropped]\nc");
        assert_eq!(rest(10, b"abc\n", false), b"[rankrun: 6 bytes dropped]\nabc\n");
    }

    #[test]
    fn the_last_lines_are_those_of_the_file_and_what_it_did_not_take() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "one\ntwo\nthr").unwrap();
        let unsaved = Unsaved::new([path.clone()].into_iter());
        assert_eq!(unsaved.last_lines(&path, 2), ["two", "thr"]);
        assert_eq!(unsaved.summary(), None);
        unsaved.lose(0, 11, b"ee\nfour\n");
        assert_eq!(unsaved.last_lines(&path, 3), ["two", "three", "four"]);
        assert_eq!(unsaved.summary().unwrap(), format!("dropped at the end: 8 bytes of {}", path.display()));
        unsaved.lose(0, 11, &b"x\n".repeat(END));
        unsaved.lose(0, 11, b"five\n");
        assert_eq!(unsaved.last_lines(&path, 2), ["x", "five"]);
        assert_eq!(unsaved.last_lines(dir.path().join("none"), 2), [""; 0]);
    }

    proptest! {
        /// A file that sometimes takes only some bytes, read in pieces: all that was written is shown once and in order.
        #[test]
        fn what_file_and_queue_have_is_all_that_was_written(
            steps in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..20), 0..30_usize, 0..9_u64), 0..60),
        ) {
            let (unsaved, follower) = of(Path::new("log"));
            let (mut file, mut written, mut shown, mut offset) = (Vec::new(), Vec::new(), Vec::new(), 0_u64);
            let mut show = |file: &[u8], limit: u64| match follower.next(offset) {
                Next::File { until } => {
                    let end = until.min(file.len() as u64).min(offset + limit);
                    shown.extend_from_slice(&file[offset as usize..end as usize]);
                    let more = end > offset;
                    offset = end;
                    more
                }
                Next::Bytes(bytes) => {
                    shown.extend(bytes);
                    true
                }
                Next::Missing(_) => unreachable!("so little is held"),
                Next::Behind(behind) => {
                    offset = behind;
                    true
                }
            };
            for (bytes, mut room, read) in steps {
                written.extend_from_slice(&bytes);
                let mut write = |file: &mut Vec<u8>, bytes: &[u8]| {
                    let taken = bytes.len().min(room);
                    room -= taken;
                    file.extend_from_slice(&bytes[..taken]);
                    taken
                };
                let at = file.len() as u64;
                let noted = unsaved.missing(0) == 0 || unsaved.note(0, at, || {
                    let taken = write(&mut file, b"[note]\n");
                    (taken, if taken == 7 { Ok(()) } else { Err(()) })
                }).is_ok();
                let taken = if noted { write(&mut file, &bytes) } else { 0 };
                if taken < bytes.len() {
                    unsaved.lose(0, file.len() as u64, &bytes[taken..]);
                }
                show(&file, read);
            }
            while show(&file, 1000) {}
            prop_assert_eq!(shown, written);
        }
    }
}
