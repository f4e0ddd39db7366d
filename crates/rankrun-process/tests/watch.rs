//! Watching signals: order, chaining, restoring, and what stays ignored. One test, because handlers belong to the process.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal as NixSignal, raise, sigaction};
use rankrun_process::{SignalWatcher, WatchError};
use rankrun_types::Signal;

static CALLS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn host_handler(_: i32) {
    CALLS.fetch_add(1, Ordering::SeqCst);
}

fn install(signal: NixSignal, handler: SigHandler) -> SigHandler {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: host_handler only adds to an atomic.
    unsafe { sigaction(signal, &action) }.unwrap().handler()
}

#[test]
fn signals_arrive_in_order_and_the_host_programs_handlers_are_chained_and_restored() {
    install(NixSignal::SIGUSR1, SigHandler::Handler(host_handler));
    install(NixSignal::SIGHUP, SigHandler::SigIgn);
    assert_eq!(SignalWatcher::new(&[Signal::KILL]).unwrap_err(), WatchError::CannotBeCaught(Signal::KILL));

    let watcher = SignalWatcher::new(&[Signal::USR1, Signal::USR2, Signal::HUP, Signal::USR1]).unwrap();
    assert_eq!(SignalWatcher::new(&[Signal::TERM]).unwrap_err(), WatchError::InUse);
    for signal in [NixSignal::SIGUSR2, NixSignal::SIGUSR1, NixSignal::SIGHUP, NixSignal::SIGUSR2] {
        raise(signal).unwrap();
    }
    let came: Vec<Signal> = std::iter::from_fn(|| watcher.try_read()).collect();
    assert_eq!(came, [Signal::USR2, Signal::USR1, Signal::USR2], "an ignored signal stays ignored");
    assert_eq!(CALLS.load(Ordering::SeqCst), 1, "the host's handler is called as well");

    drop(watcher);
    raise(NixSignal::SIGUSR1).unwrap();
    assert_eq!(CALLS.load(Ordering::SeqCst), 2, "the host's handler is back");
    let before = install(NixSignal::SIGUSR2, SigHandler::SigDfl);
    assert!(matches!(before, SigHandler::SigDfl), "the default action is back");

    let again = SignalWatcher::new(&[Signal::USR2]).unwrap();
    assert_eq!(again.try_read(), None, "nothing of the earlier watcher's");
    drop(again);

    many_signals_at_once_are_handled_one_after_the_other();
}

/// The stack that signals get from the standard library has room for two or three; with one more the kernel kills.
fn many_signals_at_once_are_handled_one_after_the_other() {
    let mut signals = [Signal::INT, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::TERM, Signal::TSTP];
    signals.sort_by_key(|signal| signal.as_raw());
    let watcher = SignalWatcher::new(&signals).unwrap();
    let at_once = SigSet::all();
    at_once.thread_block().unwrap();
    for signal in &signals {
        raise(NixSignal::try_from(signal.as_raw()).unwrap()).unwrap();
    }
    at_once.thread_unblock().unwrap();
    let mut came: Vec<Signal> = std::iter::from_fn(|| watcher.try_read()).collect();
    came.sort_by_key(|signal| signal.as_raw());
    assert_eq!(came, signals);
}
