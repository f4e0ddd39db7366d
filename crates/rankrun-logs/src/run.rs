//! Finding and reading the log files of a run, while it goes on or afterwards: [`Run`]. Not here: making them
//! (`default_specs`), following them (`run_tail`).

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rankrun_types::escape_os_str;

use crate::error::LogsError;
use crate::latest::LATEST;
use crate::lines::Shape;
use crate::reader::{LogReader, buffer};
use crate::run_info::{self, RUN_INFO, RunInfo};
use crate::tail::SinkId;

/// What is said where one run was asked for.
const SEVERAL: &str =
    "expected the directory of one node, such as node_0 in the run's, not several nodes' parts of a run";

/// The directory of a run in the layout of [`DefaultLogsSpecs`](crate::DefaultLogsSpecs).
///
/// ```
/// use rankrun_logs::{DefaultLogsSpecs, Env, LogsSpecs, Run, RunInfo};
/// use rankrun_redirects::Std;
/// use rankrun_types::PerRank;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let dir = tempfile::tempdir()?;
/// let specs = DefaultLogsSpecs::new(Some(dir.path().into()), Std::OUT, Std::NONE);
/// let dest = specs.reify(&PerRank::filled(2, Env::new()))?;
/// let mark = RunInfo::new("none", "trainer", 2).publish(dest.run_info.as_ref().expect("it has one"))?;
/// std::fs::write(dest.stdouts[1].as_ref().expect("redirected"), "hello\n")?;
///
/// let run = Run::open(dir.path())?; // its newest run
/// assert!(run.goes_on());
/// let mut text = Vec::new();
/// for log in run.logs()? {
///     log.write_lines(run.line_prefix(log.local_rank, log.stream).as_bytes(), &mut text)?;
/// }
/// assert_eq!(text, b"[trainer1]:hello\n");
/// drop(mark);
/// assert!(!run.goes_on());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Run {
    dir: PathBuf,
    node: Option<usize>,
    info: Option<RunInfo>,
}

/// What the launcher of a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunPhase {
    /// An attempt goes on: the last one there is.
    Attempt,
    /// It prepares an attempt, or waits before the next one: the files of [`RunInfo::attempt`] and before have all that
    /// they will; later ones are being made.
    Between,
    /// It has ended.
    Over,
}

/// One log file of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunLog {
    /// How often the group had been started before.
    pub attempt: u64,
    /// Whose output it is.
    pub local_rank: usize,
    /// Which stream.
    pub stream: SinkId,
    /// The file.
    pub path: PathBuf,
    /// When it was last written to.
    pub modified: SystemTime,
}

/// Lines could not be taken from a file to where they were to go.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteLinesError {
    /// The file could not be read.
    #[error(transparent)]
    Read(#[from] LogsError),
    /// They could not be written.
    #[error("cannot write lines of {}: {source}", escape_os_str(path.as_os_str()))]
    Write {
        /// The file they are from.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Run {
    /// Takes a run directory, or a log directory: then its newest run, which `latest` points to; where that is missing,
    /// the run that was started last of those that may be read.
    ///
    /// A run that several nodes share is not one of these but several, see [`open_nodes`](Self::open_nodes).
    ///
    /// # Errors
    /// [`LogsError::NoRun`] if it is neither; [`LogsError::Read`] if it cannot be looked at.
    pub fn open(dir: &Path) -> Result<Self, LogsError> {
        let mut nodes = Self::open_nodes(dir)?;
        match nodes.pop() {
            Some(run) if nodes.is_empty() => Ok(run),
            _ => Err(LogsError::NoRun { path: dir.to_owned(), what: SEVERAL }),
        }
    }

    /// Takes what [`open`](Self::open) takes, and the directory that the nodes of a job share: then the part of each, in
    /// their order. Never empty.
    ///
    /// ```
    /// use rankrun_logs::{DefaultLogsSpecs, Env, LogsSpecs, Run};
    /// use rankrun_redirects::Std;
    /// use rankrun_types::PerRank;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let dir = tempfile::tempdir()?;
    /// for node in [1, 0] {
    ///     let specs = DefaultLogsSpecs::new(Some(dir.path().into()), Std::OUT, Std::NONE).node(node);
    ///     specs.reify(&PerRank::filled(2, Env::new()))?;
    /// }
    /// let nodes: Vec<_> = Run::open_nodes(dir.path())?.iter().map(Run::node).collect();
    /// assert_eq!(nodes, [Some(0), Some(1)]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`LogsError::NoRun`] if it is none of these; [`LogsError::Read`] if it cannot be looked at.
    pub fn open_nodes(dir: &Path) -> Result<Vec<Self>, LogsError> {
        let no_run = |what| LogsError::NoRun { path: dir.to_owned(), what };
        match fs::metadata(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(no_run("no such directory")),
            Err(source) => return Err(LogsError::Read { path: dir.to_owned(), source }),
            Ok(meta) if !meta.is_dir() => return Err(no_run("not a directory")),
            Ok(_) => {}
        }
        let found = parts(dir)?;
        if !found.is_empty() {
            return Ok(found);
        }
        // A link to nowhere counts for nothing; another run is not taken for one that may not be read.
        if let Ok(latest) = fs::read_link(dir.join(LATEST)) {
            match parts(&dir.join(latest)) {
                Ok(latest) if !latest.is_empty() => return Ok(latest),
                Err(error) if is_denied(&error) => return Err(error),
                _ => {}
            }
        }
        let (mut runs, mut denied) = (Vec::new(), None);
        for path in entries(dir)? {
            match parts(&path) {
                Ok(run) if !run.is_empty() => runs.push(run),
                Err(error) if is_denied(&error) => denied = denied.or(Some(error)),
                _ => {}
            }
        }
        let newest = runs.into_iter().max_by_key(|run| run.iter().map(Self::started).max());
        newest.ok_or_else(|| denied.unwrap_or_else(|| no_run("neither a run's directory nor one with runs in it")))
    }

    fn at(dir: PathBuf) -> Self {
        let info = RunInfo::read(&dir.join(RUN_INFO)).ok();
        let node = node_of(&dir);
        Self { dir, node, info }
    }

    /// Which node's part of a job it is, from 0; `None` for a run of one host.
    #[must_use]
    pub fn node(&self) -> Option<usize> {
        self.node
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What its `run.json` says; `None` where there is none that can be read.
    #[must_use]
    pub fn info(&self) -> Option<&RunInfo> {
        self.info.as_ref()
    }

    /// When it was started, or its directory last changed where that is not known.
    fn started(&self) -> SystemTime {
        let changed = || fs::metadata(&self.dir).and_then(|meta| meta.modified());
        self.info.as_ref().map_or_else(|| changed().unwrap_or(SystemTime::UNIX_EPOCH), |info| info.started)
    }

    /// What stands before each line of a worker's stream: what the run says, see [`RunInfo::line_prefixes`], or
    /// [`line_prefix`](crate::line_prefix) of its role; `default` is the role of a run that says nothing.
    #[must_use]
    pub fn line_prefix(&self, local_rank: usize, stream: SinkId) -> String {
        let own = self.info.as_ref().and_then(|info| info.line_prefixes.get(local_rank));
        if let Some([stdout, stderr]) = own {
            return if stream == SinkId::Stdout { stdout.clone() } else { stderr.clone() };
        }
        crate::line_prefix(self.info.as_ref().map_or("default", |info| &info.role), local_rank)
    }

    /// Its log files: by attempt, then by rank, each rank's stdout before its stderr.
    ///
    /// # Errors
    /// [`LogsError::Read`] if a directory cannot be read; see [`readable_logs`](Self::readable_logs) for the rest.
    pub fn logs(&self) -> Result<Vec<RunLog>, LogsError> {
        let (logs, errors) = self.readable_logs();
        errors.into_iter().next().map_or(Ok(logs), Err)
    }

    /// As [`logs`](Self::logs), of the directories that can be read; with one [`LogsError::Read`] for each that cannot.
    #[must_use]
    pub fn readable_logs(&self) -> (Vec<RunLog>, Vec<LogsError>) {
        let (mut logs, mut errors) = (Vec::new(), Vec::new());
        let mut of = |dir: &Path| {
            entries(dir).unwrap_or_else(|error| {
                errors.push(error);
                Vec::new()
            })
        };
        let mut ranks = Vec::new();
        for directory in of(&self.dir) {
            let Some(attempt) = attempt_of(&directory) else { continue };
            for rank in of(&directory) {
                let Some(local_rank) = name_of(&rank).and_then(number) else { continue };
                let Ok(local_rank) = usize::try_from(local_rank) else { continue };
                ranks.push((attempt, local_rank, rank));
            }
        }
        for (attempt, local_rank, rank) in ranks {
            for (stream, name) in [(SinkId::Stdout, "stdout.log"), (SinkId::Stderr, "stderr.log")] {
                let path = rank.join(name);
                match fs::metadata(&path) {
                    Ok(meta) if meta.is_file() => {
                        let modified = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                        logs.push(RunLog { attempt, local_rank, stream, path, modified });
                    }
                    // Whoever may not look into a directory does not learn whether there is one.
                    Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                        errors.push(LogsError::Read { path: rank, source });
                        break;
                    }
                    _ => {}
                }
            }
        }
        logs.sort_by_key(|log| (log.attempt, log.local_rank, log.stream));
        (logs, errors)
    }

    /// The number of its last attempt, which has a directory; `None` where there is none that can be read.
    #[must_use]
    pub fn last_attempt(&self) -> Option<u64> {
        entries(&self.dir).ok()?.iter().filter_map(|path| attempt_of(path)).max()
    }

    /// Whether its launcher still runs: it holds `run.json` while an attempt goes on, and may hold the directory in
    /// between ([`DefaultLogsSpecs::hold_run`](crate::DefaultLogsSpecs::hold_run)).
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.phase() != RunPhase::Over
    }

    /// What its launcher does now.
    #[must_use]
    pub fn phase(&self) -> RunPhase {
        // In this order: one that goes from an attempt to the next is not over.
        let held = run_info::is_held(&self.dir);
        match run_info::is_held(&self.dir.join(RUN_INFO)) {
            true => RunPhase::Attempt,
            false if held => RunPhase::Between,
            false => RunPhase::Over,
        }
    }

    /// Waits until the attempt that goes on now has ended, or its launcher. Blocks without a limit.
    ///
    /// # Errors
    /// [`LogsError::RunInfo`] if there is no `run.json` or it cannot be locked.
    pub fn wait_for_end(&self) -> Result<(), LogsError> {
        run_info::wait_for_end(&self.dir.join(RUN_INFO))
    }
}

impl RunLog {
    /// Writes the lines that the file has now, whole and with a prefix, as the tail engine shows them. May block.
    ///
    /// Of a progress bar the last state is shown, and colours end with their line. Where bytes were freed (see
    /// [`LogLimiter`](crate::LogLimiter)) a line says how many are missing, and the next one is whole. What a worker goes on
    /// writing in the meantime is not waited for.
    ///
    /// # Errors
    /// [`WriteLinesError`]; lines before the fault are written.
    pub fn write_lines(&self, prefix: &[u8], out: &mut impl Write) -> Result<(), WriteLinesError> {
        let unreadable = |source| LogsError::Read { path: self.path.clone(), source };
        let unwritable = |source| WriteLinesError::Write { path: self.path.clone(), source };
        let mut reader = LogReader::open(&self.path, Shape::of_console()).map_err(unreadable)?;
        // It may go on growing: not beyond what it has at first.
        let length = reader.length().map_err(unreadable)?;
        let (mut buffer, mut lines) = (buffer(), Vec::new());
        while reader.read(length, &mut buffer, prefix, &mut lines).map_err(unreadable)? {
            out.write_all(&lines).map_err(unwritable)?;
            lines.clear();
        }
        reader.lines().finish(prefix, &mut lines);
        out.write_all(&lines).map_err(unwritable)
    }
}

/// The run that a directory is, or the parts of its nodes; none if it is neither.
fn parts(dir: &Path) -> Result<Vec<Run>, LogsError> {
    if is_run(dir)? {
        return Ok(vec![Run::at(dir.to_owned())]);
    }
    let (mut nodes, mut denied) = (Vec::new(), Vec::new());
    for path in entries(dir)?.into_iter().filter(|path| node_of(path).is_some()) {
        match is_run(&path) {
            Ok(true) => nodes.push(Run::at(path)),
            Ok(false) => {}
            Err(error) if is_denied(&error) => denied.push((path, error)),
            Err(error) => return Err(error),
        }
    }
    // A node that may not be read is there, and what is read of it says why there is nothing.
    if !nodes.is_empty() {
        nodes.extend(denied.into_iter().map(|(path, _)| Run::at(path)));
    } else if let Some((_, error)) = denied.into_iter().next() {
        return Err(error);
    }
    nodes.sort_by_key(Run::node);
    Ok(nodes)
}

fn is_denied(error: &LogsError) -> bool {
    matches!(error, LogsError::Read { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
}

fn node_of(path: &Path) -> Option<usize> {
    number(name_of(path)?.strip_prefix("node_")?)?.try_into().ok()
}

fn is_run(dir: &Path) -> Result<bool, LogsError> {
    Ok(dir.join(RUN_INFO).is_file() || entries(dir)?.iter().any(|path| attempt_of(path).is_some()))
}

pub(crate) fn attempt_of(path: &Path) -> Option<u64> {
    name_of(path)?.strip_prefix("attempt_").and_then(number)
}

fn name_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// A number as we write them: nothing but digits.
fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number: &u64| number.to_string() == text)
}

/// The directories in a directory; links are not followed, so that `latest` does not count twice.
fn entries(dir: &Path) -> Result<Vec<PathBuf>, LogsError> {
    let failed = |source| LogsError::Read { path: dir.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.push(entry.path());
        }
    }
    Ok(found)
}
