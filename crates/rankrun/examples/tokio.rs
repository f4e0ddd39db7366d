//! A tokio service that supervises a group: it answers questions over TCP while the group runs, starts the group again
//! when it has failed, and stops it when told to. The context is awaited by its file descriptor, so no thread blocks.
//!
//! ```sh
//! cargo run -p rankrun --example tokio -- sleep 600     # then: echo status | nc 127.0.0.1 PORT, or stop
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::ErrorKind;
use std::time::Duration;

use rankrun::{Entrypoint, PContext, RunState, Signal, WorkerGroup, start_processes};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpListener;

const WORKERS: usize = 3;
const MAX_RESTARTS: u32 = 2;

/// Answers one client after the other, with a line for a line.
async fn serve(listener: &TcpListener, group: &PContext, attempt: u32) -> std::io::Result<()> {
    loop {
        let (client, _) = listener.accept().await?;
        let mut request = [0; 64];
        let length = client.async_io(Interest::READABLE, || client.try_read(&mut request)).await.unwrap_or(0);
        if request[..length].starts_with(b"stop") {
            group.request_stop(Signal::TERM, Duration::from_secs(10));
        }
        let state = if group.poll().is_some() { "has ended" } else { "runs" };
        // A client that is gone has no use for an answer.
        let _ = client.try_write(format!("{} {state}, attempt {attempt}\n", group.name()).as_bytes());
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let command: Vec<String> = std::env::args().skip(1).collect();
    let (program, args) = command.split_first().ok_or("usage: tokio PROGRAM [ARGS]...")?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);
    for attempt in 0.. {
        let group = WorkerGroup::new("service", Entrypoint::binary(program), WORKERS).args(args).guardian(true);
        let group = start_processes(group.env("ATTEMPT", attempt.to_string()))?;
        #[allow(deprecated, reason = "what replaces it is unsafe; a context keeps its descriptor as long as it lives")]
        let group = AsyncFd::with_interest(group, Interest::READABLE)?;
        // It may seem readable before it is: no result then, and on with waiting.
        let result = tokio::select! {
            result = group.async_io(Interest::READABLE, |group| group.poll().ok_or(ErrorKind::WouldBlock.into())) => result?,
            Err(error) = serve(&listener, group.get_ref(), attempt) => return Err(error.into()),
        };
        println!("attempt {attempt}: {}, failed ranks {:?}", result.state, result.failures.keys().collect::<Vec<_>>());
        if result.state != RunState::Failed || attempt == MAX_RESTARTS {
            break;
        }
    }
    Ok(())
}
