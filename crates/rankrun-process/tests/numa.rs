//! NUMA bindings on made-up hosts: directories that look like sysfs.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use rankrun_process::{CpuSet, NumaBinding, NumaError, NumaTopology, gpu_numa_nodes};
use tempfile::TempDir;

/// A made-up sysfs.
struct Host(TempDir);

impl Host {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
        self
    }

    fn node(&self, node: u32, cpus: &str) -> &Self {
        self.file(&format!("devices/system/node/node{node}/cpulist"), cpus)
    }

    fn cpu(&self, cpu: u32, socket: i32, siblings: &str, third_level: &str) -> &Self {
        let dir = format!("devices/system/cpu/cpu{cpu}");
        self.file(&format!("{dir}/topology/physical_package_id"), &socket.to_string());
        self.file(&format!("{dir}/topology/thread_siblings_list"), siblings);
        for (index, level, kind, shared) in [
            (0, 1, "Data", siblings),
            (1, 1, "Instruction", siblings),
            (2, 2, "Unified", siblings),
            (3, 3, "Unified", third_level),
        ] {
            self.file(&format!("{dir}/cache/index{index}/level"), &level.to_string());
            self.file(&format!("{dir}/cache/index{index}/type"), kind);
            self.file(&format!("{dir}/cache/index{index}/shared_cpu_list"), shared);
        }
        self
    }

    /// 2 sockets of 2 nodes of 4 cores of 2 threads: CPU 0-15 are the cores' first threads, CPU 16-31 their second. Two
    /// cores share a cache of the third level.
    fn large() -> Self {
        let host = Self::new();
        for node in 0..4 {
            let first = node * 4;
            host.node(node, &format!("{first}-{},{}-{}", first + 3, first + 16, first + 19));
        }
        for cpu in 0..32 {
            let core = cpu % 16;
            let pair = core / 2 * 2;
            let shared = format!("{pair}-{},{}-{}", pair + 1, pair + 16, pair + 17);
            host.cpu(cpu, core as i32 / 8, &format!("{core},{}", core + 16), &shared);
        }
        // What else is in these directories.
        host.file("devices/system/node/possible", "0-3").file("devices/system/cpu/cpu0/cache/uevent", "");
        host
    }

    fn sets(&self, binding: NumaBinding, allowed: &str, workers: usize) -> Vec<String> {
        let topology = NumaTopology::read(self.path(), binding, &cpus(allowed)).unwrap();
        (0..workers).map(|rank| topology.cpus(rank, workers, None).unwrap().to_string()).collect()
    }

    fn read_error(&self, binding: NumaBinding) -> NumaError {
        NumaTopology::read(self.path(), binding, &cpus("0-31")).unwrap_err()
    }
}

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

const NODES: [&str; 4] = ["0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"];

#[test]
fn workers_are_spread_over_the_nodes_evenly_and_in_order() {
    let host = Host::large();
    assert_eq!(host.sets(NumaBinding::Node, "0-31", 4), NODES);
    assert_eq!(host.sets(NumaBinding::Node, "0-31", 8), NODES.map(|node| [node, node]).concat());
    assert_eq!(host.sets(NumaBinding::Node, "0-31", 2), [NODES[0], NODES[2]]);
    assert_eq!(host.sets(NumaBinding::Node, "0-31", 1), [NODES[0]]);
    assert_eq!(host.sets(NumaBinding::Node, "0-31", 5), [NODES[0], NODES[0], NODES[1], NODES[2], NODES[3]]);
}

#[test]
fn a_socket_is_all_nodes_on_it() {
    let (first, second) = ("0-7,16-23", "8-15,24-31");
    assert_eq!(Host::large().sets(NumaBinding::Socket, "0-31", 4), [first, first, second, second]);
}

#[test]
fn exclusive_cores_come_with_all_their_threads_and_the_first_workers_get_the_remainder() {
    let host = Host::large();
    assert_eq!(
        host.sets(NumaBinding::Exclusive, "0-31", 8),
        ["0-1,16-17", "2-3,18-19", "4-5,20-21", "6-7,22-23", "8-9,24-25", "10-11,26-27", "12-13,28-29", "14-15,30-31"]
    );
    let twelve = host.sets(NumaBinding::Exclusive, "0-31", 12);
    assert_eq!(twelve[..3], ["0-1,16-17", "2,18", "3,19"]);
    let too_many = NumaTopology::read(host.path(), NumaBinding::Exclusive, &cpus("0-31")).unwrap();
    assert_eq!(too_many.cpus(16, 17, None).map(|cpus| cpus.to_string()).as_deref(), Ok("15,31"));
    let error = too_many.cpus(0, 17, None).unwrap_err();
    assert_eq!(error, NumaError::TooFewCores { node: 0, cores: 4, workers: 5 });
    assert_eq!(error.to_string(), "NUMA node 0 has 4 cores to be divided among 5 workers");
}

#[test]
fn core_complexes_go_round_the_largest_first() {
    let host = Host::large();
    assert_eq!(
        host.sets(NumaBinding::CoreComplex, "0-31", 8)[..4],
        ["0-1,16-17", "2-3,18-19", "4-5,20-21", "6-7,22-23"]
    );
    // Of node 0, one CPU of the first complex is missing; then the second is the larger one. Three workers go round.
    let twelve = host.sets(NumaBinding::CoreComplex, "1-31", 12);
    assert_eq!(twelve[..4], ["2-3,18-19", "1,16-17", "2-3,18-19", "4-5,20-21"]);
}

#[test]
fn the_largest_cache_counts_whatever_its_index_and_an_instruction_cache_never() {
    let host = Host::new();
    host.node(0, "0-3");
    for cpu in 0..4 {
        let dir = format!("devices/system/cpu/cpu{cpu}/cache");
        // The type is not told for the one that counts.
        host.file(&format!("{dir}/index0/level"), "2");
        host.file(&format!("{dir}/index0/shared_cpu_list"), if cpu < 2 { "0-1" } else { "2-3" });
        host.file(&format!("{dir}/index1/level"), "1");
        host.file(&format!("{dir}/index1/shared_cpu_list"), &cpu.to_string());
        host.file(&format!("{dir}/index10/level"), "3");
        host.file(&format!("{dir}/index10/type"), "Instruction");
        host.file(&format!("{dir}/index10/shared_cpu_list"), "0-3");
    }
    assert_eq!(host.sets(NumaBinding::CoreComplex, "0-3", 2), ["0-1", "2-3"]);
}

#[test]
fn a_host_with_one_node_needs_no_more_than_its_list_for_a_node() {
    let host = Host::new();
    host.node(0, "0-1");
    assert_eq!(host.sets(NumaBinding::Node, "0-1", 3), ["0-1", "0-1", "0-1"]);
}

#[test]
fn nodes_without_cpus_or_without_allowed_ones_get_no_worker() {
    let host = Host::large();
    host.node(4, "").node(10, "");
    assert_eq!(host.sets(NumaBinding::Node, "0-31", 4), NODES);
    assert_eq!(host.sets(NumaBinding::Node, "1-2,8-9,25", 2), ["1-2", "8-9,25"]);
    assert_eq!(host.sets(NumaBinding::Socket, "1-2,5,8-9,25", 3), ["1-2,5", "1-2,5", "8-9,25"]);
    assert_eq!(host.sets(NumaBinding::Exclusive, "1-2,18,25", 3), ["1", "2,18", "25"]);
    assert_eq!(host.sets(NumaBinding::CoreComplex, "1-2,18,25", 3), ["2,18", "1", "25"]);
}

#[test]
fn no_allowed_cpu_on_any_node_is_an_error() {
    let host = Host::large();
    for binding in NumaBinding::ALL {
        for allowed in ["64-65", ""] {
            let topology = NumaTopology::read(host.path(), binding, &cpus(allowed)).unwrap();
            let error = topology.cpus(0, 2, None).unwrap_err();
            assert_eq!(error, NumaError::NoAllowedCpu { allowed: cpus(allowed) }, "{binding}");
        }
    }
}

#[test]
fn with_gpus_each_worker_is_on_its_gpus_node() {
    let host = Host::large();
    // The order of a host with eight GPUs where the first are not on the first node.
    let gpus = [3, 3, 1, 1, 0, 0, 2, 2];
    let sets = |binding, workers: usize| -> Vec<String> {
        let topology = NumaTopology::read(host.path(), binding, &cpus("0-31")).unwrap();
        (0..workers).map(|rank| topology.cpus(rank, workers, Some(&gpus)).unwrap().to_string()).collect()
    };
    assert_eq!(sets(NumaBinding::Node, 3), [NODES[3], NODES[3], NODES[1]]);
    assert_eq!(sets(NumaBinding::Socket, 3), ["8-15,24-31", "8-15,24-31", "0-7,16-23"]);
    assert_eq!(sets(NumaBinding::Exclusive, 3), ["12-13,28-29", "14-15,30-31", "4-7,20-23"]);
    assert_eq!(sets(NumaBinding::CoreComplex, 3), ["12-13,28-29", "14-15,30-31", "4-5,20-21"]);
}

#[test]
fn a_gpu_that_is_missing_or_on_a_node_that_cannot_be_used_is_an_error() {
    let host = Host::large();
    host.node(4, "");
    for binding in NumaBinding::ALL {
        let topology = NumaTopology::read(host.path(), binding, &cpus("0-7")).unwrap();
        let error = |rank, gpus: &[u32]| topology.cpus(rank, 2, Some(gpus)).unwrap_err();
        assert_eq!(error(1, &[0]), NumaError::NoGpu { local_rank: 1, gpus: 1 });
        assert_eq!(error(1, &[0, 9]).to_string(), "GPU 1 is on NUMA node 9, which does not exist");
        assert_eq!(error(0, &[4, 0]).to_string(), "NUMA node 4 has none of the allowed CPUs 0-7");
        let on_socket = if binding == NumaBinding::Socket { "socket 1" } else { "NUMA node 3" };
        assert_eq!(error(0, &[3, 0]).to_string(), format!("{on_socket} has none of the allowed CPUs 0-7"));
    }
    // The socket of a node whose own CPUs are not allowed may have others.
    let topology = NumaTopology::read(host.path(), NumaBinding::Socket, &cpus("0-2")).unwrap();
    assert_eq!(topology.cpus(0, 1, Some(&[1])).unwrap(), cpus("0-2"));
}

#[test]
fn a_rank_outside_the_group_is_an_error() {
    let topology = NumaTopology::read(Host::large().path(), NumaBinding::Node, &cpus("0-31")).unwrap();
    for (local_rank, local_world_size) in [(2, 2), (0, 0)] {
        let error = topology.cpus(local_rank, local_world_size, None).unwrap_err();
        assert_eq!(error, NumaError::NoSuchRank { local_rank, local_world_size });
    }
}

#[test]
fn a_missing_file_is_an_error_with_its_path() {
    let host = Host::new();
    let missing = |binding, path: &str| {
        assert_eq!(host.read_error(binding), NumaError::Read { path: host.path().join(path), errno: 2 });
    };
    missing(NumaBinding::Node, "devices/system/node");
    host.file("devices/system/node/possible", "0");
    let path = host.path().join("devices/system/node");
    assert_eq!(host.read_error(NumaBinding::Node), NumaError::NoNodes { path });
    host.node(0, "0-1");
    missing(NumaBinding::Socket, "devices/system/cpu/cpu0/topology/physical_package_id");
    missing(NumaBinding::Exclusive, "devices/system/cpu/cpu0/topology/thread_siblings_list");
    missing(NumaBinding::CoreComplex, "devices/system/cpu/cpu0/cache");
    host.file("devices/system/cpu/cpu0/cache/uevent", "");
    let path = host.path().join("devices/system/cpu/cpu0/cache");
    assert_eq!(host.read_error(NumaBinding::CoreComplex), NumaError::NoCache { cpu: 0, path });
    fs::create_dir_all(host.path().join("devices/system/node/node1")).unwrap();
    missing(NumaBinding::Node, "devices/system/node/node1/cpulist");
}

#[test]
fn a_file_with_something_else_in_it_is_an_error_with_its_path() {
    let host = Host::large();
    host.file("devices/system/cpu/cpu0/topology/physical_package_id", "x\u{7}");
    let error = host.read_error(NumaBinding::Socket).to_string();
    assert!(error.ends_with("cpu0/topology/physical_package_id`: expected a number, found `x\\x07\\n`"), "{error}");
    host.node(2, "8-x");
    let error = host.read_error(NumaBinding::Node);
    assert!(error.to_string().ends_with("devices/system/node/node2/cpulist`"), "{error}");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "invalid CPU list `8-x\\n` at byte 2: expected a CPU number from 0 to 65535");
}

#[test]
fn gpus_are_found_in_the_order_of_their_addresses() {
    let host = Host::new();
    assert_eq!(gpu_numa_nodes(host.path()), Ok(vec![]));
    for (address, vendor, class, node) in [
        ("0000:c1:00.0", "0x10de", "0x030200", "3"),
        ("0000:07:00.0", "0x10de", "0x030200", "1"),
        ("10000:01:00.0", "0x1002", "0x120000", "2"),
        ("0000:0f:00.0", "0x1002", "0x038000", "-1"),
        // A console, a GPU's sound chip, a processor's own graphics, a network card.
        ("0000:03:00.0", "0x1a03", "0x030000", "0"),
        ("0000:07:00.1", "0x10de", "0x040300", "1"),
        ("0000:05:00.0", "0x1002", "0x030000", "0"),
        ("0000:06:00.0", "0x15b3", "0x020700", "0"),
    ] {
        let dir = format!("bus/pci/devices/{address}");
        host.file(&format!("{dir}/vendor"), vendor).file(&format!("{dir}/class"), class);
        host.file(&format!("{dir}/numa_node"), node);
    }
    assert_eq!(gpu_numa_nodes(host.path()), Ok(vec![1, 0, 3, 2]));
    host.file("bus/pci/devices/0000:07:00.0/numa_node", "");
    assert!(matches!(gpu_numa_nodes(host.path()), Err(NumaError::Number { .. })));
}
