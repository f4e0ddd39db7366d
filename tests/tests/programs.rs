//! Programs that know nothing of rankrun: one in C that reads its rank from the environment, and pipelines of a shell.

use std::path::{Path, PathBuf};

use rankrun_testkit::{Launcher, Output};
use rankrun_tests::{Group, LIMIT, Pidfds, Script, has, program};
use tempfile::TempDir;

/// The C program, compiled; `None` where there is no compiler.
fn compiled() -> Option<(TempDir, PathBuf)> {
    if !has("a program in C", "there is no cc", &["cc", "--version"]) {
        return None;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("ranks");
    let cc = Launcher::new("cc").args(["-std=c99", "-O1", "-o"]).arg(&out).arg(program("ranks.c"));
    let output = cc.run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(0), "{output}");
    Some((dir, out))
}

fn run(args: &[&str], program: &Path, more: &[&str]) -> Output {
    Launcher::rankrun().args(args).arg(program).args(more).run_with_timeout(LIMIT)
}

#[test]
fn a_program_in_c_shares_the_work_by_its_rank() {
    let Some((_dir, ranks)) = compiled() else { return };
    let output = run(&["-n", "4"], &ranks, &[]);
    assert_eq!(output.code, Some(0), "{output}");
    let expected: Vec<String> =
        (0..4_u64).map(|rank| format!("rank {rank} of 4: {}", (rank..1000).step_by(4).sum::<u64>())).collect();
    assert_eq!(output.sorted_stdout_lines(), expected);
    // It writes to a file, so its lines come at its end: with its exit code they must be there.
    let output = run(&["-n", "2", "-t", "3"], &ranks, &["7"]);
    assert_eq!(output.code, Some(7), "{output}");
    assert!(output.stdout_text().contains("[default1]:rank 1 of 2: 250000\n"), "{output}");
    assert!(output.stderr_text().starts_with("default FAILED: rank 1 "), "{output}");
}

const FILTERS: &str = "printf '%s\\n' b a c a | sort -u | tr a-z A-Z";

#[test]
fn a_pipeline_of_a_shell_is_a_worker() {
    let output = Launcher::rankrun().args(["-n", "2", "-t", "1", "sh", "-c", FILTERS]).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(0), "{output}");
    let expected = ["[default0]:A", "[default0]:B", "[default0]:C", "[default1]:A", "[default1]:B", "[default1]:C"];
    assert_eq!(output.sorted_stdout_lines(), expected);
}

#[test]
fn a_pipeline_that_fails_in_its_middle_is_a_failure_where_the_shell_says_so() {
    if !has("a pipeline with pipefail", "there is no bash", &["bash", "-c", "set -o pipefail"]) {
        return;
    }
    for (options, code) in [("", 0), ("set -o pipefail; ", 3)] {
        let script = format!("{options}echo a | (cat; exit 3) | cat");
        let output = Launcher::rankrun().args(["-n", "2", "bash", "-c", &script]).run_with_timeout(LIMIT);
        assert_eq!(output.code, Some(code), "{script}: {output}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_writer_of_a_pipeline_as_in_a_shell() {
    // `yes` ends of SIGPIPE, which is not ignored in a worker.
    let output = Launcher::rankrun().args(["-n", "2", "sh", "-c", "yes | head -n 2"]).run_with_timeout(LIMIT);
    assert_eq!((output.code, output.stdout_text().as_str()), (Some(0), "y\ny\ny\ny\n"), "{output}");
}

#[test]
fn all_of_a_pipeline_ends_when_another_rank_fails() {
    let script = "if [ $RANK = 1 ]; then until test -e {go}; do sleep 0.01; done; exit 5; fi; \
                  {W} touch {a} hang | {W} touch {b} hang | {W} touch {c} hang";
    let mut group = Group::start(Pidfds::Used, 2, &[], Script::Shell(script));
    group.wait_for_files(&["a", "b", "c"]);
    group.touch("go");
    let output = group.end();
    assert_eq!(output.code, Some(5), "{output}");
}
