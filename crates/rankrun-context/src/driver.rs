//! The one thread that starts, watches and ends a group: [`Driver`]. Not here: decisions (`machine`), the handle
//! (`context`).
//!
//! It waits in one epoll for everything: each worker's pidfd, requests of the handle, the end of the logs. Nothing
//! that it calls blocks, but for the spawn of a worker until its exec.

mod acts;

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crossbeam_channel::{Receiver, Sender};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use rankrun_functions::ReturnSlot;
use rankrun_logs::{Consoles, DrainOutcome, Env, IncompleteDrain, LogsDest, SinkId, Tail, Unsaved, open_log};
use rankrun_process::{Child, Command, Exit, Orphans, SpawnError, Spawner, Stdio, become_subreaper};
use rankrun_types::{ExitKind, PerRank, Signal, env};

use crate::context::{Request, Shared};
use crate::error::{StartError, StartHint};
use crate::events::{EventSink, GroupEventKind};
use crate::evidence::Evidence;
use crate::family::Family;
use crate::hint::with_hint;
use crate::log_files::{self, LogFiles};
use crate::machine::{Action, Event, Life, Machine};
use crate::outcome::{RunProcsResult, cause};
use crate::policy::Descendants;
use crate::program::Program;
use crate::report::{self, Facts, Logs};
use crate::signs::{self, Signs};
use crate::spec::GroupSpec;
use crate::stall::Stall;
use crate::tee::Tee;
use crate::terminals::Terminals;

/// epoll's tokens: a local rank, or one of these.
const REQUESTS: u64 = u64::MAX;
const LOGS: u64 = u64::MAX - 1;
const TERMINALS: u64 = u64::MAX - 2;
const GUARDIAN: u64 = u64::MAX - 3;

/// What the driver knows of one worker beyond its place in the state machine.
#[derive(Debug, Default)]
struct Slot {
    child: Option<Child>,
    /// Where it leaves what its function returns.
    returns: Option<ReturnSlot>,
    facts: Facts,
}

/// The thread's state.
pub(crate) struct Driver {
    spec: GroupSpec,
    shared: Arc<Shared>,
    requests: Receiver<Request>,
    cookie: String,
    machine: Machine,
    slots: PerRank<Slot>,
    epoll: Epoll,
    dest: LogsDest,
    tail: Option<Tail>,
    /// The tail once it has ended.
    ended_tail: Option<Tail>,
    terminals: Option<Terminals>,
    /// What the files of the terminals did not take.
    unsaved: Option<Unsaved>,
    log_files: Option<LogFiles>,
    /// The sources of the tail that wait for a worker's process id: source and local rank.
    await_pid: Vec<(usize, usize)>,
    stop_began: Option<SystemTime>,
    evidence: Evidence,
    all_started: bool,
    family: Family,
    /// How much the console had taken at the last look.
    shown: u64,
    events: EventSink,
    /// Where to look for signs of life, if that is wanted.
    signs: Option<Signs>,
    stall: Option<Stall>,
    /// What went wrong beside the group itself. Never logged from here: a logger may wait for a console.
    warnings: Vec<String>,
}

impl Driver {
    /// Makes what is needed before the first worker can be started: directories, log files, the tail.
    pub(crate) fn new(
        mut spec: GroupSpec,
        shared: Arc<Shared>,
        requests: Receiver<Request>,
        cookie: String,
    ) -> Result<Self, StartError> {
        let name = || spec.name.clone();
        let refused = |what, errno| StartError::Driver { name: name(), what, errno: errno as i32 };
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|errno| refused("epoll", errno))?;
        epoll
            .add(shared.requests.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, REQUESTS))
            .map_err(|errno| refused("epoll", errno))?;
        if spec.orphans != Orphans::Leave {
            become_subreaper().map_err(|error| StartError::Driver {
                name: name(),
                what: "subreaper of this program",
                errno: error.raw_os_error().unwrap_or(Errno::EINVAL as i32),
            })?;
        }
        let dest = spec.logs_specs.reify(&spec.envs).map_err(|source| StartError::Logs { name: name(), source })?;
        let health = log_files::make(&dest).map_err(|source| StartError::Logs { name: name(), source })?;
        let counts = Arc::default();
        let mut tee = Tee::new(&spec, &dest, health.clone(), &counts);
        let terminals = Terminals::start(&spec, &dest, &tee, &health)
            .map_err(|source| StartError::Logs { name: name(), source })?;
        let unsaved = terminals.as_ref().map(Terminals::unsaved);
        if let Some(unsaved) = &unsaved {
            tee.options = tee.options.unsaved(unsaved.clone());
        }
        if let Some(terminals) = &terminals {
            epoll
                .add(terminals.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, TERMINALS))
                .map_err(|errno| refused("epoll", errno))?;
        }
        let drains = terminals.is_some() || tee.is_needed;
        let machine = Machine::new(spec.local_world_size(), spec.stop_policy, drains);
        let slots = PerRank::from_fn(spec.local_world_size(), |_| Slot::default());
        let mut driver = Self {
            family: Family::new(&cookie, spec.orphans),
            events: EventSink::new(spec.events.take(), counts),
            spec,
            shared,
            requests,
            cookie,
            machine,
            slots,
            epoll,
            dest,
            tail: None,
            ended_tail: None,
            terminals,
            unsaved,
            log_files: None,
            await_pid: Vec::new(),
            stop_began: None,
            evidence: Evidence::begin(),
            all_started: false,
            shown: 0,
            signs: None,
            stall: None,
            warnings: Vec::new(),
        };
        driver.start_tail(tee)?;
        let positions = driver.tail.as_ref().map(Tail::positions);
        let log_files = LogFiles::start(&driver.spec, &driver.dest, positions, health, driver.unsaved.clone());
        driver.log_files =
            Some(log_files.map_err(|source| StartError::Logs { name: driver.spec.name.clone(), source })?);
        if let Some(policy) = driver.spec.stall_policy {
            let signs = Signs::new(&driver.dest);
            driver.machine = driver.machine.watch(policy, signs.sees_output());
            driver.signs = Some(signs);
        }
        Ok(driver)
    }

    fn start_tail(&mut self, tee: Tee) -> Result<(), StartError> {
        let Tee { sources, options, await_pid, is_needed } = tee;
        if !is_needed {
            return Ok(());
        }
        let name = || self.spec.name.clone();
        for source in &sources {
            open_log(&source.path).map_err(|source| StartError::Logs { name: name(), source })?;
        }
        let consoles = match self.spec.consoles.take() {
            Some(consoles) => consoles,
            None => Consoles::inherit().map_err(|source| StartError::Tail { name: name(), source })?,
        };
        let tail = options.start(sources, consoles).map_err(|source| StartError::Tail { name: name(), source })?;
        self.epoll
            .add(tail.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, LOGS))
            .map_err(|errno| StartError::Driver { name: name(), what: "epoll", errno: errno as i32 })?;
        self.tail = Some(tail);
        self.await_pid = await_pid;
        Ok(())
    }

    /// Starts all workers, tells `started` how that went, supervises them to their end and publishes the result.
    pub(crate) fn run(mut self, program: Program, started: &Sender<Result<PerRank<u32>, StartError>>) {
        match self.start_workers(program) {
            Ok(()) => {
                let pids = self.slots.map(|_, slot| slot.facts.pid.unwrap_or(0));
                self.all_started = true;
                self.feed(Event::AllStarted);
                // The receiver waits for this message and nothing else.
                let _ = started.send(Ok(pids));
                self.shared.say_started();
                self.supervise();
            }
            Err(error) => {
                // Only when nobody is left does the caller hear of it.
                self.supervise();
                let _ = started.send(Err(error));
            }
        }
    }

    fn start_workers(&mut self, program: Program) -> Result<(), StartError> {
        let mut spawner = match Spawner::new() {
            Ok(spawner) => spawner,
            Err(source) => return Err(self.start_failed(0, source)),
        };
        if self.spec.control_group {
            self.family.enter_control_group(&self.cookie);
        }
        if self.spec.guardian
            && let Err(source) = self.family.start_guardian(&mut spawner)
        {
            self.feed(Event::StartFailed { local_rank: 0 });
            return Err(StartError::Guardian { name: self.spec.name.clone(), source });
        }
        self.watch_guardian();
        let base: Env = std::env::vars_os().collect();
        for local_rank in 0..self.spec.local_world_size() {
            self.take_requests();
            if self.machine.is_stopping() {
                return Err(StartError::Stopped {
                    signal: None,
                    name: self.spec.name.clone(),
                    started: local_rank,
                    local_world_size: self.spec.local_world_size(),
                });
            }
            let envs = self.environment(&base, local_rank);
            let command = match self.command(&program, local_rank, &envs) {
                Ok(command) => command,
                Err(error) => {
                    self.feed(Event::StartFailed { local_rank });
                    return Err(error);
                }
            };
            let facts = &mut self.slots[local_rank].facts;
            facts.started = Some(SystemTime::now());
            let child = match self.family.spawn(&mut spawner, command) {
                Ok(child) => child,
                Err(source) => {
                    facts.started = None;
                    let error = self.start_failed(local_rank, source);
                    return Err(with_hint(error, &envs, self.spec.placements[local_rank].current_dir.as_deref()));
                }
            };
            facts.pid = Some(child.pid());
            if let Some(tail) = &self.tail {
                let of_worker = self.await_pid.iter().filter(|(_, awaited)| *awaited == local_rank);
                of_worker.for_each(|(source, _)| tail.set_pid(*source, child.pid()));
            }
            let watched = self.epoll.add(child.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, local_rank as u64));
            self.events.tell(GroupEventKind::Started { local_rank, pid: child.pid() });
            self.slots[local_rank].child = Some(child);
            self.feed(Event::Started { local_rank });
            if let Err(errno) = watched {
                self.feed(Event::StartFailed { local_rank });
                let name = self.spec.name.clone();
                return Err(StartError::Driver { name, what: "epoll entry", errno: errno as i32 });
            }
        }
        Ok(())
    }

    fn start_failed(&mut self, local_rank: usize, source: SpawnError) -> StartError {
        self.feed(Event::StartFailed { local_rank });
        StartError::Worker { local_rank, hint: StartHint::of(&source), source }
    }

    /// The whole environment of a worker.
    fn environment(&self, base: &Env, local_rank: usize) -> Env {
        let mut envs = base.clone();
        envs.extend(self.spec.envs[local_rank].iter().map(|(name, value)| (name.clone(), value.clone())));
        envs.insert(env::TORCHELASTIC_ERROR_FILE.into(), self.dest.error_files[local_rank].clone().into());
        if self.signs.is_some() {
            let heartbeat = signs::heartbeat(&self.dest.error_files[local_rank]);
            envs.insert(env::RANKRUN_HEARTBEAT_FILE.into(), heartbeat.into());
        }
        // A group inside a worker adds its cookie to the worker's, so that both groups know their members.
        let cookie = match envs.get(OsString::from(env::RANKRUN_GROUP).as_os_str()) {
            Some(outer) if !outer.is_empty() => {
                let mut both = outer.clone();
                both.push(":");
                both.push(&self.cookie);
                both
            }
            _ => OsString::from(&self.cookie),
        };
        envs.insert(env::RANKRUN_GROUP.into(), cookie);
        if let Some(terminals) = &self.terminals {
            terminals.fit_env(local_rank, &self.spec.envs[local_rank], &mut envs);
        }
        envs
    }

    fn command(&mut self, program: &Program, local_rank: usize, envs: &Env) -> Result<Command, StartError> {
        let failed = |source| StartError::Logs { name: self.spec.name.clone(), source };
        let stream = |path: &Option<PathBuf>, stream| {
            let Some(path) = path else { return Ok(Stdio::Inherit) };
            let terminal = self.terminals.as_ref().map(|terminals| terminals.worker_end(local_rank, stream));
            match terminal.transpose().map_err(failed)?.flatten() {
                Some(terminal) => Ok(Stdio::Fd(terminal)),
                None => Ok(Stdio::Fd(open_log(path).map_err(failed)?.into())),
            }
        };
        let (command, returns) = program.command(local_rank).map_err(|source| {
            let hint = StartHint::of(&source);
            StartError::Worker { local_rank, source, hint }
        })?;
        let command = command
            .args(&self.spec.args[local_rank])
            .envs(envs)
            .stdout(stream(&self.dest.stdouts[local_rank], SinkId::Stdout)?)
            .stderr(stream(&self.dest.stderrs[local_rank], SinkId::Stderr)?);
        self.slots[local_rank].returns = returns;
        Ok(self.spec.placements[local_rank].apply(command))
    }

    /// Waits and acts until the result is published.
    fn supervise(&mut self) {
        let mut ready = vec![EpollEvent::empty(); 64];
        while !self.shared.is_done() {
            let timeout = timeout(self.machine.wake_at(), Instant::now());
            let count = match self.epoll.wait(&mut ready, timeout) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                // A descriptor of ours is gone: the host program closed what is not its own.
                Err(errno) => {
                    self.warn(format!("cannot wait for the workers any more: epoll: {errno}"));
                    return self.publish(self.result_unknown());
                }
            };
            let tokens: Vec<u64> = ready[..count].iter().map(EpollEvent::data).collect();
            // Ends before requests: a worker that had failed before the caller's stop is a failure.
            for local_rank in tokens.iter().filter(|token| **token < GUARDIAN) {
                self.look_at(*local_rank as usize);
            }
            if tokens.iter().any(|token| *token < GUARDIAN) {
                self.reap_orphans();
            }
            if tokens.contains(&REQUESTS) {
                self.take_requests();
            }
            if tokens.contains(&TERMINALS) {
                self.terminals_ended();
            }
            if tokens.contains(&LOGS) {
                self.logs_ended();
            }
            if tokens.contains(&GUARDIAN) {
                self.replace_guardian();
            }
            if self.machine.wake_at().is_some_and(|wake_at| wake_at <= Instant::now()) {
                self.feed(Event::Tick);
            }
        }
    }

    /// Takes a worker's end, if it has come.
    fn look_at(&mut self, local_rank: usize) {
        let slot = &mut self.slots[local_rank];
        let Some(child) = &mut slot.child else { return };
        if slot.facts.exit.is_some() {
            return;
        }
        let exit = match child.try_wait() {
            Ok(None) => return,
            Ok(Some(exit)) => exit,
            Err(error) => {
                self.warnings.push(format!("local rank {local_rank}: {error}"));
                Exit { kind: ExitKind::Lost, usage: rankrun_process::Usage::default() }
            }
        };
        slot.facts.ended = Some(SystemTime::now());
        slot.facts.exit = Some(exit);
        slot.facts.returned = slot.returns.take().map(|returns| returns.collect(exit.kind));
        let no_value = matches!(slot.facts.returned, Some(Err(_)));
        let (leftover, pid, signalled) = (!child.group_is_empty(), child.pid(), slot.facts.signalled);
        // It stays readable for ever, and would wake the thread for ever.
        let _ = self.epoll.delete(child.as_fd());
        if !leftover {
            self.let_go(local_rank);
        }
        if no_value {
            self.feed(Event::NoValue { local_rank });
        }
        let exit = exit.kind;
        let cause = cause(Life::Ended(exit), no_value, signalled, false);
        self.events.tell(GroupEventKind::Exited { local_rank, pid, exit, cause });
        self.feed(Event::Exited { local_rank, exit, leftover });
    }

    /// Lets go of a worker that has ended and whose process group is empty: from now on its number can be another's.
    fn let_go(&mut self, local_rank: usize) {
        let Some(child) = self.slots[local_rank].child.take() else { return };
        self.family.let_go(child.pid(), &self.workers());
    }

    /// The pids of the workers that are held: those that run, and those whose process group is not empty.
    fn workers(&self) -> HashSet<u32> {
        self.slots.values().iter().filter_map(|slot| slot.child.as_ref().map(Child::pid)).collect()
    }

    /// Wakes this thread when the guardian ends before its time.
    fn watch_guardian(&mut self) {
        let Some(guardian) = self.family.guardian() else { return };
        // One that cannot be watched is not replaced; it guards all the same.
        let _ = self.epoll.add(guardian.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, GUARDIAN));
    }

    fn replace_guardian(&mut self) {
        if let Some(guardian) = self.family.guardian() {
            let _ = self.epoll.delete(guardian.as_fd());
        }
        if let Err(warning) = self.family.replace_guardian(&self.workers()) {
            self.warn(warning);
        }
        self.watch_guardian();
    }

    fn take_requests(&mut self) {
        let _ = self.shared.requests.read();
        let mut reap = false;
        while let Ok(request) = self.requests.try_recv() {
            match request {
                Request::Stop { signal, grace } => self.feed(Event::StopRequested { signal, grace }),
                Request::AbortStart { signal, grace } if !self.all_started => {
                    self.feed(Event::StopRequested { signal, grace });
                }
                Request::AbortStart { .. } => {}
                Request::Forward { signal } => {
                    if let (Signal::WINCH, Some(terminals)) = (signal, &self.terminals) {
                        terminals.follow_size();
                    }
                    self.feed(Event::ForwardRequested { signal });
                }
                Request::Suspend { done } => {
                    self.feed(Event::Suspended);
                    // Whoever asked may have gone on without waiting.
                    let _ = done.send(());
                }
                Request::Resume => self.feed(Event::Resumed),
                // Many come at once when many workers end.
                Request::ReapOrphans => reap = true,
            }
        }
        if reap {
            self.reap_orphans();
        }
    }

    fn reap_orphans(&mut self) {
        let workers = self.workers();
        self.family.reap(&workers);
    }

    fn check_drain(&mut self) {
        let shown = self.tail.as_ref().map_or(0, Tail::shown) + self.terminals.as_ref().map_or(0, Terminals::moved);
        if shown != std::mem::replace(&mut self.shown, shown) {
            self.feed(Event::DrainProgress);
        }
    }

    /// Lets the files come to their end, then the console.
    fn drain(&mut self, deadline: Instant) {
        match (&mut self.terminals, &self.tail) {
            (Some(terminals), _) => terminals.finish(deadline),
            (None, Some(tail)) => tail.finish(std::time::Duration::ZERO, deadline),
            // Ended before their time.
            (None, None) => self.feed(Event::Drained { complete: false }),
        }
    }

    fn terminals_ended(&mut self) {
        let Some(terminals) = self.terminals.take() else { return };
        self.warnings.extend(terminals.warnings());
        match (terminals.deadline, &self.tail) {
            (Some(deadline), Some(_)) => self.drain(deadline),
            (Some(_), None) => self.feed(Event::Drained { complete: true }),
            (None, _) => {}
        }
    }

    fn logs_ended(&mut self) {
        let Some(tail) = self.tail.take() else { return };
        let outcome = tail.wait(Instant::now());
        let complete = match &outcome {
            // It was said when it happened, and the console is complete.
            DrainOutcome::Complete | DrainOutcome::Incomplete { why: IncompleteDrain::FilteredFailed { .. } } => true,
            DrainOutcome::Incomplete { why: why @ IncompleteDrain::FilteredLate { .. } } => {
                self.warn(format!("not all chosen lines were written: {why}"));
                true
            }
            DrainOutcome::Incomplete { why } => {
                self.warn(why.said().unwrap_or_else(|| format!("not all output was shown: {why}")));
                false
            }
        };
        // One whose thread hangs is dropped now, so that it ends when it can.
        let hangs = matches!(outcome, DrainOutcome::Incomplete { why: IncompleteDrain::StillRunning });
        self.ended_tail = Some(tail).filter(|_| !hangs);
        self.feed(Event::Drained { complete });
    }

    /// Tells the machine what happened and does what it answers.
    fn feed(&mut self, event: Event) {
        let (told_before, reason_before) = (self.machine.tells_to_end(), self.machine.reason());
        let actions = self.machine.step(Instant::now(), event);
        if !told_before && self.machine.tells_to_end() {
            self.stop_began = Some(SystemTime::now());
        }
        if let (None, Some(reason)) = (reason_before, self.machine.reason()) {
            self.events.tell(GroupEventKind::StopBegan { reason });
        }
        for action in actions {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        let sent = match action {
            Action::Signal { local_rank, signal } => self.signal(local_rank, signal, false),
            Action::SignalGroup { local_rank, signal } => self.signal(local_rank, signal, true),
            Action::CheckLeftovers => return self.check_leftovers(),
            Action::FindStrays => return self.find_strays(),
            Action::SignalStrays { signal } => return self.signal_strays(signal),
            Action::CheckDrain => return self.check_drain(),
            Action::Drain { deadline } => return self.drain(deadline),
            Action::LookForProgress => return self.look_for_progress(),
            Action::NoteStall { quiet } => return self.note_stall(quiet),
            Action::Publish => {
                // Before the result is known, so that nothing outlives the group.
                let keep = self.machine.reason().is_none() && self.spec.stop_policy.descendants == Descendants::Keep;
                let workers = self.workers();
                self.family.end(keep, &workers);
                self.finish_logs();
                return self.publish(self.result());
            }
        };
        if let Err(error) = sent {
            self.warn(error.to_string());
        }
    }

    /// The last step with the log files. It may copy the ends of long ones; nobody is left to be supervised meanwhile.
    fn finish_logs(&mut self) {
        let deadline = Instant::now() + self.spec.stop_policy.drain;
        for warning in self.log_files.as_mut().map_or(Vec::new(), |files| files.finish(deadline)) {
            self.warn(warning);
        }
        if let (Some(signs), None) = (&self.signs, &self.stall) {
            signs.remove_heartbeats();
        }
    }

    fn warn(&mut self, warning: String) {
        // Some repeat with every look.
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn result_unknown(&self) -> RunProcsResult {
        let mut result = RunProcsResult::unknown(self.spec.local_world_size());
        result.warnings.clone_from(&self.warnings);
        result
    }

    fn result(&self) -> RunProcsResult {
        let facts = self.slots.map(|_, slot| slot.facts.clone());
        let place = |rank: usize| self.spec.placements[rank].current_dir.as_deref();
        let logs = Logs {
            dest: &self.dest,
            unsaved: self.unsaved.as_ref(),
            tail: self.ended_tail.as_ref(),
            incomplete: self.log_files.as_ref().is_some_and(LogFiles::are_in_doubt),
        };
        let mut result = report::result(&self.machine, &facts, &logs, self.stop_began, &self.evidence, place);
        result.warnings.clone_from(&self.warnings);
        result.stall.clone_from(&self.stall);
        if self.machine.gave_up_strays() {
            result.left_behind = self.family.names();
        }
        result
    }
}

/// epoll's timeout in milliseconds, rounded up so that the thread never wakes before its time.
fn timeout(wake_at: Option<Instant>, now: Instant) -> EpollTimeout {
    let Some(wake_at) = wake_at else { return EpollTimeout::NONE };
    let micros = wake_at.saturating_duration_since(now).as_micros();
    let millis = i32::try_from(micros.div_ceil(1000)).unwrap_or(i32::MAX);
    EpollTimeout::try_from(millis).unwrap_or(EpollTimeout::MAX)
}
