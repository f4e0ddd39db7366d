//! Where benchmarks write: [`Scratch`].

use std::path::{Path, PathBuf};

use crate::error::{BenchError, os};

/// A file system in memory that Linux systems have.
const IN_MEMORY: &str = "/dev/shm";

/// A temporary directory, removed on drop: in `TMPDIR` if that is set, else in memory, else where temporary files go.
///
/// In memory, because a disk measures itself: ext4 without a journal passes over each inode that was freed in the last
/// minutes, so that runs which make and remove many files slow down those after them, twentyfold and more.
#[derive(Debug)]
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// Makes one.
    ///
    /// # Errors
    /// [`BenchError::Os`] with the directory that it should be in.
    pub fn new() -> Result<Self, BenchError> {
        let parent = Self::parent();
        tempfile::tempdir_in(&parent).map(Self).map_err(os(format!("make a directory in {}", parent.display())))
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    fn parent() -> PathBuf {
        let in_memory = Path::new(IN_MEMORY);
        if std::env::var_os("TMPDIR").is_none() && in_memory.is_dir() {
            in_memory.to_owned()
        } else {
            std::env::temp_dir()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_a_directory_of_its_own_while_it_lives() {
        let (one, other) = (Scratch::new().unwrap(), Scratch::new().unwrap());
        assert_ne!(one.path(), other.path());
        let path = one.path().to_owned();
        assert!(path.is_dir());
        drop(one);
        assert!(!path.exists());
    }
}
