//! Reading and writing `result.json`. Not here: what is in it (`run_record`).

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rankrun::crates::types::escape_os_str;

use super::run_record::RunRecord;

/// The name of the file in a run's directory.
pub const RESULT_FILE: &str = "result.json";

/// What is larger is not read: 65,536 workers, each with some text, fit in.
const MOST: u64 = 256 << 20;

/// A result file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("result file {}: {source}", escape_os_str(path.as_os_str()))]
pub struct RecordError {
    /// The file.
    pub path: PathBuf,
    /// What went wrong.
    pub source: io::Error,
}

impl RecordError {
    /// Whether there was no room on the disk.
    pub(crate) fn is_disk_full(&self) -> bool {
        is_disk_full(&self.source)
    }
}

fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl RunRecord {
    /// Writes the record as `result.json` into a directory, in one step: who reads it finds the old one or the new one.
    ///
    /// On a full disk the old one makes room for the new one, and is gone for a moment, or for good if that does not help: none
    /// is better than one that says `RUNNING` for ever.
    ///
    /// `durable`: whether it has reached the disk when this returns, which can take long.
    ///
    /// # Errors
    /// [`RecordError`]; what was there before is still there then, except on a full disk.
    pub fn write(&self, run_dir: &Path, durable: bool) -> Result<(), RecordError> {
        let path = run_dir.join(RESULT_FILE);
        let written = match self.write_file(run_dir, &path, durable) {
            Err(error) if is_disk_full(&error) => {
                // Whether there was one to be removed shows in what follows.
                let _ = fs::remove_file(&path);
                self.write_file(run_dir, &path, durable)
            }
            written => written,
        };
        written.map_err(|source| RecordError { path, source })
    }

    fn write_file(&self, run_dir: &Path, path: &Path, durable: bool) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        let mut file = tempfile::Builder::new().prefix(".result_").tempfile_in(run_dir)?;
        file.write_all(&text)?;
        file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
        if durable {
            file.as_file().sync_data()?;
        }
        file.persist(path).map_err(|error| error.error)?;
        if durable {
            // Else the new name may be lost with the power.
            File::open(run_dir)?.sync_all()?;
        }
        Ok(())
    }

    /// Reads `result.json` of a run's directory. What a later version adds is ignored.
    ///
    /// `RUNNING` may also be what a launcher that was killed has left; whether it lives is told by `rankrun_logs::Run::goes_on`.
    ///
    /// # Errors
    /// [`RecordError`] if it cannot be read or is not as it should be.
    pub fn read(run_dir: &Path) -> Result<Self, RecordError> {
        let path = run_dir.join(RESULT_FILE);
        let mut text = Vec::new();
        // Whoever opens a named pipe waits for who writes.
        let read = fs::metadata(&path).and_then(|meta| match meta.is_file() {
            true => File::open(&path)?.take(MOST).read_to_end(&mut text),
            false => Err(io::Error::other("not a regular file")),
        });
        let parsed = read.and_then(|_| serde_json::from_slice(&text).map_err(io::Error::from));
        parsed.map_err(|source| RecordError { path, source })
    }
}
