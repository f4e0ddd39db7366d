//! `rankrun result`: what became of a run, of one host or of several nodes. Launchers on this host are the nodes.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rankrun::Signal;
use rankrun_launcher::{JOB_SCHEMA, RESULT_SCHEMA};
use rankrun_testkit::{Launcher, Output, Running, eventually, schema_violations};
use rankrun_tests::{LIMIT, as_nobody};
use serde_json::Value;

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn node(log_dir: &Path, node_rank: usize, program: &[&str]) -> Running {
    let node_rank = node_rank.to_string();
    let nodes = ["--nnodes=2", "--node-rank", &node_rank, "--master-addr=127.0.0.1", "--rdzv-id=job", "-n2"];
    Launcher::rankrun().args(nodes).args(["-r", "2", "--log-dir", path(log_dir)]).args(program).spawn()
}

fn result(args: &[&str]) -> Output {
    Launcher::rankrun().arg("result").args(args).run_with_timeout(LIMIT)
}

/// The job as JSON, which must be as its schemas say.
fn job(dir: &Path) -> Value {
    let output = result(&["--json", path(dir)]);
    assert_eq!(output.code, Some(0), "{output}");
    let job: Value = serde_json::from_slice(&output.stdout).unwrap();
    let schema = |text| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(schema_violations(&schema(JOB_SCHEMA), &job), [""; 0], "{output}");
    for record in job["results"].as_array().unwrap() {
        assert_eq!(schema_violations(&schema(RESULT_SCHEMA), record), [""; 0], "{output}");
    }
    job
}

#[test]
fn of_one_host_the_first_failure_and_the_exit_code_are_told_again() {
    let dir = tempfile::tempdir().unwrap();
    let script = "[ $RANK = 1 ] || exec sleep 600; echo 'last words' >&2; exit 7";
    let args = ["-n", "3", "-r", "2", "--run-id", "job-7", "--log-dir", path(dir.path()), "sh", "-c", script];
    assert_eq!(Launcher::rankrun().args(args).run_with_timeout(LIMIT).code, Some(7));
    let output = result(&[path(dir.path())]);
    assert_eq!((output.code, output.stderr_text().as_str()), (Some(0), ""), "{output}");
    let text = output.stdout_text();
    assert!(text.starts_with("run job-7: FAILED, exit code 7: rank 1 on node 0 ("), "{text}");
    assert!(text.contains("last words") && !text.contains("Nodes"), "{text}");
    assert!(!text.contains("exited with code"), "the same is not said twice: {text}");
    assert_eq!(result(&[path(dir.path()), "--exit-code"]).code, Some(7));
    let job = job(dir.path());
    assert_eq!((&job["state"], &job["nodes"]), (&"FAILED".into(), &1.into()));
}

#[test]
fn of_several_nodes_the_first_failing_rank_of_the_job_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = node(dir.path(), 0, &["sh", "-c", "echo up >&2; exec sleep 600"]);
    let log = dir.path().join("job/node_0/attempt_0/1/stderr.log");
    eventually("node 0 is up", LIMIT, || log.metadata().is_ok_and(|meta| meta.len() > 0));
    // A worker may write before all have started, and the record of that is made after.
    let record = dir.path().join("job/node_0/result.json");
    eventually("node 0 has a record", LIMIT, || record.exists());
    let up = job(dir.path());
    assert_eq!(
        (&up["state"], &up["exit_code"], &up["missing_nodes"]),
        (&"RUNNING".into(), &Value::Null, &vec![1].into())
    );
    assert_eq!(result(&["--exit-code", path(dir.path())]).code, Some(125), "it is not over");

    let script = "[ $LOCAL_RANK = 0 ] || exec sleep 600; exit 9";
    let output = node(dir.path(), 1, &["sh", "-c", script]).wait_timeout(LIMIT);
    assert_eq!(output.code, Some(9), "{output}");
    let said = output.stderr_text();
    assert!(said.contains("FAILED: rank 2 (local rank 0, ") && said.contains("rank 3: stopped by rankrun"), "{output}");
    // What an engine does then.
    first.signal(Signal::TERM);
    assert_eq!(first.wait_timeout(LIMIT).code, Some(143));

    let text = result(&[path(&dir.path().join("job"))]).stdout_text();
    for words in [
        "run job: FAILED, exit code 9: rank 2 on node 1 (",
        "node 0: stopped by SIGTERM, exit code 143",
        "node 1: FAILED, exit code 9",
        "rank:       2 (local rank 0)",
    ] {
        assert!(text.contains(words), "no `{words}` in {text}");
    }
    assert_eq!(result(&["--exit-code", path(dir.path())]).code, Some(9));
    let job = job(dir.path());
    assert_eq!((&job["first_failure"]["worker"]["rank"], &job["results"][1]["node_rank"]), (&2.into(), &1.into()));
}

#[test]
fn a_node_that_could_not_start_its_workers_is_the_failure() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(node(dir.path(), 1, &["no-such-program"]).wait_timeout(LIMIT).code, Some(127));
    let output = result(&["--exit-code", path(dir.path())]);
    assert_eq!(output.code, Some(127), "{output}");
    let text = output.stdout_text();
    assert!(text.contains("cannot start `no-such-program`") && text.contains("node 0: no result"), "{text}");
}

#[test]
fn a_node_whose_launcher_was_killed_is_told_apart_from_one_that_runs() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = node(dir.path(), 0, &["sleep", "600"]);
    let file = dir.path().join("job/node_0/result.json");
    eventually("the start is written down", LIMIT, || file.exists());
    running.signal(Signal::KILL);
    running.wait_timeout(LIMIT);
    let job = job(dir.path());
    assert_eq!(
        (&job["state"], &job["lost_nodes"], &job["missing_nodes"]),
        (&"UNKNOWN".into(), &vec![0].into(), &vec![1].into())
    );
    running.assert_nothing_left();
}

#[test]
fn of_one_host_a_launcher_that_was_killed_is_told_with_what_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--run-id", "job", "-r", "3", "--log-dir", path(dir.path()), "sleep", "600"];
    let mut running = Launcher::rankrun().args(args).spawn();
    let workers = || result(&["--json", path(dir.path())]).stdout_text().contains("\"running\"");
    eventually("the start is written down", LIMIT, workers);
    running.signal(Signal::KILL);
    running.wait_timeout(LIMIT);
    let output = result(&[path(dir.path())]);
    let text = output.stdout_text();
    assert!(
        output.code == Some(0) && text.starts_with("run job: not known: its launcher was killed or lost"),
        "{output}"
    );
    for words in ["launcher:   pid ", "started: ", "workers:    rank 0 ran (pid "] {
        assert!(text.contains(words), "no `{words}` in {text}");
    }
    assert_eq!(result(&["--exit-code", path(dir.path())]).code, Some(125), "how it would have ended nobody knows");
    running.assert_nothing_left();
}

#[test]
fn what_has_no_result_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |code: i32, words: &[&str]| {
        let output = result(&[path(dir.path())]);
        assert_eq!(output.code, Some(code), "{output}");
        let text = output.stderr_text();
        assert!(text.lines().count() == 1 && words.iter().all(|word| text.contains(word)), "{text}");
    };
    refused(2, &["neither a run's directory"]);
    let run = dir.path().join("attempt_0");
    std::fs::create_dir(&run).unwrap();
    refused(125, &["no result", "result.json"]);
    std::fs::write(dir.path().join("result.json"), "{").unwrap();
    refused(125, &["no result", "result.json", "line 1"]);
}

#[test]
fn a_run_that_may_not_be_read_is_denied_with_its_path() {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let (logs, run) = (dir.path().join("logs"), dir.path().join("logs/job_1"));
    let mode = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    std::fs::create_dir_all(run.join("attempt_0/0")).unwrap();
    mode(&run, 0o700);
    for link in [false, true] {
        if link {
            std::os::unix::fs::symlink("job_1", logs.join("latest")).unwrap();
        }
        for (command, place) in
            [("result", &logs), ("result", &run), ("status", &logs), ("status", &run), ("logs", &logs)]
        {
            let Some(launcher) = as_nobody("runs of others", dir.path()) else { return };
            let output = launcher.arg(command).arg(place).run_with_timeout(LIMIT);
            let expected = format!("rankrun: cannot read {}: Permission denied (os error 13)\n", run.display());
            assert_eq!((output.code, output.stderr_text()), (Some(125), expected), "{command} {output}");
        }
    }
    // Where nodes share a run, one of them that may not be read is not one that is missing.
    std::fs::remove_file(logs.join("latest")).unwrap();
    let node = logs.join("job_1/node_0");
    std::fs::create_dir_all(node.join("attempt_0/0")).unwrap();
    std::fs::remove_dir_all(run.join("attempt_0")).unwrap();
    mode(&run, 0o755);
    mode(&node, 0o700);
    let output = as_nobody("runs of others", dir.path()).unwrap().arg("result").arg(&logs).run_with_timeout(LIMIT);
    assert!(output.code == Some(125) && output.stderr_text().contains("/job_1/node_0: Permission denied"), "{output}");
}

#[test]
fn a_result_of_another_start_of_the_job_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let both = |nodes: [usize; 2], script: &str| {
        let mut launchers = nodes.map(|k| node(dir.path(), k, &["sh", "-c", script]));
        for launcher in &mut launchers {
            launcher.wait_timeout(LIMIT);
        }
    };
    let code = |more: &[&str]| result(&[&["--exit-code", path(dir.path())], more].concat());
    both([0, 1], "exit 0");
    assert_eq!((code(&[]).code, code(&["--restart-count=0"]).code), (Some(0), Some(0)));
    let output = code(&["--restart-count=1"]);
    assert_eq!(output.code, Some(125), "{output}");
    assert!(output.stdout_text().contains("nodes 0-1 without a result of this start (start 2 of the job)"), "{output}");

    // Only one node is started again.
    assert_eq!(node(dir.path(), 0, &["true"]).wait_timeout(LIMIT).code, Some(0));
    let output = code(&[]);
    assert_eq!(output.code, Some(125), "{output}");
    assert!(output.stdout_text().contains("node 1: no result of this start"), "{output}");
    let job = job(dir.path());
    assert_eq!((&job["missing_nodes"], &job["other_start_nodes"]), (&vec![1].into(), &vec![1].into()));
}

#[test]
fn a_result_that_is_no_file_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("attempt_0")).unwrap();
    nix::unistd::mkfifo(&dir.path().join("result.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let output = result(&[path(dir.path())]);
    assert!(output.code == Some(125) && output.stderr_text().contains("not a regular file"), "{output}");
}

#[test]
fn of_a_node_with_a_broken_result_that_alone_is_said() {
    let dir = tempfile::tempdir().unwrap();
    for k in [0, 1] {
        assert_eq!(node(dir.path(), k, &["true"]).wait_timeout(LIMIT).code, Some(0));
    }
    std::fs::write(dir.path().join("job/node_1/result.json"), "{").unwrap();
    let text = result(&[path(dir.path())]).stdout_text();
    assert!(text.contains("node 1: its result cannot be read, see below") && text.contains("line 1"), "{text}");
}

#[test]
fn of_a_run_of_which_a_part_may_not_be_read_the_rest_is_shown_and_the_part_is_denied() {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let logs = dir.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    for (k, script) in [(0, "echo zero >&2"), (1, "echo one >&2")] {
        assert_eq!(node(&logs, k, &["sh", "-c", script]).wait_timeout(LIMIT).code, Some(0));
    }
    let mode = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let job = logs.join("job");
    let as_other = |args: &[&str]| {
        as_nobody("a part of a run of others", dir.path()).map(|launcher| launcher.args(args).run_with_timeout(LIMIT))
    };
    for path in [&logs, &job, &job.join("node_0"), &job.join("node_0/attempt_0"), &job.join("node_0/attempt_0/0")] {
        mode(path, 0o755);
    }
    mode(&job.join("node_1"), 0o700);
    mode(&job.join("node_0/attempt_0/1"), 0o700);
    let denied = |place: &str| format!("{}: Permission denied (os error 13)", job.join(place).display());
    for more in [&[][..], &["--node=1"], &["--node=0,1", "--rank=1"]] {
        let Some(output) = as_other(&[&["logs", path(&job)], more].concat()) else { return };
        assert_eq!(output.code, Some(125), "{output}");
        let said = output.stderr_text();
        assert!(said.contains(&denied("node_1")), "{more:?} {said}");
        let of_rank = denied("node_0/attempt_0/1");
        assert_eq!(said.matches(&of_rank).count(), usize::from(more != ["--node=1"]), "{more:?} {said}");
        assert!(!said.contains("was captured"), "{said}");
        let shown = output.stdout_text();
        assert_eq!(shown.contains("node_0 [default0]:zero"), more.is_empty(), "{more:?} {output}");
    }
    let output = as_other(&["result", "--exit-code", path(&job)]).unwrap();
    assert_eq!(output.code, Some(125), "{output}");
    let text = output.stdout_text();
    assert!(text.contains("node 0: succeeded") && text.contains("node 1: its result cannot be read"), "{text}");
    assert!(text.contains(&denied("node_1/result.json")) && !text.contains("not started"), "{text}");
    let output = as_other(&["status", path(&job.join("node_0"))]).unwrap();
    assert!(output.code == Some(125) && output.stdout_text().contains("zero"), "{output}");
    assert!(output.stderr_text().contains(&denied("node_0/attempt_0/1")), "{output}");
    let output = as_other(&["status", path(&job)]).unwrap();
    assert!(
        output.code == Some(2) && output.stderr_text().contains("expected the directory of one node, such as node_0"),
        "{output}"
    );
}

#[test]
fn nodes_of_unequal_size_are_told_by_the_second_that_starts_and_have_not_succeeded() {
    let dir = tempfile::tempdir().unwrap();
    let start = |k: usize, workers: &str, script: &str| {
        let node_rank = k.to_string();
        let nodes = ["--nnodes=2", "--node-rank", &node_rank, "--master-addr=127.0.0.1", "--rdzv-id=job"];
        let launcher = Launcher::rankrun().args(nodes).args(["-n", workers, "--log-dir", path(dir.path())]);
        launcher.args(["sh", "-c", script]).spawn()
    };
    let wait = format!("while [ ! -e {}/go ]; do sleep 0.02; done", path(dir.path()));
    let mut first = start(0, "1", &wait);
    let record = dir.path().join("job/node_0/result.json");
    eventually("node 0 is up", LIMIT, || record.exists());
    let output = start(1, "2", "exit 0").wait_timeout(LIMIT);
    assert_eq!(output.code, Some(2), "{output}");
    let said = output.stderr_text();
    assert!(said.contains("WORLD_SIZE=4 on node 1") && said.contains("WORLD_SIZE=2 on node 0"), "{said}");
    assert!(!dir.path().join("job/node_1").exists(), "nothing was started");
    std::fs::write(dir.path().join("go"), "").unwrap();
    assert_eq!(first.wait_timeout(LIMIT).code, Some(0));

    // Afterwards nobody can know; the result of both does.
    std::fs::remove_dir_all(dir.path().join("job")).unwrap();
    for (k, workers) in [(0, "1"), (1, "2")] {
        assert_eq!(start(k, workers, "exit 0").wait_timeout(LIMIT).code, Some(0));
    }
    let output = result(&["--exit-code", path(dir.path())]);
    assert_eq!(output.code, Some(2), "{output}");
    let text = output.stdout_text();
    assert!(text.starts_with("run job: FAILED, exit code 2: nodes disagree about the world size"), "{text}");
    assert!(text.contains("node 0: WORLD_SIZE=2") && text.contains("node 1: WORLD_SIZE=4"), "{text}");
    assert!(job(dir.path())["disagreement"].is_string());
}

#[test]
fn of_nodes_of_unequal_size_that_start_at_once_one_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("touch {0}/up$GROUP_RANK; exec sleep 600", path(dir.path()));
    let mut nodes = [0, 1].map(|k: usize| {
        let (node_rank, workers) = (k.to_string(), (k + 1).to_string());
        let args =
            ["--nnodes=2", "--node-rank", &node_rank, "--master-addr=127.0.0.1", "--rdzv-id=job", "-n", &workers];
        Launcher::rankrun().args(args).args(["--log-dir", path(dir.path()), "sh", "-c", &script]).spawn()
    });
    let said = |nodes: &[Running; 2]| {
        nodes.iter().any(|node| String::from_utf8_lossy(&node.stderr()).contains("WORLD_SIZE=4 on node 1"))
    };
    eventually("one has seen the other", LIMIT, || said(&nodes));
    for node in &mut nodes {
        node.signal(Signal::TERM);
        node.wait_timeout(LIMIT);
        node.assert_nothing_left();
    }
}
