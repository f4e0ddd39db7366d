//! Signals to this program as a readable file descriptor: [`SignalWatcher`]. Not here: what to do about one.
//!
//! Written here rather than taken from a library because what was installed before must be called as well, and must
//! be back in place, `SIG_DFL` included, when the watcher is dropped.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use libc::{c_int, c_void};
use rankrun_types::Signal;

use crate::sigaction::{action, set_action};
use crate::sys::errno;

/// The largest signal number of any Linux port, plus one.
const SLOTS: usize = 129;

/// The writing end that the handler uses; never closed, so that a late handler cannot hit another file.
static WRITE_END: AtomicI32 = AtomicI32::new(-1);
static PIPE: OnceLock<Result<(OwnedFd, OwnedFd), i32>> = OnceLock::new();
static IN_USE: AtomicBool = AtomicBool::new(false);
/// For each signal the handler that was installed before (0: none to call), and whether it takes three arguments.
static PREVIOUS: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];
static PREVIOUS_TAKES_INFO: [AtomicBool; SLOTS] = [const { AtomicBool::new(false) }; SLOTS];

/// Signals could not be watched; all handlers are as they were.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// Another watcher of this program is alive.
    #[error("signals are already watched by another part of this program")]
    InUse,
    /// SIGKILL and SIGSTOP cannot be caught.
    #[error("{0} cannot be caught")]
    CannotBeCaught(Signal),
    /// The kernel refused a handler.
    #[error("cannot watch {signal}: {}", io::Error::from_raw_os_error(*errno))]
    Install {
        /// The signal.
        signal: Signal,
        /// The errno of sigaction(2).
        errno: i32,
    },
    /// There is no pipe for the handler to write to.
    #[error("cannot make a pipe for signals: {}", io::Error::from_raw_os_error(*.0))]
    Pipe(i32),
}

/// Signals to this program, one after the other, through a file descriptor that any event loop can wait for.
///
/// As a file descriptor ([`AsFd`]) it is readable while a signal waits to be read. At most one watcher exists at a time
/// in a program. Handlers that were there before are still called, and are back alone when the watcher is dropped. A
/// signal that was ignored when the watcher was made stays ignored, as `nohup` wants.
///
/// ```
/// use rankrun_process::SignalWatcher;
/// use rankrun_types::Signal;
///
/// let watcher = SignalWatcher::new(&[Signal::TERM, Signal::INT])?;
/// assert_eq!(watcher.try_read(), None);
/// # Ok::<(), rankrun_process::WatchError>(())
/// ```
#[derive(Debug)]
pub struct SignalWatcher {
    read_end: BorrowedFd<'static>,
    installed: Vec<Installed>,
}

struct Installed {
    signal: c_int,
    previous: libc::sigaction,
}

impl std::fmt::Debug for Installed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Installed").field(&self.signal).finish()
    }
}

impl SignalWatcher {
    /// Watches these signals from now on.
    ///
    /// # Errors
    /// [`WatchError`]; nothing has changed then.
    pub fn new(signals: &[Signal]) -> Result<Self, WatchError> {
        if let Some(signal) = signals.iter().find(|signal| !signal.can_be_caught()) {
            return Err(WatchError::CannotBeCaught(*signal));
        }
        if IN_USE.swap(true, Ordering::AcqRel) {
            return Err(WatchError::InUse);
        }
        let pipe = PIPE.get_or_init(make_pipe);
        let (read_end, write_end) = match pipe {
            Ok(pipe) => pipe,
            Err(errno) => {
                IN_USE.store(false, Ordering::Release);
                return Err(WatchError::Pipe(*errno));
            }
        };
        WRITE_END.store(write_end.as_raw_fd(), Ordering::Release);
        let mut watcher = Self { read_end: read_end.as_fd(), installed: Vec::with_capacity(signals.len()) };
        // What a handler wrote for an earlier watcher, after that one was dropped, is none of ours.
        while watcher.try_read().is_some() {}
        for signal in signals {
            // On an error the drop takes back what was installed so far.
            watcher.install(*signal).map_err(|errno| WatchError::Install { signal: *signal, errno })?;
        }
        Ok(watcher)
    }

    fn install(&mut self, signal: Signal) -> Result<(), i32> {
        let number = signal.as_raw();
        if self.installed.iter().any(|installed| installed.signal == number) {
            return Ok(());
        }
        let previous = action(number)?;
        if previous.sa_sigaction == libc::SIG_IGN {
            return Ok(());
        }
        let slot = number as usize;
        let callable = previous.sa_sigaction != libc::SIG_DFL;
        PREVIOUS[slot].store(if callable { previous.sa_sigaction } else { 0 }, Ordering::Release);
        PREVIOUS_TAKES_INFO[slot].store(previous.sa_flags & libc::SA_SIGINFO != 0, Ordering::Release);
        // SAFETY: an all-zero sigaction is valid: default action, no flags, empty mask.
        let mut ours = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
        ours.sa_sigaction = handler as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        // One after the other: the stack that threads have for signals, 8 KiB from the standard library, has no room for
        // many at once, and the kernel kills by SIGSEGV where it overflows.
        // SAFETY: the set is live memory.
        unsafe { libc::sigfillset(&raw mut ours.sa_mask) };
        // SAFETY: `handler` is async-signal-safe.
        unsafe { set_action(number, &ours) }?;
        self.installed.push(Installed { signal: number, previous });
        Ok(())
    }

    /// The next signal that came, or `None` if none waits. Never blocks.
    ///
    /// Signals come in the order of their arrival; when over 4,096 wait, later ones are lost.
    pub fn try_read(&self) -> Option<Signal> {
        let mut byte = 0_u8;
        loop {
            // SAFETY: reads one byte into a live byte; the pipe is never closed.
            let got = unsafe { libc::read(self.read_end.as_raw_fd(), (&raw mut byte).cast(), 1) };
            if got == 1 {
                return Signal::from_raw(i32::from(byte));
            }
            if got == 0 || errno() != libc::EINTR {
                return None;
            }
        }
    }
}

impl AsFd for SignalWatcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.read_end
    }
}

impl Drop for SignalWatcher {
    fn drop(&mut self) {
        for installed in self.installed.drain(..) {
            // If somebody has put a handler over ours meanwhile, it stays: it may call ours, which still works.
            if action(installed.signal).is_ok_and(|now| now.sa_sigaction == handler as *const () as usize) {
                // SAFETY: it was installed before.
                let _ = unsafe { set_action(installed.signal, &installed.previous) };
            }
        }
        IN_USE.store(false, Ordering::Release);
    }
}

/// Undoes what this program inherited about signals and cannot live with: an ignored SIGCHLD, with which the kernel
/// forgets how children end, and blocked signals, which would never arrive.
///
/// For a program of its own, at its start, before it has threads. What is ignored, but for SIGCHLD, stays so.
pub fn reset_inherited_signals() {
    if action(libc::SIGCHLD).is_ok_and(|now| now.sa_sigaction == libc::SIG_IGN) {
        // SAFETY: an all-zero sigaction is valid: default action, no flags, empty mask.
        let default_action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
        // SAFETY: it has no handler.
        let _ = unsafe { set_action(libc::SIGCHLD, &default_action) };
    }
    crate::sys::restore_signals(0);
}

fn make_pipe() -> Result<(OwnedFd, OwnedFd), i32> {
    let mut ends = [-1; 2];
    // SAFETY: the array has room for both descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } < 0 {
        return Err(errno());
    }
    // SAFETY: the kernel just made both and nobody else has them.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Writes the signal's number to the pipe and calls who was there before. Async-signal-safe.
extern "C" fn handler(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: errno's location is this thread's own; write(2) is async-signal-safe and gets one live byte; a previous
    // handler is called as the kernel would have called it.
    unsafe {
        let saved = *libc::__errno_location();
        let byte = signal as u8;
        libc::write(WRITE_END.load(Ordering::Acquire), (&raw const byte).cast(), 1);
        *libc::__errno_location() = saved;
        let slot = signal as usize;
        let previous = PREVIOUS[slot].load(Ordering::Acquire);
        if previous == 0 {
            return;
        }
        if PREVIOUS_TAKES_INFO[slot].load(Ordering::Acquire) {
            std::mem::transmute::<usize, extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void)>(previous)(
                signal, info, context,
            );
        } else {
            std::mem::transmute::<usize, extern "C" fn(c_int)>(previous)(signal);
        }
    }
}
