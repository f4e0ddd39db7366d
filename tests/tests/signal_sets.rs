//! Which signals stop a run and which are passed on while it goes on: by default, by flag, by environment.

use std::time::Duration;

use rankrun::Signal;
use rankrun_testkit::Launcher;
use rankrun_tests::{Group, LIMIT, Pidfds, has, touch_by_rank, with_and_without_pidfds, worker};

with_and_without_pidfds!(
    the_usual_forwarded_signals_reach_each_worker_and_the_job_goes_on,
    signals_by_flag_change_places,
    a_real_time_signal_can_stop_and_another_be_forwarded,
    a_signal_in_neither_set_keeps_its_usual_effect,
    a_second_signal_kills_the_whole_tree,
    a_burst_of_signals_ends_the_run_once,
    a_burst_of_forwarded_signals_ends_nothing,
);

const ENV: &str = "TORCHELASTIC_SIGNALS_TO_HANDLE";

fn the_usual_forwarded_signals_reach_each_worker_and_the_job_goes_on(pidfds: Pidfds) {
    let (one, two) = (touch_by_rank("one", 2), touch_by_rank("two", 2));
    let script = format!("on USR1 [ {one} ] on USR2 [ {two} ] {} wait-for {{go}} exit 0", touch_by_rank("ready", 2));
    let mut group = Group::start(pidfds, 2, &[], worker(&script));
    group.wait_for_each("ready", 2);
    group.signal(Signal::USR1);
    group.wait_for_each("one", 2);
    assert!(!group.file("two0").exists());
    group.signal(Signal::USR2);
    group.wait_for_each("two", 2);
    group.touch("go");
    let output = group.end();
    assert_eq!((output.code, output.stderr_text().as_str()), (Some(0), ""));
}

fn signals_by_flag_change_places(pidfds: Pidfds) {
    let args = ["--signals-to-handle", "USR1", "--signals-to-forward", "SIGTERM,int"];
    let script = "on TERM [ touch {term} ] on INT [ touch {int} ] on USR1 [ touch {usr1} exit 0 ] touch {ready} hang";
    let mut group = Group::start(pidfds, 1, &args, worker(script));
    group.wait_for_files(&["ready"]);
    group.signal(Signal::TERM);
    group.wait_for_files(&["term"]);
    group.signal(Signal::INT);
    group.wait_for_files(&["int"]);
    assert!(!group.running().has_ended());
    group.signal(Signal::USR1);
    let output = group.end();
    assert_eq!(output.code, Some(128 + 10), "{output}");
    assert!(group.file("usr1").exists(), "workers get the signal itself");
}

fn a_real_time_signal_can_stop_and_another_be_forwarded(pidfds: Pidfds) {
    let args = ["--signals-to-handle", "RTMIN+2", "--signals-to-forward", "RTMIN+3"];
    let script = "on RTMIN+3 [ touch {three} ] on RTMIN+2 [ exit 0 ] touch {ready} hang";
    let mut group = Group::start(pidfds, 1, &args, worker(script));
    group.wait_for_files(&["ready"]);
    group.signal("RTMIN+3".parse().expect("a signal"));
    group.wait_for_files(&["three"]);
    let stop: Signal = "RTMIN+2".parse().expect("a signal");
    group.signal(stop);
    assert_eq!(group.end().code, Some(128 + stop.as_raw()));
}

fn a_signal_in_neither_set_keeps_its_usual_effect(pidfds: Pidfds) {
    let args = ["--signals-to-handle", "TERM", "--signals-to-forward", ""];
    let script = "daemon [ touch {daemon} hang ] wait-for {daemon} touch {ready} hang";
    let mut group = Group::start(pidfds, 1, &args, worker(script));
    group.wait_for_files(&["ready"]);
    group.signal(Signal::USR1);
    let output = group.running().wait_timeout(LIMIT);
    assert_eq!(output.signal, Some(Signal::USR1), "{output}");
    rankrun_testkit::eventually("nothing is left", LIMIT, || group.left().is_empty());
}

#[test]
fn signals_by_environment_are_torchruns_and_a_flag_goes_before() {
    let script = "touch {ready} hang";
    for (flag, signal, code) in [(None, Signal::USR2, 140), (Some("USR1"), Signal::USR1, 138)] {
        let launcher = Launcher::rankrun().env(ENV, "SIGUSR2,SIGTERM");
        let args = flag.map(|flag| ["--signals-to-handle", flag]);
        let mut group = Group::start_as(launcher, 1, args.as_ref().map_or(&[][..], |args| &args[..]), worker(script));
        group.wait_for_files(&["ready"]);
        group.signal(signal);
        assert_eq!(group.end().code, Some(code));
    }
}

#[test]
fn what_cannot_be_caught_or_is_no_signal_is_refused_with_what_is_accepted() {
    for (option, value, words) in [
        ("--signals-to-handle", "TERM,KILL", &["SIGKILL", "cannot be caught"][..]),
        ("--signals-to-handle", "STOP", &["SIGSTOP", "cannot be caught"]),
        ("--signals-to-forward", "SIGKILL", &["SIGKILL", "cannot be caught"]),
        ("--signals-to-forward", "19", &["SIGSTOP", "cannot be caught"]),
        ("--dump-signal", "KILL", &["SIGKILL", "cannot be caught"]),
        ("--signals-to-handle", "TREM", &["`TREM`", "SIGTERM"]),
        ("--signals-to-handle", "0", &["`0`", "1 to 64"]),
        (ENV, "SIGTERM,SIGKILL", &["SIGKILL", "cannot be caught"]),
        (ENV, "nonsense", &["`nonsense`", "SIGTERM"]),
    ] {
        let launcher = match option {
            ENV => Launcher::rankrun().env(ENV, value).arg("true"),
            _ => Launcher::rankrun().args([option, value, "true"]),
        };
        let output = launcher.run_with_timeout(LIMIT);
        let text = output.stderr_text();
        assert_eq!((output.code, text.lines().count()), (Some(2), 1), "{option} {value}: {output}");
        for word in words {
            assert!(text.contains(word), "{option} {value}: `{word}` not in {text}");
        }
    }
}

#[test]
fn signals_ignored_at_the_start_stay_ignored() {
    if !has("signals ignored at the start", "env cannot ignore signals", &["env", "--ignore-signal=HUP", "true"]) {
        return;
    }
    let rankrun = rankrun_testkit::binary("rankrun-cli", "rankrun");
    let launcher = Launcher::new("env").args(["--ignore-signal=HUP", "--ignore-signal=INT"]).arg(rankrun);
    let script = "on USR1 [ touch {usr1} ] touch {ready} wait-for {go} exit 0";
    let mut group = Group::start_as(launcher, 1, &[], worker(script));
    group.wait_for_files(&["ready"]);
    group.signal(Signal::HUP);
    group.signal(Signal::INT);
    // What came later has been dealt with, so those have too.
    group.signal(Signal::USR1);
    group.wait_for_files(&["usr1"]);
    group.touch("go");
    let output = group.end();
    assert_eq!((output.code, output.stderr_text().as_str()), (Some(0), ""));
}

fn a_second_signal_kills_the_whole_tree(pidfds: Pidfds) {
    let script = "daemon [ ignore TERM ignore INT touch {daemon} hang ] spawn [ ignore TERM touch {child} hang ] \
                  on TERM [ touch {told} ] on INT [ touch {again} ] wait-for {daemon} wait-for {child} touch {ready} hang";
    let mut group = Group::start(pidfds, 1, &["--shutdown-timeout", "3600"], worker(script));
    group.wait_for_files(&["ready"]);
    group.signal(Signal::TERM);
    group.wait_for_files(&["told"]);
    group.signal(Signal::INT);
    let output = group.end();
    assert_eq!(output.code, Some(143), "the first is the reason: {output}");
    assert!(!group.file("again").exists(), "the second is not passed on");
}

fn a_burst_of_signals_ends_the_run_once(pidfds: Pidfds) {
    let script = format!("ignore TERM ignore INT {} hang", touch_by_rank("ready", 2));
    let mut group = Group::start(pidfds, 2, &["--shutdown-timeout", "3600"], worker(&script));
    group.wait_for_each("ready", 2);
    for _ in 0..200 {
        group.signal(Signal::TERM);
        group.signal(Signal::INT);
    }
    let output = group.end();
    let text = output.stderr_text();
    assert!(matches!(output.code, Some(143 | 130)), "{output}");
    assert_eq!(text.matches("stopped by").count(), 1, "{text}");
    assert!(output.elapsed < Duration::from_secs(60));
}

fn a_burst_of_forwarded_signals_ends_nothing(pidfds: Pidfds) {
    let script = format!(
        "on USR1 [ {} ] ignore USR2 {} wait-for {{go}} exit 0",
        touch_by_rank("got", 2),
        touch_by_rank("ready", 2)
    );
    let mut group = Group::start(pidfds, 2, &[], worker(&script));
    group.wait_for_each("ready", 2);
    for _ in 0..500 {
        group.signal(Signal::USR2);
        group.signal(Signal::USR1);
    }
    group.wait_for_each("got", 2);
    group.touch("go");
    let output = group.end();
    assert_eq!((output.code, output.stderr_text().as_str()), (Some(0), ""));
}
