//! Carrying out a [`Plan`]: run the group, pass signals on, report, clean up. Not here: how a group is run (`rankrun`).

use std::sync::Arc;
use std::time::Duration;

use rankrun::{
    Cause, ChildFailedError, DefaultLogsSpecs, Entrypoint, Limit, LogsSpecs, Orphans, PContext, Placement, Resource,
    RunProcsResult, RunState, Signal, StartError, StartProcessesError, WaitError, WorkerGroup,
};

use crate::console::{self, say};
use crate::exit_code;
use crate::plan::Plan;
use crate::records::stall_report;

/// Runs the group and returns the exit code.
pub(crate) fn run(plan: Plan) -> u8 {
    let logs = DefaultLogsSpecs::new(plan.log_dir.clone(), plan.redirects.clone(), plan.tee.clone());
    let logs = Arc::new(match plan.output.local_ranks_filter.clone() {
        Some(local_ranks) => logs.local_ranks_filter(local_ranks),
        None => logs,
    });
    for warning in &plan.warnings {
        log::warn!("{warning}");
    }
    for note in &plan.notes {
        say(note);
    }
    let mut context = match context(&plan, Arc::clone(&logs)) {
        Ok(context) => context,
        Err(error) => return not_started(&logs, &error),
    };
    let code = match supervise(&plan, &mut context, &logs) {
        Ok((result, signal)) => {
            let code = report(&plan, &result, signal);
            if plan.log_dir.is_none() {
                if code == exit_code::SUCCESS && !plan.captures_output() {
                    discard(&logs);
                } else if let Some(dir) = logs.run_dir() {
                    logs.keep_run_dir();
                    say(&format!("run directory: {}", dir.display()));
                }
            }
            code
        }
        Err(error) => not_started(&logs, &error.into()),
    };
    // A signal to stop that came meanwhile has let the report be whole; whoever sent it hears of it by the code.
    let signal = context.pause(Duration::ZERO).err().map(|error| error.sigval);
    // To the last moment a signal ends rankrun by a code, or not at all: its handlers stay.
    std::mem::forget(context);
    signal.map_or(code, exit_code::of_signal)
}

/// Says why nothing was run, and returns the exit code.
fn not_started(logs: &DefaultLogsSpecs, error: &StartProcessesError) -> u8 {
    discard(logs);
    say(&error.to_string());
    match error {
        StartProcessesError::Start(error) => exit_code::of_start_error(error),
        _ => exit_code::LAUNCHER_FAILED,
    }
}

/// The group, not yet started, and watched for signals.
fn context(plan: &Plan, logs: Arc<DefaultLogsSpecs>) -> Result<PContext, StartProcessesError> {
    let open_files = raise_open_files();
    let group = WorkerGroup::new(&plan.role, Entrypoint::binary(&plan.program), plan.local_world_size)
        .args(&plan.args)
        .envs_by_rank(|local_rank| plan.envs[local_rank].iter().cloned())
        .logs_specs(logs as Arc<dyn LogsSpecs>)
        .placements(|local_rank| with_open_files(&plan.placements[local_rank], open_files))
        .stop_policy(plan.stop_policy)
        // This program starts nothing but the group.
        .orphans(Orphans::Own)
        .guardian(true)
        .control_group(plan.control_group);
    let group = match plan.log_max_size {
        Some(size) => group.log_max_size(size),
        None => group,
    };
    let group = match plan.stall_policy {
        Some(policy) => group.stall_policy(policy),
        None => group,
    };
    let mut context = PContext::new(plan.output.apply(group).into_spec()?)?;
    if let Err(error) = context.watch(plan.signals.clone()) {
        log::warn!("{error}: a signal ends rankrun at once");
    }
    Ok(context)
}

/// Starts the group and waits for its result, and for the first signal that stopped it.
fn supervise(
    plan: &Plan,
    context: &mut PContext,
    logs: &DefaultLogsSpecs,
) -> Result<(Arc<RunProcsResult>, Option<Signal>), StartError> {
    context.start()?;
    for warning in logs.warnings() {
        log::warn!("{warning}");
    }
    let mut signal = None;
    loop {
        match context.wait(None) {
            Ok(Some(result)) => return Ok((result, signal)),
            Ok(None) => {}
            Err(WaitError::Signal(error)) => {
                // The first one is passed on with grace, the second kills.
                context.request_stop(error.sigval, plan.stop_policy.grace);
                signal.get_or_insert(error.sigval);
            }
            // Cannot be: it was started above.
            Err(error) => {
                say(&error.to_string());
                return Err(StartError::AlreadyStarted { name: plan.role.clone() });
            }
        }
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

/// Tells what became of the group and returns the exit code that says the same.
fn report(plan: &Plan, result: &RunProcsResult, signal: Option<Signal>) -> u8 {
    for warning in &result.warnings {
        log::warn!("{warning}");
    }
    for (local_rank, worker) in result.workers.iter().filter(|(_, worker)| worker.cause == Cause::Abandoned) {
        let pid = worker.pid.unwrap_or(0);
        say(&format!("rank {local_rank} (pid {pid}), or a process of its group, is still there after SIGKILL"));
    }
    for (pid, name) in &result.left_behind {
        say(&format!("process {pid} ({name}), which a worker had started, is still there after SIGKILL"));
    }
    if let Some(stall) = &result.stall {
        console::print(&stall_report(&plan.role, &host_name(), stall));
    }
    match result.state {
        // A worker that had recorded its failure before is the reason, and is reported below.
        RunState::Failed if result.stall.is_some() && result.failures.is_empty() => exit_code::STALLED,
        RunState::Succeeded => exit_code::SUCCESS,
        RunState::Stopped => match signal {
            Some(signal) => {
                say(&format!("stopped by {signal}"));
                exit_code::of_signal(signal)
            }
            None => exit_code::LAUNCHER_FAILED,
        },
        RunState::Failed => match ChildFailedError::new(&plan.role, result.failures.clone()) {
            Ok(error) => {
                let error = error.with_host(host_name());
                console::print(&error.to_string());
                let (_, failure) = error.get_first_failure();
                // How it ended tells of rankrun's own signal then, not of its failure.
                if failure.stopped { exit_code::FAILED_BEFORE_STOP } else { failure.exit.shell_code() }
            }
            Err(error) => {
                say(&error.to_string());
                exit_code::LAUNCHER_FAILED
            }
        },
        _ => {
            say("the supervision of the workers broke; what became of them is not known");
            exit_code::LAUNCHER_FAILED
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
