//! A parameter sweep: a group of workers for each value, some groups at once, all supervised from one thread that sleeps
//! until one of them has news. Each worker finds its value in its environment.
//!
//! ```sh
//! cargo run -p rankrun --example sweep -- LR=0.1,0.01,0.001 sh -c 'echo training with $LR; sleep 1'
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::os::fd::AsFd;
use std::process::ExitCode;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rankrun::{ChildFailedError, Entrypoint, PContext, RunProcsResult, Std, WorkerGroup, start_processes};

const USAGE: &str = "usage: sweep NAME=VALUE[,VALUE]... PROGRAM [ARGS]...";
const WORKERS: usize = 2;
const GROUPS_AT_ONCE: usize = 2;

fn start(name: &str, value: &str, command: &[String]) -> Result<PContext, Box<dyn Error>> {
    let setting = format!("{name}={value}");
    let group = WorkerGroup::new(&setting, Entrypoint::binary(&command[0]), WORKERS)
        .args(&command[1..])
        .env(name, value)
        .tee(Std::ALL)
        .log_line_prefixes(|local_rank| format!("[{setting} {local_rank}]:"))
        .guardian(true);
    Ok(start_processes(group)?)
}

/// Tells what became of a group, and whether it succeeded.
fn tell(setting: &str, result: &RunProcsResult) -> bool {
    match ChildFailedError::new(setting, result.failures.clone()) {
        Ok(error) => eprintln!("{}", error.to_string().lines().next().unwrap_or_default()),
        Err(_) => eprintln!("{setting}: {}", result.state),
    }
    !result.is_failed()
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [setting, command @ ..] = args.as_slice() else { return Err(USAGE.into()) };
    let (name, values) = setting.split_once('=').filter(|_| !command.is_empty()).ok_or(USAGE)?;
    let (mut values, mut running, mut all_succeeded) = (values.split(','), Vec::new(), true);
    loop {
        while running.len() < GROUPS_AT_ONCE
            && let Some(value) = values.next()
        {
            running.push(start(name, value, command)?);
        }
        let mut news: Vec<_> = running.iter().map(|group| PollFd::new(group.as_fd(), PollFlags::POLLIN)).collect();
        if news.is_empty() {
            return Ok(ExitCode::from(u8::from(!all_succeeded)));
        }
        poll(&mut news, PollTimeout::NONE)?;
        running.retain(|group| group.poll().inspect(|result| all_succeeded &= tell(group.name(), result)).is_none());
    }
}
