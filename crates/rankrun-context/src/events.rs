//! What happens to a group, told as it happens: [`GroupEvent`]. Not here: writing it down (`rankrun-launcher`).

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime};

use rankrun_types::{ExitKind, Signal};

use crate::outcome::{Cause, RunState, StopReason};
use crate::status::Counts;

/// Something that happened to a group, and when it was seen or done.
///
/// Comes through the channel given to [`GroupSpec::events`](crate::GroupSpec::events), in the order in which it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupEvent {
    /// When.
    pub time: SystemTime,
    /// What.
    pub kind: GroupEventKind,
}

/// What happened to a group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupEventKind {
    /// A worker runs its program.
    Started {
        /// The worker.
        local_rank: usize,
        /// Its process id.
        pid: u32,
    },
    /// A worker has ended.
    Exited {
        /// The worker.
        local_rank: usize,
        /// Its process id.
        pid: u32,
        /// How it ended.
        exit: ExitKind,
        /// What that means as far as is known by now. A worker whose error file says that it had failed before it was told to
        /// end is [`Cause::Collateral`] here and [`Cause::Failed`] in the result.
        cause: Cause,
    },
    /// No worker gave a sign of life for this long.
    Stalled {
        /// How long.
        quiet: Duration,
    },
    /// The group is to end. After a failure, signals follow when the settle time is over.
    StopBegan {
        /// Why.
        reason: StopReason,
    },
    /// A signal was sent. SIGCONT, which follows each signal so that a stopped process can act on it, is not told of.
    SignalSent {
        /// To whom.
        to: SignalTarget,
        /// Which.
        signal: Signal,
        /// Why the group is being stopped; `None` for a signal that is passed on while the group goes on.
        reason: Option<StopReason>,
    },
    /// The result is there; the last event.
    Ended {
        /// How the group ended.
        state: RunState,
    },
}

/// Who got a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignalTarget {
    /// A worker's process.
    Worker {
        /// Its local rank.
        local_rank: usize,
        /// Its process id.
        pid: u32,
    },
    /// A worker's process group, or what is left of it.
    Group {
        /// The worker's local rank.
        local_rank: usize,
        /// The process group.
        pid: u32,
    },
    /// A process that a worker had left behind.
    Stray {
        /// Its process id.
        pid: u32,
    },
}

/// Where events go, if anywhere, and who counts them.
#[derive(Debug, Default)]
pub(crate) struct EventSink {
    sender: Option<Sender<GroupEvent>>,
    counts: Arc<Counts>,
}

impl EventSink {
    pub(crate) fn new(sender: Option<Sender<GroupEvent>>, counts: Arc<Counts>) -> Self {
        Self { sender, counts }
    }

    /// Tells of something that happens now. Never blocks; a receiver that is gone wants no more.
    pub(crate) fn tell(&self, kind: GroupEventKind) {
        self.counts.count(&kind);
        if let Some(sender) = &self.sender {
            let _ = sender.send(GroupEvent { time: SystemTime::now(), kind });
        }
    }
}
