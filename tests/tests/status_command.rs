//! `rankrun status`: what it shows of a run that goes on, that has ended, and whose launcher was killed.

use std::path::Path;

use rankrun::Signal;
use rankrun_testkit::{Launcher, Output, eventually};
use rankrun_tests::LIMIT;

fn status(dir: &Path) -> Output {
    Launcher::rankrun().arg("status").arg(dir).run_with_timeout(LIMIT)
}

/// The row of a rank.
fn row(output: &Output, rank: usize) -> String {
    let text = output.stdout_text();
    let row = text.lines().skip(3).find(|line| line.trim_start().starts_with(&format!("{rank}  ")));
    row.unwrap_or_else(|| panic!("no rank {rank} in {output}")).to_owned()
}

#[test]
fn workers_of_a_run_that_goes_on_are_shown_with_what_they_use_and_say() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"
        case $RANK in
            0) echo "step 17"; while :; do :; done;;
            1) echo "waiting" >&2; sleep 600;;
            2) exit 0;;
        esac"#;
    let args = ["-n", "3", "-r", "3", "--role", "trainer", "--run-id", "job7", "--log-dir"];
    let mut running = Launcher::rankrun().args(args).arg(dir.path()).args(["sh", "-c", script]).spawn();
    let output = eventually("all is as it will stay", LIMIT, || {
        let output = status(dir.path());
        let text = output.stdout_text();
        (text.contains("step 17") && text.contains("waiting") && text.contains("ended")).then_some(output)
    });
    assert_eq!(output.code, Some(0), "{output}");
    assert!(output.stdout_text().starts_with("trainer: job7 (RUNNING), 0:"), "{output}");
    let (busy, idle) = (row(&output, 0), row(&output, 1));
    assert!(
        busy.contains("running") && busy.contains('%') && busy.contains("iB") && busy.ends_with("step 17"),
        "{busy}"
    );
    assert!(idle.contains("sleeping") && idle.contains(" 0%") && idle.ends_with("waiting"), "{idle}");
    assert!(row(&output, 2).contains("ended"), "{output}");
    running.signal(Signal::TERM);
    running.wait_timeout(LIMIT);
    let output = status(dir.path());
    assert!(output.stdout_text().starts_with("trainer: job7 (STOPPED), 0:"), "{output}");
    assert!(output.stdout_text().contains("exit code 143"), "{output}");
    assert!(row(&output, 0).contains("SIGTERM") && row(&output, 2).contains("exit code 0"), "{output}");
}

#[test]
fn a_run_whose_launcher_was_killed_is_told_from_one_that_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Launcher::rankrun()
        .args(["-t", "1", "--log-dir"])
        .arg(dir.path())
        .args(["sh", "-c", "echo hello; sleep 600"])
        .spawn();
    eventually("it runs", LIMIT, || status(dir.path()).stdout_text().contains("hello").then_some(()));
    running.signal(Signal::KILL);
    running.wait_timeout(LIMIT);
    let output = status(dir.path());
    assert!(output.code == Some(0) && output.stdout_text().contains("(its launcher was killed)"), "{output}");
    assert!(row(&output, 0).contains("unknown"), "{output}");
}

#[test]
fn what_is_no_run_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let output = status(dir.path());
    assert_eq!((output.code, output.stderr_text().lines().count()), (Some(2), 1), "{output}");
    let output = Launcher::rankrun().arg("status").run_with_timeout(LIMIT);
    assert_eq!((output.code, output.stderr_text().lines().count()), (Some(2), 1), "{output}");
    assert!(output.stderr_text().contains("DIR") && output.stderr_text().contains("rankrun status --help"), "{output}");
    let output = Launcher::rankrun().args(["--", "status"]).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(127), "a program of that name");
}
