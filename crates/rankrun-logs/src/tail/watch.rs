//! Who was written to: one-shot inotify watches, [`Watcher`]. Not here: the timer that stands in for them.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

/// The size of `struct inotify_event` without its name, inotify(7); an event of a watch on a file has none.
const EVENT_SIZE: usize = 16;

/// One-shot watches on files.
///
/// A watch tells of the first write after it was set and is gone then. So a worker that writes line by line costs
/// one event, not one for each write, until the engine has caught up and sets the watch again.
#[derive(Debug)]
pub(crate) struct Watcher {
    inotify: Inotify,
    buffer: Box<[u8; 256 * EVENT_SIZE]>,
}

/// What a watch told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// The file of this watch was written to, or the watch is gone.
    Changed(i32),
    /// Events were lost: any file may have changed.
    Anything,
}

impl Watcher {
    /// Starts without any watch.
    pub(crate) fn new() -> Result<Self, Errno> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        Ok(Self { inotify, buffer: Box::new([0; 256 * EVENT_SIZE]) })
    }

    /// Sets the watch on a file and gives its number.
    ///
    /// A write after this has returned is told. The same file twice has the same number.
    pub(crate) fn arm(&self, path: &Path) -> Result<i32, Errno> {
        let flags = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_ONESHOT;
        self.inotify.add_watch(path, flags).map(|watch| watch.as_raw())
    }

    /// Sets a watch on a directory that tells when something in it is deleted, or it itself is deleted or moved away.
    ///
    /// Not of itself alone: the kernel does not tell of a directory that is gone while a file of it is open.
    pub(crate) fn arm_directory(&self, directory: &Path) -> Result<i32, Errno> {
        let gone = AddWatchFlags::IN_DELETE | AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF;
        let flags = gone | AddWatchFlags::IN_ONLYDIR;
        self.inotify.add_watch(directory, flags).map(|watch| watch.as_raw())
    }

    /// Gives each thing that was told since the last call; does not wait.
    pub(crate) fn drain(&mut self, mut tell: impl FnMut(Told)) {
        while let Ok(count) = nix::unistd::read(&self.inotify, self.buffer.as_mut_slice()) {
            let mut events = &self.buffer[..count];
            while let [w0, w1, w2, w3, m0, m1, m2, m3, _, _, _, _, n0, n1, n2, n3, rest @ ..] = events {
                let mask = AddWatchFlags::from_bits_retain(u32::from_ne_bytes([*m0, *m1, *m2, *m3]));
                if mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                    tell(Told::Anything);
                } else {
                    tell(Told::Changed(i32::from_ne_bytes([*w0, *w1, *w2, *w3])));
                }
                let name = u32::from_ne_bytes([*n0, *n1, *n2, *n3]) as usize;
                events = rest.get(name..).unwrap_or_default();
            }
            if count < self.buffer.len() {
                return;
            }
        }
    }
}

impl AsFd for Watcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn many_writes_are_told_once_until_the_watch_is_set_again() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut watcher = Watcher::new().unwrap();
        let watch = watcher.arm(file.path()).unwrap();
        (0..10).for_each(|_| file.write_all(b"x").unwrap());
        let mut told = Vec::new();
        watcher.drain(|what| told.push(what));
        // The second is IN_IGNORED: the watch is gone.
        assert_eq!(told, [Told::Changed(watch); 2]);
        file.write_all(b"x").unwrap();
        watcher.drain(|what| panic!("{what:?}"));
        let again = watcher.arm(file.path()).unwrap();
        assert_ne!(again, watch, "a late IN_IGNORED would be taken for news");
        file.write_all(b"x").unwrap();
        told.clear();
        watcher.drain(|what| told.push(what));
        assert_eq!(told[0], Told::Changed(again));
    }

    #[test]
    fn of_a_directory_only_what_goes_away_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let mut watcher = Watcher::new().unwrap();
        let watch = watcher.arm_directory(dir.path()).unwrap();
        // As run.json is made, and written to.
        let file = tempfile::NamedTempFile::new_in(dir.path()).unwrap();
        let mut file = file.persist(dir.path().join("run.json")).unwrap();
        file.write_all(b"x").unwrap();
        watcher.drain(|what| panic!("{what:?}"));
        std::fs::remove_file(dir.path().join("run.json")).unwrap();
        let mut told = Vec::new();
        watcher.drain(|what| told.push(what));
        assert_eq!(told, [Told::Changed(watch)], "also while it is open");
    }
}
