//! Places that arguments name: what is wrong with one is said of its argument ([`PlaceError`]). Not here: using them.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, eaccess};
use rankrun::crates::logs::LogsError;
use rankrun::crates::types::escape_os_str;
use rankrun::{StartError, StartProcessesError};
use rankrun_launcher::EventLogError;

use crate::exit_code;
use crate::help::HELP;

/// An argument names a place that cannot be used.
#[derive(Debug)]
pub(crate) struct PlaceError {
    option: &'static str,
    value: PathBuf,
    why: String,
    expected: &'static str,
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (option, value, expected) = (self.option, escape_os_str(self.value.as_os_str()), self.expected);
        write!(f, "invalid value '{value}' for '{option}': {}: expected {expected} (see {HELP})", self.why)
    }
}

/// Whether workers can work there; what cannot be known is left to their start.
pub(crate) fn chdir(dir: Option<&Path>) -> Result<(), PlaceError> {
    let Some(dir) = dir else { return Ok(()) };
    let wrong = |error: &io::Error| {
        let why = error.to_string();
        PlaceError { option: "--chdir", value: dir.to_owned(), why, expected: "a directory that workers may enter" }
    };
    match fs::metadata(dir) {
        Err(error) if is_of_path(&error) => return Err(wrong(&error)),
        Ok(meta) if !meta.is_dir() => return Err(wrong(&Errno::ENOTDIR.into())),
        _ => {}
    }
    match eaccess(dir, AccessFlags::X_OK).map_err(io::Error::from) {
        Err(error) if is_of_path(&error) => Err(wrong(&error)),
        _ => Ok(()),
    }
}

/// What is wrong with the file of `--events`, if that is why the log could not be opened.
pub(crate) fn events(error: &EventLogError) -> Option<PlaceError> {
    let (value, why) = (error.path.clone(), error.source.to_string());
    let expected = "a file that can be written, a named pipe, or - for standard output";
    is_of_path(&error.source).then_some(PlaceError { option: "--events", value, why, expected })
}

/// What is wrong with the directory of `--log-dir`, if that is why no group could be started.
pub(crate) fn log_dir(dir: &Path, error: &StartProcessesError) -> Option<PlaceError> {
    let StartProcessesError::Start(StartError::Logs { source, .. }) = error else { return None };
    let is_its_fault = match source {
        LogsError::NotADirectory { .. } => true,
        LogsError::Create { source, .. } => is_of_path(source),
        _ => false,
    };
    let expected = "a directory that can be written, or a path where one can be made";
    let (value, why) = (dir.to_owned(), source.to_string());
    is_its_fault.then_some(PlaceError { option: "--log-dir", value, why, expected })
}

/// What is wrong with the DIR of `rankrun logs` and its like, and the exit code; `help`: what shows more.
pub(crate) fn run_dir(dir: &Path, error: &LogsError, help: &str) -> (String, u8) {
    let LogsError::NoRun { what, .. } = error else { return (error.to_string(), exit_code::LAUNCHER_FAILED) };
    let dir = escape_os_str(dir.as_os_str());
    let expected = "expected the directory of a run, or a log directory with runs in it";
    (format!("invalid value '{dir}' for '<DIR>': {what}: {expected} (see {help})"), exit_code::USAGE)
}

/// Whether an error is of the path, and not of the state of the system, such as a disk that is full.
fn is_of_path(error: &io::Error) -> bool {
    const OF_PATH: [Errno; 10] = [
        Errno::ENOENT,
        Errno::ENOTDIR,
        Errno::EISDIR,
        Errno::EACCES,
        Errno::EPERM,
        Errno::EROFS,
        Errno::ENAMETOOLONG,
        Errno::ELOOP,
        Errno::ENXIO,
        Errno::ETXTBSY,
    ];
    error.raw_os_error().is_some_and(|errno| OF_PATH.contains(&Errno::from_raw(errno)))
}
