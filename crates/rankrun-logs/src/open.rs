//! Opening a log file for a worker: [`open_log`]. Not here: following it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::error::LogsError;

/// Opens a log file for a worker to write straight to, and makes it (mode 0644) if it does not exist.
///
/// `O_APPEND`, so that several processes may write and a file that is cut leaves no hole; `O_CLOEXEC`, so that only the
/// worker that it is meant for inherits it, as its stdout or stderr.
///
/// # Errors
/// [`LogsError::Open`] with the path.
pub fn open_log(path: impl AsRef<Path>) -> Result<File, LogsError> {
    let path = path.as_ref();
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o644)
        .open(path)
        .map_err(|source| LogsError::Open { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_log_file_is_appended_to_also_after_it_was_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stdout.log");
        let mut first = open_log(&path).unwrap();
        first.write_all(b"one\n").unwrap();
        open_log(&path).unwrap().write_all(b"two\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
        first.set_len(0).unwrap();
        first.write_all(b"three\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"three\n");
    }

    #[test]
    fn a_log_file_that_cannot_be_made_is_an_error_with_path_and_number() {
        let error = open_log("/proc/nowhere/stdout.log").unwrap_err();
        let text = "cannot open log file /proc/nowhere/stdout.log: No such file or directory (os error 2)";
        assert_eq!(error.to_string(), text);
    }
}
