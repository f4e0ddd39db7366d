//! Following the log files of a run that goes on, for who reads them beside its launcher: [`RunTail`]. Not here: the
//! launcher's own console (`tail`), reading one file (`reader`).

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::error::LogsError;
use crate::lines::Shape;
use crate::reader::{LogReader, buffer};
use crate::tail::row::{self, Bar, Frame, Row};
use crate::tail::watch::{Told, Watcher};

/// The time between looks where nothing tells of writes.
const LOOK: Duration = Duration::from_millis(50);

/// The time between two draws of a progress bar.
const DRAW: Duration = Duration::from_millis(100);

/// Follows log files and gives their lines, whole and with their prefixes, when it is asked to.
///
/// Unlike [`Tail`](crate::Tail) it has no thread and nobody waits for it: a launcher that limits the size of its files
/// ([`LogLimiter`](crate::LogLimiter)) frees them as it would otherwise. Wherever bytes were freed before they were read here,
/// one line says how many are missing, and the next line is whole. A file is followed by identity: one that is renamed, or
/// replaced by its end, is read on as it was. One that was cut is read again from its start, after a line that says so.
///
/// It may be waited for with poll(2): call [`take`](Self::take) until it gives `false`, wait until
/// [`watched`](Self::watched) is readable or [`timeout`](Self::timeout) is over, and begin again.
///
/// ```
/// use std::io::Write;
/// use rankrun_logs::{RunTail, open_log};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("stdout.log");
/// let mut worker = open_log(&path)?;
/// let mut tail = RunTail::open([(path, b"[0]:".to_vec())])?;
/// let mut text = Vec::new();
/// worker.write_all(b"one\ntw")?;
/// while tail.take(&mut text) {}
/// assert_eq!(text, b"[0]:one\n");
/// worker.write_all(b"o")?;
/// tail.finish(&mut text)?;
/// assert_eq!(text, b"[0]:one\n[0]:two\n");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RunTail {
    files: Vec<Followed>,
    watcher: Option<Watcher>,
    /// Files are looked at by timer too.
    timed: bool,
    buffer: Box<[u8]>,
    row: Option<LastRow>,
    /// The first file that could not be read.
    unreadable: Option<LogsError>,
}

#[derive(Debug)]
struct Followed {
    path: PathBuf,
    prefix: Vec<u8>,
    reader: LogReader,
    /// The number of its watch, while that is set.
    watch: Option<i32>,
    /// It may have bytes to read.
    dirty: bool,
    dead: bool,
}

impl Followed {
    fn frame(&self) -> Frame {
        let lines = self.reader.shown().bar();
        match lines.frame() {
            None => Frame::None,
            Some(_) if lines.has_new_frame() => Frame::New,
            Some(_) => Frame::Old,
        }
    }
}

/// The last row of a terminal.
#[derive(Debug)]
struct LastRow {
    row: Row,
    prefix_columns: usize,
    sources: Vec<usize>,
    last_draw: Option<Instant>,
}

impl RunTail {
    /// Opens the files, each with what stands before its lines. They are read from their start.
    ///
    /// # Errors
    /// [`LogsError::Read`] if one cannot be opened. A lack of inotify is no error: a timer stands in.
    pub fn open(files: impl IntoIterator<Item = (PathBuf, Vec<u8>)>) -> Result<Self, LogsError> {
        let open = |(path, prefix): (PathBuf, Vec<u8>)| match LogReader::open(&path, Shape::of_console()) {
            Ok(reader) => Ok(Followed { path, prefix, reader, watch: None, dirty: true, dead: false }),
            Err(source) => Err(LogsError::Read { path, source }),
        };
        let files = files.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let watcher = Watcher::new().ok();
        Ok(Self { files, timed: watcher.is_none(), watcher, buffer: buffer(), row: None, unreadable: None })
    }

    /// Looks at the files every 50 ms too: for a network file system that other hosts write to.
    #[must_use]
    pub fn timed(mut self) -> Self {
        self.timed = true;
        self
    }

    /// Shows progress bars as they grow, in the last row of the terminal that the lines go to: see [`draw`](Self::draw).
    ///
    /// `prefix_columns`: how many columns each of the prefixes takes.
    #[must_use]
    pub fn on_terminal(mut self, prefix_columns: usize) -> Self {
        let sources = (0..self.files.len()).collect();
        self.row = Some(LastRow { row: Row::default(), prefix_columns, sources, last_draw: None });
        self
    }

    /// Appends lines that are complete, of at most 64 KiB of each file, and says whether there may be more now.
    ///
    /// A file that cannot be read is left alone from then on; [`finish`](Self::finish) says why.
    pub fn take(&mut self, out: &mut Vec<u8>) -> bool {
        let start = self.begin(out);
        for i in 0..self.files.len() {
            if self.files[i].dirty {
                self.read(i, u64::MAX, out);
            }
        }
        self.end(start, out);
        self.files.iter().any(|file| file.dirty)
    }

    /// Appends what the files have by now, also a last line that has not ended. What they get later is not waited for.
    ///
    /// # Errors
    /// [`LogsError::Read`] if one could not be read; of the others all was given.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<(), LogsError> {
        let start = self.begin(out);
        for i in 0..self.files.len() {
            match self.files[i].reader.length() {
                Ok(length) => while !self.files[i].dead && self.read(i, length, out) {},
                Err(error) => self.give_up(i, error),
            }
            let Followed { reader, prefix, .. } = &mut self.files[i];
            reader.lines().finish(prefix, out);
        }
        // Of a bar without an end its line has taken the place.
        self.end(start, out);
        self.unreadable.map_or(Ok(()), Err)
    }

    /// What becomes readable when a file is written to, for poll(2); `None` where nothing tells of it.
    #[must_use]
    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.watcher.as_ref().map(AsFd::as_fd)
    }

    /// How long to wait at most; `None` for ever.
    #[must_use]
    pub fn timeout(&self, now: Instant) -> Option<Duration> {
        let look = self.timed.then_some(LOOK);
        let draw = self
            .row
            .as_ref()
            .filter(|_| self.wants_draw())
            .map(|row| row.last_draw.map_or(Duration::ZERO, |last| (last + DRAW).saturating_duration_since(now)));
        look.into_iter().chain(draw).min()
    }

    /// Finds out which files have something new: call it after a wait.
    pub fn look(&mut self) {
        let files = &mut self.files;
        if self.timed {
            files.iter_mut().for_each(|file| file.dirty = !file.dead);
        }
        let Some(watcher) = &mut self.watcher else { return };
        watcher.drain(|told| {
            for file in files.iter_mut().filter(|file| !file.dead) {
                if told == Told::Anything || file.watch.is_some_and(|watch| told == Told::Changed(watch)) {
                    (file.watch, file.dirty) = (None, true);
                }
            }
        });
    }

    /// Appends what shows the newest state of a progress bar in a last row of `columns`, at most ten times a second.
    pub fn draw(&mut self, now: Instant, columns: usize, out: &mut Vec<u8>) {
        if !self.wants_draw() {
            return;
        }
        let Some(last_row) = &mut self.row else { return };
        if last_row.last_draw.is_some_and(|last| last + DRAW > now) {
            return;
        }
        last_row.last_draw = Some(now);
        let files = &self.files;
        let Some(next) = last_row.row.next(&last_row.sources, |source| files[source].frame()) else { return };
        let frame = files[next].reader.shown().bar().frame().unwrap_or_default();
        let bar = Bar { prefix: &files[next].prefix, prefix_columns: last_row.prefix_columns, frame };
        row::draw(b"", Some(bar), columns, out);
        last_row.row.shown = true;
        self.files[next].reader.lines().frame_shown();
    }

    fn wants_draw(&self) -> bool {
        let wants = |last: &LastRow| last.row.wants_draw(&last.sources, |source| self.files[source].frame());
        self.row.as_ref().is_some_and(wants)
    }

    /// Reads one chunk, and says whether there was one.
    fn read(&mut self, i: usize, end: u64, out: &mut Vec<u8>) -> bool {
        let Followed { reader, prefix, .. } = &mut self.files[i];
        match reader.read(end, &mut self.buffer, prefix, out) {
            Ok(true) => return true,
            Ok(false) => self.at_end(i),
            Err(error) => self.give_up(i, error),
        }
        false
    }

    fn at_end(&mut self, i: usize) {
        let file = &mut self.files[i];
        file.dirty = false;
        let Some(watcher) = self.watcher.as_ref().filter(|_| file.watch.is_none()) else { return };
        // By descriptor it stays true when the file is renamed or replaced.
        let by_fd = format!("/proc/self/fd/{}", file.reader.fd());
        match watcher.arm(by_fd.as_ref()).or_else(|_| watcher.arm(&file.path)) {
            // A write may have come between.
            Ok(watch) => (file.watch, file.dirty) = (Some(watch), true),
            Err(_) => self.timed = true,
        }
    }

    fn give_up(&mut self, i: usize, source: std::io::Error) {
        let file = &mut self.files[i];
        (file.dirty, file.dead) = (false, true);
        self.unreadable.get_or_insert(LogsError::Read { path: file.path.clone(), source });
    }

    /// Begins to append lines, in the place of a frame that is shown.
    fn begin(&self, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        if self.row.as_ref().is_some_and(|row| row.row.shown) {
            out.extend_from_slice(row::ERASE);
        }
        start
    }

    fn end(&mut self, start: usize, out: &mut Vec<u8>) {
        let Some(LastRow { row, .. }) = self.row.as_mut().filter(|row| row.row.shown) else { return };
        if out.len() == start + row::ERASE.len() {
            out.truncate(start);
        } else {
            row.shown = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;

    fn tail(dir: &tempfile::TempDir, count: usize) -> (Vec<File>, RunTail) {
        let paths: Vec<PathBuf> = (0..count).map(|i| dir.path().join(format!("{i}.log"))).collect();
        let workers = paths.iter().map(|path| crate::open_log(path).unwrap()).collect();
        let files = paths.into_iter().enumerate().map(|(i, path)| (path, format!("{i}:").into_bytes()));
        (workers, RunTail::open(files).unwrap())
    }

    fn taken(tail: &mut RunTail) -> String {
        let mut out = Vec::new();
        while tail.take(&mut out) {}
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn who_waits_is_woken_by_what_is_written_and_by_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (mut workers, mut tail) = tail(&dir, 2);
        assert_eq!(taken(&mut tail), "");
        let woken = |tail: &RunTail| crate::tail::wait_readable(tail.watched().unwrap(), Instant::now());
        assert_eq!((woken(&tail), tail.timeout(Instant::now())), (false, None));
        for text in ["one\n", "two\n"] {
            workers[1].write_all(text.as_bytes()).unwrap();
            assert!(woken(&tail));
            tail.look();
            assert_eq!(taken(&mut tail), format!("1:{text}"));
            assert!(!woken(&tail));
        }
    }

    #[test]
    fn where_nothing_tells_of_writes_a_timer_does() {
        let dir = tempfile::tempdir().unwrap();
        let (mut workers, tail) = tail(&dir, 1);
        let mut tail = tail.timed();
        assert_eq!(taken(&mut tail), "");
        assert_eq!(tail.timeout(Instant::now()), Some(LOOK));
        workers[0].write_all(b"one\n").unwrap();
        tail.look();
        assert_eq!(taken(&mut tail), "0:one\n");
    }

    #[test]
    fn a_progress_bar_lives_in_the_last_row_until_its_line_ends() {
        let dir = tempfile::tempdir().unwrap();
        let (mut workers, tail) = tail(&dir, 2);
        let mut tail = tail.on_terminal(2);
        let now = Instant::now();
        workers[0].write_all(b"\r10%\r20%").unwrap();
        assert_eq!(taken(&mut tail), "");
        assert_eq!(tail.timeout(now), Some(Duration::ZERO));
        let mut out = Vec::new();
        tail.draw(now, 80, &mut out);
        assert_eq!(out.escape_ascii().to_string(), "\\x1b[K0:20%\\r");
        assert_eq!(tail.timeout(now), None);
        workers[1].write_all(b"line\n").unwrap();
        tail.look();
        assert_eq!(taken(&mut tail), "\x1b[K1:line\n");
        assert_eq!(tail.timeout(now), Some(DRAW), "the line took its place");
        let mut rest = Vec::new();
        tail.draw(now, 80, &mut rest);
        assert!(rest.is_empty(), "not so soon");
        tail.draw(now + DRAW, 80, &mut rest);
        tail.finish(&mut rest).unwrap();
        assert_eq!(rest.escape_ascii().to_string(), "\\x1b[K0:20%\\r\\x1b[K0:20%\\n");
    }
}
