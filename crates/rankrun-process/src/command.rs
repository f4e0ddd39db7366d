//! What to start: [`Command`], and its form for the kernel, [`Prepared`]. Not here: starting it (`spawn`).

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::ptr;

use rankrun_types::Signal;

use crate::handover::FIRST_FD;
use crate::placement::{Placement, PreparedPlacement};
use crate::{SpawnError, TakenAt};

/// Where execvp(3) looks when there is no `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Where one of a worker's three standard streams goes.
#[derive(Debug, Default)]
pub enum Stdio {
    /// `/dev/null`.
    #[default]
    Null,
    /// What this program has under the same number; `/dev/null` if that is closed.
    Inherit,
    /// This open file; our copy is closed when the [`Command`] is dropped.
    Fd(OwnedFd),
}

/// A program with its arguments, environment and streams, to be started by a [`Spawner`](crate::Spawner).
///
/// The environment starts empty: nothing is inherited but what [`envs`](Self::envs) lists. All three streams start
/// as `/dev/null`. Mirrors `std::process::Command`, which cannot do what is needed here without forking.
#[derive(Debug)]
pub struct Command {
    pub(crate) program: OsString,
    arg0: Option<OsString>,
    args: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
    current_dir: Option<PathBuf>,
    stdio: [Stdio; 3],
    handover: Option<(TakenAt, String)>,
    passed: Vec<OwnedFd>,
    pub(crate) parent_death_signal: Option<Signal>,
    pub(crate) placement: Placement,
}

impl Command {
    /// A program by path, or by name: then looked up in the `PATH` of the environment that it is given.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            arg0: None,
            args: Vec::new(),
            envs: Vec::new(),
            current_dir: None,
            stdio: [Stdio::Null, Stdio::Null, Stdio::Null],
            handover: None,
            passed: Vec::new(),
            parent_death_signal: Some(Signal::KILL),
            placement: Placement::default(),
        }
    }

    /// Sets argument 0, under which the process is listed; the program's name unless set.
    #[must_use]
    pub fn arg0(mut self, name: impl Into<OsString>) -> Self {
        self.arg0 = Some(name.into());
        self
    }

    /// Adds arguments; argument 0 is not among them.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds variables to the environment; a name that is given twice stands in it twice.
    #[must_use]
    pub fn envs(mut self, envs: impl IntoIterator<Item = (impl Into<OsString>, impl Into<OsString>)>) -> Self {
        self.envs.extend(envs.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// Sets the working directory; a program with a relative path is looked up from there.
    #[must_use]
    pub fn current_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.current_dir = Some(dir.into());
        self
    }

    /// Sets the standard input.
    #[must_use]
    pub fn stdin(mut self, stdin: Stdio) -> Self {
        self.stdio[0] = stdin;
        self
    }

    /// Sets the standard output.
    #[must_use]
    pub fn stdout(mut self, stdout: Stdio) -> Self {
        self.stdio[1] = stdout;
        self
    }

    /// Sets the standard error.
    #[must_use]
    pub fn stderr(mut self, stderr: Stdio) -> Self {
        self.stdio[2] = stderr;
        self
    }

    /// Hands a note and open files to the program, which must be one that links this crate; see [`take_handover`].
    ///
    /// The files come beside the standard streams, as the only ones; our copies are closed when the [`Command`] is dropped.
    ///
    /// [`take_handover`]: crate::take_handover
    #[must_use]
    pub fn hand_over(mut self, when: TakenAt, note: impl Into<String>, fds: impl IntoIterator<Item = OwnedFd>) -> Self {
        self.handover = Some((when, note.into()));
        self.passed = fds.into_iter().collect();
        self
    }

    /// Sets the signal that the worker gets when the *thread* that spawned it ends; SIGKILL unless set, `None` for none.
    ///
    /// Mirrors `PR_SET_PDEATHSIG` of prctl(2). A thread that spawns must therefore live as long as its workers.
    #[must_use]
    pub fn parent_death_signal(mut self, signal: Option<Signal>) -> Self {
        self.parent_death_signal = signal;
        self
    }

    /// Turns everything into what the kernel takes, so that nothing is left to allocate in the child.
    pub(crate) fn prepare(&self, null: RawFd) -> Result<Prepared, SpawnError> {
        let path = self.envs.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
        let candidates = candidates(&self.program, path);
        let candidates = self.strings("program", candidates.into_iter())?;
        let argv = std::iter::once(self.arg0.as_ref().unwrap_or(&self.program))
            .chain(&self.args)
            .map(|arg| arg.as_bytes().to_vec());
        let argv = self.strings("argument", argv)?;
        let handover =
            self.handover.as_ref().map(|(when, note)| crate::handover::variable(*when, self.passed.len(), note));
        let inherited_by_all = self.envs.iter().filter(|(name, _)| !crate::handover::is_variable(name));
        let envs = inherited_by_all.chain(&handover).map(|(name, value)| {
            let mut both = Vec::with_capacity(name.len() + value.len() + 2);
            both.extend_from_slice(name.as_bytes());
            both.push(b'=');
            both.extend_from_slice(value.as_bytes());
            both
        });
        let envs = self.strings("environment variable", envs)?;
        let current_dir = match &self.current_dir {
            Some(dir) => Some(self.string("working directory", dir.clone().into_os_string().into_vec())?),
            None => None,
        };
        let placement = self.prepare_placement()?;
        let (mut fds, mut raised) = ([0; 3], Vec::new());
        for (target, stdio) in self.stdio.iter().enumerate() {
            fds[target] = match stdio {
                Stdio::Null => null,
                Stdio::Inherit => inherited(target as RawFd).unwrap_or(null),
                Stdio::Fd(fd) if fd.as_raw_fd() > 2 => fd.as_raw_fd(),
                // A source below 3 could be overwritten by the dup2 for another stream before its own turn.
                Stdio::Fd(fd) => {
                    let copy = raise(fd, 3).map_err(|errno| self.error(crate::SpawnStep::Stdio, errno))?;
                    raised.push(copy);
                    raised[raised.len() - 1].as_raw_fd()
                }
            };
        }
        // Above all their targets, so that none is overwritten before its own turn.
        let above = FIRST_FD + self.passed.len() as RawFd;
        let mut passed = Vec::with_capacity(self.passed.len());
        for fd in &self.passed {
            let copy = raise(fd, above).map_err(|errno| self.error(crate::SpawnStep::Stdio, errno))?;
            passed.push(copy.as_raw_fd());
            raised.push(copy);
        }
        Ok(Prepared { candidates, argv, envs, current_dir, fds, passed, placement, _raised: raised })
    }

    pub(crate) fn error(&self, step: crate::SpawnStep, errno: i32) -> SpawnError {
        let program = self.program.clone();
        match &self.current_dir {
            Some(dir) if step == crate::SpawnStep::CurrentDir => {
                SpawnError::CurrentDir { program, dir: dir.clone().into_os_string(), errno }
            }
            _ => SpawnError::Step { program, step, errno },
        }
    }

    fn string(&self, what: &'static str, bytes: Vec<u8>) -> Result<CString, SpawnError> {
        CString::new(bytes).map_err(|error| SpawnError::NulByte {
            program: self.program.clone(),
            what,
            text: OsString::from_vec(error.into_vec()),
        })
    }

    fn strings(&self, what: &'static str, all: impl Iterator<Item = Vec<u8>>) -> Result<CStrings, SpawnError> {
        let strings = all.map(|bytes| self.string(what, bytes)).collect::<Result<Vec<_>, _>>()?;
        Ok(CStrings::new(strings))
    }
}

/// The paths to try, in order, as execvp(3) does.
fn candidates(program: &OsStr, path: Option<&OsStr>) -> Vec<Vec<u8>> {
    if program.is_empty() || program.as_bytes().contains(&b'/') {
        return vec![program.as_bytes().to_vec()];
    }
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    path.as_bytes()
        .split(|byte| *byte == b':')
        .map(|dir| {
            let dir = if dir.is_empty() { b"." } else { dir };
            Path::new(OsStr::from_bytes(dir)).join(program).into_os_string().into_vec()
        })
        .collect()
}

/// `fd` itself if it is open in this program.
fn inherited(fd: RawFd) -> Option<RawFd> {
    // SAFETY: F_GETFD takes no third argument and touches no memory.
    (unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0).then_some(fd)
}

/// A copy of `fd` with a number not below `least`.
fn raise(fd: &OwnedFd, least: RawFd) -> Result<OwnedFd, i32> {
    // SAFETY: fd is open; F_DUPFD_CLOEXEC takes an integer.
    let copy = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
    if copy < 0 {
        return Err(crate::sys::errno());
    }
    // SAFETY: the kernel just made it and nobody else has it.
    Ok(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(copy) })
}

/// Strings and the null-terminated array of pointers to them that execve(2) takes.
pub(crate) struct CStrings {
    /// Owns what `pointers` points to: a CString's text does not move when the CString does.
    _strings: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

impl CStrings {
    fn new(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect();
        Self { _strings: strings, pointers }
    }

    /// The array; it ends with a null pointer.
    pub(crate) fn as_ptr(&self) -> *const *const libc::c_char {
        self.pointers.as_ptr()
    }
}

/// A [`Command`] with everything allocated that its child needs.
pub(crate) struct Prepared {
    pub(crate) candidates: CStrings,
    pub(crate) argv: CStrings,
    pub(crate) envs: CStrings,
    pub(crate) current_dir: Option<CString>,
    /// What becomes file descriptor 0, 1 and 2; an equal number means: leave it.
    pub(crate) fds: [RawFd; 3],
    /// What becomes 3, 4, ...; all numbers are above those.
    pub(crate) passed: Vec<RawFd>,
    pub(crate) placement: PreparedPlacement,
    _raised: Vec<OwnedFd>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(program: &str, path: Option<&str>) -> Vec<String> {
        let found = candidates(OsStr::new(program), path.map(OsStr::new));
        found.into_iter().map(|bytes| String::from_utf8(bytes).unwrap()).collect()
    }

    #[test]
    fn a_name_is_looked_up_in_each_directory_of_path() {
        assert_eq!(tried("sh", Some("/a:/b/")), ["/a/sh", "/b/sh"]);
        assert_eq!(tried("sh", None), ["/bin/sh", "/usr/bin/sh"]);
        assert_eq!(tried("sh", Some("")), ["./sh"]);
        assert_eq!(tried("sh", Some("/a::/b")), ["/a/sh", "./sh", "/b/sh"]);
    }

    #[test]
    fn a_path_is_taken_as_it_is() {
        assert_eq!(tried("./sh", Some("/a")), ["./sh"]);
        assert_eq!(tried("/bin/sh", Some("/a")), ["/bin/sh"]);
        assert_eq!(tried("", Some("/a")), [""]);
    }

    #[test]
    fn a_nul_byte_is_refused_and_said_where() {
        let error = Command::new("sh").args(["a\0b"]).prepare(9).err().unwrap();
        assert_eq!(error.to_string(), "cannot start `sh`: argument `a\\x00b` contains a NUL byte");
    }
}
