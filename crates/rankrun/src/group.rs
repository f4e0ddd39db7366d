//! Describing a group comfortably: [`WorkerGroup`], and starting it: [`start_processes`]. Not here: running it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use rankrun_context::{
    Entrypoint, GroupEvent, GroupSpec, GroupSpecError, GroupStatus, PContext, Placement, StallPolicy, StartError,
    StopPolicy,
};
use rankrun_logs::{
    ColorChoice, Consoles, DefaultLogsSpecs, Env, LineFilter, LineFilterError, LogSize, LogsSpecs, PrefixTemplate,
    Progress,
};
use rankrun_process::Orphans;
use rankrun_redirects::{Std, StdSpec};
use rankrun_types::{PerRank, RankMapError, Signal, env};

/// A group of workers to be started by [`start_processes`].
///
/// Whoever has one has a whole one: what a group cannot do without are arguments of [`new`](Self::new). Each worker
/// inherits this program's environment and gets `LOCAL_RANK` and `LOCAL_WORLD_SIZE`; what is set here comes on top.
/// Settings for all ranks and for one can be mixed; of two settings of the same thing the later holds.
///
/// ```
/// use std::time::Duration;
/// use rankrun::{Entrypoint, StdSpec, WorkerGroup};
///
/// let group = WorkerGroup::new("trainer", Entrypoint::binary("python3"), 8)
///     .args(["-u", "train.py"])
///     .args_by_rank(|local_rank| [format!("--shard={local_rank}")])
///     .env("OMP_NUM_THREADS", "4")
///     .redirects("1-7:all".parse::<StdSpec>()?)
///     .log_dir("/var/log/trainer")
///     .grace(Duration::from_secs(10));
/// # drop(group);
/// # Ok::<(), rankrun::ParseStdError>(())
/// ```
pub struct WorkerGroup {
    name: String,
    entrypoint: Entrypoint,
    local_world_size: usize,
    args: PerRank<Vec<OsString>>,
    envs: PerRank<Env>,
    log_dir: Option<PathBuf>,
    redirects: StdSpec,
    tee: StdSpec,
    logs_specs: Option<Arc<dyn LogsSpecs>>,
    log_line_prefixes: Option<PerRank<String>>,
    log_max_size: Option<LogSize>,
    pty: bool,
    log_line_prefix_template: Option<PrefixTemplate>,
    progress: Progress,
    color: ColorChoice,
    status_line: Option<StatusText>,
    duplicate_stdout_filters: Option<Vec<Vec<u8>>>,
    duplicate_stderr_filters: Option<Vec<Vec<u8>>>,
    local_ranks_filter: Option<BTreeSet<usize>>,
    stop_policy: StopPolicy,
    consoles: Option<Consoles>,
    placements: PerRank<Placement>,
    orphans: Orphans,
    guardian: bool,
    control_group: bool,
    stall_policy: Option<StallPolicy>,
    events: Option<Sender<GroupEvent>>,
    error: Option<RankMapError>,
}

/// What [`WorkerGroup::status_line`] was given.
type StatusText = Box<dyn Fn(&GroupStatus) -> String + Send + Sync>;

impl WorkerGroup {
    /// A group of `local_world_size` workers (1 to 65,536) with a role's name.
    pub fn new(name: impl Into<String>, entrypoint: impl Into<Entrypoint>, local_world_size: usize) -> Self {
        // A size that is out of range is refused at the start; no need to make maps of it.
        let ranks = if local_world_size > rankrun_types::MAX_LOCAL_RANK + 1 { 0 } else { local_world_size };
        Self {
            name: name.into(),
            entrypoint: entrypoint.into(),
            local_world_size,
            args: PerRank::filled(ranks, Vec::new()),
            envs: PerRank::from_fn(ranks, |local_rank| {
                Env::from([
                    (env::LOCAL_RANK.into(), local_rank.to_string().into()),
                    (env::LOCAL_WORLD_SIZE.into(), local_world_size.to_string().into()),
                ])
            }),
            log_dir: None,
            redirects: Std::NONE.into(),
            tee: Std::NONE.into(),
            logs_specs: None,
            log_line_prefixes: None,
            log_max_size: None,
            pty: false,
            log_line_prefix_template: None,
            progress: Progress::default(),
            color: ColorChoice::default(),
            status_line: None,
            duplicate_stdout_filters: None,
            duplicate_stderr_filters: None,
            local_ranks_filter: None,
            stop_policy: StopPolicy::default(),
            consoles: None,
            placements: PerRank::filled(ranks, Placement::default()),
            orphans: Orphans::Leave,
            guardian: false,
            control_group: false,
            stall_policy: None,
            events: None,
            error: None,
        }
    }

    /// Adds arguments for every worker.
    #[must_use]
    pub fn args(self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
        self.args_by_rank(|_| args.clone())
    }

    /// Adds arguments for each worker, made from its local rank.
    #[must_use]
    pub fn args_by_rank<I>(mut self, mut make: impl FnMut(usize) -> I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        for (local_rank, args) in self.args.iter_mut() {
            args.extend(make(local_rank).into_iter().map(Into::into));
        }
        self
    }

    /// Replaces the arguments by those of a map from outside, which must name each rank and no other.
    ///
    /// A map that does not is refused by [`start_processes`].
    #[must_use]
    pub fn args_map(mut self, args: BTreeMap<usize, Vec<OsString>>) -> Self {
        match PerRank::from_map("args", args, self.local_world_size) {
            Ok(args) => self.args = args,
            Err(error) => self.error = self.error.or(Some(error)),
        }
        self
    }

    /// Sets an environment variable of every worker.
    #[must_use]
    pub fn env(self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        let (name, value) = (name.into(), value.into());
        self.envs_by_rank(|_| [(name.clone(), value.clone())])
    }

    /// Sets environment variables of each worker, made from its local rank.
    #[must_use]
    pub fn envs_by_rank<I, K, V>(mut self, mut make: impl FnMut(usize) -> I) -> Self
    where
        I: IntoIterator<Item = (K, V)>,
        K: Into<OsString>,
        V: Into<OsString>,
    {
        for (local_rank, envs) in self.envs.iter_mut() {
            envs.extend(make(local_rank).into_iter().map(|(name, value)| (name.into(), value.into())));
        }
        self
    }

    /// Sets environment variables from a map from outside, which must name each rank and no other.
    ///
    /// A map that does not is refused by [`start_processes`].
    #[must_use]
    pub fn envs_map(mut self, envs: BTreeMap<usize, Env>) -> Self {
        match PerRank::from_map("envs", envs, self.local_world_size) {
            Ok(mut envs) => self.envs_by_rank(|local_rank| std::mem::take(&mut envs[local_rank])),
            Err(error) => {
                self.error = self.error.or(Some(error));
                self
            }
        }
    }

    /// Sets which streams go to files instead of to where this program writes; none unless set.
    #[must_use]
    pub fn redirects(mut self, redirects: impl Into<StdSpec>) -> Self {
        self.redirects = redirects.into();
        self
    }

    /// Sets which streams go to files and are shown here too, line by line with a prefix; none unless set.
    #[must_use]
    pub fn tee(mut self, tee: impl Into<StdSpec>) -> Self {
        self.tee = tee.into();
        self
    }

    /// Sets the directory in which the run gets a directory of its own; a private temporary one unless set.
    #[must_use]
    pub fn log_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.log_dir = Some(dir.into());
        self
    }

    /// Sets where logs go altogether; then `redirects`, `tee`, `log_dir` and `local_ranks_filter` mean nothing.
    #[must_use]
    pub fn logs_specs(mut self, logs_specs: Arc<dyn LogsSpecs>) -> Self {
        self.logs_specs = Some(logs_specs);
        self
    }

    /// Sets what stands before each teed line of a worker, made from its local rank; `[<name><local_rank>]:` unless set.
    #[must_use]
    pub fn log_line_prefixes(mut self, make: impl FnMut(usize) -> String) -> Self {
        self.log_line_prefixes = Some(PerRank::from_fn(self.args.len(), make));
        self
    }

    /// Sets how large each log file may become, its end being kept; as large as it will unless set.
    ///
    /// See [`LogLimiter`](rankrun_logs::LogLimiter) for how.
    #[must_use]
    pub fn log_max_size(mut self, size: LogSize) -> Self {
        self.log_max_size = Some(size);
        self
    }

    /// Sets whether workers get a pseudo-terminal for each stream that is redirected or teed; not unless set.
    ///
    /// See [`GroupSpec::pty`].
    #[must_use]
    pub fn pty(mut self, pty: bool) -> Self {
        self.pty = pty;
        self
    }

    /// Sets the template for what stands before each teed line, unless `log_line_prefixes` say it.
    ///
    /// ```
    /// use rankrun::{Entrypoint, PrefixTemplate, WorkerGroup};
    ///
    /// let template: PrefixTemplate = "${hostname} ${role_name}-${rank} ${time}: ".parse()?;
    /// let group = WorkerGroup::new("trainer", Entrypoint::binary("true"), 2).log_line_prefix_template(template);
    /// # drop(group);
    /// # Ok::<(), rankrun::ParsePrefixError>(())
    /// ```
    #[must_use]
    pub fn log_line_prefix_template(mut self, template: PrefixTemplate) -> Self {
        self.log_line_prefix_template = Some(template);
        self
    }

    /// Sets what becomes of progress bars in teed lines; [`Progress::Latest`] unless set.
    #[must_use]
    pub fn progress(mut self, progress: Progress) -> Self {
        self.progress = progress;
        self
    }

    /// Sets whether prefixes of teed lines have a colour for each rank; [`ColorChoice::Never`] unless set.
    #[must_use]
    pub fn color(mut self, color: ColorChoice) -> Self {
        self.color = color;
        self
    }

    /// Appends each line of all teed stdouts that contains any of these texts to `filtered_stdout.log`, with its prefix.
    ///
    /// An empty list or text is refused by [`start_processes`].
    #[must_use]
    pub fn duplicate_stdout_filters(mut self, filters: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        self.duplicate_stdout_filters = Some(filters.into_iter().map(|text| text.as_ref().to_vec()).collect());
        self
    }

    /// Appends each line of all teed stderrs that contains any of these texts to `filtered_stderr.log`, with its prefix.
    ///
    /// An empty list or text is refused by [`start_processes`].
    #[must_use]
    pub fn duplicate_stderr_filters(mut self, filters: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        self.duplicate_stderr_filters = Some(filters.into_iter().map(|text| text.as_ref().to_vec()).collect());
        self
    }

    /// Shows the output of these local ranks only; log files are complete for every rank.
    ///
    /// See [`DefaultLogsSpecs::local_ranks_filter`].
    #[must_use]
    pub fn local_ranks_filter(mut self, local_ranks: impl IntoIterator<Item = usize>) -> Self {
        self.local_ranks_filter = Some(local_ranks.into_iter().collect());
        self
    }

    /// Sets where and under which limits each worker runs, made from its local rank.
    #[must_use]
    pub fn placements(mut self, make: impl FnMut(usize) -> Placement) -> Self {
        self.placements = PerRank::from_fn(self.args.len(), make);
        self
    }

    /// Sets the working directory of every worker; this program's unless set.
    #[must_use]
    pub fn current_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        for (_, placement) in self.placements.iter_mut() {
            placement.current_dir = Some(dir.clone());
        }
        self
    }

    /// Sets where teed lines go; copies of this program's standard output and error unless set.
    #[must_use]
    pub fn consoles(mut self, consoles: Consoles) -> Self {
        self.consoles = Some(consoles);
        self
    }

    /// Sets the first signal of a stop; SIGTERM unless set.
    #[must_use]
    pub fn death_signal(mut self, signal: Signal) -> Self {
        self.stop_policy.death_signal = signal;
        self
    }

    /// Sets how long the group has from the death signal to SIGKILL; 30 s unless set.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.stop_policy.grace = grace;
        self
    }

    /// Sets how long after the first failure nothing is sent, so that workers that are failing too can say why; 50 ms
    /// unless set, 0 for none.
    #[must_use]
    pub fn settle_time(mut self, settle_time: Duration) -> Self {
        self.stop_policy.settle_time = settle_time;
        self
    }

    /// Sets after how long without a sign of life the group counts as stalled, which is a failure; never unless set.
    ///
    /// See [`GroupSpec::stall_policy`].
    #[must_use]
    pub fn stall_policy(mut self, policy: StallPolicy) -> Self {
        self.stall_policy = Some(policy);
        self
    }

    /// Sets a text that a terminal shows below all lines while the group runs; none unless set.
    ///
    /// See [`GroupSpec::status_line`].
    ///
    /// ```
    /// use rankrun::{Entrypoint, Std, WorkerGroup, start_processes};
    ///
    /// let group = WorkerGroup::new("trainer", Entrypoint::binary("true"), 2)
    ///     .tee(Std::ALL)
    ///     .status_line(|status| format!("{} of {} run", status.running, status.workers));
    /// assert!(!start_processes(group)?.wait(None)?.expect("no timeout").is_failed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn status_line(mut self, text: impl Fn(&GroupStatus) -> String + Send + Sync + 'static) -> Self {
        self.status_line = Some(Box::new(text));
        self
    }

    /// Sets where what happens to the group is told as it happens; nowhere unless set.
    ///
    /// The channel ends when the group has ended; sending to it never blocks the group.
    ///
    /// ```
    /// use rankrun::{Entrypoint, GroupEventKind, RunState, WorkerGroup, start_processes};
    ///
    /// let (sender, events) = std::sync::mpsc::channel();
    /// let group = WorkerGroup::new("trainer", Entrypoint::binary("true"), 2).events(sender);
    /// let _context = start_processes(group)?;
    /// let told: Vec<_> = events.iter().map(|event| event.kind).collect();
    /// assert!(matches!(told[0], GroupEventKind::Started { local_rank: 0, .. }));
    /// assert_eq!(told.last(), Some(&GroupEventKind::Ended { state: RunState::Succeeded }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn events(mut self, events: Sender<GroupEvent>) -> Self {
        self.events = Some(events);
        self
    }

    /// Sets all of how the group is stopped.
    #[must_use]
    pub fn stop_policy(mut self, policy: StopPolicy) -> Self {
        self.stop_policy = policy;
        self
    }

    /// Sets whether orphans among the workers' descendants come to this program; [`Orphans::Leave`] unless set.
    ///
    /// See [`GroupSpec::orphans`] for what else that means.
    #[must_use]
    pub fn orphans(mut self, orphans: Orphans) -> Self {
        self.orphans = orphans;
        self
    }

    /// Sets whether a small process ends what workers started if this program is killed; not unless set.
    ///
    /// See [`GroupSpec::guardian`].
    #[must_use]
    pub fn guardian(mut self, guardian: bool) -> Self {
        self.guardian = guardian;
        self
    }

    /// Sets whether the workers get a control group of their own, where one can be made; not unless set.
    ///
    /// See [`GroupSpec::control_group`].
    #[must_use]
    pub fn control_group(mut self, control_group: bool) -> Self {
        self.control_group = control_group;
        self
    }

    /// Checks the whole and turns it into what a [`PContext`] takes.
    ///
    /// # Errors
    /// [`StartProcessesError`], but not [`StartProcessesError::Start`].
    pub fn into_spec(self) -> Result<GroupSpec, StartProcessesError> {
        if let Some(error) = self.error {
            return Err(error.into());
        }
        if self.local_world_size != self.args.len() {
            let (name, got) = (self.name, self.local_world_size);
            return Err(GroupSpecError::TooManyWorkers { name, got }.into());
        }
        let logs_specs = self.logs_specs.unwrap_or_else(|| {
            let specs = DefaultLogsSpecs::new(self.log_dir, self.redirects, self.tee);
            Arc::new(match self.local_ranks_filter {
                Some(local_ranks) => specs.local_ranks_filter(local_ranks),
                None => specs,
            })
        });
        let spec = GroupSpec::new(self.name, self.entrypoint, self.args, self.envs, logs_specs)?;
        let spec = spec.stop_policy(self.stop_policy).orphans(self.orphans).guardian(self.guardian).pty(self.pty);
        let spec = spec.control_group(self.control_group);
        let spec = spec.placements(self.placements)?;
        let spec = match self.stall_policy {
            Some(policy) => spec.stall_policy(policy),
            None => spec,
        };
        let spec = match self.events {
            Some(events) => spec.events(events),
            None => spec,
        };
        let spec = match self.log_max_size {
            Some(size) => spec.log_max_size(size),
            None => spec,
        };
        let mut spec = spec.progress(self.progress).color(self.color);
        if let Some(text) = self.status_line {
            spec = spec.status_line(text);
        }
        if let Some(template) = self.log_line_prefix_template {
            spec = spec.log_line_prefix_template(template);
        }
        let filter = |what, texts| {
            LineFilter::new::<Vec<u8>>(texts).map_err(|source| StartProcessesError::Filters { what, source })
        };
        if let Some(texts) = self.duplicate_stdout_filters {
            spec = spec.duplicate_stdout_filters(filter("duplicate_stdout_filters", texts)?);
        }
        if let Some(texts) = self.duplicate_stderr_filters {
            spec = spec.duplicate_stderr_filters(filter("duplicate_stderr_filters", texts)?);
        }
        let spec = match self.log_line_prefixes {
            Some(prefixes) => spec.log_line_prefixes(prefixes)?,
            None => spec,
        };
        Ok(match self.consoles {
            Some(consoles) => spec.consoles(consoles),
            None => spec,
        })
    }
}

impl std::fmt::Debug for WorkerGroup {
    /// Names the group and its size; environments, which may hold secrets, are left out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerGroup")
            .field("name", &self.name)
            .field("entrypoint", &self.entrypoint)
            .field("local_world_size", &self.local_world_size)
            .finish_non_exhaustive()
    }
}

/// A group could not be started; nothing of it is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartProcessesError {
    /// A map from outside does not name each rank.
    #[error(transparent)]
    RankMap(#[from] RankMapError),
    /// The group cannot be as described.
    #[error(transparent)]
    Group(#[from] GroupSpecError),
    /// A list of filters has nothing to look for.
    #[error("{what}: {source}")]
    Filters {
        /// `duplicate_stdout_filters` or `duplicate_stderr_filters`.
        what: &'static str,
        /// What is wrong with it.
        source: LineFilterError,
    },
    /// A worker, or what the group needs, could not be started.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Starts a group of workers and returns the handle to it. Mirrors `start_processes`.
///
/// All or nothing; returns when each worker runs its program, after about half a millisecond a worker.
///
/// # Errors
/// [`StartProcessesError`]; no worker is left then.
///
/// ```
/// use rankrun::{Entrypoint, WorkerGroup, start_processes};
///
/// let error = start_processes(WorkerGroup::new("trainer", Entrypoint::binary("/no/such/program"), 4)).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "local rank 0: cannot start `/no/such/program`: exec: No such file or directory (os error 2)"
/// );
/// ```
pub fn start_processes(group: WorkerGroup) -> Result<PContext, StartProcessesError> {
    let mut context = PContext::new(group.into_spec()?)?;
    context.start()?;
    Ok(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(local_world_size: usize) -> WorkerGroup {
        WorkerGroup::new("trainer", Entrypoint::binary("true"), local_world_size)
    }

    fn refusal(group: WorkerGroup) -> String {
        group.into_spec().unwrap_err().to_string()
    }

    #[test]
    fn a_group_of_no_or_too_many_workers_is_refused() {
        assert_eq!(refusal(group(0)), "group `trainer` has no workers: expected 1 to 65536 of them");
        assert_eq!(
            refusal(group(usize::MAX)),
            format!("group `trainer` has {} workers: expected 1 to 65536 of them", usize::MAX)
        );
    }

    #[test]
    fn a_map_that_lacks_a_rank_is_refused_with_both_key_sets() {
        let args = BTreeMap::from([(0, Vec::new()), (2, Vec::new())]);
        assert_eq!(
            refusal(group(2).args_map(args)),
            "args: local rank mapping is not full: expected ranks 0-1, got 0,2"
        );
        let envs = BTreeMap::from([(1, Env::new())]);
        assert_eq!(refusal(group(2).envs_map(envs)), "envs: local rank mapping is not full: expected ranks 0-1, got 1");
    }

    #[test]
    fn filters_that_match_nothing_or_everything_are_refused() {
        assert_eq!(
            refusal(group(1).duplicate_stdout_filters([""; 0])),
            "duplicate_stdout_filters: the list of filters is empty: expected one or more texts"
        );
        assert_eq!(
            refusal(group(1).duplicate_stderr_filters(["loss", ""])),
            "duplicate_stderr_filters: filter 1 is empty and would match every line: expected a text"
        );
    }
}
