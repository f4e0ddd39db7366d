//! What a group's workers run, ready to be started: [`Program`]. Not here: starting it (`driver`).

use std::ffi::OsString;

use nix::errno::Errno;
use rankrun_functions::{CallError, PreparedCall, ReturnSlot, refuse_undispatched};
use rankrun_process::{Command, SpawnError};

use crate::spec::Entrypoint;

/// A program, or a function with the arguments of all workers.
#[derive(Debug)]
pub(crate) enum Program {
    Binary(OsString),
    Function(PreparedCall),
}

impl Program {
    /// Checks and encodes what can be before anything exists. Calls what makes a function's arguments.
    pub(crate) fn prepare(entrypoint: &Entrypoint, local_world_size: usize) -> Result<Self, CallError> {
        refuse_undispatched()?;
        Ok(match entrypoint {
            Entrypoint::Binary(program) => Self::Binary(program.clone()),
            Entrypoint::Function(call) => Self::Function(call.prepare(local_world_size)?),
        })
    }

    /// The command of one worker, without environment and streams, and where it leaves its return value.
    pub(crate) fn command(&self, local_rank: usize) -> Result<(Command, Option<ReturnSlot>), SpawnError> {
        match self {
            Self::Binary(program) => Ok((Command::new(program), None)),
            Self::Function(call) => {
                let (command, slot) = call.worker(local_rank).map_err(|error| SpawnError::Prepare {
                    what: "memory file for the return value",
                    errno: error.raw_os_error().unwrap_or(Errno::EIO as i32),
                })?;
                Ok((command, Some(slot)))
            }
        }
    }
}
