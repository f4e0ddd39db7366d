//! What a group does when something happens to it: [`Machine`], pure. Not here: pids, clocks, files, threads.
//!
//! The driver tells it what happened ([`Event`]) and when, and carries out what it answers ([`Action`]; both in
//! `machine_words`). Phases go one way only: starting, running, stopping, draining, done; any of the middle ones may be skipped.

use std::time::{Duration, Instant};

use rankrun_types::{ExitKind, PerRank, Signal};

pub(crate) use crate::machine_words::{Action, Event, Life};
use crate::outcome::StopReason;
use crate::policy::{Descendants, DumpStep, StallPolicy, StopOrder, StopPolicy};
use crate::stall::Watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Running,
    Stopping(Stop),
    Draining(Drain),
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stop {
    stage: Stage,
    signal: Signal,
    dump: Option<DumpStep>,
    /// How long the stage [`Stage::Grace`] lasts.
    grace: Duration,
    /// When the next stage is due, or, in the last one, when whoever remains is given up.
    deadline: Instant,
    requested: bool,
    next_check: Instant,
    check_interval: Duration,
}

/// The wait for the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Drain {
    /// When it ends in any case.
    deadline: Instant,
    /// When to look whether the console still takes something; never where that makes no difference.
    next_check: Option<Instant>,
}

/// The steps of the stop ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Nothing is sent yet: workers that are failing too have time to say so.
    Settle,
    /// Workers write their stacks.
    Dump,
    /// Workers have the death signal.
    Grace,
    /// SIGKILL was sent.
    Kill,
}

/// What is known of processes of the tree outside the workers' process groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strays {
    /// Nobody has looked since the last worker ended.
    Unknown,
    /// There are some.
    Found,
    /// There are none, or they are given up, or nobody cares.
    Settled,
}

/// How soon, at first, leftover groups are looked at; doubled each time up to [`LAST_CHECK`].
const FIRST_CHECK: Duration = Duration::from_millis(1);
const LAST_CHECK: Duration = Duration::from_millis(50);

/// How often within the drain's time to look whether the console takes something.
const DRAIN_CHECKS: u32 = 4;

/// How much longer than the drain's deadline to wait for word that it was kept; beyond that the tail itself hangs.
const DRAIN_MARGIN: Duration = Duration::from_millis(200);

/// A group's state.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    lives: PerRank<Life>,
    /// Which workers failed whatever their exit.
    no_value: PerRank<bool>,
    phase: Phase,
    policy: StopPolicy,
    /// Whether there are logs to be drained.
    has_tee: bool,
    reason: Option<StopReason>,
    strays: Strays,
    /// Since when the group is suspended.
    suspended: Option<Instant>,
    /// Watches for signs of life, where that is wanted.
    watch: Option<Watch>,
    drained: bool,
}

impl Machine {
    pub(crate) fn new(local_world_size: usize, policy: StopPolicy, has_tee: bool) -> Self {
        Self {
            lives: PerRank::filled(local_world_size, Life::NotStarted),
            no_value: PerRank::filled(local_world_size, false),
            phase: Phase::Starting,
            policy,
            has_tee,
            reason: None,
            strays: Strays::Unknown,
            suspended: None,
            watch: None,
            drained: true,
        }
    }

    /// Stops the group when no worker gives a sign of life. `sees_output`: whether their output is among the signs; if
    /// not, the first heartbeat begins the watch.
    pub(crate) fn watch(mut self, policy: StallPolicy, sees_output: bool) -> Self {
        self.watch = Some(Watch::new(policy, sees_output));
        self
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

    /// Whether workers have been told to end: from here on, their ends are not their own doing.
    pub(crate) fn tells_to_end(&self) -> bool {
        !matches!(self.phase, Phase::Starting | Phase::Running | Phase::Stopping(Stop { stage: Stage::Settle, .. }))
    }

    /// Whether processes of the tree outlived SIGKILL and were given up.
    pub(crate) fn gave_up_strays(&self) -> bool {
        self.strays == Strays::Found
    }

    /// When a [`Event::Tick`] is wanted, if at all. A group that runs wants none, unless it is watched, nor a suspended one.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        match self.phase {
            _ if self.suspended.is_some() => None,
            Phase::Running => self.watch.as_ref().and_then(Watch::next_look),
            Phase::Starting | Phase::Done => None,
            Phase::Stopping(stop) if self.has_leftovers() || self.strays == Strays::Found => {
                Some(stop.deadline.min(stop.next_check))
            }
            Phase::Stopping(stop) => Some(stop.deadline),
            Phase::Draining(drain) => Some(drain.next_check.map_or(drain.deadline, |check| check.min(drain.deadline))),
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
                self.begin_stop(now, StopReason::StartFailed, Signal::KILL, Duration::ZERO, &mut actions);
            }
            Event::AllStarted => {
                if self.phase == Phase::Starting {
                    self.phase = Phase::Running;
                    self.watch.iter_mut().for_each(|watch| watch.begin(now));
                }
            }
            Event::NoValue { local_rank } => self.no_value[local_rank] = true,
            Event::Exited { local_rank, exit, leftover } => self.exited(now, local_rank, exit, leftover, &mut actions),
            Event::LeftoverGone { local_rank } => {
                if let Life::Leftover(exit) = self.lives[local_rank] {
                    self.lives[local_rank] = Life::Ended(exit);
                }
            }
            Event::Strays { found } => self.strays_sought(now, found, &mut actions),
            Event::StopRequested { signal, grace } => self.stop_requested(now, signal, grace, &mut actions),
            Event::ForwardRequested { signal } => {
                let running = self.lives.iter().filter(|(_, life)| **life == Life::Running);
                actions.extend(running.map(|(local_rank, _)| Action::Signal { local_rank, signal }));
            }
            Event::Suspended => self.suspend(now, &mut actions),
            Event::Resumed => self.resume(now, &mut actions),
            Event::Looked { progress } => self.looked(now, progress, &mut actions),
            Event::DrainProgress => {
                if matches!(self.phase, Phase::Draining(Drain { next_check: Some(_), .. })) {
                    self.extend_drain(now, &mut actions);
                }
            }
            Event::Drained { complete } => {
                if matches!(self.phase, Phase::Draining(_)) {
                    self.publish(complete, &mut actions);
                }
            }
            Event::Tick if self.suspended.is_some() => {}
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
            self.tell(local_rank, stop, actions);
        }
    }

    fn exited(&mut self, now: Instant, local_rank: usize, exit: ExitKind, leftover: bool, actions: &mut Vec<Action>) {
        if self.lives[local_rank] != Life::Running {
            return;
        }
        self.lives[local_rank] = if leftover { Life::Leftover(exit) } else { Life::Ended(exit) };
        self.watch.iter_mut().for_each(|watch| watch.begin(now));
        match self.phase {
            // Its group has its turn with all others.
            Phase::Stopping(stop) if stop.stage == Stage::Settle => {}
            // With the order of the whole group, what is left of it has the death signal already.
            Phase::Stopping(stop) if stop.stage == Stage::Kill || !self.reaches_groups(stop) => {
                self.tell(local_rank, stop, actions);
            }
            Phase::Starting | Phase::Running if !exit.is_success() || self.no_value[local_rank] => {
                let StopPolicy { death_signal, grace, .. } = self.policy;
                self.begin_stop(now, StopReason::Failure, death_signal, grace, actions);
            }
            _ => {}
        }
    }

    fn strays_sought(&mut self, now: Instant, found: bool, actions: &mut Vec<Action>) {
        if !found {
            if self.lives.values().iter().all(|life| life.is_over()) {
                self.strays = Strays::Settled;
            }
            return;
        }
        if matches!(self.phase, Phase::Running | Phase::Stopping(_)) {
            self.strays = Strays::Found;
        }
        if self.phase == Phase::Running {
            let StopPolicy { death_signal, grace, .. } = self.policy;
            self.begin_stop(now, StopReason::Leftovers, death_signal, grace, actions);
        }
        match self.phase {
            Phase::Stopping(stop) if stop.stage == Stage::Kill => {
                actions.push(Action::SignalStrays { signal: Signal::KILL });
            }
            // Only when the workers are gone: until then one of them may need it to end well.
            Phase::Stopping(stop) if stop.stage == Stage::Grace && !self.has_running() => {
                actions.push(Action::SignalStrays { signal: stop.signal });
                actions.push(Action::SignalStrays { signal: Signal::CONT });
            }
            _ => {}
        }
    }

    fn stop_requested(&mut self, now: Instant, signal: Signal, grace: Duration, actions: &mut Vec<Action>) {
        self.resume(now, actions);
        match self.phase {
            Phase::Starting | Phase::Running => self.begin_stop(now, StopReason::Requested, signal, grace, actions),
            Phase::Stopping(stop) if stop.requested || signal == Signal::KILL => self.kill(now, actions),
            // Nothing was sent yet, so that what is sent is what was asked for.
            Phase::Stopping(ref mut stop) if stop.stage == Stage::Settle => {
                stop.requested = true;
                stop.signal = signal;
                stop.grace = stop.grace.min(grace);
                self.begin_ladder(now, actions);
            }
            // The first request during a stop that a failure began: no second death signal, but no more time either.
            Phase::Stopping(ref mut stop) => {
                stop.requested = true;
                stop.grace = stop.grace.min(grace);
                if stop.stage == Stage::Grace {
                    stop.deadline = stop.deadline.min(deadline(now, grace));
                }
            }
            // Whoever asks again does not want to wait for the console.
            Phase::Draining(_) => self.publish(false, actions),
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
        self.resume(now, actions);
        self.reason = Some(reason);
        let dump = match (reason, &self.watch) {
            (StopReason::Stalled, Some(watch)) => Some(watch.dump()),
            _ => self.policy.dump,
        };
        let settle_time = if reason == StopReason::Failure { self.policy.settle_time } else { Duration::ZERO };
        self.phase = Phase::Stopping(Stop {
            stage: Stage::Settle,
            signal,
            dump,
            grace,
            deadline: deadline(now, settle_time),
            requested: reason == StopReason::Requested,
            next_check: now,
            check_interval: FIRST_CHECK,
        });
        if signal == Signal::KILL {
            self.kill(now, actions);
        } else if settle_time.is_zero() {
            self.begin_ladder(now, actions);
        }
    }

    /// Goes from the settle time to the first signal.
    fn begin_ladder(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let has_running = self.has_running();
        let Phase::Stopping(stop) = &mut self.phase else { return };
        let Some(dump) = stop.dump.filter(|_| has_running) else { return self.begin_grace(now, actions) };
        stop.stage = Stage::Dump;
        stop.deadline = deadline(now, dump.timeout);
        let stop = *stop;
        self.tell_all(stop, actions);
    }

    fn tell_all(&self, stop: Stop, actions: &mut Vec<Action>) {
        for local_rank in 0..self.lives.len() {
            self.tell(local_rank, stop, actions);
        }
    }

    /// Passes the signal of the stage to a worker, or to what it left behind, and lets it go on if it is stopped.
    fn tell(&self, local_rank: usize, stop: Stop, actions: &mut Vec<Action>) {
        let signal = match (stop.stage, stop.dump) {
            (Stage::Settle, _) => return,
            (Stage::Kill, _) => Signal::KILL,
            (Stage::Dump, Some(DumpStep { signal, .. })) => signal,
            (Stage::Dump, None) | (Stage::Grace, _) => stop.signal,
        };
        let whole_group = match self.lives[local_rank] {
            Life::Running => stop.stage == Stage::Kill || self.reaches_groups(stop),
            // A dump is for workers; what they left behind has its turn with the death signal.
            Life::Leftover(_) if stop.stage == Stage::Dump => return,
            Life::Leftover(_) => true,
            Life::NotStarted | Life::Ended(_) | Life::Abandoned(_) => return,
        };
        let send = |signal| match whole_group {
            true => Action::SignalGroup { local_rank, signal },
            false => Action::Signal { local_rank, signal },
        };
        actions.push(send(signal));
        // SIGKILL needs no help; everything else waits for a stopped process to go on.
        if signal != Signal::KILL {
            actions.push(send(Signal::CONT));
        }
    }

    /// Whether the signal of the stage goes to whole process groups.
    ///
    /// SIGINT and SIGQUIT always do, as they do from a keyboard: a shell that waits for a program takes them seriously only
    /// when the program has ended of them.
    fn reaches_groups(&self, stop: Stop) -> bool {
        let keyboard = stop.stage == Stage::Grace && matches!(stop.signal, Signal::INT | Signal::QUIT);
        keyboard || self.policy.order == StopOrder::Group
    }

    /// Goes from the dump to the death signal.
    fn begin_grace(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Phase::Stopping(stop) = &mut self.phase else { return };
        stop.stage = Stage::Grace;
        stop.deadline = deadline(now, stop.grace);
        stop.next_check = now;
        let stop = *stop;
        self.tell_all(stop, actions);
    }

    fn kill(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Phase::Stopping(stop) = &mut self.phase else { return };
        if stop.stage == Stage::Kill {
            return;
        }
        stop.stage = Stage::Kill;
        stop.deadline = deadline(now, self.policy.kill_wait);
        stop.next_check = now;
        stop.check_interval = FIRST_CHECK;
        let stop = *stop;
        self.tell_all(stop, actions);
        if self.strays != Strays::Settled {
            actions.push(Action::FindStrays);
        }
    }

    fn suspend(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.suspended.is_some() || !matches!(self.phase, Phase::Running | Phase::Stopping(_)) {
            return;
        }
        self.suspended = Some(now);
        self.signal_groups(Signal::STOP, actions);
    }

    /// Lets a suspended group go on; the time that it was suspended counts for no deadline.
    fn resume(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let Some(since) = self.suspended.take() else { return };
        let lost = now.saturating_duration_since(since);
        if let Phase::Stopping(stop) = &mut self.phase {
            stop.deadline = deadline(stop.deadline, lost);
            stop.next_check = deadline(stop.next_check, lost);
        }
        self.watch.iter_mut().for_each(|watch| watch.skip(now));
        self.signal_groups(Signal::CONT, actions);
    }

    fn signal_groups(&self, signal: Signal, actions: &mut Vec<Action>) {
        let there = self.lives.iter().filter(|(_, life)| matches!(life, Life::Running | Life::Leftover(_)));
        actions.extend(there.map(|(local_rank, _)| Action::SignalGroup { local_rank, signal }));
    }

    fn looked(&mut self, now: Instant, progress: bool, actions: &mut Vec<Action>) {
        if self.phase != Phase::Running || self.suspended.is_some() {
            return;
        }
        let stalled = self.watch.as_mut().and_then(|watch| watch.looked(now, progress));
        if let Some(quiet) = stalled.filter(|_| self.has_running()) {
            actions.push(Action::NoteStall { quiet });
            let StopPolicy { death_signal, grace, .. } = self.policy;
            self.begin_stop(now, StopReason::Stalled, death_signal, grace, actions);
        }
    }

    fn tick(&mut self, now: Instant, actions: &mut Vec<Action>) {
        match &mut self.phase {
            Phase::Running if self.watch.as_ref().and_then(Watch::next_look).is_some_and(|look| now >= look) => {
                actions.push(Action::LookForProgress);
            }
            Phase::Stopping(stop) if now >= stop.deadline => match stop.stage {
                Stage::Settle => self.begin_ladder(now, actions),
                Stage::Dump => self.begin_grace(now, actions),
                Stage::Grace => self.kill(now, actions),
                Stage::Kill => self.give_up(now, actions),
            },
            Phase::Stopping(stop) if now >= stop.next_check => {
                stop.next_check = now + stop.check_interval;
                stop.check_interval = (stop.check_interval * 2).min(LAST_CHECK);
                if self.has_leftovers() {
                    actions.push(Action::CheckLeftovers);
                }
                if self.strays == Strays::Found {
                    actions.push(Action::FindStrays);
                }
            }
            Phase::Draining(drain) if now >= drain.deadline => self.publish(false, actions),
            Phase::Draining(drain) if drain.next_check.is_some_and(|check| now >= check) => {
                drain.next_check = Some(deadline(now, self.policy.drain / DRAIN_CHECKS));
                actions.push(Action::CheckDrain);
            }
            _ => {}
        }
    }

    fn give_up(&mut self, now: Instant, actions: &mut Vec<Action>) {
        for (_, life) in self.lives.iter_mut() {
            *life = match *life {
                Life::Running => Life::Abandoned(None),
                Life::Leftover(exit) => Life::Abandoned(Some(exit)),
                over => over,
            };
        }
        self.drain(now, actions);
    }

    /// Goes on to the next phase when nothing of this one is left to wait for.
    fn advance(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.has_running() || actions.contains(&Action::FindStrays) {
            return;
        }
        // Nobody is left to fail or to write a stack.
        if matches!(self.phase, Phase::Stopping(stop) if stop.stage <= Stage::Dump) {
            self.begin_grace(now, actions);
        }
        let leftovers = self.has_leftovers();
        match self.phase {
            Phase::Running if self.policy.descendants == Descendants::Keep => self.drain(now, actions),
            Phase::Running if leftovers => {
                let StopPolicy { death_signal, grace, .. } = self.policy;
                self.begin_stop(now, StopReason::Leftovers, death_signal, grace, actions);
            }
            Phase::Running | Phase::Stopping(_) if leftovers => {}
            Phase::Running | Phase::Stopping(_) => match self.strays {
                Strays::Unknown => actions.push(Action::FindStrays),
                Strays::Found => {}
                Strays::Settled => self.drain(now, actions),
            },
            Phase::Starting | Phase::Draining(_) | Phase::Done => {}
        }
    }

    fn drain(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if !self.has_tee {
            return self.publish(true, actions);
        }
        // A group that ended well waits for a slow reader as long as it reads; one that failed has news to tell.
        let patient = matches!(self.reason, None | Some(StopReason::Leftovers));
        let next_check = patient.then(|| deadline(now, self.policy.drain / DRAIN_CHECKS));
        self.phase = Phase::Draining(Drain { deadline: now, next_check });
        self.extend_drain(now, actions);
    }

    fn extend_drain(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let end = deadline(now, self.policy.drain);
        if let Phase::Draining(drain) = &mut self.phase {
            drain.deadline = end + DRAIN_MARGIN;
            actions.push(Action::Drain { deadline: end });
        }
    }

    fn publish(&mut self, drained: bool, actions: &mut Vec<Action>) {
        self.drained = drained;
        self.phase = Phase::Done;
        actions.push(Action::Publish);
    }

    fn has_running(&self) -> bool {
        self.lives.values().contains(&Life::Running)
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

#[cfg(test)]
#[path = "machine_rules_tests.rs"]
mod rules_tests;
