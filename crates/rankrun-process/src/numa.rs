//! Which CPUs each worker of a host gets, by the host's NUMA nodes: [`NumaBinding`] and [`NumaTopology`].
//!
//! All of it is computing with what was read. Not here: reading it (`sysfs`), and binding a worker (`placement`).

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rankrun_types::escape_line;

use crate::{CpuSet, ParseCpuSetError, sysfs};

/// What each worker is bound to. Mirrors torch's `torch.numa.binding.AffinityMode` and its names.
///
/// The NUMA node of a worker is that of the GPU whose index is its local rank; without GPUs, the workers are spread over
/// the nodes evenly and in order.
///
/// ```
/// use rankrun_process::NumaBinding;
///
/// assert_eq!("core-complex".parse(), Ok(NumaBinding::CoreComplex));
/// assert_eq!(
///     "numa".parse::<NumaBinding>().unwrap_err().to_string(),
///     "unknown NUMA binding `numa`: expected one of node, socket, exclusive, core-complex",
/// );
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NumaBinding {
    /// To all CPUs of its node.
    Node,
    /// To all CPUs of all nodes on the socket of its node.
    Socket,
    /// To cores that no other worker gets: those of its node, divided evenly among the node's workers.
    Exclusive,
    /// To the CPUs of its node that share one largest-level cache; the node's workers take turns, the largest such set
    /// first.
    CoreComplex,
}

/// A text names no [`NumaBinding`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown NUMA binding `{}`: expected one of {}", escape_line(text), NumaBinding::ALL.map(NumaBinding::name).join(", "))]
#[non_exhaustive]
pub struct ParseNumaBindingError {
    /// The text.
    pub text: String,
}

impl NumaBinding {
    /// All bindings.
    pub const ALL: [Self; 4] = [Self::Node, Self::Socket, Self::Exclusive, Self::CoreComplex];

    /// The name that torchrun has for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Socket => "socket",
            Self::Exclusive => "exclusive",
            Self::CoreComplex => "core-complex",
        }
    }
}

impl fmt::Display for NumaBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for NumaBinding {
    type Err = ParseNumaBindingError;

    fn from_str(text: &str) -> Result<Self, ParseNumaBindingError> {
        let known = Self::ALL.into_iter().find(|binding| binding.name() == text);
        known.ok_or_else(|| ParseNumaBindingError { text: text.to_owned() })
    }
}

/// A worker's CPUs could not be found; it can still be started unbound.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NumaError {
    /// A file or directory of sysfs could not be read; ENOENT where the kernel does not tell of NUMA or caches.
    #[error("cannot read `{}`: {}", path.display(), std::io::Error::from_raw_os_error(*errno))]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The errno.
        errno: i32,
    },
    /// A file of sysfs should hold a list of CPUs and does not.
    #[error("in `{}`", path.display())]
    CpuList {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ParseCpuSetError,
    },
    /// A file of sysfs should hold one number and does not.
    #[error("in `{}`: expected a number, found `{}`", path.display(), escape_line(text))]
    Number {
        /// The file.
        path: PathBuf,
        /// The start of what is in it.
        text: String,
    },
    /// There is no NUMA node in this directory.
    #[error("no NUMA node in `{}`", path.display())]
    NoNodes {
        /// The directory.
        path: PathBuf,
    },
    /// The CPU has no cache that sysfs tells of.
    #[error("no cache of CPU {cpu} in `{}`", path.display())]
    NoCache {
        /// The CPU.
        cpu: u32,
        /// The directory of its caches.
        path: PathBuf,
    },
    /// No NUMA node has a CPU that may be used.
    #[error("no NUMA node has any of the allowed CPUs {allowed}")]
    NoAllowedCpu {
        /// The CPUs that may be used.
        allowed: CpuSet,
    },
    /// The worker's NUMA node, or socket, has no CPU that may be used.
    #[error("{what} {number} has none of the allowed CPUs {allowed}")]
    NotAllowed {
        /// `NUMA node` or `socket`.
        what: &'static str,
        /// Its number.
        number: i32,
        /// The CPUs that may be used.
        allowed: CpuSet,
    },
    /// A GPU is said to be on a NUMA node that the host does not have.
    #[error("GPU {gpu} is on NUMA node {node}, which does not exist")]
    NoSuchNode {
        /// The GPU's index.
        gpu: usize,
        /// The node's number.
        node: u32,
    },
    /// There are fewer GPUs than workers.
    #[error("local rank {local_rank} has no GPU: there are {gpus}")]
    NoGpu {
        /// The worker.
        local_rank: usize,
        /// How many GPUs there are.
        gpus: usize,
    },
    /// A NUMA node has fewer cores than workers, so that not each can have one of its own.
    #[error("NUMA node {node} has {cores} cores to be divided among {workers} workers")]
    TooFewCores {
        /// The node's number.
        node: u32,
        /// How many of its cores may be used.
        cores: usize,
        /// How many workers are on it.
        workers: usize,
    },
    /// The local rank is not below the local world size.
    #[error("no local rank {local_rank} in a group of {local_world_size}")]
    NoSuchRank {
        /// The worker.
        local_rank: usize,
        /// How many workers there are.
        local_world_size: usize,
    },
}

/// A host's NUMA nodes and, where the binding needs them, its sockets, cores or caches, as far as their CPUs are allowed.
///
/// Read it once, then ask it for each worker: the answers are those of one moment and fit together.
///
/// ```
/// use rankrun_process::{CpuSet, NumaBinding, NumaTopology};
///
/// let allowed = CpuSet::allowed()?;
/// match NumaTopology::read("/sys", NumaBinding::Node, &allowed).and_then(|topology| topology.cpus(0, 2, None)) {
///     Ok(cpus) => assert!(cpus.is_subset(&allowed)),
///     Err(error) => eprintln!("local rank 0 is not bound: {error}"),
/// }
/// # Ok::<(), rankrun_process::AllowedCpusError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumaTopology {
    allowed: CpuSet,
    /// Each node's allowed CPUs; a node may have none.
    nodes: BTreeMap<u32, CpuSet>,
    units: Units,
}

/// What the binding goes by, beside the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Units {
    None,
    /// The socket of each node that has CPUs, allowed or not. -1 where the firmware does not tell.
    SocketOfNode(BTreeMap<u32, i32>),
    /// The core of each allowed CPU, known by its lowest CPU, allowed or not.
    CoreOfCpu(BTreeMap<u32, u32>),
    /// The largest-level cache of each allowed CPU, known in the same way.
    CacheOfCpu(BTreeMap<u32, u32>),
}

impl NumaTopology {
    /// Reads what the binding needs and no more, below `sysfs`, which is `/sys` but for tests.
    ///
    /// `allowed` is what the workers may use at most, usually [`CpuSet::allowed`]. Files read:
    /// `devices/system/node/node*/cpulist`, and for each allowed CPU (a node's first CPU for the socket)
    /// `devices/system/cpu/cpu*/topology/{physical_package_id,thread_siblings_list}` or
    /// `devices/system/cpu/cpu*/cache/index*/{level,type,shared_cpu_list}`.
    ///
    /// # Errors
    /// [`NumaError`] where something cannot be read or is not what it should be.
    pub fn read(sysfs: impl AsRef<Path>, binding: NumaBinding, allowed: &CpuSet) -> Result<Self, NumaError> {
        let sysfs = sysfs.as_ref();
        let all = sysfs::nodes(sysfs)?;
        let nodes: BTreeMap<_, _> = all.iter().map(|(node, cpus)| (*node, cpus.intersection(allowed))).collect();
        let cpus = || nodes.values().flat_map(CpuSet::iter);
        let units = match binding {
            NumaBinding::Node => Units::None,
            NumaBinding::Socket => {
                let first_cpus = all.iter().filter_map(|(node, cpus)| Some((*node, cpus.first()?)));
                let sockets = first_cpus.map(|(node, cpu)| Ok((node, sysfs::socket(sysfs, cpu)?)));
                Units::SocketOfNode(sockets.collect::<Result<_, NumaError>>()?)
            }
            NumaBinding::Exclusive => {
                let cores = cpus().map(|cpu| Ok((cpu, sysfs::core(sysfs, cpu)?)));
                Units::CoreOfCpu(cores.collect::<Result<_, NumaError>>()?)
            }
            NumaBinding::CoreComplex => {
                let caches = cpus().map(|cpu| Ok((cpu, sysfs::largest_cache(sysfs, cpu)?)));
                Units::CacheOfCpu(caches.collect::<Result<_, NumaError>>()?)
            }
        };
        Ok(Self { allowed: allowed.clone(), nodes, units })
    }

    /// The CPUs for the worker `local_rank` of `local_world_size`: some of the allowed ones, never none.
    ///
    /// `gpu_nodes` is each GPU's NUMA node in the order of the GPUs' indices as the workers count them; see
    /// [`gpu_numa_nodes`](crate::gpu_numa_nodes). Without it, worker i of n is on the node at i * nodes / n among those that have
    /// an allowed CPU.
    ///
    /// With [`NumaBinding::Exclusive`], the cores of a node go to its workers in order, whole, with all their allowed
    /// threads, and the first workers get one more where the division leaves a remainder. (torch divides by the node's
    /// GPUs, used or not; here it is by its workers.)
    ///
    /// # Errors
    /// [`NumaError`] where there is no such set of CPUs.
    pub fn cpus(
        &self,
        local_rank: usize,
        local_world_size: usize,
        gpu_nodes: Option<&[u32]>,
    ) -> Result<CpuSet, NumaError> {
        if local_rank >= local_world_size {
            return Err(NumaError::NoSuchRank { local_rank, local_world_size });
        }
        let usable: Vec<u32> = self.nodes.iter().filter(|(_, cpus)| !cpus.is_empty()).map(|(node, _)| *node).collect();
        if usable.is_empty() {
            return Err(NumaError::NoAllowedCpu { allowed: self.allowed.clone() });
        }
        let node_of = |rank: usize| match gpu_nodes {
            Some(gpus) => gpus.get(rank).copied(),
            None => Some(usable[spread(rank, local_world_size, usable.len())]),
        };
        let gpus = gpu_nodes.map_or(0, <[u32]>::len);
        let node = node_of(local_rank).ok_or(NumaError::NoGpu { local_rank, gpus })?;
        let cpus = self.nodes.get(&node).ok_or(NumaError::NoSuchNode { gpu: local_rank, node })?;
        // Among the workers of the same node: how many there are, and how many come before this one.
        let place = || {
            let on_node = |ranks: std::ops::Range<usize>| ranks.filter(|rank| node_of(*rank) == Some(node)).count();
            (on_node(0..local_rank), on_node(0..local_world_size))
        };
        let chosen = match &self.units {
            Units::None => cpus.clone(),
            Units::SocketOfNode(socket_of) => return self.socket(node, socket_of),
            Units::CoreOfCpu(core_of) => {
                let cores = grouped(cpus, core_of);
                let (index, workers) = place();
                // A node without CPUs is told of as such, below.
                if cores.len() < workers && !cores.is_empty() {
                    return Err(NumaError::TooFewCores { node, cores: cores.len(), workers });
                }
                let (each, more) = (cores.len() / workers, cores.len() % workers);
                let (start, count) = (index * each + index.min(more), each + usize::from(index < more));
                cores.values().skip(start).take(count).flat_map(CpuSet::iter).collect()
            }
            Units::CacheOfCpu(cache_of) => {
                let mut complexes: Vec<CpuSet> = grouped(cpus, cache_of).into_values().collect();
                // Stable: sets of one size stay in the order of their CPUs.
                complexes.sort_by_key(|cpus| std::cmp::Reverse(cpus.len()));
                let turn = place().0.checked_rem(complexes.len());
                turn.map(|turn| complexes.swap_remove(turn)).unwrap_or_default()
            }
        };
        self.not_empty("NUMA node", node as i32, chosen)
    }

    fn socket(&self, node: u32, socket_of: &BTreeMap<u32, i32>) -> Result<CpuSet, NumaError> {
        let Some(socket) = socket_of.get(&node) else {
            return self.not_empty("NUMA node", node as i32, CpuSet::new());
        };
        let same = self.nodes.iter().filter(|(node, _)| socket_of.get(node) == Some(socket));
        self.not_empty("socket", *socket, same.flat_map(|(_, cpus)| cpus.iter()).collect())
    }

    fn not_empty(&self, what: &'static str, number: i32, cpus: CpuSet) -> Result<CpuSet, NumaError> {
        if cpus.is_empty() {
            Err(NumaError::NotAllowed { what, number, allowed: self.allowed.clone() })
        } else {
            Ok(cpus)
        }
    }
}

/// Which of `nodes` the worker `rank` of `workers` is on, so that each gets as many as the next, in order.
fn spread(rank: usize, workers: usize, nodes: usize) -> usize {
    // In u128 the product cannot overflow; the result is below `nodes`, because rank is below workers.
    (rank as u128 * nodes as u128 / workers as u128) as usize
}

/// The CPUs that have the same unit, by unit.
fn grouped(cpus: &CpuSet, unit_of: &BTreeMap<u32, u32>) -> BTreeMap<u32, CpuSet> {
    let mut groups = BTreeMap::<u32, CpuSet>::new();
    for cpu in cpus.iter() {
        groups.entry(*unit_of.get(&cpu).unwrap_or(&cpu)).or_default().extend([cpu]);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Nodes of `cores` cores each with `threads` CPUs, numbered as hosts do it: all cores' first threads before the
    /// second ones; two cores share a cache, two nodes a socket.
    fn topology(binding: NumaBinding, nodes: u32, cores: u32, threads: u32, allowed: &CpuSet) -> NumaTopology {
        let all_cores = nodes * cores;
        let first_threads = |node: u32| node * cores..(node + 1) * cores;
        let with_threads = |core: u32| (0..threads).map(move |thread| core + thread * all_cores);
        let cpus = |node: u32| first_threads(node).flat_map(with_threads).collect::<CpuSet>().intersection(allowed);
        let cpu_units = |unit: fn(u32) -> u32| {
            (0..all_cores * threads).map(|cpu| (cpu, unit(cpu % all_cores))).collect::<BTreeMap<_, _>>()
        };
        let units = match binding {
            NumaBinding::Node => Units::None,
            NumaBinding::Socket => Units::SocketOfNode((0..nodes).map(|node| (node, node as i32 / 2)).collect()),
            NumaBinding::Exclusive => Units::CoreOfCpu(cpu_units(|core| core)),
            NumaBinding::CoreComplex => Units::CacheOfCpu(cpu_units(|core| core / 2)),
        };
        NumaTopology { allowed: allowed.clone(), nodes: (0..nodes).map(|node| (node, cpus(node))).collect(), units }
    }

    prop_compose! {
        fn hosts()(
            (nodes, cores, threads) in (1_u32..6, 1_u32..9, 1_u32..3),
            workers in 1_usize..20,
            kept in proptest::collection::vec(any::<bool>(), 5 * 8 * 2),
            all in any::<bool>(),
            gpus in proptest::option::of(proptest::collection::vec(0_u32..6, 0..20)),
        ) -> (u32, u32, u32, usize, CpuSet, Option<Vec<u32>>) {
            let keeps = |cpu: &u32| all || kept[*cpu as usize];
            (nodes, cores, threads, workers, (0..nodes * cores * threads).filter(keeps).collect(), gpus)
        }
    }

    proptest! {
        #[test]
        fn each_worker_gets_some_of_the_allowed_cpus_or_an_error(
            (nodes, cores, threads, workers, allowed, gpus) in hosts(),
        ) {
            for binding in NumaBinding::ALL {
                let topology = topology(binding, nodes, cores, threads, &allowed);
                for rank in 0..workers {
                    if let Ok(cpus) = topology.cpus(rank, workers, gpus.as_deref()) {
                        prop_assert!(!cpus.is_empty() && cpus.is_subset(&allowed), "{} {}: {}", binding, rank, cpus);
                    } else {
                        // Without GPUs only too many workers for exclusive cores, or no CPU at all, is an error.
                        prop_assert!(gpus.is_some() || binding == NumaBinding::Exclusive || allowed.is_empty());
                    }
                }
            }
        }

        #[test]
        fn exclusive_sets_are_disjoint_whole_cores_of_equal_number_and_cover_the_workers_nodes(
            (nodes, cores, threads, workers, allowed, gpus) in hosts(),
        ) {
            let topology = topology(NumaBinding::Exclusive, nodes, cores, threads, &allowed);
            let sets: Result<Vec<CpuSet>, _> =
                (0..workers).map(|rank| topology.cpus(rank, workers, gpus.as_deref())).collect();
            let Ok(sets) = sets else { return Ok(()) };
            let union: CpuSet = sets.iter().flat_map(CpuSet::iter).collect();
            prop_assert_eq!(sets.iter().map(CpuSet::len).sum::<usize>(), union.len(), "disjoint: {:?}", sets);
            let core_of = |cpu: u32| cpu % (nodes * cores);
            let core_sets: Vec<CpuSet> = sets.iter().map(|set| set.iter().map(core_of).collect()).collect();
            for (node, cpus) in &topology.nodes {
                let of_node = |set: &&CpuSet| set.first().is_some_and(|core| core / cores == *node);
                let counts: Vec<usize> = core_sets.iter().filter(of_node).map(CpuSet::len).collect();
                if counts.is_empty() {
                    continue;
                }
                prop_assert!(cpus.is_subset(&union), "node {} is covered by {:?}", node, sets);
                prop_assert!(counts.is_sorted_by(|a, b| a >= b) && counts[0] - counts[counts.len() - 1] <= 1);
                let node_cores: CpuSet = cpus.iter().map(core_of).collect();
                prop_assert_eq!(counts.iter().sum::<usize>(), node_cores.len(), "no core is shared: {:?}", sets);
            }
            if workers >= nodes as usize && gpus.is_none() {
                prop_assert_eq!(union, allowed);
            }
        }

        #[test]
        fn without_gpus_the_nodes_get_equally_many_workers_in_order(workers in 1_usize..70, nodes in 1_usize..12) {
            let placed: Vec<usize> = (0..workers).map(|rank| spread(rank, workers, nodes)).collect();
            prop_assert!(placed.is_sorted());
            let count = |node| placed.iter().filter(|placed| **placed == node).count();
            let counts: Vec<usize> = (0..nodes).map(count).collect();
            prop_assert_eq!(counts.iter().sum::<usize>(), workers);
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{:?}", counts);
        }
    }

    #[test]
    fn a_binding_is_read_back_from_its_name() {
        for binding in NumaBinding::ALL {
            assert_eq!(binding.to_string().parse(), Ok(binding));
        }
        for text in ["", "Node", "core_complex", "none"] {
            let error = text.parse::<NumaBinding>().unwrap_err();
            assert!(error.to_string().ends_with("expected one of node, socket, exclusive, core-complex"), "{error}");
        }
    }
}
