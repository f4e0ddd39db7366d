//! The command line's definition as it is typed, shown and completed: [`command`], [`all_commands`].
//!
//! Here: names with `_`, which options are on the first screen, which are torchrun's. Not here: the options (`args`).

use std::collections::BTreeSet;

use clap::{Arg, ArgAction, Command, CommandFactory};

use crate::args::Args;
use crate::completions::CompletionsArgs;
use crate::logs_args::LogsArgs;
use crate::result::ResultArgs;
use crate::run_status::StatusArgs;
use crate::topology;
use crate::torchrun_args::{SHORTENED, TORCHRUN};

/// The heading of the options that torchrun has too.
const TORCHRUN_HEADING: &str = "Options of torchrun";

/// The heading of ours that are under no other.
pub(crate) const OWN_HEADING: &str = "Other options";

/// The options of the first screen (`-h`); `--help` has all.
const FIRST: &[&str] = &[
    "nproc-per-node",
    "module",
    "no-python",
    "redirects",
    "tee",
    "log-dir",
    "max-restarts",
    "role",
    "standalone",
    "nnodes",
    "node-rank",
    "master-addr",
    "master-port",
    "shutdown-timeout",
    "dry-run",
];

/// What shows more.
pub(crate) const HELP: &str = "rankrun --help";

pub(crate) const USAGE: &str = "rankrun [OPTIONS] [--] PROGRAM [ARGS]...\n       \
                                rankrun [OPTIONS] -m MODULE [ARGS]...\n       \
                                rankrun logs|result|status|topology|completions ...";

const EXAMPLES: &str = "\
Examples:
  rankrun -n 4 train.py --lr 0.1           4 workers, each python3 -u train.py --lr 0.1
  rankrun -n gpu -t 3 --log-dir logs -m pkg.train
                                           one for each GPU; output goes here and to files
  rankrun -n 2 -r 3 ./a.out                any program; output goes to files
  rankrun logs logs                        shows them again, from the directory of --log-dir
  rankrun status logs                      how the workers are doing";

/// Below the options of the first screen.
pub(crate) fn below_first() -> String {
    format!("{EXAMPLES}\n\nAll options of torchrun are taken. More: rankrun --help")
}

/// Below all options.
pub(crate) fn below_all() -> String {
    format!("{EXAMPLES}\n\n{NOTES}")
}

const NOTES: &str = "\
SPEC is a mode for all ranks (0 none, 1 out, 2 err, 3 all, or those names) or RANKS:MODE,... where RANKS is a rank, a \
range a-b, or * for all others: 3   0:out,1-3:all   *:err

Options can be typed with _ for -, and shortened as long as they are clear. Of an option that is given twice the last \
one holds. PET_NPROC_PER_NODE=4 in the environment is --nproc-per-node 4, and so on for each; the command line comes first.

`rankrun logs DIR` shows the log files of a run, `rankrun status DIR` how its workers are doing, `rankrun result DIR` what \
became of it, `rankrun topology` how the job is laid out, `rankrun completions SHELL` prints what a shell needs to complete \
options. They mean that as the first argument only; a program of such a name is started by `rankrun -- logs` or \
`rankrun ./logs`.

Exit code: 0 if all workers exit 0; else that of the worker that failed first (128+n for signal n); 2 wrong usage, 124 stalled, 125 \
rankrun failed, 126 PROGRAM not executable, 127 PROGRAM not found, 128+n stopped by signal n.";

/// The command line of a launch.
pub(crate) fn command() -> Command {
    let of_help = |long: &'static str, short, action| {
        Arg::new(long).long(long).short(short).action(action).help_heading(OWN_HEADING)
    };
    let help = of_help("help", 'h', ArgAction::Help).help("Print help: -h the first screen, --help all");
    let version = of_help("version", 'V', ArgAction::Version).help("Print the version");
    let command = Args::command().mut_args(|arg| {
        // Not that of the group before it.
        let Some(long) = arg.get_long().map(str::to_owned) else { return arg.help_heading(None) };
        // So that `-1` is a wrong value that is told what is accepted, and no unknown option.
        let takes_value = arg.get_action().takes_values();
        let short_names = SHORTENED.iter().filter(|(name, _)| *name == long).flat_map(|(_, names)| *names);
        let arg = with_underscores(arg.aliases(short_names), &long).allow_negative_numbers(takes_value);
        let arg = if TORCHRUN.contains(&long.as_str()) {
            arg.help_heading(TORCHRUN_HEADING)
        } else if arg.get_help_heading().is_none() {
            arg.help_heading(OWN_HEADING)
        } else {
            arg
        };
        arg.hide_short_help(!FIRST.contains(&long.as_str()))
    });
    command.disable_help_flag(true).disable_version_flag(true).args([help, version])
}

/// All command lines as one, for completions and man pages.
pub(crate) fn all_commands() -> Command {
    // Each with its text.
    let command = command().mut_args(|arg| arg.hide_short_help(false));
    command.subcommands([
        LogsArgs::command().name("logs"),
        ResultArgs::command().name("result"),
        StatusArgs::command().name("status"),
        topology::command().name("topology"),
        CompletionsArgs::command().name("completions"),
    ])
}

/// Lets an option be typed with `_` as well as with `-`, at each place.
fn with_underscores(arg: Arg, long: &str) -> Arg {
    let aliases: Vec<String> = arg.get_all_aliases().unwrap_or_default().into_iter().map(str::to_owned).collect();
    let typed = aliases.iter().map(String::as_str).chain([long]);
    let new: BTreeSet<String> =
        typed.flat_map(spellings).filter(|name| name != long && !aliases.contains(name)).collect();
    arg.aliases(new)
}

/// A name with `-` and `_` for each of its `-`.
fn spellings(name: &str) -> Vec<String> {
    let mut spellings = vec![String::new()];
    for (i, word) in name.split('-').enumerate() {
        let signs: &[&str] = if i == 0 { &[""] } else { &["-", "_"] };
        spellings =
            signs.iter().flat_map(|sign| spellings.iter().map(move |start| format!("{start}{sign}{word}"))).collect();
    }
    spellings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_one_list_and_the_first_screen_has_no_other() {
        let known: BTreeSet<String> =
            command().get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned)).collect();
        for name in TORCHRUN.iter().chain(FIRST) {
            assert!(known.contains(*name), "--{name}");
        }
    }

    #[test]
    fn a_name_that_is_clear_in_torchrun_means_the_same_here() {
        let command = command();
        let begins = |name: &str| TORCHRUN.iter().filter(|long| long.starts_with(name)).count();
        for long in TORCHRUN {
            let shortened = (1..long.len()).map(|end| &long[..end]).filter(|name| begins(name) == 1);
            for name in shortened {
                let exact = |arg: &&Arg| arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name));
                let inferred = |arg: &&Arg| {
                    let names = arg.get_all_aliases().into_iter().flatten().chain(arg.get_long());
                    names.into_iter().any(|known| known.starts_with(name))
                };
                let found: Vec<&Arg> = match command.get_arguments().find(exact) {
                    Some(arg) => vec![arg],
                    None => command.get_arguments().filter(inferred).collect(),
                };
                let found: Vec<_> = found.iter().filter_map(|arg| arg.get_long()).collect();
                assert_eq!(found, [*long], "--{name}");
            }
        }
    }

    #[test]
    fn man_pages_and_completions_have_every_option_with_its_text() {
        let mut all = all_commands();
        let mut page = Vec::new();
        clap_mangen::Man::new(all.clone()).render(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap().replace('\\', "");
        for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut all, "rankrun", &mut text);
            let text = String::from_utf8(text).unwrap();
            for arg in command().get_arguments() {
                let Some(long) = arg.get_long() else { continue };
                assert!(text.contains(long), "{shell} has no --{long}");
                let help = arg.get_help().unwrap().to_string();
                let start: String = help.chars().take_while(|c| !"\n'`\"".contains(*c)).collect();
                assert!(page.contains(&format!("--{long}")) && page.contains(start.as_str()), "--{long}: {start}");
            }
        }
    }
}
