//! Two groups supervised from one thread that never blocks for longer than it wants: `poll` on each, in turn. Not here:
//! waiting for both at once by their file descriptors, which any event loop can do (see the tokio example).
//!
//! ```sh
//! cargo run --example two_groups
//! ```

#![forbid(unsafe_code)]

use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rankrun::{Entrypoint, PContext, WorkerGroup, start_processes};

fn start(name: &str, workers: usize, script: &str) -> Result<PContext, rankrun::StartProcessesError> {
    start_processes(WorkerGroup::new(name, Entrypoint::binary("sh"), workers).args(["-c", script]))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut groups = vec![
        start("readers", 2, "sleep 0.1; exit 0")?,
        start("trainers", 3, "test $LOCAL_RANK = 1 && exit 3; exec sleep 60")?,
    ];
    while !groups.is_empty() {
        // One look at each group takes no time; what follows here sleeps until one of them has news.
        groups.retain(|group| match group.poll() {
            None => true,
            Some(result) => {
                println!("{}: {}, failed ranks {:?}", group.name(), result.state, result.failures.keys());
                false
            }
        });
        let mut fds: Vec<PollFd<'_>> =
            groups.iter().map(|group| PollFd::new(group.as_fd(), PollFlags::POLLIN)).collect();
        if !fds.is_empty() {
            poll(&mut fds, PollTimeout::NONE)?;
        }
    }
    Ok(())
}
