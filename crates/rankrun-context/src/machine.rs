//! What a group does when something happens to it: [`Machine`], pure. Not here: pids, clocks, files, threads.
//!
//! The driver tells it what happened ([`Event`]) and when, and carries out what it answers ([`Action`]). Phases go
//! one way only: starting, running, stopping, draining, done; any of the middle ones may be skipped.

use std::time::{Duration, Instant};

use rankrun_types::{ExitKind, PerRank, Signal};

/// How a group is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopPolicy {
    /// The first signal that workers get; SIGTERM unless chosen otherwise.
    pub death_signal: Signal,
    /// How long the whole group has, from the death signal to SIGKILL; 30 s unless chosen otherwise.
    pub grace: Duration,
    /// How long after SIGKILL a worker may take to vanish before it is given up; 5 s unless chosen otherwise.
    ///
    /// Only a worker in uninterruptible sleep takes that long.
    pub kill_wait: Duration,
    /// How long, at most, the console may take to accept the last log lines; 5 s unless chosen otherwise.
    pub drain: Duration,
}

impl Default for StopPolicy {
    fn default() -> Self {
        Self {
            death_signal: Signal::TERM,
            grace: Duration::from_secs(30),
            kill_wait: Duration::from_secs(5),
            drain: Duration::from_secs(5),
        }
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The worker of this rank runs.
    Started { local_rank: usize },
    /// The worker of this rank could not be started; no further one will be.
    StartFailed { local_rank: usize },
    /// All workers have been started.
    AllStarted,
    /// A worker has ended; `leftover`: other members of its process group live.
    Exited { local_rank: usize, exit: ExitKind, leftover: bool },
    /// The process group of a worker that has ended is empty now.
    LeftoverGone { local_rank: usize },
    /// The caller wants the group to end.
    StopRequested { signal: Signal, grace: Duration },
    /// The caller wants the workers to get a signal, and the job to go on.
    ForwardRequested { signal: Signal },
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
    /// Let the logs be shown to their end, until this deadline.
    Drain { deadline: Instant },
    /// The result is final: make it known. The last action ever.
    Publish,
}

/// Why a group was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// A worker failed.
    Failure,
    /// A worker could not be started.
    StartFailed,
    /// The caller asked for it.
    Requested,
    /// All workers ended well, but left processes of their group behind.
    Leftovers,
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
    fn is_over(self) -> bool {
        matches!(self, Self::NotStarted | Self::Ended(_) | Self::Abandoned(_))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Running,
    Stopping(Stop),
    Draining { deadline: Instant },
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stop {
    signal: Signal,
    /// When SIGKILL is due, or, once it was sent, when whoever remains is given up.
    deadline: Instant,
    killed: bool,
    requested: bool,
    next_check: Instant,
    check_interval: Duration,
}

/// How soon, at first, leftover groups are looked at; doubled each time up to [`LAST_CHECK`].
const FIRST_CHECK: Duration = Duration::from_millis(1);
const LAST_CHECK: Duration = Duration::from_millis(50);

/// How much longer than the drain's deadline to wait for word that it was kept; beyond that the tail itself hangs.
const DRAIN_MARGIN: Duration = Duration::from_millis(200);

/// A group's state.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    lives: PerRank<Life>,
    phase: Phase,
    policy: StopPolicy,
    /// Whether there are logs to be drained.
    has_tee: bool,
    reason: Option<StopReason>,
    drained: bool,
}

impl Machine {
    pub(crate) fn new(local_world_size: usize, policy: StopPolicy, has_tee: bool) -> Self {
        Self {
            lives: PerRank::filled(local_world_size, Life::NotStarted),
            phase: Phase::Starting,
            policy,
            has_tee,
            reason: None,
            drained: true,
        }
    }

    pub(crate) fn lives(&self) -> &PerRank<Life> {
        &self.lives
    }

    /// Why the group was stopped, if it was.
    pub(crate) fn reason(&self) -> Option<StopReason> {
        self.reason
    }

    /// Whether the logs were shown to their end.
    pub(crate) fn drained(&self) -> bool {
        self.drained
    }

    /// Whether no further worker should be started.
    pub(crate) fn is_stopping(&self) -> bool {
        !matches!(self.phase, Phase::Starting | Phase::Running)
    }

    /// When a [`Event::Tick`] is wanted, if at all. A group that runs wants none.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        match self.phase {
            Phase::Starting | Phase::Running | Phase::Done => None,
            Phase::Stopping(stop) if self.has_leftovers() => Some(stop.deadline.min(stop.next_check)),
            Phase::Stopping(stop) => Some(stop.deadline),
            Phase::Draining { deadline } => Some(deadline),
        }
    }

    /// Takes what happened at `now` and says what to do about it.
    ///
    /// An event that does not fit the phase (a late exit of a worker that was given up, say) changes nothing.
    pub(crate) fn step(&mut self, now: Instant, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Started { local_rank } => self.started(local_rank, &mut actions),
            Event::StartFailed { .. } => {
                self.begin_stop(now, StopReason::StartFailed, Signal::KILL, Duration::ZERO, &mut actions)
            }
            Event::AllStarted => {
                if self.phase == Phase::Starting {
                    self.phase = Phase::Running;
                }
            }
            Event::Exited { local_rank, exit, leftover } => self.exited(now, local_rank, exit, leftover, &mut actions),
            Event::LeftoverGone { local_rank } => {
                if let Life::Leftover(exit) = self.lives[local_rank] {
                    self.lives[local_rank] = Life::Ended(exit);
                }
            }
            Event::StopRequested { signal, grace } => self.stop_requested(now, signal, grace, &mut actions),
            Event::ForwardRequested { signal } => {
                let running = self.lives.iter().filter(|(_, life)| **life == Life::Running);
                actions.extend(running.map(|(local_rank, _)| Action::Signal { local_rank, signal }));
            }
            Event::Drained { complete } => {
                if matches!(self.phase, Phase::Draining { .. }) {
                    self.publish(complete, &mut actions);
                }
            }
            Event::Tick => self.tick(now, &mut actions),
        }
        self.advance(now, &mut actions);
        actions
    }

    fn started(&mut self, local_rank: usize, actions: &mut Vec<Action>) {
        if self.lives[local_rank] != Life::NotStarted {
            return;
        }
        self.lives[local_rank] = Life::Running;
        // A stop that came while this worker was being started reaches it too.
        if let Phase::Stopping(stop) = self.phase {
            self.tell(local_rank, if stop.killed { Signal::KILL } else { stop.signal }, actions);
        }
    }

    fn exited(&mut self, now: Instant, local_rank: usize, exit: ExitKind, leftover: bool, actions: &mut Vec<Action>) {
        if self.lives[local_rank] != Life::Running {
            return;
        }
        self.lives[local_rank] = if leftover { Life::Leftover(exit) } else { Life::Ended(exit) };
        match self.phase {
            Phase::Stopping(stop) if leftover => {
                self.tell(local_rank, if stop.killed { Signal::KILL } else { stop.signal }, actions);
            }
            Phase::Starting | Phase::Running if !exit.is_success() => {
                let StopPolicy { death_signal, grace, .. } = self.policy;
                self.begin_stop(now, StopReason::Failure, death_signal, grace, actions);
            }
            _ => {}
        }
    }

    fn stop_requested(&mut self, now: Instant, signal: Signal, grace: Duration, actions: &mut Vec<Action>) {
        match self.phase {
            Phase::Starting | Phase::Running => self.begin_stop(now, StopReason::Requested, signal, grace, actions),
            Phase::Stopping(stop) if stop.requested || signal == Signal::KILL => self.kill(now, actions),
            // The first request during a stop that a failure began: no second death signal, but no more time either.
            Phase::Stopping(ref mut stop) => {
                stop.requested = true;
                if !stop.killed {
                    stop.deadline = stop.deadline.min(deadline(now, grace));
                }
            }
            // Whoever asks again does not want to wait for the console.
            Phase::Draining { .. } => self.publish(false, actions),
            Phase::Done => {}
        }
    }

    fn begin_stop(
        &mut self,
        now: Instant,
        reason: StopReason,
        signal: Signal,
        grace: Duration,
        actions: &mut Vec<Action>,
    ) {
        if self.is_stopping() {
            return;
        }
        self.reason = Some(reason);
        self.phase = Phase::Stopping(Stop {
            signal,
            deadline: deadline(now, grace),
            killed: false,
            requested: reason == StopReason::Requested,
            next_check: now,
            check_interval: FIRST_CHECK,
        });
        if signal == Signal::KILL {
            return self.kill(now, actions);
        }
        for local_rank in 0..self.lives.len() {
            self.tell(local_rank, signal, actions);
        }
    }

    /// Passes a stop signal to a worker, or to what it left behind, and lets it go on if it is stopped.
    fn tell(&mut self, local_rank: usize, signal: Signal, actions: &mut Vec<Action>) {
        match self.lives[local_rank] {
            Life::Running if signal == Signal::KILL => {
                actions.push(Action::SignalGroup { local_rank, signal });
            }
            Life::Running => {
                actions.push(Action::Signal { local_rank, signal });
                actions.push(Action::Signal { local_rank, signal: Signal::CONT });
            }
            Life::Leftover(_) => {
                actions.push(Action::SignalGroup { local_rank, signal });
                if signal != Signal::KILL {
                    actions.push(Action::SignalGroup { local_rank, signal: Signal::CONT });
                }
            }
            Life::NotStarted | Life::Ended(_) | Life::Abandoned(_) => {}
        }
    }

    fn kill(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Phase::Stopping(stop) = &mut self.phase else { return };
        if stop.killed {
            return;
        }
        stop.killed = true;
        stop.deadline = deadline(now, self.policy.kill_wait);
        stop.next_check = now;
        stop.check_interval = FIRST_CHECK;
        for local_rank in 0..self.lives.len() {
            self.tell(local_rank, Signal::KILL, actions);
        }
    }

    fn tick(&mut self, now: Instant, actions: &mut Vec<Action>) {
        match &mut self.phase {
            Phase::Stopping(stop) if now >= stop.deadline && !stop.killed => self.kill(now, actions),
            Phase::Stopping(stop) if now >= stop.deadline => {
                for (_, life) in self.lives.iter_mut() {
                    *life = match *life {
                        Life::Running => Life::Abandoned(None),
                        Life::Leftover(exit) => Life::Abandoned(Some(exit)),
                        over => over,
                    };
                }
            }
            Phase::Stopping(stop) if now >= stop.next_check => {
                stop.next_check = now + stop.check_interval;
                stop.check_interval = (stop.check_interval * 2).min(LAST_CHECK);
                if self.has_leftovers() {
                    actions.push(Action::CheckLeftovers);
                }
            }
            Phase::Draining { deadline } if now >= *deadline => self.publish(false, actions),
            _ => {}
        }
    }

    /// Goes on to the next phase when nothing of this one is left to wait for.
    fn advance(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.phase == Phase::Running && self.lives.values().iter().all(|life| *life != Life::Running) {
            if self.has_leftovers() {
                let StopPolicy { death_signal, grace, .. } = self.policy;
                self.begin_stop(now, StopReason::Leftovers, death_signal, grace, actions);
            } else {
                self.drain(now, actions);
            }
        }
        if matches!(self.phase, Phase::Stopping(_)) && self.lives.values().iter().all(|life| life.is_over()) {
            self.drain(now, actions);
        }
    }

    fn drain(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if !self.has_tee {
            return self.publish(true, actions);
        }
        let deadline = deadline(now, self.policy.drain);
        self.phase = Phase::Draining { deadline: deadline + DRAIN_MARGIN };
        actions.push(Action::Drain { deadline });
    }

    fn publish(&mut self, drained: bool, actions: &mut Vec<Action>) {
        self.drained = drained;
        self.phase = Phase::Done;
        actions.push(Action::Publish);
    }

    fn has_leftovers(&self) -> bool {
        self.lives.values().iter().any(|life| matches!(life, Life::Leftover(_)))
    }
}

/// `now + after`, or, where that is beyond what a clock can hold, thirty years: never.
fn deadline(now: Instant, after: Duration) -> Instant {
    now.checked_add(after).unwrap_or(now + Duration::from_secs(30 * 365 * 24 * 3600))
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
