//! A host program that ignores SIGCHLD takes the statuses of its children: they are lost, and nothing hangs.
//! In a file of its own, because it changes the whole process.

use rankrun_process::{Command, Spawner};
use rankrun_types::ExitKind;

#[test]
fn the_exit_of_a_child_is_lost_and_not_a_success_when_sigchld_is_ignored() {
    // SAFETY: SIG_IGN runs no code.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let mut spawner = Spawner::new().unwrap();
    let mut running = spawner.spawn(Command::new("/bin/sleep").args(["60"])).unwrap();
    assert_eq!(running.try_wait().unwrap(), None);
    running.signal(rankrun_types::Signal::KILL).unwrap();
    assert_eq!(running.wait().unwrap().kind, ExitKind::Lost);

    let mut ended = spawner.spawn(Command::new("/bin/true")).unwrap();
    assert_eq!(ended.wait().unwrap().kind, ExitKind::Lost);
    let error = spawner.spawn(Command::new("/no/such/program")).unwrap_err();
    assert_eq!(error.errno(), Some(2));
}
