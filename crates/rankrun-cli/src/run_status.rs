//! The command `rankrun status`: how the workers of a run are doing. Not here: what is written down of a run
//! (`rankrun-launcher`), its log files (`rankrun-logs`), what processes do (`rankrun-process`).

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use clap::Parser;
use rankrun::crates::logs::{Run, RunLog, last_lines};
use rankrun::crates::process::ProcessState;
use rankrun::crates::types::{escape_line, escape_os_str};
use rankrun_launcher::{AttemptRecord, CauseClass, ExitRecord, RecordState, RunRecord, WorkerRecord};

use crate::console::{self, say};
use crate::exit_code;
use crate::places;
use crate::status_line::clock;
use crate::usage::{self, Stop};

const HELP: &str = "rankrun status --help";

/// How long the use of CPUs is measured for.
const SAMPLE: Duration = Duration::from_millis(200);

/// A process that began so much later than a worker is another one, with the worker's number.
const CLOCKS: Duration = Duration::from_secs(5);

/// How many characters of a line are shown.
const LINE: usize = 60;

/// Show how the workers of a run are doing: state, CPU, memory, and the last line of their output.
///
/// CPU and memory are those of a worker and of the processes in its process group.
#[derive(Debug, Parser)]
#[command(
    bin_name = "rankrun status",
    infer_long_args = true,
    name = "rankrun status",
    version,
    max_term_width = 100,
    after_help = "Exit code: 0 shown, 2 wrong usage or no run in DIR, 125 it could not be read."
)]
pub(crate) struct StatusArgs {
    /// A run's directory, or a log directory: then its newest run
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// What a worker's processes use.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Usage {
    /// The letter of the leader's state as a word; `None` if it is gone.
    state: Option<&'static str>,
    cpu_time: Duration,
    memory_bytes: u64,
}

/// Carries out a command line that begins with `status` and returns the exit code; `None` for others.
pub(crate) fn run(command_line: &[OsString]) -> Option<Result<u8, Stop>> {
    if command_line.get(1)? != "status" {
        return None;
    }
    let args = usage::parse::<StatusArgs>(&command_line[1..], HELP);
    Some(args.map(|args| show(&args)))
}

fn show(args: &StatusArgs) -> u8 {
    let run = match Run::open(&args.dir) {
        Ok(run) => run,
        Err(error) => {
            let (text, code) = places::run_dir(&args.dir, &error, HELP);
            say(&text);
            return code;
        }
    };
    let record = match RunRecord::read(run.dir()) {
        Ok(record) => record,
        Err(error) => {
            say(&format!("{error}: see the log files (rankrun logs {})", args.dir.display()));
            return exit_code::LAUNCHER_FAILED;
        }
    };
    let (logs, unreadable) = run.readable_logs();
    let goes_on = run.goes_on();
    let workers = record.attempts.last().map_or(&[][..], |attempt| &attempt.workers);
    let (usage, shares) = if goes_on { measure(workers) } else { (Vec::new(), Vec::new()) };
    let mut text = head(&record, &run, goes_on, SystemTime::now());
    if let Some(attempt) = record.attempts.last() {
        text.push_str(&table(attempt, &logs, &usage, &shares));
    }
    let shown = console::show(&text);
    unreadable.iter().for_each(|error| say(&error.to_string()));
    if unreadable.is_empty() { shown } else { exit_code::LAUNCHER_FAILED }
}

/// What each worker uses now, and how much of a CPU it used while that was measured.
fn measure(workers: &[WorkerRecord]) -> (Vec<Usage>, Vec<f64>) {
    let (before, start) = (usage(workers), Instant::now());
    // sleep: the use of a CPU is a difference.
    std::thread::sleep(SAMPLE);
    let (now, passed) = (usage(workers), start.elapsed().as_secs_f64());
    let share = |(before, now): (&Usage, &Usage)| now.cpu_time.saturating_sub(before.cpu_time).as_secs_f64() / passed;
    let shares = before.iter().zip(&now).map(share).collect();
    (now, shares)
}

fn usage(workers: &[WorkerRecord]) -> Vec<Usage> {
    let groups: Vec<u32> = workers.iter().filter(|worker| is_itself(worker)).filter_map(|worker| worker.pid).collect();
    let processes = ProcessState::of_groups(&groups);
    let of_worker = |worker: &WorkerRecord| {
        let mut usage = Usage::default();
        for (group, process) in processes.iter().filter(|(group, _)| Some(*group) == worker.pid) {
            if process.pid == *group {
                usage.state = Some(process.state.word());
            }
            usage.cpu_time += process.cpu_time;
            usage.memory_bytes += process.memory_bytes;
        }
        usage
    };
    workers.iter().map(of_worker).collect()
}

/// Whether the process with the worker's number is the worker, or its number is free.
fn is_itself(worker: &WorkerRecord) -> bool {
    let (Some(pid), Some(started)) = (worker.pid, worker.started) else { return false };
    let since = SystemTime::now().duration_since(started).unwrap_or_default();
    ProcessState::of(pid).is_none_or(|process| process.age.is_zero() || process.age + CLOCKS >= since)
}

/// Whether the last attempt has ended and another is to follow.
fn rests(record: &RunRecord) -> bool {
    record.attempts.last().is_some_and(|attempt| attempt.ended.is_some())
}

/// What is said of the run as a whole.
fn head(record: &RunRecord, run: &Run, goes_on: bool, now: SystemTime) -> String {
    let state = match record.state {
        RecordState::Running if goes_on && rests(record) => "RUNNING, between two attempts",
        RecordState::Running if goes_on => "RUNNING",
        RecordState::Running => "its launcher was killed",
        RecordState::Succeeded => "SUCCEEDED",
        RecordState::Failed => "FAILED",
        RecordState::Stopped => "STOPPED",
        _ => "UNKNOWN",
    };
    let until = record.ended.unwrap_or(now);
    let elapsed = clock(until.duration_since(record.started).unwrap_or_default());
    let mut text = format!("{}: {} ({}), {elapsed}", escape_line(&record.role), escape_line(&record.run_id), state);
    if record.attempts.len() > 1 {
        let _ = write!(text, ", attempt {}", record.attempts.len());
    }
    if let Some(code) = record.exit_code {
        let _ = write!(text, ", exit code {code}");
    }
    if let Some(error) = &record.error {
        let _ = write!(text, ": {}", escape_line(error));
    }
    let _ = writeln!(
        text,
        "\nlauncher {} on {}, {}",
        record.launcher_pid,
        escape_line(&record.host),
        escape_os_str(run.dir().as_os_str())
    );
    text
}

fn table(attempt: &AttemptRecord, logs: &[RunLog], usage: &[Usage], shares: &[f64]) -> String {
    let mut text = format!(
        "\n{:>5}  {:<16}{:>9}{:>6}{:>10}{:>11}  {}\n",
        "rank", "state", "pid", "cpu", "cpu time", "memory", "last line"
    );
    for (i, worker) in attempt.workers.iter().enumerate() {
        let (now, share) = (usage.get(i).copied().unwrap_or_default(), shares.get(i));
        let runs = now.state.is_some();
        let or = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let used = if runs { now.cpu_time } else { recorded(worker) };
        let memory = if runs { now.memory_bytes } else { worker.peak_memory_bytes };
        let row = format!(
            "{:>5}  {:<16}{:>9}{:>6}{:>10}{:>11}  {}",
            worker.rank,
            state(worker, &now, !usage.is_empty()),
            or(worker.pid.map(|pid| pid.to_string())),
            or(share.filter(|_| runs).map(|share| format!("{:.0}%", share * 100.0))),
            or((runs || !used.is_zero()).then(|| clock(used))),
            or((memory > 0).then(|| size(memory))),
            last_line(attempt.attempt, worker.local_rank, logs),
        );
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// What is known of how a worker stands: its process's state, or how it ended.
fn state(worker: &WorkerRecord, now: &Usage, goes_on: bool) -> String {
    match (&worker.exit, worker.cause, now.state) {
        (Some(ExitRecord::Code { code }), ..) => format!("exit code {code}"),
        (Some(ExitRecord::Signal { signal, .. }), ..) => signal.clone(),
        (Some(_), ..) => "lost".to_owned(),
        (None, CauseClass::NotStarted, _) => "not started".to_owned(),
        (None, CauseClass::Abandoned, _) => "abandoned".to_owned(),
        (None, _, Some(state)) => state.to_owned(),
        // Its result is written down when the attempt ends.
        (None, _, None) if goes_on => "ended".to_owned(),
        (None, _, None) => "unknown".to_owned(),
    }
}

fn recorded(worker: &WorkerRecord) -> Duration {
    Duration::try_from_secs_f64(worker.user_seconds + worker.system_seconds).unwrap_or_default()
}

/// The last line that a worker wrote to the file that it wrote to last.
fn last_line(attempt: u64, local_rank: usize, logs: &[RunLog]) -> String {
    let own = logs.iter().filter(|log| log.attempt == attempt && log.local_rank == local_rank);
    let mut own: Vec<(SystemTime, String)> =
        own.filter_map(|log| Some((log.modified, last_lines(&log.path, 1).pop()?))).collect();
    own.sort_by_key(|(modified, _)| *modified);
    own.pop().map(|(_, line)| shortened(&line)).unwrap_or_default()
}

/// A line without what moves the cursor, and no longer than a row has room.
fn shortened(line: &str) -> String {
    let escaped = escape_line(line.trim_end());
    match escaped.char_indices().nth(LINE) {
        Some((end, _)) => format!("{}...", &escaped[..end]),
        None => escaped,
    }
}

/// Bytes in the largest unit that leaves a number of 1 or more.
fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value >= 100.0 {
        format!("{value:.0} {}", units[unit])
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        <StatusArgs as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn only_a_first_argument_status_is_this_command() {
        let is = |line: &[&str]| run(&line.iter().map(OsString::from).collect::<Vec<_>>()).is_some();
        assert!(is(&["rankrun", "status"]));
        assert!(!is(&["rankrun", "--", "status"]) && !is(&["rankrun", "-n", "2", "status"]) && !is(&["rankrun"]));
    }

    #[test]
    fn a_line_is_cut_and_cannot_move_the_cursor() {
        assert_eq!(shortened("step 1\x1b[2J\tx  "), "step 1\\x1b[2J\\tx");
        assert_eq!(shortened(&"x".repeat(LINE)), "x".repeat(LINE));
        assert_eq!(shortened(&"\u{4e2d}".repeat(LINE + 1)), format!("{}...", "\u{4e2d}".repeat(LINE)));
    }

    #[test]
    fn sizes_and_times_are_short() {
        assert_eq!([0, 1023, 1536, 200 << 20, 3 << 40].map(size), ["0 B", "1023 B", "1.5 KiB", "200 MiB", "3.0 TiB"]);
        assert_eq!([5, 65, 3605].map(|seconds| clock(Duration::from_secs(seconds))), ["0:05", "1:05", "1:00:05"]);
    }
}
