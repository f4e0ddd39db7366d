//! The launcher's side before a worker runs: a function with its arguments ([`FunctionCall`]), and what a process needs to
//! become its worker ([`PreparedCall`]). Not here: what comes back (`value`).

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rankrun_process::{Command, HandoverError, TakenAt, handover_problem, is_handover_pending};
use rankrun_types::PerRank;
use serde::Serialize;

use crate::files::{ArgumentsFile, Assignment, ResultFile, Span};
use crate::function::Identity;
use crate::program::{THIS_PROGRAM, loader};
use crate::registry::{self, FUNCTIONS, LookUpError, look_up};
use crate::value::ReturnSlot;
use crate::value_error::{ValueError, without_panic};
use crate::{Function, worker};

/// A function cannot be called as it should be; no worker was started for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// It is not registered, or not alone under its name.
    #[error(transparent)]
    LookUp(#[from] LookUpError),
    /// The arguments of a worker cannot be written.
    #[error("{}: the arguments of `{name}` cannot be encoded: {why}", whose(*local_rank))]
    Arguments {
        /// The function.
        name: String,
        /// The worker's local rank; `None` if all workers have the same arguments.
        local_rank: Option<usize>,
        /// Why.
        why: ValueError,
    },
    /// This process is a worker itself and has not run its own function.
    #[error("{NOT_DISPATCHED}")]
    NotDispatched,
    /// What this process was handed as a worker makes no sense.
    #[error(transparent)]
    Handover(#[from] HandoverError),
    /// The program was started through the dynamic loader, and cannot be executed again.
    #[error(
        "this program was started through the loader `{}`, which is what would be executed again for a worker: start the \
        program itself",
        loader.display()
    )]
    StartedByLoader {
        /// The loader.
        loader: PathBuf,
    },
    /// The kernel gives no memory file for the arguments.
    #[error("no memory for the arguments of `{name}`: {}", io::Error::from_raw_os_error(*errno))]
    Memory {
        /// The function.
        name: String,
        /// The errno.
        errno: i32,
    },
}

const NOT_DISPATCHED: &str = "this process is itself a worker that has not run its function yet, and would start the \
    same group again and again: call `rankrun::init()` as the first statement of `main`";

fn whose(local_rank: Option<usize>) -> String {
    local_rank.map_or_else(|| "all local ranks".to_owned(), |local_rank| format!("local rank {local_rank}"))
}

/// Refuses if this process is a worker that was to run a function and has not taken it.
///
/// Whoever starts processes calls it first: a program whose `main` starts a group before it has looked for its function
/// would otherwise start that group in each worker again.
///
/// # Errors
/// [`CallError::NotDispatched`], or [`CallError::Handover`] if it only seems to be one.
pub fn refuse_undispatched() -> Result<(), CallError> {
    if let Some(problem) = handover_problem() {
        return Err(problem.into());
    }
    if is_handover_pending() { Err(CallError::NotDispatched) } else { Ok(()) }
}

/// A function that still lacks its arguments.
pub struct Callable<A> {
    function: Identity,
    assignment: Assignment,
    _arguments: std::marker::PhantomData<fn(A)>,
}

impl<A> fmt::Debug for Callable<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Callable").field(&self.assignment.function).finish()
    }
}

impl<A: Serialize + 'static> Callable<A> {
    pub(crate) fn new<M, F: Function<M, Arguments = A>>(function: F) -> Self {
        let [arguments, value] = registry::types(function).map(str::to_owned);
        let build = registry::build(&FUNCTIONS);
        let assignment = Assignment { function: function.name().to_owned(), arguments, value, build };
        Self { function: function.identity(), assignment, _arguments: std::marker::PhantomData }
    }

    /// The same arguments for each worker.
    #[must_use]
    pub fn with(self, arguments: A) -> FunctionCall
    where
        A: Send + Sync,
    {
        let write = move |local_world_size, file: &mut ArgumentsFile| {
            let span = without_panic(|| file.add(&arguments)).map_err(|why| (None, why))?;
            Ok(PerRank::filled(local_world_size, span))
        };
        FunctionCall { function: self.function, assignment: self.assignment, write: Arc::new(write) }
    }

    /// Arguments for each worker, made from its local rank when the group is started, one after the other; a panic of `make` is
    /// an error of the start.
    #[must_use]
    pub fn by_rank(self, make: impl Fn(usize) -> A + Send + Sync + 'static) -> FunctionCall {
        let write = move |local_world_size, file: &mut ArgumentsFile| {
            let mut spans = Vec::with_capacity(local_world_size);
            for local_rank in 0..local_world_size {
                let span = without_panic(|| file.add(&make(local_rank)));
                spans.push(span.map_err(|why| (Some(local_rank), why))?);
            }
            Ok(PerRank::from_vec(spans))
        };
        FunctionCall { function: self.function, assignment: self.assignment, write: Arc::new(write) }
    }
}

type Write = dyn Fn(usize, &mut ArgumentsFile) -> Result<PerRank<Span>, (Option<usize>, ValueError)> + Send + Sync;

/// A function with the arguments of each worker, for a group of any size.
#[derive(Clone)]
pub struct FunctionCall {
    function: Identity,
    assignment: Assignment,
    write: Arc<Write>,
}

impl fmt::Debug for FunctionCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FunctionCall").field(&self.assignment.function).finish()
    }
}

impl FunctionCall {
    /// The function's name.
    #[must_use]
    pub fn function(&self) -> &str {
        &self.assignment.function
    }

    /// Checks the function and writes the arguments of all workers, calling what makes them on this thread.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn prepare(&self, local_world_size: usize) -> Result<PreparedCall, CallError> {
        let name = &self.assignment.function;
        look_up(&FUNCTIONS, self.function)?;
        if let Some(loader) = loader() {
            return Err(CallError::StartedByLoader { loader });
        }
        let memory = |error: io::Error| CallError::Memory { name: name.clone(), errno: errno(&error) };
        let mut file = ArgumentsFile::new(&self.assignment).map_err(|why| CallError::Arguments {
            name: name.clone(),
            local_rank: None,
            why,
        })?;
        let spans = (self.write)(local_world_size, &mut file).map_err(|(local_rank, why)| CallError::Arguments {
            name: name.clone(),
            local_rank,
            why,
        })?;
        Ok(PreparedCall { function: self.function, arguments: file.seal().map_err(memory)?, spans })
    }
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(nix::errno::Errno::EIO as i32)
}

/// A function whose arguments for all workers are written. Dropping it frees them when the workers have read theirs.
#[derive(Debug)]
pub struct PreparedCall {
    function: Identity,
    arguments: OwnedFd,
    spans: PerRank<Span>,
}

impl PreparedCall {
    /// What starts the worker of this rank, and where its return value will be.
    ///
    /// The command is this program executed again; environment and streams are still to be set.
    ///
    /// # Errors
    /// The kernel's, if it gives no descriptors or no memory.
    ///
    /// # Panics
    /// If the call was prepared for fewer workers.
    pub fn worker(&self, local_rank: usize) -> io::Result<(Command, ReturnSlot)> {
        let result = ResultFile::new()?;
        let fds = [self.arguments.try_clone()?, result.to_hand_over()?];
        // A program that has looked for its function at the start of `main` will do so again.
        let when = if worker::is_taken_in_main() { TakenAt::InMain } else { TakenAt::BeforeMain };
        let command = Command::new(THIS_PROGRAM).hand_over(when, self.spans[local_rank].to_note(), fds);
        let command = match std::env::args_os().next() {
            Some(name) => command.arg0(name),
            None => command,
        };
        Ok((command, ReturnSlot::new(self.function, result)))
    }
}
