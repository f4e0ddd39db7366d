//! What a run directory says about its run: [`RunInfo`] in `run.json`. Not here: its log files (`run`).

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::error::LogsError;

/// The file's name.
pub(crate) const RUN_INFO: &str = "run.json";

/// No file of ours is larger; what is, is not read.
const MOST: u64 = 64 << 20;

/// How often a directory's mark is tried for, a millisecond apart.
const TRIES: u32 = 20;

/// What is known about a run when it starts, as `run.json` in its directory.
///
/// ```json
/// {"run_id":"20261201-101500-4242","role":"trainer","local_world_size":8,"started_ns":1796120100000000000}
/// ```
///
/// `started_ns` counts nanoseconds from 1970 (UTC). A run whose lines have prefixes of their own has also
/// `"line_prefixes":[["[0 out] ","[0 err] "],...]`, and one whose attempt is known `"attempt":0`. Fields that a later version adds are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunInfo {
    /// The run's id.
    pub run_id: String,
    /// The workers' role.
    pub role: String,
    /// How many workers there are on this host.
    pub local_world_size: usize,
    /// When the run, or its last attempt, was started.
    #[serde(rename = "started_ns", with = "nanoseconds")]
    pub started: SystemTime,
    /// What stands before the lines of each rank's stdout and stderr; empty where that is
    /// [`line_prefix`](crate::line_prefix) of the role. `?` stands for what is not known afterwards, the time of a line
    /// and the process id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub line_prefixes: Vec<[String; 2]>,
    /// Which attempt this is of, `attempt_<n>`: that one, and those before it, have all their files. `None` where it is not
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u64>,
}

/// Holds a run's `run.json` while an attempt of it goes on.
///
/// While it lives an flock(2) is held on the file, by which others know that the run goes on, and learn of its end
/// without a look every now and then, also when this program is killed.
#[derive(Debug)]
pub struct RunMark {
    _file: Flock<File>,
}

/// Holds a run's directory from before others can find it until nothing more is to come, between attempts too.
///
/// An flock(2) on a directory needs no file of its own. Other hosts do not learn of it where the directory is on a network
/// file system; the mark on the file they do.
#[derive(Debug, Clone)]
pub(crate) struct DirMark {
    _directory: Arc<Flock<File>>,
}

impl DirMark {
    /// `None` where it cannot be had: another launcher has it, for example.
    pub(crate) fn new(directory: &Path) -> Option<Self> {
        let mut opened = File::open(directory).ok()?;
        // Whoever asks whether it is held holds it for a moment.
        for _ in 0..TRIES {
            match Flock::lock(opened, FlockArg::LockExclusiveNonblock) {
                Ok(locked) => return Some(Self { _directory: Arc::new(locked) }),
                Err((again, Errno::EWOULDBLOCK | Errno::EINTR)) => opened = again,
                Err(_) => return None,
            }
            // sleep: the moment is over soon, and nothing tells when.
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }
}

impl RunInfo {
    /// A run of `local_world_size` workers that starts now.
    #[must_use]
    pub fn new(run_id: impl Into<String>, role: impl Into<String>, local_world_size: usize) -> Self {
        let (run_id, role) = (run_id.into(), role.into());
        Self { run_id, role, local_world_size, started: SystemTime::now(), line_prefixes: Vec::new(), attempt: None }
    }

    /// Sets [`line_prefixes`](Self::line_prefixes).
    #[must_use]
    pub fn with_line_prefixes(mut self, prefixes: Vec<[String; 2]>) -> Self {
        self.line_prefixes = prefixes;
        self
    }

    /// Sets [`attempt`](Self::attempt).
    #[must_use]
    pub fn with_attempt(mut self, attempt: Option<u64>) -> Self {
        self.attempt = attempt;
        self
    }

    /// Writes the file, in one step, and marks the run as going on until the mark is dropped.
    ///
    /// `path`: [`LogsDest::run_info`](crate::LogsDest::run_info). One that is there is replaced.
    ///
    /// # Errors
    /// [`LogsError::RunInfo`]; what was there before is still there then.
    pub fn publish(&self, path: &Path) -> Result<RunMark, LogsError> {
        let failed = |source| LogsError::RunInfo { path: path.to_owned(), source };
        let directory = path.parent().unwrap_or(Path::new("."));
        let mut text = serde_json::to_string(self).map_err(|error| failed(error.into()))?;
        text.push('\n');
        let mut file = tempfile::Builder::new().prefix(".run_").tempfile_in(directory).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        file.as_file().set_permissions(fs::Permissions::from_mode(0o644)).map_err(failed)?;
        // Before it has its name: whoever sees it sees that the run goes on.
        let locked = file.as_file().try_clone().map_err(failed)?;
        let locked = Flock::lock(locked, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| failed(errno.into()))?;
        file.persist(path).map_err(|error| failed(error.error))?;
        Ok(RunMark { _file: locked })
    }

    /// Reads the file.
    ///
    /// # Errors
    /// [`LogsError::RunInfo`] if it cannot be read or is not as it should be.
    pub fn read(path: &Path) -> Result<Self, LogsError> {
        let failed = |source| LogsError::RunInfo { path: path.to_owned(), source };
        let mut text = String::new();
        File::open(path).and_then(|file| file.take(MOST).read_to_string(&mut text)).map_err(failed)?;
        serde_json::from_str(&text).map_err(|error| failed(error.into()))
    }
}

/// Waits until nobody holds the mark of this file any more; returns at once if nobody does. Blocks without a limit.
pub(crate) fn wait_for_end(path: &Path) -> Result<(), LogsError> {
    let failed = |source: io::Error| LogsError::RunInfo { path: PathBuf::from(path), source };
    let mut file = File::open(path).map_err(failed)?;
    loop {
        match Flock::lock(file, FlockArg::LockShared) {
            Ok(_) => return Ok(()),
            Err((again, Errno::EINTR)) => file = again,
            Err((_, errno)) => return Err(failed(errno.into())),
        }
    }
}

/// Whether somebody holds the mark of this file or directory now.
pub(crate) fn is_held(path: &Path) -> bool {
    File::open(path)
        .is_ok_and(|file| matches!(Flock::lock(file, FlockArg::LockSharedNonblock), Err((_, Errno::EWOULDBLOCK))))
}

/// A time as nanoseconds from 1970; what is before or far beyond is the nearest that can be.
mod nanoseconds {
    use serde::{Deserializer, Serializer};

    use super::{Deserialize, Duration, SystemTime, UNIX_EPOCH};

    pub(super) fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        serializer.serialize_u64(u64::try_from(since).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
        u64::deserialize(deserializer).map(|ns| UNIX_EPOCH + Duration::from_nanos(ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_read_again_and_marked_until_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(RUN_INFO);
        let info = RunInfo::new("job\"7", "trainer", 8).with_line_prefixes(vec![["a".into(), "b".into()]]);
        let mark = info.publish(&path).unwrap();
        assert_eq!(RunInfo::read(&path).unwrap(), info);
        assert!(is_held(&path));
        let waiter = std::thread::spawn({
            let path = path.clone();
            move || wait_for_end(&path)
        });
        // A later attempt replaces it.
        let second = RunInfo::new("job", "trainer", 4).publish(&path).unwrap();
        assert_eq!(RunInfo::read(&path).unwrap().local_world_size, 4);
        drop((mark, second));
        waiter.join().unwrap().unwrap();
        assert!(!is_held(&path));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_is_held_by_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_held(dir.path()));
        let mark = DirMark::new(dir.path()).unwrap();
        assert!(is_held(dir.path()) && is_held(dir.path()), "who asks is not taken for the holder, nor takes it away");
        assert!(DirMark::new(dir.path()).is_none());
        let same = mark.clone();
        drop(mark);
        assert!(is_held(dir.path()));
        drop(same);
        assert!(!is_held(dir.path()));
        assert!(DirMark::new(&dir.path().join("missing")).is_none());
    }

    #[test]
    fn what_is_no_run_file_is_an_error_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(RUN_INFO);
        let text = RunInfo::read(&path).unwrap_err().to_string();
        assert_eq!(text, format!("run file {}: No such file or directory (os error 2)", path.display()));
        for wrong in ["", "[]", "{\"run_id\":\"a\"}", "\u{0}"] {
            fs::write(&path, wrong).unwrap();
            assert!(RunInfo::read(&path).unwrap_err().to_string().starts_with("run file "), "{wrong}");
        }
        let later = r#"{"run_id":"a","role":"b","local_world_size":1,"started_ns":5,"new":[1]}"#;
        fs::write(&path, later).unwrap();
        assert_eq!(RunInfo::read(&path).unwrap().started, UNIX_EPOCH + Duration::from_nanos(5));
        assert!(!is_held(&dir.path().join("missing")));
    }
}
