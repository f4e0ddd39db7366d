//! Signs of life of workers: [`Signs`] looks at their output and heartbeat files. Not here: how long without one is too
//! long (`stall`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rankrun_logs::LogsDest;

/// The name of a worker's heartbeat file, beside its error file.
const HEARTBEAT: &str = "heartbeat";

/// What a look at a file shows; `None` where there is none.
type Look = Option<(u64, Option<SystemTime>)>;

/// The files by which workers show that they live.
#[derive(Debug)]
pub(crate) struct Signs {
    files: Vec<(PathBuf, Look)>,
    heartbeats: Vec<PathBuf>,
    sees_output: bool,
    /// How much came from terminals, which a full disk keeps out of the files.
    moved: u64,
}

impl Signs {
    /// The files of a group that is about to start; output files exist by now.
    pub(crate) fn new(dest: &LogsDest) -> Self {
        let outputs = dest.stdouts.values().iter().chain(dest.stderrs.values()).flatten();
        // A device, such as the null device, does not change.
        let outputs: BTreeSet<PathBuf> = outputs.filter(|path| path.is_file()).cloned().collect();
        let heartbeats: Vec<PathBuf> = dest.error_files.values().iter().map(|path| heartbeat(path)).collect();
        let sees_output = !outputs.is_empty();
        let files = outputs.into_iter().chain(heartbeats.iter().cloned());
        let files = files
            .map(|path| {
                let look = look(&path);
                (path, look)
            })
            .collect();
        Self { files, heartbeats, sees_output, moved: 0 }
    }

    /// Whether any output of the workers can be seen.
    pub(crate) fn sees_output(&self) -> bool {
        self.sees_output
    }

    /// Whether any file has changed since the last look, or how much has `moved` from terminals so far.
    pub(crate) fn look(&mut self, moved: u64) -> bool {
        let mut changed = moved != std::mem::replace(&mut self.moved, moved);
        for (path, before) in &mut self.files {
            let now = look(path);
            // One that goes away is no sign of life.
            changed |= now.is_some() && now != *before;
            *before = now;
        }
        changed
    }

    /// Removes the heartbeat files, of which nobody needs anything after the end.
    pub(crate) fn remove_heartbeats(&self) {
        for path in &self.heartbeats {
            // Few workers have one.
            let _ = fs::remove_file(path);
        }
    }
}

/// The heartbeat file of the worker with this error file.
pub(crate) fn heartbeat(error_file: &Path) -> PathBuf {
    error_file.with_file_name(HEARTBEAT)
}

fn look(path: &Path) -> Look {
    fs::metadata(path).ok().map(|file| (file.len(), file.modified().ok()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rankrun_logs::{DefaultLogsSpecs, Env, LogsSpecs, open_log};
    use rankrun_redirects::{Std, StdSpec};
    use rankrun_types::PerRank;

    use super::*;

    fn dest(dir: &Path, redirects: StdSpec) -> LogsDest {
        let logs = DefaultLogsSpecs::new(Some(dir.to_owned()), redirects, Std::NONE);
        let logs = Arc::new(logs.local_ranks_filter([1].into()));
        let dest = logs.reify(&PerRank::filled(2, Env::new())).unwrap();
        dest.stdouts.values().iter().flatten().for_each(|path| drop(open_log(path).unwrap()));
        dest
    }

    #[test]
    fn output_of_any_rank_and_a_touched_heartbeat_are_signs_of_life() {
        let dir = tempfile::tempdir().unwrap();
        let dest = dest(dir.path(), "1:out".parse().unwrap());
        let mut signs = Signs::new(&dest);
        assert!(signs.sees_output());
        assert!(!signs.look(0));
        fs::write(dest.stdouts[1].as_ref().unwrap(), "step 1\n").unwrap();
        assert!(signs.look(0) && !signs.look(0));
        let heartbeat = heartbeat(&dest.error_files[0]);
        let file = fs::File::create(&heartbeat).unwrap();
        assert!(signs.look(0) && !signs.look(0));
        // A time that was set counts as one that has passed.
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(7)).unwrap();
        assert!(signs.look(0) && !signs.look(0));
        assert!(signs.look(5) && !signs.look(5), "on a full disk");
        signs.remove_heartbeats();
        assert!(!signs.look(5) && !heartbeat.exists());
    }

    #[test]
    fn without_captured_output_there_is_none_to_be_seen() {
        let dir = tempfile::tempdir().unwrap();
        let dest = dest(dir.path(), Std::NONE.into());
        assert_eq!(dest.stdouts[0].as_deref(), Some(Path::new("/dev/null")));
        assert!(!Signs::new(&dest).sees_output());
    }
}
