//! The build tool of the workspace: `cargo xtask COMMAND`. Here: which command does what. Not here: the checks.

#![forbid(unsafe_code)]

mod layers;
mod lint;
mod metadata;
mod release;
mod run;
mod rust_source;
mod slurm_cluster;
mod slurm_test;
mod tidy;

use std::process::ExitCode;

use run::{Tool, cargo};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  lint                    fmt, clippy and rustdoc with warnings denied, layers, tidy
  layers                  the dependencies of each crate against the table of allowed ones
  tidy                    the house rules that no other tool checks
  test [ARGS...]          cargo test --workspace ARGS
  slurm-test [ARGS...]    sets up a Slurm of two nodes on this machine in a temporary directory, and runs the tests
                          that need it
  bench [NAME...] [-- ARGS...]
                          builds the release binary, then runs the named benches, or all
  man [DIR]               the man pages of rankrun, into DIR or target/man
  release --dry-run [--allow-dirty]
                          versions, changelog, and cargo publish --workspace --dry-run
";

/// Exit code for a wrong command line.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args[..] {
        ["lint"] => lint::lint(),
        ["layers"] => report("layers", layers::layers()),
        ["tidy"] => report("tidy", tidy::tidy()),
        ["test", ref rest @ ..] => cargo(&["test", "--workspace"]).with(rest).pass_through(),
        ["slurm-test", ref rest @ ..] => slurm_test::slurm_test(rest),
        ["bench", ref rest @ ..] => bench(rest),
        ["man"] => man("target/man"),
        ["man", dir] => man(dir),
        ["release", ref options @ ..] => match release::Options::parse(options) {
            Ok(options) => release::release(options),
            Err(why) => return usage(&why),
        },
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        [] => return usage("no command"),
        [command, ..] => return usage(&format!("no such command, or arguments that it does not take: `{command}`")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn usage(why: &str) -> ExitCode {
    eprint!("xtask: {why}\n\n{USAGE}");
    ExitCode::from(EXIT_USAGE)
}

/// Prints what a check found, or that it found nothing.
fn report(check: &str, found: Result<Vec<String>, String>) -> Result<(), String> {
    let found = found?;
    if found.is_empty() {
        println!("{check}: ok");
        return Ok(());
    }
    for line in &found {
        println!("{line}");
    }
    Err(format!("{check}: {} found", found.len()))
}

/// Lets the command itself write its man pages: it has the parser.
fn man(dir: &str) -> Result<(), String> {
    let dir = run::root().join(dir);
    std::fs::create_dir_all(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
    let dir = dir.to_string_lossy();
    let run = ["run", "--quiet", "--package", "rankrun-cli", "--bin", "rankrun", "--", "man-page", &dir];
    cargo(&run).pass_through()
}

fn bench(args: &[&str]) -> Result<(), String> {
    let (names, passed) = match args.iter().position(|arg| *arg == "--") {
        Some(at) => args.split_at(at),
        None => (args, &[][..]),
    };
    cargo(&["build", "--release", "--package", "rankrun-cli", "--bin", "rankrun"]).pass_through()?;
    let bench = || -> Tool { cargo(&["bench", "--package", "rankrun-benches"]) };
    if names.is_empty() {
        return bench().with(passed).pass_through();
    }
    names.iter().try_for_each(|name| bench().with(&["--bench", name]).with(passed).pass_through())
}
