//! The command `rankrun result`: shows what became of a run, of all its nodes together. Not here: putting that together
//! (`rankrun-launcher`).

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;
use rankrun_launcher::{JobRecord, JobRecordError};

use crate::console::{say, show};
use crate::exit_code;
use crate::places;
use crate::usage::{self, Stop};

const HELP: &str = "rankrun result --help";

/// Show what became of a run, and its first failing rank: of all nodes that share the directory, from their result.json.
///
/// First is what failed at the earliest time. Each host has its own clock, so where those differ by more than the failures
/// do, the first may be another one: the nodes are all listed.
#[derive(Debug, Parser)]
#[command(
    bin_name = "rankrun result",
    infer_long_args = true,
    name = "rankrun result",
    version,
    max_term_width = 100,
    after_help = "Exit code: 0 shown, 2 wrong usage or no run in DIR, 125 its result cannot be read. With --exit-code that of the job: \
                  0 if all nodes succeeded, else that of the node that failed first, also while others run; 2 if none failed and nodes \
                  disagree about the world size; else that of the node that was stopped first; 125 if it is not over, a launcher was \
                  killed, or a node has no result."
)]
pub(crate) struct ResultArgs {
    /// A run's directory, also one that several nodes share, or a log directory: then its newest run
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// As one JSON object
    #[arg(long)]
    json: bool,

    /// Of the start with this count of restarts, such as $SLURM_RESTART_COUNT; a result of another start counts as none
    /// [default: the newest that there is]
    #[arg(long, alias = "restart_count", value_name = "N")]
    restart_count: Option<u64>,

    /// Exit with the exit code of the job
    #[arg(long, alias = "exit_code")]
    exit_code: bool,
}

/// Carries out a command line that begins with `result` and returns the exit code; `None` for others.
pub(crate) fn run(command_line: &[OsString]) -> Option<Result<u8, Stop>> {
    if command_line.get(1)? != "result" {
        return None;
    }
    let args = usage::parse::<ResultArgs>(&command_line[1..], HELP);
    Some(args.map(|args| found(&args)))
}

fn found(args: &ResultArgs) -> u8 {
    let job = match JobRecord::read(&args.dir, args.restart_count) {
        Ok(job) => job,
        Err(error) => {
            let (text, code) = match &error {
                JobRecordError::Logs(error) => places::run_dir(&args.dir, error, HELP),
                _ => (error.to_string(), exit_code::LAUNCHER_FAILED),
            };
            say(&text);
            return code;
        }
    };
    let text = match args.json.then(|| serde_json::to_string(&job)) {
        None => job.to_string(),
        Some(Ok(text)) => text + "\n",
        Some(Err(error)) => {
            say(&error.to_string());
            return exit_code::LAUNCHER_FAILED;
        }
    };
    let shown = show(&text);
    if args.exit_code && shown == exit_code::SUCCESS {
        return job.exit_code.unwrap_or(exit_code::LAUNCHER_FAILED);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        <ResultArgs as clap::CommandFactory>::command().debug_assert();
    }
}
