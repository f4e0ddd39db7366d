//! Where and under which limits a worker runs: [`Placement`]. Not here: carrying it out (`rankrun-process`).

use std::path::PathBuf;

use rankrun_process::{Command, CpuSet, Limit, Resource, Stdio};

/// Where a worker's standard input comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stdin {
    /// `/dev/null`: it reads nothing, and two workers never fight for a terminal.
    #[default]
    Null,
    /// What this program has.
    Inherit,
}

/// Where and under which limits a worker runs; what is not set, it has from this program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    /// The CPUs that it may use.
    pub cpus: Option<CpuSet>,
    /// Its nice value, -20 to 19.
    pub nice: Option<i32>,
    /// Its resource limits: which, soft, hard. Of two for the same resource the later holds.
    pub limits: Vec<(Resource, Limit, Limit)>,
    /// The permissions that its files lack, 0 to 0o777.
    pub umask: Option<u32>,
    /// Its working directory.
    pub current_dir: Option<PathBuf>,
    /// Its standard input.
    pub stdin: Stdin,
}

impl Placement {
    pub(crate) fn apply(&self, mut command: Command) -> Command {
        if let Some(cpus) = &self.cpus {
            command = command.cpu_affinity(cpus.clone());
        }
        if let Some(nice) = self.nice {
            command = command.nice(nice);
        }
        for (resource, soft, hard) in &self.limits {
            command = command.limit(*resource, *soft, *hard);
        }
        if let Some(umask) = self.umask {
            command = command.umask(umask);
        }
        if let Some(dir) = &self.current_dir {
            command = command.current_dir(dir);
        }
        match self.stdin {
            Stdin::Null => command.stdin(Stdio::Null),
            Stdin::Inherit => command.stdin(Stdio::Inherit),
        }
    }
}
