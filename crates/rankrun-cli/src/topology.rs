//! The command `rankrun topology`: shows how the job is laid out, seen from here, and what says so. Not here: finding it
//! (`rankrun-launcher`).

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

use crate::args::{self, Args};
use crate::console::{say, show};
use crate::plan::{Surroundings, topology};
use crate::usage::Stop;
use crate::{exit_code, help, pet};

/// The options that matter here; all others of a launch are taken as well.
const SHOWN: &[&str] = &[
    "nproc-per-node",
    "nnodes",
    "node-rank",
    "master-addr",
    "master-port",
    "rdzv-id",
    "rdzv-endpoint",
    "standalone",
    "topology",
    "json",
    "help",
    "version",
];

const ABOUT: &str = "Show how many nodes there are, which one this is, where the workers meet, and what says so";

const LONG_ABOUT: &str = "\
Show how many nodes there are, which one this is, where the workers meet, and what says so.

Nothing is started. Put the word before the options of a launch, in the job step where that would be: \
srun rankrun topology -n 8 train.py. All its options are taken, and a program is not looked at.";

const NOTES: &str = "Exit code: 0 shown, 2 wrong usage or a topology that is not whole.";

/// Carries out a command line that begins with `topology` and returns the exit code; `None` for others.
pub(crate) fn run(command_line: &[OsString]) -> Option<Result<u8, Stop>> {
    if command_line.get(1)? != "topology" {
        return None;
    }
    let surroundings = Surroundings::of_this_process();
    Some(parse(&command_line[1..], std::env::vars_os()).map(|(args, json)| found(&args, json, &surroundings)))
}

/// The command line's definition.
pub(crate) fn command() -> Command {
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("As one JSON object");
    help::command()
        .mut_args(|arg| {
            let is_shown = arg.get_long().is_some_and(|long| SHOWN.contains(&long));
            arg.hide(!is_shown).hide_short_help(false).required(false)
        })
        .arg(json.help_heading(help::OWN_HEADING))
        .name("rankrun topology")
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .override_usage("rankrun topology [--json] [OPTIONS] [PROGRAM [ARGS]...]")
        .after_help(NOTES)
        .after_long_help(NOTES)
}

fn parse(line: &[OsString], environment: impl Iterator<Item = (OsString, OsString)>) -> Result<(Args, bool), Stop> {
    let (args, matches) = args::read(command(), line.to_vec(), environment, "rankrun topology --help")?;
    Ok((args, matches.get_flag("json")))
}

fn found(args: &Args, json: bool, surroundings: &Surroundings) -> u8 {
    let topology = match topology(args, surroundings) {
        Ok((_, topology)) => topology,
        Err(error) => {
            say(&pet::with_variables(error.to_string(), &args.variables));
            return error.exit_code();
        }
    };
    match json.then(|| serde_json::to_string(&topology)) {
        None => show(&format!("{topology}\n")),
        Some(Ok(text)) => show(&format!("{text}\n")),
        Some(Err(error)) => {
            say(&error.to_string());
            exit_code::LAUNCHER_FAILED
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &[&str], environment: &[(&str, &str)]) -> Result<(Args, bool), String> {
        let line: Vec<OsString> = std::iter::once("topology").chain(line.iter().copied()).map(OsString::from).collect();
        let environment = environment.iter().map(|(name, value)| (name.into(), value.into()));
        parse(&line, environment).map_err(|stop| match stop {
            Stop::Usage(text) => text,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn the_options_of_a_launch_are_taken_with_a_program_or_without() {
        let (args, json) = parsed(&["--json", "--nnodes", "2", "--tee", "3", "train.py", "--lr"], &[]).unwrap();
        assert_eq!((json, args.command), (true, vec!["train.py".into(), "--lr".into()]));
        let (args, json) = parsed(&[], &[("PET_NPROC_PER_NODE", "3")]).unwrap();
        assert_eq!((json, args.command.len()), (false, 0));
        assert_eq!(args.size.nproc_per_node, crate::nproc::NprocPerNode::Count(3));
        let text = parsed(&["--nnodes", "x"], &[]).unwrap_err();
        assert!(text.contains("--nnodes") && text.ends_with("(see rankrun topology --help)"), "{text}");
    }
}
