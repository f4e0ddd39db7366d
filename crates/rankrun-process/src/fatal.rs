//! What a process leaves in a file when a fatal signal ends it: [`FatalSignals`]. Not here: what the file says, which the
//! caller gives.
//!
//! All is prepared before: the handler only fills in numbers, by system calls that are safe in one, and hands the signal
//! on to what was there before, so that exit status, core dump and the message of a stack overflow are as ever.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use libc::{c_char, c_int, c_void};
use rankrun_types::Signal;

use crate::sigaction::{action, set_action};

/// Faults and aborts: the signals that end a process of its own doing.
pub const FATAL_SIGNALS: [Signal; 5] = [Signal::SEGV, Signal::ABRT, Signal::BUS, Signal::FPE, Signal::ILL];

/// Enough for the handler and what the kernel puts below it.
const STACK_BYTES: usize = 64 << 10;

/// How long a second thread that crashes waits for the first to have written, in milliseconds.
const PATIENCE_MS: usize = 1000;

/// A part of what is written; numbers are those of the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FatalPart {
    /// A text.
    Text(String),
    /// Seconds since the Unix epoch.
    Seconds,
    /// Nanoseconds since the Unix epoch.
    Nanoseconds,
    /// The number of the thread, as gettid(2) has it.
    Thread,
}

/// Fatal signals cannot be recorded; all handlers are as they were.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FatalSignalsError {
    /// Another part of this program does it already.
    #[error("fatal signals are already recorded by another part of this program")]
    InUse,
    /// The path cannot be given to the kernel.
    #[error("the path of the file for fatal signals has a NUL byte")]
    Nul,
    /// The kernel refused a handler.
    #[error("cannot catch {signal}: {}", io::Error::from_raw_os_error(*errno))]
    Install {
        /// The signal.
        signal: Signal,
        /// The errno of sigaction(2).
        errno: i32,
    },
}

/// While it lives, a fatal signal to this process leaves a file. At most one exists at a time in a program.
///
/// The file is put in place whole, and never over one that is there. Then the signal goes on to what was installed before:
/// its default action, the standard library's handler that tells of a stack overflow, or one of the program's own. A child
/// of fork(2) that has not executed another program leaves no file. A signal that was ignored stays so. A program that lives
/// by such signals, as some JIT compilers do, must not use it: each would count as the end.
///
/// Its memory, a few KiB, is never given back, as a handler may run at any time.
///
/// ```
/// use rankrun_process::{FatalPart, FatalSignals};
///
/// let path = std::env::temp_dir().join(format!("fatal-{}", std::process::id()));
/// let guard = FatalSignals::record(&path, |signal| {
///     vec![FatalPart::Text(format!("{signal} at ")), FatalPart::Seconds]
/// })?;
/// // ... what may crash ...
/// drop(guard);
/// # Ok::<(), rankrun_process::FatalSignalsError>(())
/// ```
#[derive(Debug)]
pub struct FatalSignals(());

struct Prepared {
    pid: libc::pid_t,
    path: CString,
    temporary: CString,
    signals: [(c_int, Vec<FatalPart>, libc::sigaction); FATAL_SIGNALS.len()],
}

static IN_USE: AtomicBool = AtomicBool::new(false);
static PREPARED: AtomicPtr<Prepared> = AtomicPtr::new(std::ptr::null_mut());
/// The first thread that crashes writes; the others wait for it, as their end would be its end too.
static ENTERED: AtomicBool = AtomicBool::new(false);
static WRITTEN: AtomicBool = AtomicBool::new(false);

impl FatalSignals {
    /// Leaves at this path, from now on, what `parts` gives for the signal.
    ///
    /// Gives the calling thread a signal stack if it has none; the standard library has given one to each of its threads.
    ///
    /// # Errors
    /// [`FatalSignalsError`]; nothing has changed then.
    pub fn record(path: &Path, parts: impl Fn(Signal) -> Vec<FatalPart>) -> Result<Self, FatalSignalsError> {
        let pid = std::process::id();
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{pid}.fatal"));
        let c_string = |path: &[u8]| CString::new(path).map_err(|_| FatalSignalsError::Nul);
        let (path, temporary) = (c_string(path.as_os_str().as_bytes())?, c_string(temporary.as_bytes())?);
        let mut previous = Vec::with_capacity(FATAL_SIGNALS.len());
        for signal in FATAL_SIGNALS {
            previous.push(action(signal.as_raw()).map_err(|errno| FatalSignalsError::Install { signal, errno })?);
        }
        if IN_USE.swap(true, Ordering::AcqRel) {
            return Err(FatalSignalsError::InUse);
        }
        let signals = std::array::from_fn(|at| (FATAL_SIGNALS[at].as_raw(), parts(FATAL_SIGNALS[at]), previous[at]));
        let prepared = Prepared { pid: pid.cast_signed(), path, temporary, signals };
        let prepared: &'static Prepared = Box::leak(Box::new(prepared));
        ENTERED.store(false, Ordering::Release);
        WRITTEN.store(false, Ordering::Release);
        PREPARED.store(std::ptr::from_ref(prepared).cast_mut(), Ordering::Release);
        ensure_signal_stack();
        let guard = Self(());
        for (at, signal) in FATAL_SIGNALS.into_iter().enumerate() {
            if previous[at].sa_sigaction == libc::SIG_IGN {
                continue;
            }
            // SAFETY: an all-zero sigaction is valid: default action, no flags, empty mask.
            let mut ours = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
            ours.sa_sigaction = handler as *const () as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // SAFETY: fills the set in place. A second fault in the handler then ends the process, as it must.
            unsafe { libc::sigfillset(&raw mut ours.sa_mask) };
            // On an error the drop takes back what was installed so far.
            // SAFETY: `handler` is async-signal-safe.
            let set = unsafe { set_action(signal.as_raw(), &ours) };
            set.map_err(|errno| FatalSignalsError::Install { signal, errno })?;
        }
        Ok(guard)
    }
}

impl Drop for FatalSignals {
    fn drop(&mut self) {
        // SAFETY: what was stored is leaked, and so lives for ever.
        if let Some(prepared) = unsafe { PREPARED.load(Ordering::Acquire).as_ref() } {
            for (signal, _, previous) in &prepared.signals {
                // If somebody has put a handler over ours meanwhile, it stays: it may call ours, which still works.
                if action(*signal).is_ok_and(|now| now.sa_sigaction == handler as *const () as usize) {
                    // SAFETY: it was installed before.
                    let _ = unsafe { set_action(*signal, previous) };
                }
            }
        }
        IN_USE.store(false, Ordering::Release);
    }
}

/// Gives this thread a stack for handlers if it has none: a stack overflow leaves no room for one.
fn ensure_signal_stack() {
    let mut current = MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: a null new stack only asks; the other pointer is to live memory, valid when zeroed.
    let asked = unsafe { libc::sigaltstack(std::ptr::null(), current.as_mut_ptr()) };
    // SAFETY: zeroed above.
    if asked != 0 || unsafe { current.assume_init() }.ss_flags & libc::SS_DISABLE == 0 {
        return;
    }
    let memory: &'static mut [u8] = Box::leak(vec![0; STACK_BYTES].into_boxed_slice());
    let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: STACK_BYTES };
    // SAFETY: the memory is leaked, so it outlives the thread.
    unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) };
}

/// Writes the file and hands the signal on. Async-signal-safe: no allocation, no lock, no panic.
extern "C" fn handler(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: errno's location is this thread's own. What PREPARED points to is leaked and only read. The calls are
    // async-signal-safe (signal-safety(7)), or bare system calls, with pointers to live memory; the kernel gave `info`.
    unsafe {
        let saved = *libc::__errno_location();
        let prepared = PREPARED.load(Ordering::Acquire).as_ref();
        if let Some(prepared) = prepared.filter(|prepared| prepared.pid == libc::getpid()) {
            if !ENTERED.swap(true, Ordering::AcqRel) {
                prepared.leave(signal);
                WRITTEN.store(true, Ordering::Release);
            } else {
                let pause = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
                let mut waited = 0;
                while !WRITTEN.load(Ordering::Acquire) && waited < PATIENCE_MS {
                    libc::nanosleep(&raw const pause, std::ptr::null_mut());
                    waited += 1;
                }
            }
        }
        let entry = prepared.and_then(|prepared| prepared.signals.iter().find(|(number, _, _)| *number == signal));
        match entry {
            Some((_, _, previous)) => libc::sigaction(signal, previous, std::ptr::null_mut()),
            None => {
                let default_action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
                libc::sigaction(signal, &raw const default_action, std::ptr::null_mut())
            }
        };
        // A fault comes again when this returns; a signal that was sent must be sent again, with all that came with it.
        if (*info).si_code <= 0 {
            let (pid, thread) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
            if libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, thread, signal, info) != 0 {
                libc::syscall(libc::SYS_tgkill, pid, thread, signal);
            }
        }
        *libc::__errno_location() = saved;
    }
}

impl Prepared {
    /// Puts the file in place, if there is none.
    ///
    /// # Safety
    /// Only system calls; for a signal handler.
    unsafe fn leave(&self, signal: c_int) {
        let Some((_, parts, _)) = self.signals.iter().find(|(number, _, _)| *number == signal) else { return };
        // SAFETY: the paths are C strings that live as long as `self`; the flags and modes are plain numbers.
        unsafe {
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC | libc::O_NOFOLLOW;
            let file = libc::open(self.temporary.as_ptr(), flags, 0o644);
            if file < 0 {
                return;
            }
            let written = parts.iter().all(|part| write_part(file, part));
            libc::close(file);
            if !written || !put_in_place(self.temporary.as_ptr(), self.path.as_ptr()) {
                libc::unlink(self.temporary.as_ptr());
            }
        }
    }
}

/// Renames, unless the new name is taken.
///
/// # Safety
/// Both are C strings.
unsafe fn put_in_place(from: *const c_char, to: *const c_char) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        let here = libc::AT_FDCWD;
        if libc::syscall(libc::SYS_renameat2, here, from, here, to, libc::RENAME_NOREPLACE) == 0 {
            return true;
        }
        // File systems that do not know it may know links.
        *libc::__errno_location() != libc::EEXIST && libc::link(from, to) == 0 && libc::unlink(from) == 0
    }
}

/// Writes a part whole.
fn write_part(file: c_int, part: &FatalPart) -> bool {
    let mut digits = [0; 20];
    let bytes = match part {
        FatalPart::Text(text) => text.as_bytes(),
        FatalPart::Seconds => decimal(now_ns() / 1_000_000_000, &mut digits),
        FatalPart::Nanoseconds => decimal(now_ns(), &mut digits),
        // SAFETY: takes nothing.
        FatalPart::Thread => decimal(unsafe { libc::syscall(libc::SYS_gettid) } as u64, &mut digits),
    };
    let mut rest = bytes;
    while !rest.is_empty() {
        // SAFETY: writes from live memory of that length.
        let count = unsafe { libc::write(file, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(count).ok().and_then(|count| rest.get(count..)) {
            Some(left) if left.len() < rest.len() => rest = left,
            _ => return false,
        }
    }
    true
}

fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to live memory.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// The digits of a number, without allocating as formatting might.
fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut start = digits.len();
    while start > 0 {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    &digits[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_digits() {
        for number in [0, 7, 10, 1_796_070_000, u64::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
        }
    }
}
