//! Writing to a console without ever waiting for its reader: [`Console`]. Not here: what is written, and when.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};

use memchr::memrchr;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The most that is written to a pipe or terminal in one piece: pipe(7) keeps pieces up to `PIPE_BUF` whole, also
/// among other writers, and takes them without waiting when poll(2) says that there is room.
const PIECE: usize = 4096;

/// The most that is written in one piece where that neither waits nor comes apart: to a file or an empty pipe.
const LARGE_PIECE: usize = 64 * 1024;

/// The width of a terminal that does not say.
const USUAL_COLUMNS: usize = 80;

/// Major device numbers of Linux: the memory devices (null, zero, full) and the pseudo-terminals' worker ends.
const MAJOR_MEMORY: u64 = 1;
const MAJOR_PTS: std::ops::RangeInclusive<u64> = 136..=143;

/// A console to write to.
#[derive(Debug)]
pub(crate) struct Console {
    file: File,
    kind: Kind,
    /// Device and inode: two consoles with the same are one.
    identity: Option<(u64, u64)>,
    terminal: bool,
    crowd: Crowd,
}

/// Whether others write to our pipe too; then a large piece could come apart and a line of theirs get into one of ours.
#[derive(Debug, Default)]
struct Crowd {
    /// What we wrote since the pipe was last seen empty: if it holds more, that is not ours.
    ours: u64,
    seen: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Writes never wait for a reader.
    File,
    /// A pipe of this capacity, by an open file description of our own with `O_NONBLOCK`.
    OwnPipe(usize),
    /// A terminal, in the same way.
    OwnTerminal,
    /// Shared with others, who may want it blocking: ask poll(2) before each piece.
    Shared,
}

impl Console {
    /// Takes the console; the flags of a description that others share are left as they are.
    ///
    /// A pipe or pseudo-terminal is opened a second time, through /proc, to have a non-blocking description of our
    /// own; where that cannot be had the given one is used with care.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        let file = File::from(fd);
        let terminal = file.is_terminal();
        let Ok(meta) = file.metadata() else {
            return Self { file, kind: Kind::Shared, identity: None, terminal, crowd: Crowd::default() };
        };
        let identity = Some((meta.dev(), meta.ino()));
        let device = meta.file_type().is_char_device().then(|| nix::sys::stat::major(meta.rdev()));
        if meta.is_file() || device == Some(MAJOR_MEMORY) {
            return Self { file, kind: Kind::File, identity, terminal, crowd: Crowd::default() };
        }
        let own = if meta.file_type().is_fifo() {
            // A capacity that cannot be had is the least there is.
            let capacity = fcntl(&file, FcntlArg::F_GETPIPE_SZ).ok().and_then(|size| size.try_into().ok());
            Kind::OwnPipe(capacity.unwrap_or(PIECE))
        } else if device.is_some_and(|major| MAJOR_PTS.contains(&major)) {
            Kind::OwnTerminal
        } else {
            return Self { file, kind: Kind::Shared, identity, terminal, crowd: Crowd::default() };
        };
        match open_again(&file) {
            // What /proc gave must be the same thing.
            Ok(again) if again.metadata().is_ok_and(|meta| Some((meta.dev(), meta.ino())) == identity) => {
                Self { file: again, kind: own, identity, terminal, crowd: Crowd::default() }
            }
            _ => Self { file, kind: Kind::Shared, identity, terminal, crowd: Crowd::default() },
        }
    }

    /// Whether both write to the same pipe, terminal or file.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.identity.is_some() && self.identity == other.identity
    }

    /// Whether a person may look at it.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// How wide the terminal is now; what most have where it does not say.
    pub(crate) fn columns(&self) -> usize {
        match rustix::termios::tcgetwinsize(&self.file) {
            Ok(size) if size.ws_col > 0 => size.ws_col.into(),
            _ => USUAL_COLUMNS,
        }
    }

    /// Writes the first bytes of `bytes`, as many as the console takes at once, whole lines where it can.
    ///
    /// # Errors
    /// `WouldBlock` if it takes none now; anything else is the end of this console.
    pub(crate) fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let kind = self.kind;
        let piece = match kind {
            Kind::File => &bytes[..bytes.len().min(LARGE_PIECE)],
            // Into an empty pipe as much as it holds goes at once; sixteen pieces take twice as long.
            Kind::OwnPipe(capacity) if bytes.len() > PIECE && self.is_empty_and_ours() => {
                whole_lines(bytes, capacity.min(LARGE_PIECE))
            }
            Kind::OwnPipe(_) | Kind::OwnTerminal => whole_lines(bytes, PIECE),
            Kind::Shared => {
                let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLOUT)];
                match poll(&mut fds, PollTimeout::ZERO) {
                    Ok(0) | Err(Errno::EINTR) => return Err(io::ErrorKind::WouldBlock.into()),
                    Ok(_) => {}
                    Err(errno) => return Err(errno.into()),
                }
                whole_lines(bytes, PIECE)
            }
        };
        loop {
            match (&self.file).write(piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) if !piece.is_empty() => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.crowd.ours += count as u64;
                    // It was empty and did not take what it can hold: somebody was faster.
                    self.crowd.seen |= count < piece.len();
                    return Ok(count);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether our pipe is empty and nobody else was seen to write to it.
    fn is_empty_and_ours(&mut self) -> bool {
        match rustix::io::ioctl_fionread(&self.file) {
            Ok(0) => self.crowd.ours = 0,
            Ok(held) => {
                self.crowd.seen |= held > self.crowd.ours;
                return false;
            }
            Err(_) => return false,
        }
        !self.crowd.seen
    }
}

impl AsFd for Console {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn open_again(file: &File) -> io::Result<File> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    OpenOptions::new().write(true).custom_flags(flags.bits()).open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// The longest beginning of `bytes` that is at most `limit` long and ends with a line, or so much of a longer line.
fn whole_lines(bytes: &[u8], limit: usize) -> &[u8] {
    if bytes.len() <= limit {
        return bytes;
    }
    let piece = &bytes[..limit];
    memrchr(b'\n', piece).map_or(piece, |end| &bytes[..=end])
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_pipe_that_is_full_takes_nothing_and_its_shared_flags_stay() {
        let (mut reader, writer) = io::pipe().unwrap();
        let theirs = writer.try_clone().unwrap();
        let mut console = Console::new(writer.into());
        assert!(matches!(console.kind, Kind::OwnPipe(_)));
        let mut line = [b'x'; 1000];
        line[999] = b'\n';
        let bytes = line.repeat(200);
        let mut written = 0;
        let full = loop {
            match console.write_some(&bytes[written..]) {
                Ok(count) => written += count,
                Err(error) => break error.kind(),
            }
        };
        assert_eq!(full, io::ErrorKind::WouldBlock);
        assert_eq!(written % 1000, 0, "a line was torn");
        let flags = fcntl(&theirs, FcntlArg::F_GETFL).unwrap();
        assert!(!OFlag::from_bits_truncate(flags).contains(OFlag::O_NONBLOCK));
        drop((console, theirs));
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert!(read == bytes[..written]);
    }

    /// A pipe, a copy of its writer for somebody else, and lines for more than one piece.
    fn shared_pipe() -> (io::PipeReader, io::PipeWriter, Console, Vec<u8>) {
        let (reader, writer) = io::pipe().unwrap();
        (reader, writer.try_clone().unwrap(), Console::new(writer.into()), b"0123456789abcde\n".repeat(4096))
    }

    #[test]
    fn a_pipe_takes_many_lines_at_once_only_while_it_is_empty() {
        let (mut reader, mut theirs, mut console, lines) = shared_pipe();
        for _ in 0..2 {
            let count = console.write_some(&lines).unwrap();
            assert!(count > PIECE);
            reader.read_exact(&mut vec![0; count]).unwrap();
        }
        theirs.write_all(b"from a rank that is not teed\n").unwrap();
        assert_eq!(console.write_some(&lines).unwrap(), PIECE);
    }

    #[test]
    fn a_pipe_that_others_were_seen_to_write_to_gets_small_pieces_for_good() {
        let (mut reader, mut theirs, mut console, lines) = shared_pipe();
        theirs.write_all(b"from a rank that is not teed\n").unwrap();
        assert_eq!(console.write_some(&lines).unwrap(), PIECE);
        reader.read_exact(&mut [0; PIECE + 29]).unwrap();
        assert_eq!(console.write_some(&lines).unwrap(), PIECE);
    }

    #[test]
    fn a_socket_that_is_full_takes_nothing() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut console = Console::new(ours.into());
        assert_eq!(console.kind, Kind::Shared);
        let full = loop {
            if let Err(error) = console.write_some(&[b'x'; 10_000]) {
                break error.kind();
            }
        };
        assert_eq!(full, io::ErrorKind::WouldBlock);
    }

    #[test]
    fn stdout_and_stderr_into_one_pipe_are_the_same_console() {
        let (_reader, writer) = io::pipe().unwrap();
        let (_other_reader, other) = io::pipe().unwrap();
        let copy = Console::new(writer.try_clone().unwrap().into());
        let (writer, other) = (Console::new(writer.into()), Console::new(other.into()));
        assert!(writer.is_same(&copy));
        assert!(!writer.is_same(&other));
    }

    #[test]
    fn pieces_end_with_a_line_unless_the_line_is_longer() {
        let long = [b'x'; PIECE + 10];
        assert_eq!(whole_lines(&long, PIECE).len(), PIECE);
        let lines = [&long[..PIECE - 2], b"\n", &long].concat();
        assert_eq!(whole_lines(&lines, PIECE).len(), PIECE - 1);
    }
}
