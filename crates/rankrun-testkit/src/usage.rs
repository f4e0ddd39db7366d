//! What one process uses: threads, file descriptors, memory, wake-ups. All read from proc(5).
//!
//! Each function answers `None` (or nothing) once the process is gone. Not here: who lives ([`crate::process`]).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// How many threads a process has.
#[must_use]
pub fn thread_count(pid: i32) -> Option<usize> {
    Some(fs::read_dir(format!("/proc/{pid}/task")).ok()?.count())
}

/// The open file descriptors of a process with what they point to, such as `/dev/null` or `pipe:[123]`.
///
/// The descriptor that reads the list is not in it.
#[must_use]
pub fn open_fds(pid: i32) -> BTreeMap<i32, PathBuf> {
    let directory = format!("/proc/{pid}/fd");
    let Ok(entries) = fs::read_dir(&directory) else {
        return BTreeMap::new();
    };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some((number, fs::read_link(entry.path()).ok()?))
        })
        .filter(|(_, target)| target != Path::new(&directory))
        .collect()
}

/// How often the threads of a process went to sleep by themselves, in total since they started.
///
/// Two readings with equal values say that nothing woke it in between. Sums `voluntary_ctxt_switches` of its threads.
#[must_use]
pub fn wakeups(pid: i32) -> Option<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        // A thread that ended meanwhile no longer counts.
        let status = task.ok().and_then(|task| fs::read_to_string(task.path().join("status")).ok());
        sum += status.and_then(|status| field(&status, "voluntary_ctxt_switches")).unwrap_or(0);
    }
    Some(sum)
}

/// The memory in KiB that would come free if the process ended: `Private_*` of `/proc/PID/smaps_rollup`.
#[must_use]
pub fn private_memory_kib(pid: i32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    Some(["Private_Clean", "Private_Dirty", "Private_Hugetlb"].iter().filter_map(|name| field(&rollup, name)).sum())
}

/// The most memory in KiB that the process ever held: `VmHWM` of `/proc/PID/status`.
#[must_use]
pub fn peak_memory_kib(pid: i32) -> Option<u64> {
    field(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmHWM")
}

/// The number after `name:` at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use super::*;
    use crate::{eventually, process_state};

    fn own_pid() -> i32 {
        std::process::id().cast_signed()
    }

    /// A `sleep` that has nothing more to do but sleep.
    fn idle() -> Child {
        let child = Command::new("sleep").arg("600").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let pid = child.id().cast_signed();
        let asleep = || {
            process_state(pid) == Some('S')
                && fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|at| at.contains("nanosleep"))
        };
        eventually("sleep sleeps", Duration::from_secs(10), asleep);
        child
    }

    #[test]
    fn a_field_is_read_by_its_whole_name() {
        let status = "nonvoluntary_ctxt_switches:\t7\nvoluntary_ctxt_switches:\t12\nVmHWM:\t  640 kB\n";
        assert_eq!(field(status, "voluntary_ctxt_switches"), Some(12));
        assert_eq!(field(status, "VmHWM"), Some(640));
        assert_eq!(field(status, "Vm"), None);
    }

    #[test]
    fn an_open_file_is_among_the_descriptors_and_the_reading_one_is_not() {
        let file = File::open("/proc/version").unwrap();
        let fds = open_fds(own_pid());
        assert_eq!(fds.get(&file.as_raw_fd()), Some(&PathBuf::from("/proc/version")));
        assert!(!fds.values().any(|target| target.ends_with(format!("{}/fd", own_pid()))), "{fds:?}");
    }

    #[test]
    fn an_idle_process_has_one_thread_some_memory_and_no_wakeups() {
        let mut child = idle();
        let pid = child.id().cast_signed();
        assert_eq!(thread_count(pid), Some(1));
        assert!((1..4096).contains(&private_memory_kib(pid).unwrap()));
        assert!(peak_memory_kib(pid).unwrap() >= private_memory_kib(pid).unwrap());
        let before = wakeups(pid).unwrap();
        // SIGSTOP and SIGCONT wake it: the count must move.
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGSTOP).unwrap();
        eventually("it is stopped", Duration::from_secs(10), || process_state(pid) == Some('T'));
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGCONT).unwrap();
        eventually("it was woken", Duration::from_secs(10), || wakeups(pid).unwrap() > before);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((thread_count(pid), wakeups(pid), private_memory_kib(pid)), (None, None, None));
        assert!(open_fds(pid).is_empty());
    }
}
