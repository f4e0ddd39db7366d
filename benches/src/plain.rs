//! What the kernel and the C library alone take to run programs: [`PlainProgram`], started by posix_spawn(3).
//!
//! No sessions, no signals reset, no pidfd, no environment per worker: the least that a launcher can do.

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, posix_spawn};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use crate::error::{BenchError, os};

/// A program with its arguments, ready to be started many times with this process's environment.
#[derive(Debug, Clone)]
pub struct PlainProgram {
    path: CString,
    argv: Vec<CString>,
    envs: Vec<CString>,
}

impl PlainProgram {
    /// Takes a program's path, which is not looked up anywhere, and the arguments after its name.
    ///
    /// # Errors
    /// [`BenchError::Unexpected`] if there is a NUL byte in any text.
    pub fn new(path: &Path, args: &[&str]) -> Result<Self, BenchError> {
        let text = |bytes: Vec<u8>| {
            CString::new(bytes).map_err(|error| BenchError::Unexpected(format!("no text for exec: {error}")))
        };
        let path = text(path.as_os_str().as_bytes().to_vec())?;
        let mut argv = vec![path.clone()];
        for arg in args {
            argv.push(text(arg.as_bytes().to_vec())?);
        }
        let envs = std::env::vars_os().map(|(name, value)| {
            let mut pair = name.into_vec();
            pair.push(b'=');
            pair.extend(value.into_vec());
            text(pair)
        });
        Ok(Self { path, argv, envs: envs.collect::<Result<_, _>>()? })
    }

    /// Starts it with this process's standard streams.
    ///
    /// # Errors
    /// [`BenchError::Os`].
    pub fn start(&self) -> Result<PlainProcess, BenchError> {
        self.spawn(&PosixSpawnFileActions::init().map_err(os("posix_spawn_file_actions_init"))?)
    }

    /// Starts it with `stdin` as standard input, and the files as standard output and error, made and appended to.
    ///
    /// # Errors
    /// [`BenchError::Os`].
    pub fn start_into(&self, stdin: BorrowedFd<'_>, stdout: &Path, stderr: &Path) -> Result<PlainProcess, BenchError> {
        let refused = || os("posix_spawn_file_actions");
        let mut actions = PosixSpawnFileActions::init().map_err(refused())?;
        actions.add_dup2(stdin.as_raw_fd(), 0).map_err(refused())?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_APPEND;
        for (fd, path) in [(1, stdout), (2, stderr)] {
            actions.add_open(fd, path, flags, Mode::from_bits_truncate(0o644)).map_err(refused())?;
        }
        self.spawn(&actions)
    }

    fn spawn(&self, actions: &PosixSpawnFileActions) -> Result<PlainProcess, BenchError> {
        let attributes = PosixSpawnAttr::init().map_err(os("posix_spawnattr_init"))?;
        let pid = posix_spawn(self.path.as_c_str(), actions, &attributes, &self.argv, &self.envs)
            .map_err(os(format!("posix_spawn {}", self.path.to_string_lossy())))?;
        Ok(PlainProcess { pid, reaped: false })
    }
}

/// A process that was started; dropping it kills it, if it was not waited for.
#[derive(Debug)]
pub struct PlainProcess {
    pid: Pid,
    reaped: bool,
}

impl PlainProcess {
    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Waits until it has ended and returns its exit code, or 128 + n if signal n ended it.
    ///
    /// # Errors
    /// [`BenchError::Os`] if it cannot be waited for.
    pub fn wait(&mut self) -> Result<i32, BenchError> {
        let status = waitpid(self.pid, None).map_err(os(format!("waitpid {}", self.pid)))?;
        self.reaped = true;
        match status {
            WaitStatus::Exited(_, code) => Ok(code),
            WaitStatus::Signaled(_, signal, _) => Ok(128 + signal as i32),
            other => Err(BenchError::Unexpected(format!("process {} has not ended: {other:?}", self.pid))),
        }
    }

    /// Sends SIGTERM.
    ///
    /// # Errors
    /// [`BenchError::Os`].
    pub fn terminate(&self) -> Result<(), BenchError> {
        kill(self.pid, Signal::SIGTERM).map_err(os(format!("kill {}", self.pid)))
    }
}

impl Drop for PlainProcess {
    fn drop(&mut self) {
        if !self.reaped {
            // It is our child and not reaped, so the number is still its own.
            let _ = kill(self.pid, Signal::SIGKILL);
            let _ = waitpid(self.pid, None);
        }
    }
}

/// Waits until any child of this process has ended and returns its process id; it is not reaped yet.
///
/// # Errors
/// [`BenchError::Os`] if there are no children.
pub fn wait_for_any() -> Result<i32, BenchError> {
    let status = loop {
        match waitid(nix::sys::wait::Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
            Err(Errno::EINTR) => {}
            other => break other.map_err(os("waitid"))?,
        }
    };
    status.pid().map(Pid::as_raw).ok_or_else(|| BenchError::Unexpected(format!("waitid without a process: {status:?}")))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn sh(script: &str) -> PlainProgram {
        PlainProgram::new(Path::new("/bin/sh"), &["-c", script]).unwrap()
    }

    #[test]
    fn output_goes_to_the_files_and_the_exit_code_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let (stdout, stderr) = (dir.path().join("out"), dir.path().join("err"));
        let null = std::fs::File::open("/dev/null").unwrap();
        let program = sh("cat; echo out; echo err >&2; exit 3");
        for _ in 0..2 {
            assert_eq!(program.start_into(null.as_fd(), &stdout, &stderr).unwrap().wait().unwrap(), 3);
        }
        assert_eq!(std::fs::read_to_string(stdout).unwrap(), "out\nout\n");
        assert_eq!(std::fs::read_to_string(stderr).unwrap(), "err\nerr\n");
    }

    #[test]
    fn a_signal_is_told_from_an_exit_code() {
        let mut process = sh("exec sleep 600").start().unwrap();
        process.terminate().unwrap();
        assert_eq!(process.wait().unwrap(), 128 + 15);
    }

    #[test]
    fn a_process_that_nobody_waits_for_is_killed() {
        let process = sh("exec sleep 600").start().unwrap();
        let pid = Pid::from_raw(process.pid());
        drop(process);
        assert_eq!(kill(pid, None), Err(Errno::ESRCH));
    }

    #[test]
    fn a_program_that_does_not_exist_is_an_error_with_its_path() {
        let error = PlainProgram::new(Path::new("/no/such/program"), &[]).unwrap().start().unwrap_err();
        assert_eq!(error.to_string(), "posix_spawn /no/such/program: No such file or directory (os error 2)");
    }
}
