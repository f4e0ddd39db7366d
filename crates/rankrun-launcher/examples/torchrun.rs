//! A minimal torchrun: ranks of a Python script on this node, with torchrun's environment, restarts, teed output and one
//! report. Not here: torchrun's other options, which the `rankrun` command has.
//!
//! ```sh
//! cargo run -p rankrun-launcher --example torchrun -- --nproc-per-node 2 --max-restarts 1 train.py --lr 0.1
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;

use rankrun::{ChildFailedError, Orphans, Signal, SignalPlan, Std};
use rankrun_launcher::{Launch, Surroundings, Topology, TopologyArgs, host_name};

const USAGE: &str = "usage: torchrun [--nproc-per-node N] [--max-restarts K] [--log-dir DIR] SCRIPT [ARGS]...";

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let (mut workers, mut max_restarts, mut log_dir) = (1, 0, None);
    let mut args = std::env::args().skip(1).peekable();
    while let Some(option) = args.next_if(|arg| arg.starts_with('-')) {
        let value = args.next().ok_or(USAGE)?;
        match option.replace('_', "-").as_str() {
            "--nproc-per-node" => workers = value.parse()?,
            "--max-restarts" => max_restarts = value.parse()?,
            "--log-dir" => log_dir = Some(value),
            _ => return Err(USAGE.into()),
        }
    }
    let script = args.next().ok_or(USAGE)?;

    // One node, or what Slurm, Kubernetes or mpirun say of more.
    let surroundings = Surroundings::of_this_process();
    let topology = Topology::resolve(&TopologyArgs::default(), workers, &surroundings.env, &host_name())?;
    let mut launch = Launch::new("default", "python3", topology)
        .args(["-u".to_owned(), script])
        .args(args)
        .tee(Std::ALL)
        .max_restarts(max_restarts)
        .signals(SignalPlan::default().stop([Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT]));
    if let Some(dir) = log_dir {
        launch = launch.log_dir(dir);
    }
    // This program starts nothing else, so all that is left is the group's; the guardian ends it if this program is killed.
    let plan = launch.plan(&surroundings)?.shape(|group| group.orphans(Orphans::Own).guardian(true));
    let outcome = plan.run(&mut ())?;

    let result = &outcome.last().result;
    if let Some(signal) = outcome.signal {
        eprintln!("stopped by {signal}");
        return Ok(ExitCode::from(128 + u8::try_from(signal.as_raw())?));
    }
    let Ok(error) = ChildFailedError::new("default", result.failures.clone()) else {
        return Ok(ExitCode::from(u8::from(result.is_failed())));
    };
    eprintln!("{error}\nnot started again: {}", outcome.verdict);
    Ok(ExitCode::from(error.get_first_failure().1.exit.shell_code()))
}
