//! Running a program under test and proving that it leaves nothing: [`Launcher`]. Not here: building it ([`crate::binary`]).

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal as NixSignal, kill};
use nix::unistd::Pid;
use rankrun_types::Signal;
use tempfile::TempDir;

use crate::process_table::list;
use crate::{
    Process, assert_no_process_left, binary, eventually, kill_processes_with_env, processes_with_env, try_eventually,
    unique_id,
};

/// The variable by which a [`Launcher`]'s processes are found: the launcher and all that it starts inherit it.
pub const MARK: &str = "RANKRUN_TEST_MARK";

/// A program to run in a test: its arguments and environment, and a mark of its own in the latter.
///
/// Stdin is `/dev/null`. Stdout and stderr go to unnamed files, so that nothing can hang on a pipe that a process left
/// behind still holds, unless set otherwise. `TMPDIR` is a directory of its own that goes with the [`Running`], unless
/// set otherwise.
#[derive(Debug)]
#[must_use = "it runs only when told to"]
pub struct Launcher {
    command: Command,
    mark: String,
    stdout: Option<Stdio>,
    stderr: Option<Stdio>,
}

/// What a program left when it ended.
#[derive(Debug, Clone)]
pub struct Output {
    /// The exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<Signal>,
    /// What it wrote to stdout; empty where [`Launcher::stdout`] was given.
    pub stdout: Vec<u8>,
    /// What it wrote to stderr; empty where [`Launcher::stderr`] was given.
    pub stderr: Vec<u8>,
    /// From just before its start to its end.
    pub elapsed: Duration,
}

/// A program that runs.
///
/// Dropping it kills the program if nobody waited for its end. It then panics if a process with its mark is left,
/// after killing what is left, so that one failed test does not spoil the next.
#[derive(Debug)]
pub struct Running {
    child: Child,
    mark: String,
    started: Instant,
    stdout: File,
    stderr: File,
    ended: Option<(ExitStatus, Duration)>,
    /// Removed last, when no process is left that could use it.
    _tmp: TempDir,
}

impl Launcher {
    /// A run of this program.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self { command: Command::new(program), mark: unique_id("mark"), stdout: None, stderr: None }
    }

    /// A run of the `rankrun` binary, which is built if need be. `OMP_NUM_THREADS` is set, so that there is nothing to say
    /// about it.
    ///
    /// # Panics
    /// When it can't be built.
    pub fn rankrun() -> Self {
        Self::new(binary("rankrun-cli", "rankrun")).env("OMP_NUM_THREADS", "1")
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets a variable.
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// Takes a variable out of what is inherited from the test.
    pub fn env_remove(mut self, key: impl AsRef<OsStr>) -> Self {
        self.command.env_remove(key);
        self
    }

    /// Sets the working directory.
    pub fn current_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Sends stdout elsewhere than into [`Output::stdout`].
    pub fn stdout(mut self, stdout: impl Into<Stdio>) -> Self {
        self.stdout = Some(stdout.into());
        self
    }

    /// Sends stderr elsewhere than into [`Output::stderr`].
    pub fn stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.stderr = Some(stderr.into());
        self
    }

    /// The value that [`MARK`] has in the environment of this run.
    #[must_use]
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// Starts the program.
    ///
    /// # Panics
    /// When it can't be started.
    #[track_caller]
    pub fn spawn(mut self) -> Running {
        let program = PathBuf::from(self.command.get_program());
        let stdout = unnamed_file();
        let stderr = unnamed_file();
        let tmp = tempfile::tempdir().expect("a temporary directory for the program");
        if self.command.get_envs().all(|(name, _)| name != "TMPDIR") {
            self.command.env("TMPDIR", tmp.path());
        }
        self.command
            .env(MARK, &self.mark)
            .stdin(Stdio::null())
            .stdout(self.stdout.unwrap_or_else(|| second(&stdout)))
            .stderr(self.stderr.unwrap_or_else(|| second(&stderr)));
        let started = Instant::now();
        let child = match self.command.spawn() {
            Ok(child) => child,
            Err(error) => panic!("{} does not start: {error}", program.display()),
        };
        Running { child, mark: self.mark, started, stdout, stderr, ended: None, _tmp: tmp }
    }

    /// Runs the program to its end.
    ///
    /// # Panics
    /// When it can't be started, does not end within `timeout` (it is killed then, and the message shows what it wrote), or
    /// leaves a process behind.
    #[track_caller]
    pub fn run_with_timeout(self, timeout: Duration) -> Output {
        let mut running = self.spawn();
        let output = running.wait_timeout(timeout);
        running.assert_nothing_left();
        output
    }
}

impl Running {
    /// The program's pid.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// The value that [`MARK`] has in its environment.
    #[must_use]
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// The living processes with its mark: itself and what it started.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        processes_with_env(MARK, &self.mark)
    }

    /// Sends a signal to the program; does nothing if it has ended.
    ///
    /// # Panics
    /// When the signal can't be sent.
    #[track_caller]
    pub fn signal(&mut self, signal: Signal) {
        if self.ended.is_some() {
            return;
        }
        // It has not been reaped, so the pid is still its own.
        let sent = match NixSignal::try_from(signal.as_raw()) {
            Ok(signal) => kill(Pid::from_raw(self.pid()), signal).map_err(|errno| errno.to_string()),
            Err(_) => kill_by_shell(self.pid(), signal),
        };
        if let Err(why) = sent {
            panic!("{signal} to pid {}: {why}", self.pid());
        }
    }

    /// What it has written to stdout so far.
    #[must_use]
    pub fn stdout(&self) -> Vec<u8> {
        contents(&self.stdout)
    }

    /// What it has written to stderr so far.
    #[must_use]
    pub fn stderr(&self) -> Vec<u8> {
        contents(&self.stderr)
    }

    /// Waits until stdout holds `text`.
    ///
    /// # Panics
    /// When it does not within `timeout`; the message shows what was written.
    #[track_caller]
    pub fn wait_for_stdout(&self, text: &str, timeout: Duration) {
        let holds = || self.stdout().windows(text.len().max(1)).any(|window| window == text.as_bytes());
        if try_eventually(timeout, holds).is_none() {
            panic!("no `{text}` on stdout within {timeout:?}\n{}", self.captured());
        }
    }

    /// Whether the program has ended. Does not block.
    ///
    /// # Panics
    /// When its state can't be had.
    pub fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            let status = self.child.try_wait().expect("our own child can be waited for");
            self.ended = status.map(|status| (status, self.started.elapsed()));
        }
        self.ended.is_some()
    }

    /// Waits for the program's end; a later call returns the same again.
    ///
    /// # Panics
    /// When it does not end within `timeout`: the program is killed then, and the message shows what it wrote and what ran.
    #[track_caller]
    pub fn wait_timeout(&mut self, timeout: Duration) -> Output {
        if try_eventually(timeout, || self.has_ended()).is_none() {
            let ran = self.processes();
            self.end();
            panic!("still runs after {timeout:?}\n{}--- processes\n{}", self.captured(), list(&ran));
        }
        let (status, elapsed) = self.ended.expect("it has ended");
        Output {
            code: status.code(),
            signal: status.signal().and_then(Signal::from_raw),
            stdout: self.stdout(),
            stderr: self.stderr(),
            elapsed,
        }
    }

    /// Waits up to 5 s until no process with its mark lives, the program itself among them.
    ///
    /// # Panics
    /// When some are left; they are killed then, and the message lists them.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        assert_no_process_left(MARK, &self.mark);
    }

    fn captured(&self) -> String {
        show(&self.stdout(), &self.stderr())
    }

    fn end(&mut self) {
        if !self.has_ended() {
            // It may end by itself just now.
            let _ = self.child.kill();
            eventually("SIGKILL ends the program", Duration::from_secs(10), || self.has_ended());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A second panic would abort the test program and hide the first.
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = std::panic::catch_unwind(|| kill_processes_with_env(MARK, &self.mark));
            return;
        }
        self.end();
        let mark = &self.mark;
        if let Err(left) = std::panic::catch_unwind(|| assert_no_process_left(MARK, mark)) {
            kill_processes_with_env(MARK, mark);
            std::panic::resume_unwind(left);
        }
    }
}

impl Output {
    /// What it wrote to stdout, as text.
    #[must_use]
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// What it wrote to stderr, as text.
    #[must_use]
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// The lines of stdout, sorted: where several workers write, their order is open.
    #[must_use]
    pub fn sorted_stdout_lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.stdout_text().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }
}

impl fmt::Display for Output {
    /// All of it, for the message of an assertion.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exit code {code}")?,
            (None, Some(signal)) => write!(f, "{signal}")?,
            (None, None) => f.write_str("unknown end")?,
        }
        write!(f, " after {:?}\n{}", self.elapsed, show(&self.stdout, &self.stderr))
    }
}

/// Sends a real-time signal, which nix does not know.
fn kill_by_shell(pid: i32, signal: Signal) -> Result<(), String> {
    let command = format!("kill -{} {pid}", signal.as_raw());
    match Command::new("sh").args(["-c", &command]).stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

fn show(stdout: &[u8], stderr: &[u8]) -> String {
    let text = |bytes: &[u8]| {
        let mut text = String::from_utf8_lossy(bytes).into_owned();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text
    };
    format!("--- stdout\n{}--- stderr\n{}", text(stdout), text(stderr))
}

fn unnamed_file() -> File {
    tempfile::tempfile().expect("a temporary file can be made")
}

fn second(file: &File) -> Stdio {
    file.try_clone().expect("a file descriptor is free").into()
}

/// The whole file, read by position: the program writes through the same open file, whose offset must not move.
fn contents(file: &File) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut block = [0; 64 * 1024];
    loop {
        match file.read_at(&mut block, bytes.len() as u64).expect("the captured output can be read") {
            0 => return bytes,
            count => bytes.extend_from_slice(&block[..count]),
        }
    }
}
