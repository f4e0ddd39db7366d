//! A program that resumes: four ranks of Python that reduce over sockets, one of which crashes, and the whole group again.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rankrun_testkit::Launcher;
use rankrun_tests::{LIMIT, has_python, program};

const STEPS: u64 = 6;
const RANKS: u64 = 4;

/// What all ranks have added up in so many steps, each of them its rank + 1 times the step.
fn sum(steps: u64) -> u64 {
    (steps * (steps + 1) / 2) * (RANKS * (RANKS + 1) / 2)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn a_group_that_crashed_goes_on_from_its_checkpoint() {
    if !has_python("a restart from a checkpoint") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (logs, checkpoint) = (dir.path().join("logs"), dir.path().join("checkpoint.json"));
    let launcher = Launcher::rankrun().args(["-n", &RANKS.to_string(), "--max-restarts", "1", "-t", "3"]);
    let launcher = launcher.arg("--log-dir").arg(&logs).arg(program("train.py")).arg(&checkpoint);
    let output = launcher.args([&STEPS.to_string(), "2", "3"]).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(0), "{output}");

    let done = format!("sum {} after step {STEPS}", sum(STEPS));
    let lines = output.stdout_text();
    assert_eq!(lines.lines().filter(|line| line.ends_with(&done)).count() as u64, RANKS, "{output}");
    let said = output.stderr_text();
    let said = said.lines().find(|line| line.contains("restart 1 of 1")).unwrap_or_else(|| panic!("{output}"));
    assert!(said.contains("rank 2 ") && said.contains("ValueError: loss is NaN at step 3"), "{said}");

    let run = logs.join("latest");
    let mut ports = BTreeSet::new();
    for rank in 0..RANKS {
        for (attempt, after) in [(0, 0), (1, 2)] {
            let stdout = read(&run.join(format!("attempt_{attempt}/{rank}/stdout.log")));
            let words: Vec<&str> = stdout.lines().next().unwrap_or_default().split(' ').collect();
            assert_eq!(words[..4], ["attempt", &attempt.to_string(), "at", "port"], "{stdout}");
            assert!(stdout.contains(&format!("goes on after step {after}\n")), "{stdout}");
            assert_eq!(stdout.contains(&done), attempt == 1, "{stdout}");
            ports.insert((attempt, words[4].to_owned()));
        }
        assert!(!run.join(format!("attempt_1/{rank}/error.json")).exists());
    }
    assert_eq!(ports.len(), 2, "one port for all ranks of an attempt: {ports:?}");
    let error = read(&run.join("attempt_0/2/error.json"));
    assert!(error.contains("loss is NaN at step 3") && error.contains("Traceback"), "{error}");
    let stderr = read(&run.join("attempt_0/2/stderr.log"));
    assert!(stderr.contains("raise ValueError"), "{stderr}");
    assert_eq!(read(&checkpoint), format!("[{STEPS}, {}]", sum(STEPS)));
}
