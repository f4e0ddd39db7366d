//! The usual directory layout: [`DefaultLogsSpecs`]. Not here: writing to the files or following them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rankrun_redirects::{Std, StdSpec};
use rankrun_types::{PerRank, env};

use crate::error::LogsError;
use crate::latest::{self, LATEST};
use crate::made::{Made, SHARED};
use crate::run_info::{DirMark, RUN_INFO, is_held};
use crate::specs::{Env, LogsDest, LogsSpecs};
use crate::temporary;

/// The run id where the workers' environment has none, as torchrun has it.
pub const DEFAULT_RUN_ID: &str = "none";

/// The most of a run id, in bytes, that goes into a directory's name; a name may have 255.
const RUN_ID_MAX: usize = 128;

/// Logs in the layout that torchrun's users know.
///
/// ```text
/// <log_dir>/<run_id>_<unique>/attempt_<n>/<local_rank>/{stdout.log,stderr.log,error.json}
/// <log_dir>/<run_id>_<unique>/attempt_<n>/filtered_{stdout,stderr}.log
/// <log_dir>/<run_id>_<unique>/run.json
/// <log_dir>/latest -> <run_id>_<unique>
/// ```
///
/// `run_id` and `n` are `TORCHELASTIC_RUN_ID` and `TORCHELASTIC_RESTART_COUNT` of rank 0's environment
/// ([`DEFAULT_RUN_ID`] and 0 where unset). In the name, `/`, control characters and a leading `.` of the run id become
/// `_`, and 128 bytes of it are used. The run directory is made by the first [`reify`](LogsSpecs::reify) and used for
/// later attempts of that run. An attempt that is there already, or another run id, gets a new run directory: files of
/// two runs never mix, and nothing that exists is removed. In a log directory that was given, `latest` is a link to the
/// newest run; where something else has that name it is left alone, and [`warnings`](Self::warnings) says so.
///
/// The nodes of a job that share a log directory have a layout of their own, see [`node`](Self::node).
///
/// Tee implies redirect. Ranks that a spec names and the group has not are ignored.
///
/// Mirrors `DefaultLogsSpecs` of torch's `multiprocessing.api`.
///
/// ```
/// use rankrun_logs::{DefaultLogsSpecs, Env, LogsSpecs};
/// use rankrun_redirects::Std;
/// use rankrun_types::PerRank;
///
/// # fn main() -> Result<(), rankrun_logs::LogsError> {
/// let specs = DefaultLogsSpecs::new(None, Std::OUT, Std::ERR);
/// let dest = specs.reify(&PerRank::filled(2, Env::new()))?;
/// let run_dir = specs.run_dir().expect("made by reify");
/// assert_eq!(dest.stdouts[1], Some(run_dir.join("attempt_0/1/stdout.log")));
/// assert_eq!(dest.tee_stdouts[1], None);
/// assert_eq!(dest.tee_stderrs[1], Some(run_dir.join("attempt_0/1/stderr.log")));
/// specs.remove_run_dir()?;
/// assert!(!run_dir.exists());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct DefaultLogsSpecs {
    log_dir: Option<PathBuf>,
    redirects: StdSpec,
    tee: StdSpec,
    local_ranks_filter: Option<BTreeSet<usize>>,
    node: Option<usize>,
    holds_run: bool,
    state: Mutex<State>,
}

/// What exists on disk.
#[derive(Debug, Default)]
struct State {
    /// The log directory, absolute, and which directories on its path were made here, outermost first.
    base: Option<(PathBuf, Vec<PathBuf>)>,
    run: Option<Run>,
    /// The directories of temporary runs, outermost first, to be removed at the end if they are empty.
    temporary: Vec<PathBuf>,
    warnings: Vec<String>,
}

#[derive(Debug, Clone)]
struct Run {
    path: PathBuf,
    run_id: String,
    /// Where `latest` pointed before this run.
    latest_before: Option<PathBuf>,
    /// The attempts that were made here; a run directory that nodes share may have others.
    attempts: Vec<PathBuf>,
    mark: Option<DirMark>,
}

impl DefaultLogsSpecs {
    /// Logs under `log_dir`, which is made when it is needed.
    ///
    /// Without one, a temporary directory `rankrun_<random>` with mode 0700 is used, where `TMPDIR` says, else in the first of
    /// `/tmp`, `/var/tmp` and the current directory that takes it, as in Python's `tempfile`; those of its directories that are
    /// empty when this object is dropped, and it itself if no file is in it, are removed then. A relative path counts from the
    /// directory that is current when [`reify`](LogsSpecs::reify) is called.
    #[must_use]
    pub fn new(log_dir: Option<PathBuf>, redirects: impl Into<StdSpec>, tee: impl Into<StdSpec>) -> Self {
        Self {
            log_dir,
            redirects: redirects.into(),
            tee: tee.into(),
            local_ranks_filter: None,
            node: None,
            holds_run: false,
            state: Mutex::default(),
        }
    }

    /// Shows the output of these local ranks only.
    ///
    /// Other ranks are not teed, and their stdout, where it is not redirected, goes to `/dev/null`; their stderr always
    /// goes to their log file, so that a failure of theirs can be explained. Log files are complete for every rank. An
    /// empty set shows none.
    #[must_use]
    pub fn local_ranks_filter(mut self, local_ranks: BTreeSet<usize>) -> Self {
        self.local_ranks_filter = Some(local_ranks);
        self
    }

    /// Lays a run out for a job of several nodes that share the log directory, of which this is one, from 0.
    ///
    /// ```text
    /// <log_dir>/<run_id>/node_<k>/attempt_<n>/<local_rank>/{stdout.log,stderr.log,error.json}
    /// <log_dir>/<run_id>/node_<k>/run.json
    /// <log_dir>/latest -> <run_id>
    /// ```
    ///
    /// Where the run id has what a name cannot have, is longer than 128 bytes or is `latest`, `_` and eight hexadecimal digits made
    /// of it follow in the name: two ids never share a directory.
    ///
    /// So all nodes find the same place without talking to each other, and a job that its engine starts again goes on in
    /// it. `n` is the first attempt, from `TORCHELASTIC_RESTART_COUNT` on, that is not there yet: files of two attempts
    /// never mix, also where nobody counts them. Without a log directory it has no effect.
    ///
    /// ```
    /// use rankrun_logs::{DefaultLogsSpecs, Env, LogsSpecs};
    /// use rankrun_redirects::Std;
    /// use rankrun_types::PerRank;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let dir = tempfile::tempdir()?;
    /// let specs = DefaultLogsSpecs::new(Some(dir.path().into()), Std::OUT, Std::NONE).node(3);
    /// let env = Env::from([("TORCHELASTIC_RUN_ID".into(), "job".into())]);
    /// let dest = specs.reify(&PerRank::filled(2, env))?;
    /// assert_eq!(dest.stdouts[1], Some(dir.path().join("job/node_3/attempt_0/1/stdout.log")));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn node(mut self, node_rank: usize) -> Self {
        self.node = Some(node_rank);
        self
    }

    /// Marks a run as going on ([`Run::goes_on`](crate::Run::goes_on)) from the moment in which its directory can be found until
    /// this object is dropped, makes another run, or removes this one: also between its attempts.
    ///
    /// A node's part of a shared run directory is for this object alone then, as far as the file system has locks: `reify` fails
    /// with [`LogsError::InUse`] while another one holds it, or a run goes on in it.
    ///
    /// Without it a run goes on while an attempt of it does. It takes a descriptor.
    #[must_use]
    pub fn hold_run(mut self) -> Self {
        self.holds_run = true;
        self
    }

    /// Where another node of a run with this id writes, from [`node`](Self::node); `None` where nodes share no directory.
    #[must_use]
    pub fn part_of_node(&self, run_id: &OsStr, node: usize) -> Option<PathBuf> {
        self.is_shared()?;
        let run_id = shared_name(Some(run_id));
        Some(self.log_dir.as_ref()?.join(run_id).join(format!("node_{node}")))
    }

    /// The run directory of the last [`reify`](LogsSpecs::reify), absolute; `None` before it and after
    /// [`DefaultLogsSpecs::remove_run_dir`].
    #[must_use]
    pub fn run_dir(&self) -> Option<PathBuf> {
        self.state().run.as_ref().map(|run| run.path.clone())
    }

    /// Removes the run directory of the last [`reify`](LogsSpecs::reify) with all that is in it; where nodes share it, the
    /// attempts that this object made.
    ///
    /// The log directory, and those above it, go too if this object made them and they are empty. Without a run
    /// directory it does nothing.
    ///
    /// # Errors
    /// [`LogsError::Remove`]; it can be tried again.
    pub fn remove_run_dir(&self) -> Result<(), LogsError> {
        let mut state = self.state();
        let Some(run) = state.run.clone() else { return Ok(()) };
        if self.is_shared().is_some() {
            remove_attempts(&run)?;
            state.run = None;
            return Ok(());
        }
        match fs::remove_dir_all(&run.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(LogsError::Remove { path: run.path, source: error });
            }
            _ => state.run = None,
        }
        if let (true, Some(log_dir), Some(name)) = (self.log_dir.is_some(), run.path.parent(), run.path.file_name()) {
            latest::take_back(log_dir, name, run.latest_before.as_deref());
        }
        state.temporary.retain(|path| !path.starts_with(&run.path));
        if let Some((_, made)) = state.base.take() {
            for path in made.iter().rev() {
                // One that others use is not empty, and stays.
                let _ = fs::remove_dir(path);
            }
        }
        Ok(())
    }

    /// Leaves a temporary run directory where it is when this object is dropped, even if it is empty.
    pub fn keep_run_dir(&self) {
        self.state().temporary.clear();
    }

    /// What could not be done beside the files themselves, a line each, for people. Does not block.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.state().warnings.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log directory, made if it is missing.
    fn base(&self, made: &mut Made, warnings: &mut Vec<String>) -> Result<PathBuf, LogsError> {
        let Some(log_dir) = &self.log_dir else {
            return temporary::directory(made, warnings);
        };
        let path =
            std::path::absolute(log_dir).map_err(|source| LogsError::Create { path: log_dir.clone(), source })?;
        made.dir_all(&path)?;
        Ok(path)
    }

    /// Which node's part of a shared run directory this is, if it is one.
    fn is_shared(&self) -> Option<usize> {
        self.node.filter(|_| self.log_dir.is_some())
    }

    fn dest(&self, run: &Path, attempt: &Path, local_world_size: usize) -> LogsDest {
        let shown =
            |local_rank: usize| self.local_ranks_filter.as_ref().is_none_or(|ranks| ranks.contains(&local_rank));
        let tee = self.tee.to_map(local_world_size);
        let redirects = self.redirects.to_map(local_world_size);
        let file = |local_rank: usize, name| attempt.join(local_rank.to_string()).join(name);
        let redirected = |stream, name| {
            PerRank::from_fn(local_world_size, |local_rank| {
                let to_file = (redirects[local_rank] | tee[local_rank]).contains(stream);
                match shown(local_rank) {
                    _ if to_file => Some(file(local_rank, name)),
                    true => None,
                    false if stream == Std::ERR => Some(file(local_rank, name)),
                    false => Some(PathBuf::from("/dev/null")),
                }
            })
        };
        let teed = |stream, name| {
            PerRank::from_fn(local_world_size, |local_rank| {
                (tee[local_rank].contains(stream) && shown(local_rank)).then(|| file(local_rank, name))
            })
        };
        LogsDest {
            stdouts: redirected(Std::OUT, "stdout.log"),
            stderrs: redirected(Std::ERR, "stderr.log"),
            tee_stdouts: teed(Std::OUT, "stdout.log"),
            tee_stderrs: teed(Std::ERR, "stderr.log"),
            error_files: PerRank::from_fn(local_world_size, |local_rank| file(local_rank, "error.json")),
            filtered_stdout: Some(attempt.join("filtered_stdout.log")),
            filtered_stderr: Some(attempt.join("filtered_stderr.log")),
            run_info: Some(run.join(RUN_INFO)),
        }
    }
}

impl LogsSpecs for DefaultLogsSpecs {
    fn reify(&self, envs: &PerRank<Env>) -> Result<LogsDest, LogsError> {
        let first = envs.get(0).ok_or(LogsError::NoWorkers)?;
        let run_id = first.get(OsStr::new(env::TORCHELASTIC_RUN_ID)).map(|id| &**id);
        let run_id = if self.is_shared().is_some() { shared_name(run_id) } else { run_id_for_name(run_id) };
        let count = restart_count(first)?;
        let attempt = format!("attempt_{count}");

        let mut state = self.state();
        let mut base_made = Made::default();
        // What somebody removed in the meantime is made again.
        let base = match state.base.as_ref().filter(|(path, _)| path.is_dir()) {
            Some((path, _)) => path.clone(),
            None => self.base(&mut base_made, &mut state.warnings)?,
        };
        // Dropped before `base_made` where a step fails, so inner directories go first.
        let mut made = Made::default();
        let (mut run, is_new, attempt) = if let Some(node) = self.is_shared() {
            let path = base.join(&run_id).join(format!("node_{node}"));
            made.dir_all(&path)?;
            let run = state.run.clone().filter(|run| run.path == path);
            let is_new = run.is_none();
            let mut run = run.unwrap_or(Run { run_id, latest_before: None, attempts: Vec::new(), path, mark: None });
            if self.holds_run && run.mark.is_none() {
                // Before anything is made: two may begin at once.
                run.mark = DirMark::new(&run.path);
                if is_held(&run.path.join(RUN_INFO)) || run.mark.is_none() && is_held(&run.path) {
                    return Err(LogsError::InUse { node, path: run.path });
                }
            }
            let attempt = first_free(&mut made, &run.path, count)?;
            (run, is_new, attempt)
        } else {
            let continues = |run: &&Run| run.run_id == run_id && run.path.is_dir() && !run.path.join(&attempt).exists();
            let (run, is_new) = match state.run.as_ref().filter(continues) {
                Some(run) => (run.clone(), false),
                None => {
                    let path = made.unique(&base, &format!("{run_id}_"), SHARED)?;
                    (Run { path, run_id, latest_before: None, attempts: Vec::new(), mark: None }, true)
                }
            };
            let attempt = run.path.join(attempt);
            made.dir(&attempt)?;
            (run, is_new, attempt)
        };
        if self.holds_run && run.mark.is_none() {
            run.mark = DirMark::new(&run.path);
        }
        run.attempts.push(attempt.clone());
        for local_rank in 0..envs.len() {
            made.dir(&attempt.join(local_rank.to_string()))?;
        }
        let base_made = base_made.keep();
        let made = made.keep();
        let of_run = if self.is_shared().is_some() { run.path.parent().unwrap_or(&run.path) } else { &run.path };
        if let (true, true, Some(name)) = (is_new, self.log_dir.is_some(), of_run.file_name()) {
            match latest::point_to(&base, name) {
                Ok(before) => run.latest_before = before,
                Err(error) => {
                    let link = base.join(LATEST);
                    state.warnings.push(format!("{} does not point to this run: {error}", link.display()));
                }
            }
        }
        if self.log_dir.is_none() {
            state.temporary.extend(base_made.iter().chain(&made).cloned());
        }
        if state.base.is_none() || !base_made.is_empty() {
            state.base = Some((base, base_made));
        }
        let dest = self.dest(&run.path, &attempt, envs.len());
        state.run = Some(run);
        Ok(dest)
    }

    fn root_log_dir(&self) -> Option<&Path> {
        self.log_dir.as_deref()
    }
}

impl Drop for DefaultLogsSpecs {
    fn drop(&mut self) {
        for path in self.state().temporary.iter().rev() {
            // What describes a run is of no use without it.
            if fs::read_dir(path).is_ok_and(|entries| entries.flatten().all(|entry| entry.file_name() == RUN_INFO)) {
                let _ = fs::remove_file(path.join(RUN_INFO));
            }
            // One that holds a log or an error file is not empty, and stays.
            let _ = fs::remove_dir(path);
        }
    }
}

/// Makes the directory of the first attempt, from `count` on, that is not there yet.
fn first_free(made: &mut Made, run: &Path, count: u64) -> Result<PathBuf, LogsError> {
    let mut count = count;
    loop {
        let path = run.join(format!("attempt_{count}"));
        match made.dir(&path) {
            Err(LogsError::Create { source, .. })
                if source.kind() == io::ErrorKind::AlreadyExists && count < u64::MAX =>
            {
                count += 1;
            }
            done => return done.map(|()| path),
        }
    }
}

/// Removes the attempts that were made here, and what of the run directory is empty then.
fn remove_attempts(run: &Run) -> Result<(), LogsError> {
    for path in &run.attempts {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(LogsError::Remove { path: path.clone(), source: error });
            }
            _ => {}
        }
    }
    let is_left = fs::read_dir(&run.path).is_ok_and(|entries| entries.flatten().any(|e| e.file_name() != RUN_INFO));
    if !is_left {
        // Other nodes may use what is above; then it is not empty, and stays.
        let _ = fs::remove_file(run.path.join(RUN_INFO));
        let _ = fs::remove_dir(&run.path);
        if let Some((log_dir, name)) = run.path.parent().and_then(|of_run| of_run.parent().zip(of_run.file_name()))
            && fs::remove_dir(log_dir.join(name)).is_ok()
        {
            latest::take_back(log_dir, name, run.latest_before.as_deref());
        }
    }
    Ok(())
}

/// How often the group was started before.
fn restart_count(env: &Env) -> Result<u64, LogsError> {
    let Some(value) = env.get(OsStr::new(env::TORCHELASTIC_RESTART_COUNT)) else { return Ok(0) };
    let digits = value.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| LogsError::RestartCount { value: value.to_string_lossy().into_owned() })
}

/// The run id as the name of a directory that nodes share: those of two ids differ, as nothing else keeps their runs apart.
fn shared_name(run_id: Option<&OsStr>) -> String {
    let name = run_id_for_name(run_id);
    match run_id.filter(|id| !id.is_empty()) {
        Some(run_id) if run_id != OsStr::new(&name) || name == LATEST => {
            // FNV-1a, which all builds agree on.
            let hash = run_id
                .as_encoded_bytes()
                .iter()
                .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
            format!("{name}_{hash:08x}")
        }
        _ => name,
    }
}

/// The run id as part of a file name.
fn run_id_for_name(run_id: Option<&OsStr>) -> String {
    let text = run_id.filter(|id| !id.is_empty()).unwrap_or(OsStr::new(DEFAULT_RUN_ID)).to_string_lossy();
    let mut name = String::new();
    for c in text.chars() {
        let hidden = name.is_empty() && c == '.';
        let c = if c == '/' || c.is_control() || hidden { '_' } else { c };
        if name.len() + c.len_utf8() > RUN_ID_MAX {
            break;
        }
        name.push(c);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_run_ids_never_share_a_directory() {
        let name = |id: &str| shared_name(Some(OsStr::new(id)));
        assert_eq!(
            (name("17.0"), name("a_b"), name(""), shared_name(None)),
            ("17.0".into(), "a_b".into(), "none".into(), "none".into())
        );
        // Nodes may run different builds: these must never change.
        assert_eq!((name("a/b").as_str(), name("latest").as_str()), ("a_b_3a8e75c1", "latest_41704246"));
        let long = "x".repeat(RUN_ID_MAX);
        assert_ne!(name(&format!("{long}1")), name(&format!("{long}2")));
        assert_eq!(name(&long), long);
    }

    #[test]
    fn a_run_id_becomes_a_part_of_one_file_name() {
        for (run_id, name) in [
            ("job-7", "job-7"),
            ("", "none"),
            ("..", "_."),
            ("../../etc", "_._.._etc"),
            ("a/b\0c\nd", "a_b_c_d"),
            ("größe", "größe"),
        ] {
            assert_eq!(run_id_for_name(Some(OsStr::new(run_id))), name);
        }
        assert_eq!(run_id_for_name(None), "none");
        let long = "é".repeat(300);
        assert_eq!(run_id_for_name(Some(OsStr::new(&long))), "é".repeat(64));
    }
}
