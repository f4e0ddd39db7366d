//! The names of the environment variables that a worker gets from its launcher.
//!
//! They are torchrun's, so that a script written for torchrun finds what it looks for, and two of ours.

/// The worker's index among the workers of this host, from 0.
pub const LOCAL_RANK: &str = "LOCAL_RANK";
/// The worker's index among all workers of the job, from 0.
pub const RANK: &str = "RANK";
/// How many workers run on this host.
pub const LOCAL_WORLD_SIZE: &str = "LOCAL_WORLD_SIZE";
/// How many workers the job has.
pub const WORLD_SIZE: &str = "WORLD_SIZE";
/// The index of this host's group, from 0.
pub const GROUP_RANK: &str = "GROUP_RANK";
/// How many groups (hosts) the job has.
pub const GROUP_WORLD_SIZE: &str = "GROUP_WORLD_SIZE";
/// The role that this group's workers play.
pub const ROLE_NAME: &str = "ROLE_NAME";
/// The worker's index among the workers of its role, from 0.
pub const ROLE_RANK: &str = "ROLE_RANK";
/// How many workers have the role.
pub const ROLE_WORLD_SIZE: &str = "ROLE_WORLD_SIZE";
/// The address at which the workers meet.
pub const MASTER_ADDR: &str = "MASTER_ADDR";
/// The port at which the workers meet.
pub const MASTER_PORT: &str = "MASTER_PORT";
/// The id of the run, the same for all its workers and attempts.
pub const TORCHELASTIC_RUN_ID: &str = "TORCHELASTIC_RUN_ID";
/// How often the group was started again before this attempt.
pub const TORCHELASTIC_RESTART_COUNT: &str = "TORCHELASTIC_RESTART_COUNT";
/// How often the group may be started again.
pub const TORCHELASTIC_MAX_RESTARTS: &str = "TORCHELASTIC_MAX_RESTARTS";
/// Where the worker writes its error file.
pub const TORCHELASTIC_ERROR_FILE: &str = "TORCHELASTIC_ERROR_FILE";
/// A file by which the worker can show that it makes progress: creating it or setting its time counts. Only where
/// somebody watches for stalls.
pub const RANKRUN_HEARTBEAT_FILE: &str = "RANKRUN_HEARTBEAT_FILE";
/// The cookies of the groups that a process belongs to, outermost first, separated by `:`.
///
/// A worker's descendants inherit it, so that what a group started can be told from what it did not.
pub const RANKRUN_GROUP: &str = "RANKRUN_GROUP";
/// Whether the workers use their launcher's store: `False` here, as there is none.
pub const TORCHELASTIC_USE_AGENT_STORE: &str = "TORCHELASTIC_USE_AGENT_STORE";
/// What NCCL does about an error; torchrun sets 1.
pub const TORCH_NCCL_ASYNC_ERROR_HANDLING: &str = "TORCH_NCCL_ASYNC_ERROR_HANDLING";
/// How many threads OpenMP uses in each worker.
pub const OMP_NUM_THREADS: &str = "OMP_NUM_THREADS";
/// The devices that a worker sees.
pub const CUDA_VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";
/// Makes Python write each line at once, also to a file. Without it a teed line can be seconds late, and the last ones of
/// a worker that is killed are lost.
pub const PYTHONUNBUFFERED: &str = "PYTHONUNBUFFERED";
