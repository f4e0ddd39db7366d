//! The commands `rankrun completions` and `rankrun man-page`: what packages are made with. Not here: the definition of
//! the command line (`help`).

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;
use clap_complete::Shell;

use crate::console::{self, say};
use crate::exit_code;
use crate::help::all_commands;
use crate::usage::{self, Stop};

/// Print what a shell needs to complete the options of rankrun.
///
/// For bash: source <(rankrun completions bash); for others see where they look for completions.
#[derive(Debug, Parser)]
#[command(name = "rankrun completions", bin_name = "rankrun completions", version, max_term_width = 100)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Write the man pages of rankrun to a directory, for who packages it.
#[derive(Debug, Parser)]
#[command(name = "rankrun man-page", bin_name = "rankrun man-page", version, max_term_width = 100)]
struct ManPageArgs {
    /// The directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Carries out a command line that begins with one of the two words and returns the exit code; `None` for others.
pub(crate) fn run(command_line: &[OsString]) -> Option<Result<u8, Stop>> {
    let word = command_line.get(1)?;
    let rest = &command_line[1..];
    if word == "completions" {
        return Some(usage::parse(rest, "rankrun completions --help").map(complete));
    }
    if word == "man-page" {
        return Some(usage::parse(rest, "rankrun man-page --help").map(man_pages));
    }
    None
}

fn complete(args: CompletionsArgs) -> u8 {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut all_commands(), "rankrun", &mut text);
    console::show(&String::from_utf8_lossy(&text))
}

fn man_pages(args: ManPageArgs) -> u8 {
    match clap_mangen::generate_to(all_commands().disable_help_subcommand(true), &args.dir) {
        Ok(()) => exit_code::SUCCESS,
        Err(error) => {
            say(&format!("cannot write man pages to {}: {error}", args.dir.display()));
            exit_code::LAUNCHER_FAILED
        }
    }
}
