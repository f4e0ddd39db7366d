//! Reading the host's NUMA nodes, sockets, cores, caches and GPUs from sysfs. Not here: what to make of them (`numa`).
//!
//! Each function takes the directory that sysfs is mounted on, so that tests can make one up.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{CpuSet, NumaError};

/// How much of a wrong number's text an error keeps, in characters.
const SHOWN: usize = 40;

/// All NUMA nodes with their CPUs; memory alone makes a node too, then without CPUs.
pub(crate) fn nodes(sysfs: &Path) -> Result<BTreeMap<u32, CpuSet>, NumaError> {
    let dir = sysfs.join("devices/system/node");
    let numbers = numbered(&dir, "node")?;
    if numbers.is_empty() {
        return Err(NumaError::NoNodes { path: dir });
    }
    numbers.into_iter().map(|node| Ok((node, cpu_list(dir.join(format!("node{node}/cpulist")))?))).collect()
}

/// The socket of a CPU.
pub(crate) fn socket(sysfs: &Path, cpu: u32) -> Result<i32, NumaError> {
    number(cpu_dir(sysfs, cpu).join("topology/physical_package_id"))
}

/// The core of a CPU, known by the lowest of its CPUs.
pub(crate) fn core(sysfs: &Path, cpu: u32) -> Result<u32, NumaError> {
    let siblings = cpu_list(cpu_dir(sysfs, cpu).join("topology/thread_siblings_list"))?;
    Ok(siblings.first().unwrap_or(cpu))
}

/// The cache of the highest level that a CPU has, known by the lowest of the CPUs that share it.
pub(crate) fn largest_cache(sysfs: &Path, cpu: u32) -> Result<u32, NumaError> {
    let dir = cpu_dir(sysfs, cpu).join("cache");
    let mut largest = None;
    for index in numbered(&dir, "index")? {
        let cache = dir.join(format!("index{index}"));
        // Where the kernel does not know the type it has no such file.
        let instructions = read(cache.join("type")).is_ok_and(|text| text.trim() == "Instruction");
        let level = number(cache.join("level"))?;
        if !instructions && largest.as_ref().is_none_or(|(highest, _)| level > *highest) {
            largest = Some((level, cache));
        }
    }
    let Some((_, cache)) = largest else { return Err(NumaError::NoCache { cpu, path: dir }) };
    Ok(cpu_list(cache.join("shared_cpu_list"))?.first().unwrap_or(cpu))
}

fn cpu_dir(sysfs: &Path, cpu: u32) -> PathBuf {
    sysfs.join(format!("devices/system/cpu/cpu{cpu}"))
}

/// The numbers of the entries of a directory that are `prefix` and a number, ascending.
fn numbered(dir: &Path, prefix: &str) -> Result<Vec<u32>, NumaError> {
    let number = |name: &str| name.strip_prefix(prefix)?.parse().ok();
    let mut numbers: Vec<u32> = names(dir)?.iter().filter_map(|name| number(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The names in a directory; those that are not UTF-8, which sysfs does not have, are left out.
fn names(dir: &Path) -> Result<Vec<String>, NumaError> {
    let failed = |error: std::io::Error| read_error(dir.to_owned(), &error);
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        names.extend(entry.map_err(failed)?.file_name().into_string());
    }
    Ok(names)
}

fn cpu_list(path: PathBuf) -> Result<CpuSet, NumaError> {
    let text = read(path.clone())?;
    text.parse().map_err(|source| NumaError::CpuList { path, source })
}

fn number(path: PathBuf) -> Result<i32, NumaError> {
    let text = read(path.clone())?;
    text.trim().parse().map_err(|_| NumaError::Number { path, text: text.chars().take(SHOWN).collect() })
}

fn read(path: PathBuf) -> Result<String, NumaError> {
    match fs::read(&path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) => Err(read_error(path, &error)),
    }
}

fn read_error(path: PathBuf, error: &std::io::Error) -> NumaError {
    NumaError::Read { path, errno: error.raw_os_error().unwrap_or(libc::EIO) }
}

/// The NUMA node of each GPU for computing, in the order of their PCI addresses.
///
/// The GPUs are those of NVIDIA and AMD, as `<sysfs>/bus/pci/devices/*/{vendor,class,numa_node}` has them; display
/// chips of other makers, such as a server's console, are not among them. CUDA counts GPUs of one model in this
/// order; but where `CUDA_VISIBLE_DEVICES` or the like says otherwise, it is for the caller to reorder the answer. Empty
/// where there is none. A node that the kernel gives as -1, as it does on hosts with a single one, is 0, as in torch.
///
/// # Errors
/// [`NumaError`] if a file is there but cannot be read or holds no number.
pub fn gpu_numa_nodes(sysfs: impl AsRef<Path>) -> Result<Vec<u32>, NumaError> {
    const NVIDIA: &str = "0x10de";
    const AMD: &str = "0x1002";
    let dir = sysfs.as_ref().join("bus/pci/devices");
    let mut devices = match names(&dir) {
        Err(NumaError::Read { errno: libc::ENOENT, .. }) => Vec::new(),
        names => names?,
    };
    // Longest last: a domain above ffff takes more digits.
    devices.sort_by_key(|address| (address.len(), address.clone()));
    let mut nodes = Vec::new();
    for device in devices.iter().map(|address| dir.join(address)) {
        let (vendor, class) = (read(device.join("vendor"))?, read(device.join("class"))?);
        // 03: display controller (00 VGA, 02 3D, 80 other); 1200: processing accelerator.
        let is_gpu = match vendor.trim() {
            NVIDIA => class.starts_with("0x03"),
            AMD => class.starts_with("0x0380") || class.starts_with("0x1200"),
            _ => false,
        };
        if is_gpu {
            nodes.push(u32::try_from(number(device.join("numa_node"))?).unwrap_or(0));
        }
    }
    Ok(nodes)
}
