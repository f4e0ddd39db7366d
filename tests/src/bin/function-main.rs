//! A program of its own that starts a group of functions, with `init` where the test wants it: `FUNCTION_MAIN` says where.

#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;

use rankrun::{ChildFailedError, Entrypoint, Std, WorkerGroup, entrypoint, start_processes};

/// The thread's name, the command line, and whether SIGPIPE is ignored, as in every `main` of Rust.
fn surroundings(_: ()) -> Result<(String, Vec<String>, bool), Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).ok_or("no SigIgn")?;
    let ignores_sigpipe = u64::from_str_radix(ignored.trim(), 16)? & 1 << 12 != 0;
    let name = std::thread::current().name().unwrap_or("-").to_owned();
    Ok((name, std::env::args().skip(1).collect(), ignores_sigpipe))
}
entrypoint!(surroundings);

/// As many bytes as it is asked for.
fn bytes((from, to): (Vec<u8>, usize)) -> Vec<u8> {
    vec![7; from.len().max(to)]
}
entrypoint!(bytes);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let is_worker = std::env::var_os("LOCAL_RANK").is_some();
    match std::env::var("FUNCTION_MAIN")?.as_str() {
        "first" => rankrun::init(),
        "never" => {}
        // The worker comes to the group first.
        "not in workers" if is_worker => {}
        // It never comes to anything.
        "after the arguments" if std::env::args().len() < 2 => std::process::exit(2),
        "after the end" if is_worker => return Ok(()),
        // Another program lies where this one was started from.
        "replaced" => {
            let own = std::env::current_exe()?;
            let other = own.with_extension("other");
            std::fs::copy("/bin/false", &other)?;
            std::fs::rename(&other, &own)?;
            rankrun::init();
        }
        "deleted" => {
            rankrun::init();
            std::fs::remove_file(std::env::current_exe()?)?;
        }
        place @ ("large arguments" | "large value") => {
            rankrun::init();
            let sizes = if place == "large value" { (0, 4 << 20) } else { (4 << 20, 0) };
            let group = WorkerGroup::new("main", Entrypoint::function(bytes).with((vec![7; sizes.0], sizes.1)), 2);
            let result = start_processes(group)?.wait(None)?.ok_or("no result")?;
            return Err(ChildFailedError::new("main", result.failures.clone())?.into());
        }
        _ => rankrun::init(),
    }
    let call = Entrypoint::function(surroundings).with(());
    let group = WorkerGroup::new("main", call, 2).redirects(Std::ERR).log_dir(std::env::temp_dir());
    let group = if std::env::args().len() > 1 { group } else { group.args(["--shard", "7"]) };
    let result = start_processes(group)?.wait(None)?.ok_or("no result")?;
    if result.is_failed() {
        return Err(ChildFailedError::new("main", result.failures.clone())?.into());
    }
    for value in result.return_values_of(surroundings)?.values() {
        println!("{value:?}");
    }
    Ok(())
}
