//! What a run will do, fully resolved: [`Plan`], pure, and its text for `--dry-run`. Not here: doing it (`run`).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rankrun::crates::logs::DEFAULT_RUN_ID;
use rankrun::crates::types::escape_line;
use rankrun::{DefaultLogsSpecs, Env, PerRank, SignalPlan, Std, StopPolicy, WorkerGroup, env};

use crate::environment::{EnvInputs, TooFewDevicesError, WorkerEnvs, worker_envs};
use crate::launch::{Launch, Surroundings};
use crate::restart::RestartPolicy;
use crate::topology::{MasterPort, Topology};

/// A run that is fully resolved: what each worker executes, with which variables, and where its output goes.
///
/// `Display` is what `--dry-run` prints. Made by [`Launch::plan`], carried out by [`Plan::run`].
pub struct Plan {
    pub(crate) launch: Launch,
    pub(crate) run_id: String,
    pub(crate) master_port: u16,
    pub(crate) envs: WorkerEnvs,
    pub(crate) inherited: Env,
    pub(crate) allowed_cpus: usize,
    pub(crate) free_port: fn() -> io::Result<u16>,
    pub(crate) logs: Arc<DefaultLogsSpecs>,
    pub(crate) shape: Option<Shape>,
}

/// What a caller says of each attempt's group beyond the rest.
pub(crate) type Shape = Box<dyn Fn(WorkerGroup) -> WorkerGroup + Send>;

/// A description cannot be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// One node cannot start its part of a job again while the others go on.
    #[error(
        "--max-restarts {max_restarts} with {nodes} nodes: the nodes of a job are started again together, by its engine (Slurm: `sbatch \
         --requeue`, Kubernetes: the job's backoffLimit or the JobSet's failurePolicy), which TORCHELASTIC_RESTART_COUNT then counts"
    )]
    RestartsAcrossNodes {
        /// How many restarts were asked for.
        max_restarts: u32,
        /// How many nodes the job has.
        nodes: usize,
    },
    /// There are fewer devices than workers.
    #[error(transparent)]
    TooFewDevices(#[from] TooFewDevicesError),
    /// A text that goes into the environment has a NUL byte.
    #[error("the {what} `{}` has a NUL byte", escape_line(.value))]
    Nul {
        /// `role` or `run id`.
        what: &'static str,
        /// The text.
        value: String,
    },
    /// There is no free port for the workers to meet.
    #[error("cannot find a free port for MASTER_PORT: {0}")]
    NoPort(io::Error),
}

impl Launch {
    /// Resolves the run. Nothing is made or started; a free port is looked for where one is needed.
    ///
    /// Where the topology has no run id it is that of torchrun, `none`, for several nodes, which must agree; for one node
    /// `<seconds since 1970>-<pid>`.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn plan(self, surroundings: &Surroundings) -> Result<Plan, PlanError> {
        let Topology { nodes, node_rank, .. } = self.topology;
        if nodes > 1 && self.restart.max_restarts > 0 {
            return Err(PlanError::RestartsAcrossNodes { max_restarts: self.restart.max_restarts, nodes });
        }
        let run_id = self.topology.run_id.clone().unwrap_or_else(|| {
            let seconds = surroundings.now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            if nodes > 1 { DEFAULT_RUN_ID.to_owned() } else { format!("{seconds}-{}", surroundings.pid) }
        });
        for (what, value) in [("role", &self.role), ("run id", &run_id)] {
            if value.contains('\0') {
                return Err(PlanError::Nul { what, value: value.clone() });
            }
        }
        let master_port = match self.topology.master_port {
            MasterPort::Fixed(port) => port,
            MasterPort::Free => (surroundings.free_port)().map_err(PlanError::NoPort)?,
        };
        let logs = DefaultLogsSpecs::new(self.log_dir.clone(), self.redirects.clone(), self.tee.clone()).hold_run();
        let logs = if nodes > 1 { logs.node(node_rank) } else { logs };
        let logs = match self.local_ranks_filter.clone() {
            Some(local_ranks) => logs.local_ranks_filter(local_ranks),
            None => logs,
        };
        let plan = Plan {
            run_id,
            master_port,
            envs: WorkerEnvs { envs: PerRank::from_vec(Vec::new()), notes: Vec::new() },
            inherited: surroundings.env.clone(),
            allowed_cpus: surroundings.allowed_cpus,
            free_port: surroundings.free_port,
            logs: Arc::new(logs),
            shape: None,
            launch: self,
        };
        Ok(Plan { envs: plan.envs_of(0, master_port)?, ..plan })
    }
}

impl Plan {
    /// Sets what else is to be said of the group of each attempt: placements, orphans, how lines are shown.
    ///
    /// Called once for each attempt, with a group that has all that the plan says.
    #[must_use]
    pub fn shape(mut self, shape: impl Fn(WorkerGroup) -> WorkerGroup + Send + 'static) -> Self {
        self.shape = Some(Box::new(shape));
        self
    }

    /// The environment of an attempt.
    pub(crate) fn envs_of(&self, attempt: u32, master_port: u16) -> Result<WorkerEnvs, TooFewDevicesError> {
        let inputs = EnvInputs {
            inherited: &self.inherited,
            allowed_cpus: self.allowed_cpus,
            role: &self.launch.role,
            run_id: &self.run_id,
            master_port,
            restart_count: self.launch.topology.restart_count + u64::from(attempt),
            max_restarts: self.launch.restart.max_restarts,
        };
        worker_envs(&self.launch.topology, &self.launch.env, &inputs)
    }

    /// The workers' role.
    #[must_use]
    pub fn role(&self) -> &str {
        &self.launch.role
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &OsStr {
        &self.launch.program
    }

    /// Its arguments.
    #[must_use]
    pub fn args(&self) -> &[OsString] {
        &self.launch.args
    }

    /// How the job is laid out.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.launch.topology
    }

    /// The run's id.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// How each attempt's group is stopped.
    #[must_use]
    pub fn stop_policy(&self) -> &StopPolicy {
        &self.launch.stop_policy
    }

    /// The signals that are caught while it runs.
    #[must_use]
    pub fn signals(&self) -> Option<&SignalPlan> {
        self.launch.signals.as_ref()
    }

    /// When the group is started again.
    #[must_use]
    pub fn restart(&self) -> &RestartPolicy {
        &self.launch.restart
    }

    /// The variables that each worker of the first attempt gets, but for those that the group itself sets.
    #[must_use]
    pub fn envs(&self) -> &PerRank<Vec<(&'static str, OsString)>> {
        &self.envs.envs
    }

    /// What was chosen for the user and may surprise, a line each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.launch.topology.notes.iter().chain(&self.envs.notes).cloned().collect()
    }

    /// Where logs go: the run directory is there from the first attempt on.
    #[must_use]
    pub fn logs(&self) -> &Arc<DefaultLogsSpecs> {
        &self.logs
    }

    /// Whether any worker's output goes to a file.
    #[must_use]
    pub fn captures_output(&self) -> bool {
        let workers = self.launch.topology.local_world_size;
        [&self.launch.redirects, &self.launch.tee]
            .into_iter()
            .any(|spec| spec.to_map(workers).values().iter().any(|std| *std != Std::NONE))
    }

    /// The run directory as far as it can be told before it is made.
    fn run_dir(&self) -> PathBuf {
        let Topology { nodes, node_rank, .. } = self.launch.topology;
        match &self.launch.log_dir {
            Some(dir) if nodes > 1 => dir.join(&self.run_id).join(format!("node_{node_rank}")),
            Some(dir) => dir.join(format!("{}_<unique>", self.run_id)),
            None => Path::new("<temporary>").join(format!("{}_<unique>", self.run_id)),
        }
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("launch", &self.launch).field("run_id", &self.run_id).finish_non_exhaustive()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Topology { nodes, node_rank, local_world_size, source, .. } = &self.launch.topology;
        let world_size = self.launch.topology.world_size();
        writeln!(f, "run id:         {}", self.run_id)?;
        writeln!(f, "workers:        {local_world_size} of {world_size}, role {}", self.launch.role)?;
        writeln!(f, "node:           {node_rank} of {nodes} ({source})")?;
        writeln!(f, "meeting place:  {}:{}", self.launch.topology.master_addr, self.master_port)?;
        writeln!(f, "restarts:       at most {}", self.launch.restart.max_restarts)?;
        writeln!(f, "run directory:  {}", self.run_dir().display())?;
        let command: Vec<String> =
            std::iter::once(&self.launch.program).chain(&self.launch.args).map(|word| quoted(word)).collect();
        writeln!(f, "command:        {}", command.join(" "))?;
        let common = self.common();
        writeln!(f, "environment of each worker:")?;
        for (name, value) in &common {
            writeln!(f, "  {name}={}", quoted(value))?;
        }
        let attempt = self.run_dir().join(format!("attempt_{}", self.launch.topology.restart_count));
        let (redirects, tee) =
            (self.launch.redirects.to_map(*local_world_size), self.launch.tee.to_map(*local_world_size));
        for (local_rank, envs) in self.envs.envs.iter() {
            writeln!(f, "rank {} (local rank {local_rank}):", self.launch.topology.rank(local_rank))?;
            for (name, value) in envs.iter().filter(|(name, _)| !common.contains_key(name)) {
                writeln!(f, "  {name}={}", quoted(value))?;
            }
            let dir = attempt.join(local_rank.to_string());
            writeln!(f, "  {}={}", env::TORCHELASTIC_ERROR_FILE, dir.join("error.json").display())?;
            for (stream, name) in [(Std::OUT, "stdout"), (Std::ERR, "stderr")] {
                let shown = if tee[local_rank].contains(stream) { ", shown here too" } else { "" };
                if (redirects[local_rank] | tee[local_rank]).contains(stream) {
                    writeln!(f, "  {name}: {}{shown}", dir.join(format!("{name}.log")).display())?;
                }
            }
        }
        Ok(())
    }
}

impl Plan {
    /// The variables that all workers have with the same value.
    fn common(&self) -> BTreeMap<&'static str, OsString> {
        let envs = &self.envs.envs;
        let Some(first) = envs.get(0).filter(|_| envs.len() > 1) else { return BTreeMap::new() };
        let same = |pair: &&(&'static str, OsString)| envs.values().iter().all(|envs| envs.contains(pair));
        first.iter().filter(same).cloned().collect()
    }
}

/// A word as a shell takes it.
fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn surroundings() -> Surroundings {
        Surroundings {
            env: Env::from([("OMP_NUM_THREADS".into(), "1".into())]),
            allowed_cpus: 8,
            now: UNIX_EPOCH + Duration::from_secs(77),
            pid: 42,
            free_port: || Ok(40_000),
        }
    }

    fn topology(nodes: usize) -> Topology {
        let master_port = if nodes > 1 { MasterPort::Fixed(29_500) } else { MasterPort::Free };
        Topology { nodes, node_rank: nodes - 1, master_port, ..Topology::one_node(2) }
    }

    fn launch(nodes: usize) -> Launch {
        Launch::new("trainer", "python3", topology(nodes)).args(["-u", "train.py", "--name", "it's"])
    }

    #[test]
    fn a_plan_is_shown_with_command_environment_and_files() {
        let launch = launch(2).log_dir("/logs").redirects("0:err".parse::<rankrun::StdSpec>().unwrap()).tee(Std::OUT);
        let expected = "\
run id:         none
workers:        2 of 4, role trainer
node:           1 of 2 (one node)
meeting place:  127.0.0.1:29500
restarts:       at most 0
run directory:  /logs/none/node_1
command:        python3 -u train.py --name 'it'\\''s'
environment of each worker:
  GROUP_RANK=1
  GROUP_WORLD_SIZE=2
  LOCAL_WORLD_SIZE=2
  MASTER_ADDR=127.0.0.1
  MASTER_PORT=29500
  PYTHONUNBUFFERED=1
  ROLE_NAME=trainer
  ROLE_WORLD_SIZE=4
  TORCHELASTIC_MAX_RESTARTS=0
  TORCHELASTIC_RESTART_COUNT=0
  TORCHELASTIC_RUN_ID=none
  TORCHELASTIC_USE_AGENT_STORE=False
  TORCH_NCCL_ASYNC_ERROR_HANDLING=1
  WORLD_SIZE=4
rank 2 (local rank 0):
  LOCAL_RANK=0
  RANK=2
  ROLE_RANK=2
  TORCHELASTIC_ERROR_FILE=/logs/none/node_1/attempt_0/0/error.json
  stdout: /logs/none/node_1/attempt_0/0/stdout.log, shown here too
  stderr: /logs/none/node_1/attempt_0/0/stderr.log
rank 3 (local rank 1):
  LOCAL_RANK=1
  RANK=3
  ROLE_RANK=3
  TORCHELASTIC_ERROR_FILE=/logs/none/node_1/attempt_0/1/error.json
  stdout: /logs/none/node_1/attempt_0/1/stdout.log, shown here too
";
        let plan = launch.plan(&surroundings()).unwrap();
        assert_eq!(plan.to_string(), expected);
        assert!(plan.captures_output());
    }

    #[test]
    fn one_node_has_an_id_and_a_free_port_of_its_own() {
        let plan = launch(1).plan(&surroundings()).unwrap();
        assert_eq!((plan.run_id(), plan.master_port, plan.captures_output()), ("77-42", 40_000, false));
        let given = Topology { run_id: Some("job".to_owned()), ..topology(1) };
        assert_eq!(Launch::new("r", "true", given).plan(&surroundings()).unwrap().run_id(), "job");
    }

    #[test]
    fn a_later_attempt_counts_on_from_the_engines_restarts() {
        let topology = Topology { restart_count: 4, ..topology(1) };
        let plan = Launch::new("r", "true", topology).max_restarts(3).plan(&surroundings()).unwrap();
        let envs = plan.envs_of(2, 1).unwrap();
        let value = |name| envs.envs[0].iter().find(|(known, _)| *known == name).unwrap().1.to_str().unwrap();
        assert_eq!(
            (value(env::TORCHELASTIC_RESTART_COUNT), value(env::TORCHELASTIC_MAX_RESTARTS), value(env::MASTER_PORT)),
            ("6", "3", "1")
        );
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        let error = launch(2).max_restarts(1).plan(&surroundings()).unwrap_err().to_string();
        assert!(error.contains("--max-restarts 1 with 2 nodes") && error.contains("--requeue"), "{error}");
        let error = Launch::new("a\0b", "true", topology(1)).plan(&surroundings()).unwrap_err().to_string();
        assert_eq!(error, "the role `a\\x00b` has a NUL byte");
        let no_port = Surroundings { free_port: || Err(io::Error::other("none")), ..surroundings() };
        assert!(launch(1).plan(&no_port).unwrap_err().to_string().contains("MASTER_PORT: none"));
        launch(2).plan(&no_port).unwrap();
    }
}
