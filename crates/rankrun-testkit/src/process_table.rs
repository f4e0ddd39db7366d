//! The process table, read from proc(5): who lives, whose child it is, and what is in its environment.
//!
//! Not here: what a process uses ([`crate::usage`]).
//!
//! A zombie has no environment any more, so searches by environment find the living only; [`children_of`] finds zombies
//! as well. A process that ends during a search is left out.

use std::fmt;
use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal as NixSignal, kill};
use nix::unistd::Pid;
use rankrun_types::env::RANKRUN_GROUP;

use crate::{eventually, try_eventually};

/// How long what was left behind has to go before [`assert_no_process_left`] fails.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// How long an exec(2) under way may take before the process counts as one without environment.
const EXEC_WITHIN: Duration = Duration::from_secs(1);

/// One process as `/proc/PID/stat` and `/proc/PID/cmdline` show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its process id.
    pub pid: i32,
    /// Its parent's process id.
    pub ppid: i32,
    /// Its process group.
    pub pgid: i32,
    /// Its session.
    pub sid: i32,
    /// Its state as one letter: `R` runs, `S` sleeps, `D` sleeps and can't be woken, `T` stopped, `Z` zombie.
    pub state: char,
    /// The name of its program, at most 15 bytes.
    pub comm: String,
    /// Its arguments, the program first; empty for a zombie.
    pub cmdline: Vec<String>,
    /// When it started, in clock ticks since boot; with the pid it identifies the process.
    pub start_time: u64,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, ppid, pgid, sid, state, comm, cmdline, .. } = self;
        write!(f, "pid {pid} ppid {ppid} pgid {pgid} sid {sid} state {state} ({comm}) {}", cmdline.join(" "))
    }
}

/// The process with this pid, zombies included, or `None` if there is none.
#[must_use]
pub fn process(pid: i32) -> Option<Process> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let mut process = parse_stat(&stat)?;
    // It may have gone since: then it had no arguments any more.
    process.cmdline = fs::read(format!("/proc/{pid}/cmdline")).map(|bytes| strings(&bytes)).unwrap_or_default();
    Some(process)
}

/// The state letter of a process as in [`Process::state`], or `None` if it is gone.
#[must_use]
pub fn process_state(pid: i32) -> Option<char> {
    process(pid).map(|process| process.state)
}

/// The children of a process, zombies included, in ascending order of pid.
#[must_use]
pub fn children_of(pid: i32) -> Vec<Process> {
    pids().into_iter().filter_map(process).filter(|process| process.ppid == pid).collect()
}

/// The living processes that were started with `key=value` in their environment, in ascending order of pid.
///
/// The environment is the one at exec(2): variables set later by the program itself are not seen.
#[must_use]
pub fn processes_with_env(key: &str, value: &str) -> Vec<Process> {
    processes_where(key, |found| found == value.as_bytes())
}

/// The living processes that a group started: `cookie` is one of the `:`-separated items of their `RANKRUN_GROUP`.
#[must_use]
pub fn processes_with_cookie(cookie: &str) -> Vec<Process> {
    processes_where(RANKRUN_GROUP, |found| found.split(|byte| *byte == b':').any(|item| item == cookie.as_bytes()))
}

/// The living processes with `text` in one of their arguments, in ascending order of pid.
///
/// For what has no environment to be found by: start it with an argument that no other process has, such as the path of
/// a temporary directory.
#[must_use]
pub fn processes_with_argument(text: &str) -> Vec<Process> {
    let has_it = |process: &Process| process.state != 'Z' && process.cmdline.iter().any(|found| found.contains(text));
    pids().into_iter().filter_map(process).filter(has_it).collect()
}

/// The value of a variable in the environment that a process was started with; `None` if there is none or it is gone.
#[must_use]
pub fn process_env(pid: i32, key: &str) -> Option<String> {
    let environ = environ(pid)?;
    value_in(&environ, key).map(|value| String::from_utf8_lossy(value).into_owned())
}

/// Waits up to 5 s until no living process has `key=value` in its environment.
///
/// # Panics
/// When some are left; the message lists them. They are not killed.
#[track_caller]
pub fn assert_no_process_left(key: &str, value: &str) {
    assert_none_left(&format!("{key}={value}"), || processes_with_env(key, value));
}

/// Waits up to 5 s until no living process has the group's cookie in its environment.
///
/// # Panics
/// When some are left; the message lists them. They are not killed.
#[track_caller]
pub fn assert_no_process_with_cookie(cookie: &str) {
    assert_none_left(&format!("cookie {cookie}"), || processes_with_cookie(cookie));
}

#[track_caller]
fn assert_none_left(what: &str, find: impl Fn() -> Vec<Process>) {
    // A process can fork and end between two readings of one search, so one empty search proves too little.
    let gone = try_eventually(GONE_WITHIN, || find().is_empty() && find().is_empty());
    if gone.is_none() {
        let left = find();
        assert!(left.is_empty(), "{} left behind with {what}:\n{}", left.len(), list(&left));
    }
}

/// Kills the processes that were started with `key=value` in their environment, until none is left; returns the first found.
///
/// For cleaning up after a test that failed: `value` must be that test's own, as [`crate::unique_id`] gives it.
///
/// # Panics
/// When some live on for 5 s after SIGKILL.
#[track_caller]
pub fn kill_processes_with_env(key: &str, value: &str) -> Vec<Process> {
    let first = processes_with_env(key, value);
    eventually(&format!("SIGKILL ends what has {key}={value}"), GONE_WITHIN, || {
        let living = processes_with_env(key, value);
        for found in &living {
            if process(found.pid).is_some_and(|now| now.start_time == found.start_time) {
                // ESRCH: it ended by itself, which is as good.
                let _ = kill(Pid::from_raw(found.pid), NixSignal::SIGKILL);
            }
        }
        living.is_empty()
    });
    first
}

/// One process a line.
pub(crate) fn list(processes: &[Process]) -> String {
    processes.iter().map(|process| format!("  {process}\n")).collect()
}

fn processes_where(key: &str, wanted: impl Fn(&[u8]) -> bool) -> Vec<Process> {
    let has_it = |pid: &i32| environ(*pid).is_some_and(|environ| value_in(&environ, key).is_some_and(&wanted));
    pids().into_iter().filter(has_it).filter_map(process).filter(|process| process.state != 'Z').collect()
}

/// The bytes of `/proc/PID/environ`; `None` if the process is gone, ends, or is not ours to read (so not a test's).
///
/// In the middle of exec(2) a process has its new memory but no environment in it yet, and who spawned it may go on already.
/// It must not be missed, so that moment is waited out.
fn environ(pid: i32) -> Option<Vec<u8>> {
    let read = || fs::read(format!("/proc/{pid}/environ")).ok();
    try_eventually(EXEC_WITHIN, || match read() {
        Some(environ) if environ.is_empty() => {
            // Where exec is over, it may have got over since the environment was read.
            if is_within_exec(pid) { None } else { Some(read()) }
        }
        read => Some(read),
    })
    .flatten()
}

fn is_within_exec(pid: i32) -> bool {
    /// Flags of a kernel thread and of a process that ends, from the kernel's sched.h: they have no environment either.
    const PF_KTHREAD_OR_EXITING: u64 = 0x0020_0000 | 0x4;
    let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else { return false };
    let Some((_, fields)) = split_stat(&stat) else { return false };
    // Fields 3, 9 and 26 of proc_pid_stat(5). The start of the code is set once the environment is in place.
    let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
    let lives = fields.first().is_some_and(|state| !matches!(*state, "Z" | "X"));
    lives && number(6).is_some_and(|flags| flags & PF_KTHREAD_OR_EXITING == 0) && number(23) == Some(0)
}

/// The value of a variable in the bytes of `/proc/PID/environ`; the first counts, as for getenv(3).
fn value_in<'a>(environ: &'a [u8], key: &str) -> Option<&'a [u8]> {
    environ.split(|byte| *byte == 0).find_map(|item| item.strip_prefix(key.as_bytes())?.strip_prefix(b"="))
}

fn pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("the tests need /proc");
    let mut pids: Vec<i32> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

fn parse_stat(stat: &[u8]) -> Option<Process> {
    let ((pid, comm), fields) = split_stat(stat)?;
    let number = |index: usize| fields.get(index)?.parse::<i32>().ok();
    Some(Process {
        pid,
        ppid: number(1)?,
        pgid: number(2)?,
        sid: number(3)?,
        state: fields.first()?.chars().next()?,
        comm,
        cmdline: Vec::new(),
        // Field 22 of proc_pid_stat(5); the first of the fields is number 3.
        start_time: fields.get(19)?.parse().ok()?,
    })
}

/// Splits `/proc/PID/stat` into pid and name, and the fields from the state on.
///
/// The name stands in parentheses and may hold spaces, newlines and parentheses itself, so the last `)` ends it.
fn split_stat(stat: &[u8]) -> Option<((i32, String), Vec<&str>)> {
    let open = stat.iter().position(|byte| *byte == b'(')?;
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let pid = std::str::from_utf8(&stat[..open]).ok()?.trim().parse().ok()?;
    let comm = String::from_utf8_lossy(stat.get(open + 1..close)?).into_owned();
    let rest = std::str::from_utf8(&stat[close + 1..]).ok()?;
    Some(((pid, comm), rest.split_ascii_whitespace().collect()))
}

fn strings(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes.split(|byte| *byte == 0).map(|item| String::from_utf8_lossy(item).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::unique_id;

    const KEY: &str = "RANKRUN_TESTKIT_UNIT";

    /// A `sleep` that ends with the test, and holds nothing of the test's open.
    struct Sleeper(Child);

    impl Sleeper {
        fn with(key: &str, value: &str) -> Self {
            let mut command = Command::new("sleep");
            command.arg("600").env(key, value).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            Self(command.spawn().unwrap())
        }

        fn pid(&self) -> i32 {
            self.0.id().cast_signed()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn a_name_with_spaces_and_parentheses_is_read_whole() {
        let stat = b"42 (a) S (b c\n) T 7 8 9 0 -1 4194304 98 0 0 0 0 0 0 0 20 0 1 0 151863 3133440 382\n";
        let process = parse_stat(stat).unwrap();
        assert_eq!((process.pid, process.ppid, process.pgid, process.sid), (42, 7, 8, 9));
        assert_eq!((process.comm.as_str(), process.state, process.start_time), ("a) S (b c\n", 'T', 151_863));
    }

    #[test]
    fn a_stat_that_is_cut_off_is_no_process() {
        for stat in ["", "42", "42 (", "42 (x)", "42 (x) S 1 2", ") 42 ("] {
            assert_eq!(parse_stat(stat.as_bytes()), None, "{stat:?}");
        }
    }

    #[test]
    fn a_variable_is_found_by_its_whole_name_and_value() {
        let environ = b"XA=1\0A=2\0A=3\0B=\0";
        assert_eq!(value_in(environ, "A"), Some(&b"2"[..]));
        assert_eq!(value_in(environ, "B"), Some(&b""[..]));
        assert_eq!(value_in(environ, "X"), None);
    }

    #[test]
    fn a_marked_process_is_found_until_it_is_reaped() {
        let value = unique_id("find");
        let mut child = Sleeper::with(KEY, &value);
        let found = processes_with_env(KEY, &value);
        assert_eq!(found.iter().map(|process| process.pid).collect::<Vec<_>>(), [child.pid()]);
        assert_eq!(found[0].cmdline, ["sleep", "600"]);
        assert_eq!((found[0].comm.as_str(), found[0].ppid), ("sleep", std::process::id().cast_signed()));

        child.0.kill().unwrap();
        assert_no_process_left(KEY, &value);
        eventually("it is a zombie", GONE_WITHIN, || process_state(child.pid()) == Some('Z'));
        assert!(children_of(std::process::id().cast_signed()).iter().any(|zombie| zombie.pid == child.pid()));
        child.0.wait().unwrap();
        assert_eq!(process_state(child.pid()), None);
    }

    #[test]
    fn a_process_is_found_at_once_although_its_exec_is_not_over() {
        for round in 0..200 {
            let value = unique_id("at-once");
            let child = Sleeper::with(KEY, &value);
            assert_eq!(processes_with_env(KEY, &value).len(), 1, "round {round}, pid {}", child.pid());
        }
    }

    #[test]
    fn a_process_with_no_environment_is_not_waited_for() {
        let mut child = Sleeper(Command::new("sleep").arg("600").env_clear().stdout(Stdio::null()).spawn().unwrap());
        eventually("exec is over", GONE_WITHIN, || !is_within_exec(child.pid()));
        assert_eq!(environ(child.pid()), Some(Vec::new()));
        child.0.kill().unwrap();
    }

    #[test]
    fn a_cookie_is_found_in_a_list_but_not_as_part_of_another() {
        let (outer, inner) = (unique_id("outer"), unique_id("inner"));
        let child = Sleeper::with(RANKRUN_GROUP, &format!("{outer}:{inner}"));
        // Not the whole entries: a process that has just been started may run in one and sleep in the other.
        let pids = |cookie: &str| processes_with_cookie(cookie).iter().map(|process| process.pid).collect::<Vec<_>>();
        assert_eq!(pids(&outer), [child.pid()]);
        assert_eq!(pids(&inner), [child.pid()]);
        assert_eq!(processes_with_cookie(&inner[..inner.len() - 1]), []);
        drop(child);
        assert_no_process_with_cookie(&inner);
    }

    #[test]
    fn a_variable_of_a_living_process_can_be_read_and_no_other() {
        let value = unique_id("value");
        let child = Sleeper::with(KEY, &value);
        assert_eq!(process_env(child.pid(), KEY), Some(value));
        assert_eq!(process_env(child.pid(), "RANKRUN_TESTKIT_NO_SUCH"), None);
        let pid = child.pid();
        drop(child);
        assert_eq!(process_env(pid, KEY), None);
    }

    #[test]
    fn a_process_without_environment_is_found_by_an_argument() {
        let argument = unique_id("argument");
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600; :", &argument]).env_clear().stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let pid = child.id().cast_signed();
        let found = eventually("it is found", GONE_WITHIN, || processes_with_argument(&argument).into_iter().next());
        assert_eq!(found.pid, pid);
        assert_eq!(processes_with_argument(&argument[1..]).len(), 1);
        assert_eq!(processes_with_argument(&format!("{argument}0")), []);
        let sleep = eventually("its child runs", GONE_WITHIN, || children_of(pid).into_iter().next());
        for pid in [pid, sleep.pid] {
            kill(Pid::from_raw(pid), NixSignal::SIGKILL).unwrap();
        }
        child.wait().unwrap();
        assert_eq!(processes_with_argument(&argument), []);
    }

    #[test]
    fn what_is_left_behind_is_listed_and_can_be_killed() {
        let value = unique_id("left");
        let mut child = Sleeper::with(KEY, &value);
        let panic = std::panic::catch_unwind(|| assert_no_process_left(KEY, &value)).unwrap_err();
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(message.starts_with(&format!("1 left behind with {KEY}={value}")), "{message}");
        assert!(message.contains(&format!("pid {} ", child.pid())) && message.contains("sleep 600"), "{message}");

        assert_eq!(kill_processes_with_env(KEY, &value).len(), 1);
        assert_eq!(child.0.wait().unwrap().code(), None);
    }
}
