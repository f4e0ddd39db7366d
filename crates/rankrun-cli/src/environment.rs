//! What the workers' environment has: the arguments. Not here: making it (`rankrun-launcher`).

use rankrun_launcher::EnvOptions;

/// The arguments about the workers' environment.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Environment")]
pub(crate) struct EnvironmentArgs {
    /// OMP_NUM_THREADS [default: as it is set; else the CPUs that may be used, divided among the workers]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub(crate) omp_threads: Option<usize>,

    /// LOCAL_RANK 0 for all, each with one device in CUDA_VISIBLE_DEVICES
    #[arg(long)]
    pub(crate) virtual_local_rank: bool,
}

impl EnvironmentArgs {
    /// What they mean; on a terminal of their own (`pty`) Python workers write line by line anyway.
    pub(crate) fn options(&self, pty: bool) -> EnvOptions {
        EnvOptions { omp_threads: self.omp_threads, virtual_local_rank: self.virtual_local_rank, python_buffers: pty }
    }
}

fn parse_threads(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|threads| *threads > 0).ok_or_else(|| "expected a number of threads, 1 or more".to_owned())
}
