//! The thread that moves what workers write to their terminals into the log files: [`Mover`]. Not here: starting it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollTimeout};
use nix::sys::signal::SigSet;

use super::terminal::{Master, ReadEnd};
use super::{Shared, WISH};
use crate::health::LogHealth;
use crate::limit::dropped;
use crate::unsaved::Unsaved;

/// How much is moved of one stream before it is another's turn. More than a terminal's buffer holds, so that at the end
/// one turn moves all that was written before.
const TURN: usize = 64 * 1024;

/// One terminal and its file.
#[derive(Debug)]
pub(super) struct Stream {
    master: Arc<Master>,
    log: Log,
}

/// A log file on a disk that may be full.
#[derive(Debug)]
struct Log<F = File> {
    file: F,
    path: PathBuf,
    /// The last byte that it took is not a newline.
    in_line: bool,
    unsaved: Unsaved,
    /// Which file of the unsaved it is.
    number: usize,
}

/// Where a file ends.
trait End {
    fn end(&self) -> u64;
}

impl End for File {
    fn end(&self) -> u64 {
        // Where it is not known: what is lost is shown at once.
        self.metadata().map_or(0, |meta| meta.len())
    }
}

impl Stream {
    pub(super) fn new(master: Arc<Master>, file: File, path: PathBuf, (unsaved, number): (Unsaved, usize)) -> Self {
        Self { master, log: Log { file, path, in_line: false, unsaved, number } }
    }
}

impl<F: Write + End> Log<F> {
    /// Writes all of it; what the file does not take is unsaved, and the reason given.
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.catch_up().map_err(|error| (0, error)).and_then(|()| self.write(bytes));
        written.map_err(|(taken, error)| {
            self.unsaved.lose(self.number, self.file.end(), &bytes[taken..]);
            error
        })
    }

    /// Writes how much is missing, if anything is.
    fn catch_up(&mut self) -> io::Result<()> {
        let missing = self.unsaved.missing(self.number);
        if missing == 0 {
            return Ok(());
        }
        let newline = if self.in_line { "\n" } else { "" };
        let note = format!("{newline}{}", dropped(missing));
        let (unsaved, at) = (self.unsaved.clone(), self.file.end());
        unsaved.note(self.number, at, || match self.write(note.as_bytes()) {
            Ok(()) => (note.len(), Ok(())),
            Err((taken, error)) => (taken, Err(error)),
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err((bytes.len() - rest.len(), io::ErrorKind::WriteZero.into())),
                Ok(count) => {
                    self.in_line = rest[count - 1] != b'\n';
                    rest = &rest[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err((bytes.len() - rest.len(), error)),
            }
        }
        Ok(())
    }
}

/// The thread's state.
pub(super) struct Mover {
    epoll: Epoll,
    /// By token; `None` once the stream is over.
    streams: Vec<Option<Stream>>,
    shared: Arc<Shared>,
    buffer: Box<[u8]>,
    health: LogHealth,
}

impl Mover {
    pub(super) fn new(epoll: Epoll, streams: Vec<Option<Stream>>, health: LogHealth, shared: Arc<Shared>) -> Self {
        Self { epoll, streams, shared, buffer: vec![0; TURN].into(), health }
    }

    /// Moves until it is asked to end.
    pub(super) fn run(mut self) {
        // Handlers of the host program belong to its own threads; SIGXFSZ would kill where a file's size is limited.
        let _ = SigSet::all().thread_block();
        let mut ready = vec![EpollEvent::empty(); 64];
        loop {
            let count = match self.epoll.wait(&mut ready, EpollTimeout::NONE) {
                Ok(count) => count,
                Err(Errno::EINTR) => continue,
                // The host program closed what is not its own. The workers' writes fail then; they must not wait.
                Err(errno) => return self.warn(format!("terminals of workers are not read any more: epoll: {errno}")),
            };
            let tokens: Vec<u64> = ready[..count].iter().map(EpollEvent::data).collect();
            for token in &tokens {
                self.turn(*token);
            }
            if tokens.contains(&WISH) && self.shared.deadline().is_some() {
                return self.finish();
            }
        }
    }

    /// Moves what one terminal has now.
    fn turn(&mut self, token: u64) {
        let Some(slot) = usize::try_from(token).ok().and_then(|token| self.streams.get_mut(token)) else { return };
        let Some(stream) = slot else { return };
        let (count, end) = stream.master.read(&mut self.buffer);
        let taken = if count > 0 { stream.log.take(&self.buffer[..count]) } else { Ok(()) };
        self.shared.moved.fetch_add(count as u64, Ordering::Relaxed);
        let path = stream.log.path.display();
        let failed = taken.err().map(|error| {
            format!(
                "writing to {path} failed, what workers write to full disks is dropped from the files until there is room: {error}"
            )
        });
        if end == ReadEnd::Over {
            // It stays readable for ever, and would wake the thread for ever.
            let _ = self.epoll.delete(stream.master.as_fd());
            *slot = None;
        }
        if let Some(text) = failed {
            self.health.say(text);
        }
    }

    /// The last turn of each stream.
    fn finish(&mut self) {
        let mut left = 0;
        for token in 0..self.streams.len() {
            // Looked up each time: it may be given more time.
            if self.shared.deadline().is_none_or(|deadline| deadline > Instant::now()) {
                self.turn(token as u64);
            } else {
                left += usize::from(self.streams[token].is_some());
            }
        }
        if left > 0 {
            self.warn(format!("{left} terminals of workers were not read to their end before the deadline"));
        }
    }

    fn warn(&self, text: String) {
        log::warn!("{text}");
        self.shared.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with so much room.
    struct Disk {
        room: usize,
        bytes: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room);
            if count == 0 {
                return Err(Errno::ENOSPC.into());
            }
            self.room -= count;
            self.bytes.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl End for Disk {
        fn end(&self) -> u64 {
            self.bytes.len() as u64
        }
    }

    #[test]
    fn what_a_full_disk_did_not_take_is_counted_in_a_line_when_there_is_room() {
        let disk = Disk { room: 12, bytes: Vec::new() };
        let unsaved = Unsaved::new([PathBuf::new()].into_iter());
        let mut log = Log { file: disk, path: PathBuf::new(), in_line: false, unsaved, number: 0 };
        log.take(b"one\ntwo\n").unwrap();
        assert_eq!(log.take(b"three\nfour\n").unwrap_err().raw_os_error(), Some(Errno::ENOSPC as i32));
        assert!(log.take(b"five\n").is_err());
        log.file.room = 1000;
        log.take(b"six\n").unwrap();
        log.take(b"seven\n").unwrap();
        let text = String::from_utf8(log.file.bytes).unwrap();
        assert_eq!(text, "one\ntwo\nthre\n[rankrun: 12 bytes dropped]\nsix\nseven\n");
    }
}
