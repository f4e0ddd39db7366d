//! A host program that ignores SIGCHLD takes the statuses of its children: nothing hangs, and what the kernel still knows
//! is not lost. In a file of its own, because it changes the whole process.

use rankrun_process::{Command, Spawner};
use rankrun_types::{ExitKind, Signal};

/// The kernel's answer where it knows exits after reaping (Linux 6.15), else a loss; never a success by mistake.
fn known_or_lost(known: ExitKind, got: ExitKind) {
    assert!(got == known || got == ExitKind::Lost, "{got:?}");
}

#[test]
fn the_exit_of_a_child_is_known_or_lost_and_nothing_hangs_when_sigchld_is_ignored() {
    if std::env::var_os("RANKRUN_NO_PIDFD").is_none() {
        // Once more without pidfds, in a process of its own, while children can still be waited for.
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        let output = again.env("RANKRUN_NO_PIDFD", "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    // SAFETY: SIG_IGN runs no code.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let mut spawner = Spawner::new().unwrap();
    let mut running = spawner.spawn(Command::new("/bin/sleep").args(["60"])).unwrap();
    assert_eq!(running.try_wait().unwrap(), None);
    running.signal(Signal::KILL).unwrap();
    let killed = ExitKind::Signal { signal: Signal::KILL, core_dumped: false };
    known_or_lost(killed, running.wait().unwrap().kind);

    let mut ended = spawner.spawn(Command::new("/bin/sh").args(["-c", "exit 7"])).unwrap();
    known_or_lost(ExitKind::Code(7), ended.wait().unwrap().kind);
    let error = spawner.spawn(Command::new("/no/such/program")).unwrap_err();
    assert_eq!(error.errno(), Some(2));
}
