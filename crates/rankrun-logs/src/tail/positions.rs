//! How far each file was read: [`TailPositions`]. Not here: reading (`engine`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How far the engine has read each of its files, for who wants to free what was read.
///
/// A cheap handle to numbers that the engine keeps up to date; it outlives the engine.
#[derive(Debug, Clone)]
pub struct TailPositions(Arc<[(PathBuf, AtomicU64)]>);

impl TailPositions {
    pub(super) fn new(paths: impl Iterator<Item = PathBuf>) -> Self {
        Self(paths.map(|path| (path, AtomicU64::new(0))).collect())
    }

    /// How many bytes from its start the engine does not need any more of a file.
    ///
    /// [`u64::MAX`] for a file that it does not follow, or not any more: its console is closed, or the engine has ended.
    #[must_use]
    pub fn read_to(&self, path: &Path) -> u64 {
        let same = self.0.iter().filter(|(known, _)| known == path);
        // Followed twice where both streams go to one file.
        same.map(|(_, position)| position.load(Ordering::Relaxed)).min().unwrap_or(u64::MAX)
    }

    pub(super) fn set(&self, source: usize, position: u64) {
        self.0[source].1.store(position, Ordering::Relaxed);
    }

    pub(super) fn set_all_done(&self) {
        self.0.iter().for_each(|(_, position)| position.store(u64::MAX, Ordering::Relaxed));
    }
}
