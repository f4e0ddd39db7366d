//! One group of workers over the nodes of a Slurm job: who they are, where they meet, what is refused. On the cluster of
//! `cargo xtask slurm-test`; without it each test says that it is skipped.

use rankrun_tests::slurm::{Slurm, has_slurm};
use rankrun_tests::{has_python, program};

/// The test's nodes have names that nobody resolves.
const MASTER: &str = "--master-addr=127.0.0.1";

#[test]
fn the_topology_of_a_step_is_found_on_each_node() {
    if !has_slurm("rankrun topology") {
        return;
    }
    let script = "{rankrun} topology -n 8 train.py >{shown}$SLURM_NODEID";
    let mut job = Slurm::srun(&[], &["sh", "-c", script]);
    let output = job.end();
    assert_eq!(output.code, Some(0), "{output}");
    for node in ["0", "1"] {
        let shown = job.text(&format!("shown{node}"));
        let row = |name: &str, value: &str, from: &str| {
            let found = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|words| {
                words.len() > 1 && words[0] == name && words[1] == value && words[2..].join(" ").contains(from)
            });
            assert!(found, "no {name} {value} {from} in:\n{shown}");
        };
        row("source", "slurm", "");
        row("nodes", "2", "SLURM_STEP_NUM_NODES");
        row("node_rank", node, "SLURM_NODEID");
        row("local_world_size", "8", "");
        row("master_addr", "n1", "SLURM_STEP_NODELIST");
        assert!(shown.contains("SLURM_JOB_ID and SLURM_STEP_ID"), "{shown}");
    }
}

#[test]
fn workers_of_two_nodes_sum_their_numbers() {
    if !has_slurm("a sum over two nodes") || !has_python("a sum over two nodes") {
        return;
    }
    let sum = program("sum.py");
    let args = ["{rankrun}", MASTER, "-n", "2", "-t", "3", "--log-dir", "{logs}", sum.to_str().unwrap()];
    let mut job = Slurm::srun(&[], &args);
    let output = job.end();
    assert_eq!(output.code, Some(0), "{output}");
    let expected: Vec<String> =
        (0..4).map(|rank| format!("[default{}]:rank {rank} of 4: the sum is 10", rank % 2)).collect();
    let mut lines = output.sorted_stdout_lines();
    lines.sort_by_key(|line| line.split_once(':').map(|(_, text)| text.to_owned()));
    assert_eq!(lines, expected, "{output}");
    // One directory for both nodes, known by the ids of job and step.
    let latest = std::fs::read_link(job.file("logs").join("latest")).unwrap();
    assert!(latest.to_str().unwrap().ends_with(".0"), "{latest:?}");
    for node in ["node_0", "node_1"] {
        let file = job.file("logs").join(&latest).join(node).join("attempt_0/1/stdout.log");
        assert!(std::fs::read_to_string(file).unwrap().contains("the sum is 10"));
    }
}

#[test]
fn restarts_within_a_step_of_two_nodes_are_refused_with_what_requeues() {
    if !has_slurm("--max-restarts with two nodes") {
        return;
    }
    let args = ["{rankrun}", MASTER, "--max-restarts", "3", "touch", "{started}"];
    let mut job = Slurm::srun(&[], &args);
    let output = job.end();
    assert_eq!(output.code, Some(2), "{output}");
    assert!(output.stderr_text().contains("sbatch --requeue"), "{output}");
    assert!(!job.file("started").exists());
}
