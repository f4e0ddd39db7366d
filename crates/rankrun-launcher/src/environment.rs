//! The environment that each worker gets, torchrun's variables and values: [`worker_envs`], pure. Not here: how many
//! nodes there are (`topology`), what the group itself sets (`TORCHELASTIC_ERROR_FILE`, the cookie).

use std::ffi::{OsStr, OsString};

use rankrun::crates::types::escape_line;
use rankrun::{Env, PerRank, env};

use crate::topology::Topology;

/// What differs from torchrun's defaults in the workers' environment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnvOptions {
    /// `OMP_NUM_THREADS`, even where it is set already; 1 or more.
    pub omp_threads: Option<usize>,
    /// Each worker sees one device only, as its first, and has `LOCAL_RANK` 0; torchrun's `--virtual-local-rank`.
    pub virtual_local_rank: bool,
    /// Leaves Python to buffer what it writes, as on a terminal of its own it does not.
    pub python_buffers: bool,
}

/// What the environment of an attempt is made from, beside the topology.
#[derive(Debug, Clone, Copy)]
pub struct EnvInputs<'a> {
    /// The launcher's own environment, which the workers inherit.
    pub inherited: &'a Env,
    /// How many CPUs this process may use.
    pub allowed_cpus: usize,
    /// The workers' role.
    pub role: &'a str,
    /// The run's id.
    pub run_id: &'a str,
    /// Where the workers meet.
    pub master_port: u16,
    /// How often the group was started before, by this launcher or by the engine.
    pub restart_count: u64,
    /// How often it may be.
    pub max_restarts: u32,
}

/// The variables of each worker that are set on top of what it inherits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerEnvs {
    /// By local rank, in the order in which they are shown.
    pub envs: PerRank<Vec<(&'static str, OsString)>>,
    /// What was chosen for the user and may surprise, a line each.
    pub notes: Vec<String>,
}

/// There are fewer devices than workers that want one each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "--virtual-local-rank gives each worker a device of its own, but CUDA_VISIBLE_DEVICES=`{}` has {devices} for {workers} workers",
    escape_line(.value)
)]
pub struct TooFewDevicesError {
    /// The variable's value.
    pub value: String,
    /// How many devices it names.
    pub devices: usize,
    /// How many workers there are.
    pub workers: usize,
}

/// Makes the variables of each worker of this node.
///
/// Mirrors `_start_workers` of torch's `LocalElasticAgent`, and `config_from_args` of `torch.distributed.run` but for
/// `OMP_NUM_THREADS`: where it is not set and there are more workers than one, each gets its share of the allowed CPUs
/// (at least 1) instead of 1. `PYTHONUNBUFFERED=1` comes on top unless it is set, so that a teed line is there when it is printed, and the last ones of a
/// worker that is killed are not lost.
///
/// # Errors
/// [`TooFewDevicesError`].
pub fn worker_envs(
    topology: &Topology,
    options: &EnvOptions,
    inputs: &EnvInputs<'_>,
) -> Result<WorkerEnvs, TooFewDevicesError> {
    let workers = topology.local_world_size;
    let is_set = |name: &str| inputs.inherited.contains_key(OsStr::new(name));
    let devices = if options.virtual_local_rank { Some(devices(inputs.inherited, workers)?) } else { None };
    let mut notes = Vec::new();
    let omp_threads = options.omp_threads.or_else(|| {
        if workers < 2 || is_set(env::OMP_NUM_THREADS) {
            return None;
        }
        let (cpus, threads) = (inputs.allowed_cpus, (inputs.allowed_cpus / workers).max(1));
        notes.push(format!(
            "each worker gets {}={threads}, its share of {cpus} CPU{}; set it, or --omp-threads, for another number",
            env::OMP_NUM_THREADS,
            if cpus == 1 { "" } else { "s" }
        ));
        Some(threads)
    });
    let text = |number: usize| OsString::from(number.to_string());
    let envs = PerRank::from_fn(workers, |local_rank| {
        let (rank, world_size) = (text(topology.rank(local_rank)), text(topology.world_size()));
        let mut envs = vec![
            (env::LOCAL_RANK, if devices.is_some() { "0".into() } else { text(local_rank) }),
            (env::RANK, rank.clone()),
            (env::GROUP_RANK, text(topology.node_rank)),
            (env::ROLE_RANK, rank),
            (env::ROLE_NAME, inputs.role.into()),
            (env::LOCAL_WORLD_SIZE, text(workers)),
            (env::WORLD_SIZE, world_size.clone()),
            (env::GROUP_WORLD_SIZE, text(topology.nodes)),
            (env::ROLE_WORLD_SIZE, world_size),
            (env::MASTER_ADDR, topology.master_addr.clone().into()),
            (env::MASTER_PORT, inputs.master_port.to_string().into()),
            (env::TORCHELASTIC_RESTART_COUNT, inputs.restart_count.to_string().into()),
            (env::TORCHELASTIC_MAX_RESTARTS, inputs.max_restarts.to_string().into()),
            (env::TORCHELASTIC_RUN_ID, inputs.run_id.into()),
            (env::TORCHELASTIC_USE_AGENT_STORE, "False".into()),
        ];
        for (name, value) in [(env::TORCH_NCCL_ASYNC_ERROR_HANDLING, "1"), (env::PYTHONUNBUFFERED, "1")] {
            if !is_set(name) && (name != env::PYTHONUNBUFFERED || !options.python_buffers) {
                envs.push((name, value.into()));
            }
        }
        envs.extend(omp_threads.map(|threads| (env::OMP_NUM_THREADS, text(threads))));
        envs.extend(devices.as_ref().map(|devices| (env::CUDA_VISIBLE_DEVICES, devices[local_rank].clone())));
        envs
    });
    Ok(WorkerEnvs { envs, notes })
}

/// The device of each worker: those that are visible in their order, or all.
fn devices(inherited: &Env, workers: usize) -> Result<PerRank<OsString>, TooFewDevicesError> {
    let Some(visible) = inherited.get(OsStr::new(env::CUDA_VISIBLE_DEVICES)) else {
        return Ok(PerRank::from_fn(workers, |local_rank| local_rank.to_string().into()));
    };
    let value = visible.to_string_lossy();
    let devices: Vec<&str> = value.split(',').map(str::trim).filter(|device| !device.is_empty()).collect();
    if devices.len() < workers {
        return Err(TooFewDevicesError { value: value.to_string(), devices: devices.len(), workers });
    }
    Ok(PerRank::from_fn(workers, |local_rank| devices[local_rank].into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(topology: &Topology, options: &EnvOptions, inherited: &[(&str, &str)]) -> WorkerEnvs {
        let inherited = inherited.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let inputs = EnvInputs {
            inherited: &inherited,
            allowed_cpus: 16,
            role: "trainer",
            run_id: "job",
            master_port: 29_500,
            restart_count: 2,
            max_restarts: 5,
        };
        worker_envs(topology, options, &inputs).unwrap()
    }

    fn value<'a>(envs: &'a WorkerEnvs, local_rank: usize, name: &str) -> Option<&'a str> {
        envs.envs[local_rank].iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_str().unwrap())
    }

    fn topology(nodes: usize, node_rank: usize, local_world_size: usize) -> Topology {
        Topology { nodes, node_rank, master_addr: "node0".to_owned(), ..Topology::one_node(local_world_size) }
    }

    #[test]
    fn each_worker_gets_all_of_torchruns_variables() {
        let envs = made(&topology(3, 1, 4), &EnvOptions::default(), &[]);
        let got: Vec<String> =
            envs.envs[2].iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
        let expected = "LOCAL_RANK=2 RANK=6 GROUP_RANK=1 ROLE_RANK=6 ROLE_NAME=trainer LOCAL_WORLD_SIZE=4 WORLD_SIZE=12 \
                        GROUP_WORLD_SIZE=3 ROLE_WORLD_SIZE=12 MASTER_ADDR=node0 MASTER_PORT=29500 \
                        TORCHELASTIC_RESTART_COUNT=2 TORCHELASTIC_MAX_RESTARTS=5 TORCHELASTIC_RUN_ID=job \
                        TORCHELASTIC_USE_AGENT_STORE=False TORCH_NCCL_ASYNC_ERROR_HANDLING=1 PYTHONUNBUFFERED=1 \
                        OMP_NUM_THREADS=4";
        assert_eq!(got.join(" "), expected);
    }

    #[test]
    fn threads_are_shared_out_once_said_and_only_where_nobody_chose() {
        let threads = |workers, omp_threads, inherited: &[(&str, &str)]| {
            let envs = made(&topology(1, 0, workers), &EnvOptions { omp_threads, ..EnvOptions::default() }, inherited);
            (value(&envs, 0, "OMP_NUM_THREADS").map(str::to_owned), envs.notes.len())
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(threads(4, None, &[]), (some("4"), 1));
        assert_eq!(threads(5, None, &[]), (some("3"), 1));
        assert_eq!(threads(64, None, &[]), (some("1"), 1));
        assert_eq!(threads(1, None, &[]), (None, 0));
        assert_eq!(threads(4, None, &[("OMP_NUM_THREADS", "7")]), (None, 0));
        assert_eq!(threads(1, Some(2), &[("OMP_NUM_THREADS", "7")]), (some("2"), 0));
    }

    #[test]
    fn a_share_is_of_so_many_cpus_or_of_one() {
        let note = |allowed_cpus| {
            let inputs = EnvInputs {
                inherited: &Env::new(),
                allowed_cpus,
                role: "trainer",
                run_id: "job",
                master_port: 29_500,
                restart_count: 0,
                max_restarts: 0,
            };
            worker_envs(&topology(1, 0, 2), &EnvOptions::default(), &inputs).unwrap().notes.join("\n")
        };
        assert!(note(1).contains("OMP_NUM_THREADS=1, its share of 1 CPU; "), "{}", note(1));
        assert!(note(2).contains("OMP_NUM_THREADS=1, its share of 2 CPUs; "), "{}", note(2));
    }

    #[test]
    fn what_the_user_has_set_for_python_and_nccl_is_left() {
        let envs = made(
            &topology(1, 0, 1),
            &EnvOptions::default(),
            &[("PYTHONUNBUFFERED", ""), ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")],
        );
        assert_eq!(value(&envs, 0, "PYTHONUNBUFFERED"), None);
        assert_eq!(value(&envs, 0, "TORCH_NCCL_ASYNC_ERROR_HANDLING"), None);
    }

    #[test]
    fn a_virtual_local_rank_is_0_with_one_device_each() {
        let options = EnvOptions { virtual_local_rank: true, ..EnvOptions::default() };
        for (visible, expected) in [(None, ["0", "1"]), (Some("4, GPU-7"), ["4", "GPU-7"]), (Some("3,2,1"), ["3", "2"])]
        {
            let inherited: Vec<_> = visible.map(|devices| ("CUDA_VISIBLE_DEVICES", devices)).into_iter().collect();
            let envs = made(&topology(2, 1, 2), &options, &inherited);
            for (local_rank, device) in expected.into_iter().enumerate() {
                assert_eq!(value(&envs, local_rank, "LOCAL_RANK"), Some("0"));
                assert_eq!(value(&envs, local_rank, "RANK"), Some(["2", "3"][local_rank]));
                assert_eq!(value(&envs, local_rank, "CUDA_VISIBLE_DEVICES"), Some(device));
            }
        }
    }

    #[test]
    fn too_few_devices_are_refused_with_the_variable_and_its_value() {
        let inherited = Env::from([("CUDA_VISIBLE_DEVICES".into(), "5".into())]);
        let error = devices(&inherited, 2).unwrap_err().to_string();
        assert!(error.contains("CUDA_VISIBLE_DEVICES=`5` has 1 for 2 workers"), "{error}");
    }
}
