//! How many nodes a job has, which one this is and where its workers meet: [`Topology`]. Not here: how that is found
//! (`resolve`, `slurm`, `kubernetes`, `mpi`), what the workers get of it (`environment`).

mod error;
mod hostlist;
mod kubernetes;
mod mpi;
mod port;
mod resolve;
mod show;
mod slurm;
mod vars;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use rankrun::crates::types::escape_line;
use serde::{Serialize, Serializer};

pub use error::TopologyError;
pub use hostlist::{HostlistError, MAX_HOSTS, compress, expand};
pub use port::{DERIVED_PORTS, STATIC_PORT};
pub(crate) use resolve::OF_A_WORKER;
pub use resolve::worker_of_another;
pub use slurm::gpus_per_node;

/// Where workers of one node meet.
const LOOPBACK: &str = "127.0.0.1";

/// The most nodes that a job can have.
pub const MAX_NODES: usize = 65_536;

/// What may say how the job is laid out; `--topology`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TopologyChoice {
    /// Arguments, else what the environment shows, else one node.
    #[default]
    Auto,
    /// Arguments only, with torchrun's `PET_*` variables.
    Static,
    /// A Slurm job step.
    Slurm,
    /// A pod of an Indexed Job, of a JobSet or of the PyTorchJob operator.
    Kubernetes,
    /// mpirun, or a PMI or PMIx launcher.
    Mpi,
    /// One node, whatever the environment says.
    None,
}

impl TopologyChoice {
    /// All of them with their names.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Auto, "auto"),
        (Self::Static, "static"),
        (Self::Slurm, "slurm"),
        (Self::Kubernetes, "kubernetes"),
        (Self::Mpi, "mpi"),
        (Self::None, "none"),
    ];
}

impl fmt::Display for TopologyChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(choice, _)| choice == self).map_or("", |(_, name)| name);
        f.pad(name)
    }
}

/// A text names no [`TopologyChoice`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid topology `{}`: expected auto, static, slurm, kubernetes, mpi or none", escape_line(.text))]
pub struct ParseTopologyChoiceError {
    /// What was given.
    pub text: String,
}

impl FromStr for TopologyChoice {
    type Err = ParseTopologyChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.iter().find(|(_, name)| *name == text).map(|(choice, _)| *choice);
        found.ok_or_else(|| ParseTopologyChoiceError { text: text.to_owned() })
    }
}

/// What the user says about the nodes; what is `None` is left to the environment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopologyArgs {
    /// Where the rest may come from.
    pub choice: TopologyChoice,
    /// How many nodes; `--nnodes`.
    pub nodes: Option<usize>,
    /// Which one this is, from 0; `--node-rank`.
    pub node_rank: Option<usize>,
    /// Where rank 0 listens; `--master-addr`.
    pub master_addr: Option<String>,
    /// Where rank 0 of a single node listens, if no argument says it otherwise; `--local-addr`.
    pub local_addr: Option<String>,
    /// At which port, 1 to 65535; `--master-port`.
    pub master_port: Option<u16>,
    /// The run's id, the same on all nodes; `--rdzv-id`.
    pub run_id: Option<String>,
    /// One node on its own, whatever the environment says; `--standalone`.
    pub standalone: bool,
}

/// Who says how the job is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TopologySource {
    /// Nobody: it is one node.
    OneNode,
    /// Arguments, or torchrun's `PET_*` variables.
    Static,
    /// Slurm.
    Slurm,
    /// Kubernetes.
    Kubernetes,
    /// Open MPI's mpirun.
    OpenMpi,
    /// A launcher that speaks PMI, such as MPICH's or Intel's mpiexec.
    Pmi,
    /// A launcher that speaks PMIx.
    Pmix,
}

impl TopologySource {
    fn name(self) -> &'static str {
        match self {
            Self::OneNode => "one node",
            Self::Static => "static",
            Self::Slurm => "slurm",
            Self::Kubernetes => "kubernetes",
            Self::OpenMpi => "open mpi",
            Self::Pmi => "pmi",
            Self::Pmix => "pmix",
        }
    }
}

impl fmt::Display for TopologySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for TopologySource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The port at which the workers meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MasterPort {
    /// This one.
    Fixed(u16),
    /// One that is free when the group starts; only where there is one node, as nobody else has to know it.
    Free,
}

impl fmt::Display for MasterPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(port) => write!(f, "{port}"),
            Self::Free => f.pad("free"),
        }
    }
}

impl Serialize for MasterPort {
    /// A number, or null for a free one.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed(port) => serializer.serialize_u16(*port),
            Self::Free => serializer.serialize_none(),
        }
    }
}

/// How a job is laid out, seen from one of its nodes.
///
/// `Display` is what `rankrun topology` prints: each value with where it is from. As JSON it is an object of its fields.
///
/// ```
/// use rankrun_launcher::{Env, Topology, TopologyArgs};
///
/// let env: Env = [
///     ("SLURM_JOB_ID", "4242"), ("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "1"), ("SLURM_NODEID", "1"),
///     ("SLURM_STEP_NUM_NODES", "2"), ("SLURM_STEP_NODELIST", "gpu[07-08]"), ("SLURM_STEP_TASKS_PER_NODE", "1(x2)"),
/// ].into_iter().map(|(name, value)| (name.into(), value.into())).collect();
/// let topology = Topology::resolve(&TopologyArgs::default(), 8, &env, "gpu08")?;
/// assert_eq!((topology.nodes, topology.node_rank, topology.master_addr.as_str()), (2, 1, "gpu07"));
/// assert_eq!((topology.rank(3), topology.world_size()), (11, 16));
/// # Ok::<(), rankrun_launcher::TopologyError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// How many nodes the job has, 1 to [`MAX_NODES`].
    pub nodes: usize,
    /// Which one this is, from 0.
    pub node_rank: usize,
    /// How many workers each node has.
    pub local_world_size: usize,
    /// The host, or its address, where rank 0 listens.
    pub master_addr: String,
    /// The port where it does.
    pub master_port: MasterPort,
    /// The run's id, the same on all nodes; `None` where nobody gives one.
    pub run_id: Option<String>,
    /// How often the engine has started the job before.
    pub restart_count: u64,
    /// Who says so.
    pub source: TopologySource,
    /// By field, where its value is from: an argument, a variable, or what it was made of.
    pub origins: BTreeMap<&'static str, String>,
    /// What may surprise, a line each.
    pub notes: Vec<String>,
}

impl Topology {
    /// One node with this many workers, which meet at a free port of the loopback interface.
    #[must_use]
    pub fn one_node(local_world_size: usize) -> Self {
        Self {
            nodes: 1,
            node_rank: 0,
            local_world_size,
            master_addr: LOOPBACK.to_owned(),
            master_port: MasterPort::Free,
            run_id: None,
            restart_count: 0,
            source: TopologySource::OneNode,
            origins: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    /// The rank of a worker of this node among all workers of the job.
    #[must_use]
    pub fn rank(&self, local_rank: usize) -> usize {
        self.node_rank * self.local_world_size + local_rank
    }

    /// How many workers the job has.
    #[must_use]
    pub fn world_size(&self) -> usize {
        self.nodes * self.local_world_size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_read_as_it_is_shown_and_what_is_none_is_refused() {
        for (choice, name) in TopologyChoice::ALL {
            assert_eq!((choice.to_string(), name.parse()), (name.to_owned(), Ok(choice)));
        }
        let error = "pbs".parse::<TopologyChoice>().unwrap_err().to_string();
        assert!(error.contains("`pbs`") && error.contains("slurm"), "{error}");
    }

    #[test]
    fn ranks_go_on_from_node_to_node() {
        let topology = Topology { nodes: 3, node_rank: 2, ..Topology::one_node(4) };
        assert_eq!((topology.rank(0), topology.rank(3), topology.world_size()), (8, 11, 12));
    }
}
