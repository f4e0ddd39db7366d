//! A terminal that a test looks at: [`Terminal`]. Not here: what is shown on it.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rankrun_testkit::try_eventually;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::LIMIT;

/// A pseudo-terminal of 80 columns that is read all the time.
#[derive(Debug)]
pub struct Terminal {
    shown: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Terminal {
    /// A new terminal, and the end that a program writes to.
    ///
    /// # Panics
    /// When there is none to be had.
    #[must_use]
    pub fn new() -> (Self, OwnedFd) {
        let (master, slave) = pair();
        let shown = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&shown);
        let reader = std::thread::spawn(move || {
            let mut master = File::from(master);
            let mut block = [0; 4096];
            // EIO once nobody has the other end.
            while let Ok(count @ 1..) = master.read(&mut block) {
                all.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&block[..count]);
            }
        });
        (Self { shown, reader }, slave)
    }

    /// What was written to it so far, with newlines as the program wrote them.
    #[must_use]
    pub fn shown(&self) -> String {
        let bytes = self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
        String::from_utf8_lossy(&bytes).replace("\r\n", "\n")
    }

    /// Waits until it shows `text`.
    ///
    /// # Panics
    /// When it does not in time.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        if try_eventually(LIMIT, || self.shown().contains(text)).is_none() {
            panic!("no {text:?} on the terminal: {:?}", self.shown());
        }
    }

    /// All that was written to it, once no program has it any more.
    ///
    /// # Panics
    /// When reading it did.
    #[must_use]
    pub fn end(self) -> String {
        let Self { shown, reader } = self;
        reader.join().expect("the reader does not panic");
        String::from_utf8_lossy(&shown.lock().unwrap_or_else(PoisonError::into_inner)).replace("\r\n", "\n")
    }
}

/// A pseudo-terminal that nobody reads: keep the first, write to the second. Programs get neither unless they are given it.
///
/// # Panics
/// When there is none to be had.
#[must_use]
pub fn pair() -> (OwnedFd, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let make = || {
        let master = openpt(flags)?;
        unlockpt(&master)?;
        tcsetwinsize(&master, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 })?;
        let slave = ioctl_tiocgptpeer(&master, flags)?;
        Ok::<_, rustix::io::Errno>((master, slave))
    };
    make().expect("a pseudo-terminal")
}
