//! A tokio program that supervises a group of workers beside its other tasks: the context is awaited by its file
//! descriptor, no thread blocks. Not here: anything about the group that the guide does not say.
//!
//! ```sh
//! cargo run --example tokio
//! ```

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use rankrun::{Entrypoint, PContext, RunProcsResult, WorkerGroup, start_processes};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits for the result of a group without blocking the runtime's threads.
async fn result(context: PContext) -> std::io::Result<(PContext, Arc<RunProcsResult>)> {
    #[allow(deprecated, reason = "what replaces it is unsafe; a context keeps its descriptor as long as it lives")]
    let context = AsyncFd::with_interest(context, Interest::READABLE)?;
    // The descriptor stays readable once the result is there, so it need not be read.
    drop(context.readable().await?);
    let context = context.into_inner();
    let result = context.poll().expect("readable means that the result is there");
    Ok((context, result))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let group = WorkerGroup::new("trainer", Entrypoint::binary("sh"), 3)
        .args(["-c", "sleep 0.2; echo rank $LOCAL_RANK is done; exit $((LOCAL_RANK == 2 ? 7 : 0))"]);
    let context = start_processes(group)?;
    let beat = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        loop {
            ticks.tick().await;
            println!("the service goes on");
        }
    };
    tokio::select! {
        outcome = result(context) => {
            let (_context, result) = outcome?;
            println!("{}: {} of 3 workers failed", result.state, result.failures.len());
        }
        () = beat => {}
    }
    Ok(())
}
