//! The command line as typed: [`Args`]. Not here: what it means together with the environment (`plan`).

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use clap::error::ErrorKind;
use rankrun::crates::types::MAX_LOCAL_RANK;

use crate::output::OutputArgs;
use crate::placement::PlacementArgs;
use rankrun::{LogSize, Signal, StdSpec};

/// Start N copies of a program, each with its rank, and report the first failure.
///
/// Each worker gets LOCAL_RANK, RANK, LOCAL_WORLD_SIZE, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and the other variables
/// that torchrun sets. The first worker that fails stops the others. Options after PROGRAM are PROGRAM's.
#[derive(Debug, Parser)]
#[command(
    name = "rankrun",
    version,
    max_term_width = 100,
    override_usage = "rankrun [OPTIONS] [--] PROGRAM [ARGS]...\n       rankrun logs [OPTIONS] DIR",
    after_help = "SPEC is a mode for all ranks (0 none, 1 out, 2 err, 3 all, or those names) or RANKS:MODE,... where RANKS is \
                  a rank, a range a-b, or * for all others: 3   0:out,1-3:all   *:err\n\n\
                  `rankrun logs DIR` shows the log files of a run (see rankrun logs --help). `logs` means that as the first argument \
                  only; a program of that name is started by `rankrun -- logs` or `rankrun ./logs`.\n\n\
                  Exit code: 0 if all workers exit 0; else that of the worker that failed first (128+n for signal n); 2 wrong usage, \
                  125 rankrun failed, 126 PROGRAM not executable, 127 PROGRAM not found, 128+n stopped by signal n."
)]
pub(crate) struct Args {
    /// How many workers to start on this host
    #[arg(short = 'n', long = "nproc-per-node", alias = "nproc_per_node", value_name = "N", default_value = "1", value_parser = parse_size)]
    pub(crate) local_world_size: usize,

    /// Which streams go to files instead of here
    #[arg(short = 'r', long, value_name = "SPEC", default_value = "0", hide_default_value = true)]
    pub(crate) redirects: StdSpec,

    /// Which streams go to files and are shown here line by line, with a prefix
    #[arg(short = 't', long, value_name = "SPEC", default_value = "0", hide_default_value = true)]
    pub(crate) tee: StdSpec,

    /// Where this run gets a directory for its log and error files [default: a temporary one]
    #[arg(long, alias = "log_dir", value_name = "DIR")]
    pub(crate) log_dir: Option<PathBuf>,

    /// How large each log file may become, such as 512k, 10M or 1G: its end is kept, and one line says how much was dropped
    #[arg(long, alias = "log_max_size", value_name = "SIZE")]
    pub(crate) log_max_size: Option<LogSize>,

    /// The id of this run: TORCHELASTIC_RUN_ID, and the start of its directory's name [default: time and pid]
    #[arg(long, alias = "run_id", value_name = "ID", value_parser = parse_run_id)]
    pub(crate) run_id: Option<String>,

    /// The workers' role: ROLE_NAME, the prefix of teed lines, the name in reports
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) role: String,

    /// How long workers have from the death signal to SIGKILL
    #[arg(long, alias = "shutdown_timeout", value_name = "SECONDS", default_value = "30", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(crate) shutdown_timeout: Duration,

    /// Signals that stop the run: passed on to the workers with grace, a second one kills
    /// [default: SIGTERM,SIGINT,SIGHUP,SIGQUIT]
    #[arg(
        long,
        alias = "signals_to_handle",
        value_name = "SIGNALS",
        env = "TORCHELASTIC_SIGNALS_TO_HANDLE",
        hide_env_values = true,
        value_parser = parse_signals
    )]
    pub(crate) signals_to_handle: Option<SignalList>,

    /// Signals that are passed on to the workers while the run goes on [default: SIGUSR1,SIGUSR2]
    #[arg(long, alias = "signals_to_forward", value_name = "SIGNALS", value_parser = parse_signals)]
    pub(crate) signals_to_forward: Option<SignalList>,

    /// Who gets the death signal: each worker and then, once it is gone, the rest of its process group, or all at once
    #[arg(long, alias = "stop_order", value_name = "ORDER", default_value = "leader-then-group")]
    pub(crate) stop_order: StopOrderArg,

    /// A signal before the death signal, for workers that hang to write their stacks
    #[arg(long, alias = "dump_signal", value_name = "SIGNAL", value_parser = parse_catchable)]
    pub(crate) dump_signal: Option<Signal>,

    /// How long from the dump signal to the death signal
    #[arg(long, alias = "dump_timeout", value_name = "SECONDS", default_value = "5", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(crate) dump_timeout: Duration,

    /// Leave alone what workers left running, if all workers exit 0
    #[arg(long, alias = "keep_descendants")]
    pub(crate) keep_descendants: bool,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    #[command(flatten)]
    pub(crate) placement: PlacementArgs,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM [ARGS]", required = true, num_args = 1.., trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

/// Signals that were given as one argument, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SignalList(pub(crate) Vec<Signal>);

/// [`rankrun::StopOrder`] as an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StopOrderArg {
    LeaderThenGroup,
    Group,
}

/// Why there is nothing to run.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Help or the version was asked for and has been shown.
    Shown,
    /// Help or the version was asked for and could not be shown.
    Unprintable(std::io::Error),
    /// The command line is wrong; one line that says where and what is accepted.
    Usage(String),
}

/// Reads a command line, argument 0 included.
pub(crate) fn parse(command_line: Vec<OsString>) -> Result<Args, Stop> {
    Args::try_parse_from(command_line).map_err(|error| stop(&error, "rankrun --help"))
}

/// What to do about what clap says: show it, or one line of it with the way to help.
pub(crate) fn stop(error: &clap::Error, help: &str) -> Stop {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            match error.print() {
                // A closed pipe is the reader's choice.
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Stop::Unprintable(error),
                _ => Stop::Shown,
            }
        }
        _ => Stop::Usage(one_line(&error.render().to_string(), help)),
    }
}

/// The first paragraph of clap's message as one line, with the way to help.
fn one_line(message: &str, help: &str) -> String {
    let paragraph = message.split("\n\n").next().unwrap_or(message);
    let words: Vec<&str> = paragraph.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = words.join(" ");
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    format!("{text} (see {help})")
}

fn parse_size(text: &str) -> Result<usize, String> {
    let most = MAX_LOCAL_RANK + 1;
    match text.parse::<usize>() {
        Ok(size) if (1..=most).contains(&size) => Ok(size),
        _ => Err(format!("expected a whole number from 1 to {most}")),
    }
}

fn parse_run_id(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains('\0') {
        return Err("expected a text without NUL bytes that is not empty".to_owned());
    }
    Ok(text.to_owned())
}

fn parse_signals(text: &str) -> Result<SignalList, String> {
    if text.trim().is_empty() {
        return Ok(SignalList(Vec::new()));
    }
    text.split(',').map(parse_catchable).collect::<Result<_, _>>().map(SignalList)
}

fn parse_catchable(text: &str) -> Result<Signal, String> {
    let signal: Signal = text.parse().map_err(|error: rankrun::crates::types::ParseSignalError| error.to_string())?;
    if !signal.can_be_caught() {
        return Err(format!("{signal} cannot be caught: expected any signal but SIGKILL and SIGSTOP"));
    }
    Ok(signal)
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "expected a number of seconds, 0 or more, such as 30 or 0.5".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &[&str]) -> Result<Args, Stop> {
        parse(std::iter::once("rankrun").chain(line.iter().copied()).map(OsString::from).collect())
    }

    fn usage(line: &[&str]) -> String {
        match parsed(line) {
            Err(Stop::Usage(text)) => text,
            other => panic!("{line:?} gave {other:?}"),
        }
    }

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn what_follows_the_program_is_the_programs() {
        let args = parsed(&["-n", "4", "--tee", "3", "sh", "-c", "echo", "-n", "--help"]).unwrap();
        assert_eq!(args.command, ["sh", "-c", "echo", "-n", "--help"]);
        assert_eq!(args.local_world_size, 4);
        let args = parsed(&["--", "-x", "--", "y"]).unwrap();
        assert_eq!(args.command, ["-x", "--", "y"]);
    }

    #[test]
    fn a_wrong_argument_gives_one_line_that_names_it_and_what_is_accepted() {
        for (line, words) in [
            (&["-n", "0", "true"][..], &["-n", "'0'", "1 to 65536"][..]),
            (&["-n", "x", "true"], &["'x'", "1 to 65536"]),
            (&["-n", "-1", "true"], &["-1"]),
            (&["-r", "0:4", "true"], &["--redirects", "byte 2", "0-3"]),
            (&["-t", "", "true"], &["--tee"]),
            (&["--shutdown-timeout", "-1", "true"], &["'-1'", "0 or more"]),
            (&["--shutdown-timeout", "nan", "true"], &["'nan'", "0 or more"]),
            (&["--signals-to-handle", "TERM,FOO", "true"], &["--signals-to-handle", "`FOO`", "SIGTERM"]),
            (&["--signals-to-handle", "KILL", "true"], &["SIGKILL cannot be caught"]),
            (&["--signals-to-forward", "USR1,STOP", "true"], &["--signals-to-forward", "SIGSTOP cannot be caught"]),
            (&["--dump-signal", "99", "true"], &["--dump-signal", "`99`", "1 to 64"]),
            (&["--dump-timeout", "-3", "true"], &["--dump-timeout", "0 or more"]),
            (&["--stop-order", "random", "true"], &["--stop-order", "leader-then-group", "group"]),
            (&["--numa-binding", "tile", "true"], &["--numa-binding", "node", "core-complex"]),
            (&["--rlimit", "fds=3", "true"], &["--rlimit", "fds", "nofile"]),
            (&["--nice", "40", "true"], &["--nice", "-20", "19"]),
            (&["--log-max-size", "10Q", "true"], &["--log-max-size", "`10Q`", "k, M, G or T", "10M"]),
            (&["--run-id", "", "true"], &["--run-id", "not empty"]),
            (
                &["--log-line-prefix-template", "${x}", "true"],
                &["--log-line-prefix-template", "`${x}`", "${role_name}"],
            ),
            (&["--progress", "all", "true"], &["--progress", "'all'", "raw", "latest", "off"]),
            (&["--color", "yes", "true"], &["--color", "'yes'", "auto", "always", "never"]),
            (&["--local-ranks-filter", "", "true"], &["--local-ranks-filter", "separated by commas"]),
            (&["--local-ranks-filter", "0,x", "true"], &["--local-ranks-filter", "'0,x'", "such as 0,1"]),
            (&["--duplicate-stdout-filters", "", "true"], &["--duplicate-stdout-filters", "one or more texts"]),
            (&["--duplicate-stderr-filters", "a,,b", "true"], &["--duplicate-stderr-filters", "none of them empty"]),
            (&["--bogus", "true"], &["--bogus"]),
            (&[], &["PROGRAM"]),
        ] {
            let text = usage(line);
            assert_eq!(text.lines().count(), 1, "{text}");
            for word in words {
                assert!(text.contains(word), "{line:?}: `{word}` not in: {text}");
            }
        }
    }
}
