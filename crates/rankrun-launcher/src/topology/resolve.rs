//! Arguments, environment and host's name made into one [`Topology`]: [`Topology::resolve`], pure. Not here: what each
//! engine's variables mean (`slurm`, `kubernetes`, `mpi`).

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;

use rankrun::{Env, env};

use super::port::STATIC_PORT;
use super::vars::{Field, Vars, invalid};
use super::{
    LOOPBACK, MAX_NODES, MasterPort, Topology, TopologyArgs, TopologyChoice, TopologyError, TopologySource, kubernetes,
    mpi, slurm,
};

/// What an engine's environment says.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) source: TopologySource,
    /// By what it was known, with its value.
    pub(super) seen: String,
    pub(super) nodes: Option<Field<usize>>,
    pub(super) node_rank: Option<Field<usize>>,
    /// Or why it does not say.
    pub(super) master_addr: Result<Field<String>, String>,
    pub(super) master_port: Option<Field<u16>>,
    pub(super) run_id: Option<Field<String>>,
    pub(super) restart_count: Option<Field<u64>>,
    pub(super) notes: Vec<String>,
}

/// Where a value is from that nobody gave.
const ONE_NODE: &str = "one node";

/// Arguments, or the `PET_*` variables that stand for them.
struct Given {
    nodes: Option<Field<usize>>,
    node_rank: Option<Field<usize>>,
    master_addr: Option<Field<String>>,
    master_port: Option<Field<u16>>,
    run_id: Option<Field<String>>,
}

/// Variables that a launcher gives to its workers only, by which a rankrun knows that it is one.
pub(crate) const OF_A_WORKER: [&str; 3] = [env::RANKRUN_GROUP, env::TORCHELASTIC_RUN_ID, env::LOCAL_RANK];

/// By what this is a worker of another launcher, if it is.
pub(super) fn is_worker(vars: Vars<'_>) -> Option<&'static str> {
    OF_A_WORKER.into_iter().find(|name| vars.has(name))
}

/// The variable by which this environment is that of another launcher's worker; `None` if it is of none.
///
/// What such an environment says of nodes, `PET_NNODES` and the like, is the other launcher's: [`Topology::resolve`] leaves
/// it aside, and so must who makes arguments of variables.
#[must_use]
pub fn worker_of_another(env: &Env) -> Option<&'static str> {
    is_worker(Vars(env))
}

impl Topology {
    /// Finds how the job is laid out. Pure: of the arguments, this environment and this host's name alone.
    ///
    /// Each value is an argument, or torchrun's `PET_*` variable for it, or the engine's, or that of one node. Engines are
    /// looked for in this order: Open MPI's mpirun and mpiexecs that count their processes on each host, Slurm, Kubernetes,
    /// other launchers with PMI or PMIx. `MASTER_ADDR` and `MASTER_PORT` of the environment hold where no argument does.
    ///
    /// - One node, said by an argument, is one node also within a job of more.
    /// - Arguments that say how many nodes there are, which one this is and where they meet need no engine.
    /// - Where rankrun is itself a worker of a launcher (`RANKRUN_GROUP`, `TORCHELASTIC_RUN_ID` or `LOCAL_RANK` are set), the
    ///   environment is that launcher's: only arguments count, unless the choice names an engine. Where a worker has started a
    ///   step of an engine, what that says counts: see [`step_within_worker`](crate::step_within_worker), and give the environment
    ///   [`without_worker`](crate::without_worker).
    /// - The port of several nodes is made of the job's id ([`DERIVED_PORTS`](super::DERIVED_PORTS)), or is
    ///   [`STATIC_PORT`]; one node takes a free one.
    ///
    /// `hostname`: with its domain, where that is known ([`host_name`](crate::host_name)); `local_world_size`: 1 or more.
    ///
    /// # Errors
    /// [`TopologyError`], which names the variable or argument and its value.
    pub fn resolve(
        args: &TopologyArgs,
        local_world_size: usize,
        env: &Env,
        hostname: &str,
    ) -> Result<Self, TopologyError> {
        let empty = Env::new();
        let mut notes = Vec::new();
        let alone = args.standalone || args.choice == TopologyChoice::None;
        let mut vars = Vars(env);
        if let (Some(name), TopologyChoice::Auto | TopologyChoice::Static) = (is_worker(vars), args.choice) {
            notes.push(format!(
                "this is a worker of another launcher ({name} is set), whose variables are not this run's"
            ));
            vars = Vars(&empty);
        }
        let given = given(args, if alone { Vars(&empty) } else { vars })?;
        if alone {
            // Nobody else is to meet this run.
            let vars = if args.standalone { Vars(&empty) } else { vars };
            let found = one_node(args, given, vars, local_world_size, notes)?;
            return Ok(found.at_own_address(args));
        }
        let engine = engine(args.choice, &given, vars, hostname)?;
        Ok(merge(given, engine, vars, local_world_size, notes)?.at_own_address(args))
    }

    /// With the address that a single node has, where no argument says another.
    fn at_own_address(mut self, args: &TopologyArgs) -> Self {
        let is_open =
            self.origins.get("master_addr").is_none_or(|from| [ONE_NODE, env::MASTER_ADDR].contains(&from.as_str()));
        if let Some(own) = args.local_addr.clone().filter(|_| self.nodes == 1 && is_open) {
            self.master_addr = own;
            self.origins.insert("master_addr", "--local-addr".to_owned());
        }
        self
    }
}

fn given(args: &TopologyArgs, vars: Vars<'_>) -> Result<Given, TopologyError> {
    let given = Given {
        nodes: pick(args.nodes, "--nnodes", "PET_NNODES", vars, |text| {
            // torchrun's MIN:MAX, of which only the same number twice is fixed.
            let (least, most) = text.split_once(':').unwrap_or((text, text));
            (least == most).then_some(most)?.parse().ok()
        })?,
        node_rank: pick(args.node_rank, "--node-rank", "PET_NODE_RANK", vars, |text| text.parse().ok())?,
        master_addr: pick(args.master_addr.clone(), "--master-addr", "PET_MASTER_ADDR", vars, |text| {
            Some(text.to_owned())
        })?,
        master_port: pick(args.master_port, "--master-port", "PET_MASTER_PORT", vars, |text| text.parse().ok())?,
        run_id: pick(args.run_id.clone(), "--rdzv-id", "PET_RDZV_ID", vars, |text| Some(text.to_owned()))?,
    };
    if let Some(nodes) = given.nodes.as_ref().filter(|nodes| !(1..=MAX_NODES).contains(&nodes.value)) {
        return Err(wrong(nodes, &format!("a fixed number of nodes from 1 to {MAX_NODES}")));
    }
    for text in [&given.master_addr, &given.run_id].into_iter().flatten() {
        if text.value.is_empty() || text.value.contains('\0') {
            return Err(wrong(text, "a text without NUL bytes that is not empty"));
        }
    }
    match &given.master_port {
        Some(port) if port.value == 0 => Err(wrong(port, "a port from 1 to 65535")),
        _ => Ok(given),
    }
}

/// An argument, or a variable that stands for it. A variable with the argument's value is where it is from: programs that
/// take the one for the other need not tell them apart.
fn pick<T: PartialEq>(
    arg: Option<T>,
    option: &str,
    name: &str,
    vars: Vars<'_>,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<Field<T>>, TopologyError> {
    let variable = vars.text(name);
    match (arg, variable) {
        (Some(arg), Some(variable)) if read(variable.value.trim()).as_ref() == Some(&arg) => {
            Ok(Some(Field::new(arg, name)))
        }
        (Some(arg), _) => Ok(Some(Field::new(arg, option))),
        (None, Some(variable)) => match read(variable.value.trim()) {
            Some(value) => Ok(Some(Field::new(value, name))),
            None => {
                let expected = format!("what {option} takes, of a fixed number of nodes");
                Err(invalid(variable, &expected))
            }
        },
        (None, None) => Ok(None),
    }
}

fn wrong<T: Display>(field: &Field<T>, expected: &str) -> TopologyError {
    TopologyError::Invalid { name: field.from.clone(), value: field.value.to_string(), expected: expected.to_owned() }
}

/// One node because the user says so.
fn one_node(
    args: &TopologyArgs,
    given: Given,
    vars: Vars<'_>,
    local_world_size: usize,
    notes: Vec<String>,
) -> Result<Topology, TopologyError> {
    let one = if args.standalone { "--standalone" } else { "--topology none" };
    let more = given.nodes.as_ref().filter(|nodes| nodes.value > 1).map(Field::shown);
    let more = more.or_else(|| given.node_rank.as_ref().filter(|rank| rank.value > 0).map(Field::shown));
    if let Some(other) = more {
        return Err(TopologyError::OneNode { one, other });
    }
    let given = Given { nodes: Some(Field::new(1, one)), node_rank: None, ..given };
    merge(given, None, vars, local_world_size, notes)
}

/// The engine, if there is one and it is needed.
fn engine(
    choice: TopologyChoice,
    given: &Given,
    vars: Vars<'_>,
    hostname: &str,
) -> Result<Option<Engine>, TopologyError> {
    let needed = match &given.nodes {
        Some(nodes) if nodes.value == 1 => false,
        Some(_) => given.node_rank.is_none() || given.master_addr.is_none(),
        None => true,
    };
    let (found, expected) = match choice {
        TopologyChoice::Static | TopologyChoice::None => return Ok(None),
        TopologyChoice::Auto if !needed => return Ok(None),
        TopologyChoice::Auto => {
            if let Some(engine) = mpi::detect_launcher(vars)? {
                return Ok(Some(engine));
            }
            if let Some(engine) = slurm::detect(vars)? {
                return Ok(Some(engine));
            }
            if let Some(engine) = kubernetes::detect(vars, hostname, false)? {
                return Ok(Some(engine));
            }
            return mpi::detect(vars);
        }
        TopologyChoice::Slurm => (slurm::detect(vars)?, slurm::EXPECTED),
        TopologyChoice::Kubernetes => (kubernetes::detect(vars, hostname, true)?, kubernetes::EXPECTED),
        TopologyChoice::Mpi => {
            let found = mpi::detect_launcher(vars)?;
            (if found.is_some() { found } else { mpi::detect(vars)? }, mpi::EXPECTED)
        }
    };
    found.map(Some).ok_or(TopologyError::NotThere { choice, expected })
}

/// Everything together. What is left open is that of one node, or missing.
fn merge(
    given: Given,
    engine: Option<Engine>,
    vars: Vars<'_>,
    local_world_size: usize,
    mut notes: Vec<String>,
) -> Result<Topology, TopologyError> {
    let mut origins = BTreeMap::new();
    let (nodes, node_rank) = place(&given, engine.as_ref(), vars, local_world_size)?;
    let source = match &engine {
        Some(engine) => engine.source,
        None if given.nodes.is_some() => TopologySource::Static,
        None => TopologySource::OneNode,
    };
    let mut port = given.master_port;
    let mut addr = given.master_addr;
    if addr.is_none() {
        addr = vars.unicode(env::MASTER_ADDR, "a host's name or address")?;
    }
    if port.is_none() {
        port = port_of(vars)?;
    }
    let (mut run_id, mut restart_count) = (given.run_id, None);
    if let Some(engine) = engine {
        notes.extend(engine.notes);
        run_id = run_id.or(engine.run_id);
        restart_count = engine.restart_count;
        if nodes.value > 1 {
            port = port.or(engine.master_port);
            if addr.is_none() {
                let why = |why| TopologyError::NoMaster { nodes: nodes.value, why };
                addr = Some(engine.master_addr.map_err(why)?);
            }
        }
    }
    if nodes.value > 1 {
        port = port.or_else(|| Some(Field::new(STATIC_PORT, "torchrun's default")));
        if addr.is_none() {
            return Err(TopologyError::Half { given: nodes.shown(), missing: "--master-addr" });
        }
    }
    if nodes.value > 1 {
        notes.extend(contradictions(vars, nodes.value, node_rank.value, local_world_size));
        notes.extend(addr.as_ref().and_then(|addr| own_address(addr, nodes.value)));
    }
    let mut known = |field: &'static str, from: &str| drop(origins.insert(field, from.to_owned()));
    known("nodes", &nodes.from);
    known("node_rank", &node_rank.from);
    known("master_addr", addr.as_ref().map_or(ONE_NODE, |addr| addr.from.as_str()));
    known("master_port", port.as_ref().map_or(ONE_NODE, |port| port.from.as_str()));
    if let Some(run_id) = &run_id {
        known("run_id", &run_id.from);
    }
    if let Some(count) = &restart_count {
        known("restart_count", &count.from);
    }
    Ok(Topology {
        nodes: nodes.value,
        node_rank: node_rank.value,
        local_world_size,
        master_addr: addr.map_or_else(|| LOOPBACK.to_owned(), |addr| addr.value),
        master_port: port.map_or(MasterPort::Free, |port| MasterPort::Fixed(port.value)),
        run_id: run_id.map(|run_id| run_id.value),
        restart_count: restart_count.map_or(0, |count| count.value),
        source,
        origins,
        notes,
    })
}

/// How many nodes there are and which one this is.
fn place(
    given: &Given,
    engine: Option<&Engine>,
    vars: Vars<'_>,
    local_world_size: usize,
) -> Result<(Field<usize>, Field<usize>), TopologyError> {
    let by_engine = engine.and_then(|engine| engine.nodes.clone());
    // Who says both, says it of another job than the engine's, or of a part of it.
    if let (Some(one), Some(other), None) = (&given.nodes, &by_engine, &given.node_rank)
        && one.value != other.value
        && one.value > 1
    {
        let (one, other) = (one.shown(), other.shown());
        return Err(TopologyError::Disagree { what: "how many nodes there are", one, other });
    }
    let nodes = match (given.nodes.clone().or(by_engine), engine) {
        (Some(nodes), _) => nodes,
        (None, Some(engine)) => return Err(TopologyError::NoNodes { seen: engine.seen.clone() }),
        (None, None) => Field::new(1, ONE_NODE),
    };
    // A variable is handed on to all nodes as it is, and is of the same job if that has as many.
    let same_job =
        engine.and_then(|engine| engine.nodes.as_ref()).is_some_and(|by_engine| by_engine.value == nodes.value);
    let is_of_all = |rank: &Field<usize>| same_job && rank.from.starts_with("PET_");
    let by_engine = engine.and_then(|engine| engine.node_rank.clone());
    let node_rank = match (&given.node_rank, by_engine, engine) {
        (Some(one), Some(other), _) if (given.nodes.is_none() || is_of_all(one)) && one.value != other.value => {
            let (one, other) = (one.shown(), other.shown());
            return Err(TopologyError::Disagree { what: "which node this is", one, other });
        }
        (Some(rank), _, _) => rank.clone(),
        _ if nodes.value == 1 => Field::new(0, ONE_NODE),
        (None, Some(rank), _) => rank,
        (None, None, Some(engine)) => return Err(TopologyError::NoNodeRank { seen: engine.seen.clone() }),
        (None, None, None) => return Err(TopologyError::Half { given: nodes.shown(), missing: "--node-rank" }),
    };
    if node_rank.value >= nodes.value {
        if given.nodes.is_none() && engine.is_none() {
            return Err(TopologyError::Half { given: node_rank.shown(), missing: "--nnodes" });
        }
        let (node_rank, last, nodes) = (node_rank.shown(), nodes.value - 1, nodes.shown());
        return Err(TopologyError::NoSuchNode { node_rank, nodes, last });
    }
    if given.nodes.is_some() && nodes.value > 1 {
        kubernetes::agree(vars, &nodes, &node_rank, local_world_size)?;
    }
    Ok((nodes, node_rank))
}

/// What `WORLD_SIZE` and `RANK` say of another job than this: left over in a shell, or made by a script for one worker on each
/// node. Workers get what is right, as from torchrun, so that it is a note.
fn contradictions(vars: Vars<'_>, nodes: usize, node_rank: usize, local_world_size: usize) -> Vec<String> {
    let differs = |name: &str, of_nodes: usize, of_workers: usize| {
        let text = vars.text(name)?;
        let value = text.value.trim().parse::<usize>().ok();
        (value != Some(of_nodes) && value != Some(of_workers)).then_some((text, of_workers))
    };
    let size = differs(env::WORLD_SIZE, nodes, nodes * local_world_size);
    let size = size.map(|(text, right)| {
        let what = format!("{nodes} nodes with {local_world_size} workers each");
        format!("{} of the environment is not that of {what}: workers get {}={right}", text.shown(), text.from)
    });
    let rank = differs(env::RANK, node_rank, node_rank * local_world_size);
    let rank = rank.map(|(text, right)| {
        format!(
            "{} of the environment is not that of node {node_rank}: workers get {}={right} and up",
            text.shown(),
            text.from
        )
    });
    size.into_iter().chain(rank).collect()
}

/// An address of the environment that means each node itself; an argument says what it says.
fn own_address(addr: &Field<String>, nodes: usize) -> Option<String> {
    let is_loopback = addr.value == "localhost" || addr.value.parse::<IpAddr>().is_ok_and(|addr| addr.is_loopback());
    (addr.from == env::MASTER_ADDR && is_loopback).then(|| {
        format!("{} of the environment is each host itself: workers of {nodes} nodes do not meet there, unless they are on one host", addr.shown())
    })
}

fn port_of(vars: Vars<'_>) -> Result<Option<Field<u16>>, TopologyError> {
    let Some(text) = vars.text(env::MASTER_PORT) else { return Ok(None) };
    match text.value.trim().parse::<u16>() {
        Ok(port) if port > 0 => Ok(Some(Field::new(port, text.from))),
        _ => Err(invalid(text, "a port from 1 to 65535")),
    }
}
