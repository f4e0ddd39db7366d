//! What a program hands to itself when it is executed again as a worker: [`Handover`]. Not here: what is handed over.
//!
//! A note in the environment and open files from number 3 on. Both are taken before `main`, while no other thread can
//! look at the environment and nobody else can have these numbers: the variable is gone and the files are
//! close-on-exec before any other code runs, so that nothing that the worker starts takes itself for the worker.

use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, PoisonError};

use rankrun_types::escape_line;

/// The variable that holds the note: when it is to be taken, how many files come with it, the note itself.
const VARIABLE: &CStr = c"RANKRUN_FUNCTION";

/// The number of the first file.
pub(crate) const FIRST_FD: i32 = 3;

/// More files than this are a sign that the variable is not ours.
const MOST_FDS: i32 = 16;

/// When the program is to take what it is handed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakenAt {
    /// Before `main`, by what is linked into the program for that.
    BeforeMain,
    /// By a call of [`take_handover`] in `main`.
    InMain,
}

impl TakenAt {
    const fn word(self) -> &'static str {
        match self {
            Self::BeforeMain => "before-main",
            Self::InMain => "in-main",
        }
    }
}

/// Called before `main` in a program that was handed something to be taken then. For [`take_handover`] and nothing else:
/// in all other programs, and in `main`, they are not called.
#[doc(hidden)]
#[linkme::distributed_slice]
pub static BEFORE_MAIN: [fn()];

/// A note and the files that came with it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Handover {
    /// The note.
    pub note: String,
    /// The files, in the order in which they were given.
    pub fds: Vec<OwnedFd>,
}

/// What this program was handed makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandoverError {
    /// The variable does not say what it should.
    #[error("the environment variable {} is `{}`, which no launcher sets: remove it", name(), escape_line(.value))]
    Note {
        /// What it says.
        value: String,
    },
    /// A file that should be there is not.
    #[error(
        "descriptor {fd} is not the file that the launcher gave this worker: the environment variable {} was passed on to another program",
        name()
    )]
    Descriptor {
        /// Its number.
        fd: i32,
    },
}

fn name() -> &'static str {
    VARIABLE.to_str().unwrap_or_default()
}

static PENDING: Mutex<Option<Result<Handover, HandoverError>>> = Mutex::new(None);

fn pending() -> std::sync::MutexGuard<'static, Option<Result<Handover, HandoverError>>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this program was handed something that nobody has taken yet.
#[must_use]
pub fn is_handover_pending() -> bool {
    // The variable is there only if nothing could be taken before `main`.
    pending().is_some() || std::env::var_os(name()).is_some()
}

/// What is wrong with what this program was handed, as long as nobody has taken it.
#[must_use]
pub fn handover_problem() -> Option<HandoverError> {
    pending().as_ref()?.as_ref().err().cloned()
}

/// Takes what this program was handed; `None` if that is nothing, or was taken before.
///
/// # Errors
/// [`HandoverError`] if it makes no sense.
pub fn take_handover() -> Result<Option<Handover>, HandoverError> {
    pending().take().transpose()
}

/// The variable's name and value for a program that is to take this.
pub(crate) fn variable(when: TakenAt, fds: usize, note: &str) -> (OsString, OsString) {
    (name().into(), format!("{}:{fds}:{note}", when.word()).into())
}

/// Whether this is the variable, which nobody inherits.
pub(crate) fn is_variable(name: &OsStr) -> bool {
    name.as_bytes() == VARIABLE.to_bytes()
}

/// Takes note and files out of reach of everybody else, and lets [`BEFORE_MAIN`] take them if they are to be taken now.
///
/// # Safety
/// There is no other thread.
pub(crate) unsafe fn receive() {
    // SAFETY: no other thread exists, so the environment does not change while it is read, and nobody sees it change.
    let value = unsafe {
        let value = libc::getenv(VARIABLE.as_ptr());
        if value.is_null() {
            return;
        }
        let value = CStr::from_ptr(value).to_string_lossy().into_owned();
        libc::unsetenv(VARIABLE.as_ptr());
        value
    };
    let Some((when, count, note)) = parse(&value) else {
        *pending() = Some(Err(HandoverError::Note { value }));
        return;
    };
    let note = note.to_owned();
    *pending() =
        Some((FIRST_FD..FIRST_FD + count).map(adopt).collect::<Result<_, _>>().map(|fds| Handover { note, fds }));
    if when == TakenAt::BeforeMain {
        // SAFETY: sets a disposition. As std does it before `main`, where this program does not come any more.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        BEFORE_MAIN.iter().for_each(|take| take());
    }
}

fn parse(value: &str) -> Option<(TakenAt, i32, &str)> {
    let mut parts = value.splitn(3, ':');
    let (when, count, note) = (parts.next()?, parts.next()?, parts.next()?);
    let when = [TakenAt::BeforeMain, TakenAt::InMain].into_iter().find(|at| at.word() == when)?;
    let count = count.parse().ok().filter(|count| (0..=MOST_FDS).contains(count))?;
    Some((when, count, note))
}

/// Takes a file that was handed over, and makes it close-on-exec.
fn adopt(fd: i32) -> Result<OwnedFd, HandoverError> {
    // SAFETY: integers only. Only a memfd has seals: what somebody else opened under this number is left alone.
    let is_ours =
        unsafe { libc::fcntl(fd, libc::F_GET_SEALS) >= 0 && libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) >= 0 };
    if !is_ours {
        return Err(HandoverError::Descriptor { fd });
    }
    // SAFETY: it was open when this program was executed, a moment ago and for this purpose, so nobody here has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_has_a_moment_a_count_and_any_text() {
        for when in [TakenAt::BeforeMain, TakenAt::InMain] {
            let (name, value) = variable(when, 2, "7:a:b");
            assert!(is_variable(&name));
            assert_eq!(parse(value.to_str().unwrap()), Some((when, 2, "7:a:b")));
        }
    }

    #[test]
    fn what_no_launcher_sets_is_not_understood() {
        for value in ["", "1", "in-main", "in-main:2", "in-main:x:", "in-main:-1:", "in-main:17:", "later:2:7"] {
            assert_eq!(parse(value), None, "{value}");
        }
    }

    #[test]
    fn a_file_that_is_no_memfd_is_not_taken() {
        use std::os::fd::AsRawFd;
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(adopt(file.as_raw_fd()).unwrap_err(), HandoverError::Descriptor { fd: file.as_raw_fd() });
    }
}
