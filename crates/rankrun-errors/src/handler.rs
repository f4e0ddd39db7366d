//! What a worker does with an error: the [`ErrorHandler`] trait and the process's current one.
//! Not here: running a function under it (`record`).

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rankrun_types::env::TORCHELASTIC_ERROR_FILE;

use crate::json;
use crate::read::{ErrorFileReading, read_error_file};
use crate::record::ERROR_CODE;
use crate::schema::{Dialect, ErrorFileData, UnusableErrorFile};
use crate::time::system_time;
use crate::write::{ErrorRecord, WriteErrorFileError, write_error_file, write_text};

/// A child's error file could not be passed on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpErrorFileError {
    /// The child's error file is not there.
    #[error("error file {path}: there is none to pass on", path = path.display())]
    Absent {
        /// The child's error file.
        path: PathBuf,
    },
    /// The child's error file is of no use.
    #[error("error file {path} {why}, so it cannot be passed on", path = path.display())]
    Unusable {
        /// The child's error file.
        path: PathBuf,
        /// What is wrong with it.
        why: UnusableErrorFile,
    },
    /// This process's own error file could not be written.
    #[error(transparent)]
    Write(#[from] WriteErrorFileError),
}

/// What a process does with its errors: writes them where its launcher looks for them.
///
/// Only [`error_file`](Self::error_file) must be given; the rest follows from it and can be replaced method by method.
/// Mirrors `ErrorHandler` of torch's `multiprocessing.errors.error_handler`.
pub trait ErrorHandler: Send + Sync {
    /// The error file of this process, or `None` if no launcher asked for one.
    fn error_file(&self) -> Option<PathBuf>;

    /// Called by [`record`](crate::record) before the function runs.
    ///
    /// By default it does nothing: it installs no signal handler.
    fn initialize(&self) {}

    /// Writes a record to the error file, and returns where; `None` if there is no error file to write.
    ///
    /// The one door that all new records go through: what is replaced here is replaced for errors and panics alike.
    ///
    /// # Errors
    /// [`WriteErrorFileError`] if the file cannot be written.
    fn write_record(&self, record: &ErrorRecord) -> Result<Option<PathBuf>, WriteErrorFileError> {
        let Some(path) = self.error_file() else { return Ok(None) };
        write_error_file(&path, record)?;
        Ok(Some(path))
    }

    /// Writes an error with its sources to the error file, and returns where; `None` if there is no error file.
    ///
    /// [`record`](crate::record) calls it for an error, unless panics of other threads are to be written with it: then
    /// it goes straight to [`write_record`](Self::write_record). The record says that the process ends with exit code 1.
    /// Mirrors `record_exception`.
    ///
    /// # Errors
    /// [`WriteErrorFileError`] if the file cannot be written.
    fn record_exception(&self, error: &(dyn Error + 'static)) -> Result<Option<PathBuf>, WriteErrorFileError> {
        self.write_record(&ErrorRecord::from_error(error).with_exit_code(ERROR_CODE))
    }

    /// The JSON text of a child's record with its exit code in `errorCode`, since a child that a signal ended could
    /// not write it itself.
    ///
    /// A record in torch's form keeps all its fields if it is not over 512 KiB; another is brought into torch's form.
    /// Mirrors `override_error_code_in_rootcause_data`, which leaves the other forms as they are.
    fn override_error_code_in_rootcause_data(&self, rootcause: &ErrorFileData, error_code: i32) -> String {
        with_error_code(rootcause, error_code)
    }

    /// Passes a child's error file on as this process's own, and returns where; `None` if this process has none.
    ///
    /// `error_code` is the child's exit code, negative for a signal; 0 leaves the record as it is.
    /// Mirrors `dump_error_file`: an error file that is already there is replaced.
    ///
    /// # Errors
    /// [`DumpErrorFileError`] if the child's file is missing or of no use, or the own file cannot be written.
    fn dump_error_file(
        &self,
        rootcause_error_file: &Path,
        error_code: i32,
    ) -> Result<Option<PathBuf>, DumpErrorFileError> {
        let path = rootcause_error_file.to_owned();
        let rootcause = match read_error_file(rootcause_error_file) {
            ErrorFileReading::Record(data) => data,
            ErrorFileReading::Absent => return Err(DumpErrorFileError::Absent { path }),
            ErrorFileReading::Unusable { why } => return Err(DumpErrorFileError::Unusable { path, why }),
        };
        let Some(own) = self.error_file() else {
            log::error!("no error file is defined for this process, to copy {} to", path.display());
            return Ok(None);
        };
        if error_code == 0 {
            write_text(&own, &rootcause.raw)?;
        } else {
            write_text(&own, &self.override_error_code_in_rootcause_data(&rootcause, error_code))?;
        }
        Ok(Some(own))
    }
}

/// The longest record that is passed on with all its fields, in bytes; of a longer one the facts that count are.
const MAX_KEPT_WHOLE: usize = 512 << 10;

fn with_error_code(rootcause: &ErrorFileData, error_code: i32) -> String {
    let whole = rootcause.raw.trim_start_matches('\u{feff}').trim();
    if rootcause.dialect == Dialect::Torch && whole.len() <= MAX_KEPT_WHOLE {
        return object_with(whole, "message", |message| {
            let message = object_with(message, "errorCode", |_| error_code.to_string());
            object_with(&message, "passed_on_by", |_| std::process::id().to_string())
        });
    }
    let time = rootcause.time.map(|time| time.unix_ns).or(rootcause.mtime_ns);
    let mut record = ErrorRecord::new(&rootcause.message).with_error_code(error_code).as_passed_on();
    record = record.with_callstack(rootcause.traceback.as_deref().unwrap_or_default());
    if let Some(unix_ns) = time {
        record = record.with_time(system_time(unix_ns));
    }
    if let Some(pid) = rootcause.pid {
        record = record.with_pid(pid);
        record.start_ticks = rootcause.start_ticks;
    }
    record.to_json()
}

/// The text of a JSON object with another value for a key, made of the one that counts; an absent one is empty.
fn object_with(object: &str, key: &str, value: impl FnOnce(&str) -> String) -> String {
    let mut text = String::with_capacity(object.len() + 32);
    let mut old = "";
    for (name, value) in json::members(object) {
        if json::is(name, key) {
            old = value;
        } else {
            text.push_str(if text.is_empty() { "{" } else { "," });
            text.extend([name, ":", value]);
        }
    }
    text.push_str(if text.is_empty() { "{" } else { "," });
    text + &format!("\"{key}\":{}}}", value(old))
}

/// The handler that is used unless another is set.
///
/// Its error file is named by the environment variable `TORCHELASTIC_ERROR_FILE`, looked up at each use, or by the
/// program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DefaultErrorHandler {
    path: Option<PathBuf>,
}

impl DefaultErrorHandler {
    /// A handler that looks into the environment.
    #[must_use]
    pub fn from_env() -> Self {
        Self { path: None }
    }

    /// A handler that writes to this file, whatever the environment says.
    #[must_use]
    pub fn with_path(path: impl Into<PathBuf>) -> Self {
        Self { path: Some(path.into()) }
    }
}

impl ErrorHandler for DefaultErrorHandler {
    fn error_file(&self) -> Option<PathBuf> {
        self.path.clone().or_else(|| {
            let path = std::env::var_os(TORCHELASTIC_ERROR_FILE)?;
            (!path.is_empty()).then(|| path.into())
        })
    }
}

static CURRENT: RwLock<Option<Arc<dyn ErrorHandler>>> = RwLock::new(None);

/// The process's current error handler: the one last set, or a [`DefaultErrorHandler`].
///
/// Mirrors `get_error_handler`.
#[must_use]
pub fn get_error_handler() -> Arc<dyn ErrorHandler> {
    let current = CURRENT.read().unwrap_or_else(PoisonError::into_inner);
    current.clone().unwrap_or_else(|| Arc::new(DefaultErrorHandler::from_env()))
}

/// Sets the error handler of the whole process; calls of [`record`](crate::record) that run already keep theirs.
pub fn set_error_handler(handler: Arc<dyn ErrorHandler>) {
    *CURRENT.write().unwrap_or_else(PoisonError::into_inner) = Some(handler);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::parse_error_file;

    fn overridden(text: &str, code: i32) -> ErrorFileData {
        let data = parse_error_file(text.as_bytes()).unwrap();
        let text = DefaultErrorHandler::from_env().override_error_code_in_rootcause_data(&data, code);
        parse_error_file(text.as_bytes()).unwrap()
    }

    #[test]
    fn torch_records_keep_their_other_fields() {
        let text = r#"{"message": {"message": "m", "extraInfo": {"py_callstack": "s", "timestamp": "7", "own": 1}, "errorCode": 1}}"#;
        let data = overridden(text, -11);
        assert_eq!(data.error_code, Some(-11));
        assert!(data.raw.contains(r#""own": 1"#) && data.raw.contains(r#""timestamp": "7""#), "{}", data.raw);
    }

    #[test]
    fn a_launchers_own_failure_is_one_that_was_passed_on_above_it() {
        let record = ErrorRecord::new("no such program").with_own_error_code(127);
        let data = parse_error_file(record.to_json().as_bytes()).unwrap();
        assert_eq!((data.error_code, data.passed_on_code(), data.exit_code), (Some(127), None, Some(127)));
        let data = overridden(&record.to_json(), 127);
        assert_eq!((data.error_code, data.passed_on_code()), (Some(127), Some(127)));
        assert_eq!((data.message.as_str(), data.pid), ("no such program", Some(std::process::id())));
    }

    #[test]
    fn an_exit_code_replaces_the_one_that_is_there_whatever_the_object_holds() {
        for (text, expected) in [
            (r#"{"message": {}}"#, r#"{"message":{"errorCode":7}}"#),
            (
                r#"{"a": 1, "message": {"errorCode": 3, "x": "}"}, "b": []}"#,
                r#"{"a":1,"b":[],"message":{"x":"}","errorCode":7}}"#,
            ),
        ] {
            let new = object_with(text, "message", |message| object_with(message, "errorCode", |_| "7".to_owned()));
            assert_eq!(new, expected);
        }
    }

    #[test]
    fn other_dialects_become_torch_records_with_their_facts() {
        let data = overridden(r#"{"message": "m", "timestamp": 7.5, "extraInfo": {"traceback": "s"}}"#, 3);
        assert_eq!((data.dialect, data.error_code), (Dialect::Torch, Some(3)));
        assert_eq!((data.message.as_str(), data.traceback.as_deref()), ("m", Some("s")));
        assert_eq!(data.time.unwrap().unix_ns, 7_500_000_000);
    }

    #[test]
    fn a_child_file_that_is_missing_or_broken_cannot_be_passed_on() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own.json");
        let handler = DefaultErrorHandler::with_path(&own);
        let child = dir.path().join("child.json");
        assert!(matches!(handler.dump_error_file(&child, 1), Err(DumpErrorFileError::Absent { .. })));
        std::fs::write(&child, "{").unwrap();
        let error = handler.dump_error_file(&child, 1).unwrap_err();
        assert!(error.to_string().contains("child.json is cut off after 1 bytes"), "{error}");
        assert!(!own.exists());
    }

    #[test]
    fn passing_on_without_an_exit_code_copies_the_record_over_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let (own, child) = (dir.path().join("own.json"), dir.path().join("child.json"));
        std::fs::write(&own, "old").unwrap();
        std::fs::write(&child, r#"{"message": "m"}"#).unwrap();
        let handler = DefaultErrorHandler::with_path(&own);
        assert_eq!(handler.dump_error_file(&child, 0).unwrap(), Some(own.clone()));
        assert_eq!(std::fs::read_to_string(&own).unwrap(), r#"{"message": "m"}"#);
    }
}
