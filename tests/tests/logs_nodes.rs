//! The log files of a run that several nodes share, and `rankrun logs` of them: two launchers on this host are the nodes.

use std::path::Path;

use rankrun_testkit::{Launcher, Output, Running};
use rankrun_tests::{LIMIT, kept_runs};

fn path(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}

/// The launcher of one of two nodes with two workers each.
fn node(log_dir: &Path, node_rank: usize, run_id: &str, args: &[&str], script: &str) -> Running {
    let node_rank = node_rank.to_string();
    let nodes = ["--nnodes=2", "--node-rank", &node_rank, "--master-addr=127.0.0.1", "--rdzv-id", run_id];
    let launcher = Launcher::rankrun().args(nodes).args(["-n", "2", "-r", "1", "--log-dir", path(log_dir)]).args(args);
    launcher.args(["sh", "-c", script]).spawn()
}

fn run_both(log_dir: &Path, args: &[&str]) {
    let mut nodes = [1, 0].map(|k| node(log_dir, k, "job", args, "echo $RANK of $WORLD_SIZE at $GROUP_RANK"));
    for node in &mut nodes {
        let output = node.wait_timeout(LIMIT);
        assert_eq!(output.code, Some(0), "{output}");
    }
}

fn logs(args: &[&str]) -> Output {
    Launcher::rankrun().arg("logs").args(args).run_with_timeout(LIMIT)
}

#[track_caller]
fn shown(args: &[&str]) -> String {
    let output = logs(args);
    assert_eq!((output.code, output.stderr_text().as_str()), (Some(0), ""), "{output}");
    output.stdout_text()
}

#[test]
fn all_nodes_find_the_same_directory_by_the_runs_id_and_their_logs_are_shown_together() {
    let dir = tempfile::tempdir().unwrap();
    run_both(dir.path(), &[]);
    assert_eq!(kept_runs(dir.path()), [dir.path().join("job")]);
    let files = |node: usize| (2 * node..2 * node + 2).map(move |rank| (node, rank));
    let of_node = |node: usize, label: &str| -> String {
        files(node).map(|(node, rank)| format!("{label}[default{}]:{rank} of 4 at {node}\n", rank % 2)).collect()
    };
    let all = of_node(0, "node_0 ") + &of_node(1, "node_1 ");
    let job = dir.path().join("job");
    for place in [dir.path(), &job, &dir.path().join("latest")] {
        assert_eq!(shown(&[path(place)]), all);
        assert_eq!(shown(&[path(place), "--follow"]), all, "the run is over: nothing to wait for");
    }
    assert_eq!(shown(&[path(&job), "--node", "1"]), of_node(1, "node_1 "));
    assert_eq!(shown(&[path(&job), "--node=0", "--rank=1"]), "node_0 [default1]:1 of 4 at 0\n");
    assert_eq!(shown(&[path(&job.join("node_1"))]), of_node(1, ""));

    for (args, words) in [
        (["--node=2", path(&job)], ["no node 2", "its 2 nodes, from 0 to 1"]),
        (["--rank=2", path(&job)], ["no rank 2", "0 to 1"]),
    ] {
        let output = logs(&args);
        assert!(output.code == Some(2) && words.iter().all(|word| output.stderr_text().contains(word)), "{output}");
    }
}

#[test]
fn a_job_that_is_started_again_goes_on_in_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    run_both(dir.path(), &["--log-line-prefix-template", "${rank}> "]);
    run_both(dir.path(), &["--log-line-prefix-template", "${rank}> "]);
    let node = dir.path().join("job/node_1");
    assert!(node.join("attempt_0/1/stdout.log").is_file() && node.join("attempt_1/1/stdout.log").is_file());
    let line = "node_1 3> 3 of 4 at 1\n";
    assert_eq!(shown(&[path(dir.path()), "--node=1", "--rank=1"]), line.repeat(2));
}

#[test]
fn a_run_of_one_host_has_no_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["-r", "1", "--log-dir", path(dir.path()), "true"];
    assert_eq!(Launcher::rankrun().args(args).run_with_timeout(LIMIT).code, Some(0));
    let output = logs(&[path(dir.path()), "--node=0"]);
    assert!(output.code == Some(2) && output.stderr_text().contains("a run of one host"), "{output}");
}

#[test]
fn nodes_that_go_on_are_followed_until_the_last_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let files = tempfile::tempdir().unwrap();
    let script = format!(
        "echo first $RANK; while [ ! -e {0}/go$GROUP_RANK ]; do sleep 0.02; done; echo last $RANK",
        path(files.path())
    );
    let mut nodes = [0, 1].map(|k| node(dir.path(), k, "job", &[], &script));
    let files_are_there = || {
        (0..2).all(|k| {
            (0..2).all(|rank| {
                let file = dir.path().join(format!("job/node_{k}/attempt_0/{rank}/stdout.log"));
                file.metadata().is_ok_and(|meta| meta.len() > 0)
            })
        })
    };
    rankrun_testkit::eventually("all workers have written", LIMIT, files_are_there);
    let mut following = Launcher::rankrun().args(["logs", "-f", path(dir.path())]).spawn();
    following.wait_for_stdout("node_1 [default1]:first 3", LIMIT);
    for k in [1, 0] {
        std::fs::write(files.path().join(format!("go{k}")), "").unwrap();
        following.wait_for_stdout(&format!("node_{k} [default0]:last {}", 2 * k), LIMIT);
        assert_eq!(nodes[k].wait_timeout(LIMIT).code, Some(0));
        assert!(k == 0 || !following.has_ended(), "node 0 goes on");
    }
    let output = following.wait_timeout(LIMIT);
    assert_eq!((output.code, output.stdout_text().lines().count()), (Some(0), 8), "{output}");
}

#[test]
fn a_second_launcher_of_the_same_node_is_refused_while_the_first_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = node(dir.path(), 0, "job", &[], "echo up; exec sleep 600");
    let part = dir.path().join("job/node_0");
    rankrun_testkit::eventually("node 0 is up", LIMIT, || part.join("result.json").exists());
    let output = node(dir.path(), 0, "job", &[], "exit 7").wait_timeout(LIMIT);
    assert_eq!(output.code, Some(125), "{output}");
    let said = output.stderr_text();
    let expected = format!("another launcher of node 0 of this run goes on in {}: ", path(&part));
    assert!(said.contains(&expected) && said.contains("node rank"), "{said}");
    // Nothing of the first is touched.
    assert!(!part.join("attempt_1").exists(), "{said}");
    let result = Launcher::rankrun().args(["result", path(dir.path())]).run_with_timeout(LIMIT).stdout_text();
    assert!(result.starts_with("run job: running"), "{result}");
    // Another node, or another run, is not concerned; nor is whoever comes after the first.
    for (rank, run_id) in [(1, "job"), (0, "other")] {
        assert_eq!(node(dir.path(), rank, run_id, &[], "exit 0").wait_timeout(LIMIT).code, Some(0));
    }
    first.signal(rankrun::Signal::KILL);
    first.wait_timeout(LIMIT);
    assert_eq!(node(dir.path(), 0, "job", &[], "exit 0").wait_timeout(LIMIT).code, Some(0));
    first.assert_nothing_left();
}

#[test]
fn of_launchers_of_the_same_node_that_begin_at_once_one_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut launchers: Vec<Running> = (0..4).map(|_| node(dir.path(), 0, "job", &[], "exec sleep 600")).collect();
    let refused =
        |launchers: &mut Vec<Running>| launchers.iter_mut().filter_map(|one| one.has_ended().then_some(())).count();
    rankrun_testkit::eventually("three are refused", LIMIT, || refused(&mut launchers) == 3);
    for launcher in &mut launchers {
        launcher.signal(rankrun::Signal::TERM);
    }
    let mut codes: Vec<Option<i32>> = launchers.iter_mut().map(|launcher| launcher.wait_timeout(LIMIT).code).collect();
    codes.sort();
    assert_eq!(codes, [Some(125), Some(125), Some(125), Some(143)]);
}
