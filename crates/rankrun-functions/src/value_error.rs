//! Why a value does not go over: [`ValueError`]. Not here: whose value it is, which the errors say that have it.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::checked::{Fault, MAX_DEPTH};

/// Why arguments or a return value cannot be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// The type's own code, or serde for it, refuses.
    #[error("{why}")]
    Refused {
        /// What it says.
        why: String,
    },
    /// Sequences, maps, structs and enums lie in each other deeper than 1024 levels.
    #[error("it is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// It holds `Some(())`, `Some(None)`, or a `Some` of what is written as these are.
    #[error("it holds a `Some` of `()` or of `None`, which would come back as `None`")]
    SomeOfNothing,
    /// The code that makes, writes or reads it panicked.
    #[error("its code panicked: {message}")]
    Panicked {
        /// What the panic said.
        message: String,
    },
    /// It is larger than a file may be.
    #[error("it does not fit into the file size limit of {limit} bytes (RLIMIT_FSIZE, ulimit -f)")]
    FileSizeLimit {
        /// The limit in bytes.
        limit: u64,
    },
    /// There is no memory for it.
    #[error("there is no memory for its {bytes} bytes")]
    Memory {
        /// How long it is, as it is written.
        bytes: u64,
    },
    /// A part of it is not there.
    #[error("of its {bytes} bytes a part is not there")]
    Short {
        /// How long it should be, as it is written.
        bytes: u64,
    },
    /// The kernel refused.
    #[error("{}", io::Error::from_raw_os_error(*errno))]
    System {
        /// The errno.
        errno: i32,
    },
}

impl ValueError {
    pub(crate) fn refused(why: impl ToString) -> Self {
        Self::Refused { why: why.to_string() }
    }
}

impl From<io::Error> for ValueError {
    /// That of `files`, which may be in it, else that of the kernel.
    fn from(error: io::Error) -> Self {
        let errno = error.raw_os_error().unwrap_or(nix::errno::Errno::EIO as i32);
        error.downcast::<Self>().unwrap_or(Self::System { errno })
    }
}

impl From<Fault> for ValueError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::TooDeep => Self::TooDeep,
            Fault::SomeOfNothing => Self::SomeOfNothing,
        }
    }
}

/// Calls what may be code of a value's type, whose panics are no reason for a launcher to end.
pub(crate) fn without_panic<T>(call: impl FnOnce() -> Result<T, ValueError>) -> Result<T, ValueError> {
    // What it leaves half done is a value that is not used.
    catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|payload| Err(ValueError::Panicked { message: text(&*payload) }))
}

fn text(payload: &(dyn Any + Send)) -> String {
    let literal = payload.downcast_ref::<&'static str>().map(ToString::to_string);
    literal.or_else(|| payload.downcast_ref().cloned()).unwrap_or_else(|| "a value that is no text".to_owned())
}
