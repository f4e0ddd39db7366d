//! How a group is stopped, and when it counts as stalled: [`StopPolicy`], [`StallPolicy`]. Not here: stopping it (`machine`).

use std::time::Duration;

use rankrun_types::Signal;

/// Who gets the death signal when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StopOrder {
    /// Each worker first; the rest of its process group when it is gone. So a worker whose handler needs a helper
    /// process to end well has it, and a shell does not shield what it runs.
    ///
    /// A death signal SIGINT or SIGQUIT goes to the whole group at once even so, as it does from a keyboard.
    #[default]
    LeaderThenGroup,
    /// Each worker's whole process group at once.
    Group,
}

/// What becomes of processes that workers leave behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Descendants {
    /// They are ended with the group, however it ends.
    #[default]
    End,
    /// If all workers exit 0 they stay; if the group fails or is stopped they are ended.
    Keep,
}

/// When a group counts as stalled, and what is done first then.
///
/// A sign of life is a change of a captured output file, or of a heartbeat file, of any worker, or a worker's end. Where no
/// output is captured, the first heartbeat begins the watch. Time in which the group is suspended does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StallPolicy {
    /// How long no worker may give a sign of life.
    pub timeout: Duration,
    /// The step before the death signal; the policy's own [`StopPolicy::dump`] is not used then.
    pub dump: DumpStep,
}

impl StallPolicy {
    /// With SIGABRT, and 5 s for it: by it a Python worker with `faulthandler` writes its stacks, and others leave a core
    /// dump. It is what systemd sends to a service that has stalled.
    #[must_use]
    pub fn new(timeout: Duration) -> Self {
        Self { timeout, dump: DumpStep { signal: Signal::ABRT, timeout: Duration::from_secs(5) } }
    }
}

/// A signal before the death signal, for workers that hang to write where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DumpStep {
    /// The signal, SIGABRT or SIGUSR1 say.
    pub signal: Signal,
    /// How long until the death signal follows. Less if all workers end of it.
    pub timeout: Duration,
}

/// How a group is stopped.
///
/// The times count once for the whole group, and the same for each reason to stop it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopPolicy {
    /// How long after the first failure nothing is sent, so that workers that are failing too can say why; 50 ms unless
    /// chosen otherwise, 0 for none.
    ///
    /// A worker that ends in it is a failure of its own. It ends when all workers have ended, or the stop is asked for.
    pub settle_time: Duration,
    /// Who gets the death signal when.
    pub order: StopOrder,
    /// A step before the death signal; none unless chosen.
    pub dump: Option<DumpStep>,
    /// The death signal; SIGTERM unless chosen otherwise.
    pub death_signal: Signal,
    /// How long the whole group has, from the death signal to SIGKILL; 30 s unless chosen otherwise.
    pub grace: Duration,
    /// How long after SIGKILL a worker may take to vanish before it is given up; 5 s unless chosen otherwise.
    ///
    /// Only a worker in uninterruptible sleep takes that long.
    pub kill_wait: Duration,
    /// How long the console may take to accept the last log lines; 5 s unless chosen otherwise.
    ///
    /// At most, for a group that failed or was stopped; for one that ended well, from the last line that it accepted.
    pub drain: Duration,
    /// What becomes of processes that workers leave behind.
    pub descendants: Descendants,
}

impl Default for StopPolicy {
    fn default() -> Self {
        Self {
            settle_time: Duration::from_millis(50),
            order: StopOrder::default(),
            dump: None,
            death_signal: Signal::TERM,
            grace: Duration::from_secs(30),
            kill_wait: Duration::from_secs(5),
            drain: Duration::from_secs(5),
            descendants: Descendants::default(),
        }
    }
}
