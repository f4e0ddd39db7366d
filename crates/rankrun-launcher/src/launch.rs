//! Describing a run: [`Launch`], and what surrounds it: [`Surroundings`]. Not here: what that means (`plan`), running it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::SystemTime;

use rankrun::crates::process::CpuSet;
use rankrun::{Env, SignalPlan, Std, StdSpec, StopPolicy};

use crate::environment::EnvOptions;
use crate::restart::RestartPolicy;
use crate::topology::Topology;

/// A run to be planned by [`plan`](Self::plan): what torchrun's agent is told on one node.
///
/// ```
/// use rankrun_launcher::{Launch, Surroundings, Topology};
///
/// let topology = Topology::one_node(2);
/// let plan = Launch::new("trainer", "sh", topology)
///     .args(["-c", "test $TORCHELASTIC_RESTART_COUNT = 1"])
///     .max_restarts(3)
///     .plan(&Surroundings::of_this_process())?;
/// let outcome = plan.run(&mut ())?;
/// assert_eq!(outcome.attempts.len(), 2);
/// assert!(!outcome.last().result.is_failed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "it runs only when it was planned"]
pub struct Launch {
    pub(crate) role: String,
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) topology: Topology,
    pub(crate) env: EnvOptions,
    pub(crate) restart: RestartPolicy,
    pub(crate) log_dir: Option<PathBuf>,
    pub(crate) redirects: StdSpec,
    pub(crate) tee: StdSpec,
    pub(crate) local_ranks_filter: Option<BTreeSet<usize>>,
    pub(crate) stop_policy: StopPolicy,
    pub(crate) signals: Option<SignalPlan>,
}

impl Launch {
    /// A run of a program, by path or name, on this node of a topology.
    pub fn new(role: impl Into<String>, program: impl Into<OsString>, topology: Topology) -> Self {
        Self {
            role: role.into(),
            program: program.into(),
            args: Vec::new(),
            topology,
            env: EnvOptions::default(),
            restart: RestartPolicy::default(),
            log_dir: None,
            redirects: Std::NONE.into(),
            tee: Std::NONE.into(),
            local_ranks_filter: None,
            stop_policy: StopPolicy::default(),
            signals: None,
        }
    }

    /// Adds arguments of the program.
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets what differs from torchrun's defaults in the workers' environment.
    pub fn env_options(mut self, options: EnvOptions) -> Self {
        self.env = options;
        self
    }

    /// Sets when the group is started again; never unless set.
    pub fn restart(mut self, policy: RestartPolicy) -> Self {
        self.restart = policy;
        self
    }

    /// Sets how often the group may be started again; not at all unless set.
    pub fn max_restarts(mut self, max_restarts: u32) -> Self {
        self.restart.max_restarts = max_restarts;
        self
    }

    /// Sets the directory for logs: nodes share it, see [`DefaultLogsSpecs::node`](rankrun::DefaultLogsSpecs::node); a
    /// private temporary one unless set.
    pub fn log_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.log_dir = Some(dir.into());
        self
    }

    /// Sets which streams go to files; none unless set.
    pub fn redirects(mut self, redirects: impl Into<StdSpec>) -> Self {
        self.redirects = redirects.into();
        self
    }

    /// Sets which streams go to files and are shown here; none unless set.
    pub fn tee(mut self, tee: impl Into<StdSpec>) -> Self {
        self.tee = tee.into();
        self
    }

    /// Shows the output of these local ranks only.
    pub fn local_ranks_filter(mut self, local_ranks: BTreeSet<usize>) -> Self {
        self.local_ranks_filter = Some(local_ranks);
        self
    }

    /// Sets how each attempt's group is stopped.
    pub fn stop_policy(mut self, policy: StopPolicy) -> Self {
        self.stop_policy = policy;
        self
    }

    /// Catches these signals to this program while the run goes on, pauses between attempts included; none unless set.
    ///
    /// The first one that stops is passed on to the workers with the stop policy's grace and ends the restarting, a second
    /// one kills.
    pub fn signals(mut self, signals: SignalPlan) -> Self {
        self.signals = Some(signals);
        self
    }
}

impl fmt::Debug for Launch {
    /// Names what is run and where.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch")
            .field("role", &self.role)
            .field("program", &self.program)
            .field("topology", &self.topology)
            .field("restart", &self.restart)
            .finish_non_exhaustive()
    }
}

/// What a plan depends on beside the description.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// This program's environment, which the workers inherit.
    pub env: Env,
    /// How many CPUs it may use.
    pub allowed_cpus: usize,
    /// The time, and this program's process id: a run's id where nobody gives one.
    pub now: SystemTime,
    /// See `now`.
    pub pid: u32,
    /// Finds a port on which nobody listens now.
    pub free_port: fn() -> io::Result<u16>,
}

impl Surroundings {
    /// Those of this program now.
    #[must_use]
    pub fn of_this_process() -> Self {
        let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            env: std::env::vars_os().collect(),
            allowed_cpus: CpuSet::allowed().map_or_else(|_| cpus(), |allowed| allowed.len()),
            now: SystemTime::now(),
            pid: std::process::id(),
            // On all addresses: rank 0 may listen on one that others reach.
            free_port: || TcpListener::bind(("0.0.0.0", 0))?.local_addr().map(|address| address.port()),
        }
    }
}
