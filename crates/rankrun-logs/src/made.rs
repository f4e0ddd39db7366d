//! Directories that one call makes, and unmakes when it fails: [`Made`]. Not here: which ones, and where.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::error::LogsError;

/// What mkdir(1) uses: the umask decides.
pub(crate) const SHARED: u32 = 0o777;
/// For the owner only.
pub(crate) const PRIVATE: u32 = 0o700;

/// The directories made so far; dropping it removes them again, as far as they are empty.
#[derive(Debug, Default)]
pub(crate) struct Made(Vec<PathBuf>);

impl Made {
    /// Makes a directory that must not exist.
    pub(crate) fn dir(&mut self, path: &Path) -> Result<(), LogsError> {
        match make(path, SHARED) {
            Ok(()) => {
                self.0.push(path.to_owned());
                Ok(())
            }
            Err(source) => Err(LogsError::Create { path: path.to_owned(), source }),
        }
    }

    /// Makes a directory and what is missing above it; one that exists is left as it is.
    pub(crate) fn dir_all(&mut self, path: &Path) -> Result<(), LogsError> {
        // What is there may be a link to a directory, so metadata, not symlink_metadata.
        match fs::metadata(path) {
            Ok(meta) if meta.is_dir() => return Ok(()),
            Ok(_) => return Err(LogsError::NotADirectory { path: path.to_owned() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(LogsError::Create { path: path.to_owned(), source }),
        }
        if let Some(parent) = path.parent() {
            self.dir_all(parent)?;
        }
        match self.dir(path) {
            // Another process was faster: then it is not ours to remove.
            Err(LogsError::Create { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {
                Ok(())
            }
            done => done,
        }
    }

    /// Makes a directory with a name of its own: the prefix and random letters.
    pub(crate) fn unique(&mut self, parent: &Path, prefix: &str, mode: u32) -> Result<PathBuf, LogsError> {
        let mut reason = None;
        let made =
            tempfile::Builder::new().prefix(prefix).rand_bytes(8).disable_cleanup(true).make_in(parent, |path| {
                // tempfile hides the error number behind a text of its own.
                make(path, mode).inspect_err(|error| reason = error.raw_os_error())
            });
        match made {
            Ok(made) => {
                let path = made.path().to_owned();
                self.0.push(path.clone());
                Ok(path)
            }
            Err(error) => {
                let mut name = OsString::from(prefix);
                name.push("*");
                let source = reason.map_or(error, io::Error::from_raw_os_error);
                Err(LogsError::Create { path: parent.join(name), source })
            }
        }
    }

    /// Keeps them all and says which, outermost first.
    pub(crate) fn keep(mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in self.0.iter().rev() {
            // Only an empty directory goes: what others put there in the meantime stays.
            let _ = fs::remove_dir(path);
        }
    }
}

fn make(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)
}
