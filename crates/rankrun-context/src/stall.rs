//! Groups that make no progress: when one counts as stalled ([`Watch`], pure), and what its workers did then ([`Stall`]).
//! Not here: looking at files (`signs`) or processes (`rankrun-process`).

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use rankrun_process::ProcessState;
use rankrun_types::escape_line;

use crate::policy::{DumpStep, StallPolicy};

/// How often within the timeout to look for signs of life, and the bounds of the time between two looks.
const LOOKS: u32 = 8;
const SOONEST: Duration = Duration::from_millis(10);
const LATEST: Duration = Duration::from_secs(1);

/// How many processes the table shows.
const SHOWN: usize = 64;

/// How long a group has given no sign of life.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    policy: StallPolicy,
    interval: Duration,
    /// Nothing counts until there was a sign: what the workers write cannot be seen.
    awaits_first: bool,
    quiet: Duration,
    looked_at: Option<Instant>,
}

impl Watch {
    pub(crate) fn new(policy: StallPolicy, sees_output: bool) -> Self {
        let interval = (policy.timeout / LOOKS).clamp(SOONEST, LATEST);
        Self { policy, interval, awaits_first: !sees_output, quiet: Duration::ZERO, looked_at: None }
    }

    pub(crate) fn dump(&self) -> DumpStep {
        self.policy.dump
    }

    /// Counts from now on, from nothing.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.looked_at = Some(now);
        self.quiet = Duration::ZERO;
    }

    /// Leaves out the time since the last look.
    pub(crate) fn skip(&mut self, now: Instant) {
        self.looked_at = self.looked_at.map(|_| now);
    }

    /// When to look again.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        let left = self.policy.timeout.saturating_sub(self.quiet).max(SOONEST);
        self.looked_at.map(|looked_at| looked_at + self.interval.min(left))
    }

    /// Takes what a look has shown; the time without a sign of life if it is too long.
    ///
    /// Of the time since the last look only as much counts as it should have been: in a longer one this program did not
    /// run, and so maybe nothing on this host did.
    pub(crate) fn looked(&mut self, now: Instant, progress: bool) -> Option<Duration> {
        let since = now.saturating_duration_since(self.looked_at?);
        self.looked_at = Some(now);
        if progress {
            (self.quiet, self.awaits_first) = (Duration::ZERO, false);
        } else if !self.awaits_first {
            self.quiet += since.min(self.interval * 2);
        }
        (self.quiet >= self.policy.timeout).then_some(self.quiet)
    }
}

/// A group had stalled: no worker gave a sign of life for too long.
///
/// Its `Display` is a table of what the workers did at that moment, before any signal: several lines, plain text, without
/// a newline at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stall {
    /// How long there was no sign of life.
    pub quiet: Duration,
    /// The processes of the workers' process groups, by local rank; of each group the worker itself first.
    pub processes: Vec<StalledProcess>,
}

/// What a process of a stalled group did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StalledProcess {
    /// The local rank of the worker to whose process group it belongs.
    pub local_rank: usize,
    /// Its process id.
    pub pid: u32,
    /// Its name, as the kernel has it: at most 15 bytes.
    pub name: String,
    /// `running`, `sleeping`, `uninterruptible`, `stopped`, or another word for what the kernel says.
    pub state: &'static str,
    /// The function of the kernel that it waits in, where that may be read.
    pub wchan: Option<String>,
    /// The CPU time that it has used in all.
    pub cpu_time: Duration,
}

impl Stall {
    /// Looks what the process groups of these workers, local rank and pid, do now. Reads the table of processes.
    pub(crate) fn observe(quiet: Duration, workers: &[(usize, u32)]) -> Self {
        let ranks: HashMap<u32, usize> = workers.iter().map(|(local_rank, pid)| (*pid, *local_rank)).collect();
        let groups: Vec<u32> = workers.iter().map(|(_, pid)| *pid).collect();
        let processes = ProcessState::of_groups(&groups).into_iter().map(|(group, process)| {
            let ProcessState { pid, name, state, wchan, cpu_time, .. } = process;
            StalledProcess { local_rank: ranks[&group], pid, name, state: state.word(), wchan, cpu_time }
        });
        Self { quiet, processes: processes.collect() }
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wchan_width = self.processes.iter().filter_map(|one| one.wchan.as_ref()).map(String::len).max();
        let wchan_width = wchan_width.unwrap_or(0).max("waits in".len());
        write!(
            f,
            "  {:>10}  {:>8}  {:<15}  {:<15}  {:<wchan_width$}  {:>10}",
            "local rank", "pid", "name", "state", "waits in", "CPU time"
        )?;
        for one in self.processes.iter().take(SHOWN) {
            let (name, wchan) = (escape_line(&one.name), one.wchan.as_deref().unwrap_or("-"));
            let cpu = format!("{:.2} s", one.cpu_time.as_secs_f64());
            let StalledProcess { local_rank, pid, state, .. } = one;
            write!(f, "\n  {local_rank:>10}  {pid:>8}  {name:<15}  {state:<15}  {wchan:<wchan_width$}  {cpu:>10}")?;
        }
        match self.processes.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n  ... and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);
    const SECOND: Duration = Duration::from_secs(1);

    fn watch(sees_output: bool) -> (Watch, Instant) {
        let mut watch = Watch::new(StallPolicy::new(TIMEOUT), sees_output);
        let now = Instant::now();
        assert_eq!(watch.next_look(), None, "nothing counts before the workers run");
        watch.begin(now);
        (watch, now)
    }

    /// Looks when it should, until the group has stalled or `limit` is over.
    fn until_stalled(watch: &mut Watch, mut now: Instant, limit: Duration) -> Option<Duration> {
        let begin = now;
        while now - begin < limit {
            now = watch.next_look().unwrap();
            if watch.looked(now, false).is_some() {
                return Some(now - begin);
            }
        }
        None
    }

    #[test]
    fn a_group_has_stalled_when_the_timeout_has_passed_without_a_sign() {
        let (mut watch, now) = watch(true);
        assert_eq!(watch.next_look(), Some(now + SECOND));
        assert_eq!(until_stalled(&mut watch, now, TIMEOUT * 2), Some(TIMEOUT));
    }

    #[test]
    fn each_sign_begins_it_anew() {
        let (mut watch, mut now) = watch(true);
        for _ in 0..10 {
            assert_eq!(until_stalled(&mut watch, now, TIMEOUT - SECOND), None);
            now = watch.next_look().unwrap();
            assert_eq!(watch.looked(now, true), None);
        }
        assert_eq!(until_stalled(&mut watch, now, TIMEOUT * 2), Some(TIMEOUT));
    }

    #[test]
    fn where_output_cannot_be_seen_the_first_heartbeat_begins_it() {
        let (mut watch, now) = watch(false);
        assert_eq!(until_stalled(&mut watch, now, TIMEOUT * 10), None);
        let now = watch.next_look().unwrap();
        watch.looked(now, true);
        assert_eq!(until_stalled(&mut watch, now, TIMEOUT * 10), Some(TIMEOUT));
    }

    #[test]
    fn time_in_which_nobody_could_look_does_not_count() {
        let (mut watch, now) = watch(true);
        assert_eq!(watch.looked(now + TIMEOUT * 10, false), None);
        assert_eq!(watch.quiet, SECOND * 2);
        let now = now + TIMEOUT * 20;
        watch.skip(now);
        assert_eq!(watch.looked(now + SECOND, false), None);
        assert_eq!(watch.quiet, SECOND * 3);
    }

    #[test]
    fn the_table_shows_what_each_process_did() {
        let process = |local_rank, pid, name: &str, state, wchan: Option<&str>, millis| StalledProcess {
            local_rank,
            pid,
            name: name.into(),
            state,
            wchan: wchan.map(Into::into),
            cpu_time: Duration::from_millis(millis),
        };
        let processes = vec![
            process(0, 4242, "sh", "sleeping", Some("do_wait"), 0),
            process(0, 4243, "pyth\non3", "running", None, 65_430),
            process(12, 5, "python3", "uninterruptible", Some("nfs_wait_bit_killable"), 1000),
        ];
        let stall = Stall { quiet: TIMEOUT, processes };
        let expected = "  local rank       pid  name             state            waits in                 CPU time
           0      4242  sh               sleeping         do_wait                    0.00 s
           0      4243  pyth\\non3        running          -                         65.43 s
          12         5  python3          uninterruptible  nfs_wait_bit_killable      1.00 s";
        assert_eq!(stall.to_string(), expected);
        let many = Stall { quiet: TIMEOUT, processes: vec![process(0, 1, "a", "running", None, 0); SHOWN + 7] };
        assert!(many.to_string().ends_with("\n  ... and 7 more"));
    }
}
