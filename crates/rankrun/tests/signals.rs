//! Signals to a program that uses the library. One test, because handlers belong to the process.

use std::time::Duration;

use nix::sys::signal::raise;
use rankrun::{Entrypoint, PContext, RunState, Signal, WaitError, WorkerGroup};
use rankrun_testkit::assert_no_process_with_cookie;

#[test]
fn a_watched_signal_comes_out_of_wait_and_the_group_goes_on_until_it_is_closed() {
    let group = WorkerGroup::new("test", Entrypoint::binary("sleep"), 2).args(["600"]);
    let mut context = PContext::new(group.into_spec().unwrap()).unwrap();
    context.watch_signals(&[Signal::TERM]).unwrap();
    context.start().unwrap();
    raise(nix::sys::signal::Signal::SIGTERM).unwrap();
    let Err(WaitError::Signal(error)) = context.wait(None) else { panic!("expected the signal") };
    assert_eq!(error.sigval, Signal::TERM);
    assert!(context.wait(Some(Duration::from_millis(20))).unwrap().is_none(), "the group goes on");
    let result = context.close(Some(error.sigval), Duration::from_secs(20)).unwrap();
    assert_eq!(result.state, RunState::Stopped);
    assert_no_process_with_cookie(context.cookie());
}
