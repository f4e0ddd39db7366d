//! Messages of rankrun itself on standard error. Not here: the workers' lines, which the tail engine shows.
//!
//! A console that nobody reads must not keep rankrun from ending: all messages together wait a bounded time for room.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::exit_code;

/// How long all messages of this process together may wait for room.
const PATIENCE: Duration = Duration::from_secs(1);

/// How much of that is used up, in microseconds.
static WAITED: AtomicU64 = AtomicU64::new(0);

/// The most that a pipe with room for anything takes without waiting (PIPE_BUF).
const PIECE: usize = 4096;

/// Whether the last row of the terminal may have a status in it.
static ROW_IS_SHARED: AtomicBool = AtomicBool::new(false);

/// Erases to the end of the row, ECMA-48 8.3.41.
const ERASE: &[u8] = b"\x1b[K";

/// From now on each message takes the place of the status that the tail engine may show in the terminal's last row.
pub(crate) fn share_last_row() {
    ROW_IS_SHARED.store(io::stderr().is_terminal(), Ordering::Relaxed);
}

/// Writes what was asked for to standard output, and returns the exit code. May block.
pub(crate) fn show(text: &str) -> u8 {
    match io::stdout().write_all(text.as_bytes()) {
        // A closed pipe is the reader's choice.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            say(&format!("cannot write to standard output: {error}"));
            exit_code::LAUNCHER_FAILED
        }
        _ => exit_code::SUCCESS,
    }
}

/// Writes a line that names rankrun as the speaker.
pub(crate) fn say(text: &str) {
    print(&format!("rankrun: {text}"));
}

/// Writes a text and a newline.
pub(crate) fn print(text: &str) {
    let patience = PATIENCE.saturating_sub(Duration::from_micros(WAITED.load(Ordering::Relaxed)));
    let start = Instant::now();
    // Nobody can be told of what cannot be written.
    let _ = write_within(&over_status(format!("{text}\n").as_bytes()), patience);
    WAITED.fetch_add(u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// The message so that nothing of a status is left beside it.
fn over_status(message: &[u8]) -> Cow<'_, [u8]> {
    if ROW_IS_SHARED.load(Ordering::Relaxed) { Cow::Owned([ERASE, message].concat()) } else { Cow::Borrowed(message) }
}

fn write_within(mut bytes: &[u8], patience: Duration) -> io::Result<()> {
    let stderr = io::stderr();
    let deadline = Instant::now() + patience;
    while !bytes.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
        match poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        match nix::unistd::write(stderr.as_fd(), &bytes[..bytes.len().min(PIECE)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// How a warning begins. Each is said once: what is said when it happens is among the result's warnings too, which may know
/// more by then.
const WARNING: &str = "rankrun: warning: ";

/// Standard error for the logger, which any thread may use: what does not fit at once is dropped.
#[derive(Default)]
pub(crate) struct LogConsole {
    /// The warnings that were written.
    said: Vec<Vec<u8>>,
}

/// Whether a warning is one that was said, or the same with more that became known until the end.
fn is_said_with(said: &[u8], warning: &[u8]) -> bool {
    warning == said || said.strip_suffix(b"\n").is_some_and(|said| warning.starts_with(&[said, b"; "].concat()))
}

impl Write for LogConsole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.said.iter().any(|said| is_said_with(said, bytes)) {
            return Ok(bytes.len());
        }
        let written = write_within(&over_status(bytes), Duration::ZERO).is_ok();
        if written && bytes.starts_with(WARNING.as_bytes()) {
            self.said.push(bytes.to_owned());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
