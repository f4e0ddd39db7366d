//! Rust functions as worker processes, by executing the program again.
//!
//! A function is registered with [`entrypoint!`]; [`callable`] takes it with its arguments. The program is then executed
//! again as a worker, which runs the function instead of `main`; what it returns comes back to the launcher. Here: what both
//! sides need. Not here: starting and supervising a group of such workers (`rankrun-context`), for which the crate `rankrun`
//! has all this as `Entrypoint::function`.
//!
//! # How a worker gets to its function
//!
//! What is executed is `/proc/self/exe`: the very file that runs, whatever lies at its path by now. The worker is handed two
//! memory files and a note in the environment, which is gone before any other code can see it, so that what the worker
//! starts, groups of its own too, begins afresh. Then there are two ways:
//!
//! - **In `main`**: `main` begins with [`init`], which runs the function and exits. To be preferred in a program of your
//!   own. All is as `main` finds it.
//! - **Before `main`**: taken where the launcher has not called [`init`] itself, as in tests, whose `main` is not yours, in
//!   examples and benches without it. The dynamic linker calls the function, as it calls constructors of C++. That is well
//!   with std: allocation, threads, files, panics, exit handlers and SIGPIPE are as in `main`. What differs: the thread is
//!   called `<unnamed>` in panics, not `main`; a stack overflow is a SIGSEGV without std's explanation; with musl
//!   `std::env::args` is empty; and constructors of C++ libraries that are linked statically may not have run.
//!
//! The launcher knows whether it has called [`init`] itself, on its main thread, and says to its workers which it is to be: so
//! nothing has to be chosen. A worker that comes to start a group without having taken its function is refused. A program
//! that is replaced or deleted while it runs goes on as its workers; one that was started as `ld.so ./program` cannot be
//! executed again, and says so.
//!
//! # What goes over
//!
//! Arguments and return values are what serde makes of them, as MessagePack in a memory file: any size, no pipe that could
//! block, and a worker that dies leaves what is there. A value is only one when the worker has said so at its end: who calls
//! `exit(0)` returns none. Before it does, it decodes the value again, so a value that cannot be decoded is the failure of the
//! worker whose it is. A `Vec<u8>` goes over as it is, at the speed of a copy and with no second copy in the launcher's memory;
//! bytes inside of another value are several times as fast with `#[serde(with = "serde_bytes")]` as without. Numbers go one
//! by one, which takes optimization: of a `Vec<f64>` of 8 MiB writing and reading takes 0.2 s in a debug build, 0.01 s in a
//! release build (on a virtual machine with 2 cores), and a return value is read twice.
//!
//! Not everything can be brought back, and what cannot is a [`ValueError`] on the side that writes it, before a worker is
//! started or as the worker's failure: `Some(())` and `Some(None)`, which MessagePack does not tell from `None`, and
//! sequences, maps, structs and enums that lie in each other deeper than 1024 levels. Reading a value that is nearly as deep
//! takes up to 4 MiB of stack in a debug build, more than a thread has unless it is made so. A file size limit
//! (`ulimit -f`) holds for the memory files too, and is told as an error.
//!
//! The file for the value is closed to all but the worker itself: a process that it forks returns nothing, and where the
//! function has closed all descriptors, as daemons do, no value is returned, and no file of the program's is written to.
//!
//! # What outlives a worker
//!
//! As with programs, what a function starts and leaves behind in its process group ends with the group. For a library user
//! two things are off until asked for: the guardian (`WorkerGroup::guardian` of `rankrun`), a small process that ends what is
//! left when the launcher itself is killed; and a control group (`WorkerGroup::control_group`, where cgroup v2 is writable),
//! which also daemons without session and environment do not leave.
//!
//! # Failures
//!
//! An `Err`, a panic or a fatal signal is recorded in the worker's error file ([`record`]) with its sources or its backtrace.
//! A panic of any thread is there from the moment at which it starts, as what came before the end, whatever that will be: an
//! `exit(3)` in a hook is `exited with code 3; before that, thread 'loader' panicked at ...`, and so is one a day
//! later. It is taken back when the function returns a value, and gives way to the error when it returns one. Of a panic
//! that a second one turns into an abort the first is told. A hook that the function sets must call the one it replaces.
//! The exit code is 0, or 1 after an `Err`, 101 after a panic, as of a `main`; `std::process::exit(n)` is exit code n.

#![forbid(unsafe_code)]

mod call;
mod checked;
mod codec;
mod files;
mod function;
mod program;
mod record;
mod registry;
mod value;
mod value_error;
mod worker;

pub use call::{CallError, Callable, FunctionCall, PreparedCall, refuse_undispatched};
pub use function::{Fallible, Function, ReturnsResult, ReturnsValue, Wrapped, returns_result};
pub use record::{record, record_main};
pub use registry::LookUpError;
pub use value::{NoReturnValue, ReturnSlot, ReturnValue, ReturnValueError};
pub use value_error::ValueError;
pub use worker::init;

/// A function that is to be called by workers, for which the arguments are still to be said.
///
/// It is a function by its name. A pointer to one does not compile, as a worker could not know which:
///
/// ```compile_fail
/// fn double(x: u64) -> u64 { 2 * x }
/// let pointer: fn(u64) -> u64 = double;
/// let call = rankrun_functions::callable(pointer).with(1);
/// ```
///
/// ```
/// fn double(x: u64) -> u64 { 2 * x }
/// let call = rankrun_functions::callable(double).with(1);
/// ```
pub fn callable<M, F: Function<M>>(function: F) -> Callable<F::Arguments> {
    registry::only_a_function::<F>();
    Callable::new(function)
}

/// For the macro [`entrypoint!`] alone.
#[doc(hidden)]
pub mod __private {
    pub use linkme;

    pub use crate::registry::{Entry, FUNCTIONS, id, name, run, types};
}
