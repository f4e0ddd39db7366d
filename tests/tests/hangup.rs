//! A terminal that goes away, as at the end of an `ssh -tt`, and `nohup`. Not here: which signals stop (`signal_sets`).

use std::fs;
use std::os::fd::OwnedFd;

use nix::sys::signal::Signal as NixSignal;
use rankrun::Signal;
use rankrun_testkit::{Launcher, binary, children_of, eventually};
use rankrun_tests::terminal::pair;
use rankrun_tests::{Group, LIMIT, Script, has, signal_to, worker};

fn start_as(words: &[&str], n: usize, args: &[&str], script: Script<'_>) -> Group {
    let launcher = Launcher::new(words[0]).args(&words[1..]).arg(binary("rankrun-cli", "rankrun"));
    Group::start_as(launcher.env("OMP_NUM_THREADS", "1"), n, args, script)
}

/// On a new terminal, in a session that it controls; the other end keeps it there. `shell` gets the command line.
fn on_a_terminal(shell: &str, args: &[&str], script: Script<'_>) -> (Group, OwnedFd) {
    let (master, slave) = pair();
    let line = format!("exec setsid --ctty sh -c '{shell}' \"$0\" \"$@\" <&1");
    let launcher = Launcher::new("sh").args(["-c", &line]).arg(binary("rankrun-cli", "rankrun"));
    let launcher = launcher.env("OMP_NUM_THREADS", "1").stderr(slave.try_clone().expect("a descriptor")).stdout(slave);
    (Group::start_as(launcher, 2, args, script), master)
}

/// Says that it was told to end, and leaves a daemon that says so too.
const WORKER: &str = "env -i setsid {W} ignore TERM on HUP [ touch {daemon} exit 0 ] touch {d} hang & \
                      until test -e {d}; do sleep 0.01; done; \
                      echo at work; exec {W} on HUP [ touch {told} out told exit 0 ] touch {ready} hang";

/// The same with a child that does not listen.
const STUBBORN: &str = "{W} ignore HUP hang & exec {W} on HUP [ touch {told} exit 0 ] touch {ready} hang";

#[test]
fn a_terminal_that_goes_away_stops_all_with_a_hangup() {
    let logs = tempfile::tempdir().expect("a log directory");
    let path = logs.path().to_str().expect("a path that is text");
    for args in [&[][..], &["-t", "3", "--log-dir", path]] {
        let (mut group, master) = on_a_terminal("exec \"$0\" \"$@\"", args, Script::Shell(WORKER));
        group.wait_for_files(&["ready"]);
        drop(master);
        let output = group.end();
        assert_eq!(output.code, Some(129), "{output}");
        assert!(group.file("told").exists() && group.file("daemon").exists(), "all were told");
    }
    let stdout = fs::read_to_string(logs.path().join("latest/attempt_0/0/stdout.log")).expect("the worker's output");
    assert_eq!(stdout, "at work\ntold\n");
}

#[test]
fn nothing_is_left_when_the_terminal_goes_away_under_the_shell_that_waits_for_rankrun() {
    let args = ["--shutdown-timeout", "1", "-t", "3"];
    let (mut group, master) = on_a_terminal("\"$0\" \"$@\"; true", &args, Script::Shell(STUBBORN));
    group.wait_for_files(&["ready"]);
    drop(master);
    let output = group.running().wait_timeout(LIMIT);
    assert_eq!(output.signal, Some(Signal::HUP), "the shell ends of it: {output}");
    eventually("rankrun and its group are gone", LIMIT, || group.left().is_empty());
    assert!(group.file("told").exists());
}

#[test]
fn a_run_that_does_not_care_goes_on_without_its_terminal() {
    let logs = tempfile::tempdir().expect("a log directory");
    let path = logs.path().to_str().expect("a path that is text");
    let script = worker("out before touch {ready} wait-for {go} out after exit 0");
    let shell = "trap \"\" HUP; exec \"$0\" \"$@\"";
    let (mut group, master) = on_a_terminal(shell, &["-t", "3", "--log-dir", path], script);
    group.wait_for_files(&["ready"]);
    drop(master);
    group.touch("go");
    assert_eq!(group.end().code, Some(0));
    let stdout = fs::read_to_string(logs.path().join("latest/attempt_0/1/stdout.log")).expect("the worker's output");
    assert_eq!(stdout, "before\nafter\n");
}

#[test]
fn a_run_under_nohup_survives_a_hangup_and_ends_of_sigterm() {
    if !has("a run under nohup", "there is no nohup", &["nohup", "true"]) {
        return;
    }
    let script = worker("on HUP [ exit 9 ] touch {ready} wait-for {go} exit 0");
    let mut group = start_as(&["nohup"], 2, &["-t", "3"], script);
    group.wait_for_files(&["ready"]);
    group.signal(Signal::HUP);
    group.touch("go");
    let output = group.end();
    assert_eq!(output.code, Some(0), "{output}");

    let mut group = start_as(&["nohup"], 2, &[], worker("on TERM [ exit 0 ] touch {ready} hang"));
    group.wait_for_files(&["ready"]);
    group.signal(Signal::HUP);
    group.signal(Signal::TERM);
    let output = group.end();
    assert_eq!(output.code, Some(143), "{output}");
}

#[test]
fn a_run_in_the_background_goes_on_when_its_shell_has_ended() {
    let script = worker("touch {ready} wait-for {go} touch {done} exit 0");
    // As a shell without job control does it: the job has no terminal, and ignores SIGINT and SIGQUIT.
    let mut group = start_as(&["sh", "-c", "\"$0\" \"$@\" & exit 0"], 2, &[], script);
    assert_eq!(group.running().wait_timeout(LIMIT).code, Some(0));
    eventually("its workers run", LIMIT, || group.file("ready").exists());
    let rankrun = group.running().processes().into_iter().find(|process| process.comm == "rankrun");
    let rankrun = rankrun.expect("it runs").pid;
    signal_to(rankrun, NixSignal::SIGINT);
    group.touch("go");
    eventually("the run is over", LIMIT, || group.left().is_empty() && children_of(rankrun).is_empty());
    assert!(group.file("done").exists());
}
