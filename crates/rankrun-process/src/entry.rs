//! The child between clone and exec: [`run`]. Not here: anything of the parent's side (`spawn`).
//!
//! The child shares the parent's memory and runs on a stack of its own while the parent's thread is suspended. So it
//! makes async-signal-safe calls only, allocates nothing, takes no lock and cannot panic: each line here is a system
//! call or a comparison of integers.

use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_char, c_int, c_void};

use crate::SpawnStep;
use crate::handover::FIRST_FD;
use crate::placement::PreparedPlacement;
use crate::sys::KERNEL_SIGSET_SIZE;

/// What the child does, prepared by the parent, and where it reports what it could not do.
pub(crate) struct Plan<'a> {
    /// The file by which it enters a control group that it was not born in.
    pub(crate) enter: Option<c_int>,
    pub(crate) candidates: *const *const c_char,
    pub(crate) argv: *const *const c_char,
    pub(crate) envs: *const *const c_char,
    /// Null: stay where the parent is.
    pub(crate) current_dir: *const c_char,
    pub(crate) fds: [c_int; 3],
    /// What becomes 3, 4, ...; all numbers are above those.
    pub(crate) passed: &'a [c_int],
    /// 0: none.
    pub(crate) parent_death_signal: c_int,
    pub(crate) parent: libc::pid_t,
    pub(crate) placement: &'a PreparedPlacement,
    pub(crate) failure: Failure,
}

/// A step and an errno in one word of shared memory; 0 while nothing failed.
pub(crate) struct Failure(AtomicU64);

impl Failure {
    pub(crate) const fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    fn set(&self, step: SpawnStep, errno: c_int) {
        self.0.store(u64::from(step.code()) << 32 | u64::from(errno as u32), Ordering::Release);
    }

    pub(crate) fn get(&self) -> Option<(SpawnStep, c_int)> {
        let word = self.0.load(Ordering::Acquire);
        let step = SpawnStep::from_code((word >> 32) as u32)?;
        Some((step, word as u32 as c_int))
    }
}

/// The child's first function, of the type that clone(2) wants; it never returns.
pub(crate) extern "C" fn run(plan: *mut c_void) -> c_int {
    // SAFETY: the parent passes a pointer to a Plan that lives until this process has called exec or exit, because
    // CLONE_VFORK suspends the parent's thread until then; nobody writes to it meanwhile but the atomic.
    let plan = unsafe { &*plan.cast::<Plan<'_>>() };
    let (step, errno) = steps(plan);
    plan.failure.set(step, errno);
    // SAFETY: ends this process without running the parent's exit handlers.
    unsafe { libc::_exit(127) }
}

fn last_errno() -> c_int {
    // SAFETY: the location is the suspended parent thread's errno, which is ours to use meanwhile.
    unsafe { *libc::__errno_location() }
}

/// Carries out the plan and returns only with the step that failed.
fn steps(plan: &Plan<'_>) -> (SpawnStep, c_int) {
    // SAFETY: system calls with integers, or with pointers that the plan keeps alive.
    unsafe {
        if let Some(procs) = plan.enter
            && libc::write(procs, c"0".as_ptr().cast(), 1) < 0
        {
            return (SpawnStep::ControlGroup, last_errno());
        }
        if libc::setsid() < 0 {
            return (SpawnStep::Session, last_errno());
        }
        // First no handler, then no mask: a handler of the parent's would run here on the parent's memory.
        let default_action = [0_u64; 4];
        for signal in 1..=64 {
            if signal != libc::SIGKILL && signal != libc::SIGSTOP {
                libc::syscall(
                    libc::SYS_rt_sigaction,
                    signal,
                    default_action.as_ptr(),
                    std::ptr::null_mut::<c_void>(),
                    KERNEL_SIGSET_SIZE,
                );
            }
        }
        if plan.parent_death_signal != 0 {
            if libc::prctl(libc::PR_SET_PDEATHSIG, plan.parent_death_signal as libc::c_ulong, 0, 0, 0) < 0 {
                return (SpawnStep::DeathSignal, last_errno());
            }
            // If the parent died before the line above, nobody will send the signal. 0: it is in an outer pid namespace.
            let parent = libc::getppid();
            if parent != plan.parent && parent != 0 {
                return (SpawnStep::DeathSignal, libc::ESRCH);
            }
        }
        if !plan.current_dir.is_null() && libc::chdir(plan.current_dir) < 0 {
            return (SpawnStep::CurrentDir, last_errno());
        }
        for (target, source) in (0..).zip(plan.fds) {
            let done =
                if source == target { libc::fcntl(source, libc::F_SETFD, 0) } else { libc::dup2(source, target) };
            if done < 0 {
                return (SpawnStep::Stdio, last_errno());
            }
        }
        let mut rest = FIRST_FD;
        for source in plan.passed {
            // The copy is not close-on-exec, as dup2 makes it.
            if libc::dup2(*source, rest) < 0 {
                return (SpawnStep::Stdio, last_errno());
            }
            rest += 1;
        }
        close_from(rest);
        if let Err(failed) = place(plan.placement) {
            return failed;
        }
        let mask = 0_u64;
        let null = std::ptr::null_mut::<u64>();
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &mask, null, KERNEL_SIGSET_SIZE);
        (SpawnStep::Exec, exec(plan))
    }
}

/// Takes the worker's CPUs, umask, nice value and limits, in this order.
///
/// After the streams: a low limit on open files would make dup2 fail and hide descriptors from [`close_from`], and
/// what makes this process slow also stops the parent, which waits. The limits last: one on nice values would bind
/// setpriority.
fn place(placement: &PreparedPlacement) -> Result<(), (SpawnStep, c_int)> {
    const THIS: libc::c_long = 0;
    // SAFETY: system calls with integers, or with pointers to memory that the parent keeps alive, of the size passed.
    // Raw calls, because the wrappers' types differ between C libraries. Each acts on this process alone: it has
    // limits and a umask of its own, as clone was called without CLONE_THREAD and CLONE_FS.
    unsafe {
        if let Some(mask) = &placement.cpus
            && libc::syscall(libc::SYS_sched_setaffinity, THIS, size_of_val(mask.as_slice()), mask.as_ptr()) < 0
        {
            return Err((SpawnStep::Affinity, last_errno()));
        }
        if let Some(mask) = placement.umask {
            libc::umask(mask);
        }
        if let Some(nice) = placement.nice
            && libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, THIS, libc::c_long::from(nice)) < 0
        {
            return Err((SpawnStep::Nice, last_errno()));
        }
        for limit in &placement.limits {
            let old = std::ptr::null_mut::<libc::rlimit64>();
            if libc::syscall(libc::SYS_prlimit64, THIS, limit.number, &raw const limit.bounds, old) < 0 {
                return Err((SpawnStep::Limit(limit.resource), last_errno()));
            }
        }
    }
    Ok(())
}

/// Marks all descriptors from `first` on to be closed by exec.
fn close_from(first: c_int) {
    // SAFETY: integers only; descriptors are this process's own copies, since clone was called without CLONE_FILES.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) == 0 {
            return;
        }
        // Before Linux 5.11: one by one, up to the limit on open files.
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) < 0 {
            limit.rlim_cur = 1024;
        }
        for fd in first..limit.rlim_cur.min(1 << 20) as c_int {
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}

/// Tries each candidate as execvpe(3) does and returns the errno that says most.
unsafe fn exec(plan: &Plan<'_>) -> c_int {
    let mut verdict = libc::ENOENT;
    let mut candidate = plan.candidates;
    // SAFETY: the array has an entry and then ends with a null pointer, and argv and envs are such arrays too.
    unsafe {
        let only_one = (*candidate.add(1)).is_null();
        while !(*candidate).is_null() {
            libc::execve(*candidate, plan.argv, plan.envs);
            match last_errno() {
                errno if only_one => return errno,
                // Found, but not to be executed by us: worth more than "not found" if no other candidate works.
                libc::EACCES => verdict = libc::EACCES,
                libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
                errno => return errno,
            }
            candidate = candidate.add(1);
        }
    }
    verdict
}
