//! `--keep-descendants`: what workers left behind stays if all succeeded, and only then.

use nix::sys::signal::Signal as NixSignal;
use rankrun_testkit::{kill_processes_with_env, processes_with_argument};
use rankrun_tests::{Group, LIMIT, Pidfds, signal_to, with_and_without_pidfds, worker};

with_and_without_pidfds!(they_stay_after_success, they_end_after_a_failure, they_end_after_a_stop);

const LEAVE: &str = "spawn [ touch {child} hang ] daemon [ touch {daemon} hang ] wait-for {child} wait-for {daemon}";

fn they_stay_after_success(pidfds: Pidfds) {
    let mut group = Group::start(pidfds, 1, &["--keep-descendants"], worker(&format!("{LEAVE} exit 0")));
    let mark = group.running().mark().to_owned();
    let output = group.running().wait_timeout(LIMIT);
    let kept = group.running().processes();
    // A kept process that was stopped, say, would be no use.
    for name in ["child", "daemon"] {
        let file = group.file(name).to_string_lossy().into_owned();
        let found = processes_with_argument(&file);
        assert!(found.len() == 1 && matches!(found[0].state, 'S' | 'R'), "{name}: {found:?}");
        signal_to(found[0].pid, NixSignal::SIGTERM);
    }
    kill_processes_with_env(rankrun_testkit::MARK, &mark);
    assert_eq!((output.code, kept.len()), (Some(0), 2), "{output}\n{kept:?}");
}

fn they_end_after_a_failure(pidfds: Pidfds) {
    let mut group = Group::start(pidfds, 1, &["--keep-descendants"], worker(&format!("{LEAVE} exit 3")));
    assert_eq!(group.end().code, Some(3));
}

fn they_end_after_a_stop(pidfds: Pidfds) {
    let script = format!("{LEAVE} touch {{ready}} hang");
    let mut group = Group::start(pidfds, 1, &["--keep-descendants"], worker(&script));
    group.wait_for_files(&["ready"]);
    group.signal(rankrun::Signal::TERM);
    assert_eq!(group.end().code, Some(143));
}
