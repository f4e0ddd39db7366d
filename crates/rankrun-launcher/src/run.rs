//! Carrying out a [`Plan`]: one attempt after the other, signals, pauses: [`Plan::run`]. Not here: the decisions (`restart`).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rankrun::{
    Cause, ChildFailedError, Entrypoint, LogsSpecs, PContext, PerRank, ProcessFailure, RunProcsResult, RunState,
    Signal, StartError, StartProcessesError, StopReason, WaitError, WorkerGroup,
};

use crate::plan::Plan;
use crate::restart::{Decision, Ended, Verdict, decide};
use crate::topology::MasterPort;

/// How far apart a signal that was sent once can come: to the workers and this program, as an engine such as Slurm sends it
/// to both, or twice to this program.
const SAME_SIGNAL: Duration = Duration::from_millis(100);

/// What became of one attempt.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Attempt {
    /// How often the group had been started before: `TORCHELASTIC_RESTART_COUNT`, which counts the engine's restarts too.
    pub restart_count: u64,
    /// When it was started.
    pub started: SystemTime,
    /// When it had ended.
    pub ended: SystemTime,
    /// The run directory, which all attempts of a run share.
    pub run_dir: Option<PathBuf>,
    /// How it ended.
    pub result: Arc<RunProcsResult>,
}

/// What became of a run.
#[derive(Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// Its attempts in their order, at least one.
    pub attempts: Vec<Attempt>,
    /// Why there was no further one.
    pub verdict: Verdict,
    /// The first signal that stopped it.
    pub signal: Option<Signal>,
    /// Signals are watched as long as this is there.
    pub watch: Watch,
}

impl Outcome {
    /// The last attempt, which counts.
    #[must_use]
    pub fn last(&self) -> &Attempt {
        self.attempts.last().expect("a run has an attempt")
    }
}

/// An attempt could not be started; none of its workers is left. Starting again would not help: it is not tried.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct RunError {
    /// The attempts before it.
    pub attempts: Vec<Attempt>,
    /// Why.
    pub source: Box<StartProcessesError>,
    /// Signals are watched as long as this is there.
    pub watch: Watch,
}

/// Signals to this program are watched until this is dropped, as [`Launch::signals`](crate::Launch::signals) said: so
/// that one which comes after the run does not end a program that still has to tell of it.
#[derive(Debug)]
pub struct Watch(Option<Box<PContext>>);

impl Watch {
    /// The first signal that stops, and came after the run. Does not block.
    #[must_use]
    pub fn late_signal(&self) -> Option<Signal> {
        self.0.as_ref()?.pause(Duration::ZERO).err().map(|error| error.sigval)
    }

    /// As [`late_signal`](Self::late_signal), and goes on watching until this program ends; for its last moment.
    #[must_use]
    pub fn keep(self) -> Option<Signal> {
        let signal = self.late_signal();
        std::mem::forget(self);
        signal
    }
}

/// A group that runs now.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Started<'a> {
    /// As in [`Attempt`].
    pub restart_count: u64,
    /// As in [`Attempt`].
    pub started: SystemTime,
    /// As in [`Attempt`].
    pub run_dir: Option<&'a PathBuf>,
    /// The workers' process ids.
    pub pids: &'a PerRank<u32>,
}

/// Is told what happens while a run goes on, in the thread that called [`Plan::run`]. `()` does not care.
pub trait Observer {
    /// All workers of an attempt run.
    fn started(&mut self, _started: &Started<'_>) {}

    /// An attempt has ended; what comes next is decided.
    fn ended(&mut self, _attempt: &Attempt, _next: &Decision) {}
}

impl Observer for () {}

impl Plan {
    /// Runs the group until it succeeds, is stopped or may not be started again. Blocks until then.
    ///
    /// Each attempt is the whole group again, with a directory of its own, `TORCHELASTIC_RESTART_COUNT` one higher and, if
    /// the port was a free one, another free port. Signals are watched without a gap, pauses included: a stop signal in a
    /// pause ends the run, with the verdict [`Verdict::Interrupted`].
    ///
    /// # Errors
    /// [`RunError`] if an attempt cannot be started, except for a stop signal during the start of a later one.
    pub fn run(&self, observer: &mut dyn Observer) -> Result<Outcome, RunError> {
        let mut run = Run { plan: self, attempts: Vec::new(), signal: None, signalled: SystemTime::UNIX_EPOCH };
        let mut context = None;
        let verdict = run.attempts(&mut context, observer);
        let (attempts, watch) = (run.attempts, Watch(context.map(Box::new)));
        match verdict {
            Ok(verdict) => Ok(Outcome { attempts, verdict, signal: run.signal, watch }),
            Err(source) => Err(RunError { attempts, source: Box::new(source), watch }),
        }
    }

    fn group(&self, attempt: u32, master_port: u16) -> WorkerGroup {
        let launch = &self.launch;
        // It was made for the first attempt, and differs only in numbers.
        let envs = self.envs_of(attempt, master_port).map_or_else(|_| self.envs.envs.clone(), |made| made.envs);
        let group =
            WorkerGroup::new(&launch.role, Entrypoint::binary(&launch.program), launch.topology.local_world_size)
                .args(&launch.args)
                .envs_by_rank(|local_rank| envs[local_rank].iter().cloned())
                .logs_specs(Arc::clone(&self.logs) as Arc<dyn LogsSpecs>)
                .stop_policy(launch.stop_policy);
        match &self.shape {
            Some(shape) => shape(group),
            None => group,
        }
    }

    /// The port of an attempt: another free one each time, as the one before may still be taken.
    fn port_of(&self, attempt: u32) -> u16 {
        if attempt == 0 || self.launch.topology.master_port != MasterPort::Free {
            return self.master_port;
        }
        (self.free_port)().unwrap_or_else(|error| {
            log::debug!("no other free port: {error}");
            self.master_port
        })
    }
}

/// A run that goes on.
struct Run<'a> {
    plan: &'a Plan,
    attempts: Vec<Attempt>,
    signal: Option<Signal>,
    /// When that came.
    signalled: SystemTime,
}

impl Run<'_> {
    /// `slot`: gets the context of the last attempt, which watches signals.
    fn attempts(
        &mut self,
        slot: &mut Option<PContext>,
        observer: &mut dyn Observer,
    ) -> Result<Verdict, StartProcessesError> {
        let mut context = slot.insert(self.context(0)?);
        if let Some(signals) = &self.plan.launch.signals
            && let Err(error) = context.watch(signals.clone())
        {
            log::warn!("{error}: a signal ends this launcher at once");
        }
        let mut attempt = 0;
        loop {
            let decision = match self.attempt(context, attempt, observer) {
                Err(StartProcessesError::Start(StartError::Stopped { signal: Some(signal), .. })) if attempt > 0 => {
                    self.signal = Some(signal);
                    return Ok(Verdict::Interrupted { signal });
                }
                decision => decision?,
            };
            let at = match decision {
                Decision::End(verdict) => return Ok(verdict),
                Decision::Restart { at } => at,
            };
            if let Err(error) = context.pause(at.saturating_duration_since(Instant::now())) {
                self.signal = Some(error.sigval);
                return Ok(Verdict::Interrupted { signal: error.sigval });
            }
            attempt += 1;
            let mut next = self.context(attempt)?;
            next.take_watch(context);
            context = slot.insert(next);
        }
    }

    fn context(&self, attempt: u32) -> Result<PContext, StartProcessesError> {
        Ok(PContext::new(self.plan.group(attempt, self.plan.port_of(attempt)).into_spec()?)?)
    }

    /// One attempt from its start to what comes next.
    fn attempt(
        &mut self,
        context: &mut PContext,
        attempt: u32,
        observer: &mut dyn Observer,
    ) -> Result<Decision, StartProcessesError> {
        let (started, began) = (SystemTime::now(), Instant::now());
        context.start()?;
        let restart_count = self.plan.launch.topology.restart_count + u64::from(attempt);
        let run_dir = self.plan.logs.run_dir();
        if let Some(pids) = context.pids() {
            observer.started(&Started { restart_count, started, run_dir: run_dir.as_ref(), pids });
        }
        let result = self.wait(context)?;
        let result = self.as_stopped(context, result);
        let now = Instant::now();
        let ended = Ended {
            restarts: attempt,
            state: result.state,
            root_cause: root_cause(&result),
            uptime: uptime(&result, now.saturating_duration_since(began)),
            stop_requested: self.signal.is_some(),
        };
        let decision = decide(now, &ended, &self.plan.launch.restart);
        let attempt = Attempt { restart_count, started, ended: SystemTime::now(), run_dir, result };
        observer.ended(&attempt, &decision);
        self.attempts.push(attempt);
        Ok(decision)
    }

    /// Whether the signal is the first one once more: a terminal that goes away hangs up its session's leader and its
    /// foreground process group, and an engine may signal a job and its steps. Nobody asks twice as fast as that.
    fn is_echo(&self, signal: Signal) -> bool {
        self.signal == Some(signal) && self.signalled.elapsed().is_ok_and(|elapsed| elapsed <= SAME_SIGNAL)
    }

    fn take_signal(&mut self, signal: Signal) {
        if self.signal.is_none() {
            (self.signal, self.signalled) = (Some(signal), SystemTime::now());
        }
    }

    /// The result as that of a group that was stopped, where the workers got the stop signal that this program got, but
    /// before it. Waits a moment for the signal if all that failed died of one that stops.
    fn as_stopped(&mut self, context: &PContext, result: Arc<RunProcsResult>) -> Arc<RunProcsResult> {
        let Some(end) = CommonEnd::of(&result) else { return result };
        if self.signal.is_none() {
            let signals = self.plan.launch.signals.as_ref();
            let waits = end.signal.is_some_and(|signal| signals.is_some_and(|signals| signals.stops_at(signal)));
            // After a success nobody waits: a signal that has come counts, one that is to come does not.
            let patience = if waits { SAME_SIGNAL } else { Duration::ZERO };
            if let Err(error) = context.pause(patience.saturating_sub(end.at.elapsed().unwrap_or_default())) {
                self.take_signal(error.sigval);
            }
        }
        let is_stopped = self.signal.is_some_and(|signal| end.is_by(signal, self.signalled));
        if is_stopped { Arc::new(stopped(&result)) } else { result }
    }

    /// Waits for the result, and keeps the first signal that stopped the group.
    fn wait(&mut self, context: &PContext) -> Result<Arc<RunProcsResult>, StartProcessesError> {
        loop {
            match context.wait(None) {
                Ok(Some(result)) => return Ok(result),
                Ok(None) => {}
                Err(WaitError::Signal(error)) => {
                    // The first one is passed on with grace, the second kills.
                    if !self.is_echo(error.sigval) {
                        context.request_stop(error.sigval, self.plan.launch.stop_policy.grace);
                        self.take_signal(error.sigval);
                    }
                }
                // Cannot be: it was started.
                Err(error) => {
                    log::error!("{error}");
                    return Err(StartError::AlreadyStarted { name: self.plan.launch.role.clone() }.into());
                }
            }
        }
    }
}

/// How all workers ended whom no request to stop had reached, where they may have got a stop signal of somebody else.
struct CommonEnd {
    /// What all that failed died of; `None` if all exited 0, as workers do that catch it.
    signal: Option<Signal>,
    /// When the first of them failed, or the last one exited.
    at: SystemTime,
}

impl CommonEnd {
    /// `None` where they ended in several ways, or one says a word of a failure of its own.
    fn of(result: &RunProcsResult) -> Option<Self> {
        let ended = |rank: usize| result.workers.get(rank)?.ended;
        match result.state {
            RunState::Succeeded => {
                let at = (0..result.workers.len()).filter_map(ended).max()?;
                Some(Self { signal: None, at })
            }
            RunState::Failed if result.stall.is_none() => {
                // A shell whose program died of it exits with its code.
                let code = result.failures.values().next()?.exit.shell_code();
                let signal = Signal::from_raw(i32::from(code) - 128)?;
                let is_same = |one: &ProcessFailure| one.exit.shell_code() == code && one.error_file_data.is_none();
                let at = result.failures.keys().copied().filter_map(ended).min()?;
                result.failures.values().all(is_same).then_some(Self { signal: Some(signal), at })
            }
            _ => None,
        }
    }

    /// Whether a stop signal that came to this program at `signalled` was its reason.
    fn is_by(&self, signal: Signal, signalled: SystemTime) -> bool {
        // The clock may have been set back in between; then they are as good as simultaneous.
        let apart = signalled.duration_since(self.at).unwrap_or_default();
        self.signal.is_none_or(|death| death == signal) && apart <= SAME_SIGNAL
    }
}

/// The same result for a group that somebody stopped by signals of his own: no worker failed.
fn stopped(result: &RunProcsResult) -> RunProcsResult {
    let mut result = result.clone();
    let victims = std::mem::take(&mut result.failures);
    let all = result.state == RunState::Succeeded;
    result.workers = result.workers.map(|local_rank, worker| {
        let mut worker = worker.clone();
        if all || victims.contains_key(&local_rank) {
            worker.cause = Cause::Collateral;
        }
        worker
    });
    result.state = RunState::Stopped;
    result.stop_reason = Some(StopReason::Requested);
    result
}

/// How the worker that failed first ended.
fn root_cause(result: &RunProcsResult) -> Option<rankrun::ExitKind> {
    let error = ChildFailedError::new("", result.failures.clone()).ok()?;
    let (_, failure) = error.get_first_failure();
    // What ended it then was our own signal, which says nothing about the failure.
    (!failure.stopped).then_some(failure.exit)
}

/// How long the group had worked when its first worker failed; `all` is the time to its very end.
fn uptime(result: &RunProcsResult, all: Duration) -> Duration {
    let workers = || result.workers.values().iter();
    let started = workers().filter_map(|worker| worker.started).min();
    let failed = result.failures.keys().filter_map(|rank| result.workers.get(*rank)?.ended).min();
    match (started, failed) {
        // A clock that was set in between counts for nothing more than the time that really passed.
        (Some(started), Some(failed)) => failed.duration_since(started).map_or(all, |uptime| uptime.min(all)),
        _ => all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_ended_just_before_the_stop_signal_were_ended_by_it() {
        let at = SystemTime::now();
        let later = |millis| at + Duration::from_millis(millis);
        let exited = CommonEnd { signal: None, at };
        let killed = CommonEnd { signal: Some(Signal::TERM), at };
        for (end, signal, signalled, is_by) in [
            (&exited, Signal::TERM, later(0), true),
            (&exited, Signal::INT, later(100), true),
            (&exited, Signal::TERM, later(101), false),
            (&exited, Signal::TERM, at - Duration::from_secs(1), true),
            (&killed, Signal::TERM, later(100), true),
            (&killed, Signal::TERM, later(101), false),
            (&killed, Signal::INT, later(0), false),
        ] {
            assert_eq!(end.is_by(signal, signalled), is_by, "{:?} {signal} {signalled:?}", end.signal);
        }
    }
}
