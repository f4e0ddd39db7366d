//! How many workers a host gets: [`NprocPerNode`], and what `auto`, `cpu` and `gpu` find there.
//!
//! Not here: where workers are placed (`placement`).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rankrun::crates::process::CpuSet;
use rankrun::crates::types::{MAX_LOCAL_RANK, escape_os_str};

/// The value of `--nproc-per-node`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NprocPerNode {
    Count(usize),
    /// One for each GPU; where there is none, one for each CPU.
    Auto,
    /// One for each CPU that this process may use.
    Cpu,
    /// One for each visible GPU.
    Gpu,
}

/// Where GPUs are found.
#[derive(Debug, Clone)]
pub(crate) struct Hardware {
    /// `CUDA_VISIBLE_DEVICES`.
    pub(crate) visible_gpus: Option<OsString>,
    /// `/proc`, but for tests.
    pub(crate) proc: PathBuf,
    /// `/dev`, but for tests.
    pub(crate) dev: PathBuf,
    /// How many CPUs this process may use.
    pub(crate) cpus: fn() -> usize,
}

/// There is no number of workers to be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NprocError {
    #[error(
        "invalid value 'gpu' for '--nproc-per-node': there is no GPU on this host ({looked_at}): expected a number, auto or cpu"
    )]
    NoGpu { looked_at: String },
    #[error("invalid value '{value}' for '--nproc-per-node': {found} found: expected a number from 1 to {most}", most = MAX_LOCAL_RANK + 1)]
    TooMany { value: &'static str, found: usize },
}

impl FromStr for NprocPerNode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let most = MAX_LOCAL_RANK + 1;
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "gpu" => Ok(Self::Gpu),
            number => match number.parse() {
                Ok(count) if (1..=most).contains(&count) => Ok(Self::Count(count)),
                _ => Err(format!("expected a whole number from 1 to {most}, auto, cpu or gpu")),
            },
        }
    }
}

impl NprocPerNode {
    /// The number of workers on this host.
    pub(crate) fn count(self, hardware: &Hardware) -> Result<usize, NprocError> {
        let (value, count) = match self {
            // As many as there may be: it was parsed so.
            Self::Count(count) => return Ok(count),
            Self::Cpu => ("cpu", (hardware.cpus)()),
            Self::Auto => match hardware.gpus() {
                0 => ("auto", (hardware.cpus)()),
                gpus => ("auto", gpus),
            },
            Self::Gpu => match hardware.gpus() {
                0 => return Err(NprocError::NoGpu { looked_at: hardware.gpu_source() }),
                gpus => ("gpu", gpus),
            },
        };
        if count > MAX_LOCAL_RANK + 1 { Err(NprocError::TooMany { value, found: count }) } else { Ok(count) }
    }
}

impl Hardware {
    pub(crate) fn of_this_host() -> Self {
        let root = |name, usual: &str| {
            std::env::var_os(name).filter(|root| !root.is_empty()).map_or_else(|| usual.into(), PathBuf::from)
        };
        Self {
            visible_gpus: std::env::var_os("CUDA_VISIBLE_DEVICES"),
            proc: root("RANKRUN_PROC", "/proc"),
            dev: root("RANKRUN_DEV", "/dev"),
            // Where the kernel does not say, at least the one that this runs on.
            cpus: || CpuSet::allowed().map_or(1, |cpus| cpus.len().max(1)),
        }
    }

    /// How many GPUs workers will see.
    fn gpus(&self) -> usize {
        match &self.visible_gpus {
            Some(list) => visible(list, self.driver_gpus()),
            None => self.driver_gpus().unwrap_or_else(|| device_files(&self.dev)),
        }
    }

    /// What NVIDIA's driver tells; `None` where it is not loaded.
    fn driver_gpus(&self) -> Option<usize> {
        fs::read_dir(self.proc.join("driver/nvidia/gpus")).ok().map(|gpus| gpus.flatten().count())
    }

    /// Where [`gpus`](Self::gpus) looked, for a message.
    fn gpu_source(&self) -> String {
        match &self.visible_gpus {
            Some(list) => format!("CUDA_VISIBLE_DEVICES is `{}`", escape_os_str(list)),
            None => format!(
                "in {} and {}",
                self.proc.join("driver/nvidia/gpus").display(),
                self.dev.join("nvidia*").display()
            ),
        }
    }
}

/// How many devices `CUDA_VISIBLE_DEVICES` names: those before the first that cannot be, as CUDA counts.
fn visible(list: &OsStr, of: Option<usize>) -> usize {
    let list = list.to_string_lossy();
    let exists = |device: &&str| match device.parse::<usize>() {
        Ok(index) => of.is_none_or(|count| index < count),
        Err(_) => device.starts_with("GPU-") || device.starts_with("MIG-"),
    };
    list.split(',').map(str::trim).take_while(exists).count()
}

/// How many device files of GPUs there are: `nvidia0`, `nvidia1`, not `nvidiactl`.
fn device_files(dev: &Path) -> usize {
    let is_gpu = |name: OsString| {
        let number = name.to_str().and_then(|name| name.strip_prefix("nvidia").map(str::to_owned));
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    fs::read_dir(dev).into_iter().flatten().flatten().filter(|entry| is_gpu(entry.file_name())).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hardware(visible: Option<&str>, root: &Path) -> Hardware {
        Hardware { visible_gpus: visible.map(Into::into), proc: root.join("proc"), dev: root.join("dev"), cpus: || 6 }
    }

    fn make(root: &Path, names: &[&str]) {
        for name in names {
            fs::create_dir_all(root.join(name)).unwrap();
        }
    }

    #[test]
    fn without_a_gpu_auto_is_the_cpus_and_gpu_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let none = hardware(None, root.path());
        assert_eq!(NprocPerNode::Auto.count(&none), Ok(6));
        assert_eq!(NprocPerNode::Cpu.count(&none), Ok(6));
        assert_eq!(NprocPerNode::Count(3).count(&none), Ok(3));
        let text = NprocPerNode::Gpu.count(&none).unwrap_err().to_string();
        assert!(text.contains("there is no GPU on this host") && text.contains("driver/nvidia/gpus"), "{text}");
        let text = NprocPerNode::Gpu.count(&hardware(Some(""), root.path())).unwrap_err().to_string();
        assert!(text.contains("CUDA_VISIBLE_DEVICES is ``"), "{text}");
    }

    #[test]
    fn gpus_are_those_of_the_driver_or_else_the_device_files() {
        let root = tempfile::tempdir().unwrap();
        make(
            root.path(),
            &["dev/nvidia0", "dev/nvidia1", "dev/nvidia12", "dev/nvidiactl", "dev/nvidia-uvm", "dev/null"],
        );
        assert_eq!(NprocPerNode::Gpu.count(&hardware(None, root.path())), Ok(3));
        make(root.path(), &["proc/driver/nvidia/gpus/0000:01:00.0", "proc/driver/nvidia/gpus/0000:02:00.0"]);
        assert_eq!(NprocPerNode::Gpu.count(&hardware(None, root.path())), Ok(2));
        assert_eq!(NprocPerNode::Auto.count(&hardware(None, root.path())), Ok(2));
        assert_eq!(NprocPerNode::Auto.count(&hardware(Some("1"), root.path())), Ok(1));
        assert_eq!(NprocPerNode::Auto.count(&hardware(Some("-1"), root.path())), Ok(6));
    }

    #[test]
    fn visible_devices_count_up_to_the_first_that_cannot_be() {
        for (list, of, expected) in [
            ("0,1", None, 2),
            ("0, 3", Some(4), 2),
            ("0,4,1", Some(4), 1),
            ("1,-1,0", None, 1),
            ("GPU-8932f937,MIG-GPU-1", Some(1), 2),
            ("NoDevFiles", None, 0),
            ("", None, 0),
        ] {
            assert_eq!(visible(OsStr::new(list), of), expected, "{list}");
        }
    }
}
