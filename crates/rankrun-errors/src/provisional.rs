//! The record of a panic while it is not known whether the process survives it: [`Provisional`]. Not here: noticing
//! panics (`panics`), and the record of what the function comes to (`record`).
//!
//! A hook may end the process, a thread that waits for the one that panicked may exit, a second panic aborts: the panic is
//! the last moment at which a record can be written for sure. Whether it was the reason is known to the launcher, which
//! sees the end; if the function goes on and returns, the record is taken back.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::panics::{PanicNote, first_of};
use crate::write::{ErrorRecord, WriteErrorFileError, place};

/// Panics of which the backtrace is written, as naming its frames takes time; of a program that catches panics by the
/// thousand the later ones are told without.
const MOST_BACKTRACES: usize = 64;

/// Writes the newest panic to the error file until it is told to stop.
pub(crate) struct Provisional {
    path: PathBuf,
    /// A child of fork(2) is not the process that the error file is for.
    pid: u32,
    standing: Mutex<Standing>,
}

struct Standing {
    is_over: bool,
    panics: usize,
    /// Which file lies there of ours: device and inode.
    file: Option<(u64, u64)>,
}

impl Provisional {
    pub(crate) fn at(path: PathBuf) -> Self {
        let standing = Standing { is_over: false, panics: 0, file: None };
        Self { path, pid: std::process::id(), standing: Mutex::new(standing) }
    }

    /// Writes the record of this thread's newest panic, given its last ones. Called in the panic hook: must not panic.
    pub(crate) fn write(&self, notes: &[Arc<PanicNote>]) {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        if standing.is_over || std::process::id() != self.pid {
            return;
        }
        standing.panics += 1;
        let notes = &notes[first_of(notes)..];
        let Some(first) = notes.first() else { return };
        let mut callstack = match standing.panics {
            ..=MOST_BACKTRACES => first.in_full(),
            nth => format!("{}\n(without its backtrace, as it is panic number {nth})", first.headline()),
        };
        for note in &notes[1..] {
            callstack.push_str("\nafter that, ");
            callstack.push_str(&note.headline());
        }
        let record = ErrorRecord::new(first.headline()).with_callstack(callstack).as_provisional();
        match write(&self.path, &record) {
            Ok(file) => standing.file = file,
            Err(error) => log::warn!("a panic is not recorded, should it end this process: {error}"),
        }
    }

    /// Writes no more, as what comes of the function is known.
    pub(crate) fn end(&self) {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
    }

    /// The same, and takes back what was written.
    pub(crate) fn withdraw(&self) {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.is_over = true;
        let Some(ours) = standing.file.take() else { return };
        if self.path.symlink_metadata().is_ok_and(|file| (file.dev(), file.ino()) == ours)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            log::warn!("{} tells of a panic that was survived, and cannot be removed: {error}", self.path.display());
        }
    }
}

/// Not brought to the disk: it is to outlive this process, not the machine.
fn write(path: &Path, record: &ErrorRecord) -> Result<Option<(u64, u64)>, WriteErrorFileError> {
    let file: File = place(path, &record.to_json(), |_| Ok(()))?;
    Ok(file.metadata().ok().map(|file| (file.dev(), file.ino())))
}
