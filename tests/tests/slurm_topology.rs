//! What rankrun finds as a step of a Slurm job, and what it refuses. On the cluster of `cargo xtask slurm-test`; without it
//! each test says that it is skipped.

use rankrun_testkit::{Launcher, binary};
use rankrun_tests::LIMIT;
use rankrun_tests::slurm::{Slurm, has_slurm};

/// What a worker says of its place; `host` is a short list that all workers agree on.
const SAY: &str = "echo $RANK/$WORLD_SIZE node $GROUP_RANK/$GROUP_WORLD_SIZE restarts $TORCHELASTIC_RESTART_COUNT";
const MEET: &str = "echo $MASTER_ADDR $MASTER_PORT $TORCHELASTIC_RUN_ID";

#[test]
fn a_step_on_two_nodes_is_one_world_whose_nodes_share_a_log_directory() {
    if !has_slurm("the topology of a step") {
        return;
    }
    let script =
        format!("{SAY} > {{say}}$SLURM_NODEID$LOCAL_RANK; {MEET} > {{meet}}$SLURM_NODEID$LOCAL_RANK; echo here");
    let args = ["{rankrun}", "-n", "2", "--log-dir", "{logs}", "-r", "3", "sh", "-c", &script];
    let mut job = Slurm::srun(&[], &args);
    let output = job.end();
    assert_eq!(output.code, Some(0), "{output}");
    let worlds: Vec<String> = ["00", "01", "10", "11"].iter().map(|worker| job.text(&format!("say{worker}"))).collect();
    let expected = [0, 1, 2, 3].map(|rank| format!("{rank}/4 node {}/2 restarts 0\n", rank / 2));
    assert_eq!(worlds, expected, "{output}");
    let meet = job.text("meet00");
    assert_eq!([job.text("meet01"), job.text("meet10"), job.text("meet11")], [meet.as_str(); 3]);
    let [addr, port, run_id] = meet.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{meet}") };
    // The first of the two nodes, by the name that Slurm has for it.
    assert!(addr.ends_with('1') && (20_000..=29_499).contains(&port.parse::<u16>().unwrap()), "{meet}");
    for node in 0..2 {
        let dir = job.file("logs").join(run_id).join(format!("node_{node}/attempt_0"));
        for local_rank in 0..2 {
            let log = dir.join(format!("{local_rank}/stdout.log"));
            assert_eq!(std::fs::read_to_string(&log).unwrap_or_default(), "here\n", "{}", log.display());
        }
    }
}

#[test]
fn slurms_restarts_are_counted_and_have_directories_of_their_own() {
    if !has_slurm("counting a job's restarts") {
        return;
    }
    let step = format!(
        "srun {{rankrun}} -n 1 --rdzv-id job --log-dir {{logs}} -r 1 sh -c \
         '{SAY} > {{say}}$SLURM_NODEID-$SLURM_RESTART_COUNT; [ -n \"$SLURM_RESTART_COUNT\" ] || exec sleep 600'"
    );
    let mut job = Slurm::sbatch(&["--nodes=2", "--ntasks-per-node=1", "--requeue", "--wrap", &step], &[]);
    job.wait_for_files(&["say0-", "say1-"]);
    job.requeue();
    let output = job.end();
    assert_eq!(output.code, Some(0), "{output}");
    assert_eq!(job.text("say1-1"), "1/2 node 1/2 restarts 1\n");
    for attempt in ["attempt_0", "attempt_1"] {
        assert!(job.file("logs").join("job/node_1").join(attempt).is_dir(), "{attempt}");
    }
}

#[test]
fn a_batch_script_that_starts_it_on_one_of_two_nodes_is_told_how() {
    if !has_slurm("rankrun without srun") {
        return;
    }
    let mut job = Slurm::sbatch(&["--nodes=2", "--ntasks-per-node=1", "--wrap", "{rankrun} -n 2 true"], &[]);
    let output = job.end();
    let said = job.text("output");
    assert_eq!(output.code, Some(2), "{output}{said}");
    assert!(said.contains("NODES=2") && said.contains("srun --ntasks-per-node=1"), "{said}");
}

#[test]
fn more_than_one_task_on_a_node_is_refused_with_the_fix() {
    if !has_slurm("more tasks on a node") {
        return;
    }
    let mut job = Slurm::srun(&["--ntasks-per-node=2", "--overcommit"], &["{rankrun}", "-n", "2", "true"]);
    let output = job.end();
    let said = output.stderr_text();
    assert_eq!(output.code, Some(2), "{output}");
    assert!(said.contains("TASKS_PER_NODE=2") && said.contains("srun --ntasks-per-node=1"), "{said}");
}

#[test]
fn a_step_that_a_worker_starts_is_one_world_and_a_rankrun_within_a_worker_is_one_of_its_own() {
    if !has_slurm("a step that a worker starts") {
        return;
    }
    let rankrun = binary("rankrun-cli", "rankrun");
    let rankrun = rankrun.to_str().unwrap();
    let say = "echo world $RANK of $WORLD_SIZE";
    let inner = format!("exec {rankrun} --master-addr 127.0.0.1 -n 2 -t 3 sh -c '{say}'");
    let step = ["srun", "--nodes=2", "--ntasks-per-node=1", "sh", "-c", &inner];
    let output = Launcher::rankrun().args(["-n", "1"]).args(step).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(0), "{output}");
    let said = output.stdout_text();
    for rank in 0..4 {
        assert!(said.contains(&format!("world {rank} of 4")), "{output}");
    }
    assert!(output.stderr_text().contains("a worker of another launcher has started this step"), "{output}");

    let nested = ["{rankrun}", "--master-addr", "127.0.0.1", "-n", "1", rankrun, "-n", "2", "-t", "3", "sh", "-c", say];
    let mut job = Slurm::srun(&[], &nested);
    let output = job.end();
    assert_eq!(output.code, Some(0), "{output}");
    assert_eq!(output.stdout_text().matches(" of 2").count(), 4, "{output}");
}
