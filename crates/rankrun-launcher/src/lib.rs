//! What an agent adds on one host: the environment contract, restarts, topology, and the records of a run.
//! Not here: supervising one group (`rankrun`), arguments and console (`rankrun-cli`).

#![forbid(unsafe_code)]

mod environment;
mod host;
mod restart;
mod topology;

pub use environment::{EnvInputs, EnvOptions, TooFewDevicesError, WorkerEnvs, worker_envs};
pub use host::host_name;
pub use rankrun::Env;
pub use restart::{
    Backoff, Decision, Ended, ExitCodes, ParseBackoffError, ParseExitCodesError, RestartPolicy, Verdict, decide,
};
pub use topology::{
    DERIVED_PORTS, HostlistError, MAX_HOSTS, MAX_NODES, MasterPort, ParseTopologyChoiceError, STATIC_PORT, Topology,
    TopologyArgs, TopologyChoice, TopologyError, TopologySource, compress, expand, gpus_per_node,
};
