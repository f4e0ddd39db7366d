//! What a command line means in its surroundings: [`Plan`], pure. Not here: carrying it out (`run`).

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::SystemTime;

use rankrun::crates::process::AllowedCpusError;
use rankrun::crates::types::escape_line;
use rankrun::{
    CpuSet, Descendants, DumpStep, LogSize, PerRank, Placement, RankOutOfWorldError, Signal, SignalPlan, StallPolicy,
    Std, StopOrder, StopPolicy,
};
use rankrun_launcher::{Launch, Topology, TopologyError, host_name, step_within_worker, without_worker};

use crate::args::{Args, StopOrderArg};
use crate::entry::{self, Entry, EntryError};
use crate::exit_code;
use crate::nodes::NodesError;
use crate::nproc::{Hardware, NprocError};
use crate::output::{self, OutputEnv, OutputPlan, RankFilterError};
use crate::placement::{self, PlacementError};
use crate::records::BLIND_WATCH;
use crate::status_line::{self, Terminals};
use crate::values::SignalList;

/// The signals that stop a run, as torchrun has them.
const STOP_SIGNALS: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

/// The signals that are passed on, as mpirun and Slurm users expect.
const FORWARD_SIGNALS: [Signal; 2] = [Signal::USR1, Signal::USR2];

/// What a plan depends on beside the command line.
pub(crate) struct Surroundings {
    pub(crate) launch: rankrun_launcher::Surroundings,
    pub(crate) hostname: String,
    pub(crate) hardware: Hardware,
    pub(crate) output: OutputEnv,
    /// Where the kernel describes the hardware: `/sys`, but for tests.
    pub(crate) sysfs: PathBuf,
    pub(crate) terminals: Terminals,
    /// The CPUs that rankrun may use.
    pub(crate) allowed_cpus: Result<CpuSet, AllowedCpusError>,
    /// The variable by which it is known that a worker of another launcher has started the engine's step that rankrun is in.
    pub(crate) started_by_worker: Option<&'static str>,
}

impl Surroundings {
    pub(crate) fn of_this_process() -> Self {
        let mut launch = rankrun_launcher::Surroundings::of_this_process();
        let started_by_worker = step_within_worker(&launch.env);
        if started_by_worker.is_some() {
            launch.env = without_worker(&launch.env);
        }
        let sysfs = launch.env.get(OsStr::new("RANKRUN_SYSFS")).filter(|root| !root.is_empty());
        Self {
            hostname: host_name(),
            hardware: Hardware::of_this_host(),
            output: OutputEnv::of_this_process(),
            terminals: Terminals::of_this_process(),
            allowed_cpus: CpuSet::allowed(),
            sysfs: sysfs.map_or(PathBuf::from("/sys"), PathBuf::from),
            launch,
            started_by_worker,
        }
    }
}

/// A run, fully resolved.
#[derive(Debug)]
pub(crate) struct Plan {
    /// What is run, and when again.
    pub(crate) launch: rankrun_launcher::Plan,
    /// Where logs and error files go, if not into a temporary directory.
    pub(crate) log_dir: Option<PathBuf>,
    pub(crate) log_max_size: Option<LogSize>,
    pub(crate) stall_policy: Option<StallPolicy>,
    pub(crate) events: Option<PathBuf>,
    pub(crate) control_group: bool,
    pub(crate) placements: PerRank<Placement>,
    pub(crate) output: OutputPlan,
    /// Whether a terminal shows how the group is doing.
    pub(crate) status_line: bool,
    /// What could not be done as asked for, and does not stop the run.
    pub(crate) warnings: Vec<String>,
    /// What was chosen and may surprise.
    pub(crate) notes: Vec<String>,
}

impl Plan {
    fn with_warning(mut self, text: &str) -> Self {
        self.warnings.push(text.to_owned());
        self
    }
}

/// A command line that parses but cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    #[error("invalid value '{}' for '{option}': {source} (see rankrun --help)", escape_line(.spec))]
    RankOutOfWorld { option: &'static str, spec: String, source: RankOutOfWorldError },
    #[error("invalid value '{}' for '--role': expected a text without NUL bytes", escape_line(.0))]
    Role(String),
    #[error("{0} (see rankrun --help)")]
    Entry(#[from] EntryError),
    #[error("{0} (see rankrun --help)")]
    Nproc(#[from] NprocError),
    #[error("{0} (see rankrun --help)")]
    Nodes(#[from] NodesError),
    #[error("{0} (see rankrun --help)")]
    Topology(#[from] TopologyError),
    #[error("{0}")]
    Launch(#[from] rankrun_launcher::PlanError),
    #[error("{0} (see rankrun --help)")]
    Placement(#[from] PlacementError),
    #[error("{0} (see rankrun --help)")]
    RankFilter(#[from] RankFilterError),
}

impl PlanError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::RankOutOfWorld { .. }
            | Self::Role(_)
            | Self::Entry(_)
            | Self::Nproc(_)
            | Self::Nodes(_)
            | Self::Topology(_)
            | Self::Placement(_)
            | Self::RankFilter(_) => exit_code::USAGE,
            Self::Launch(rankrun_launcher::PlanError::NoPort(_)) => exit_code::LAUNCHER_FAILED,
            Self::Launch(_) => exit_code::USAGE,
        }
    }
}

/// Resolves a command line.
pub(crate) fn resolve(args: &Args, surroundings: &Surroundings) -> Result<Plan, PlanError> {
    let (local_world_size, mut topology) = topology(args, surroundings)?;
    if topology.nodes == 1 {
        topology.run_id.get_or_insert_with(|| run_id(surroundings.launch.now, surroundings.launch.pid));
    }
    for (option, spec) in [("--redirects", &args.redirects), ("--tee", &args.tee)] {
        let checked = spec.value.to_map_strict(local_world_size);
        checked.map_err(|source| PlanError::RankOutOfWorld { option, spec: spec.text.clone(), source })?;
    }
    if args.role.contains('\0') {
        return Err(PlanError::Role(args.role.clone()));
    }
    let host = placement::Host {
        sysfs: &surroundings.sysfs,
        allowed: &surroundings.allowed_cpus,
        visible_gpus: surroundings.hardware.visible_gpus.as_deref().and_then(OsStr::to_str),
    };
    let (placements, mut warnings) = placement::resolve(&args.placement, local_world_size, &host)?;
    let output = output::resolve(&args.output, local_world_size, &surroundings.output)?;
    let tees = |stream| {
        let is_shown = |rank| output.local_ranks_filter.as_ref().is_none_or(|ranks| ranks.contains(&rank));
        args.tee.value.to_map(local_world_size).iter().any(|(rank, tee)| is_shown(rank) && tee.contains(stream))
    };
    warnings.extend(output.idle_filters(tees(Std::OUT), tees(Std::ERR)));
    let python_exec = surroundings.launch.env.get(OsStr::new("PYTHON_EXEC")).map(OsString::as_os_str);
    let Entry { program, args: worker_args, warning } = entry::resolve(&args.entry, &args.command, python_exec)?;
    warnings.extend(warning.map(str::to_owned));
    let mut launch = Launch::new(&args.role, program, topology)
        .args(worker_args)
        .env_options(args.environment.options(output.pty))
        .redirects(args.redirects.value.clone())
        .tee(args.tee.value.clone())
        .restart(args.restarts.policy())
        .stop_policy(stop_policy(args))
        .signals(signals(args));
    if let Some(dir) = &args.log_dir {
        launch = launch.log_dir(dir);
    }
    if let Some(local_ranks) = output.local_ranks_filter.clone() {
        launch = launch.local_ranks_filter(local_ranks);
    }
    let launch = launch.plan(&surroundings.launch)?;
    let (redirects, tee) = (args.redirects.value.to_map(local_world_size), args.tee.value.to_map(local_world_size));
    let captured = redirects.map(|local_rank, redirect| *redirect | tee[local_rank]);
    let mut plan = Plan {
        notes: launch.notes(),
        launch,
        log_dir: args.log_dir.clone(),
        log_max_size: args.log_max_size,
        stall_policy: args.records.stall_policy(args.dump_signal, args.dump_timeout),
        events: args.records.events.clone(),
        control_group: !args.no_cgroup,
        placements,
        output,
        status_line: status_line::is_wanted(args.status.status, surroundings.terminals, &captured),
        warnings,
    };
    if plan.stall_policy.is_some() && !plan.launch.captures_output() {
        plan.warnings.push(BLIND_WATCH.to_owned());
    }
    for (option, is_given) in [("--pty", plan.output.pty), ("--log-max-size", plan.log_max_size.is_some())] {
        if is_given && !plan.launch.captures_output() {
            plan = plan
                .with_warning(&format!("{option} has no effect: no output goes to files (see --tee and --redirects)"));
        }
    }
    Ok(plan)
}

/// How many workers this node has, and how the job is laid out.
pub(crate) fn topology(args: &Args, surroundings: &Surroundings) -> Result<(usize, Topology), PlanError> {
    let local_world_size = args.size.nproc_per_node.count(&surroundings.hardware)?;
    let asked = args.nodes.topology(args.rdzv_id.as_deref())?;
    let mut topology = Topology::resolve(&asked, local_world_size, &surroundings.launch.env, &surroundings.hostname)?;
    topology.notes.extend(args.nodes.ignored());
    if let Some(name) = surroundings.started_by_worker {
        topology.notes.push(format!(
            "a worker of another launcher has started this step ({name} is set): what the step says counts, not the worker's variables"
        ));
    }
    Ok((local_world_size, topology))
}

fn stop_policy(args: &Args) -> StopPolicy {
    StopPolicy {
        settle_time: args.records.settle_time,
        order: match args.stop_order {
            StopOrderArg::LeaderThenGroup => StopOrder::LeaderThenGroup,
            StopOrderArg::Group => StopOrder::Group,
        },
        dump: args.dump_signal.map(|signal| DumpStep { signal, timeout: args.dump_timeout }),
        grace: args.shutdown_timeout,
        descendants: if args.keep_descendants { Descendants::Keep } else { Descendants::End },
        ..StopPolicy::default()
    }
}

fn signals(args: &Args) -> SignalPlan {
    let given =
        |list: &Option<SignalList>, default: &[Signal]| list.as_ref().map_or(default.to_vec(), |list| list.0.clone());
    let mut forward = given(&args.signals_to_forward, &FORWARD_SIGNALS);
    if args.output.pty {
        // With the new size for the workers' terminals.
        forward.push(Signal::WINCH);
    }
    SignalPlan::default().stop(given(&args.signals_to_handle, &STOP_SIGNALS)).forward(forward).job_control(true)
}

/// An id that sorts by time and that no other run on this host has: `20261201-101500-4242`, in UTC.
fn run_id(now: SystemTime, pid: u32) -> String {
    let time = jiff::Timestamp::try_from(now).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{}-{pid}", time.strftime("%Y%m%d-%H%M%S"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankrun::env;
    use rankrun_launcher::Env;
    use std::time::{Duration, UNIX_EPOCH};

    fn surroundings() -> Surroundings {
        Surroundings {
            launch: rankrun_launcher::Surroundings {
                env: Env::new(),
                allowed_cpus: 3,
                now: UNIX_EPOCH + Duration::from_secs(1_796_076_744),
                pid: 42,
                free_port: || Ok(40_000),
            },
            hostname: "here".to_owned(),
            hardware: Hardware { visible_gpus: None, proc: "/none".into(), dev: "/none".into(), cpus: || 3 },
            output: OutputEnv::default(),
            terminals: Terminals::default(),
            sysfs: "/no/such/sysfs".into(),
            allowed_cpus: Ok((0..8).collect()),
            started_by_worker: None,
        }
    }

    fn args(line: &[&str]) -> Args {
        let line = std::iter::once("rankrun").chain(line.iter().copied()).map(OsString::from).collect();
        crate::args::parse(line, std::iter::empty()).unwrap()
    }

    fn value(plan: &Plan, local_rank: usize, name: &str) -> String {
        let (_, value) = plan.launch.envs()[local_rank].iter().find(|(known, _)| *known == name).unwrap();
        value.to_str().unwrap().to_owned()
    }

    #[test]
    fn the_environment_is_torchruns_by_the_nodes_that_were_given() {
        let line =
            ["-n", "2", "--nnodes", "2", "--node-rank", "1", "--master-addr", "node0", "--role", "trainer", "true"];
        let plan = resolve(&args(&line), &surroundings()).unwrap();
        for (name, expected) in [
            ("RANK", "3"),
            ("LOCAL_RANK", "1"),
            ("WORLD_SIZE", "4"),
            ("GROUP_RANK", "1"),
            ("ROLE_NAME", "trainer"),
            ("MASTER_ADDR", "node0"),
            ("MASTER_PORT", "29500"),
            ("TORCHELASTIC_RUN_ID", "none"),
            ("OMP_NUM_THREADS", "1"),
        ] {
            assert_eq!(value(&plan, 1, name), expected, "{name}");
        }
        assert_eq!(plan.notes.len(), 1, "{:?}", plan.notes);
        let plan = resolve(&args(&["--omp-threads", "5", "--virtual-local-rank", "true"]), &surroundings()).unwrap();
        assert_eq!(
            (value(&plan, 0, "OMP_NUM_THREADS"), value(&plan, 0, "CUDA_VISIBLE_DEVICES")),
            ("5".into(), "0".into())
        );
        assert_eq!(
            (value(&plan, 0, "MASTER_ADDR"), value(&plan, 0, "MASTER_PORT")),
            ("127.0.0.1".into(), "40000".into())
        );
    }

    #[test]
    fn python_is_left_as_it_is_on_a_terminal_and_where_its_buffering_was_chosen() {
        let has = |line: &[&str], env: Env| {
            let mut surroundings = surroundings();
            surroundings.launch.env = env;
            let plan = resolve(&args(line), &surroundings).unwrap();
            plan.launch.envs()[0].iter().any(|(name, _)| *name == env::PYTHONUNBUFFERED)
        };
        assert!(has(&["true"], Env::new()));
        assert!(!has(&["true"], Env::from([(env::PYTHONUNBUFFERED.into(), "".into())])));
        assert!(!has(&["--pty", "-t", "3", "true"], Env::new()));
    }

    #[test]
    fn a_meeting_place_from_outside_is_kept() {
        let mut surroundings = surroundings();
        surroundings.launch.env.insert("MASTER_ADDR".into(), "10.0.0.1".into());
        surroundings.launch.env.insert("MASTER_PORT".into(), "29500".into());
        let plan = resolve(&args(&["true"]), &surroundings).unwrap();
        assert_eq!(value(&plan, 0, "MASTER_ADDR"), "10.0.0.1");
        assert_eq!(value(&plan, 0, "MASTER_PORT"), "29500");
        surroundings.launch.env.insert("MASTER_PORT".into(), "no port".into());
        let error = resolve(&args(&["true"]), &surroundings).unwrap_err();
        assert!(error.to_string().contains("`no port`") && error.exit_code() == exit_code::USAGE, "{error}");
    }

    #[test]
    fn a_standalone_run_meets_where_it_was_told_to_and_says_what_it_does_not_look_at() {
        let line = ["--standalone", "--master-addr", "foo", "--rdzv-endpoint", "bar:1", "true"];
        let plan = resolve(&args(&line), &surroundings()).unwrap();
        assert_eq!(value(&plan, 0, "MASTER_ADDR"), "foo");
        assert!(plan.notes.len() == 1 && plan.notes[0].starts_with("--rdzv-endpoint bar:1 "), "{:?}", plan.notes);
    }

    #[test]
    fn a_run_id_that_was_given_is_kept() {
        let plan = resolve(&args(&["--run-id", "job 7", "true"]), &surroundings()).unwrap();
        assert_eq!(value(&plan, 0, "TORCHELASTIC_RUN_ID"), "job 7");
    }

    #[test]
    fn a_spec_for_a_rank_that_does_not_exist_is_refused() {
        let error = resolve(&args(&["-n", "4", "-r", "9:3", "true"]), &surroundings()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid value '9:3' for '--redirects': rank 9 is outside of the 4 workers of this host (0-3) (see rankrun --help)"
        );
        assert_eq!(error.exit_code(), exit_code::USAGE);
    }

    #[test]
    fn what_only_the_plan_can_refuse_is_told_with_argument_value_and_what_is_accepted() {
        for (line, words) in [
            (
                &["-n", "2", "--local-ranks-filter", "0,9"][..],
                &["'0,9' for '--local-ranks-filter'", "rank 9", "0 to 1"][..],
            ),
            (&["--stdin", "7"], &["'7' for '--stdin'", "expected 0, or none"]),
            (&["-n", "2", "-t", "*:1,4:out"], &["'*:1,4:out' for '--tee'", "rank 4", "0-1"]),
            (&["--cpu-affinity", "0,99"], &["'0,99' for '--cpu-affinity'", "CPU 99", "0-7"]),
            (&["--cpu-affinity", "0;1;0"], &["'0;1;0' for '--cpu-affinity'", "3 lists for 1", "one for each"]),
            (&["-n", "gpu"], &["'gpu' for '--nproc-per-node'", "no GPU", "expected a number, auto or cpu"]),
            (&["--run-path"], &["`true` for PROGRAM with --run-path", "absolute path"]),
            (&["--nnodes", "1:4"], &["'1:4' for '--nnodes'", "fixed number"]),
            (&["--rdzv-backend", "etcd"], &["'etcd' for '--rdzv-backend'", "static or c10d"]),
            (&["--rdzv-endpoint", "a:b"], &["'a:b' for '--rdzv-endpoint'", "HOST or HOST:PORT"]),
            (&["--nnodes", "2"], &["--nnodes 2", "--node-rank"]),
            (&["--node-rank", "1"], &["--node-rank 1", "--nnodes"]),
            (
                &["--nnodes", "2", "--node-rank", "5", "--master-addr", "a"],
                &["--node-rank 5", "--nnodes 2", "from 0 to 1"],
            ),
            (
                &["--nnodes", "2", "--node-rank", "0", "--master-addr", "a", "--master-port", "0"],
                &["'0' for '--master-port'", "1 to 65535"],
            ),
            (&["--nnodes", "2", "--node-rank", "0"], &["--nnodes 2", "--master-addr"]),
            (&["--standalone", "--nnodes", "2"], &["--standalone", "--nnodes 2"]),
            (&["--topology", "slurm"], &["--topology slurm", "SLURM_JOB_ID"]),
            (
                &["--nnodes", "2", "--node-rank", "0", "--master-addr", "a", "--max-restarts", "1"],
                &["--max-restarts 1", "2 nodes"],
            ),
        ] {
            let error = resolve(&args(&[line, &["true"]].concat()), &surroundings()).unwrap_err();
            let text = error.to_string();
            assert_eq!((text.lines().count(), error.exit_code()), (1, exit_code::USAGE), "{line:?}: {text}");
            for word in words {
                assert!(text.contains(word), "{line:?}: `{word}` not in: {text}");
            }
        }
    }

    #[test]
    fn signals_and_the_stop_ladder_are_what_was_asked_for() {
        let plan = resolve(&args(&["true"]), &surroundings()).unwrap();
        assert_eq!(
            *plan.launch.signals().unwrap(),
            SignalPlan::default().stop(STOP_SIGNALS).forward(FORWARD_SIGNALS).job_control(true)
        );
        assert_eq!(*plan.launch.stop_policy(), StopPolicy::default());
        let line = ["--signals-to-handle", "TERM, usr1", "--signals-to-forward", "", "--stop-order", "group"];
        let more = ["--dump-signal", "ABRT", "--dump-timeout", "0.5", "--keep-descendants", "true"];
        let plan = resolve(&args(&[&line[..], &more[..]].concat()), &surroundings()).unwrap();
        assert_eq!(
            *plan.launch.signals().unwrap(),
            SignalPlan::default().stop([Signal::TERM, Signal::USR1]).job_control(true)
        );
        let dump = Some(DumpStep { signal: Signal::ABRT, timeout: Duration::from_millis(500) });
        let expected =
            StopPolicy { order: StopOrder::Group, dump, descendants: Descendants::Keep, ..StopPolicy::default() };
        assert_eq!(*plan.launch.stop_policy(), expected);
    }

    #[test]
    fn a_stall_is_dumped_with_the_dump_signal_or_sigabrt() {
        let stall = |line: &[&str]| resolve(&args(line), &surroundings()).unwrap().stall_policy;
        assert_eq!(stall(&["true"]), None);
        assert_eq!(stall(&["--stall-timeout", "0", "true"]), None);
        assert_eq!(stall(&["--stall-timeout", "60", "true"]), Some(StallPolicy::new(Duration::from_secs(60))));
        let line = ["--stall-timeout", "60", "--dump-signal", "USR1", "--dump-timeout", "1", "true"];
        assert_eq!(stall(&line).unwrap().dump, DumpStep { signal: Signal::USR1, timeout: Duration::from_secs(1) });
    }

    #[test]
    fn a_watch_that_sees_no_output_is_told_of() {
        let warnings = |line: &[&str]| resolve(&args(line), &surroundings()).unwrap().warnings;
        assert_eq!(warnings(&["--stall-timeout", "60", "true"]), [BLIND_WATCH]);
        assert_eq!(warnings(&["--stall-timeout", "60", "-r", "1", "true"]), [""; 0]);
    }

    #[test]
    fn a_size_of_files_that_there_are_not_is_told_of() {
        let warnings = |line: &[&str]| resolve(&args(line), &surroundings()).unwrap().warnings;
        let expected = "--log-max-size has no effect: no output goes to files (see --tee and --redirects)";
        assert_eq!(warnings(&["--log-max-size", "1M", "true"]), [expected]);
        assert_eq!(warnings(&["--log-max-size", "1M", "--pty", "true"]).len(), 2);
        assert_eq!(warnings(&["--log-max-size", "1M", "-r", "2", "true"]), [""; 0]);
    }

    #[test]
    fn output_is_captured_when_any_rank_has_a_redirect_or_a_tee() {
        let captures = |line: &[&str]| resolve(&args(line), &surroundings()).unwrap().launch.captures_output();
        assert!(!captures(&["true"]));
        assert!(!captures(&["-r", "0:none", "true"]));
        assert!(captures(&["-n", "2", "-r", "1:err", "true"]));
        assert!(captures(&["-t", "3", "true"]));
    }
}
