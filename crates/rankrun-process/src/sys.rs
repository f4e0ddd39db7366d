//! System calls that neither std nor nix offers in the form needed, each wrapped once.
//!
//! Not here: any decision. Each function is one call and returns the kernel's errno as it came.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, c_long};

/// An errno value.
pub(crate) type Errno = i32;

/// `PIDFD_SIGNAL_PROCESS_GROUP` of Linux 6.9: the signal goes to the process group that the pidfd's process leads.
const PIDFD_SIGNAL_PROCESS_GROUP: libc::c_uint = 1 << 2;

/// Size of the kernel's signal set in bytes (not glibc's `sigset_t`).
pub(crate) const KERNEL_SIGSET_SIZE: usize = 8;

/// The calling thread's errno.
pub(crate) fn errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

fn check(result: c_long) -> Result<c_long, Errno> {
    if result < 0 { Err(errno()) } else { Ok(result) }
}

/// What waitid(2) found.
pub(crate) struct Waited {
    /// `CLD_EXITED`, `CLD_KILLED` or `CLD_DUMPED`.
    pub(crate) code: c_int,
    /// The exit code or the signal's number.
    pub(crate) status: c_int,
    /// The resources that the process and its waited-for children used.
    pub(crate) usage: libc::rusage,
}

/// waitid(2) on a pidfd for an ended child; `None` while it runs. `flags` is added to `WEXITED`.
///
/// The raw system call, because glibc's wrapper leaves out the fifth argument, the resource usage.
pub(crate) fn waitid(pidfd: BorrowedFd<'_>, flags: c_int) -> Result<Option<Waited>, Errno> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers are to live, writable memory of the kernel's layout, and zeroed memory is a valid
        // value of either type, so that they are initialised even where the kernel writes nothing.
        let result = check(unsafe {
            libc::syscall(
                libc::SYS_waitid,
                libc::P_PIDFD,
                pidfd.as_raw_fd(),
                info.as_mut_ptr(),
                libc::WEXITED | flags,
                usage.as_mut_ptr(),
            )
        });
        match result {
            Err(libc::EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) => break,
        }
    }
    // SAFETY: zeroed above, written by a call that succeeded.
    let (info, usage) = unsafe { (info.assume_init(), usage.assume_init()) };
    // SAFETY: si_pid and si_status are plain integers of the union's SIGCHLD member, and every bit pattern is valid.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    Ok((pid != 0).then_some(Waited { code: info.si_code, status, usage }))
}

/// pidfd_send_signal(2) to the process; signal 0 only asks whether it is there.
pub(crate) fn pidfd_signal(pidfd: BorrowedFd<'_>, signal: c_int) -> Result<(), Errno> {
    pidfd_send_signal(pidfd, signal, 0)
}

/// pidfd_send_signal(2) to the process group that the process leads or led; EINVAL before Linux 6.9.
pub(crate) fn pidfd_signal_group(pidfd: BorrowedFd<'_>, signal: c_int) -> Result<(), Errno> {
    pidfd_send_signal(pidfd, signal, PIDFD_SIGNAL_PROCESS_GROUP)
}

fn pidfd_send_signal(pidfd: BorrowedFd<'_>, signal: c_int, flags: libc::c_uint) -> Result<(), Errno> {
    // SAFETY: a null siginfo is allowed (the kernel fills one in); the descriptor is open for the borrow's time.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            flags,
        )
    };
    check(result).map(drop)
}

/// Whether this kernel can signal a process group through a pidfd (Linux 6.9 and later).
pub(crate) fn has_group_signals() -> bool {
    static ANSWER: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *ANSWER.get_or_init(|| {
        // SAFETY: takes two integers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
        let Ok(fd) = check(fd) else { return false };
        // SAFETY: the kernel just gave us this descriptor and nobody else has it.
        let pidfd = unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd as c_int) };
        // ESRCH: understood, but this process leads no group.
        matches!(pidfd_signal_group(std::os::fd::AsFd::as_fd(&pidfd), 0), Ok(()) | Err(libc::ESRCH))
    })
}

/// kill(2) to the process group `pgid`.
pub(crate) fn kill_group(pgid: u32, signal: c_int) -> Result<(), Errno> {
    let Ok(pgid) = libc::pid_t::try_from(pgid) else { return Err(libc::ESRCH) };
    debug_assert!(pgid > 1, "a negative 0 or 1 would mean our own group or everybody");
    // SAFETY: takes two integers.
    check(c_long::from(unsafe { libc::kill(-pgid, signal) })).map(drop)
}

/// Blocks all signals of the calling thread, glibc's internal ones too, and returns the mask that was.
///
/// The raw system call, because glibc's wrapper keeps its two internal signals unblocked, and a handler of one of
/// them that ran in a child that shares our memory would corrupt it.
pub(crate) fn block_all_signals() -> Result<u64, Errno> {
    let mut old = 0_u64;
    swap_mask(&u64::MAX, &mut old).map(|()| old)
}

/// Puts back what [`block_all_signals`] returned.
pub(crate) fn restore_signals(mask: u64) {
    let mut ignored = 0_u64;
    // It cannot fail: the mask is one the kernel gave us.
    let _ = swap_mask(&mask, &mut ignored);
}

fn swap_mask(new: &u64, old: &mut u64) -> Result<(), Errno> {
    // SAFETY: both pointers are to eight bytes, the size that is passed.
    let result = unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, old, KERNEL_SIGSET_SIZE) };
    check(result).map(drop)
}
