//! Whether the engine's step that this program is in began within a worker of another launcher, or that launcher within the
//! step: [`step_within_worker`]. Not here: what a worker's or a step's variables mean (`topology`).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt;

use rankrun::{Env, env};

use crate::topology::OF_A_WORKER;

/// By what the step of an engine is known.
const OF_A_STEP: [&str; 7] = [
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "OMPI_COMM_WORLD_RANK",
    "PMIX_NAMESPACE",
    "PMIX_RANK",
    "PMI_RANK",
];

/// What a launcher sets for its workers, beside what begins with [`PREFIXES`].
const SET_BY_LAUNCHERS: [&str; 11] = [
    env::LOCAL_RANK,
    env::RANK,
    env::GROUP_RANK,
    env::ROLE_RANK,
    env::ROLE_NAME,
    env::LOCAL_WORLD_SIZE,
    env::WORLD_SIZE,
    env::GROUP_WORLD_SIZE,
    env::ROLE_WORLD_SIZE,
    env::MASTER_ADDR,
    env::MASTER_PORT,
];

/// Of what a launcher sets, and of torchrun's arguments, which were the launcher's.
const PREFIXES: [&str; 4] = ["TORCHELASTIC_", "PET_", env::RANKRUN_GROUP, env::RANKRUN_HEARTBEAT_FILE];

/// More processes are not looked at.
const MOST: usize = 64;

/// A process above this one.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ancestor {
    /// With the environment that it was started with.
    Seen(Env),
    /// Of another user, such as an engine's daemon or sudo.
    Unseen,
}

/// The variable by which this program is known for a worker's descendant, where the engine's step that it is in began below
/// that worker: a worker has called `srun`, `sbatch` or `mpirun`, which hand its environment on. `None` where this is no
/// worker's descendant, there is no step, or the worker's launcher runs within the step.
///
/// Both environments look alike; the processes above this one differ: the launcher has the step's variables and not the
/// worker's, and what starts a step has not the step's. Reads `/proc/<pid>/environ` of some of them. Where that does not
/// tell, in a container with process ids of its own for example, a worker counts as one.
#[must_use]
pub fn step_within_worker(env: &Env) -> Option<&'static str> {
    let name = OF_A_WORKER.into_iter().find(|name| value(env, name).is_some())?;
    let is_step = OF_A_STEP.iter().any(|name| value(env, name).is_some());
    (is_step && began_within(env, ancestors())).then_some(name)
}

/// The environment without what a launcher has set for a worker, or was itself told by `PET_*`.
#[must_use]
pub fn without_worker(env: &Env) -> Env {
    let is_of_worker = |name: &OsStr| {
        let name = name.to_string_lossy();
        SET_BY_LAUNCHERS.contains(&&*name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    env.iter().filter(|(name, _)| !is_of_worker(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn value<'a>(env: &'a Env, name: &str) -> Option<&'a OsString> {
    env.get(OsStr::new(name)).filter(|value| !value.is_empty())
}

/// `ancestors`: from the nearest to the first of all.
fn began_within(own: &Env, ancestors: impl Iterator<Item = Ancestor>) -> bool {
    let has = |other: &Env, names: &[&str]| {
        names.iter().all(|name| value(own, name).is_none() || value(own, name) == value(other, name))
    };
    let mut unseen_above = false;
    for ancestor in ancestors {
        let Ancestor::Seen(env) = ancestor else {
            unseen_above = true;
            continue;
        };
        unseen_above = false;
        match (has(&env, &OF_A_WORKER), has(&env, &OF_A_STEP)) {
            // Between the step and this program.
            (true, true) => {}
            // The worker's launcher, or what stands between it and the engine.
            (false, true) => return false,
            // A worker that starts a step; or the engine's daemon, which has got both from elsewhere.
            (true, false) | (false, false) => return true,
        }
    }
    // The engine's daemons are root's: whatever started this has got both from them.
    unseen_above
}

fn ancestors() -> impl Iterator<Item = Ancestor> {
    let mut pid = Some(std::os::unix::process::parent_id());
    std::iter::from_fn(move || {
        let now = pid.filter(|pid| *pid > 0)?;
        pid = parent(now);
        Some(match fs::read(format!("/proc/{now}/environ")) {
            Ok(bytes) => Ancestor::Seen(parse(&bytes)),
            Err(_) => Ancestor::Unseen,
        })
    })
    .take(MOST)
}

/// The fourth field of `/proc/<pid>/stat`; the second is in brackets and may have any character.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat).into_owned();
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn parse(environ: &[u8]) -> Env {
    let pairs = environ.split(|byte| *byte == 0).filter_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        Some((OsString::from_vec(pair[..at].to_vec()), OsString::from_vec(pair[at + 1..].to_vec())))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(text: &str) -> Env {
        text.split_ascii_whitespace()
            .filter_map(|pair| pair.split_once('='))
            .map(|(k, v)| (k.into(), v.into()))
            .collect()
    }

    #[test]
    fn a_step_is_within_a_worker_where_what_started_it_has_the_workers_variables_and_not_its_own() {
        const OUTER: &str = "LOCAL_RANK=0 TORCHELASTIC_RUN_ID=outer";
        const STEP: &str = "SLURM_JOB_ID=7 SLURM_STEP_ID=1 SLURM_PROCID=0";
        const FIRST: &str = "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=0";
        let both = format!("{OUTER} {STEP}");
        let (batch, other) = (format!("{OUTER} {FIRST}"), format!("LOCAL_RANK=1 TORCHELASTIC_RUN_ID=o {STEP}"));
        let daemon = "PATH=/bin";
        let unseen = "?";
        for (above, expected, what) in [
            // From the nearest on; `?` cannot be read.
            (&[&*both, STEP, daemon][..], false, "a launcher in the step"),
            (&[&*both, &both, STEP, unseen], false, "a launcher in the step, and a shell"),
            (&[&*both, unseen, &both, STEP, unseen], false, "sudo in a worker"),
            (&[daemon], true, "srun to this node, as root"),
            (&[&*both, daemon, daemon], true, "the same with a shell"),
            (&[unseen, unseen, daemon], true, "srun to this node, as a user"),
            (&[&*both, unseen], true, "the same, and nothing can be read above"),
            (&[OUTER, "A=1"], true, "mpirun in a worker outside of a step"),
            (&[&*batch, FIRST], true, "mpirun in a worker of another step"),
            (&[&*other, daemon], false, "a launcher that is itself a worker, in the step"),
            (&[&*both], false, "a container, of which the first process has both"),
            (&[], false, "nothing is known"),
        ] {
            let above =
                above.iter().map(|text| if *text == unseen { Ancestor::Unseen } else { Ancestor::Seen(env(text)) });
            assert_eq!(began_within(&env(&both), above), expected, "{what}");
        }
    }

    #[test]
    fn what_a_launcher_has_set_goes_and_the_rest_stays() {
        let all = "RANK=1 LOCAL_RANK=1 MASTER_ADDR=a PET_NNODES=2 TORCHELASTIC_ERROR_FILE=e RANKRUN_GROUP=g HOME=/ SLURM_JOB_ID=7";
        assert_eq!(without_worker(&env(all)), env("HOME=/ SLURM_JOB_ID=7"));
    }

    #[test]
    fn the_processes_above_are_found_with_their_environments() {
        let above: Vec<Ancestor> = ancestors().collect();
        assert!(above.iter().any(|one| matches!(one, Ancestor::Seen(env) if !env.is_empty())), "{}", above.len());
        assert_eq!(parent(std::process::id()), Some(std::os::unix::process::parent_id()));
        assert_eq!(parse(b"A=1\0B=x=y\0\0C\0"), env("A=1 B=x=y"));
    }
}
