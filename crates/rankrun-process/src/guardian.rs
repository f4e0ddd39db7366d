//! A small process that outlives a killed launcher just long enough to end what it left: [`Guardian`].
//!
//! Not here: workers, which the kernel kills when their launcher dies (`PR_SET_PDEATHSIG`); the guardian is for what
//! they had started. It is this program executed again: a function that the dynamic linker calls before `main`
//! (`before_main`) looks for [`MARK`] in the environment and, where it is set, becomes the guardian and never returns. So
//! it works in every program that links this crate, without a line in its `main`, and none of that program's own code runs
//! in it.

use std::ffi::{CStr, CString, OsStr};
use std::io::{PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rankrun_types::Signal;

use crate::tree::JOB;
use crate::{Child, Command, ControlGroup, SpawnError, Spawner, Stdio, Tree};

/// Set to the group's cookie in the guardian's environment, and nowhere else.
const MARK: &CStr = c"RANKRUN_GUARDIAN";

/// Its name for who lists processes.
const NAME: &CStr = c"rankrun-guard";

/// When the tree began; empty where that is not known.
const EPOCH: &str = "RANKRUN_GUARDIAN_EPOCH";

/// The directory of the group's control group, and what /proc shows of its members, where there is one. The guardian has
/// it open as its standard output, by which it shares the lock.
const GROUP_DIR: &str = "RANKRUN_GUARDIAN_CGROUP";
const GROUP_NAME: &str = "RANKRUN_GUARDIAN_CGROUP_NAME";

/// How long a guardian goes on looking for processes that do not die.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often in a row nothing must be found before the guardian believes it.
const EMPTY_LOOKS: u32 = 6;

/// A started guardian. Dropping it dismisses it.
///
/// It waits, without any wake-up, for this program's end; then it kills whatever is in the group's control group and,
/// held by pidfd, each process that carries the group's cookie or is in a worker's session, and ends. It ends as well
/// when it is dismissed. As a file descriptor ([`AsFd`]) it is readable when it has ended before its time.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
    pipe: PipeWriter,
}

impl Guardian {
    /// Starts a guardian for this tree, of which workers may run already, and returns without waiting for it to be ready.
    ///
    /// # Errors
    /// [`SpawnError`] if this program cannot be executed again.
    pub fn start(spawner: &mut Spawner, tree: &Tree) -> Result<Self, SpawnError> {
        let program = "/proc/self/exe";
        let no_pipe = |error: std::io::Error| SpawnError::Prepare {
            what: "pipe for the guardian",
            errno: error.raw_os_error().unwrap_or(libc::EMFILE),
        };
        let (reader, pipe) = std::io::pipe().map_err(no_pipe)?;
        let name = MARK.to_str().unwrap_or_default();
        let mut command = Command::new(program)
            // For ps(1), which would show the path; the program's `main`, which reads arguments, does not run.
            .arg0(OsStr::from_bytes(NAME.to_bytes()))
            .args(["of".to_owned(), std::process::id().to_string()])
            .envs([(name, tree.cookie()), (EPOCH, &tree.epoch_text())])
            .envs(std::env::var_os(JOB).map(|job| (JOB, job)))
            .stdin(Stdio::Fd(OwnedFd::from(reader)))
            // It must outlive this program.
            .parent_death_signal(None);
        if let Some(group) = tree.control_group() {
            let handle = group.as_fd().try_clone_to_owned().map_err(no_pipe)?;
            let name = OsStr::from_bytes(group.name());
            command =
                command.envs([(GROUP_DIR, group.dir().as_os_str()), (GROUP_NAME, name)]).stdout(Stdio::Fd(handle));
        }
        let mut guardian = Self { child: spawner.spawn(command)?, pipe };
        tree.sessions().for_each(|pid| guardian.add_worker(pid));
        Ok(guardian)
    }

    /// The guardian's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Tells of a worker that was started: whatever is in its session is the group's.
    pub fn add_worker(&mut self, pid: u32) {
        self.tell(b'+', pid);
    }

    /// Tells that a worker's session is empty and its number free for others.
    pub fn remove_session(&mut self, pid: u32) {
        self.tell(b'-', pid);
    }

    fn tell(&mut self, what: u8, pid: u32) {
        let mut message = [what, 0, 0, 0, 0];
        message[1..].copy_from_slice(&pid.to_ne_bytes());
        // A guardian that is gone cannot be told; the group is no worse off than without one. The pipe holds over ten
        // thousand messages, and the guardian reads them as they come.
        let _ = self.pipe.write_all(&message);
    }
}

impl AsFd for Guardian {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.child.as_fd()
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // SIGKILL is its dismissal: it holds nothing, and it cannot come too late.
        let _ = self.child.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Becomes the guardian, never to return, if this program was started as one.
///
/// # Safety
/// There is no other thread.
pub(crate) unsafe fn be_if_asked() {
    // SAFETY: no other thread exists yet, so the environment does not change while it is read.
    let cookie = unsafe {
        let value = libc::getenv(MARK.as_ptr());
        if value.is_null() {
            return;
        }
        CString::from(CStr::from_ptr(value))
    };
    // SAFETY: the name is a string that outlives the call. For ps(1), which would show `exe`.
    unsafe { libc::prctl(libc::PR_SET_NAME, NAME.as_ptr()) };
    // Nothing but SIGKILL ends it before its time, least of all a signal that was meant for the launcher.
    let _ = crate::sys::block_all_signals();
    guard(&cookie.to_string_lossy());
    // SAFETY: ends this process; there is nothing to run at exit.
    unsafe { libc::_exit(0) }
}

/// The guardian's life.
fn guard(cookie: &str) {
    let mut tree = Tree::of_another(cookie, &std::env::var(EPOCH).unwrap_or_default());
    let group = control_group().map(Arc::new);
    if let Some(group) = &group {
        tree.set_control_group(Arc::clone(group));
    }
    let mut stdin = std::io::stdin().lock();
    let mut message = [0; 5];
    // The end of the pipe is the launcher's end: it alone has the other side.
    while stdin.read_exact(&mut message).is_ok() {
        let pid = u32::from_ne_bytes([message[1], message[2], message[3], message[4]]);
        match message[0] {
            b'+' => tree.add_worker(pid),
            _ => tree.remove_session(pid),
        }
    }
    let deadline = Instant::now() + PATIENCE;
    let (mut pause, mut empty) = (Duration::from_millis(1), 0);
    while empty < EMPTY_LOOKS && Instant::now() < deadline {
        tree.kill_control_group();
        let members = tree.members(&[]).unwrap_or_default();
        let populated = group.as_ref().is_some_and(|group| group.is_populated());
        empty = if members.is_empty() && !populated { empty + 1 } else { 0 };
        for member in members {
            member.signal(Signal::KILL);
        }
        // sleep: gives what was killed time to vanish; the guardian has nothing else to do.
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
    if let Some(group) = group {
        group.remove();
    }
}

/// The group's control group, as the launcher told by the environment.
fn control_group() -> Option<ControlGroup> {
    let (dir, name) = (std::env::var_os(GROUP_DIR)?, std::env::var_os(GROUP_NAME)?);
    let handle = std::io::stdout().as_fd().try_clone_to_owned().ok()?;
    ControlGroup::inherited(dir.into(), name.into_vec(), handle.into()).ok()
}
