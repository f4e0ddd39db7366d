//! Carrying out a [`Plan`]: run the attempts, report, clean up. Not here: how they are run (`rankrun-launcher`, `rankrun`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use rankrun::crates::errors::{get_error_handler, record_child_failure};
use rankrun::{
    Cause, ChildFailedError, DefaultLogsSpecs, Limit, Orphans, Placement, ProcessFailure, Resource, RunProcsResult,
    RunState, Signal, Stall, StartProcessesError, WorkerGroup,
};
use rankrun_launcher::{
    Attempt, Decision, EventFeed, Observer, Outcome, RecordState, RunEnd, Started, Topology, Verdict,
};

use crate::console::{self, say};
use crate::placement;
use crate::places;
use crate::plan::Plan;
use crate::records::{self, Records};
use crate::stall_report::{self, Tail, stall_report};
use crate::status_line;
use crate::{above, exit_code};

/// Runs the group, again if need be, and returns the exit code.
pub(crate) fn run(plan: Plan) -> u8 {
    // All workers have the same.
    if let Err(refused) = places::chdir(plan.placements[0].current_dir.as_deref()) {
        return above::failed(exit_code::USAGE, &refused.to_string());
    }
    if let Some(what) = plan.launch.disagreement() {
        say(&what);
        return exit_code::USAGE;
    }
    let (log_dir, color) = (plan.log_dir.clone(), plan.output.colors_stderr());
    let records = match Records::open(&plan) {
        Ok(records) => records,
        Err(error) => {
            let refused = places::events(&error);
            let code = if refused.is_some() { exit_code::USAGE } else { exit_code::LAUNCHER_FAILED };
            return above::failed(code, &refused.map_or_else(|| error.to_string(), |refused| refused.to_string()));
        }
    };
    for warning in &plan.warnings {
        log::warn!("{warning}");
    }
    for note in &plan.notes {
        say(note);
    }
    let launch = shaped(plan, records.feed());
    let logs = launch.logs();
    let mut console = Console { plan: &launch, records, warnings: 0, restarts: 0 };
    let ended = launch.run(&mut console);
    let records = console.records;
    // What nobody needs goes: a temporary directory without output, and that of a start that failed.
    let (code, end, is_needed, watch) = match ended {
        Ok(outcome) => {
            let code = report(&launch, &outcome, color);
            (code, end_of(&outcome, code), code != exit_code::SUCCESS || launch.captures_output(), outcome.watch)
        }
        Err(error) => {
            let log_dir = log_dir.as_deref().filter(|_| error.attempts.is_empty());
            let refused = log_dir.and_then(|dir| places::log_dir(dir, &error.source));
            let code = match &*error.source {
                _ if refused.is_some() => exit_code::USAGE,
                StartProcessesError::Start(error) => exit_code::of_start_error(error),
                _ => exit_code::LAUNCHER_FAILED,
            };
            let mut end = records::not_started(&error.source, code);
            end.error = refused.map(|refused| refused.to_string()).or(end.error);
            if let (Some(RecordState::Failed), Some(message)) = (end.state, &end.error) {
                above::tell(code, message, "");
            }
            // What failed before has its files.
            (code, end, !error.attempts.is_empty(), error.watch)
        }
    };
    let (is_kept, error) = (log_dir.is_some() || is_needed, end.error.clone());
    records.finish(end, logs.run_dir().filter(|_| is_kept));
    if !is_kept {
        discard(logs);
    }
    if let Some(error) = error {
        say(&error);
    }
    if let (true, false, Some(dir)) = (is_kept, log_dir.is_some(), logs.run_dir()) {
        logs.keep_run_dir();
        // Unless somebody has deleted it meanwhile.
        if dir.is_dir() {
            say(&format!("run directory: {}", dir.display()));
        }
    }
    // A signal to stop that came meanwhile has let the report be whole; whoever sent it hears of it by the code. To the
    // last moment a signal ends rankrun by a code, or not at all.
    watch.keep().map_or(code, exit_code::of_signal)
}

/// Shows what would be run, and returns the exit code.
pub(crate) fn show(plan: &Plan) -> u8 {
    for warning in &plan.warnings {
        log::warn!("{warning}");
    }
    for note in &plan.notes {
        say(note);
    }
    if let Err(refused) = places::chdir(plan.placements[0].current_dir.as_deref()) {
        say(&refused.to_string());
        return exit_code::USAGE;
    }
    console::show(&format!("{}{}", plan.launch, placement::describe(&plan.placements)))
}

/// The end of a run that was reported with this exit code.
fn end_of(outcome: &Outcome, code: u8) -> RunEnd {
    let state = matches!(outcome.verdict, Verdict::Interrupted { .. }).then_some(RecordState::Stopped);
    RunEnd { state, exit_code: Some(code), stop_signal: outcome.signal, error: None }
}

/// What is run, with all that is to be said of each attempt's group.
fn shaped(plan: Plan, feed: Option<EventFeed>) -> rankrun_launcher::Plan {
    let Plan { launch, log_max_size, stall_policy, control_group, placements, output, status_line, .. } = plan;
    let (attempts, max_restarts) = (AtomicU32::new(0), launch.restart().max_restarts);
    if status_line {
        console::share_last_row();
    }
    let open_files = raise_open_files();
    launch.shape(move |group: WorkerGroup| {
        let group = group
            .placements(|local_rank| with_open_files(&placements[local_rank], open_files))
            // This program starts nothing but the group.
            .orphans(Orphans::Own)
            .guardian(true)
            .control_group(control_group);
        let group = match log_max_size {
            Some(size) => group.log_max_size(size),
            None => group,
        };
        let group = match stall_policy {
            Some(policy) => group.stall_policy(policy),
            None => group,
        };
        let attempt = attempts.fetch_add(1, Ordering::Relaxed);
        let group = match status_line {
            true => group.status_line(move |status| status_line::text(status, attempt, max_restarts)),
            false => group,
        };
        let group = match &feed {
            Some(feed) => group.events(feed.next_attempt()),
            None => group,
        };
        output.apply(group)
    })
}

/// Tells of attempts on the console, and to the records.
struct Console<'a> {
    plan: &'a rankrun_launcher::Plan,
    records: Records,
    /// How many warnings about logs have been shown.
    warnings: usize,
    restarts: u32,
}

impl Observer for Console<'_> {
    fn started(&mut self, started: &Started<'_>) {
        self.records.started(started);
        if let Some(what) = self.plan.disagreement() {
            log::warn!("{what}: the job will not have succeeded");
        }
        let warnings = self.plan.logs().warnings();
        for warning in warnings.iter().skip(self.warnings) {
            log::warn!("{warning}");
        }
        self.warnings = warnings.len();
    }

    fn ended(&mut self, attempt: &Attempt, next: &Decision) {
        self.records.ended(attempt, next);
        warn(self.plan, &attempt.result);
        let Decision::Restart { at } = next else { return };
        self.restarts += 1;
        let failure = ChildFailedError::new(self.plan.role(), failures(self.plan.topology(), &attempt.result));
        let failure = failure.map(|error| error.with_host(host_name()).to_string()).unwrap_or_default();
        let what = failure.lines().next().unwrap_or("the group failed");
        let pause = at.saturating_duration_since(std::time::Instant::now()).as_secs_f64();
        let when = if pause >= 0.05 { format!("in {pause:.1} s") } else { "now".to_owned() };
        say(&format!("{what}; restart {} of {} {when}", self.restarts, self.plan.restart().max_restarts));
    }
}

/// Lets rankrun hold a descriptor for each of many workers; says what the limits were, if they are other now.
fn raise_open_files() -> Option<(Limit, Limit)> {
    match rankrun::crates::process::raise_open_files() {
        Ok((soft, hard)) => (soft != hard).then_some((soft, hard)),
        Err(error) => {
            log::debug!("{error}");
            None
        }
    }
}

/// The placement with the limits on open files that rankrun was started with, unless it has some of its own.
fn with_open_files(placement: &Placement, open_files: Option<(Limit, Limit)>) -> Placement {
    let mut placement = placement.clone();
    if let Some((soft, hard)) = open_files {
        // Of two for the same resource the later holds: what was asked for.
        placement.limits.insert(0, (Resource::Nofile, soft, hard));
    }
    placement
}

/// Tells what is wrong beside the workers' failures.
fn warn(plan: &rankrun_launcher::Plan, result: &RunProcsResult) {
    for warning in &result.warnings {
        log::warn!("{warning}");
    }
    for (local_rank, worker) in result.workers.iter().filter(|(_, worker)| worker.cause == Cause::Abandoned) {
        let pid = worker.pid.unwrap_or(0);
        let rank = plan.topology().rank(local_rank);
        say(&format!("rank {rank} (pid {pid}), or a process of its group, is still there after SIGKILL"));
    }
    for (pid, name) in &result.left_behind {
        say(&format!("process {pid} ({name}), which a worker had started, is still there after SIGKILL"));
    }
    if let Some(stall) = &result.stall {
        console::print(&stalled(plan, result, stall));
    }
}

fn stalled(plan: &rankrun_launcher::Plan, result: &RunProcsResult, stall: &Stall) -> String {
    stall_report(plan.role(), &host_name(), stall, &tails(plan.topology(), result))
}

/// What the workers had written last whose failures are not reported with it.
fn tails<'a>(topology: &Topology, result: &'a RunProcsResult) -> Vec<Tail<'a>> {
    let told = |local_rank: &usize| result.failures.contains_key(local_rank);
    let workers = result.workers.iter().filter(|(local_rank, _)| !told(local_rank));
    let tails = workers.filter_map(|(local_rank, worker)| {
        Some(Tail { rank: topology.rank(local_rank), stream: worker.tail_stream?, lines: &worker.tail })
    });
    tails.collect()
}

/// Tells what became of the run and returns the exit code that says the same.
fn report(plan: &rankrun_launcher::Plan, outcome: &Outcome, color: bool) -> u8 {
    if let Verdict::Interrupted { signal } = outcome.verdict {
        say(&format!("stopped by {signal} before the next attempt"));
        return exit_code::of_signal(signal);
    }
    let code = report_attempt(plan, &outcome.last().result, outcome.signal, color);
    if plan.restart().max_restarts > 0 && outcome.last().result.state == RunState::Failed {
        say(&format!("not started again: {}", outcome.verdict));
    }
    code
}

/// The failures by the workers' ranks in the job.
fn failures(topology: &Topology, result: &RunProcsResult) -> BTreeMap<usize, ProcessFailure> {
    result.failures.iter().map(|(local_rank, failure)| (topology.rank(*local_rank), failure.clone())).collect()
}

fn report_attempt(plan: &rankrun_launcher::Plan, result: &RunProcsResult, signal: Option<Signal>, color: bool) -> u8 {
    match result.state {
        // A worker that had recorded its failure before is the reason, and is reported below.
        RunState::Failed if result.stall.is_some() && result.failures.is_empty() => {
            if let Some(stall) = &result.stall {
                above::tell(exit_code::STALLED, &stall_report::message(stall), &stalled(plan, result, stall));
            }
            exit_code::STALLED
        }
        RunState::Succeeded => exit_code::SUCCESS,
        RunState::Stopped => match signal {
            Some(signal) => {
                say(&format!("stopped by {signal}"));
                exit_code::of_signal(signal)
            }
            None => exit_code::LAUNCHER_FAILED,
        },
        RunState::Failed => match ChildFailedError::new(plan.role(), failures(plan.topology(), result)) {
            Ok(error) => {
                let stopped = result.workers.iter().filter(|(_, worker)| worker.cause == Cause::Collateral);
                let error = error
                    .with_host(host_name())
                    .with_stopped(stopped.map(|(local_rank, _)| plan.topology().rank(local_rank)));
                console::print(&error.report().with_color(color).to_string());
                // For the launcher above, if this one is a worker itself.
                if let Err(error) = record_child_failure(&*get_error_handler(), &error) {
                    log::warn!("{error}");
                }
                let (_, failure) = error.get_first_failure();
                // How it ended tells of rankrun's own signal then, not of its failure.
                if failure.stopped { exit_code::FAILED_BEFORE_STOP } else { failure.exit.shell_code() }
            }
            Err(error) => above::failed(exit_code::LAUNCHER_FAILED, &error.to_string()),
        },
        _ => {
            let message = "the supervision of the workers broke; what became of them is not known";
            above::failed(exit_code::LAUNCHER_FAILED, message)
        }
    }
}

/// This host's name; `localhost` where the kernel does not say.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "localhost".to_owned() } else { name.trim().to_owned() }
}

/// Removes the run directory, of which nobody needs anything.
fn discard(logs: &DefaultLogsSpecs) {
    if let Err(error) = logs.remove_run_dir() {
        log::warn!("{error}");
    }
}
