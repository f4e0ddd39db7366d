//! Functions as workers of programs with a `main`: where the function is taken, what a wrong place says, a program that is
//! replaced while it runs, an environment that is passed on, and the example of the README.

#![expect(clippy::unwrap_used, reason = "clippy knows test functions, not their helpers")]

use std::path::Path;
use std::process::{Command, Output};

use rankrun_testkit::{MARK, assert_no_process_left, unique_id};

const FUNCTION_MAIN: &str = env!("CARGO_BIN_EXE_function-main");

fn run(program: impl AsRef<Path>, place: &str, args: &[&str]) -> Output {
    let (mark, tmp) = (unique_id("functions"), tempfile::tempdir().unwrap());
    let mut command = Command::new(program.as_ref());
    let command = command.args(args).env(MARK, &mark).env("FUNCTION_MAIN", place).env("TMPDIR", tmp.path());
    let output = command.env_remove("LOCAL_RANK").output().unwrap();
    assert_no_process_left(MARK, &mark);
    output
}

fn stdout(place: &str) -> String {
    let output = run(FUNCTION_MAIN, place, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refusal(place: &str, args: &[&str]) -> String {
    let output = run(FUNCTION_MAIN, place, args);
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn init_takes_the_function_in_main() {
    assert_eq!(stdout("first"), "Some((\"main\", [\"--shard\", \"7\"], true))\n".repeat(2));
}

#[test]
fn without_init_it_is_taken_before_main() {
    // With musl the command line is not known before `main`.
    let args = if cfg!(target_env = "musl") { "[]" } else { "[\"--shard\", \"7\"]" };
    let out = stdout("never");
    let (name, rest) = out.lines().next().unwrap().split_once(", ").unwrap();
    assert!(name.starts_with("Some((\""), "{out}");
    assert_eq!(rest, format!("{args}, true))"));
}

#[test]
fn a_worker_that_comes_to_its_own_group_first_is_refused() {
    let text = refusal("not in workers", &[]);
    assert!(text.contains("exited with code 1 before it ran `function_main::surroundings`"), "{text}");
    assert!(
        text.contains("a worker that has not run its function yet") && text.contains("`rankrun::init()`"),
        "{text}"
    );
}

#[test]
fn a_main_that_ends_before_init_says_that_nothing_was_run() {
    let text = refusal("after the arguments", &["x"]);
    assert!(text.contains("exit code 2: exited with code 2 before it ran `function_main::surroundings`"), "{text}");
    let text = refusal("after the end", &[]);
    assert!(text.contains("exited 0 without running `function_main::surroundings`: call `rankrun::init()`"), "{text}");
}

#[test]
fn a_program_that_is_replaced_while_it_runs_runs_what_it_was_started_as() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    std::fs::copy(FUNCTION_MAIN, &program).unwrap();
    let output = run(&program, "replaced", &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("Some((\"main\""));
    assert!(!Command::new(&program).status().unwrap().success(), "it is /bin/false by now");
}

#[test]
fn a_program_that_is_deleted_while_it_runs_runs_on_as_its_workers() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    std::fs::copy(FUNCTION_MAIN, &program).unwrap();
    let output = run(&program, "deleted", &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("Some((\"main\"") && !program.exists());
}

#[test]
#[cfg(target_env = "gnu")]
fn a_program_that_is_started_through_the_loader_says_that_it_cannot_be_executed_again() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let loader = maps.lines().find_map(|line| line.split_ascii_whitespace().find(|word| word.contains("/ld-")));
    let output = run(loader.unwrap(), "first", &[FUNCTION_MAIN]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("was started through the loader `/") && text.contains("start the program itself"), "{text}");
}

#[test]
fn what_is_larger_than_a_file_may_be_ends_neither_launcher_nor_worker_by_a_signal() {
    for (place, whose) in [
        ("large arguments", "all local ranks: the arguments of `function_main::bytes` cannot be encoded"),
        ("large value", "the return value of `function_main::bytes` cannot be encoded"),
    ] {
        let script = format!("ulimit -f 2048; exec {FUNCTION_MAIN}");
        let output = run("sh", place, &["-c", &script]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        let limit = format!("{whose}: it does not fit into the file size limit of ");
        assert!(text.contains(&limit) && text.contains(" bytes (RLIMIT_FSIZE, ulimit -f)"), "{text}");
    }
}

#[test]
fn a_variable_that_no_launcher_sets_is_the_reason_also_without_init() {
    let mut command = Command::new(FUNCTION_MAIN);
    let output = command.env("FUNCTION_MAIN", "never").env("RANKRUN_FUNCTION", "7").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("RANKRUN_FUNCTION is `7`, which no launcher sets: remove it"), "{text}");
}

#[test]
fn a_note_that_is_not_for_this_program_is_refused_in_one_line() {
    for (note, says) in [
        ("before-main:2:0:0:2", "descriptor 3 is not the file that the launcher gave this worker"),
        ("before-main:0:0:0:2", "this worker was not handed what it needs"),
        ("7", "the environment variable RANKRUN_FUNCTION is `7`, which no launcher sets: remove it"),
    ] {
        let mut command = Command::new(FUNCTION_MAIN);
        let output = command.env("FUNCTION_MAIN", "first").env("RANKRUN_FUNCTION", note).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn the_example_of_the_readme_runs_and_is_the_example() {
    let output = run(env!("CARGO_BIN_EXE_pi-example"), "", &[]);
    let out = String::from_utf8(output.stdout).unwrap();
    let pi: f64 = out.trim_end().strip_prefix("pi is about ").unwrap().parse().unwrap();
    assert!((3.13..3.15).contains(&pi), "{out}");
    let example = include_str!("../../crates/rankrun/examples/pi.rs").split_once("\n\n").unwrap().1;
    assert!(include_str!("../../crates/rankrun-functions/README.md").contains(example));
    assert!(example.lines().count() <= 25);
}
