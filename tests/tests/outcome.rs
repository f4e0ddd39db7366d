//! The outcome is never lost: whatever rankrun inherits from who started it, and however a worker ends.

use rankrun::{ExitKind, Signal};
use rankrun_testkit::{Launcher, binary};
use rankrun_tests::{Group, LIMIT, Pidfds, Script, has, with_and_without_pidfds, worker};

with_and_without_pidfds!(
    codes_are_right_where_sigchld_is_ignored,
    codes_are_right_where_all_signals_are_blocked,
    a_run_told_to_stop_stops_where_all_signals_are_blocked,
    a_real_time_signal_is_128_plus_its_number_and_named,
    a_core_dump_is_told_apart,
    a_worker_that_stops_and_goes_on_has_not_ended,
);

/// rankrun started by env(1) with an option that changes what is done about signals; `None` if env has no such option.
fn by_env(pidfds: Pidfds, option: &str) -> Option<Launcher> {
    let found = has(option, "env does not know it", &["env", option, "true"]);
    found.then(|| pidfds.apply(Launcher::new("env").arg(option).arg(binary("rankrun-cli", "rankrun"))))
}

fn codes_are_right(pidfds: Pidfds, option: &str) {
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137), ("sleep 0.1; exit 3", 3)] {
        let Some(launcher) = by_env(pidfds, option) else { return };
        let output = launcher.args(["-n", "4", "sh", "-c", script]).run_with_timeout(LIMIT);
        assert_eq!(output.code, Some(code), "{script}: {output}");
    }
}

fn codes_are_right_where_sigchld_is_ignored(pidfds: Pidfds) {
    codes_are_right(pidfds, "--ignore-signal=CHLD");
}

fn codes_are_right_where_all_signals_are_blocked(pidfds: Pidfds) {
    codes_are_right(pidfds, "--block-signal");
}

fn a_run_told_to_stop_stops_where_all_signals_are_blocked(pidfds: Pidfds) {
    let Some(launcher) = by_env(pidfds, "--block-signal") else { return };
    let mut group = Group::start_as(launcher, 2, &[], worker("mask touch {ready} hang"));
    group.wait_for_files(&["ready"]);
    group.signal(Signal::TERM);
    let output = group.end();
    assert_eq!(output.code, Some(143), "{output}");
    let text = output.stdout_text();
    assert!(text.contains("SigBlk:\t0000000000000000"), "workers start with nothing blocked: {text}");
}

fn a_real_time_signal_is_128_plus_its_number_and_named(pidfds: Pidfds) {
    let signal: Signal = "RTMIN+5".parse().expect("it is a signal");
    let mut group = Group::start(pidfds, 2, &[], worker("raise RTMIN+5"));
    let output = group.end();
    assert_eq!(output.code, Some(128 + signal.as_raw()), "{output}");
    assert!(output.stderr_text().contains(&signal.to_string()), "{output}");
}

fn a_core_dump_is_told_apart(pidfds: Pidfds) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path().to_str().expect("its path is text");
    let run = |limit: &str| {
        let args = ["--chdir", dir, "--rlimit", limit];
        Group::start(pidfds, 1, &args, Script::Shell("kill -SEGV $$")).end()
    };
    let (with, without) = (run("core=unlimited:unlimited"), run("core=0"));
    assert_eq!((with.code, without.code), (Some(139), Some(139)), "{with}");
    assert!(!without.stderr_text().contains("core dumped"), "{without}");
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.starts_with('|') || pattern.trim().is_empty() {
        eprintln!("skipped: a core dump: core_pattern is `{}`", pattern.trim());
        return;
    }
    assert!(with.stderr_text().contains("core dumped"), "{with}");
    let kind = |core_dumped| ExitKind::Signal { signal: Signal::SEGV, core_dumped }.to_string();
    assert!(with.stderr_text().contains(&kind(true)) && without.stderr_text().contains(&kind(false)), "{with}");
}

fn a_worker_that_stops_and_goes_on_has_not_ended(pidfds: Pidfds) {
    let mut group = Group::start(pidfds, 1, &[], worker("touch {ready} stop touch {on} exit 6"));
    group.wait_for_files(&["ready"]);
    let pid = group.workers()[0].pid;
    group.wait_for_state(&[pid], 'T');
    assert!(!group.running().has_ended());
    rankrun_tests::signal_to(pid, nix::sys::signal::Signal::SIGCONT);
    let output = group.end();
    assert_eq!(output.code, Some(6), "{output}");
}
