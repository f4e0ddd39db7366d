//! Named pipes between the benchmark and its workers: [`Pipe`], and the clock that both read.
//!
//! Named, because workers inherit no descriptor of the parent but the standard streams.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use nix::time::{ClockId, clock_gettime};

use crate::error::{BenchError, os};

/// One named pipe, open for reading and writing, so that neither opening nor closing of the other end blocks anybody.
#[derive(Debug)]
pub struct Pipe {
    path: PathBuf,
    file: File,
}

impl Pipe {
    /// Makes a pipe at a path that must not exist, and opens it.
    ///
    /// # Errors
    /// [`BenchError::Os`] with the path.
    pub fn create(path: &Path) -> Result<Self, BenchError> {
        nix::unistd::mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR).map_err(os(format!("mkfifo {}", path.display())))?;
        Self::open(path)
    }

    /// Opens a pipe that exists.
    ///
    /// # Errors
    /// [`BenchError::Os`] with the path.
    pub fn open(path: &Path) -> Result<Self, BenchError> {
        let file = File::options().read(true).write(true).open(path).map_err(os(format!("open {}", path.display())))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts a number in, in one piece.
    ///
    /// # Errors
    /// [`BenchError::Os`] with the path.
    pub fn send(&self, number: u64) -> Result<(), BenchError> {
        (&self.file).write_all(&number.to_ne_bytes()).map_err(os(format!("write {}", self.path.display())))
    }

    /// Waits for a number and takes it out.
    ///
    /// # Errors
    /// [`BenchError::Os`] with the path.
    pub fn receive(&self) -> Result<u64, BenchError> {
        let mut bytes = [0; 8];
        (&self.file).read_exact(&mut bytes).map_err(os(format!("read {}", self.path.display())))?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// The nanoseconds of `CLOCK_MONOTONIC`, which all processes of the host share.
///
/// # Errors
/// [`BenchError::Os`] if there is no such clock.
pub fn monotonic_nanos() -> Result<u64, BenchError> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_err(os("clock_gettime"))?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_out_in_order_at_any_end() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = Pipe::create(&dir.path().join("pipe")).unwrap();
        let other = Pipe::open(pipe.path()).unwrap();
        pipe.send(7).unwrap();
        other.send(u64::MAX).unwrap();
        assert_eq!((other.receive().unwrap(), pipe.receive().unwrap()), (7, u64::MAX));
    }

    #[test]
    fn the_clock_does_not_go_back() {
        let first = monotonic_nanos().unwrap();
        assert!(monotonic_nanos().unwrap() >= first);
    }
}
