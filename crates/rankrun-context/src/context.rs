//! The handle to a group: [`PContext`]. Not here: the thread behind it (`driver`).

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::raise;
use nix::sys::time::TimeSpec;
use parking_lot::Mutex;
use rankrun_errors::SignalException;
use rankrun_process::{Orphans, SignalWatcher, WatchError};
use rankrun_types::{PerRank, Signal};

use crate::driver::Driver;
use crate::error::{StartError, WaitError};
use crate::outcome::RunProcsResult;
use crate::policy::StopPolicy;
use crate::program::Program;
use crate::signals::{Meaning, SignalPlan};
use crate::spec::GroupSpec;

/// How long to wait for the workers to be stopped before this program stops itself.
const SUSPEND_PATIENCE: Duration = Duration::from_secs(2);

/// What the handle asks of the driver.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    /// Stop the group.
    Stop { signal: Signal, grace: Duration },
    /// Stop the group if it is still being started; a group that runs takes no notice.
    AbortStart { signal: Signal, grace: Duration },
    /// Pass a signal to the workers.
    Forward { signal: Signal },
    /// Stop the workers as by Ctrl-Z, and say when that is done.
    Suspend { done: Sender<()> },
    /// Let suspended workers go on.
    Resume,
    /// Reap adopted orphans that have ended.
    ReapOrphans,
}

/// What the handle and the driver share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Wakes the driver when a request waits.
    pub(crate) requests: EventFd,
    /// Readable from the moment that it is known how the start went; never read.
    started: EventFd,
    /// Readable from the moment that the result is there; never read.
    done: EventFd,
    result: Mutex<Option<Arc<RunProcsResult>>>,
}

impl Shared {
    fn new(name: &str) -> Result<Self, StartError> {
        let event =
            || {
                EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
                    .map_err(|errno| StartError::Driver { name: name.to_owned(), what: "eventfd", errno: errno as i32 })
            };
        Ok(Self { requests: event()?, started: event()?, done: event()?, result: Mutex::new(None) })
    }

    pub(crate) fn is_done(&self) -> bool {
        self.result.lock().is_some()
    }

    pub(crate) fn say_started(&self) {
        let _ = self.started.write(1);
    }

    /// Makes the result known; a second one is ignored.
    pub(crate) fn publish(&self, result: RunProcsResult) {
        let mut slot = self.result.lock();
        if slot.is_none() {
            *slot = Some(Arc::new(result));
            let _ = self.done.write(1);
        }
    }
}

/// Publishes a result of unknown state if the driver ends without one, so that nobody waits for ever.
struct LastResort {
    shared: Arc<Shared>,
    local_world_size: usize,
}

impl Drop for LastResort {
    fn drop(&mut self) {
        if !self.shared.is_done() {
            self.shared.publish(RunProcsResult::unknown(self.local_world_size));
        }
        self.shared.say_started();
    }
}

/// A group of workers: start it, ask for its result, wait for it, end it. Mirrors torch's `PContext`.
///
/// A handle to a thread that supervises the group whether or not anyone asks. The result comes once and stays the
/// same. As a file descriptor ([`AsFd`]) the context becomes readable when the result is there, so that any event loop
/// can wait for it. Dropping it stops the group as [`close`](Self::close) does and waits for the end.
///
/// ```
/// use rankrun_context::{Entrypoint, GroupSpec, PContext};
/// use rankrun_logs::DefaultLogsSpecs;
/// use rankrun_redirects::Std;
/// use rankrun_types::PerRank;
///
/// let logs = DefaultLogsSpecs::new(None, Std::ALL, Std::NONE);
/// let args = PerRank::from_fn(2, |local_rank| vec!["-c".into(), format!("echo {local_rank}").into()]);
/// let envs = PerRank::from_fn(2, |_| Default::default());
/// let spec = GroupSpec::new("trainer", Entrypoint::binary("sh"), args, envs, std::sync::Arc::new(logs))?;
/// let mut context = PContext::new(spec)?;
/// context.start()?;
/// let result = context.wait(None)?.expect("a wait without timeout ends with a result");
/// assert!(!result.is_failed());
/// assert_eq!(std::fs::read_to_string(result.stdouts[1].as_ref().unwrap())?, "1\n");
/// # std::fs::remove_dir_all(result.stdouts[1].as_ref().unwrap().ancestors().nth(4).unwrap())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PContext {
    name: String,
    cookie: String,
    stop_policy: StopPolicy,
    /// Taken by [`start`](Self::start).
    spec: Option<GroupSpec>,
    local_world_size: usize,
    shared: Arc<Shared>,
    requests: Sender<Request>,
    /// Taken by [`start`](Self::start).
    receiver: Option<Receiver<Request>>,
    thread: Option<JoinHandle<()>>,
    pids: Option<PerRank<u32>>,
    stop_requested: AtomicBool,
    orphans: Orphans,
    watcher: Option<SignalWatcher>,
    plan: SignalPlan,
    /// Signals that were read and not acted on yet.
    kept_signals: Mutex<VecDeque<Signal>>,
}

impl PContext {
    /// Makes a context of a group that is not started yet.
    ///
    /// # Errors
    /// [`StartError::Driver`] if the kernel gives no file descriptors.
    pub fn new(spec: GroupSpec) -> Result<Self, StartError> {
        let shared = Arc::new(Shared::new(&spec.name)?);
        let (requests, receiver) = unbounded();
        Ok(Self {
            name: spec.name.clone(),
            cookie: new_cookie(),
            stop_policy: spec.stop_policy,
            local_world_size: spec.local_world_size(),
            orphans: spec.orphans,
            spec: Some(spec),
            shared,
            requests,
            receiver: Some(receiver),
            thread: None,
            pids: None,
            stop_requested: AtomicBool::new(false),
            watcher: None,
            plan: SignalPlan::default(),
            kept_signals: Mutex::default(),
        })
    }

    /// Starts all workers and returns when each runs its program.
    ///
    /// All or nothing: if one cannot be started, those before it are killed and reaped before the error returns.
    /// Blocks for about half a millisecond a worker. A watched signal that stops ends the start between two workers.
    ///
    /// # Errors
    /// [`StartError`], which names the rank, the program, the step and the errno; [`StartError::Stopped`] after a signal.
    pub fn start(&mut self) -> Result<(), StartError> {
        let (Some(spec), Some(receiver)) = (self.spec.take(), self.receiver.take()) else {
            return Err(StartError::AlreadyStarted { name: self.name.clone() });
        };
        let program = Program::prepare(&spec.entrypoint, self.local_world_size)
            .map_err(|source| StartError::Function { name: self.name.clone(), source })?;
        let (sender, started) = bounded(1);
        let (shared, cookie) = (Arc::clone(&self.shared), self.cookie.clone());
        let last_resort = LastResort { shared: Arc::clone(&self.shared), local_world_size: self.local_world_size };
        let thread = std::thread::Builder::new().name("rankrun-driver".to_owned()).spawn(move || {
            let _last_resort = last_resort;
            match Driver::new(spec, shared, receiver, cookie) {
                Ok(driver) => driver.run(program, &sender),
                Err(error) => drop(sender.send(Err(error))),
            }
        });
        let refused = |errno| StartError::Driver { name: self.name.clone(), what: "thread", errno };
        let thread = thread.map_err(|error| refused(error.raw_os_error().unwrap_or(Errno::EAGAIN as i32)))?;
        self.thread = Some(thread);
        let mut signals = Vec::new();
        loop {
            if self.is_readable(&self.shared.started, None) {
                break;
            }
            if let Some(signal) = self.next_signal() {
                self.request(Request::AbortStart { signal, grace: self.stop_policy.grace });
                signals.push(signal);
            }
        }
        match started.recv() {
            Ok(Ok(pids)) => {
                log::debug!("group `{}`: {} workers run: pids {:?}", self.name, pids.len(), pids.values());
                self.pids = Some(pids);
                // They came too late to end the start: the caller is to hear of each.
                self.kept_signals.lock().extend(signals);
                Ok(())
            }
            Ok(Err(mut error)) => {
                if let StartError::Stopped { signal, .. } = &mut error {
                    *signal = signals.first().copied();
                }
                self.join();
                Err(error)
            }
            // The driver panicked; its last resort has published a result.
            Err(_) => Err(refused(Errno::ECANCELED as i32)),
        }
    }

    /// The group's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The cookie that all processes of the group carry in their environment as `RANKRUN_GROUP`.
    #[must_use]
    pub fn cookie(&self) -> &str {
        &self.cookie
    }

    /// The process ids of the workers, for showing; `None` until the group was started. Mirrors `pids`.
    #[must_use]
    pub fn pids(&self) -> Option<&PerRank<u32>> {
        self.pids.as_ref()
    }

    /// The result, or `None` while workers run or before they were started. Never blocks. Mirrors `poll`.
    #[must_use]
    pub fn poll(&self) -> Option<Arc<RunProcsResult>> {
        self.shared.result.lock().clone()
    }

    /// Waits for the result, at most for `timeout` (`None`: as long as it takes), and returns `None` when that is over.
    /// Mirrors `wait`; there is no `period`, because nothing is polled.
    ///
    /// # Errors
    /// [`WaitError::Signal`] if signals are watched ([`watch_signals`](Self::watch_signals)) and one came; the group
    /// goes on, and the caller closes it, passes the signal on, or waits again. [`WaitError::NotStarted`] if no result
    /// can ever come.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<Arc<RunProcsResult>>, WaitError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(result) = self.poll() {
                log::debug!("group `{}`: {}: {:?}", self.name, result.state, result.workers.values());
                return Ok(Some(result));
            }
            if self.thread.is_none() {
                return Err(WaitError::NotStarted { name: self.name.clone() });
            }
            if let Some(signal) = self.next_signal() {
                return Err(SignalException::new(format!("this launcher got {signal}"), signal).into());
            }
            if !self.is_readable(&self.shared.done, deadline) && deadline.is_some_and(|d| d <= Instant::now()) {
                return Ok(self.poll());
            }
        }
    }

    /// Blocks until the event is there, a signal came, or the time is over, and says whether the event is there.
    fn is_readable(&self, event: &EventFd, deadline: Option<Instant>) -> bool {
        let mut fds = vec![PollFd::new(event.as_fd(), PollFlags::POLLIN)];
        fds.extend(self.watcher.as_ref().map(|watcher| PollFd::new(watcher.as_fd(), PollFlags::POLLIN)));
        let left = deadline.map(|deadline| TimeSpec::from(deadline.saturating_duration_since(Instant::now())));
        // An error is EINTR: look again.
        ppoll(&mut fds, left, None).is_ok_and(|ready| ready > 0 && fds[0].any() == Some(true))
    }

    /// The next watched signal that means a stop. Those that mean something else are acted on here.
    fn next_signal(&self) -> Option<Signal> {
        while let Some(signal) = self.read_signal() {
            log::debug!("group `{}`: this program got {signal}", self.name);
            match self.plan.meaning(signal) {
                Meaning::Stop => return Some(signal),
                Meaning::Forward => self.forward_signal(signal),
                Meaning::Suspend => self.suspend_with_workers(),
                Meaning::Resume => self.request(Request::Resume),
                Meaning::Child => self.request(Request::ReapOrphans),
                Meaning::Nothing => {}
            }
        }
        None
    }

    fn read_signal(&self) -> Option<Signal> {
        let kept = self.kept_signals.lock().pop_front();
        kept.or_else(|| self.watcher.as_ref().and_then(SignalWatcher::try_read))
    }

    /// Whether somebody wants this program to go on. Other signals that came are kept for later.
    fn is_told_to_go_on(&self) -> bool {
        let mut kept = self.kept_signals.lock();
        kept.extend(std::iter::from_fn(|| self.watcher.as_ref().and_then(SignalWatcher::try_read)));
        let Some(last) = kept.iter().rposition(|signal| *signal == Signal::CONT) else { return false };
        // What was to stop it before that is over and done with.
        let mut place = 0;
        kept.retain(|signal| {
            place += 1;
            place > last + 1 || !matches!(*signal, Signal::TSTP | Signal::CONT)
        });
        true
    }

    /// Stops the workers, then this program, and lets the workers go on when it does.
    fn suspend_with_workers(&self) {
        let (done, suspended) = bounded(1);
        self.request(Request::Suspend { done });
        // Without a driver nothing is there to be stopped. The driver answers at once, unless it starts a worker.
        let _ = suspended.recv_timeout(SUSPEND_PATIENCE);
        // A SIGCONT that has come already would not come again.
        if !self.is_told_to_go_on() {
            // Returns when somebody sends SIGCONT.
            let _ = raise(nix::sys::signal::Signal::SIGSTOP);
        }
        self.request(Request::Resume);
    }

    /// Catches these signals to this program from now on, so that [`wait`](Self::wait) returns them as errors.
    ///
    /// [`watch`](Self::watch) with a plan of which all signals stop.
    ///
    /// # Errors
    /// As [`watch`](Self::watch).
    pub fn watch_signals(&mut self, signals: &[Signal]) -> Result<(), WatchError> {
        self.watch(SignalPlan::default().stop(signals.iter().copied()))
    }

    /// Catches the plan's signals to this program from now on.
    ///
    /// Those that stop come out of [`wait`](Self::wait) as [`WaitError::Signal`]; during [`close`](Self::close) they kill
    /// at once; the others are acted on inside `start`, `wait` and `close`. Handlers that the program has installed are
    /// called as well, and are back alone when the context is dropped. A signal that is ignored now stays ignored.
    /// Nothing is caught unless this is called.
    ///
    /// # Errors
    /// [`WatchError`], for example if another context watches signals.
    pub fn watch(&mut self, plan: SignalPlan) -> Result<(), WatchError> {
        let plan = plan.children(self.orphans != Orphans::Leave);
        self.watcher = None;
        self.watcher = Some(SignalWatcher::new(&plan.signals())?);
        self.plan = plan;
        Ok(())
    }

    /// Watches from now on what another context of this program watches, which no longer does.
    ///
    /// Not for a moment is a signal without a watcher, and one that came and was not acted on is not lost. So a program
    /// that runs one group after the other misses none between them. Without a watch over there nothing changes here.
    pub fn take_watch(&mut self, other: &mut Self) {
        let Some(watcher) = other.watcher.take() else { return };
        self.watcher = Some(watcher);
        self.plan = std::mem::take(&mut other.plan);
        self.kept_signals.lock().append(&mut other.kept_signals.lock());
    }

    /// Waits for `timeout` without a look at the group; for a pause before the next one.
    ///
    /// Watched signals are acted on as in [`wait`](Self::wait).
    ///
    /// # Errors
    /// [`SignalException`], at once, if a watched signal that stops came.
    pub fn pause(&self, timeout: Duration) -> Result<(), SignalException> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Some(signal) = self.next_signal() {
                return Err(SignalException::new(format!("this launcher got {signal}"), signal));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(());
            }
            let watcher = self.watcher.as_ref().map(|watcher| PollFd::new(watcher.as_fd(), PollFlags::POLLIN));
            let mut fds: Vec<PollFd<'_>> = watcher.into_iter().collect();
            // An error is EINTR: look again.
            let _ = ppoll(&mut fds, left.map(TimeSpec::from), None);
        }
    }

    /// Asks for the end of the group and returns at once; `close` without the wait.
    ///
    /// Each worker gets `death_signal` and the group has `grace` until SIGKILL. A second request kills at once, as does
    /// SIGKILL. After the result it does nothing.
    pub fn request_stop(&self, death_signal: Signal, grace: Duration) {
        self.stop_requested.store(true, Ordering::Release);
        log::debug!("group `{}`: asked to stop with {death_signal} and {grace:?} of grace", self.name);
        self.request(Request::Stop { signal: death_signal, grace });
    }

    /// Passes a signal to each worker that runs and returns at once; the group goes on, unless the signal ends it.
    pub fn forward_signal(&self, signal: Signal) {
        self.request(Request::Forward { signal });
    }

    fn request(&self, request: Request) {
        // A driver that has ended needs no request.
        if self.requests.send(request).is_ok() {
            let _ = self.shared.requests.write(1);
        }
    }

    /// Ends the group and waits until it has ended. Mirrors `close`.
    ///
    /// `death_signal`: the policy's unless given; `timeout`: how long the group has until SIGKILL. Bounded: `timeout`
    /// and then the policy's waits for SIGKILL and the logs. Idempotent: after the result it returns that. Returns
    /// `None` if the group was never started.
    pub fn close(&self, death_signal: Option<Signal>, timeout: Duration) -> Option<Arc<RunProcsResult>> {
        if self.thread.is_some() && !self.shared.is_done() {
            self.request_stop(death_signal.unwrap_or(self.stop_policy.death_signal), timeout);
            while !self.shared.is_done() {
                self.is_readable(&self.shared.done, None);
                if self.next_signal().is_some() {
                    self.request_stop(Signal::KILL, Duration::ZERO);
                }
            }
        }
        self.poll()
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic has been seen by the last resort.
            let _ = thread.join();
        }
    }
}

impl AsFd for PContext {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.done.as_fd()
    }
}

impl AsRawFd for PContext {
    fn as_raw_fd(&self) -> RawFd {
        self.shared.done.as_fd().as_raw_fd()
    }
}

impl Drop for PContext {
    fn drop(&mut self) {
        if self.thread.is_none() {
            return;
        }
        if std::thread::panicking() {
            self.request_stop(Signal::KILL, Duration::ZERO);
        } else if !self.stop_requested.load(Ordering::Acquire) {
            self.request_stop(self.stop_policy.death_signal, self.stop_policy.grace);
        }
        self.join();
    }
}

/// 128 random bits in hexadecimal: no other group, now or later, has the same.
fn new_cookie() -> String {
    // Each RandomState is seeded by the system's random numbers.
    let bits = || RandomState::new().build_hasher().finish();
    let time =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    format!("{:016x}{:016x}", bits() ^ time.rotate_left(32), RandomState::new().hash_one(time))
}
