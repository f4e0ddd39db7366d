//! A table of environments and what each means. Not here: host lists, ports and texts, which are tested where they are made.

#![expect(clippy::unwrap_used, reason = "clippy knows test functions, not their helpers")]

use rankrun_launcher::{DERIVED_PORTS, Env, MasterPort, Topology, TopologyArgs, TopologySource};

const WORKERS: usize = 4;

/// Variables as `A=1 B=2`.
fn env(text: &str) -> Env {
    text.split_ascii_whitespace().map(|pair| pair.split_once('=').unwrap()).map(|(k, v)| (k.into(), v.into())).collect()
}

/// Arguments as they are typed.
fn args(text: &str) -> TopologyArgs {
    let mut args = TopologyArgs::default();
    let mut words = text.split_ascii_whitespace();
    while let Some(option) = words.next() {
        if option == "--standalone" {
            args.standalone = true;
            continue;
        }
        let value = words.next().unwrap();
        match option {
            "--topology" => args.choice = value.parse().unwrap(),
            "--nnodes" => args.nodes = Some(value.parse().unwrap()),
            "--node-rank" => args.node_rank = Some(value.parse().unwrap()),
            "--master-addr" => args.master_addr = Some(value.to_owned()),
            "--local-addr" => args.local_addr = Some(value.to_owned()),
            "--master-port" => args.master_port = Some(value.parse().unwrap()),
            "--rdzv-id" => args.run_id = Some(value.to_owned()),
            other => panic!("{other}"),
        }
    }
    args
}

fn found(arguments: &str, environment: &str, host: &str) -> Topology {
    Topology::resolve(&args(arguments), WORKERS, &env(environment), host)
        .unwrap_or_else(|error| panic!("{arguments} {environment}: {error}"))
}

/// `source node/nodes addr:port run_id restarts`
fn short(topology: &Topology) -> String {
    let Topology { source, nodes, node_rank, master_addr, master_port, restart_count, .. } = topology;
    let run_id = topology.run_id.as_deref().unwrap_or("-");
    format!("{source} {node_rank}/{nodes} {master_addr}:{master_port} {run_id} {restart_count}")
}

const STEP: &str = "SLURM_JOB_ID=4242 SLURM_STEP_ID=1 SLURM_PROCID=1 SLURM_NODEID=1 SLURM_JOB_NUM_NODES=4 SLURM_NNODES=2 \
                    SLURM_STEP_NUM_NODES=2 SLURM_JOB_NODELIST=n[1-4] SLURM_STEP_NODELIST=n[2-3] SLURM_NTASKS=2 \
                    SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_TASKS_PER_NODE=1(x2) SLURMD_NODENAME=n3";
const BATCH: &str = "SLURM_JOB_ID=4242 SLURM_PROCID=0 SLURM_NODEID=0 SLURM_JOB_NUM_NODES=1 SLURM_NNODES=1 \
                     SLURM_JOB_NODELIST=n1 SLURM_NTASKS=8 SLURM_TASKS_PER_NODE=8 SLURMD_NODENAME=n1";
const OPERATOR: &str =
    "KUBERNETES_SERVICE_HOST=10.0.0.1 MASTER_ADDR=job-master-0 MASTER_PORT=23456 RANK=1 WORLD_SIZE=3";
const TRAIN_JOB: &str = "KUBERNETES_SERVICE_HOST=10.0.0.1 JOB_COMPLETION_INDEX=1 PET_NNODES=2 PET_NPROC_PER_NODE=auto \
                         PET_NODE_RANK=1 PET_MASTER_ADDR=tj-node-0-0.tj PET_MASTER_PORT=29500";
const OMPI: &str = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=1";
const WORKER: &str =
    "RANK=3 LOCAL_RANK=3 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=1234 TORCHELASTIC_RUN_ID=outer";

fn check(cases: &[(&str, &str, &str, &str)]) {
    for (arguments, environment, host, expected) in cases {
        assert_eq!(short(&found(arguments, environment, host)), *expected, "{arguments} {environment}");
    }
}

#[test]
fn without_more_it_is_one_node_and_arguments_need_no_engine() {
    check(&[
        ("", "", "host", "one node 0/1 127.0.0.1:free - 0"),
        ("", "MASTER_ADDR=10.0.0.1 MASTER_PORT=29500", "host", "one node 0/1 10.0.0.1:29500 - 0"),
        ("--standalone", "MASTER_ADDR=10.0.0.1 MASTER_PORT=29500", "host", "static 0/1 127.0.0.1:free - 0"),
        ("--standalone --master-port 77", STEP, "host", "static 0/1 127.0.0.1:77 - 0"),
        ("--nnodes 1 --node-rank 0", "", "host", "static 0/1 127.0.0.1:free - 0"),
        ("--local-addr 10.1.2.3", "", "host", "one node 0/1 10.1.2.3:free - 0"),
        ("--local-addr 10.1.2.3", "MASTER_ADDR=10.0.0.1", "host", "one node 0/1 10.1.2.3:free - 0"),
        ("--local-addr 10.1.2.3 --standalone", "", "host", "static 0/1 10.1.2.3:free - 0"),
        ("--local-addr 10.1.2.3 --nnodes 1", STEP, "host", "static 0/1 10.1.2.3:free - 0"),
        ("--local-addr 10.1.2.3 --master-addr a", "", "host", "one node 0/1 a:free - 0"),
        ("--local-addr 10.1.2.3", STEP, "host", "slurm 1/2 n2:25239 4242.1 0"),
        ("--topology none", STEP, "host", "static 0/1 127.0.0.1:free - 0"),
        ("--topology none", "PET_NNODES=2", "host", "static 0/1 127.0.0.1:free - 0"),
        ("--nnodes 2 --node-rank 1 --master-addr a", "", "host", "static 1/2 a:29500 - 0"),
        ("--nnodes 2 --node-rank 1 --master-addr a --master-port 7 --rdzv-id x", STEP, "host", "static 1/2 a:7 x 0"),
        ("--nnodes 2 --node-rank 1", "MASTER_ADDR=b MASTER_PORT=8", "host", "static 1/2 b:8 - 0"),
        ("", "PET_NNODES=2:2 PET_NODE_RANK=1 PET_MASTER_ADDR=a PET_RDZV_ID=r", "host", "static 1/2 a:29500 r 0"),
        ("--node-rank 0", "PET_NNODES=2 PET_NODE_RANK=1 PET_MASTER_ADDR=a", "host", "static 0/2 a:29500 - 0"),
        ("--topology static", STEP, "host", "one node 0/1 127.0.0.1:free - 0"),
    ]);
}

#[test]
fn a_slurm_step_is_as_many_nodes_as_it_has() {
    let restarted = format!("{STEP} SLURM_RESTART_COUNT=3");
    check(&[
        ("", STEP, "n3", "slurm 1/2 n2:25239 4242.1 0"),
        ("", &restarted, "n3", "slurm 1/2 n2:25239 4242.1 3"),
        ("--master-addr 127.0.0.1 --rdzv-id x", STEP, "n3", "slurm 1/2 127.0.0.1:25239 x 0"),
        ("--nnodes 2", STEP, "n3", "slurm 1/2 n2:25239 4242.1 0"),
        ("--nnodes 1", STEP, "n3", "static 0/1 127.0.0.1:free - 0"),
        ("--nnodes 2 --node-rank 0", STEP, "n3", "slurm 0/2 n2:25239 4242.1 0"),
        ("", BATCH, "n1", "slurm 0/1 127.0.0.1:free 4242 0"),
        ("--topology slurm", BATCH, "n1", "slurm 0/1 127.0.0.1:free 4242 0"),
        ("", "SLURM_JOB_ID=4242", "n1", "one node 0/1 127.0.0.1:free - 0"),
        ("", &format!("{STEP} PMIX_RANK=1 PMI_RANK=1 PMI_SIZE=2"), "n3", "slurm 1/2 n2:25239 4242.1 0"),
    ]);
}

#[test]
fn a_pod_knows_its_place_and_is_told_how_many_there_are() {
    let master = "train-0.svc.ns.svc.cluster.local";
    check(&[
        ("", OPERATOR, "job-worker-0", "kubernetes 1/3 job-master-0:23456 job 0"),
        ("", TRAIN_JOB, "tj-node-0-1.tj.ns", "static 1/2 tj-node-0-0.tj:29500 - 0"),
        (
            "--nnodes 4",
            "JOB_COMPLETION_INDEX=3",
            "train-3.svc.ns.svc.cluster.local",
            &format!("kubernetes 3/4 {master}:29500 train 0"),
        ),
        (
            "",
            "JOB_COMPLETION_INDEX=1 PET_NNODES=2",
            "set-w-0-1.set.ns.svc",
            "kubernetes 1/2 set-w-0-0.set.ns.svc:29500 set 0",
        ),
        (
            "--nnodes 2",
            "JOB_COMPLETION_INDEX=1 JOBSET_NAME=my-set JOBSET_RESTART_ATTEMPT=2",
            "my-set-w-0-1",
            "kubernetes 1/2 my-set-w-0-0.my-set:29500 my-set 2",
        ),
        ("--nnodes 2 --master-addr m", "JOB_COMPLETION_INDEX=1", "pod", "kubernetes 1/2 m:29500 - 0"),
        ("--nnodes 1", "JOB_COMPLETION_INDEX=7", "train-7", "static 0/1 127.0.0.1:free - 0"),
        ("--topology kubernetes", "RANK=1 WORLD_SIZE=2 MASTER_ADDR=m", "host", "kubernetes 1/2 m:29500 - 0"),
    ]);
}

#[test]
fn mpirun_knows_better_than_the_batch_system_that_it_runs_in() {
    // What its daemons have: a step of their own without the first node.
    let daemon =
        "SLURM_JOB_ID=9 SLURM_NNODES=1 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NODEID=0 SLURM_JOB_NODELIST=n[1-2]";
    check(&[
        ("--master-addr m", OMPI, "host", "open mpi 1/2 m:29500 - 0"),
        ("", &format!("{OMPI} {daemon}"), "n2", "open mpi 1/2 n1:20009 9 0"),
        ("", "PMI_RANK=0 PMI_SIZE=1", "host", "pmi 0/1 127.0.0.1:free - 0"),
        ("--master-addr m", "PMI_RANK=3 PMI_SIZE=4 MPI_LOCALNRANKS=1 PBS_JOBID=12", "host", "pmi 3/4 m:20012 12 0"),
        ("--nnodes 2 --master-addr m", "PMIX_RANK=1 PMIX_NAMESPACE=5", "host", "pmix 1/2 m:20005 5 0"),
    ]);
}

#[test]
fn a_list_of_hosts_of_lsf_counts_as_it_has_spaces() {
    let environment = Env::from_iter(env(OMPI).into_iter().chain([("LSB_HOSTS".into(), "h1 h2".into())]));
    let topology = Topology::resolve(&args(""), WORKERS, &environment, "h2").unwrap();
    assert_eq!((topology.master_addr.as_str(), topology.origins["master_addr"].as_str()), ("h1", "first of LSB_HOSTS"));
}

#[test]
fn a_worker_of_somebody_is_no_node_of_its_job() {
    check(&[
        ("", WORKER, "host", "one node 0/1 127.0.0.1:free - 0"),
        ("", &format!("{WORKER} {STEP}"), "host", "one node 0/1 127.0.0.1:free - 0"),
        ("", &format!("{WORKER} {TRAIN_JOB}"), "host", "one node 0/1 127.0.0.1:free - 0"),
        (
            "",
            "RANKRUN_GROUP=a KUBERNETES_SERVICE_HOST=1 RANK=1 WORLD_SIZE=2",
            "host",
            "one node 0/1 127.0.0.1:free - 0",
        ),
        ("--nnodes 2 --node-rank 1 --master-addr a", WORKER, "host", "static 1/2 a:29500 - 0"),
        ("--topology slurm", &format!("TORCHELASTIC_RUN_ID=outer {STEP}"), "n3", "slurm 1/2 n2:25239 4242.1 0"),
        // RANK and WORLD_SIZE of a host that is no pod mean nothing.
        ("", "RANK=1 WORLD_SIZE=2", "host", "one node 0/1 127.0.0.1:free - 0"),
    ]);
    assert!(found("", WORKER, "host").notes[0].contains("TORCHELASTIC_RUN_ID"));
}

#[test]
fn what_cannot_be_is_refused_with_the_variable_its_value_and_what_to_do() {
    let batch2 = BATCH.replace("NNODES=1", "NNODES=2").replace("NUM_NODES=1", "NUM_NODES=2");
    let interactive = format!("{batch2} SLURM_STEP_ID=4294967290");
    let with = |name: &str, value: &str| {
        let is_other = |pair: &&str| !pair.starts_with(&format!("{name}="));
        let kept: Vec<&str> = STEP.split_ascii_whitespace().filter(is_other).collect();
        format!("{} {name}={value}", kept.join(" "))
    };
    let ranks = |local: &str| format!("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=8 {local}");
    let cases: &[(&str, &str, &str, &[&str])] = &[
        ("--nnodes 2", "", "host", &["--nnodes 2", "--node-rank"]),
        ("--nnodes 2 --node-rank 1", "", "host", &["--nnodes 2", "--master-addr"]),
        ("--node-rank 1", "", "host", &["--node-rank 1", "--nnodes"]),
        ("--nnodes 2 --node-rank 2 --master-addr a", "", "host", &["--nnodes 2", "--node-rank 2", "from 0 to 1"]),
        ("--nnodes 0", "", "host", &["`0` of --nnodes", "65536"]),
        ("--standalone --nnodes 2", "", "host", &["--standalone", "--nnodes 2"]),
        ("--topology none --node-rank 1", "", "host", &["--topology none", "--node-rank 1"]),
        ("--topology slurm", "", "host", &["--topology slurm", "SLURM_JOB_ID"]),
        ("--topology mpi", STEP, "host", &["--topology mpi", "PMI_RANK"]),
        ("--topology kubernetes", STEP, "host", &["--topology kubernetes", "JOB_COMPLETION_INDEX"]),
        ("", "PET_NNODES=1:4", "host", &["`1:4` of PET_NNODES", "fixed number"]),
        ("", "PET_NODE_RANK=x", "host", &["`x` of PET_NODE_RANK"]),
        ("", "MASTER_PORT=no", "host", &["`no` of MASTER_PORT", "1 to 65535"]),
        ("", "MASTER_PORT=0", "host", &["`0` of MASTER_PORT"]),
        // Slurm.
        ("--nnodes 3", STEP, "n3", &["--nnodes 3", "SLURM_STEP_NUM_NODES=2"]),
        ("--node-rank 0", STEP, "n3", &["--node-rank 0", "SLURM_NODEID=1"]),
        ("", &batch2, "n1", &["SLURM_JOB_NUM_NODES=2", "srun --ntasks-per-node=1", "--topology none"]),
        ("", &interactive, "n1", &["SLURM_JOB_NUM_NODES=2", "srun"]),
        ("", &with("SLURM_STEP_TASKS_PER_NODE", "4(x2)"), "n3", &["TASKS_PER_NODE=4(x2)", "--ntasks-per-node=1"]),
        ("", &with("SLURM_STEP_TASKS_PER_NODE", "two"), "n3", &["`two` of SLURM_STEP_TASKS_PER_NODE"]),
        ("", &with("SLURM_STEP_NUM_TASKS", "8"), "n3", &["SLURM_STEP_NUM_TASKS=8", "--ntasks-per-node=1"]),
        ("", &with("SLURM_STEP_NUM_TASKS", "1"), "n3", &["SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NUM_TASKS=1"]),
        ("", &with("SLURM_STEP_NODELIST", "n[2-3"), "n3", &["`n[2-3` of SLURM_STEP_NODELIST", "bracket"]),
        ("", &with("SLURM_STEP_NODELIST", "n[2-4]"), "n3", &["SLURM_STEP_NODELIST=n[2-4]", "NUM_NODES=2"]),
        ("", &with("SLURM_STEP_NUM_NODES", "0"), "n3", &["SLURM_STEP_NUM_NODES"]),
        ("", &with("SLURM_NODEID", "2"), "n3", &["SLURM_STEP_NUM_NODES=2", "SLURM_NODEID=2"]),
        ("", &with("SLURM_NODEID", "b"), "n3", &["`b` of SLURM_NODEID"]),
        ("", &with("SLURM_RESTART_COUNT", "-1"), "n3", &["`-1` of SLURM_RESTART_COUNT"]),
        ("", &with("SLURM_STEP_TASKS_PER_NODE", "1(x2"), "n3", &["`1(x2` of SLURM_STEP_TASKS_PER_NODE"]),
        ("", &with("SLURM_STEP_TASKS_PER_NODE", "1(x3)"), "n3", &["SLURM_STEP_TASKS_PER_NODE=1(x3)", "NUM_NODES=2"]),
        ("", &format!("{STEP} PET_NNODES=2 PET_NODE_RANK=0"), "n3", &["PET_NODE_RANK=0", "SLURM_NODEID=1"]),
        // Kubernetes.
        ("", "KUBERNETES_SERVICE_HOST=1 WORLD_SIZE=4", "pod", &["WORLD_SIZE=4", "without RANK"]),
        ("", "KUBERNETES_SERVICE_HOST=1 RANK=1", "pod", &["RANK=1", "without WORLD_SIZE"]),
        (
            "",
            "KUBERNETES_SERVICE_HOST=1 JOB_COMPLETION_INDEX=1 RANK=3 WORLD_SIZE=4 MASTER_ADDR=m",
            "pod",
            &["RANK=3", "JOB_COMPLETION_INDEX=1"],
        ),
        ("", "JOB_COMPLETION_INDEX=3", "train-3", &["JOB_COMPLETION_INDEX=3", "--nnodes", "--topology none"]),
        ("--nnodes 4", "JOB_COMPLETION_INDEX=3", "train-3", &["--master-addr", "headless service"]),
        ("--nnodes 4", "JOB_COMPLETION_INDEX=3", "other", &["--master-addr", "JOB_COMPLETION_INDEX"]),
        ("--nnodes 2", "JOB_COMPLETION_INDEX=3", "train-3", &["--nnodes 2", "JOB_COMPLETION_INDEX=3"]),
        ("--nnodes 4", "JOB_COMPLETION_INDEX=1", "set-w-1-1.set", &["set-w-1", "--node-rank"]),
        ("", "KUBERNETES_SERVICE_HOST=1 RANK=0 WORLD_SIZE=2", "job-master-0", &["--master-addr", "operator"]),
        ("", "KUBERNETES_SERVICE_HOST=1 RANK=2 WORLD_SIZE=2 MASTER_ADDR=m", "p", &["RANK=2", "WORLD_SIZE=2"]),
        ("", &format!("{TRAIN_JOB} RANK=0 WORLD_SIZE=2"), "p", &["PET_NODE_RANK=1", "RANK=0"]),
        ("", &format!("{TRAIN_JOB} RANK=1 WORLD_SIZE=3"), "p", &["PET_NNODES=2", "WORLD_SIZE=3", "world size"]),
        // mpirun and its kin.
        ("", OMPI, "host", &["2 nodes", "--master-addr", "MASTER_ADDR"]),
        ("", &ranks("OMPI_COMM_WORLD_LOCAL_SIZE=4"), "host", &["OMPI_COMM_WORLD_LOCAL_SIZE=4", "ppr:1:node"]),
        ("", "PMI_RANK=1 PMI_SIZE=8 MPI_LOCALNRANKS=4", "host", &["MPI_LOCALNRANKS=4", "-ppn 1"]),
        ("--master-addr m", "PMIX_RANK=1", "host", &["PMIX_RANK=1", "--nnodes"]),
        ("--master-addr m --nnodes 3", OMPI, "host", &["--nnodes 3", "OMPI_COMM_WORLD_SIZE=2"]),
    ];
    for (arguments, environment, host, words) in cases {
        let text = match Topology::resolve(&args(arguments), WORKERS, &env(environment), host) {
            Err(error) => error.to_string(),
            Ok(topology) => panic!("{arguments} {environment} gave {}", short(&topology)),
        };
        assert_eq!(text.lines().count(), 1, "{text}");
        for word in *words {
            assert!(text.contains(word), "{arguments} {environment}: `{word}` not in: {text}");
        }
    }
}

#[test]
fn an_address_that_is_no_text_is_refused_and_not_replaced() {
    let value = <std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(b"n\xff".to_vec());
    let env = Env::from([("MASTER_ADDR".into(), value)]);
    let error = Topology::resolve(&args(""), WORKERS, &env, "host").unwrap_err().to_string();
    assert_eq!(error, r"invalid value `n\xff` of MASTER_ADDR: expected a host's name or address");
}

#[test]
fn the_operators_world_size_may_count_pods_or_workers() {
    for size in ["2", "8", "16"] {
        let environment = format!("{TRAIN_JOB} RANK=1 WORLD_SIZE={size}").replace("PER_NODE=auto", "PER_NODE=8");
        assert_eq!(found("", &environment, "pod").source, TopologySource::Static, "{size}");
    }
}

#[test]
fn all_nodes_of_a_step_agree_on_what_is_not_their_own() {
    let nodes: Vec<Topology> = (0..2)
        .map(|node| found("", &STEP.replace("NODEID=1", &format!("NODEID={node}")), &format!("n{}", node + 2)))
        .collect();
    assert_eq!((nodes[0].node_rank, nodes[1].node_rank), (0, 1));
    let common = |topology: &Topology| (topology.master_addr.clone(), topology.master_port, topology.run_id.clone());
    assert_eq!(common(&nodes[0]), common(&nodes[1]));
    assert!(matches!(nodes[0].master_port, MasterPort::Fixed(port) if DERIVED_PORTS.contains(&port)));
}

#[test]
fn a_shell_of_salloc_is_told_that_it_may_be_outside_of_the_allocation() {
    assert_eq!(found("", BATCH, "n1").notes, [""; 0]);
    let salloc = BATCH.replace("SLURMD_NODENAME=n1", "");
    assert!(found("", &salloc, "login").notes[0].contains("srun"));
}

#[test]
fn each_value_is_shown_with_where_it_is_from_and_as_json() {
    let topology = found("--rdzv-id x", &format!("{STEP} SLURM_RESTART_COUNT=1"), "n3");
    let expected = "source            slurm\n\
                    nodes             2      SLURM_STEP_NUM_NODES\n\
                    node_rank         1      SLURM_NODEID\n\
                    local_world_size  4\n\
                    master_addr       n2     first of SLURM_STEP_NODELIST\n\
                    master_port       25239  made of SLURM_JOB_ID and SLURM_STEP_ID\n\
                    run_id            x      --rdzv-id\n\
                    restart_count     1      SLURM_RESTART_COUNT";
    assert_eq!(topology.to_string(), expected);
    let json = serde_json::to_value(&topology).unwrap();
    assert_eq!(json["source"], "slurm");
    assert_eq!((json["nodes"].as_u64(), json["master_port"].as_u64()), (Some(2), Some(25239)));
    assert_eq!(json["origins"]["node_rank"], "SLURM_NODEID");
    let json = serde_json::to_value(found("", "", "host")).unwrap();
    assert!(json["master_port"].is_null() && json["run_id"].is_null());
}

#[test]
fn a_variable_that_an_argument_repeats_is_where_it_is_from() {
    let topology = found("--nnodes 2 --node-rank 1 --master-addr a", "PET_NNODES=2 PET_NODE_RANK=0", "host");
    let origin = |field: &str| topology.origins[field].as_str();
    assert_eq!((origin("nodes"), origin("node_rank")), ("PET_NNODES", "--node-rank"));
}

#[test]
fn a_world_size_or_rank_of_another_job_is_told_with_what_workers_get() {
    let notes = |arguments: &str, environment: &str| found(arguments, environment, "n3").notes;
    let note = |more: &str| notes("", &format!("{STEP} {more}"));
    // Of the nodes, or of the workers: scripts make either.
    for fits in ["", "WORLD_SIZE=2", "WORLD_SIZE=8 RANK=4", "RANK=1"] {
        assert_eq!(note(fits), [""; 0], "{fits}");
    }
    let expected =
        "WORLD_SIZE=9 of the environment is not that of 2 nodes with 4 workers each: workers get WORLD_SIZE=8";
    assert_eq!(note("WORLD_SIZE=9 RANK=1"), [expected]);
    let expected = "RANK=3 of the environment is not that of node 1: workers get RANK=4 and up";
    assert_eq!(note("RANK=3"), [expected]);
    assert_eq!(notes("--nnodes 2 --node-rank 0 --master-addr a", "RANK=3 WORLD_SIZE=x").len(), 2);
    assert!(
        note("MASTER_ADDR=127.0.0.1")[0].starts_with("MASTER_ADDR=127.0.0.1 of the environment is each host itself")
    );
    assert_eq!(notes("--master-addr 127.0.0.1", STEP), [""; 0], "who says so may have all nodes on one host");
    // Of one node they are what a shell has left over, as for torchrun.
    assert_eq!(notes("", "RANK=3 WORLD_SIZE=9"), [""; 0]);
}

#[test]
fn a_list_of_very_many_hosts_is_not_repeated_in_a_refusal() {
    let hosts: Vec<String> = (0..10_000).map(|host| format!("n{host}x")).collect();
    for (broken, words) in [("[", "SLURM_STEP_NODELIST: the bracket at"), ("", "how many nodes there are")] {
        let list = format!("SLURM_STEP_NODELIST={}{broken}", hosts.join(","));
        let environment = STEP.replace("SLURM_STEP_NODELIST=n[2-3]", &list);
        let text = Topology::resolve(&args(""), WORKERS, &env(&environment), "n3").unwrap_err().to_string();
        assert!(
            text.len() < 500 && text.contains(words) && text.contains("n0x,n1x") && text.contains("n9999x"),
            "{text}"
        );
    }
}
