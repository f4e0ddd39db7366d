//! What is run when it is typed as for torchrun: Python scripts, modules, programs; how many; arguments in the environment.

use std::fs;
use std::path::Path;

use rankrun_testkit::{Launcher, Output};
use rankrun_tests::{LIMIT, has_python};

/// Says how it was run: its arguments, whether output is buffered, and its rank.
const SCRIPT: &str = r#"
import os, sys
print(__name__, sys.argv[1:], sys.stdout.write_through, os.environ["RANK"], os.environ["WORLD_SIZE"])
"#;

fn run_in(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Output {
    let launcher = Launcher::rankrun().current_dir(dir).env_remove("PYTHON_EXEC").env_remove("PYTHONUNBUFFERED");
    let launcher = launcher.env_remove("CUDA_VISIBLE_DEVICES").env("PYTHONDONTWRITEBYTECODE", "1");
    let launcher = env.iter().fold(launcher, |launcher, (name, value)| launcher.env(name, value));
    launcher.args(args).run_with_timeout(LIMIT)
}

#[expect(clippy::unwrap_used, reason = "a temporary directory can be written to")]
fn scripts() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("pkg")).unwrap();
    for name in ["train.py", "script", "pkg/__init__.py", "pkg/train.py"] {
        fs::write(dir.path().join(name), if name.ends_with("__.py") { "" } else { SCRIPT }).unwrap();
    }
    dir
}

#[test]
fn a_python_file_a_module_and_a_run_path_run_with_python_unbuffered() {
    if !has_python("torchrun's program arguments") {
        return;
    }
    let dir = scripts();
    let script = dir.path().join("script");
    let expected = "__main__ ['--lr', '0.1'] True 0 1\n";
    for program in [
        &["train.py"][..],
        &["-m", "pkg.train"],
        &["--module", "--", "pkg.train"],
        &["--run-path", script.to_str().unwrap()],
    ] {
        let output = run_in(dir.path(), &[program, &["--lr", "0.1"]].concat(), &[]);
        assert_eq!((output.code, output.stdout_text().as_str()), (Some(0), expected), "{program:?}: {output}");
    }
}

#[test]
fn the_python_is_a_choice_of_the_argument_then_of_the_environment() {
    let dir = scripts();
    let echo = |args: &[&str], env: &[(&str, &str)]| run_in(dir.path(), args, env).stdout_text();
    assert_eq!(echo(&["--python", "echo", "train.py", "x"], &[("PYTHON_EXEC", "false")]), "-u train.py x\n");
    assert_eq!(echo(&["-m", "pkg.train"], &[("PYTHON_EXEC", "echo")]), "-u -m pkg.train\n");
}

#[test]
fn no_python_and_other_names_run_directly() {
    let dir = scripts();
    assert_eq!(run_in(dir.path(), &["--no-python", "./train.py"], &[]).code, Some(126), "it is not executable");
    let output = run_in(dir.path(), &["--no_python", "echo", "train.py"], &[]);
    assert_eq!((output.code, output.stdout_text().as_str()), (Some(0), "train.py\n"), "{output}");
    let output = run_in(dir.path(), &["--python", "nothing", "echo"], &[]);
    assert!(output.stderr_text().contains("--python has no effect"), "{output}");
}

#[test]
fn arguments_in_the_environment_hold_unless_the_command_line_has_others() {
    let dir = tempfile::tempdir().unwrap();
    let env = [("PET_NPROC_PER_NODE", "3"), ("PET_RDZV_ID", "job"), ("PET_NO_PYTHON", "1")];
    let script = ["sh", "-c", "echo $WORLD_SIZE $TORCHELASTIC_RUN_ID"];
    assert_eq!(run_in(dir.path(), &script, &env).stdout_text(), "3 job\n".repeat(3));
    let output = run_in(dir.path(), &[&["--nproc_per_node=2"][..], &script].concat(), &env);
    assert_eq!(output.stdout_text(), "2 job\n".repeat(2));
    let output = run_in(dir.path(), &script, &[("PET_NPROC_PER_NODE", "some")]);
    let text = output.stderr_text();
    assert_eq!((output.code, text.lines().count()), (Some(2), 1), "{text}");
    assert!(text.contains("PET_NPROC_PER_NODE") && text.contains("'some'") && text.contains("auto"), "{text}");
}

#[test]
fn a_rankrun_within_a_worker_of_a_pod_does_not_take_the_pods_nodes_for_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let pod = [("PET_NNODES", "2"), ("PET_NODE_RANK", "1"), ("PET_MASTER_ADDR", "job-0"), ("PET_MASTER_PORT", "23456")];
    let rankrun = rankrun_testkit::binary("rankrun-cli", "rankrun").to_string_lossy().into_owned();
    let shown = "echo $WORLD_SIZE $RANK $GROUP_RANK $MASTER_ADDR; test $MASTER_PORT != 23456";
    let outer = ["-n", "2", "sh", "-c", "echo $WORLD_SIZE $RANK $GROUP_RANK $MASTER_ADDR $MASTER_PORT"];
    let output = run_in(dir.path(), &outer, &pod);
    assert_eq!(output.sorted_stdout_lines(), ["4 2 1 job-0 23456", "4 3 1 job-0 23456"], "{output}");
    let inner = ["-n", "2", &rankrun, "-n", "1", "sh", "-c", shown];
    let output = run_in(dir.path(), &inner, &pod);
    assert_eq!(output.code, Some(0), "{output}");
    assert_eq!(output.sorted_stdout_lines(), ["1 0 0 127.0.0.1", "1 0 0 127.0.0.1"], "{output}");
    assert!(output.stderr_text().contains("is a worker of another launcher"), "{output}");
    // What is typed is its own all the same.
    let inner = ["-n", "1", &rankrun, "--nnodes", "1", "--master-port", "29555", "sh", "-c", "echo $MASTER_PORT"];
    assert_eq!(run_in(dir.path(), &inner, &pod).stdout_text(), "29555\n");
}

#[test]
fn workers_are_counted_by_gpus_and_else_by_cpus() {
    let host = tempfile::tempdir().unwrap();
    let root = |name: &str| host.path().join(name).to_str().unwrap().to_owned();
    let (proc, dev) = (root("proc"), root("dev"));
    let roots = [("RANKRUN_PROC", proc.as_str()), ("RANKRUN_DEV", dev.as_str())];
    let run = |nproc: &str, env: &[(&str, &str)]| {
        let script = ["-n", nproc, "--cpu-affinity", "0", "sh", "-c", "echo $WORLD_SIZE"];
        run_in(host.path(), &script, &[&roots[..], env].concat())
    };
    let count = |output: Output| output.stdout_text().lines().count();
    let output = run("gpu", &[]);
    assert_eq!((output.code, output.stderr_text().lines().count()), (Some(2), 1), "{output}");
    assert!(output.stderr_text().contains("there is no GPU"), "{output}");
    let cpus = rankrun::crates::process::CpuSet::allowed().unwrap().len();
    assert_eq!((count(run("auto", &[])), count(run("cpu", &[]))), (cpus, cpus));
    for gpu in ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"] {
        fs::create_dir_all(host.path().join("proc/driver/nvidia/gpus").join(gpu)).unwrap();
    }
    assert_eq!((count(run("auto", &[])), count(run("gpu", &[("CUDA_VISIBLE_DEVICES", "2,0")]))), (3, 2));
}

#[test]
fn completions_and_man_pages_come_from_the_command_itself() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let output = run_in(dir.path(), &["completions", shell], &[]);
        assert!(output.code == Some(0) && output.stdout_text().contains("nproc-per-node"), "{output}");
    }
    let output = run_in(dir.path(), &["completions", "csh"], &[]);
    assert!(output.code == Some(2) && output.stderr_text().contains("'csh'"), "{output}");
    assert_eq!(run_in(dir.path(), &["man-page", "."], &[]).code, Some(0));
    for page in ["rankrun.1", "rankrun-logs.1"] {
        assert!(fs::read_to_string(dir.path().join(page)).unwrap().starts_with(".ie"), "{page}");
    }
    assert_eq!(run_in(dir.path(), &["--", "completions"], &[]).code, Some(127), "a program of that name");
}

#[test]
fn fixed_nodes_give_ranks_and_what_is_dynamic_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let script = ["sh", "-c", "echo $RANK $LOCAL_RANK $WORLD_SIZE $GROUP_RANK $MASTER_ADDR $MASTER_PORT"];
    let run = |line: &str| run_in(dir.path(), &[&line.split(' ').collect::<Vec<_>>()[..], &script].concat(), &[]);
    let two = "--nnodes=2 --node-rank=1 --nproc-per-node=2";
    let output = run(&format!("{two} --master-addr=node0 --master-port=1234"));
    assert_eq!(output.sorted_stdout_lines(), ["2 0 4 1 node0 1234", "3 1 4 1 node0 1234"], "{output}");
    let output = run(&format!("{two} --rdzv-backend=c10d --rdzv-endpoint=node0 --rdzv-id=7"));
    assert_eq!(output.sorted_stdout_lines(), ["2 0 4 1 node0 29400", "3 1 4 1 node0 29400"], "{output}");
    for (line, words) in [
        ("--nnodes=1:4 --rdzv-backend=c10d --rdzv-endpoint=node0", &["'1:4'", "--nnodes", "fixed number"][..]),
        ("--nnodes=2 --rdzv-backend=etcd --rdzv-endpoint=node0:2379", &["'etcd'", "--rdzv-backend", "static or c10d"]),
        ("--standalone --nnodes=2", &["--standalone", "--nnodes 2"]),
        ("--nnodes=2 --node-rank=2 --master-addr=node0", &["--node-rank", "2"]),
        ("--nnodes=2 --node-rank=0 --rdzv-endpoint=node0:0", &["--rdzv-endpoint", "port 0"]),
        ("--rdzv-endpoint=node0:x", &["--rdzv-endpoint", "'node0:x'"]),
    ] {
        let output = run(line);
        let text = output.stderr_text();
        assert_eq!((output.code, text.lines().count()), (Some(2), 1), "{line}: {text}");
        for word in words {
            assert!(text.contains(word), "{line}: `{word}` not in {text}");
        }
    }
}

#[test]
fn threads_are_shared_out_and_that_is_said_once() {
    let run = |args: &[&str]| {
        let launcher = Launcher::rankrun().env_remove("OMP_NUM_THREADS").args(args);
        launcher.args(["sh", "-c", "echo $OMP_NUM_THREADS"]).run_with_timeout(LIMIT)
    };
    let output = run(&["-n", "64"]);
    assert_eq!((output.stdout_text(), output.stderr_text().lines().count()), ("1\n".repeat(64), 1), "{output}");
    assert!(output.stderr_text().contains("OMP_NUM_THREADS=1") && output.stderr_text().contains("--omp-threads"));
    let output = run(&["-n", "2", "--omp-threads", "3"]);
    assert_eq!((output.stdout_text().as_str(), output.stderr_text().as_str()), ("3\n3\n", ""));
}
