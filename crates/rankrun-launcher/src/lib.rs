//! What an agent adds on one node: topology, the environment contract, restarts, and the records of a run.
//! Not here: supervising one group (`rankrun`), arguments and console (`rankrun-cli`).
//!
//! The way of a run, each step a pure function but the last:
//!
//! 1. [`Topology::resolve`]: arguments ([`TopologyArgs`]; what is `None` was not given), environment and
//!    [`host_name`] say how many nodes there are, which one this is and where the workers meet. [`gpus_per_node`] counts
//!    what Slurm gives. The `PET_*` variables of these arguments are read there; who reads them before may pass them as
//!    arguments.
//! 2. [`Launch`]: what is to be run there.
//! 3. [`Launch::plan`]: the [`Plan`], which shows itself for a dry run. [`Plan::shape`] has room for all else that a
//!    [`WorkerGroup`](rankrun::WorkerGroup) can be told.
//! 4. [`Plan::run`]: attempt after attempt as [`decide`] says, told to an [`Observer`], to the [`Outcome`]. [`Recorder`] and
//!    [`EventLog`] are such observers: they write down for other programs what happens.

#![forbid(unsafe_code)]

mod environment;
mod host;
mod launch;
mod lineage;
mod plan;
mod record;
mod restart;
mod run;
mod topology;

pub use environment::{EnvInputs, EnvOptions, TooFewDevicesError, WorkerEnvs, worker_envs};
pub use host::host_name;
pub use launch::{Launch, Surroundings};
pub use lineage::{step_within_worker, without_worker};
pub use plan::{Plan, PlanError};
pub use rankrun::Env;
pub use record::{
    AttemptRecord, CauseClass, EVENT_SCHEMA, EventFeed, EventLog, EventLogError, EventTarget, ExitRecord, JOB_SCHEMA,
    JobFailure, JobPart, JobRecord, JobRecordError, ProcessRecord, RESULT_FILE, RESULT_SCHEMA, RecordError,
    RecordState, Recorder, RunDescription, RunEnd, RunRecord, SCHEMA_VERSION, StallRecord, StalledProcessRecord,
    WorkerRecord,
};
pub use restart::{
    Backoff, Decision, Ended, ExitCodes, ParseBackoffError, ParseExitCodesError, RestartPolicy, Verdict, decide,
};
pub use run::{Attempt, Observer, Outcome, RunError, Started, Watch};
pub use topology::{
    DERIVED_PORTS, HostlistError, MAX_HOSTS, MAX_NODES, MasterPort, ParseTopologyChoiceError, STATIC_PORT, Topology,
    TopologyArgs, TopologyChoice, TopologyError, TopologySource, compress, expand, gpus_per_node, worker_of_another,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
