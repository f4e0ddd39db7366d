//! One started process and the process group it leads: [`Child`]. Not here: starting it (`spawn`).
//!
//! A pid is a number that the kernel gives to somebody else once the process is reaped. So the process is known by
//! its pidfd, and its group too where the kernel can signal a group through one (Linux 6.9). Where it cannot, an
//! ended leader stays an unreaped zombie until its group is done with, because that keeps the number taken. Where there
//! are no pidfds at all, a thread waits for each process and makes an eventfd readable when it ends.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use rankrun_types::{ExitKind, Signal};

use crate::sys::{self, Waited, Whom};
use crate::table;

/// How a process ended and what it used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// How it ended.
    pub kind: ExitKind,
    /// What it used; zero where the status was lost.
    pub usage: Usage,
}

/// What a process and those of its children that it waited for have used. Mirrors getrusage(2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in its own code.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// The most memory it had resident at any time, in bytes.
    pub peak_memory: u64,
}

/// The kernel would not say how a process ended.
#[derive(Debug, thiserror::Error)]
#[error("cannot wait for process {pid}: {}", io::Error::from_raw_os_error(*errno))]
pub struct WaitError {
    /// The process.
    pub pid: u32,
    /// The errno of waitid(2) or poll(2).
    pub errno: i32,
}

/// A signal could not be sent.
#[derive(Debug, thiserror::Error)]
#[error("cannot send {signal} to {what} {pid}: {}", io::Error::from_raw_os_error(*errno))]
pub struct SignalError {
    /// The signal.
    pub signal: Signal,
    /// `process` or `process group`.
    pub what: &'static str,
    /// Its id.
    pub pid: u32,
    /// The errno of pidfd_send_signal(2) or kill(2).
    pub errno: i32,
}

/// A process that a [`Spawner`](crate::Spawner) started, and the process group that it leads.
///
/// As a file descriptor ([`AsFd`]) it becomes readable when the process has ended, and stays so. Dropping a `Child`
/// kills nothing; a process that has ended by then is reaped.
#[derive(Debug)]
pub struct Child {
    pid: u32,
    identity: Identity,
    exit: Option<Exit>,
    /// The pid may still be used as the group's id: the leader has not been reaped.
    holds_pid: bool,
}

/// How the process is known.
#[derive(Debug)]
enum Identity {
    Pidfd(OwnedFd),
    /// By its number, which stays its own until we reap it. The event is written to when it has ended.
    Number(Arc<EventFd>),
}

/// The stack of a thread that does nothing but wait.
const WAITING_STACK: usize = 64 * 1024;

impl Child {
    pub(crate) fn with_pidfd(pid: u32, pidfd: OwnedFd) -> Self {
        Self { pid, identity: Identity::Pidfd(pidfd), exit: None, holds_pid: true }
    }

    /// Holds the process without a pidfd, by a thread that waits for its end.
    ///
    /// On an error the process runs on; the caller ends it.
    pub(crate) fn with_thread(pid: u32, event: Arc<EventFd>) -> Result<Self, i32> {
        let ended = Arc::clone(&event);
        let wait = move || {
            // Whatever it says, an error too, the process is no longer there to be waited for.
            let _ = sys::waitid(Whom::Pid(pid), libc::WNOWAIT);
            let _ = ended.write(1);
        };
        let thread = std::thread::Builder::new().name("rankrun-wait".to_owned()).stack_size(WAITING_STACK).spawn(wait);
        match thread {
            Ok(_) => Ok(Self { pid, identity: Identity::Number(event), exit: None, holds_pid: true }),
            Err(error) => Err(error.raw_os_error().unwrap_or(libc::EAGAIN)),
        }
    }

    /// What [`with_thread`](Self::with_thread) needs, to be made before there is a process.
    pub(crate) fn event() -> Result<Arc<EventFd>, i32> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        event.map(Arc::new).map_err(|errno| errno as i32)
    }

    fn whom(&self) -> Whom<'_> {
        match &self.identity {
            Identity::Pidfd(pidfd) => Whom::Pidfd(pidfd.as_fd()),
            Identity::Number(_) => Whom::Pid(self.pid),
        }
    }

    /// The process id, which is also the id of its session and process group.
    ///
    /// For showing; after the process has ended, the number may belong to another.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// How the process ended, or `None` while it runs. Never blocks; says the same again once it has an answer.
    ///
    /// If another part of the program took the status, it is asked from the kernel another way (Linux 6.15), without the
    /// usage; where that cannot be had, it is [`ExitKind::Lost`].
    ///
    /// # Errors
    /// [`WaitError`] if waitid(2) fails for any other reason, which no kernel known does for a live pidfd.
    pub fn try_wait(&mut self) -> Result<Option<Exit>, WaitError> {
        if self.exit.is_some() {
            return Ok(self.exit);
        }
        let reap = sys::has_group_signals();
        let flags = if reap { libc::WNOHANG } else { libc::WNOHANG | libc::WNOWAIT };
        match sys::waitid(self.whom(), flags) {
            Ok(None) => return Ok(None),
            Ok(Some(waited)) => {
                self.exit = Some(exit(&waited));
                self.holds_pid = !reap;
            }
            Err(libc::ECHILD) => {
                if let Identity::Pidfd(pidfd) = &self.identity
                    && sys::pidfd_signal(pidfd.as_fd(), 0).is_ok()
                {
                    // Also the answer for a process that is not our child; but then it still runs.
                    return Ok(None);
                }
                let kind = self.status_taken_by_another().map_or(ExitKind::Lost, status_kind);
                self.exit = Some(Exit { kind, usage: Usage::default() });
                self.holds_pid = false;
            }
            Err(errno) => return Err(WaitError { pid: self.pid, errno }),
        }
        Ok(self.exit)
    }

    fn status_taken_by_another(&self) -> Option<i32> {
        match &self.identity {
            Identity::Pidfd(pidfd) => sys::status_after_reaping(pidfd.as_fd()),
            Identity::Number(_) => None,
        }
    }

    /// Blocks until the process has ended and says how.
    ///
    /// # Errors
    /// As [`try_wait`](Self::try_wait).
    pub fn wait(&mut self) -> Result<Exit, WaitError> {
        loop {
            if let Some(exit) = self.try_wait()? {
                return Ok(exit);
            }
            let mut poll = [nix::poll::PollFd::new(self.as_fd(), nix::poll::PollFlags::POLLIN)];
            match nix::poll::poll(&mut poll, nix::poll::PollTimeout::NONE) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(WaitError { pid: self.pid, errno: errno as i32 }),
            }
        }
    }

    /// Sends a signal to the process alone. To a process that has ended it does nothing.
    ///
    /// # Errors
    /// [`SignalError`], for example EPERM if the process took another user's identity.
    pub fn signal(&self, signal: Signal) -> Result<(), SignalError> {
        let sent = match &self.identity {
            Identity::Pidfd(pidfd) => sys::pidfd_signal(pidfd.as_fd(), signal.as_raw()),
            // An ended process keeps its number until we reap it, unless another part of the program has.
            Identity::Number(_)
                if self.holds_pid && sys::waitid(self.whom(), libc::WNOHANG | libc::WNOWAIT).is_ok() =>
            {
                sys::kill(self.pid, signal.as_raw())
            }
            Identity::Number(_) => Err(libc::ESRCH),
        };
        match sent {
            Ok(()) | Err(libc::ESRCH) => Ok(()),
            Err(errno) => Err(SignalError { signal, what: "process", pid: self.pid, errno }),
        }
    }

    /// Sends a signal to all members of the process group, the leader too if it runs. An empty group is no error.
    ///
    /// Never reaches a group that got the same number later.
    ///
    /// # Errors
    /// [`SignalError`] with EPERM if no member could be signalled.
    pub fn signal_group(&self, signal: Signal) -> Result<(), SignalError> {
        let sent = match &self.identity {
            Identity::Pidfd(pidfd) if sys::has_group_signals() => {
                sys::pidfd_signal_group(pidfd.as_fd(), signal.as_raw())
            }
            _ if self.holds_pid && sys::waitid(self.whom(), libc::WNOHANG | libc::WNOWAIT).is_ok() => {
                sys::kill_group(self.pid, signal.as_raw())
            }
            _ => Err(libc::ESRCH),
        };
        match sent {
            Ok(()) | Err(libc::ESRCH) => Ok(()),
            Err(errno) => Err(SignalError { signal, what: "process group", pid: self.pid, errno }),
        }
    }

    /// Whether the process group has no live member but, maybe, the leader.
    #[must_use]
    pub fn group_is_empty(&self) -> bool {
        let known_empty = match &self.identity {
            Identity::Pidfd(pidfd) if sys::has_group_signals() => {
                self.exit.is_some() && sys::pidfd_signal_group(pidfd.as_fd(), 0) == Err(libc::ESRCH)
            }
            _ => !self.holds_pid,
        };
        // The kernel counts zombies too, and who adopted them may be slow to reap them.
        known_empty || table::group_members(self.pid).all(|member| member == self.pid)
    }
}

impl AsFd for Child {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.identity {
            Identity::Pidfd(pidfd) => pidfd.as_fd(),
            Identity::Number(event) => event.as_fd(),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.holds_pid {
            // Not ours to fail here: a process that runs goes on, an ended one is not left a zombie.
            let _ = sys::waitid(self.whom(), libc::WNOHANG);
        }
    }
}

/// What waitid(2) said, in our words. nix's own decoding loses real-time signals after it has reaped the child.
fn exit(waited: &Waited) -> Exit {
    let kind = match (waited.code, Signal::from_raw(waited.status)) {
        (libc::CLD_EXITED, _) => ExitKind::Code(waited.status & 0xff),
        (libc::CLD_KILLED, Some(signal)) => ExitKind::Signal { signal, core_dumped: false },
        (libc::CLD_DUMPED, Some(signal)) => ExitKind::Signal { signal, core_dumped: true },
        _ => ExitKind::Lost,
    };
    let usage = Usage {
        user: duration(waited.usage.ru_utime),
        system: duration(waited.usage.ru_stime),
        peak_memory: u64::try_from(waited.usage.ru_maxrss).unwrap_or(0) * 1024,
    };
    Exit { kind, usage }
}

/// A wait status as wait(2) gives it, in our words.
fn status_kind(status: i32) -> ExitKind {
    match Signal::from_raw(status & 0x7f) {
        None => ExitKind::Code((status >> 8) & 0xff),
        Some(signal) => ExitKind::Signal { signal, core_dumped: status & 0x80 != 0 },
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_micros(
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0),
    )
}
