//! What the state machine is told, what it answers, and what it knows of a worker: [`Event`], [`Action`], [`Life`]. Not
//! here: the machine (`machine`).

use std::time::{Duration, Instant};

use rankrun_types::{ExitKind, Signal};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The worker of this rank runs.
    Started { local_rank: usize },
    /// The worker of this rank could not be started; no further one will be.
    StartFailed { local_rank: usize },
    /// All workers have been started.
    AllStarted,
    /// The worker of this rank, whose end follows, failed whatever its exit: what its function returns is not there.
    NoValue { local_rank: usize },
    /// A worker has ended; `leftover`: other members of its process group live.
    Exited { local_rank: usize, exit: ExitKind, leftover: bool },
    /// The process group of a worker that has ended is empty now.
    LeftoverGone { local_rank: usize },
    /// The caller wants the group to end.
    StopRequested { signal: Signal, grace: Duration },
    /// The caller wants the workers to get a signal, and the job to go on.
    ForwardRequested { signal: Signal },
    /// The tree of the group was searched: whether anything but workers and their process groups lives.
    Strays { found: bool },
    /// The launcher is about to be stopped as by Ctrl-Z: the workers are to stop too, and time with them.
    Suspended,
    /// The launcher goes on after [`Event::Suspended`].
    Resumed,
    /// Files of the workers were looked at: whether any has changed since the last look.
    Looked { progress: bool },
    /// The console has taken something since the last look.
    DrainProgress,
    /// The logs have been shown to their end, or as far as the console took them.
    Drained { complete: bool },
    /// The time that [`Machine::wake_at`] named has come; harmless at any time.
    Tick,
}

/// What the driver is to do, in the order given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send a signal to the worker's process.
    Signal { local_rank: usize, signal: Signal },
    /// Send a signal to the worker's process group.
    SignalGroup { local_rank: usize, signal: Signal },
    /// Look which leftover process groups are empty and say so.
    CheckLeftovers,
    /// Search the tree of the group and say whether anything but workers and their process groups lives.
    FindStrays,
    /// Send a signal to what the last search found; to each process only once, unless it is SIGKILL.
    SignalStrays { signal: Signal },
    /// Look whether output or a heartbeat of any worker has come since the last look, and say so.
    LookForProgress,
    /// Take down what each worker does: none has given a sign of life for this long.
    NoteStall { quiet: Duration },
    /// Look whether the console has taken something since the last look, and if so, say so.
    CheckDrain,
    /// Let the logs be shown to their end, until this deadline; a later one replaces an earlier.
    Drain { deadline: Instant },
    /// The result is final: make it known. The last action ever.
    Publish,
}

/// The life of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// It has not been started, or could not be.
    NotStarted,
    /// Its process runs.
    Running,
    /// Its process has ended; members of its process group live.
    Leftover(ExitKind),
    /// It is gone, and its process group with it.
    Ended(ExitKind),
    /// It, or its process group, is still there after SIGKILL and was given up.
    Abandoned(Option<ExitKind>),
}

impl Life {
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::NotStarted | Self::Ended(_) | Self::Abandoned(_))
    }
}
