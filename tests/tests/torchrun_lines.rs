//! The command lines that torchrun's documentation shows, with scripts of our own: one node, several jobs on a node, and
//! fixed nodes by a dry run.

use std::fs;

use rankrun_testkit::{Launcher, Output};
use rankrun_tests::{LIMIT, has_python};

/// Says its arguments and where it is; with `fail` as its last argument, its first attempt fails.
const SCRIPT: &str = r#"
import os, sys
env = os.environ
if sys.argv[-1] == "fail" and env["TORCHELASTIC_RESTART_COUNT"] == "0" and env["RANK"] == "1":
    sys.exit(9)
names = "RANK LOCAL_RANK WORLD_SIZE GROUP_RANK TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID"
words = [sys.argv[1:], *(env[name] for name in names.split()), env["MASTER_ADDR"], int(env["MASTER_PORT"]) > 0]
# One write: an unbuffered print writes each word by itself, and the workers share the pipe.
sys.stdout.write(" ".join(map(str, words)) + "\n")
"#;

/// Runs a command line as it is typed, in a directory with the script.
fn typed(line: &str) -> Output {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for name in ["train.py", "pkg_train.py"] {
        fs::write(dir.path().join(name), SCRIPT).expect("a script");
    }
    let launcher = Launcher::rankrun().current_dir(dir.path()).env("PYTHONDONTWRITEBYTECODE", "1");
    let unset = ["PYTHON_EXEC", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"];
    let launcher = unset.iter().fold(launcher, |launcher, name| launcher.env_remove(name));
    launcher.args(line.split_whitespace()).run_with_timeout(LIMIT)
}

fn lines(line: &str) -> Vec<String> {
    let output = typed(line);
    assert_eq!(output.code, Some(0), "{line}: {output}");
    output.sorted_stdout_lines()
}

#[test]
fn one_node_with_several_workers() {
    if !has_python("torchrun's command lines") {
        return;
    }
    let got = lines("--standalone --nnodes=1 --nproc-per-node=2 train.py --arg1 x");
    assert_eq!(got.len(), 2);
    for (rank, line) in got.iter().enumerate() {
        assert!(line.starts_with(&format!("['--arg1', 'x'] {rank} {rank} 2 0 0 0 ")), "{line}");
        assert!(line.ends_with(" 127.0.0.1 True"), "{line}");
    }
}

#[test]
fn stacked_jobs_on_one_node() {
    if !has_python("torchrun's command lines") {
        return;
    }
    let got = lines("--rdzv-backend=c10d --rdzv-endpoint=localhost:0 --nnodes=1 --nproc-per-node=2 train.py x");
    assert!(got.len() == 2 && got.iter().all(|line| line.ends_with(" localhost True")), "{got:?}");
}

#[test]
fn a_failure_is_tolerated_with_restarts() {
    if !has_python("torchrun's command lines") {
        return;
    }
    let line = "--nnodes=1 --nproc-per-node=2 --max-restarts=3 --rdzv-id=job7 --rdzv-backend=c10d \
                --rdzv-endpoint=localhost:0 train.py fail";
    let got = lines(line);
    // Rank 0 may have ended well before rank 1 failed, and then says so twice.
    assert!(got.contains(&"['fail'] 1 1 2 0 1 3 job7 localhost True".to_owned()), "{got:?}");
    assert_eq!(typed(&line.replace("=3", "=0")).code, Some(9));
}

#[test]
fn a_module_and_a_program_that_is_not_python() {
    if !has_python("torchrun's command lines") {
        return;
    }
    assert_eq!(lines("--standalone --nproc_per_node=2 -m pkg_train --x 1").len(), 2);
    assert_eq!(lines("--standalone --nproc_per_node=2 --no_python echo hello"), ["hello", "hello"]);
}

#[test]
fn fixed_nodes_by_a_dry_run_which_starts_nothing() {
    let node = |line: &str| {
        let output = typed(&format!("--dry-run {line}"));
        assert_eq!(output.code, Some(0), "{line}: {output}");
        output.stdout_text()
    };
    for (rank, first) in [(0, 0), (1, 2)] {
        let line = format!(
            "--nnodes=2 --nproc-per-node=2 --node-rank={rank} --master-addr=node0 --master-port=29501 train.py --lr 0.1"
        );
        let text = node(&line);
        for words in [
            "python3 -u train.py --lr 0.1",
            "MASTER_ADDR=node0",
            "MASTER_PORT=29501",
            "WORLD_SIZE=4",
            &format!("GROUP_RANK={rank}"),
            &format!("rank {first} (local rank 0):"),
            &format!("rank {} (local rank 1):", first + 1),
            "TORCHELASTIC_ERROR_FILE=",
        ] {
            assert!(text.contains(words), "{line}: `{words}` not in:\n{text}");
        }
    }
    let text = node(
        "--nnodes=2 --node_rank=0 --rdzv_id=456 --rdzv_backend=c10d --rdzv_endpoint=node0:29400 -t 3 -m pkg_train",
    );
    for words in
        ["TORCHELASTIC_RUN_ID=456", "MASTER_PORT=29400", "python3 -u -m pkg_train", "stdout.log, shown here too"]
    {
        assert!(text.contains(words), "`{words}` not in:\n{text}");
    }
    let output = typed("--dry-run --no-python touch started");
    assert!(output.stdout_text().contains("command:        touch started"), "{output}");
    assert_eq!(output.stderr_text(), "", "{output}");
}

#[test]
fn what_needs_a_dynamic_rendezvous_is_refused_in_one_line() {
    let line = "--nnodes=1:4 --nproc-per-node=2 --max-restarts=3 --rdzv-id=1 --rdzv-backend=c10d --rdzv-endpoint=node0 train.py";
    let output = typed(line);
    assert_eq!((output.code, output.stderr_text().lines().count()), (Some(2), 1), "{output}");
    assert!(output.stderr_text().contains("dynamic rendezvous"), "{output}");
}
