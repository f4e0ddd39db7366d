//! Writing an error file: [`ErrorRecord`] in torch's schema, put in place atomically. Not here: reading one (`read`).

use std::error::Error;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;

use crate::clip::{MAX_CALLSTACK_BYTES, MAX_MESSAGE_BYTES, clipped};
use crate::owner::own_start_ticks;
use crate::time::{NANOSECONDS, unix_ns};

/// Errors of a chain that are followed; it could be a circle.
const MAX_CHAIN: usize = 64;

/// The error and its sources.
pub(crate) fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
    .take(MAX_CHAIN)
}

/// An error as it goes into an error file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorRecord {
    /// What went wrong; more than 64 KiB are cut.
    pub message: String,
    /// The traceback, backtrace or chain of causes; more than 384 KiB are cut in the middle.
    pub callstack: String,
    /// When it happened.
    pub time: SystemTime,
    /// The process it happened in.
    pub pid: u32,
    /// When that process was started, in clock ticks since the boot (the 22nd field of /proc/PID/stat), where it is
    /// known: with the pid, it tells the process from all others.
    pub start_ticks: Option<u64>,
    /// The exit code of the process, where it is known: negative for a signal.
    pub error_code: Option<i32>,
    /// The exit code that the process is about to end with, where it can be foreseen: negative for a signal.
    pub exit_code: Option<i32>,
    /// The process that passes the record on, where it is that of a child.
    pub passed_on_by: Option<u32>,
    /// Whether the error code is that of the process that writes it, not of a child whose failure it passes on.
    pub own_error_code: bool,
    /// Whether the process may survive what it tells of, and end of something else.
    pub provisional: bool,
}

impl ErrorRecord {
    /// A record of something that went wrong now, in this process.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            callstack: String::new(),
            time: SystemTime::now(),
            pid: std::process::id(),
            start_ticks: own_start_ticks(),
            error_code: None,
            exit_code: None,
            passed_on_by: None,
            own_error_code: false,
            provisional: false,
        }
    }

    /// A record of an error that happened now, in this process; its sources make up the call stack.
    #[must_use]
    pub fn from_error(error: &(dyn Error + 'static)) -> Self {
        let message = error.to_string();
        let mut callstack = format!("{message}\n");
        for source in chain(error).skip(1) {
            // Writing to a String does not fail.
            let _ = writeln!(callstack, "caused by: {source}");
        }
        Self::new(message).with_callstack(callstack)
    }

    /// The record with this call stack.
    #[must_use]
    pub fn with_callstack(self, callstack: impl Into<String>) -> Self {
        Self { callstack: callstack.into(), ..self }
    }

    /// The record with this time.
    #[must_use]
    pub fn with_time(self, time: SystemTime) -> Self {
        Self { time, ..self }
    }

    /// The record of another process, of which only the pid is known.
    #[must_use]
    pub fn with_pid(self, pid: u32) -> Self {
        Self { pid, start_ticks: None, ..self }
    }

    /// The record with the exit code that this process is about to end with, negative for a signal.
    ///
    /// Where the process is not the worker itself but a child of it, a launcher takes the record for the reason of the
    /// worker's end only if that can be due to such a code.
    #[must_use]
    pub fn with_exit_code(self, exit_code: i32) -> Self {
        Self { exit_code: Some(exit_code), ..self }
    }

    /// The record with the exit code of a process that has ended, in torch's field for it, which makes it one that a launcher
    /// passes on.
    #[must_use]
    pub fn with_error_code(self, error_code: i32) -> Self {
        Self { error_code: Some(error_code), ..self }
    }

    /// The record as one that this process passes on from a child of its own.
    #[must_use]
    pub fn as_passed_on(self) -> Self {
        Self { passed_on_by: Some(std::process::id()), ..self }
    }

    /// The record of a launcher that failed itself, not of a worker's failure, and is about to end with this exit code.
    ///
    /// It stands in torch's field too, where who reads the file looks for it.
    #[must_use]
    pub fn with_own_error_code(self, exit_code: i32) -> Self {
        Self { exit_code: Some(exit_code), error_code: Some(exit_code), own_error_code: true, ..self }
    }

    /// The record of what the process may survive, such as a panic that may be caught.
    ///
    /// A launcher takes it for what came before the end, not for its reason. To be removed when it is survived.
    #[must_use]
    pub fn as_provisional(self) -> Self {
        Self { provisional: true, ..self }
    }

    /// The JSON text of the record: torch's schema, plus `timestamp_ns`, `pid`, `start_ticks`, `exit_code`,
    /// `own_error_code` and `provisional`, where it is so, in `extraInfo`, and `passed_on_by` beside `errorCode`.
    ///
    /// Mirrors what torch's `ErrorHandler.record_exception` writes, so that torch's `ProcessFailure` reads it.
    #[must_use]
    pub fn to_json(&self) -> String {
        let ns = unix_ns(self.time);
        let file = Whole {
            message: Message {
                message: &clipped(&self.message, MAX_MESSAGE_BYTES),
                extra_info: ExtraInfo {
                    py_callstack: &clipped(&self.callstack, MAX_CALLSTACK_BYTES),
                    timestamp: ns.div_euclid(NANOSECONDS).to_string(),
                    timestamp_ns: ns,
                    pid: self.pid,
                    start_ticks: self.start_ticks,
                    exit_code: self.exit_code,
                    own_error_code: self.own_error_code,
                    provisional: self.provisional,
                },
                error_code: self.error_code,
                passed_on_by: self.passed_on_by,
            },
        };
        serde_json::to_string(&file).expect("texts and numbers always have a JSON form")
    }
}

#[derive(Serialize)]
struct Whole<'a> {
    message: Message<'a>,
}

#[derive(Serialize)]
struct Message<'a> {
    message: &'a str,
    #[serde(rename = "extraInfo")]
    extra_info: ExtraInfo<'a>,
    #[serde(rename = "errorCode", skip_serializing_if = "Option::is_none")]
    error_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    passed_on_by: Option<u32>,
}

#[derive(Serialize)]
struct ExtraInfo<'a> {
    py_callstack: &'a str,
    /// A text, as torch writes it.
    timestamp: String,
    timestamp_ns: i64,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_ticks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    own_error_code: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    provisional: bool,
}

/// An error file could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteErrorFileError {
    /// No temporary file could be made beside it.
    #[error("error file {path}: cannot create a temporary file in its directory", path = path.display())]
    Create {
        /// The error file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The text could not be written or brought to the disk.
    #[error("error file {path}: cannot write its text", path = path.display())]
    Write {
        /// The error file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The finished temporary file could not be put in its place.
    #[error("error file {path}: cannot put the written file in its place", path = path.display())]
    Rename {
        /// The error file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Writes a record as the error file at a path, replacing what is there.
///
/// Atomic: a reader sees the old file or the whole new one. The text goes to a temporary file in the same directory,
/// is synced, and is renamed; if a step fails the temporary file is removed. The mode is 0644 less the umask. What
/// is no regular file, such as `/dev/null` or a pipe that somebody reads, is never replaced: it gets the
/// text as it takes it, without waiting.
///
/// # Errors
/// [`WriteErrorFileError`] names the path and the step.
///
/// ```
/// use rankrun_errors::{ErrorFileReading, ErrorRecord, read_error_file, write_error_file};
///
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("error.json");
/// write_error_file(&path, &ErrorRecord::new("loss is NaN").with_callstack("at step 17"))?;
/// let ErrorFileReading::Record(data) = read_error_file(&path) else { panic!("no record") };
/// assert_eq!(data.message, "loss is NaN");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_error_file(path: &Path, record: &ErrorRecord) -> Result<(), WriteErrorFileError> {
    write_text(path, &record.to_json())
}

pub(crate) fn write_text(path: &Path, text: &str) -> Result<(), WriteErrorFileError> {
    if is_special(path) { write_in_place(path, text) } else { place(path, text, File::sync_all).map(drop) }
}

/// Whether it is there and is a device, a pipe or the like.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}

/// Writes to a device, a pipe or the like.
fn write_in_place(path: &Path, text: &str) -> Result<(), WriteErrorFileError> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|source| WriteErrorFileError::Write { path: path.to_owned(), source })
}

/// Puts a regular file in place, made sure of by `finish`, and gives it, still open.
pub(crate) fn place(
    path: &Path,
    text: &str,
    finish: impl FnOnce(&File) -> io::Result<()>,
) -> Result<File, WriteErrorFileError> {
    let failed = |source| WriteErrorFileError::Create { path: path.to_owned(), source };
    if is_special(path) {
        return Err(failed(io::ErrorKind::AlreadyExists.into()));
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut temporary = tempfile::Builder::new()
        .prefix(".error_file.")
        .permissions(Permissions::from_mode(0o644))
        .tempfile_in(directory)
        .map_err(failed)?;
    temporary
        .write_all(text.as_bytes())
        .and_then(|()| finish(temporary.as_file()))
        .map_err(|source| WriteErrorFileError::Write { path: path.to_owned(), source })?;
    temporary
        .persist(path)
        .map_err(|failed| WriteErrorFileError::Rename { path: path.to_owned(), source: failed.error })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileTypeExt;
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::schema::{MAX_ERROR_FILE_BYTES, parse_error_file};

    #[test]
    fn the_json_has_what_torch_reads_and_our_finer_time() {
        let record = ErrorRecord::new("boom")
            .with_callstack("stack")
            .with_time(UNIX_EPOCH + Duration::new(1_796_070_000, 250_000_001))
            .with_pid(42)
            .with_error_code(-11);
        assert_eq!(
            record.to_json(),
            r#"{"message":{"message":"boom","extraInfo":{"py_callstack":"stack","timestamp":"1796070000","timestamp_ns":1796070000250000001,"pid":42},"errorCode":-11}}"#
        );
    }

    #[test]
    fn what_is_no_regular_file_is_written_to_and_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let is_fifo = |path: &Path| fs::symlink_metadata(path).unwrap().file_type().is_fifo();
        let record = ErrorRecord::new("boom");
        let (null, fifo) = (dir.path().join("null"), dir.path().join("fifo"));
        std::os::unix::fs::symlink("/dev/null", &null).unwrap();
        write_error_file(&null, &record).unwrap();
        assert_eq!(fs::read_link(&null).unwrap(), Path::new("/dev/null"));

        let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        let error = write_error_file(&fifo, &record).unwrap_err();
        assert!(matches!(error, WriteErrorFileError::Write { .. }) && is_fifo(&fifo), "nobody reads: {error}");
        let mut reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&fifo).unwrap();
        write_error_file(&fifo, &record).unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
        assert!(is_fifo(&fifo));
        assert_eq!(parse_error_file(text.as_bytes()).unwrap().message, "boom");
        assert!(place(&fifo, "", |_| Ok(())).is_err() && is_fifo(&fifo));
    }

    #[test]
    fn a_record_of_any_size_stays_readable() {
        let record = ErrorRecord::new("\u{1b}".repeat(1 << 20)).with_callstack("\u{1}é".repeat(4 << 20));
        let json = record.to_json();
        assert!(json.len() <= MAX_ERROR_FILE_BYTES, "{}", json.len());
        let data = parse_error_file(json.as_bytes()).unwrap();
        assert!(data.traceback.unwrap().contains("bytes left out"));
    }

    #[test]
    fn a_write_that_fails_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("error.json");
        std::fs::create_dir(&path).unwrap();
        let error = write_error_file(&path, &ErrorRecord::new("x")).unwrap_err();
        assert!(matches!(error, WriteErrorFileError::Rename { .. }), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);

        let missing = dir.path().join("missing/error.json");
        let error = write_error_file(&missing, &ErrorRecord::new("x")).unwrap_err();
        assert!(error.to_string().contains("missing/error.json"), "{error}");
    }

    #[test]
    fn writing_replaces_the_file_with_mode_0644_less_the_umask() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("error.json");
        std::fs::write(&path, "old").unwrap();
        write_error_file(&path, &ErrorRecord::new("new")).unwrap();
        let plain = dir.path().join("plain");
        std::fs::write(&plain, "").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode();
        // A plain file has 0666 less the umask.
        assert_eq!(mode(&path), mode(&plain) & !0o022);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
