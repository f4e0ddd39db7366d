//! Starting a process without fork: [`Spawner`]. Not here: what the child does before exec (`entry`).
//!
//! fork, and with it `std::process::Command` with `pre_exec`, copies the parent's page tables: at 1 GiB of heap that
//! is 100 ms a worker. `clone(CLONE_VM | CLONE_VFORK)` shares them for the moment until exec, and `CLONE_PIDFD` gives
//! the child's identity in the same call, so that no moment exists in which it is only a number.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use rankrun_types::escape_os_str;

use crate::child::Child;
use crate::clone3::clone3;
use crate::command::Command;
use crate::entry::{Failure, Plan, run};
use crate::{ControlGroup, Resource, sys};

/// The child's stack between clone and exec: a few frames of system calls; glibc's posix_spawn takes 32 KiB too.
const STACK_SIZE: usize = 64 * 1024;

/// Limits' codes follow this one.
const LIMIT_CODE: u32 = 0x100;

/// What a process does between its birth and its program, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpawnStep {
    /// Entering the control group, which is done without if it fails.
    ControlGroup,
    /// setsid(2).
    Session,
    /// prctl(2) with `PR_SET_PDEATHSIG`, and finding the parent still there.
    DeathSignal,
    /// chdir(2) to the working directory.
    CurrentDir,
    /// dup2(2) of the standard streams.
    Stdio,
    /// sched_setaffinity(2).
    Affinity,
    /// setpriority(2) to the nice value.
    Nice,
    /// setrlimit(2) of this resource.
    Limit(Resource),
    /// execve(2).
    Exec,
}

impl SpawnStep {
    /// The step as a number, never 0. The child calls it: no more than a look-up.
    pub(crate) const fn code(self) -> u32 {
        match self {
            Self::Session => 1,
            Self::DeathSignal => 2,
            Self::CurrentDir => 3,
            Self::Stdio => 4,
            Self::Affinity => 5,
            Self::Nice => 6,
            Self::Exec => 7,
            Self::ControlGroup => 8,
            Self::Limit(resource) => LIMIT_CODE + resource as u32,
        }
    }

    pub(crate) fn from_code(code: u32) -> Option<Self> {
        let plain = [
            Self::ControlGroup,
            Self::Session,
            Self::DeathSignal,
            Self::CurrentDir,
            Self::Stdio,
            Self::Affinity,
            Self::Nice,
            Self::Exec,
        ];
        plain.into_iter().chain(Resource::ALL.map(Self::Limit)).find(|step| step.code() == code)
    }
}

impl fmt::Display for SpawnStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Limit(resource) => return write!(f, "setrlimit {resource}"),
            Self::Affinity => "sched_setaffinity",
            Self::Nice => "setpriority",
            Self::ControlGroup => "control group",
            Self::Session => "setsid",
            Self::DeathSignal => "parent death signal",
            Self::CurrentDir => "chdir",
            Self::Stdio => "dup2",
            Self::Exec => "exec",
        })
    }
}

/// Shows an errno as the system's words and its number.
struct Os(i32);

impl fmt::Display for Os {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", io::Error::from_raw_os_error(self.0))
    }
}

/// Shows a text of the command in one line of bounded length.
struct Shown<'a>(&'a OsString);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 200;
        let text = escape_os_str(self.0);
        match text.char_indices().nth(MOST) {
            Some((end, _)) => write!(f, "{}...", &text[..end]),
            None => f.write_str(&text),
        }
    }
}

/// A process could not be started; nothing of it is left.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// A text has a NUL byte, which no program can be given.
    #[error("cannot start `{}`: {what} `{}` contains a NUL byte", Shown(program), Shown(text))]
    NulByte {
        /// The program.
        program: OsString,
        /// Which kind of text: `argument`, `environment variable`, ...
        what: &'static str,
        /// The text.
        text: OsString,
    },
    /// A setting of the command is out of its range.
    #[error("cannot start `{}`: {what} {value}: expected {expected}", Shown(program))]
    OutOfRange {
        /// The program.
        program: OsString,
        /// Which setting: `nice value`, `umask` or `soft limit`.
        what: &'static str,
        /// What was asked for.
        value: String,
        /// What is possible, in words.
        expected: String,
    },
    /// The kernel made no process: EAGAIN (too many), ENOMEM, EMFILE (no descriptor for the pidfd), ...
    #[error("cannot start `{}`: clone: {}", Shown(program), Os(*errno))]
    Clone {
        /// The program.
        program: OsString,
        /// The errno of clone(2).
        errno: i32,
    },
    /// The process was made, but could not become the program.
    #[error("cannot start `{}`: {step}: {}", Shown(program), Os(*errno))]
    Step {
        /// The program.
        program: OsString,
        /// What it could not do.
        step: SpawnStep,
        /// The errno of that.
        errno: i32,
    },
    /// The process was made, but could not go to its working directory.
    #[error("cannot start `{}`: chdir `{}`: {}", Shown(program), Shown(dir), Os(*errno))]
    CurrentDir {
        /// The program.
        program: OsString,
        /// The directory.
        dir: OsString,
        /// The errno of chdir(2).
        errno: i32,
    },
    /// The spawner could not get what it needs for itself.
    #[error("cannot prepare to start processes: {what}: {}", Os(*errno))]
    Prepare {
        /// `stack` or `/dev/null`.
        what: &'static str,
        /// The errno.
        errno: i32,
    },
}

impl SpawnError {
    /// The errno, where the kernel refused something.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::NulByte { .. } | Self::OutOfRange { .. } => None,
            Self::Clone { errno, .. }
            | Self::Step { errno, .. }
            | Self::CurrentDir { errno, .. }
            | Self::Prepare { errno, .. } => Some(*errno),
        }
    }

    /// The step that failed, where the process was made.
    #[must_use]
    pub fn step(&self) -> Option<SpawnStep> {
        match self {
            Self::Step { step, .. } => Some(*step),
            Self::CurrentDir { .. } => Some(SpawnStep::CurrentDir),
            _ => None,
        }
    }
}

/// Starts processes, one at a time, from the thread that calls it.
///
/// Holds the stack and the `/dev/null` that all its children use for a moment.
#[derive(Debug)]
pub struct Spawner {
    stack: Stack,
    null: OwnedFd,
    /// The kernel does not put new processes into a control group: each moves there itself.
    no_clone_into: bool,
}

impl Spawner {
    /// Makes a spawner.
    ///
    /// # Errors
    /// [`SpawnError::Prepare`] if there is no memory for a stack or `/dev/null` cannot be opened.
    pub fn new() -> Result<Self, SpawnError> {
        let stack = Stack::new().map_err(|errno| SpawnError::Prepare { what: "stack", errno })?;
        let null = File::options().read(true).write(true).open("/dev/null").map_err(|error| SpawnError::Prepare {
            what: "/dev/null",
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        })?;
        // A host that closed its standard streams may have got a number below 3, which the child's dup2 would overwrite.
        let null = OwnedFd::from(null);
        // SAFETY: null is open; F_DUPFD_CLOEXEC takes an integer.
        let raised = unsafe { libc::fcntl(null.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) };
        if raised < 0 {
            return Err(SpawnError::Prepare { what: "/dev/null", errno: sys::errno() });
        }
        // SAFETY: the kernel just made it and nobody else has it.
        let null = unsafe { OwnedFd::from_raw_fd(raised) };
        Ok(Self { stack, null, no_clone_into: false })
    }

    /// Starts the command and returns when its program runs.
    ///
    /// Blocks the calling thread until exec, with all signals blocked. The process gets its parent death signal when
    /// this *thread* ends.
    ///
    /// # Errors
    /// [`SpawnError`] with the step and errno; the process is gone and reaped by then.
    pub fn spawn(&mut self, command: Command) -> Result<Child, SpawnError> {
        self.start(&command, None)
    }

    /// As [`spawn`](Self::spawn), in this control group from the first moment on; where that does not take the process,
    /// because somebody has removed it say, outside of it.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    pub fn spawn_into(&mut self, command: Command, group: &ControlGroup) -> Result<Child, SpawnError> {
        match self.start(&command, Some(group)) {
            Err(SpawnError::Step { step: SpawnStep::ControlGroup, .. }) => self.start(&command, None),
            started => started,
        }
    }

    fn start(&mut self, command: &Command, group: Option<&ControlGroup>) -> Result<Child, SpawnError> {
        let prepared = command.prepare(self.null.as_raw_fd())?;
        let mut plan = Plan {
            enter: None,
            candidates: prepared.candidates.as_ptr(),
            argv: prepared.argv.as_ptr(),
            envs: prepared.envs.as_ptr(),
            current_dir: prepared.current_dir.as_ref().map_or(ptr::null(), |dir| dir.as_ptr()),
            fds: prepared.fds,
            passed: &prepared.passed,
            parent_death_signal: command.parent_death_signal.map_or(0, rankrun_types::Signal::as_raw),
            // SAFETY: takes nothing and cannot fail.
            parent: unsafe { libc::getpid() },
            placement: &prepared.placement,
            failure: Failure::none(),
        };
        // Where there are no pidfds: what stands in for one, made while there is no process that could be lost.
        let event = if sys::has_pidfd() {
            None
        } else {
            Some(Child::event().map_err(|errno| SpawnError::Clone { program: command.program.clone(), errno })?)
        };
        let identify = if event.is_none() { libc::CLONE_PIDFD } else { 0 };
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | identify;
        let mut pidfd: libc::c_int = -1;
        let mask = sys::block_all_signals().map_err(|errno| command.error(SpawnStep::Session, errno))?;
        let made = self.clone_child(&mut plan, flags, &mut pidfd, group);
        sys::restore_signals(mask);
        let pid = made.map_err(|errno| SpawnError::Clone { program: command.program.clone(), errno })?;
        let child = match event {
            // SAFETY: clone succeeded, so the kernel has stored a new descriptor that nobody else has.
            None => Ok(Child::with_pidfd(pid, unsafe { OwnedFd::from_raw_fd(pidfd) })),
            Some(event) => Child::with_thread(pid, event),
        };
        let mut child = child.map_err(|errno| {
            // No thread to wait for it: it must not run on unsupervised. Nobody else reaps it before us.
            let _ = sys::kill(pid, libc::SIGKILL);
            let _ = sys::waitid(sys::Whom::Pid(pid), 0);
            SpawnError::Clone { program: command.program.clone(), errno }
        })?;
        match plan.failure.get() {
            None => Ok(child),
            Some((step, errno)) => {
                // It has already called _exit; whoever reaps it, it is gone.
                let _ = child.wait();
                Err(command.error(step, errno))
            }
        }
    }

    /// Makes the child, by clone3 if it is to be born in a control group, and returns when it has left our memory.
    fn clone_child(
        &mut self,
        plan: &mut Plan<'_>,
        flags: libc::c_int,
        pidfd: &mut libc::c_int,
        group: Option<&ControlGroup>,
    ) -> Result<u32, i32> {
        if let Some(group) = group.filter(|_| !self.no_clone_into) {
            let argument = ptr::from_mut(plan).cast();
            // SAFETY: `run` never returns; the stack is ours alone and large enough for it; with CLONE_VFORK this thread
            // sleeps until the child has left our memory by exec or exit, so `plan`, what it points to and the stack outlive
            // its use of them; with all signals blocked no handler runs in the child before it has set them to default.
            match unsafe { clone3(flags, pidfd, self.stack.area(), group.as_fd(), run, argument) } {
                // As without a control group.
                Err(errno @ (libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE)) => return Err(errno),
                // No such call (ENOSYS, or a filter's EPERM), or an older form of it (E2BIG, EINVAL); what the control
                // group itself has against the process, it will say again.
                Err(_) => self.no_clone_into = true,
                made => return made,
            }
        }
        plan.enter = group.map(|group| group.procs().as_raw_fd());
        let (top, plan) = (self.stack.top(), ptr::from_mut(plan).cast());
        // SAFETY: as above.
        let pid = unsafe { libc::clone(run, top, flags | libc::SIGCHLD, plan, ptr::from_mut(pidfd)) };
        u32::try_from(pid).map_err(|_| sys::errno())
    }
}

/// Memory for the child's stack, with a page below it that faults.
#[derive(Debug)]
struct Stack {
    base: *mut libc::c_void,
    size: usize,
}

// SAFETY: the memory belongs to this value alone; the pointer is not tied to a thread.
unsafe impl Send for Stack {}

impl Stack {
    fn new() -> Result<Self, i32> {
        // SAFETY: takes an integer.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let size = STACK_SIZE + page;
        // SAFETY: a fresh private mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(sys::errno());
        }
        let stack = Self { base, size };
        // SAFETY: the lowest page of the mapping above.
        if unsafe { libc::mprotect(base, page, libc::PROT_NONE) } < 0 {
            return Err(sys::errno());
        }
        Ok(stack)
    }

    /// The lowest address that may be written to and how much is above it.
    fn area(&mut self) -> (*mut libc::c_void, usize) {
        // SAFETY: within the mapping, past the page that faults.
        (unsafe { self.base.add(self.size - STACK_SIZE) }, STACK_SIZE)
    }

    /// The address just past the highest, aligned as every ABI wants; the stack grows down from it.
    fn top(&mut self) -> *mut libc::c_void {
        // SAFETY: one past the end of the mapping, which is page-aligned.
        unsafe { self.base.add(self.size) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; no child uses it, since `spawn` returns only after that.
        unsafe { libc::munmap(self.base, self.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_comes_back_from_its_code() {
        use SpawnStep::{Affinity, ControlGroup, CurrentDir, DeathSignal, Exec, Nice, Session, Stdio};
        let steps = [ControlGroup, Session, DeathSignal, CurrentDir, Stdio, Affinity, Nice, Exec];
        for step in steps.into_iter().chain(Resource::ALL.map(SpawnStep::Limit)) {
            assert_eq!(SpawnStep::from_code(step.code()), Some(step));
        }
        assert_eq!(SpawnStep::from_code(0), None);
    }

    #[test]
    fn a_child_enters_its_control_group_at_its_birth_or_by_itself_or_does_without() {
        let Ok(group) = ControlGroup::new("spawn-test") else {
            eprintln!("skipped: no control group can be made here");
            return;
        };
        let mut spawner = Spawner::new().unwrap();
        let command = || Command::new("/bin/sleep").args(["600"]);
        let mut born = spawner.spawn_into(command(), &group).unwrap();
        let at_birth = group.contains(born.pid());
        spawner.no_clone_into = true;
        let mut entered = spawner.spawn_into(command(), &group).unwrap();
        let by_itself = group.contains(entered.pid());
        group.kill();
        for child in [&mut born, &mut entered] {
            // Where the kernel has no cgroup.kill.
            child.signal(rankrun_types::Signal::KILL).unwrap();
            child.wait().unwrap();
        }
        assert!(at_birth && by_itself && group.remove() && !group.dir().exists());
        for no_clone_into in [false, true] {
            spawner.no_clone_into = no_clone_into;
            let mut outside = spawner.spawn_into(command(), &group).unwrap();
            let inside = group.contains(outside.pid());
            outside.signal(rankrun_types::Signal::KILL).unwrap();
            outside.wait().unwrap();
            assert!(!inside);
        }
    }
}
