//! The `rankrun` command: reads the command line, runs the group, reports.
//!
//! Here: the order of things. Not here: what the arguments mean (`plan`), how a group is run (the crate `rankrun`).

#![forbid(unsafe_code)]

mod above;
mod args;
mod completions;
mod console;
mod entry;
mod environment;
mod exit_code;
mod help;
mod logs;
mod logs_args;
mod nodes;
mod nproc;
mod output;
mod pet;
mod placement;
mod places;
mod plan;
mod records;
mod restarts;
mod result;
mod run;
mod run_status;
mod stall_report;
mod status_line;
mod topology;
mod torchrun_args;
mod usage;
mod values;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Whoever started rankrun may not care for signals and how children end; rankrun does.
    rankrun::crates::process::reset_inherited_signals();
    env_logger::Builder::new()
        .filter_level(log::LevelFilter::Warn)
        .parse_env("RANKRUN_LOG")
        .target(env_logger::Target::Pipe(Box::<console::LogConsole>::default()))
        .format(|out, record| writeln!(out, "rankrun: {}: {}", level(record.level()), record.args()))
        .init();
    ExitCode::from(launch(std::env::args_os().collect()))
}

/// Runs a whole command line and returns the exit code.
fn launch(command_line: Vec<OsString>) -> u8 {
    if let Some(args) = logs_args::parse(&command_line) {
        return args.map_or_else(|stop| not_run(&stop), |args| logs::run(&args));
    }
    let words = [run_status::run, result::run, topology::run, completions::run];
    if let Some(outcome) = words.iter().find_map(|run| run(&command_line)) {
        return outcome.unwrap_or_else(|stop| not_run(&stop));
    }
    let args = match args::parse(command_line, std::env::vars_os()) {
        Ok(args) => args,
        Err(stop) => {
            if let usage::Stop::Usage(line) = &stop {
                above::tell(exit_code::USAGE, line, "");
            }
            return not_run(&stop);
        }
    };
    let plan = match plan::resolve(&args, &plan::Surroundings::of_this_process()) {
        Ok(plan) => plan,
        Err(error) => {
            let text = pet::with_variables(error.to_string(), &args.variables);
            console::say(&text);
            if !args.dry_run {
                above::tell(error.exit_code(), &text, "");
            }
            return error.exit_code();
        }
    };
    if args.dry_run { run::show(&plan) } else { run::run(plan) }
}

/// Says why there is nothing to run, and returns the exit code.
fn not_run(stop: &usage::Stop) -> u8 {
    match stop {
        usage::Stop::Shown => exit_code::SUCCESS,
        usage::Stop::Unprintable(error) => {
            console::say(&format!("cannot write to standard output: {error}"));
            exit_code::LAUNCHER_FAILED
        }
        usage::Stop::Usage(line) => {
            console::say(line);
            exit_code::USAGE
        }
    }
}

fn level(level: log::Level) -> &'static str {
    match level {
        log::Level::Error => "error",
        log::Level::Warn => "warning",
        log::Level::Info => "info",
        log::Level::Debug => "debug",
        log::Level::Trace => "trace",
    }
}
