//! System calls that neither std nor nix offers in the form needed, each wrapped once.
//!
//! Not here: any decision. Each function is one call and returns the kernel's errno as it came.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

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

/// Which child waitid(2) is asked about.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Whom<'a> {
    /// The process that a pidfd stands for.
    Pidfd(BorrowedFd<'a>),
    /// The child with this number.
    Pid(u32),
}

/// waitid(2) for an ended child; `None` while it runs, if `flags` has `WNOHANG`. `flags` is added to `WEXITED`.
///
/// The raw system call, because glibc's wrapper leaves out the fifth argument, the resource usage.
pub(crate) fn waitid(whom: Whom<'_>, flags: c_int) -> Result<Option<Waited>, Errno> {
    let (kind, id) = match whom {
        Whom::Pidfd(pidfd) => (libc::P_PIDFD, c_long::from(pidfd.as_raw_fd())),
        Whom::Pid(pid) => (libc::P_PID, c_long::from(pid)),
    };
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers are to live, writable memory of the kernel's layout, and zeroed memory is a valid
        // value of either type, so that they are initialised even where the kernel writes nothing.
        let result = check(unsafe {
            libc::syscall(libc::SYS_waitid, kind, id, info.as_mut_ptr(), libc::WEXITED | flags, usage.as_mut_ptr())
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

/// The pid of a child that has ended and waits to be reaped, if there is one; it is left as it is.
pub(crate) fn any_ended_child() -> Option<u32> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the pointer is to live, writable memory, zeroed and so a valid value whatever the call does.
    let pid = unsafe {
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        if libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options) < 0 {
            return None;
        }
        info.assume_init().si_pid()
    };
    u32::try_from(pid).ok().filter(|pid| *pid != 0)
}

/// The wait status of a process that somebody else has reaped, where the kernel still knows it (Linux 6.15).
pub(crate) fn status_after_reaping(pidfd: BorrowedFd<'_>) -> Option<c_int> {
    // ioctl_pidfd(2): `PIDFD_GET_INFO` with the first version of `struct pidfd_info`, 64 bytes: a mask, in and out, at
    // 0, and the exit status at 60.
    const PIDFD_GET_INFO: libc::Ioctl = 0xC040_FF0B_u32 as libc::Ioctl;
    const PIDFD_INFO_EXIT: u64 = 1 << 3;
    const EXIT_STATUS: usize = 60;
    #[repr(C, align(8))]
    struct Info([u8; 64]);
    let mut info = Info([0; 64]);
    info.0[..8].copy_from_slice(&PIDFD_INFO_EXIT.to_ne_bytes());
    // SAFETY: the kernel writes at most the 64 bytes that the request's number states.
    if unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO, info.0.as_mut_ptr()) } < 0 {
        return None;
    }
    let mask = u64::from_ne_bytes(info.0[..8].try_into().ok()?);
    let status = c_int::from_ne_bytes(info.0[EXIT_STATUS..].try_into().ok()?);
    (mask & PIDFD_INFO_EXIT != 0).then_some(status)
}

/// A pidfd for a process that exists at this moment.
pub(crate) fn pidfd_open(pid: u32) -> Result<OwnedFd, Errno> {
    // SAFETY: takes two integers.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the kernel just gave us this descriptor and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

/// Whether processes can be held by pidfd here: Linux 5.4, and no filter that forbids it.
///
/// `RANKRUN_NO_PIDFD` in the environment makes it `false`, for tests.
pub(crate) fn has_pidfd() -> bool {
    static ANSWER: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *ANSWER.get_or_init(|| {
        if std::env::var_os("RANKRUN_NO_PIDFD").is_some_and(|value| !value.is_empty()) {
            return false;
        }
        let Ok(pidfd) = pidfd_open(std::process::id()) else { return false };
        // Asking for ourselves as a child must fail for that reason, not because the question is not understood.
        pidfd_signal(pidfd.as_fd(), 0).is_ok()
            && matches!(waitid(Whom::Pidfd(pidfd.as_fd()), libc::WNOHANG), Err(libc::ECHILD))
    })
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
        // ESRCH: understood, but this process leads no group.
        let understood = |pidfd: OwnedFd| matches!(pidfd_signal_group(pidfd.as_fd(), 0), Ok(()) | Err(libc::ESRCH));
        has_pidfd() && pidfd_open(std::process::id()).is_ok_and(understood)
    })
}

/// flock(2): the exclusive lock of an open file, if nobody has it. Whoever inherits the descriptor shares it.
pub(crate) fn try_lock(file: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: takes two integers; the descriptor is open for the borrow's time.
    check(c_long::from(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) })).map(drop)
}

/// kill(2) to one process.
pub(crate) fn kill(pid: u32, signal: c_int) -> Result<(), Errno> {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return Err(libc::ESRCH) };
    debug_assert!(pid > 0, "0 would mean our own group");
    // SAFETY: takes two integers.
    check(c_long::from(unsafe { libc::kill(pid, signal) })).map(drop)
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
