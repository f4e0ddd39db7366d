//! Where each worker's output goes: [`LogsSpecs`] and what it gives, [`LogsDest`]. Not here: the usual one
//! (`default_specs`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rankrun_types::PerRank;

use crate::error::LogsError;

/// A worker's environment.
pub type Env = BTreeMap<OsString, OsString>;

/// Decides where the output of a group's workers goes.
///
/// Mirrors `LogsSpecs` of torch's `multiprocessing.api`.
pub trait LogsSpecs: Send + Sync {
    /// Makes the directories for one attempt and says where each worker's output goes.
    ///
    /// Called once for each start of a group, with the environment of each worker. May block on the file system.
    /// Two calls never give the same files. Files need not exist afterwards: see [`open_log`](crate::open_log).
    ///
    /// # Errors
    /// [`LogsError`]; no directory that the call made is left then.
    fn reify(&self, envs: &PerRank<Env>) -> Result<LogsDest, LogsError>;

    /// The directory for the logs of all runs, if one was given.
    fn root_log_dir(&self) -> Option<&Path>;
}

/// Where the output of each worker of one attempt goes. All paths are absolute.
///
/// Mirrors `LogsDest` of torch's `multiprocessing.api`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogsDest {
    /// The file that stands in for stdout; `None` inherits the launcher's.
    pub stdouts: PerRank<Option<PathBuf>>,
    /// The file that stands in for stderr; `None` inherits the launcher's.
    pub stderrs: PerRank<Option<PathBuf>>,
    /// The file whose lines are shown on the launcher's stdout: that of `stdouts`, or `None` for not shown.
    pub tee_stdouts: PerRank<Option<PathBuf>>,
    /// The file whose lines are shown on the launcher's stderr: that of `stderrs`, or `None` for not shown.
    pub tee_stderrs: PerRank<Option<PathBuf>>,
    /// Where the worker writes its error file.
    pub error_files: PerRank<PathBuf>,
    /// Where chosen lines of all teed stdouts go.
    pub filtered_stdout: Option<PathBuf>,
    /// Where chosen lines of all teed stderrs go.
    pub filtered_stderr: Option<PathBuf>,
    /// Where the run is described for who reads its logs, see [`RunInfo`](crate::RunInfo); `None` for nowhere.
    pub run_info: Option<PathBuf>,
}

impl LogsDest {
    /// Which attempt of its run this is, from the name of its directory, `attempt_<n>`; `None` in another layout than that
    /// of [`DefaultLogsSpecs`](crate::DefaultLogsSpecs).
    ///
    /// Where nodes share a run's directory it need not be how often the group was started.
    ///
    /// ```
    /// use rankrun_logs::{DefaultLogsSpecs, Env, LogsSpecs};
    /// use rankrun_redirects::Std;
    /// use rankrun_types::PerRank;
    ///
    /// # fn main() -> Result<(), rankrun_logs::LogsError> {
    /// let specs = DefaultLogsSpecs::new(None, Std::OUT, Std::NONE);
    /// let env = Env::from([("TORCHELASTIC_RESTART_COUNT".into(), "3".into())]);
    /// assert_eq!(specs.reify(&PerRank::filled(2, env))?.attempt(), Some(3));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn attempt(&self) -> Option<u64> {
        let run = self.run_info.as_deref()?.parent()?;
        let attempt = self.error_files.get(0)?.parent()?.parent()?;
        crate::run::attempt_of(attempt).filter(|_| attempt.parent() == Some(run))
    }
}
