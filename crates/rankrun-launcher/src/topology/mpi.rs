//! What mpirun and the launchers that speak PMI or PMIx say: [`detect`]. Not here: what it means together with arguments.

use super::resolve::Engine;
use super::vars::{Field, Vars, node_count};
use super::{TopologyError, TopologySource, port, slurm};

/// The variables without which there is none.
pub(super) const EXPECTED: &str = "OMPI_COMM_WORLD_RANK, PMI_RANK or PMIX_RANK";

/// Ids of a job, in the order of preference; PBS, LSF and Slurm are where mpirun often runs.
const JOB_IDS: [&str; 5] = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"];

/// Open MPI's mpirun, or a mpiexec that counts its processes on each host. They know better than the batch system that
/// they run in, whose variables are those of the daemons.
pub(super) fn detect_launcher(vars: Vars<'_>) -> Result<Option<Engine>, TopologyError> {
    if let Some(rank) = vars.number("OMPI_COMM_WORLD_RANK")? {
        let size = vars.number("OMPI_COMM_WORLD_SIZE")?;
        let local = vars.number("OMPI_COMM_WORLD_LOCAL_SIZE")?;
        return engine(vars, TopologySource::OpenMpi, rank, size, local, "`mpirun --map-by ppr:1:node`").map(Some);
    }
    if !vars.has("MPI_LOCALNRANKS") {
        return Ok(None);
    }
    detect(vars)
}

/// Any launcher that speaks PMI or PMIx.
pub(super) fn detect(vars: Vars<'_>) -> Result<Option<Engine>, TopologyError> {
    if let Some(rank) = vars.number("PMI_RANK")? {
        let size = vars.number("PMI_SIZE")?;
        let local = vars.number("MPI_LOCALNRANKS")?;
        return engine(vars, TopologySource::Pmi, rank, size, local, "`mpiexec -ppn 1`").map(Some);
    }
    let Some(rank) = vars.number("PMIX_RANK")? else { return Ok(None) };
    engine(vars, TopologySource::Pmix, rank, None, None, "one process for each node").map(Some)
}

fn engine(
    vars: Vars<'_>,
    source: TopologySource,
    rank: Field<u64>,
    size: Option<Field<u64>>,
    local: Option<Field<u64>>,
    fix: &'static str,
) -> Result<Engine, TopologyError> {
    if let Some(local) = local.filter(|local| local.value > 1) {
        return Err(TopologyError::TasksPerNode { name: local.from, value: local.value.to_string(), fix });
    }
    let nodes = size.map(node_count).transpose()?;
    let job = vars.first(&JOB_IDS);
    Ok(Engine {
        source,
        seen: rank.shown(),
        master_addr: match &nodes {
            Some(nodes) if nodes.value > 1 => first_host(vars, nodes)?,
            _ => Err(NO_HOSTS.to_owned()),
        },
        nodes,
        node_rank: Some(Field::new(rank.value as usize, rank.from)),
        master_port: job.as_ref().map(|job| Field::new(port::derived(&job.value, 0), format!("made of {}", job.from))),
        run_id: job,
        restart_count: vars.number("SLURM_RESTART_COUNT")?,
        notes: Vec::new(),
    })
}

const NO_HOSTS: &str = "mpirun does not say it to its processes";

/// The first host of the batch system's list, where that is as long as there are nodes: then ranks go by it.
fn first_host(vars: Vars<'_>, nodes: &Field<usize>) -> Result<Result<Field<String>, String>, TopologyError> {
    match slurm::first_host(vars, &["SLURM_JOB_NODELIST"], nodes) {
        // Ranks may be on a part of the allocation; then the list says nothing.
        Ok(Err(_)) | Err(TopologyError::Disagree { .. }) => {}
        found => return found,
    }
    let Some(list) = vars.text("LSB_HOSTS") else { return Ok(Err(NO_HOSTS.to_owned())) };
    let mut hosts: Vec<&str> = list.value.split_ascii_whitespace().collect();
    hosts.dedup();
    Ok(match hosts.first() {
        Some(first) if hosts.len() == nodes.value => Ok(Field::new((*first).to_owned(), "first of LSB_HOSTS")),
        _ => Err(NO_HOSTS.to_owned()),
    })
}
