//! The job scripts and manifests of `docs/jobs`, as far as that can be checked without their engines. They are run in
//! `slurm_scripts` and `mpirun`.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::process::Command;

use rankrun_testkit::{Launcher, binary};
use rankrun_tests::{LIMIT, has, job_script};
use saphyr::{LoadableYamlNode, Yaml};

fn manifest() -> String {
    std::fs::read_to_string(job_script("jobset.yaml")).unwrap()
}

/// What is at a path of keys and indices.
fn at<'a, 'b>(node: &'a Yaml<'b>, path: &str) -> &'a Yaml<'b> {
    path.split('.').fold(node, |node, key| {
        let found = match key.parse::<usize>() {
            Ok(index) => node.as_sequence_get(index),
            Err(_) => node.as_mapping_get(key),
        };
        found.unwrap_or_else(|| panic!("no {key} of {path}"))
    })
}

fn texts<'a>(node: &'a Yaml<'_>) -> Vec<&'a str> {
    node.as_vec().unwrap().iter().map(|item| item.as_str().unwrap()).collect()
}

#[test]
fn each_script_is_one_that_its_shell_can_read() {
    let mut names: Vec<String> = std::fs::read_dir(job_script("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".sh") || name.ends_with(".sbatch"))
        .collect();
    names.sort();
    assert_eq!(names, ["mpirun.sh", "slurm-requeue.sbatch", "slurm.sbatch"]);
    for name in names {
        let shell = if name.ends_with(".sh") { "sh" } else { "bash" };
        let output = Command::new(shell).arg("-n").arg(job_script(&name)).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_jobset_says_the_same_of_its_nodes_its_grace_and_its_exit_codes_everywhere() {
    let text = manifest();
    let documents = Yaml::load_from_str(&text).unwrap();
    let [jobset] = &documents[..] else { panic!("{} documents", documents.len()) };
    assert_eq!(at(jobset, "apiVersion").as_str(), Some("jobset.x-k8s.io/v1alpha2"));
    assert_eq!(at(jobset, "kind").as_str(), Some("JobSet"));
    let job = at(jobset, "spec.replicatedJobs.0");
    assert_eq!(at(job, "replicas").as_integer(), Some(1), "the index of a pod is that of the node then");
    let job = at(job, "template.spec");
    let container = at(job, "template.spec.containers.0");
    let command = texts(at(container, "command"));
    let value = |option: &str| -> i64 {
        let found = command.iter().find_map(|word| word.strip_prefix(option)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("no {option}")).parse().unwrap()
    };
    assert_eq!(command[0], "rankrun");
    for count in ["parallelism", "completions"] {
        assert_eq!(at(job, count).as_integer(), Some(value("--nnodes")), "{count}");
    }
    assert_eq!(
        at(container, "resources.limits").as_mapping_get("nvidia.com/gpu").unwrap().as_integer(),
        Some(value("--nproc-per-node"))
    );
    let grace = at(job, "template.spec.terminationGracePeriodSeconds").as_integer().unwrap();
    assert!(grace > value("--shutdown-timeout"), "{grace}");
    // What the API wants with a podFailurePolicy, and of an index.
    assert_eq!(at(job, "template.spec.restartPolicy").as_str(), Some("Never"));
    assert_eq!((at(job, "completionMode").as_str(), at(job, "backoffLimit").as_integer()), (Some("Indexed"), Some(0)));
    let rule = at(job, "podFailurePolicy.rules.0");
    let codes: Vec<i64> =
        at(rule, "onExitCodes.values").as_vec().unwrap().iter().map(|code| code.as_integer().unwrap()).collect();
    assert_eq!((at(rule, "action").as_str(), codes), (Some("FailJob"), vec![2, 126, 127]));
    assert_eq!(at(rule, "onExitCodes.containerName").as_str(), at(container, "name").as_str());
}

#[test]
fn each_pod_of_the_jobset_finds_its_node_and_the_first_pod() {
    // A pod has a name of its own.
    let (what, why) = ("the topology of a pod", "no other host name can be had");
    if !has(what, why, &["unshare", "--uts", "hostname", "pod"]) {
        return;
    }
    let text = manifest();
    let documents = Yaml::load_from_str(&text).unwrap();
    let pod = at(&documents[0], "spec.replicatedJobs.0.template.spec.template.spec.containers.0");
    let names: Vec<&str> =
        at(pod, "env").as_vec().unwrap().iter().map(|env| at(env, "name").as_str().unwrap()).collect();
    // What the controller puts on the labels, by the name of what takes it from there.
    let labels = BTreeMap::from([("JOBSET_NAME", "train"), ("JOBSET_RESTART_ATTEMPT", "2")]);
    for index in ["0", "3"] {
        let script = "hostname train-worker-0-$JOB_COMPLETION_INDEX && exec \"$@\"";
        let mut launcher = Launcher::new("unshare").args(["--uts", "sh", "-c", script, "sh"]);
        launcher = launcher.arg(binary("rankrun-cli", "rankrun")).args(["topology", "--json"]);
        launcher = launcher.args(&texts(at(pod, "command"))[1..]);
        launcher = launcher.env("JOB_COMPLETION_INDEX", index).env("KUBERNETES_SERVICE_HOST", "10.0.0.1");
        for name in &names {
            launcher = launcher.env(name, labels[name]);
        }
        let output = launcher.run_with_timeout(LIMIT);
        assert_eq!(output.code, Some(0), "{output}");
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let value = |name: &str| found[name].to_string();
        let place = ["nodes", "node_rank", "local_world_size", "restart_count", "master_port"].map(value);
        assert_eq!(place, ["4", index, "8", "2", "29500"], "{output}");
        assert_eq!(found["master_addr"], "train-worker-0-0.train", "{output}");
    }
}
