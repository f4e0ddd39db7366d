//! What the processes of a worker do at this moment: [`ProcessState`]. Not here: who they are (`table`, `tree`).

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use crate::table;

/// What a process does, as /proc shows it. See proc_pid_stat(5).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessState {
    /// Its process id.
    pub pid: u32,
    /// Its name: at most 15 bytes.
    pub name: String,
    /// Whether it runs, sleeps or is stopped.
    pub state: RunningState,
    /// The function of the kernel that it waits in; `None` if it waits in none, or it may not be read.
    pub wchan: Option<String>,
    /// The CPU time that it has used in all, without its children.
    pub cpu_time: Duration,
    /// The memory that it has resident, in bytes; pages that several processes share count in each.
    pub memory_bytes: u64,
    /// How long ago it was started, by the clock that stands still while the host sleeps; zero where that is not known.
    pub age: Duration,
}

/// The kernel's letter for what a process does: an open set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningState(char);

impl RunningState {
    /// The kernel's letter: `R`, `S`, `D`, `T`, `t`, `Z`, or a newer one.
    #[must_use]
    pub fn letter(self) -> char {
        self.0
    }

    /// The letter as a word: `running`, `sleeping`, `uninterruptible`, `stopped`, `traced`, `ended`, or `unknown`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self.0 {
            'R' => "running",
            'S' | 'I' => "sleeping",
            'D' => "uninterruptible",
            'T' => "stopped",
            't' => "traced",
            'Z' | 'X' | 'x' => "ended",
            _ => "unknown",
        }
    }
}

impl ProcessState {
    /// What the process does now; `None` if there is none. A number is no identity: the caller knows that it is the one.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        if !table::has_our_pids() {
            return None;
        }
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let (entry, ticks) = (table::parse(pid, &stat)?, cpu_ticks(&stat)?);
        let age = uptime().map_or(Duration::ZERO, |uptime| uptime.saturating_sub(of_ticks(entry.start_time)));
        // `0` where it runs, or where this may not be known.
        let wchan = fs::read_to_string(format!("/proc/{pid}/wchan")).ok();
        let wchan = wchan.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty() && text != "0");
        Some(Self {
            pid,
            name: entry.name,
            state: RunningState(entry.state),
            wchan,
            cpu_time: of_ticks(ticks),
            memory_bytes: resident_pages(&stat)?.saturating_mul(page_size()),
            age,
        })
    }

    /// What the live members of these process groups do now, each with its group: in the order of `groups`, of each its
    /// leader first. Reads the table of all processes once.
    #[must_use]
    pub fn of_groups(groups: &[u32]) -> Vec<(u32, Self)> {
        let place: HashMap<u32, usize> = groups.iter().enumerate().map(|(place, group)| (*group, place)).collect();
        let entries = table::entries().into_iter().flatten();
        let mut members: Vec<(usize, u32, u32)> = entries
            .filter(table::Entry::is_live)
            .filter_map(|entry| Some((*place.get(&entry.group)?, entry.group, entry.pid)))
            .collect();
        members.sort_unstable_by_key(|(place, group, pid)| (*place, pid != group, *pid));
        members.into_iter().filter_map(|(_, group, pid)| Some((group, Self::of(pid)?))).collect()
    }
}

/// The sum of utime and stime, the 14th and 15th field.
fn cpu_ticks(stat: &[u8]) -> Option<u64> {
    Some(field(stat, 14)? + field(stat, 15)?)
}

/// rss, the 24th field.
fn resident_pages(stat: &[u8]) -> Option<u64> {
    field(stat, 24)
}

/// A number of a stat file, counted as in proc_pid_stat(5): from 1, and from 3 after the name.
fn field(stat: &[u8], number: usize) -> Option<u64> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let fields = std::str::from_utf8(&stat[after_name..]).ok()?;
    fields.split_ascii_whitespace().nth(number - 3)?.parse().ok()
}

fn of_ticks(ticks: u64) -> Duration {
    Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / ticks_per_second()))
}

/// How long ago the host was started; see proc_uptime(5).
fn uptime() -> Option<Duration> {
    let text = fs::read_to_string("/proc/uptime").ok()?;
    Duration::try_from_secs_f64(text.split_ascii_whitespace().next()?.parse().ok()?).ok()
}

fn page_size() -> u64 {
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    size.and_then(|size| u64::try_from(size).ok()).unwrap_or(4096)
}

fn ticks_per_second() -> u64 {
    let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    ticks.and_then(|ticks| u64::try_from(ticks).ok()).filter(|ticks| *ticks > 0).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_uses_time() {
        let mut sum = 0_u64;
        let used = || ProcessState::of(std::process::id()).unwrap();
        while used().cpu_time < Duration::from_millis(30) {
            sum = std::hint::black_box(sum + 1);
        }
        let state = used();
        assert!(["running", "sleeping"].contains(&state.state.word()), "{state:?}");
        assert_eq!(state.pid, std::process::id());
        assert!(state.memory_bytes > 100 << 10, "{state:?}");
        assert!(state.age < Duration::from_secs(3600), "{state:?}");
    }

    #[test]
    fn members_come_in_the_order_of_their_groups_and_the_leader_first() {
        let mut spawner = crate::Spawner::new().unwrap();
        let mut leaders = Vec::new();
        for _ in 0..2 {
            let text = "sleep 600 & wait";
            leaders.push(spawner.spawn(crate::Command::new("sh").args(["-c", text])).unwrap());
        }
        let groups: Vec<u32> = leaders.iter().rev().map(crate::Child::pid).collect();
        let mut found = Vec::new();
        // A shell needs a moment to start what it waits for.
        while found.len() < 4 {
            found = ProcessState::of_groups(&groups);
        }
        let pids: Vec<u32> = found.iter().map(|(_, state)| state.pid).collect();
        let of: Vec<u32> = found.iter().map(|(group, _)| *group).collect();
        assert_eq!(of, [groups[0], groups[0], groups[1], groups[1]]);
        assert_eq!((pids[0], pids[2]), (groups[0], groups[1]));
        for leader in &mut leaders {
            leader.signal_group(rankrun_types::Signal::KILL).unwrap();
            leader.wait().unwrap();
        }
    }

    #[test]
    fn fields_are_counted_after_the_last_bracket_of_the_name() {
        let stat = b"7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 3 4 20 0 1 0 777 0 0";
        assert_eq!(cpu_ticks(stat), Some(300));
        assert_eq!(cpu_ticks(b"7 (a) S 1"), None);
    }

    #[test]
    fn no_process_has_no_state() {
        assert_eq!(ProcessState::of(u32::MAX), None);
        assert_eq!(ProcessState::of_groups(&[u32::MAX]), []);
    }
}
