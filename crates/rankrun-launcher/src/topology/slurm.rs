//! What Slurm says: [`detect`] and [`gpus_per_node`]. Not here: what it means together with arguments (`resolve`).

use rankrun::Env;

use super::hostlist::expand;
use super::port;
use super::resolve::{Engine, is_worker};
use super::vars::{Field, Vars, invalid, node_count};
use super::{TopologyError, TopologySource};

/// Step ids from here on are of batch scripts and interactive shells, not of `srun`; `SLURM_MAX_NORMAL_STEP_ID`.
const FIRST_SPECIAL_STEP: u64 = 0xffff_fff0;

const JOB_ID: [&str; 2] = ["SLURM_JOB_ID", "SLURM_JOBID"];
const STEP_ID: [&str; 2] = ["SLURM_STEP_ID", "SLURM_STEPID"];
const STEP_NODES: [&str; 3] = ["SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"];
const JOB_NODES: [&str; 2] = ["SLURM_JOB_NUM_NODES", "SLURM_NNODES"];
const STEP_HOSTS: [&str; 3] = ["SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"];
const TASKS_PER_NODE: [&str; 2] = ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"];
const TASKS: [&str; 3] = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"];

/// The variables without which there is no Slurm.
pub(super) const EXPECTED: &str = "SLURM_JOB_ID with SLURM_NNODES";

const FIX: &str = "`srun --ntasks-per-node=1`";

pub(super) fn detect(vars: Vars<'_>) -> Result<Option<Engine>, TopologyError> {
    let Some(job) = vars.first(&JOB_ID) else { return Ok(None) };
    let step = vars.first_number(&STEP_ID)?;
    let step = step.filter(|step| step.value < FIRST_SPECIAL_STEP && vars.has("SLURM_PROCID"));
    let Some(nodes) = vars.first_number(if step.is_some() { &STEP_NODES } else { &JOB_NODES })? else {
        return Ok(None);
    };
    let nodes = node_count(nodes)?;
    let restart_count = vars.number("SLURM_RESTART_COUNT")?;
    let Some(step) = step else {
        if nodes.value > 1 {
            return Err(TopologyError::NotAStep { seen: nodes.shown() });
        }
        // What slurmd starts has its name; a shell of salloc runs where salloc was called.
        let note = "this is no job step: workers run on this host, which may be outside of the allocation, unless rankrun is \
                    started by srun";
        return Ok(Some(Engine {
            source: TopologySource::Slurm,
            seen: nodes.shown(),
            nodes: Some(nodes),
            node_rank: Some(Field::new(0, "one node")),
            master_addr: Err(String::new()),
            master_port: None,
            run_id: Some(job),
            restart_count,
            notes: if vars.has("SLURMD_NODENAME") { Vec::new() } else { vec![note.to_owned()] },
        }));
    };
    one_task_per_node(vars, &nodes)?;
    let Some(node_rank) = vars.number("SLURM_NODEID")? else {
        return Err(TopologyError::Half { given: nodes.shown(), missing: "SLURM_NODEID" });
    };
    Ok(Some(Engine {
        source: TopologySource::Slurm,
        seen: nodes.shown(),
        master_addr: if nodes.value > 1 { first_host(vars, &STEP_HOSTS, &nodes)? } else { Err(String::new()) },
        node_rank: Some(Field::new(node_rank.value as usize, node_rank.from)),
        master_port: Some(Field::new(
            port::derived(&job.value, step.value),
            format!("made of {} and {}", job.from, step.from),
        )),
        run_id: Some(Field::new(format!("{}.{}", job.value, step.value), format!("{} and {}", job.from, step.from))),
        nodes: Some(nodes),
        restart_count,
        notes: Vec::new(),
    }))
}

/// The first host of the first of these lists; `Err` inside says that there is none.
pub(super) fn first_host(
    vars: Vars<'_>,
    names: &[&str],
    nodes: &Field<usize>,
) -> Result<Result<Field<String>, String>, TopologyError> {
    let Some(list) = vars.first(names) else { return Ok(Err(format!("there is no {}", names[0]))) };
    let hosts = match expand(&list.value) {
        Ok(hosts) => hosts,
        Err(source) => return Err(TopologyError::Hostlist { name: list.from, value: list.value, source }),
    };
    if hosts.len() != nodes.value {
        let (one, other) = (nodes.shown(), list.shown());
        return Err(TopologyError::Disagree { what: "how many nodes there are", one, other });
    }
    let first = hosts.into_iter().next();
    Ok(first.map(|host| Field::new(host, format!("first of {}", list.from))).ok_or_else(|| "no host".to_owned()))
}

fn one_task_per_node(vars: Vars<'_>, nodes: &Field<usize>) -> Result<(), TopologyError> {
    if let Some(tasks) = vars.first(&TASKS_PER_NODE) {
        match most_tasks(&tasks.value) {
            None => return Err(invalid(tasks, "numbers of tasks such as 1(x2),3")),
            Some((most, _)) if most > 1 => {
                return Err(TopologyError::TasksPerNode { name: tasks.from, value: tasks.value, fix: FIX });
            }
            // That of the step is; of a job of several components each has its own.
            Some((_, known))
                if known != nodes.value as u64 && tasks.from == TASKS_PER_NODE[0] && !vars.has("SLURM_HET_SIZE") =>
            {
                let (one, other) = (nodes.shown(), tasks.shown());
                return Err(TopologyError::Disagree { what: "how many nodes there are", one, other });
            }
            Some(_) => {}
        }
    }
    match vars.first_number(&TASKS)? {
        Some(tasks) if tasks.value > nodes.value as u64 => {
            Err(TopologyError::TasksPerNode { name: tasks.from, value: tasks.value.to_string(), fix: FIX })
        }
        Some(tasks) if tasks.value < nodes.value as u64 => Err(TopologyError::Disagree {
            what: "how many nodes have a rankrun",
            one: nodes.shown(),
            other: tasks.shown(),
        }),
        _ => Ok(()),
    }
}

/// The largest of the numbers in `2(x3),1`, and of how many nodes they are.
fn most_tasks(text: &str) -> Option<(u64, u64)> {
    let one = |part: &str| {
        let (tasks, times) = match part.trim().split_once("(x") {
            Some((tasks, times)) => (tasks, times.strip_suffix(')')?.parse().ok().filter(|times| *times > 0)?),
            None => (part.trim(), 1),
        };
        Some((tasks.parse::<u64>().ok()?, times))
    };
    text.split(',').map(one).try_fold((0, 0_u64), |(most, nodes), found| {
        let (tasks, times) = found?;
        Some((tasks.max(most), nodes.checked_add(times)?))
    })
}

/// How many GPUs Slurm gives to the job on each node; `None` if it gives none or there is no Slurm.
///
/// Of `SLURM_GPUS_ON_NODE` and `SLURM_GPUS_PER_NODE` (`4`, `a100:4`, `a100:2,l40:2`). Pure. A worker of another launcher
/// does not own what is its job's: `None`.
///
/// # Errors
/// [`TopologyError::Invalid`] with the variable and its value.
pub fn gpus_per_node(env: &Env) -> Result<Option<usize>, TopologyError> {
    let vars = Vars(env);
    if vars.first(&JOB_ID).is_none() || is_worker(vars).is_some() {
        return Ok(None);
    }
    let Some(given) = vars.first(&["SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"]) else { return Ok(None) };
    let count = |part: &str| part.rsplit(':').next().unwrap_or(part).trim().parse::<usize>().ok();
    let counts: Option<Vec<usize>> = given.value.split(',').map(count).collect();
    match counts.map(|counts| counts.iter().fold(0, |sum: usize, count| sum.saturating_add(*count))) {
        Some(0) => Ok(None),
        Some(gpus) => Ok(Some(gpus)),
        None => Err(invalid(given, "a number of GPUs such as 4 or a100:4")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_counted_in_slurms_short_form() {
        for (text, most) in [("1", Some(1)), ("1(x2)", Some(1)), ("2(x3),1", Some(2)), ("1,8", Some(8)), ("x", None)] {
            assert_eq!(most_tasks(text).map(|(most, _)| most), most, "{text}");
        }
        assert_eq!((most_tasks("2(x3),1"), most_tasks("1")), (Some((2, 4)), Some((1, 1))));
        for wrong in ["1(x2", "1(x)", "1(2)", "1(x0)", "1)", "", "1,", "-1"] {
            assert_eq!(most_tasks(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn gpus_are_counted_in_each_form_slurm_has() {
        let gpus = |name: &str, value: &str| {
            let env = Env::from([("SLURM_JOB_ID".into(), "1".into()), (name.into(), value.into())]);
            gpus_per_node(&env).map_err(|error| error.to_string())
        };
        assert_eq!(gpus("SLURM_GPUS_ON_NODE", "4"), Ok(Some(4)));
        assert_eq!(gpus("SLURM_GPUS_PER_NODE", "a100:8"), Ok(Some(8)));
        assert_eq!(gpus("SLURM_GPUS_PER_NODE", "a100:2,l40:1"), Ok(Some(3)));
        assert_eq!(gpus("SLURM_GPUS_ON_NODE", "0"), Ok(None));
        assert_eq!(gpus("SLURM_NNODES", "2"), Ok(None));
        let error = gpus("SLURM_GPUS_PER_NODE", "all").unwrap_err();
        assert!(error.contains("`all` of SLURM_GPUS_PER_NODE"), "{error}");
        assert_eq!(gpus_per_node(&Env::from([("SLURM_GPUS_ON_NODE".into(), "4".into())])), Ok(None));
    }
}
