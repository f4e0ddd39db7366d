//! Restarts as the command makes them: counts, ports, pauses, what is not tried again and why, stop signals. Not here: the
//! decision (a unit test of `rankrun-launcher`), a program that resumes (`checkpoint`).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rankrun::Signal;
use rankrun_testkit::{Output, processes_with_argument, try_eventually};
use rankrun_tests::{Group, LIMIT, Pidfds, Script, worker};

fn ended(args: &[&str], script: Script<'_>) -> Output {
    Group::start(Pidfds::Used, 2, args, script).end()
}

/// What rankrun says after each attempt but the last, and why there is no further one.
fn said(output: &Output) -> Vec<String> {
    let text = output.stderr_text();
    let lines = text.lines().filter_map(|line| line.strip_prefix("rankrun: "));
    let told = |line: &&str| line.contains("; restart ") || line.starts_with("not started again: ");
    let told = lines.filter(told).map(|line| line.rsplit("; ").next().unwrap_or(line).to_owned());
    told.collect()
}

#[test]
fn each_attempt_has_its_own_count_and_port() {
    let script = "echo $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $MASTER_PORT; \
                  [ $TORCHELASTIC_RESTART_COUNT = 3 ] || exit 4; [ $TORCHELASTIC_RUN_ID = job ]";
    let args = ["--max-restarts", "3", "--run-id", "job", "--settle-time", "5"];
    let output = ended(&args, Script::Shell(script));
    assert_eq!(output.code, Some(0), "{output}");
    assert_eq!(said(&output), ["restart 1 of 3 now", "restart 2 of 3 now", "restart 3 of 3 now"]);
    let lines: BTreeSet<String> = output.sorted_stdout_lines().into_iter().collect();
    assert_eq!(lines.len(), 4, "both ranks of an attempt have the same: {output}");
    for (attempt, line) in lines.iter().enumerate() {
        assert!(line.starts_with(&format!("{attempt} 3 ")), "{line}");
    }
    let ports: BTreeSet<&str> = lines.iter().filter_map(|line| line.rsplit(' ').next()).collect();
    // The kernel may choose one of them twice, but not always the same.
    assert!(ports.len() > 1, "{ports:?}");
    let output = ended(&[&args[..], &["--master-port", "29517"]].concat(), Script::Shell(script));
    assert!(output.stdout_text().lines().all(|line| line.ends_with(" 29517")), "{output}");
}

#[test]
fn pauses_grow_up_to_the_longest() {
    let output = ended(&["--max-restarts", "3", "--restart-backoff", "0.1:0.3"], worker("exit 6"));
    assert_eq!(output.code, Some(6), "{output}");
    let expected = [
        "restart 1 of 3 in 0.1 s",
        "restart 2 of 3 in 0.2 s",
        "restart 3 of 3 in 0.3 s",
        "not started again: all 3 restarts are used up",
    ];
    assert_eq!(said(&output), expected, "{output}");
    assert!(output.elapsed >= Duration::from_millis(600), "{output}");
}

#[test]
fn what_is_given_up_is_said_with_its_reason() {
    let never = |codes: &'static str| ["--max-restarts", "3", "--no-restart-on", codes];
    for (args, script, code, reason) in [
        (&never("2,64-78")[..], "exit 65", 65, "exit code 65 is among those that are not tried again"),
        (&never("137"), "raise KILL", 137, "exit code 137 is among those that are not tried again"),
        (&["--max-restarts", "1"], "exit 9", 9, "the one restart is used up"),
    ] {
        let output = ended(args, worker(&format!("if-rank 1 {script} hang")));
        assert_eq!(output.code, Some(code), "{output}");
        let said = said(&output);
        assert_eq!(said.last(), Some(&format!("not started again: {reason}")), "{output}");
        assert_eq!(said.len(), if args.len() == 2 { 2 } else { 1 }, "{output}");
        // The report is the last attempt's, and there is one.
        assert_eq!(output.stderr_text().matches("Root cause").count(), 1, "{output}");
    }
    // Another code is tried again.
    let script = "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3";
    assert_eq!(ended(&never("2,64-78"), Script::Shell(script)).code, Some(0));
    // Where no restart was asked for there is nothing to say.
    assert_eq!(said(&ended(&[], worker("exit 3"))), [""; 0]);
}

#[test]
fn a_group_that_fails_too_soon_is_not_tried_again() {
    let args = ["--max-restarts", "2", "--min-uptime"];
    let output = ended(&[&args[..], &["60"]].concat(), worker("exit 3"));
    assert_eq!(output.code, Some(3), "{output}");
    let said_then = said(&output);
    assert!(said_then.len() == 1 && said_then[0].ends_with("sooner than the 60 s that a restart needs"), "{output}");
    // Its first attempt fails in time, its second too soon.
    let script = "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && sleep 2.1; exit 3";
    let output = ended(&[&args[..], &["2"]].concat(), Script::Shell(script));
    let said = said(&output);
    assert!(said.len() == 2 && said[0] == "restart 1 of 2 now" && said[1].contains("sooner than the 2 s"), "{output}");
}

#[test]
fn a_stop_signal_in_a_pause_ends_the_restarting() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        let mut group =
            Group::start(Pidfds::Used, 2, &["--max-restarts", "3", "--restart-backoff", "100"], worker("exit 6"));
        let is_said = || String::from_utf8_lossy(&group.running().stderr()).contains("restart 1 of 3 in 100.0 s");
        assert!(try_eventually(LIMIT, is_said).is_some());
        let sent = Instant::now();
        group.signal(signal);
        let output = group.end();
        assert_eq!(output.code, Some(code), "{output}");
        assert!(sent.elapsed() < Duration::from_secs(30), "it does not wait for the pause: {output}");
        let expected = format!("rankrun: stopped by {signal} before the next attempt\n");
        assert!(output.stderr_text().contains(&expected), "{output}");
    }
}

#[test]
fn a_stop_signal_in_a_later_attempt_ends_it_and_the_restarting() {
    let script = "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exit 6; fi; exec {W} on TERM [ touch {told} exit 9 ] touch {ready} hang";
    let mut group = Group::start(Pidfds::Used, 1, &["--max-restarts", "5"], Script::Shell(script));
    group.wait_for_files(&["ready"]);
    group.signal(Signal::TERM);
    let output = group.end();
    assert_eq!(output.code, Some(143), "{output}");
    assert!(group.file("told").exists(), "the workers had their signal");
    assert_eq!(said(&output), ["restart 1 of 5 now"], "{output}");
}

#[test]
fn nothing_of_an_attempt_is_left_when_the_next_one_begins() {
    let script = "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then \
                    env -i setsid {W} touch {d} hang & until test -e {d}; do sleep 0.01; done; exit 6; \
                  fi; touch {second}; until test -e {go}; do sleep 0.01; done";
    let mut group = Group::start(Pidfds::Used, 1, &["--max-restarts", "1"], Script::Shell(script));
    group.wait_for_files(&["second"]);
    let file = group.file("d").to_string_lossy().into_owned();
    // The shell has the whole script in one argument, the daemon the file alone.
    let mut daemons = processes_with_argument(&file);
    daemons.retain(|process| process.cmdline.contains(&file));
    assert!(daemons.is_empty(), "{daemons:?}");
    group.touch("go");
    assert_eq!(group.end().code, Some(0));
}
