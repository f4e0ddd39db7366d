//! What is noticed and told of a run beside its output: the arguments, what they mean, and the records of a run
//! ([`Records`]). Not here: noticing it (`rankrun`), what is in the records (`rankrun-launcher`).

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use rankrun::{DumpStep, Signal, StallPolicy, StartError, StartProcessesError, env};
use rankrun_launcher::{
    Attempt, Decision, EventFeed, EventLog, EventLogError, EventTarget, Observer, RecordState, Recorder,
    RunDescription, RunEnd, Started,
};

use crate::plan::Plan;
use crate::values::parse_seconds;

/// The arguments about failures and stalls.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Failures and records")]
pub(crate) struct RecordArgs {
    /// How long after the first failure workers that are failing too have until the others are stopped, 0 for not at all
    #[arg(long, value_name = "SECONDS", default_value = "0.05", value_parser = parse_seconds)]
    pub(crate) settle_time: Duration,

    /// Stops the run as failed when no worker has written captured output, or touched the file in its
    /// RANKRUN_HEARTBEAT_FILE, for this long: --dump-signal (SIGABRT unless given), then as after a failure [default: 0, never]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) stall_timeout: Option<Duration>,

    /// Writes a line of JSON for each thing that happens (started, exited, signal, restart, result, ...) to a file, a named
    /// pipe, or - for standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) events: Option<PathBuf>,
}

/// How long whoever reads the events has at the end of the run.
const EVENTS_PATIENCE: Duration = Duration::from_secs(2);

/// What is written down of a run while it goes on: `result.json` and the event log.
#[derive(Debug)]
pub(crate) struct Records {
    recorder: Recorder,
    events: Option<EventLog>,
}

impl Records {
    /// Opens the event log, if there is to be one.
    pub(crate) fn open(plan: &Plan) -> Result<Self, EventLogError> {
        let launch = &plan.launch;
        let rank = |envs: &[(&str, OsString)]| {
            let (_, rank) = envs.iter().find(|(name, _)| *name == env::RANK)?;
            rank.to_str()?.parse().ok()
        };
        let run = RunDescription {
            run_id: launch.run_id().to_owned(),
            role: launch.role().to_owned(),
            command: std::iter::once(launch.program().to_owned()).chain(launch.args().to_vec()).collect(),
            ranks: launch.envs().map(|local_rank, envs| rank(envs).unwrap_or(local_rank)),
            nodes: launch.topology().nodes,
            node_rank: launch.topology().node_rank,
            restart_count: launch.topology().restart_count,
        };
        let target = plan.events.as_deref().map(|path| match path == OsStr::new("-") {
            true => EventTarget::Stdout,
            false => EventTarget::File(path.to_owned()),
        });
        let first_attempt = launch.topology().restart_count;
        let events = target.map(|target| EventLog::open(&target, &run, first_attempt)).transpose()?;
        Ok(Self { recorder: Recorder::new(run), events })
    }

    /// What the groups of the run are to tell, if anything.
    pub(crate) fn feed(&self) -> Option<EventFeed> {
        self.events.as_ref().map(EventLog::feed)
    }

    /// Writes down the end of a run. `run_dir`: where it stays, if it does.
    pub(crate) fn finish(mut self, end: RunEnd, run_dir: Option<PathBuf>) {
        self.recorder.end(end.clone());
        if let Some(events) = self.events {
            events.finish(self.recorder.record().state, &end, EVENTS_PATIENCE);
        }
        if run_dir.is_some() {
            self.recorder.finish(run_dir);
        }
    }
}

impl Observer for Records {
    fn started(&mut self, started: &Started<'_>) {
        self.recorder.started(started);
    }

    fn ended(&mut self, attempt: &Attempt, next: &Decision) {
        self.recorder.ended(attempt, next);
        if let Some(events) = &mut self.events {
            events.ended(attempt, next);
        }
    }
}

/// The end of a run whose workers could not be started.
pub(crate) fn not_started(error: &StartProcessesError, exit_code: u8) -> RunEnd {
    let (state, stop_signal) = match error {
        StartProcessesError::Start(StartError::Stopped { signal, .. }) => (RecordState::Stopped, *signal),
        _ => (RecordState::Failed, None),
    };
    RunEnd { state: Some(state), exit_code: Some(exit_code), stop_signal, error: Some(error.to_string()) }
}

impl RecordArgs {
    /// When the run counts as stalled; `None` for never.
    pub(crate) fn stall_policy(&self, dump_signal: Option<Signal>, dump_timeout: Duration) -> Option<StallPolicy> {
        let timeout = self.stall_timeout.filter(|timeout| !timeout.is_zero())?;
        let StallPolicy { dump, .. } = StallPolicy::new(timeout);
        let dump = DumpStep { signal: dump_signal.unwrap_or(dump.signal), timeout: dump_timeout };
        Some(StallPolicy { timeout, dump })
    }
}

/// What is said when the watch for stalls cannot see what workers write.
pub(crate) const BLIND_WATCH: &str = "--stall-timeout sees no output, because none goes to files (see --redirects and --tee): it begins with the first \
     heartbeat (RANKRUN_HEARTBEAT_FILE)";
