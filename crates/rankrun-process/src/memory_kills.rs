//! How often the kernel has killed a process for want of memory: [`MemoryKillCounters`]. Not here: what that means for a
//! worker that SIGKILL ended.

use std::fs;
use std::path::{Path, PathBuf};

/// What a control group of version 1 has for no limit: a little less than 2^63.
const NO_LIMIT: u64 = 1 << 62;

/// The kernel's counters of processes killed for want of memory, at one moment.
///
/// Read before and after, they tell whether it happened meanwhile; of whom, they do not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MemoryKillCounters {
    /// Of this process's memory control group, with version 2 also of the groups below: `oom_kill` of `memory.events` or
    /// `memory.oom_control`; `None` where there is none (before Linux 4.13).
    pub group: Option<u64>,
    /// Of all the host's processes: `oom_kill` of /proc/vmstat.
    pub host: Option<u64>,
    /// The memory limit of this process's control group, in bytes, if it has one.
    pub group_limit: Option<u64>,
}

impl MemoryKillCounters {
    /// Reads the counters in the file tree at `root`: `/` for the real ones. What cannot be read is `None`.
    ///
    /// ```
    /// use rankrun_process::MemoryKillCounters;
    ///
    /// let before = MemoryKillCounters::read("/".as_ref());
    /// let after = MemoryKillCounters::read("/".as_ref());
    /// assert!(after.host >= before.host);
    /// ```
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).ok();
        let host = text("proc/vmstat").and_then(|text| field(&text, "oom_kill"));
        let group = text("proc/self/cgroup").zip(text("proc/self/mountinfo")).and_then(|(groups, mounts)| {
            memory_group(&groups, &mounts)
                .map(|(path, version)| (root.join(path.strip_prefix("/").unwrap_or(&path)), version))
        });
        let Some((directory, version)) = group else { return Self { host, ..Self::default() } };
        let (events, limit) = match version {
            Version::One => ("memory.oom_control", "memory.limit_in_bytes"),
            Version::Two => ("memory.events", "memory.max"),
        };
        let of_group = |name| fs::read_to_string(directory.join(name)).ok();
        Self {
            group: of_group(events).and_then(|text| field(&text, "oom_kill")),
            host,
            group_limit: of_group(limit).and_then(|text| text.trim().parse().ok()).filter(|limit| *limit < NO_LIMIT),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The number after a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?.trim().parse().ok()
}

/// The directory of this process's memory control group, from /proc/self/cgroup and /proc/self/mountinfo.
///
/// Where memory is controlled by version 1, which a host may have beside version 2, that is it.
fn memory_group(groups: &str, mounts: &str) -> Option<(PathBuf, Version)> {
    let group = |wanted: fn(&str) -> bool| {
        groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            wanted(controllers).then_some(path)
        })
    };
    if let Some(path) = group(|controllers| controllers.split(',').any(|name| name == "memory")) {
        return Some((
            mounted(path, mounts, |kind, options| kind == "cgroup" && has(options, "memory"))?,
            Version::One,
        ));
    }
    let path = group(str::is_empty)?;
    Some((mounted(path, mounts, |kind, _| kind == "cgroup2")?, Version::Two))
}

fn has(options: &str, wanted: &str) -> bool {
    options.split(',').any(|option| option == wanted)
}

/// Where a control group is in the file tree. See proc_pid_mountinfo(5).
fn mounted(group: &str, mounts: &str, wanted: impl Fn(&str, &str) -> bool) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, at) = (mount.next()?, mount.next()?);
        let mut filesystem = filesystem.split(' ');
        let (kind, options) = (filesystem.next()?, filesystem.nth(1)?);
        if !wanted(kind, options) {
            return None;
        }
        // A container may see only its own group mounted, and its path as the host has it.
        let below = Path::new(group).strip_prefix(root).or_else(|_| Path::new(group).strip_prefix("/")).ok()?;
        // `join` would end the path in a slash for the group at the root.
        Some(if below.as_os_str().is_empty() { at.into() } else { Path::new(at).join(below) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "30 25 0:26 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
                      31 25 0:27 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw\n";
    const V2: &str =
        "22 1 0:20 / / rw - ext4 /dev/vda rw\n30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw,nsdelegate\n";

    #[test]
    fn the_memory_group_is_found_in_either_version() {
        let path =
            |groups, mounts| memory_group(groups, mounts).map(|(path, version)| (path.display().to_string(), version));
        let v1 = Some(("/sys/fs/cgroup/memory/job/7".to_owned(), Version::One));
        assert_eq!(path("5:cpu:/x\n4:hugetlb,memory:/job/7\n0::/u\n", V1), v1);
        assert_eq!(
            path("0::/u.slice/a.scope\n", V2),
            Some(("/sys/fs/cgroup/u.slice/a.scope".to_owned(), Version::Two))
        );
        assert_eq!(path("5:cpu:/x\n0::/\n", V1), Some(("/sys/fs/cgroup/unified".to_owned(), Version::Two)));
        assert_eq!(path("5:cpu:/x\n", V1), None);
        assert_eq!(path("", ""), None);
    }

    #[test]
    fn in_a_container_the_groups_own_mount_is_its_root() {
        let mounts = "30 25 0:26 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let path = |group| memory_group(group, mounts).unwrap().0;
        assert_eq!(path("4:memory:/docker/abc\n"), Path::new("/sys/fs/cgroup/memory"));
        assert_eq!(path("4:memory:/docker/abc/sub\n"), Path::new("/sys/fs/cgroup/memory/sub"));
    }

    #[test]
    fn counters_come_from_the_tree_that_is_given() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(MemoryKillCounters::read(root.path()), MemoryKillCounters::default());
        write("proc/vmstat", "nr_free_pages 7\noom_kill 12\noom_kill_x 3\n");
        write("proc/self/mountinfo", V1);
        write("proc/self/cgroup", "4:memory:/job\n");
        write("sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
        write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "20971520\n");
        let expected = MemoryKillCounters { group: Some(3), host: Some(12), group_limit: Some(20 << 20) };
        assert_eq!(MemoryKillCounters::read(root.path()), expected);

        write("proc/self/mountinfo", V2);
        write("proc/self/cgroup", "0::/job\n");
        write("sys/fs/cgroup/job/memory.events", "low 0\noom 4\noom_kill 5\noom_group_kill 1\n");
        write("sys/fs/cgroup/job/memory.max", "max\n");
        let expected = MemoryKillCounters { group: Some(5), host: Some(12), group_limit: None };
        assert_eq!(MemoryKillCounters::read(root.path()), expected);
    }

    #[test]
    fn this_host_counts() {
        assert!(MemoryKillCounters::read(Path::new("/")).host.is_some(), "since Linux 4.13");
    }
}
