//! What the threads of a process did, from proc(5): [`ThreadUse`].

use std::fs;
use std::time::Duration;

use crate::error::{BenchError, os};

/// CPU time and context switches of all threads of a process since they began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadUse {
    /// How many threads there are.
    pub threads: u64,
    /// Voluntary and involuntary context switches.
    pub switches: u64,
    /// Time on a CPU.
    pub cpu: Duration,
}

impl ThreadUse {
    /// Reads what a process's threads have used so far.
    ///
    /// # Errors
    /// [`BenchError::Os`] if the process or one of its threads is gone.
    pub fn of(pid: u32) -> Result<Self, BenchError> {
        let mut total = Self::default();
        let tasks = format!("/proc/{pid}/task");
        for task in fs::read_dir(&tasks).map_err(os(&tasks))? {
            let task = task.map_err(os(&tasks))?.path();
            let read = |name| {
                let path = task.join(name);
                fs::read_to_string(&path).map_err(os(path.display().to_string()))
            };
            total.threads += 1;
            total.switches += switches(&read("status")?);
            total.cpu += on_cpu(&read("schedstat")?);
        }
        Ok(total)
    }

    /// What was used since an earlier reading; threads that have ended since count as nothing.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            threads: self.threads,
            switches: self.switches.saturating_sub(earlier.switches),
            cpu: self.cpu.saturating_sub(earlier.cpu),
        }
    }
}

/// Both kinds of context switches in the text of `status`.
fn switches(status: &str) -> u64 {
    let number = |line: &str| line.rsplit_once(':')?.1.trim().parse::<u64>().ok();
    status.lines().filter(|line| line.contains("voluntary_ctxt_switches:")).filter_map(number).sum()
}

/// The first number of `schedstat`: nanoseconds on a CPU.
fn on_cpu(schedstat: &str) -> Duration {
    let nanos = schedstat.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_switches_count() {
        assert_eq!(switches("Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t7\n"), 12);
        assert_eq!(on_cpu("1500 20 3\n"), Duration::from_nanos(1500));
    }

    #[test]
    fn a_thread_that_computes_is_seen_and_a_process_that_is_gone_is_an_error() {
        let own = std::process::id();
        let before = ThreadUse::of(own).unwrap();
        let mut used = ThreadUse::default();
        while used.cpu < Duration::from_millis(5) {
            used = ThreadUse::of(own).unwrap().since(before);
        }
        assert!(used.threads >= 1);
        // A pid is at most 2^22.
        assert!(ThreadUse::of(1 << 30).is_err());
    }
}
