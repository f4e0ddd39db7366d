//! The process table, as /proc shows it: [`Entry`], [`entries`], [`group_members`]. Not here: signalling what is found.
//!
//! A /proc of another PID namespace (`unshare --pid` without `--mount-proc`) has other numbers for the same processes, so
//! nothing is read from it.

use std::fs;
use std::io;
use std::sync::OnceLock;
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
        if !has_our_pids() {
            return None;
        }
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
/// As opening /proc, which may not be mounted, or be another PID namespace's.
pub(crate) fn entries() -> io::Result<impl Iterator<Item = Entry>> {
    Ok(pids()?.filter_map(Entry::of))
}

fn pids() -> io::Result<impl Iterator<Item = u32>> {
    if !has_our_pids() {
        return Err(io::Error::other("it shows another PID namespace"));
    }
    let names = fs::read_dir("/proc")?.flatten();
    Ok(names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// Whether the numbers in /proc are those by which this process knows others. Asked once.
pub(crate) fn has_our_pids() -> bool {
    static OURS: OnceLock<bool> = OnceLock::new();
    *OURS.get_or_init(|| {
        // See proc(5): the number that the reader has in the PID namespace of that mount. Without one there is nothing to
        // mistake.
        let own = fs::read_link("/proc/self").ok().and_then(|link| link.to_str()?.parse().ok());
        own.is_none_or(|own: u32| own == std::process::id())
    })
}

/// A moment after which processes are looked for, so that a host's many older ones need not be read.
///
/// The kernel gives pids in a circle. As long as it has not been once around it, which its count of all forks tells, a
/// process is newer if its pid lies between the last one of then and the last one of now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epoch {
    last_pid: u32,
    forks: u64,
}

/// Up to this many pids are tried one by one, which costs less than listing all processes.
const FEW: u32 = 1024;

/// How often new pids are looked at again before the search ends; only a host that never stops forking gets that far.
const ROUNDS: usize = 20;

/// Reserved pids that the circle leaves out, and what may be forked between two readings of counters.
const MARGIN: u64 = 1000;

impl Epoch {
    /// From now on; `None` where /proc does not tell.
    pub(crate) fn now() -> Option<Self> {
        has_our_pids().then_some(Self { last_pid: last_pid()?, forks: forks()? })
    }

    /// The same moment in another process; `None` if the text is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (last_pid, forks) = text.split_once(':')?;
        Some(Self { last_pid: last_pid.parse().ok()?, forks: forks.parse().ok()? })
    }

    /// What [`parse`](Self::parse) takes.
    pub(crate) fn to_text(self) -> String {
        format!("{}:{}", self.last_pid, self.forks)
    }

    /// Shows `visit` all processes that are newer, each at the moment that it is read; `None` if they cannot be told from
    /// all others any more.
    ///
    /// A process that starts another and ends before it is read is not missed: what it started has a later pid, and pids
    /// are read until there is no later one.
    pub(crate) fn visit(&self, mut visit: impl FnMut(Entry)) -> Option<()> {
        let pid_max = number(&fs::read_to_string("/proc/sys/kernel/pid_max").ok()?)?;
        let mut from = self.last_pid;
        for _ in 0..ROUNDS {
            let to = last_pid()?;
            if to == from {
                return Some(());
            }
            let count = distance(from, to, u32::try_from(pid_max).ok()?);
            if count <= FEW {
                (0..count).filter_map(|step| Entry::of(after(from, step, pid_max))).for_each(&mut visit);
            } else {
                let newer = |pid: &u32| (1..=count).contains(&distance(from, *pid, pid_max as u32));
                pids().ok()?.filter(newer).filter_map(Entry::of).for_each(&mut visit);
            }
            from = to;
            // Once around the circle, and old and new cannot be told apart.
            if forks()?.saturating_sub(self.forks) + MARGIN >= pid_max {
                return None;
            }
        }
        Some(())
    }
}

/// How many steps on the circle of `0..pid_max` lead from one pid to another.
fn distance(from: u32, to: u32, pid_max: u32) -> u32 {
    if to >= from { to - from } else { pid_max.saturating_sub(from).saturating_add(to) }
}

/// The pid `step + 1` steps after another.
fn after(from: u32, step: u32, pid_max: u64) -> u32 {
    ((u64::from(from) + u64::from(step) + 1) % pid_max) as u32
}

/// The pid that was given last, to a process or a thread.
fn last_pid() -> Option<u32> {
    number(fs::read_to_string("/proc/loadavg").ok()?.rsplit(' ').next()?)?.try_into().ok()
}

/// How many processes and threads the kernel has made since the boot.
fn forks() -> Option<u64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    number(text.lines().find_map(|line| line.strip_prefix("processes "))?)
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The pids of the live processes whose process group is `pgid`, as /proc shows them at this moment.
pub(crate) fn group_members(pgid: u32) -> impl Iterator<Item = u32> {
    let entries = entries().into_iter().flatten();
    entries.filter(move |entry| entry.is_live() && entry.group == pgid).map(|entry| entry.pid)
}

/// The children of this process, zombies too; `None` where the kernel does not list them.
pub(crate) fn own_children() -> Option<Vec<u32>> {
    if !has_our_pids() {
        return None;
    }
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
    value_in(buffer, name).map(<[u8]>::to_vec)
}

/// The value of a variable in an environment as the kernel shows it.
pub(crate) fn value_in<'a>(environment: &'a [u8], name: &str) -> Option<&'a [u8]> {
    environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
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

/// What a process's stat file says; `None` if it is none.
pub(crate) fn parse(pid: u32, stat: &[u8]) -> Option<Entry> {
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
    fn pids_are_on_a_circle() {
        assert_eq!(distance(100, 103, 32768), 3);
        assert_eq!(distance(32766, 301, 32768), 303);
        assert_eq!((after(100, 0, 32768), after(32766, 1, 32768)), (101, 0));
    }

    #[test]
    fn a_moment_is_read_back_from_its_text() {
        let epoch = Epoch { last_pid: 7, forks: 98_765 };
        let read = Epoch::parse(&epoch.to_text()).unwrap();
        assert_eq!((read.last_pid, read.forks), (7, 98_765));
        assert!(Epoch::parse("").is_none() && Epoch::parse("7:").is_none() && Epoch::parse("a:1").is_none());
    }

    #[test]
    fn only_what_is_newer_is_found_however_much_was_forked_meanwhile() {
        let sleep = || std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let mut older = sleep();
        let epoch = Epoch::now().unwrap();
        let mut newer = sleep();
        for forked in [0, FEW + 100] {
            for _ in 0..forked {
                std::thread::spawn(|| {}).join().unwrap();
            }
            let mut pids = Vec::new();
            epoch.visit(|entry| pids.push(entry.pid)).unwrap();
            assert!(pids.contains(&newer.id()) && !pids.contains(&older.id()), "after {forked} more");
        }
        for child in [&mut older, &mut newer] {
            child.kill().unwrap();
            child.wait().unwrap();
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
