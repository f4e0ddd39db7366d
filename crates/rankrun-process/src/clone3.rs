//! clone3(2) with a stack of the child's own: [`clone3`]. Not here: what the child does (`entry`).
//!
//! Only this call puts a process into a control group in the moment of its birth (`CLONE_INTO_CGROUP`, Linux 5.7).
//! Moving it there afterwards makes the kernel stop all forks and exits of the machine for a moment, which before Linux
//! 6.18 costs milliseconds each time. libc has no wrapper for it, because none can be written in C: the child begins
//! without a return address on its stack. So it is written here, for the two architectures that it can be looked after
//! on; elsewhere the caller does without.

use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, c_void};

use crate::sys::Errno;

/// `struct clone_args` of linux/sched.h in its third version, which Linux 5.7 knows.
#[repr(C, align(8))]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// The flag's value, as libc has it only as an `int` that it does not fit.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Makes a child that shares this memory, starts at `entry(argument)` on a stack of its own and is in the control group
/// with this open directory; returns its pid when it has called exec or exit.
///
/// `flags` are those of clone(2) without a signal, which is SIGCHLD. Where the architecture has no such code here the
/// error is ENOSYS, as it is where the kernel or a filter has none.
///
/// # Safety
/// `entry` never returns, and does only what may be done in a child that shares the memory of its suspended parent.
/// `stack` is the lowest address of `size` writable bytes that nobody else uses, the end of which is aligned to 16.
/// `flags` contain `CLONE_VM` and `CLONE_VFORK`. `pidfd` may be written to if `flags` contain `CLONE_PIDFD`.
pub(crate) unsafe fn clone3(
    flags: c_int,
    pidfd: *mut c_int,
    (stack, size): (*mut c_void, usize),
    group: BorrowedFd<'_>,
    entry: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
) -> Result<u32, Errno> {
    let args = CloneArgs {
        flags: u64::from(flags.cast_unsigned()) | CLONE_INTO_CGROUP,
        pidfd: pidfd as u64,
        exit_signal: libc::SIGCHLD.cast_unsigned().into(),
        stack: stack as u64,
        stack_size: size as u64,
        cgroup: group.as_raw_fd().cast_unsigned().into(),
        ..CloneArgs::default()
    };
    // SAFETY: as this function's; `args` lives until the parent goes on, which is after the kernel has read it.
    let result = unsafe { raw(&args, entry, argument) };
    u32::try_from(result).map_err(|_| c_int::try_from(-result).unwrap_or(libc::EIO))
}

/// The system call: the pid or a negative errno for the parent; the child never returns from here.
///
/// Nothing of the parent's stack is touched by the child, whose stack pointer is its own from its first instruction on:
/// what it needs it has in registers, which the kernel hands on.
#[cfg(target_arch = "x86_64")]
unsafe fn raw(args: &CloneArgs, entry: extern "C" fn(*mut c_void) -> c_int, argument: *mut c_void) -> i64 {
    let result: i64;
    // SAFETY: a system call keeps all registers but rax, rcx and r11. Both sides go on after it; the parent has a pid or an
    // errno and jumps to the end. The child, with 0, ends its chain of frames, calls `entry` with a stack that is aligned
    // as the ABI wants before a call, and does not come back.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r8",
            "call r9",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") args,
            in("rsi") size_of::<CloneArgs>(),
            in("r8") argument,
            in("r9") entry,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// As the other; see there.
#[cfg(target_arch = "aarch64")]
unsafe fn raw(args: &CloneArgs, entry: extern "C" fn(*mut c_void) -> c_int, argument: *mut c_void) -> i64 {
    let result: i64;
    // SAFETY: a system call keeps all registers but x0. Both sides go on after it; the parent has a pid or an errno and
    // jumps to the end. The child, with 0, ends its chain of frames, calls `entry` with an aligned stack, and does not come
    // back; that it overwrites the frame and link registers is its own affair.
    unsafe {
        std::arch::asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x9",
            "blr x10",
            "brk #1",
            "2:",
            inlateout("x0") std::ptr::from_ref(args) => result,
            in("x1") size_of::<CloneArgs>(),
            in("x8") libc::SYS_clone3,
            in("x9") argument,
            in("x10") entry,
        );
    }
    result
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn raw(_: &CloneArgs, _: extern "C" fn(*mut c_void) -> c_int, _: *mut c_void) -> i64 {
    i64::from(-libc::ENOSYS)
}
