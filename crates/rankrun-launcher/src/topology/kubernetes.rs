//! What a pod's environment says: [`detect`]. Not here: what it means together with arguments (`resolve`).
//!
//! An Indexed Job, of a JobSet or alone, gives its pods `JOB_COMPLETION_INDEX` and names `<job>-<index>`; how many there
//! are it does not say. The PyTorchJob operator gives `MASTER_ADDR`, `MASTER_PORT`, `RANK` and `WORLD_SIZE`, which are a
//! pod's and not a worker's, and in later versions `PET_*` as well, which are arguments.

use super::resolve::Engine;
use super::vars::{Field, Vars, node_count};
use super::{TopologyError, TopologySource, port};

const INDEX: &str = "JOB_COMPLETION_INDEX";

/// The variables without which there is no job of several pods.
pub(super) const EXPECTED: &str = "JOB_COMPLETION_INDEX, nor RANK with WORLD_SIZE";

/// `forced`: the user says that this is a pod, so that `RANK` and `WORLD_SIZE` are its, and not somebody's else.
pub(super) fn detect(vars: Vars<'_>, hostname: &str, forced: bool) -> Result<Option<Engine>, TopologyError> {
    let is_pod = forced || vars.has("KUBERNETES_SERVICE_HOST");
    let operator = match (vars.number("RANK"), vars.number("WORLD_SIZE")) {
        (Ok(Some(rank)), Ok(Some(size))) if is_pod => Some((rank, size)),
        (Err(error), _) | (_, Err(error)) if is_pod => return Err(error),
        _ => None,
    };
    let restart_count = vars.number("JOBSET_RESTART_ATTEMPT")?;
    let index = vars.number(INDEX)?;
    if let (Some((rank, _)), Some(index)) = (&operator, &index)
        && rank.value != index.value
    {
        return Err(TopologyError::Disagree { what: "which node this is", one: rank.shown(), other: index.shown() });
    }
    if is_pod && operator.is_none() && index.is_none() {
        half(vars)?;
    }
    if let Some((rank, size)) = operator {
        return Ok(Some(Engine {
            source: TopologySource::Kubernetes,
            seen: rank.shown(),
            nodes: Some(node_count(size)?),
            node_rank: Some(Field::new(rank.value as usize, rank.from)),
            master_addr: Err("the PyTorchJob operator sets it".to_owned()),
            master_port: None,
            run_id: operator_job(hostname),
            restart_count,
            notes: Vec::new(),
        }));
    }
    let Some(index) = index else { return Ok(None) };
    let pod = Pod::new(vars, hostname, index.value);
    Ok(Some(Engine {
        source: TopologySource::Kubernetes,
        seen: if pod.has_rank { index.shown() } else { format!("{} of {}", index.shown(), pod.job) },
        nodes: None,
        node_rank: pod.has_rank.then(|| Field::new(index.value as usize, INDEX)),
        master_addr: pod.master(),
        // Each pod has its ports to itself.
        master_port: Some(Field::new(port::STATIC_PORT, "torchrun's default")),
        run_id: (!pod.run_id.is_empty()).then(|| Field::new(pod.run_id, "the pod's name")),
        restart_count,
        notes: Vec::new(),
    }))
}

/// Refuses one of `RANK` and `WORLD_SIZE` without the other, where it means more nodes than one.
fn half(vars: Vars<'_>) -> Result<(), TopologyError> {
    let (rank, size) = (vars.number("RANK")?, vars.number("WORLD_SIZE")?);
    match (rank, size) {
        (Some(rank), None) if rank.value > 0 => Err(TopologyError::Half { given: rank.shown(), missing: "WORLD_SIZE" }),
        (None, Some(size)) if size.value > 1 => Err(TopologyError::Half { given: size.shown(), missing: "RANK" }),
        _ => Ok(()),
    }
}

/// A pod of an Indexed Job, by its name.
struct Pod {
    /// The job's name; empty if the pod's name is not made of it.
    job: String,
    /// What follows the pod's name in the domain name system; empty if that is not known.
    domain: String,
    run_id: String,
    /// Whether the index is that of the node: not if the job is the second or a later one of several that are equal.
    has_rank: bool,
}

impl Pod {
    fn new(vars: Vars<'_>, hostname: &str, index: u64) -> Self {
        let (name, domain) = hostname.split_once('.').unwrap_or((hostname, ""));
        let job = name.strip_suffix(&format!("-{index}")).unwrap_or_default().to_owned();
        // A JobSet has a service of its own name unless told otherwise, and names jobs `<set>-<job>-<index>`.
        let set = vars.get("JOBSET_NAME").or_else(|| domain.split('.').next().map(str::to_owned));
        let set = set.filter(|set| !set.is_empty() && job.starts_with(&format!("{set}-")));
        let job_index = set.as_ref().and_then(|_| job.rsplit('-').next()).and_then(|index| index.parse::<u64>().ok());
        let domain = match (&set, domain) {
            (Some(set), "") => set.clone(),
            (_, domain) => domain.to_owned(),
        };
        let run_id = set.filter(|_| job_index.is_some()).unwrap_or_else(|| job.clone());
        Self { job, domain, run_id, has_rank: job_index.is_none_or(|index| index == 0) }
    }

    /// The name of the pod with index 0.
    fn master(&self) -> Result<Field<String>, String> {
        match (self.job.as_str(), self.domain.as_str()) {
            ("", _) => Err(format!("the pod's name does not end in its {INDEX}")),
            (_, "") => Err("the pod has no subdomain of a headless service, by which other pods find it".to_owned()),
            (job, domain) => Ok(Field::new(format!("{job}-0.{domain}"), "the pod's name")),
        }
    }
}

/// The name of a PyTorchJob, whose pods are `<job>-master-<n>` and `<job>-worker-<n>`.
fn operator_job(hostname: &str) -> Option<Field<String>> {
    let name = hostname.split('.').next()?;
    let (role, number) = name.rsplit_once('-')?;
    number.parse::<u64>().ok()?;
    let job = role.strip_suffix("-master").or_else(|| role.strip_suffix("-worker"))?;
    Some(Field::new(job.to_owned(), "the pod's name"))
}

/// What the operator's own variables say against arguments, which are mostly its `PET_*`.
pub(super) fn agree(
    vars: Vars<'_>,
    nodes: &Field<usize>,
    node_rank: &Field<usize>,
    local_world_size: usize,
) -> Result<(), TopologyError> {
    if !vars.has("KUBERNETES_SERVICE_HOST") {
        return Ok(());
    }
    let (Some(rank), Some(size)) = (vars.number("RANK")?, vars.number("WORLD_SIZE")?) else { return Ok(()) };
    if rank.value != node_rank.value as u64 {
        let (one, other) = (node_rank.shown(), rank.shown());
        return Err(TopologyError::Disagree { what: "which node this is", one, other });
    }
    // Of pods, or of the workers that the operator knows of.
    let per_node = vars.get("PET_NPROC_PER_NODE").and_then(|text| text.parse().ok()).unwrap_or(local_world_size);
    let nodes_count = nodes.value as u64;
    let good =
        [Some(nodes_count), nodes_count.checked_mul(per_node as u64), nodes_count.checked_mul(local_world_size as u64)];
    if good.contains(&Some(size.value)) {
        return Ok(());
    }
    Err(TopologyError::Disagree { what: "the world size", one: nodes.shown(), other: size.shown() })
}
