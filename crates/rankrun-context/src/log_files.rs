//! The log files of a group that runs: made, described, kept at their size, looked at in the end: [`LogFiles`]. Not here:
//! what is in them (the workers), showing it (`rankrun_logs::Tail`).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rankrun_logs::{
    HealthWatch, LogHealth, LogLimiter, LogsDest, LogsError, RunInfo, RunMark, TailPositions, Unsaved, open_log,
};
use rankrun_types::env;

use crate::spec::GroupSpec;
use crate::tee::line_prefixes;

/// The files while the group runs.
#[derive(Debug)]
pub(crate) struct LogFiles {
    /// Says that the run goes on, until it is dropped.
    _mark: Option<RunMark>,
    limiter: Option<LogLimiter>,
    health: LogHealth,
    /// Where no tail looks after them.
    health_watch: Option<HealthWatch>,
    /// What the files of terminals did not take.
    unsaved: Option<Unsaved>,
    warnings: Vec<String>,
}

impl LogFiles {
    /// Describes the run, whose files are there, and begins to limit their sizes.
    pub(crate) fn start(
        spec: &GroupSpec,
        dest: &LogsDest,
        positions: Option<TailPositions>,
        health: LogHealth,
        unsaved: Option<Unsaved>,
    ) -> Result<Self, LogsError> {
        let paths = paths(dest);
        let mut warnings = Vec::new();
        let mark = dest.run_info.as_deref().and_then(|path| {
            // Without it the logs are as good: on a full disk, for example.
            info(spec, dest).publish(path).map_err(|error| warnings.push(error.to_string())).ok()
        });
        let captured: Vec<PathBuf> = paths.iter().copied().cloned().collect();
        let followed = positions.is_some();
        let limiter = match spec.log_max_size {
            Some(max) if !paths.is_empty() => {
                // The tail has made those of chosen lines that there are.
                let chosen = [&dest.filtered_stdout, &dest.filtered_stderr].into_iter().flatten();
                let paths = paths.into_iter().chain(chosen.filter(|path| path.is_file())).cloned();
                let limiter = LogLimiter::start(paths.collect(), max, positions)?;
                Some(match unsaved.clone() {
                    Some(unsaved) => limiter.with_unsaved(unsaved),
                    None => limiter,
                })
            }
            _ => None,
        };
        let health_watch = match followed || captured.is_empty() {
            true => None,
            false => Some(HealthWatch::start(health.clone(), captured)?),
        };
        Ok(Self { _mark: mark, limiter, health, health_watch, unsaved, warnings })
    }

    /// Cuts what is too long, until `deadline` at most, and says what is wrong with the files.
    pub(crate) fn finish(&mut self, deadline: Instant) -> Vec<String> {
        let mut warnings = std::mem::take(&mut self.warnings);
        if let Some(limiter) = self.limiter.take() {
            warnings.extend(limiter.finish(deadline));
        }
        if let Some(missing) = self.unsaved.as_ref().and_then(Unsaved::save) {
            self.health.add(&missing);
        }
        self.health_watch = None;
        warnings.extend(self.health.look());
        warnings
    }

    /// Whether anything was said against the files being complete.
    pub(crate) fn are_in_doubt(&self) -> bool {
        self.health.said().is_some()
    }
}

/// Makes a group's files, so that who follows the run finds them all, and gives their health; its directory is that of the run.
pub(crate) fn make(dest: &LogsDest) -> Result<LogHealth, LogsError> {
    let mut files = Vec::new();
    for path in paths(dest) {
        // The null device may be one, and is not looked after.
        if open_log(path)?.metadata().is_ok_and(|meta| meta.is_file()) {
            files.push(path.clone());
        }
    }
    let within = dest.run_info.as_ref().or(dest.error_files.get(0));
    Ok(LogHealth::with_files(within.and_then(|path| path.parent()).unwrap_or(Path::new("/")), files))
}

fn paths(dest: &LogsDest) -> BTreeSet<&PathBuf> {
    dest.stdouts.values().iter().chain(dest.stderrs.values()).flatten().collect()
}

fn info(spec: &GroupSpec, dest: &LogsDest) -> RunInfo {
    let run_id = spec.envs[0].get(OsStr::new(env::TORCHELASTIC_RUN_ID)).filter(|id| !id.is_empty());
    let run_id = run_id.map_or(rankrun_logs::DEFAULT_RUN_ID.into(), |id| id.to_string_lossy());
    RunInfo::new(run_id, &spec.name, spec.local_world_size())
        .with_line_prefixes(line_prefixes(spec))
        .with_attempt(dest.attempt())
}
