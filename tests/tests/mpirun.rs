//! One rankrun on each host of an `mpirun`. Both hosts are this machine: a remote shell that only drops the host's name
//! stands for ssh. Skipped where there is no Open MPI.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rankrun::Signal;
use rankrun_testkit::{Launcher, Running, binary, eventually};
use rankrun_tests::{LIMIT, has, has_python, job_script, program};
use tempfile::TempDir;

const MASTER: &str = "--master-addr=127.0.0.1";

fn has_mpirun(what: &str) -> bool {
    let is_open_mpi = "mpirun --version | grep -q 'Open MPI'";
    has(what, "there is no mpirun of Open MPI", &["sh", "-c", is_open_mpi])
}

/// What Open MPI needs to be told by whom it runs, and on every host.
fn told(launcher: Launcher) -> Launcher {
    launcher
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        // Its daemons share the topology through a hole in their address space; of Debian's 4.1.4 about one start of twelve
        // then ends with SIGSEGV in hwloc_shmem_topology_write.
        .env("OMPI_MCA_rtc_hwloc_vmhole", "none")
}

/// A remote shell that drops the host's name.
fn remote_shell(files: &TempDir) -> PathBuf {
    let shell = files.path().join("remote-shell");
    fs::write(&shell, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n").expect("a script can be written");
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).expect("it is ours");
    shell
}

/// `mpirun` over two hosts with `per_host` processes each of this command, in which `{NAME}` is a file in the directory.
fn mpirun(files: &TempDir, per_host: usize, options: &[&str], command: &[&str]) -> Running {
    let hosts = format!("one:{per_host},two:{per_host}");
    let launcher = told(Launcher::new("mpirun"))
        .args(["--mca", "plm_rsh_agent"])
        .arg(remote_shell(files))
        .args(["--host", &hosts, "--map-by", &format!("ppr:{per_host}:node"), "--bind-to", "none"])
        .args(options);
    let put = |text: &&str| {
        let named = |name| format!("{}", files.path().join(name).display());
        ["up", "term", "logs"]
            .iter()
            .fold((*text).to_owned(), |text, name| text.replace(&format!("{{{name}}}"), &named(name)))
    };
    launcher.arg(binary("rankrun-cli", "rankrun")).args(command.iter().map(put)).spawn()
}

fn wait_for_all(files: &TempDir) {
    eventually("all workers are up", LIMIT, || (0..4).all(|rank| files.path().join(format!("up{rank}")).exists()));
}

#[test]
fn workers_of_two_hosts_sum_their_numbers() {
    if !has_mpirun("a sum over two hosts") || !has_python("a sum over two hosts") {
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let sum = program("sum.py");
    // mpirun gives its processes a terminal.
    let command = [MASTER, "-n", "2", "-t", "3", "--color", "never", "--log-dir", "{logs}", sum.to_str().unwrap()];
    let output = mpirun(&files, 1, &[], &command).wait_timeout(LIMIT);
    assert_eq!(output.code, Some(0), "{output}");
    for rank in 0..4 {
        let line = format!("[default{}]:rank {rank} of 4: the sum is 10", rank % 2);
        assert!(output.stdout_text().lines().any(|found| found == line), "no {line}: {output}");
    }
    let run = files.path().join("logs/latest");
    assert!(run.join("node_0/attempt_0/0/stdout.log").is_file() && run.join("node_1/attempt_0/1/stdout.log").is_file());
}

#[test]
fn a_worker_that_fails_on_one_host_ends_the_other_with_grace() {
    if !has_mpirun("a failing rank on one of two hosts") {
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let script = "touch {up}$RANK; while [ $RANK = 3 ]; do [ -e {up}0 ] && [ -e {up}1 ] && [ -e {up}2 ] && exit 7; done; \
                  trap 'echo term >>{term}$RANK; exit 0' TERM; while :; do sleep 0.1; done";
    // From SIGTERM to SIGKILL, one second unless told otherwise; mpirun waits all of it.
    let options = ["--mca", "odls_base_sigkill_timeout", "2"];
    let mut running = mpirun(&files, 1, &options, &[MASTER, "-n", "2", "sh", "-c", script]);
    let output = running.wait_timeout(LIMIT);
    assert_eq!(output.code, Some(7), "{output}");
    for rank in 0..2 {
        assert!(files.path().join(format!("term{rank}")).exists(), "rank {rank}: {output}");
    }
    running.assert_nothing_left();
}

#[test]
fn a_stop_of_mpirun_stops_all_hosts_and_leaves_nothing() {
    if !has_mpirun("SIGTERM to mpirun") {
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let script = "touch {up}$RANK; trap '' TERM; (setsid sleep 600 &); while :; do sleep 0.1; done";
    let mut running = mpirun(&files, 1, &[], &[MASTER, "-n", "2", "sh", "-c", script]);
    wait_for_all(&files);
    running.signal(Signal::TERM);
    let output = running.wait_timeout(LIMIT);
    assert_ne!(output.code, Some(0), "{output}");
    running.assert_nothing_left();
}

#[test]
fn what_mpirun_does_not_say_must_be_given_and_more_than_one_process_on_a_host_is_refused() {
    if !has_mpirun("refusals under mpirun") {
        return;
    }
    for (per_host, command, words) in [
        (1, &["-n", "2", "touch", "{up}"][..], &["--master-addr", "mpirun does not say it"][..]),
        (2, &[MASTER, "-n", "2", "touch", "{up}"], &["OMPI_COMM_WORLD_LOCAL_SIZE=2", "ppr:1:node"]),
    ] {
        let files = tempfile::tempdir().unwrap();
        let output = mpirun(&files, per_host, &[], command).wait_timeout(LIMIT);
        assert_eq!(output.code, Some(2), "{output}");
        assert!(words.iter().all(|word| output.stderr_text().contains(word)), "{words:?}: {output}");
        assert!(!files.path().join("up").exists());
    }
}

#[test]
fn the_documented_script_runs_one_rankrun_on_each_host_and_says_who_failed() {
    if !has_mpirun("docs/jobs/mpirun.sh") {
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let directory = binary("rankrun-cli", "rankrun").parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap();
    let path = std::env::join_paths(std::iter::once(directory).chain(std::env::split_paths(&path))).unwrap();
    let launcher =
        Launcher::new("sh").arg(job_script("mpirun.sh")).args(["sh", "-c", "[ $RANK = 3 ] || exec sleep 600; exit 7"]);
    let launcher = launcher.env("PATH", path).env("HOSTS", "one,two").env("MASTER", "127.0.0.1").env("WORKERS", "2");
    let launcher = launcher.env("GRACE", "2").env("LOGS", files.path().join("logs")).current_dir(files.path());
    let output = told(launcher).env("OMPI_MCA_plm_rsh_agent", remote_shell(&files)).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(7), "{output}");
    assert!(output.stdout_text().contains("FAILED, exit code 7: rank 3 on node 1"), "{output}");
    // mpirun gives its processes a terminal, of which whoever reads the file knows nothing.
    let all = output.stdout_text() + &output.stderr_text();
    assert!(!all.contains('\x1b') && !all.contains("workers running"), "{all:?}");
}
