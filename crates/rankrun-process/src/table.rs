//! The process table, as /proc shows it: [`Entry`], [`entries`], [`group_members`]. Not here: signalling what is found.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// How long at most to wait for a process to get through execve(2), which a dead file server can hold up.
const EXEC_PATIENCE: Duration = Duration::from_millis(100);

/// What /proc/PID/stat says of a process. See proc_pid_stat(5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) state: char,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    pub(crate) session: u32,
    /// In clock ticks since the boot: with the pid, a process's identity.
    pub(crate) start_time: u64,
}

impl Entry {
    /// Reads the entry of a process; `None` if there is none.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Whether it runs: not a zombie.
    pub(crate) fn is_live(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// All processes at this moment. One that ends meanwhile may be missing, one that starts too.
///
/// # Errors
/// As opening /proc, which may not be mounted.
pub(crate) fn entries() -> io::Result<impl Iterator<Item = Entry>> {
    Ok(pids()?.filter_map(Entry::of))
}

fn pids() -> io::Result<impl Iterator<Item = u32>> {
    let names = fs::read_dir("/proc")?.flatten();
    Ok(names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// The pids of the live processes whose process group is `pgid`, as /proc shows them at this moment.
pub(crate) fn group_members(pgid: u32) -> impl Iterator<Item = u32> {
    let entries = entries().into_iter().flatten();
    entries.filter(move |entry| entry.is_live() && entry.group == pgid).map(|entry| entry.pid)
}

/// The children of this process, zombies too; `None` where the kernel does not list them.
pub(crate) fn own_children() -> Option<Vec<u32>> {
    let mut children = Vec::new();
    for task in fs::read_dir("/proc/self/task").ok()?.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(text) => children.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok())),
            // A thread that has ended has no children; a kernel without the list has it for no thread.
            Err(_) if !task.path().exists() => {}
            Err(_) => return None,
        }
    }
    Some(children)
}

/// The value of an environment variable that a process was started with; `None` if it is not readable or not there.
pub(crate) fn variable(pid: u32, name: &str, buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    let deadline = Instant::now() + EXEC_PATIENCE;
    read_environment(pid, buffer)?;
    // For a moment inside execve(2) the old strings are gone and the new ones not there: look again after it.
    while buffer.is_empty() && is_within_exec(pid) && Instant::now() < deadline {
        std::thread::yield_now();
    }
    if buffer.is_empty() {
        // Exec may have ended between the look at the strings and the look at the rest.
        read_environment(pid, buffer)?;
    }
    let is_it =
        |entry: &&[u8]| entry.len() > name.len() && entry.starts_with(name.as_bytes()) && entry[name.len()] == b'=';
    let entry = buffer.split(|byte| *byte == 0).find(is_it)?;
    Some(entry[name.len() + 1..].to_vec())
}

fn read_environment(pid: u32, buffer: &mut Vec<u8>) -> Option<()> {
    buffer.clear();
    io::Read::read_to_end(&mut fs::File::open(format!("/proc/{pid}/environ")).ok()?, buffer).ok()?;
    Some(())
}

/// Whether a process without an environment has none because it is about to become another program.
///
/// Then its code has no start address yet, which a process that runs has, and it is neither a kernel thread nor ending.
fn is_within_exec(pid: u32) -> bool {
    const PF_EXITING: u64 = 0x4;
    const PF_KTHREAD: u64 = 0x0020_0000;
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some(close) = stat.iter().rposition(|byte| *byte == b')') else { return false };
    let rest = String::from_utf8_lossy(&stat[close + 1..]);
    // Field 3, the state, is the first of these.
    let field = |number: usize| rest.split_ascii_whitespace().nth(number - 3)?.parse::<u64>().ok();
    field(26) == Some(0) && field(9).is_some_and(|flags| flags & (PF_EXITING | PF_KTHREAD) == 0)
}

fn parse(pid: u32, stat: &[u8]) -> Option<Entry> {
    // The name, in parentheses, may itself hold spaces and parentheses: what counts is after the last one.
    let (open, close) = (stat.iter().position(|byte| *byte == b'(')?, stat.iter().rposition(|byte| *byte == b')')?);
    let name = String::from_utf8_lossy(stat.get(open + 1..close)?).into_owned();
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let mut number = || fields.next()?.parse::<u64>().ok();
    let (parent, group, session) = (number()?, number()?, number()?);
    // Fields 7 to 21 lie between the session and the start time; tpgid may be negative.
    let start_time = fields.nth(15)?.parse().ok()?;
    Some(Entry {
        pid,
        name,
        state,
        parent: u32::try_from(parent).ok()?,
        group: u32::try_from(group).ok()?,
        session: u32::try_from(session).ok()?,
        start_time,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let line = b"7 (a) R 9 (b) S 1 42 43 0 -1 4194560 10 0 0 0 1 2 0 0 20 0 1 0 98765 1000 10\n";
        let entry = parse(7, line).unwrap();
        assert_eq!((entry.name.as_str(), entry.state), ("a) R 9 (b", 'S'));
        assert_eq!((entry.parent, entry.group, entry.session, entry.start_time), (1, 42, 43, 98765));
        for broken in [&b""[..], b"7 (sh", b"7 (sh) S", b"7 (sh) S 1 2 3", b") ("] {
            assert_eq!(parse(7, broken), None);
        }
    }

    #[test]
    fn this_test_is_in_the_table_with_its_group_and_environment() {
        let pid = std::process::id();
        let this = Entry::of(pid).unwrap();
        assert!(this.is_live() && this.start_time > 0);
        assert!(group_members(this.group).any(|member| member == pid));
        let mut buffer = Vec::new();
        let path = variable(pid, "PATH", &mut buffer).unwrap();
        assert_eq!(path, std::os::unix::ffi::OsStrExt::as_bytes(std::env::var_os("PATH").unwrap().as_os_str()));
        assert_eq!(variable(pid, "NO_SUCH_VARIABLE", &mut buffer), None);
    }
}
