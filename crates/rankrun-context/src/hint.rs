//! What is likely to be behind what could not be started: [`with_hint`] for a worker, [`StartHint::of`] for
//! anything. Not here: its text (`error`).

use std::ffi::OsString;
use std::path::Path;

use nix::errno::Errno;
use rankrun_logs::Env;
use rankrun_process::{SpawnError, SpawnStep};

use crate::error::{StartError, StartHint};

/// How many of the largest variables a message about a too large environment names.
const LARGEST_SHOWN: usize = 3;

impl StartHint {
    /// What is likely to be behind an error, whatever was to be started.
    pub(crate) fn of(source: &SpawnError) -> Option<Self> {
        if let SpawnError::Step { program, errno, .. } = source
            && (Errno::from_raw(*errno), Path::new(program).starts_with("/proc")) == (Errno::ENOENT, true)
        {
            return Some(Self::NoProc);
        }
        // In a step, EAGAIN means something else.
        let errno = source.errno().filter(|errno| source.step().is_none() || *errno != Errno::EAGAIN as i32);
        errno.and_then(Self::of_errno)
    }

    /// What an errno alone tells when a process, a thread or a descriptor could not be made.
    pub(crate) fn of_errno(errno: i32) -> Option<Self> {
        match Errno::from_raw(errno) {
            Errno::EMFILE => Some(Self::OpenFiles),
            Errno::EAGAIN => Some(Self::Processes),
            _ => None,
        }
    }
}

/// Adds to an error what is likely to be behind it.
pub(crate) fn with_hint(error: StartError, envs: &Env, current_dir: Option<&Path>) -> StartError {
    let StartError::Worker { local_rank, source, .. } = error else { return error };
    let hint = match (source.errno().map(Errno::from_raw), source.step()) {
        (Some(Errno::E2BIG), _) => {
            let mut largest: Vec<(OsString, usize)> =
                envs.iter().map(|(name, value)| (name.clone(), name.len() + value.len() + 2)).collect();
            largest.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
            largest.truncate(LARGEST_SHOWN);
            Some(StartHint::LargestVariables(largest))
        }
        (Some(Errno::ENOENT), Some(SpawnStep::Exec)) if is_there(&source, current_dir) => Some(StartHint::Interpreter),
        (Some(Errno::EPERM), Some(SpawnStep::Limit(resource))) => Some(StartHint::HardLimit(resource)),
        _ => StartHint::of(&source),
    };
    StartError::Worker { local_rank, source, hint }
}

/// Whether the program of an error exists, where it was given as a path.
fn is_there(source: &SpawnError, current_dir: Option<&Path>) -> bool {
    let SpawnError::Step { program, .. } = source else { return false };
    let path = Path::new(program);
    let path = current_dir.map_or(path.to_owned(), |dir| dir.join(path));
    program.as_encoded_bytes().contains(&b'/') && path.exists()
}
