//! One pseudo-terminal: [`Master`], and its size. Not here: what is written to it (`mover`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{
    LocalModes, OptionalActions, OutputModes, Winsize, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize,
};

/// How large a terminal is, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

impl TerminalSize {
    /// The size of this terminal; `None` if it is none, or does not say.
    #[must_use]
    pub fn of(terminal: BorrowedFd<'_>) -> Option<Self> {
        let Winsize { ws_row: rows, ws_col: columns, .. } = tcgetwinsize(terminal).ok()?;
        (rows > 0 && columns > 0).then_some(Self { rows, columns })
    }

    fn winsize(self) -> Winsize {
        Winsize { ws_row: self.rows, ws_col: self.columns, ws_xpixel: 0, ws_ypixel: 0 }
    }
}

/// Our end of a pseudo-terminal, non-blocking.
#[derive(Debug)]
pub(super) struct Master(OwnedFd);

impl Master {
    /// Opens one that passes output as it is.
    pub(super) fn open(size: TerminalSize) -> io::Result<Self> {
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let master = openpt(open_flags(flags))?;
        unlockpt(&master)?;
        let mut modes = tcgetattr(&master)?;
        modes.output_modes.remove(OutputModes::OPOST);
        modes.local_modes.remove(LocalModes::ECHO | LocalModes::ECHONL);
        tcsetattr(&master, OptionalActions::Now, &modes)?;
        tcsetwinsize(&master, size.winsize())?;
        Ok(Self(master))
    }

    /// The other end. Not by its path, which may be another's in a container.
    pub(super) fn worker_end(&self) -> io::Result<OwnedFd> {
        Ok(ioctl_tiocgptpeer(&self.0, open_flags(OFlag::O_WRONLY | OFlag::O_NOCTTY | OFlag::O_CLOEXEC))?)
    }

    pub(super) fn resize(&self, size: TerminalSize) -> io::Result<()> {
        Ok(tcsetwinsize(&self.0, size.winsize())?)
    }

    /// Reads what there is, until the buffer is full. Less than that means that there is no more now, or for ever.
    pub(super) fn read(&self, buffer: &mut [u8]) -> (usize, ReadEnd) {
        let mut filled = 0;
        // A read gives a page at most.
        while filled < buffer.len() {
            match nix::unistd::read(&self.0, &mut buffer[filled..]) {
                Ok(count @ 1..) => filled += count,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return (filled, ReadEnd::Empty),
                // EIO: nobody has the other end any more.
                Ok(_) | Err(_) => return (filled, ReadEnd::Over),
            }
        }
        (filled, ReadEnd::Full)
    }
}

impl AsFd for Master {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Why a read ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadEnd {
    /// The buffer is full.
    Full,
    /// There is nothing now.
    Empty,
    /// There will be nothing more.
    Over,
}

/// Both are the `O_` flags of open(2).
fn open_flags(flags: OFlag) -> OpenptFlags {
    OpenptFlags::from_bits_retain(flags.bits().cast_unsigned())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{IsTerminal, Read, Write};

    use super::*;

    const SIZE: TerminalSize = TerminalSize { rows: 7, columns: 33 };

    #[test]
    fn the_workers_end_is_a_terminal_of_the_size_that_cannot_be_read() {
        let master = Master::open(SIZE).unwrap();
        let mut worker = File::from(master.worker_end().unwrap());
        assert!(worker.is_terminal());
        assert_eq!(TerminalSize::of(worker.as_fd()), Some(SIZE));
        master.resize(TerminalSize { rows: 8, ..SIZE }).unwrap();
        assert_eq!(TerminalSize::of(worker.as_fd()).unwrap().rows, 8);
        let error = worker.read(&mut [0]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::EBADF as i32), "{error}");
        assert_eq!(TerminalSize::of(tempfile::tempfile().unwrap().as_fd()), None);
    }

    #[test]
    fn bytes_pass_as_they_are_and_are_there_when_the_writer_has_gone() {
        let master = Master::open(SIZE).unwrap();
        let mut buffer = [0; 64];
        assert_eq!(master.read(&mut buffer), (0, ReadEnd::Empty), "nobody has opened it yet");
        let mut worker = File::from(master.worker_end().unwrap());
        let text: &[u8] = b"a\nb\r\n\tc\0\x03\x04\x11\x13\x1a\xff";
        worker.write_all(text).unwrap();
        assert_eq!(master.read(&mut buffer), (text.len(), ReadEnd::Empty));
        worker.write_all(text).unwrap();
        drop(worker);
        assert_eq!(master.read(&mut buffer), (text.len(), ReadEnd::Over));
        assert_eq!(buffer[..text.len()], *text);
        assert_eq!(master.read(&mut buffer[..0]), (0, ReadEnd::Full));
    }
}
