//! A control group of the workers' own: [`ControlGroup`]. Not here: who is put into it (`spawn`), when it is ended.
//!
//! What a worker starts is in its control group, whatever it does with its session and its environment, and one write
//! ends all of them (cgroups(7), version 2). Where there is none that may be used, which is usual without root or a
//! delegated subtree, everything works without, by the other ways that [`Tree`](crate::Tree) has.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::sys;

/// What the names of our directories begin with.
const PREFIX: &str = "rankrun-";

/// Set to anything in the environment: no control groups, for tests.
const SWITCH: &str = "RANKRUN_NO_CGROUP";

/// How often the making of a directory is tried again if another run took the new one for a stale one, and how often a
/// lock that such a run holds for a moment.
const TRIES: u32 = 20;

/// How often members are moved out; each time finds what the last ones have started meanwhile.
const MOVES: u32 = 100;

/// How long the kernel may take to let go of the last process after that was reaped.
const PATIENCE: Duration = Duration::from_millis(100);

/// There is no control group to be had. Work goes on without one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlGroupError {
    /// It is switched off by `RANKRUN_NO_CGROUP` in the environment.
    #[error("control groups are switched off by {SWITCH}")]
    SwitchedOff,
    /// No hierarchy of version 2 that shows this process is mounted and writable.
    #[error("no writable cgroup v2 is mounted here")]
    NotMounted,
    /// This program may not make one, or put a process into it.
    #[error("cannot make the control group {}: {}", dir.display(), io::Error::from_raw_os_error(*errno))]
    Create {
        /// Its directory.
        dir: PathBuf,
        /// The errno.
        errno: i32,
    },
}

/// A control group below this program's own, for the workers of one group and all that they start.
///
/// Its directory is removed when it is dropped, if nobody is in it any more. It is locked while it is in use (flock(2)), so
/// that a later run knows one that was left behind by a launcher and a guardian that were killed together.
#[derive(Debug)]
pub struct ControlGroup {
    dir: PathBuf,
    /// What /proc/PID/cgroup says of its members.
    name: Vec<u8>,
    /// The open directory, with the lock.
    handle: File,
    /// Takes the pid of who is to be a member.
    procs: File,
    removed: AtomicBool,
}

impl ControlGroup {
    /// Makes a control group for the group with this cookie, and removes empty ones that dead runs have left beside it.
    ///
    /// # Errors
    /// [`ControlGroupError`] where that cannot be done.
    pub fn new(cookie: &str) -> Result<Self, ControlGroupError> {
        if std::env::var_os(SWITCH).is_some_and(|value| !value.is_empty()) {
            return Err(ControlGroupError::SwitchedOff);
        }
        let mounts = fs::read("/proc/self/mountinfo").map_err(|_| ControlGroupError::NotMounted)?;
        let own = fs::read("/proc/self/cgroup").map_err(|_| ControlGroupError::NotMounted)?;
        let own = member_of(&own).ok_or(ControlGroupError::NotMounted)?;
        let parent = directory_of(&mounts, own).ok_or(ControlGroupError::NotMounted)?;
        let file_name = format!("{PREFIX}{}-{}", std::process::id(), cookie.get(..8).unwrap_or(cookie));
        let dir = parent.join(&file_name);
        let mut name = if own == b"/" { Vec::new() } else { own.to_vec() };
        name.push(b'/');
        name.extend_from_slice(file_name.as_bytes());
        let made = Self::make(&parent, dir.clone(), name);
        made.map_err(|error| ControlGroupError::Create { dir, errno: error.raw_os_error().unwrap_or(libc::EIO) })
    }

    fn make(parent: &Path, dir: PathBuf, name: Vec<u8>) -> io::Result<Self> {
        // Who moves from the parent to the child must be allowed to write to both.
        writable(&parent.join("cgroup.procs"))?;
        let handle = (0..TRIES).find_map(|_| make_locked(&dir).transpose());
        let handle = handle.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))?;
        remove_stale(parent);
        let opened = match fs::read(dir.join("cgroup.type")) {
            // Below a threaded one no process can be.
            Ok(kind) if kind.trim_ascii() != b"domain" => Err(io::ErrorKind::Unsupported.into()),
            _ => writable(&dir.join("cgroup.procs")),
        };
        match opened {
            Ok(procs) => Ok(Self { dir, name, handle, procs, removed: AtomicBool::new(false) }),
            Err(error) => {
                let _ = fs::remove_dir(&dir);
                Err(error)
            }
        }
    }

    /// The control group that another process made, by the name that /proc/PID/cgroup shows and its open directory.
    pub(crate) fn inherited(dir: PathBuf, name: Vec<u8>, handle: File) -> io::Result<Self> {
        let procs = writable(&dir.join("cgroup.procs"))?;
        Ok(Self { dir, name, handle, procs, removed: AtomicBool::new(false) })
    }

    /// Its directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// The file that takes the pid of who is to become a member; `0` is who writes.
    pub(crate) fn procs(&self) -> BorrowedFd<'_> {
        self.procs.as_fd()
    }

    /// Whether any live process is in it or below.
    #[must_use]
    pub fn is_populated(&self) -> bool {
        is_populated(&self.dir)
    }

    /// Whether the process, which may be a zombie, is in it or below.
    pub(crate) fn contains(&self, pid: u32) -> bool {
        let Ok(text) = fs::read(format!("/proc/{pid}/cgroup")) else { return false };
        let below = |rest: &[u8]| rest.is_empty() || rest[0] == b'/';
        member_of(&text).and_then(|name| name.strip_prefix(self.name.as_slice())).is_some_and(below)
    }

    /// The processes in it and below. The numbers may be others' when they are used: see [`contains`](Self::contains).
    pub(crate) fn pids(&self) -> Vec<u32> {
        let mut pids = Vec::new();
        each_below(&self.dir, &mut |dir| pids.extend(pids_in(dir)));
        pids
    }

    /// Ends all of its processes by SIGKILL, those that are being made as well; `false` before Linux 5.14.
    pub fn kill(&self) -> bool {
        fs::OpenOptions::new()
            .write(true)
            .open(self.dir.join("cgroup.kill"))
            .and_then(|mut file| io::Write::write_all(&mut file, b"1"))
            .is_ok()
    }

    /// Moves its processes to where this program is, so that they can stay when it goes.
    ///
    /// Those in control groups that a member made below are left where they are.
    pub fn release(&self) {
        let Some(parent) = self.dir.parent() else { return };
        let Ok(procs) = writable(&parent.join("cgroup.procs")) else { return };
        for _ in 0..MOVES {
            let pids = pids_in(&self.dir);
            if pids.is_empty() {
                return;
            }
            for pid in pids.into_iter().filter(|pid| self.contains(*pid)) {
                // It may have ended.
                let _ = io::Write::write_all(&mut &procs, pid.to_string().as_bytes());
            }
        }
    }

    /// Removes its directory, and what is below; `false` if a process is in it. Idempotent.
    pub fn remove(&self) -> bool {
        if self.removed.load(Ordering::Acquire) {
            return true;
        }
        let mut removed = remove_tree(&self.dir);
        if !removed {
            wait_until_empty(&self.dir);
            removed = remove_tree(&self.dir);
        }
        self.removed.store(removed, Ordering::Release);
        removed
    }
}

impl AsFd for ControlGroup {
    /// The open directory.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // One with a process that nobody could end stays; a later run removes it.
        let _ = self.removed.load(Ordering::Acquire) || remove_tree(&self.dir);
    }
}

/// What /proc/PID/cgroup says of version 2: a path in the hierarchy.
fn member_of(text: &[u8]) -> Option<&[u8]> {
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"0::"))?;
    (line.starts_with(b"/") && !line.ends_with(b" (deleted)")).then_some(line)
}

/// Where /proc/self/mountinfo says that the control group with this path in the hierarchy is seen and may be written to.
fn directory_of(mountinfo: &[u8], name: &[u8]) -> Option<PathBuf> {
    let name = Path::new(std::ffi::OsStr::from_bytes(name));
    // Of a cgroup namespace that is not ours.
    if name.components().any(|part| part == std::path::Component::ParentDir) {
        return None;
    }
    mountinfo.split(|byte| *byte == b'\n').find_map(|line| {
        // proc_pid_mountinfo(5): id, parent, device, root, mount point, options, optional fields, `-`, type, source, options.
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let dash = fields.iter().position(|field| *field == b"-")?;
        let (root, point, options) = (fields.get(3)?, fields.get(4)?, fields.get(5)?);
        if *fields.get(dash + 1)? != b"cgroup2" || options.split(|byte| *byte == b',').any(|option| option == b"ro") {
            return None;
        }
        let below = name.strip_prefix(unescape(root)).ok()?;
        Some(unescape(point).join(below))
    })
}

/// Undoes the octal escapes of blanks in mountinfo.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let octal = after.get(..3).filter(|_| byte == b'\\');
        let value = octal.and_then(|octal| u8::from_str_radix(std::str::from_utf8(octal).ok()?, 8).ok());
        if value.is_some() {
            rest = &after[3..];
        }
        bytes.push(value.unwrap_or(byte));
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

fn writable(path: &Path) -> io::Result<File> {
    File::options().write(true).open(path)
}

/// The new directory, open and locked; `None` if it was taken for a stale one before it was locked.
fn make_locked(dir: &Path) -> io::Result<Option<File>> {
    // Not for others, whatever the umask.
    fs::DirBuilder::new().mode(0o755).create(dir)?;
    let handle = match File::open(dir) {
        Ok(handle) => handle,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let _ = fs::remove_dir(dir);
            return Err(error);
        }
    };
    for _ in 0..TRIES {
        if sys::try_lock(handle.as_fd()).is_ok() {
            break;
        }
        // sleep: another run looks at it just now, which takes it microseconds; nothing tells when it is done.
        std::thread::sleep(Duration::from_millis(1));
    }
    let is_there = fs::metadata(dir).is_ok_and(|now| handle.metadata().is_ok_and(|ours| ours.ino() == now.ino()));
    Ok(is_there.then_some(handle))
}

/// Removes control groups of dead runs, if they are empty. Whoever is in one is not ours to end.
fn remove_stale(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        // The lock is held until it is gone.
        let Ok(handle) = File::open(entry.path()) else { continue };
        if sys::try_lock(handle.as_fd()).is_ok() {
            remove_tree(&entry.path());
        }
    }
}

/// Calls `visit` for each directory below, deepest first, and for this one.
fn each_below(dir: &Path, visit: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            each_below(&entry.path(), visit);
        }
    }
    visit(dir);
}

fn remove_tree(dir: &Path) -> bool {
    let mut removed = Ok(());
    // The last one is `dir` itself.
    each_below(dir, &mut |dir| removed = fs::remove_dir(dir));
    match removed {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn pids_in(dir: &Path) -> Vec<u32> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    // 0 is a process that this pid namespace does not show.
    text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid != 0).collect()
}

fn is_populated(dir: &Path) -> bool {
    fs::read_to_string(dir.join("cgroup.events")).is_ok_and(|events| events.lines().any(|line| line == "populated 1"))
}

/// Waits until nobody is in it, at most for [`PATIENCE`].
fn wait_until_empty(dir: &Path) {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let Ok(events) = File::open(dir.join("cgroup.events")) else { return };
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        // Reading says what it is now; from then on a change makes the file ready for POLLPRI.
        let mut text = String::new();
        let mut file = &events;
        let read = io::Seek::rewind(&mut file).and_then(|()| io::Read::read_to_string(&mut file, &mut text));
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        if read.is_err() || !text.contains("populated 1") || left.is_zero() {
            return;
        }
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        // An interruption is no reason to end: the next look tells.
        let _ = poll(&mut [PollFd::new(events.as_fd(), PollFlags::POLLPRI)], left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
                          32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                          41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    fn found(mountinfo: &str, name: &str) -> Option<String> {
        let dir = directory_of(mountinfo.as_bytes(), name.as_bytes())?;
        Some(dir.into_os_string().into_string().unwrap())
    }

    #[test]
    fn a_path_in_the_hierarchy_is_found_where_version_2_is_mounted() {
        assert_eq!(found(HYBRID, "/user.slice/a b").unwrap(), "/sys/fs/cgroup/unified/user.slice/a b");
        assert_eq!(found(HYBRID, "/").unwrap(), "/sys/fs/cgroup/unified/");
        let escaped = "41 31 0:38 / /mnt/with\\040blank rw - cgroup2 cgroup2 rw\n";
        assert_eq!(found(escaped, "/x").unwrap(), "/mnt/with blank/x");
    }

    #[test]
    fn a_mount_of_another_part_or_one_that_is_read_only_or_a_foreign_namespace_is_none() {
        let part = "41 31 0:38 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(found(part, "/docker/1/a").unwrap(), "/sys/fs/cgroup/a");
        for (mountinfo, name) in [
            (part, "/docker/2"),
            ("41 31 0:38 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup2 rw\n", "/"),
            ("32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n", "/"),
            (HYBRID, "/../other"),
            ("", "/"),
            ("41 31 - cgroup2", "/"),
        ] {
            assert_eq!(found(mountinfo, name), None, "{mountinfo} {name}");
        }
    }

    #[test]
    fn the_line_of_version_2_is_the_one_that_counts() {
        assert_eq!(member_of(b"9:name=systemd:/x\n0::/a/b\n"), Some(&b"/a/b"[..]));
        assert_eq!(member_of(b"8:pids:/\n"), None);
        assert_eq!(member_of(b"0::/a (deleted)\n"), None);
    }

    #[test]
    fn an_empty_one_is_removed_by_the_next_unless_it_is_in_use() {
        let Ok(one) = ControlGroup::new("11111111") else {
            eprintln!("skipped: no control group can be made here");
            return;
        };
        let stale = one.dir.with_file_name(format!("{PREFIX}0-stale{}", std::process::id()));
        fs::create_dir(&stale).unwrap();
        fs::create_dir(stale.join("below")).unwrap();
        let other = ControlGroup::new("22222222").unwrap();
        assert!(one.dir.exists() && other.dir.exists() && !stale.exists());
        assert!(!one.is_populated() && one.pids().is_empty());
        assert!(one.remove() && one.remove() && !one.dir.exists());
        let dir = other.dir.clone();
        drop(other);
        assert!(!dir.exists());
    }
}
