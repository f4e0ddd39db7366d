//! What a group is to run: [`GroupSpec`]. Not here: running it (`context`), or building one comfortably (`rankrun`).

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use rankrun_functions::{Callable, Function, FunctionCall};
use rankrun_logs::{ColorChoice, Consoles, Env, LineFilter, LogSize, LogsSpecs, PrefixTemplate, Progress};
use rankrun_process::Orphans;
use rankrun_types::{MAX_LOCAL_RANK, PerRank};

use crate::events::GroupEvent;
use crate::placement::Placement;
use crate::policy::{StallPolicy, StopPolicy};
use crate::status::{GroupStatus, StatusLine};

/// What each worker of a group runs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Entrypoint {
    /// A program by path, or by name: then looked up in the `PATH` that the workers get.
    Binary(OsString),
    /// A function of this program, which is executed again for each worker.
    Function(FunctionCall),
}

impl From<FunctionCall> for Entrypoint {
    fn from(call: FunctionCall) -> Self {
        Self::Function(call)
    }
}

impl Entrypoint {
    /// A program by path or name.
    pub fn binary(program: impl Into<OsString>) -> Self {
        Self::Binary(program.into())
    }

    /// A function that is registered with [`entrypoint!`](rankrun_functions::entrypoint), for which the arguments follow:
    /// [`with`](Callable::with) or [`by_rank`](Callable::by_rank).
    ///
    /// The arguments of the command line that a group has are those of the worker's process.
    pub fn function<M, F: Function<M>>(function: F) -> Callable<F::Arguments> {
        rankrun_functions::callable(function)
    }
}

/// A group cannot be as described.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupSpecError {
    /// There is no worker.
    #[error("group `{name}` has no workers: expected 1 to {} of them", MAX_LOCAL_RANK + 1)]
    NoWorkers {
        /// The group's name.
        name: String,
    },
    /// There are more workers than a host can have.
    #[error("group `{name}` has {got} workers: expected 1 to {} of them", MAX_LOCAL_RANK + 1)]
    TooManyWorkers {
        /// The group's name.
        name: String,
        /// How many it was given.
        got: usize,
    },
    /// Two maps disagree about how many ranks there are.
    #[error("group `{name}`: {what} has {got} local ranks, expected {expected} as args has")]
    RankCount {
        /// The group's name.
        name: String,
        /// `envs`, `log_line_prefixes` or `placements`.
        what: &'static str,
        /// How many ranks it has.
        got: usize,
        /// How many the arguments have.
        expected: usize,
    },
}

/// A group, fully specified: every rank has its arguments and environment.
///
/// Mirrors the arguments of torch's `PContext`. The crate `rankrun` has a builder for it.
pub struct GroupSpec {
    pub(crate) name: String,
    pub(crate) entrypoint: Entrypoint,
    pub(crate) args: PerRank<Vec<OsString>>,
    pub(crate) envs: PerRank<Env>,
    pub(crate) logs_specs: Arc<dyn LogsSpecs>,
    pub(crate) log_line_prefixes: Option<PerRank<String>>,
    pub(crate) log_line_prefix_template: Option<PrefixTemplate>,
    pub(crate) progress: Progress,
    pub(crate) color: ColorChoice,
    pub(crate) status_line: Option<StatusLine>,
    pub(crate) duplicate_stdout_filters: Option<LineFilter>,
    pub(crate) duplicate_stderr_filters: Option<LineFilter>,
    pub(crate) stop_policy: StopPolicy,
    pub(crate) consoles: Option<Consoles>,
    pub(crate) placements: PerRank<Placement>,
    pub(crate) orphans: Orphans,
    pub(crate) guardian: bool,
    pub(crate) control_group: bool,
    pub(crate) log_max_size: Option<LogSize>,
    pub(crate) pty: bool,
    pub(crate) stall_policy: Option<StallPolicy>,
    pub(crate) events: Option<Sender<GroupEvent>>,
}

impl GroupSpec {
    /// Takes what a group cannot do without.
    ///
    /// `name` is the role, used for prefixes and reports. `envs` holds what each worker gets on top of, or instead of,
    /// the variables that this program has when the group is started.
    ///
    /// # Errors
    /// [`GroupSpecError`] if there is no worker, or `envs` has other ranks than `args`.
    pub fn new(
        name: impl Into<String>,
        entrypoint: impl Into<Entrypoint>,
        args: PerRank<Vec<OsString>>,
        envs: PerRank<Env>,
        logs_specs: Arc<dyn LogsSpecs>,
    ) -> Result<Self, GroupSpecError> {
        let name = name.into();
        match args.len() {
            0 => return Err(GroupSpecError::NoWorkers { name }),
            got if got > MAX_LOCAL_RANK + 1 => return Err(GroupSpecError::TooManyWorkers { name, got }),
            expected => Self::same_ranks(&name, "envs", envs.len(), expected)?,
        }
        Ok(Self {
            name,
            entrypoint: entrypoint.into(),
            placements: PerRank::filled(args.len(), Placement::default()),
            args,
            envs,
            logs_specs,
            log_line_prefixes: None,
            log_line_prefix_template: None,
            progress: Progress::default(),
            color: ColorChoice::default(),
            status_line: None,
            duplicate_stdout_filters: None,
            duplicate_stderr_filters: None,
            stop_policy: StopPolicy::default(),
            consoles: None,
            orphans: Orphans::Leave,
            guardian: false,
            control_group: false,
            log_max_size: None,
            pty: false,
            stall_policy: None,
            events: None,
        })
    }

    fn same_ranks(name: &str, what: &'static str, got: usize, expected: usize) -> Result<(), GroupSpecError> {
        if got == expected {
            return Ok(());
        }
        Err(GroupSpecError::RankCount { name: name.to_owned(), what, got, expected })
    }

    /// Sets what stands before each line that is teed to the console; `[<name><local_rank>]:` unless set.
    ///
    /// # Errors
    /// [`GroupSpecError::RankCount`] if it has other ranks than the group.
    pub fn log_line_prefixes(mut self, prefixes: PerRank<String>) -> Result<Self, GroupSpecError> {
        Self::same_ranks(&self.name, "log_line_prefixes", prefixes.len(), self.args.len())?;
        self.log_line_prefixes = Some(prefixes);
        Ok(self)
    }

    /// Sets the template for what stands before each teed line, unless [`log_line_prefixes`](Self::log_line_prefixes)
    /// say it; `[${role_name}${local_rank}]:` unless set.
    ///
    /// `${rank}` is `RANK` of the worker's environment here, or its local rank.
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

    /// Sets whether the prefixes of teed lines have colours; [`ColorChoice::Never`] unless set.
    #[must_use]
    pub fn color(mut self, color: ColorChoice) -> Self {
        self.color = color;
        self
    }

    /// Appends each matching line of all teed stdouts also to [`LogsDest::filtered_stdout`], with its prefix.
    ///
    /// [`LogsDest::filtered_stdout`]: rankrun_logs::LogsDest::filtered_stdout
    #[must_use]
    pub fn duplicate_stdout_filters(mut self, filter: LineFilter) -> Self {
        self.duplicate_stdout_filters = Some(filter);
        self
    }

    /// Appends each matching line of all teed stderrs also to [`LogsDest::filtered_stderr`], with its prefix.
    ///
    /// [`LogsDest::filtered_stderr`]: rankrun_logs::LogsDest::filtered_stderr
    #[must_use]
    pub fn duplicate_stderr_filters(mut self, filter: LineFilter) -> Self {
        self.duplicate_stderr_filters = Some(filter);
        self
    }

    /// Sets where and under which limits each worker runs; as this program does, with an empty standard input, unless set.
    ///
    /// # Errors
    /// [`GroupSpecError::RankCount`] if it has other ranks than the group.
    pub fn placements(mut self, placements: PerRank<Placement>) -> Result<Self, GroupSpecError> {
        Self::same_ranks(&self.name, "placements", placements.len(), self.args.len())?;
        self.placements = placements;
        Ok(self)
    }

    /// Sets how the group is stopped.
    #[must_use]
    pub fn stop_policy(mut self, policy: StopPolicy) -> Self {
        self.stop_policy = policy;
        self
    }

    /// Sets where teed lines go; copies of this program's standard output and error unless set.
    #[must_use]
    pub fn consoles(mut self, consoles: Consoles) -> Self {
        self.consoles = Some(consoles);
        self
    }

    /// Sets whether orphans among the workers' descendants come to this program; [`Orphans::Leave`] unless set.
    ///
    /// Anything else makes the whole program a subreaper, for good. [`Orphans::Own`] is for a program that starts
    /// nothing but this group: it then ends every orphan that comes to it, even one that hides its environment.
    #[must_use]
    pub fn orphans(mut self, orphans: Orphans) -> Self {
        self.orphans = orphans;
        self
    }

    /// Sets whether a small process stands by that ends what workers started if this program is killed; not unless set.
    ///
    /// Workers themselves die with this program in any case. The guardian is this program executed again, without its
    /// `main`; it costs a millisecond at the start and ends with the group.
    #[must_use]
    pub fn guardian(mut self, guardian: bool) -> Self {
        self.guardian = guardian;
        self
    }

    /// Sets whether the workers get a control group of their own (cgroup v2), where one can be made; not unless set.
    ///
    /// Then what they start belongs to the group whatever it does with its session and environment, and is ended by one
    /// write; a guardian ends it so as well. Where none can be made, which needs root or a delegated subtree, the group
    /// does without and nothing is said. It lies below this program's own, sets no limits, and is gone with the group.
    #[must_use]
    pub fn control_group(mut self, control_group: bool) -> Self {
        self.control_group = control_group;
        self
    }

    /// Sets how large each log file may become; as large as it will unless set.
    ///
    /// The end is kept, see [`rankrun_logs::LogLimiter`]. What the limiter cannot do is among the result's warnings.
    #[must_use]
    pub fn log_max_size(mut self, size: LogSize) -> Self {
        self.log_max_size = Some(size);
        self
    }

    /// Sets whether workers get a pseudo-terminal for each stream that goes to a file, teed or not; not unless set.
    ///
    /// Then they show colours and progress bars and write line by line as without a launcher, and the files get every
    /// byte; see [`rankrun_logs::WorkerTerminals`]. A terminal is as large as the first one among where teed lines go and
    /// this program's standard input, less the prefix; without one, as `LINES` and `COLUMNS` say, or 24 by 80. A SIGWINCH that is
    /// forwarded to the workers ([`SignalPlan::forward`](crate::SignalPlan::forward)) brings the new size with it. `TERM` is
    /// `xterm-256color` unless it is set; `LINES` and `COLUMNS` are not inherited. If one terminal cannot be had no worker is started.
    #[must_use]
    pub fn pty(mut self, pty: bool) -> Self {
        self.pty = pty;
        self
    }

    /// Sets after how long without a sign of life the group counts as stalled, which is a failure; never unless set.
    ///
    /// Each worker then has a file of its own in `RANKRUN_HEARTBEAT_FILE`: creating it, or setting its time, is a sign of
    /// life, as is output that goes to a file. Looks at each of these files at most every 10 ms and at least every second.
    #[must_use]
    pub fn stall_policy(mut self, policy: StallPolicy) -> Self {
        self.stall_policy = Some(policy);
        self
    }

    /// Sets a text that a terminal shows below all lines while the group runs; none unless set.
    ///
    /// In the last row of stderr if that is a terminal, else of stdout, else nowhere; drawn once a second at most and gone
    /// at the end. `text` is called in another thread, once a second, and must not block. What workers themselves write
    /// to the terminal stands beside it, so it suits a group whose output is teed or redirected.
    #[must_use]
    pub fn status_line(mut self, text: impl Fn(&GroupStatus) -> String + Send + Sync + 'static) -> Self {
        self.status_line = Some(StatusLine::new(text));
        self
    }

    /// Sets where what happens is told as it happens; nowhere unless set.
    ///
    /// The sender is dropped when the group has ended. Sending never blocks; what nobody takes is kept in memory, some
    /// hundred bytes for each worker.
    #[must_use]
    pub fn events(mut self, events: Sender<GroupEvent>) -> Self {
        self.events = Some(events);
        self
    }

    /// How many workers the group has, 1 to 65,536.
    #[must_use]
    pub fn local_world_size(&self) -> usize {
        self.args.len()
    }
}

impl std::fmt::Debug for GroupSpec {
    /// Names the group and its size; environments, which may hold secrets, are left out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupSpec")
            .field("name", &self.name)
            .field("entrypoint", &self.entrypoint)
            .field("local_world_size", &self.local_world_size())
            .finish_non_exhaustive()
    }
}
