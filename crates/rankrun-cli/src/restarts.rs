//! When a group is started again: the arguments. Not here: what they mean (`rankrun-launcher`).

use std::time::Duration;

use rankrun_launcher::{Backoff, ExitCodes, RestartPolicy};

use crate::values::{parse_count, parse_seconds};

/// The arguments about restarts.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Restarts")]
pub(crate) struct RestartArgs {
    /// How often the whole group is started again after a failure
    #[arg(long, value_name = "N", default_value = "0", value_parser = parse_count)]
    pub(crate) max_restarts: u32,

    /// How long to wait before that: SECONDS, doubled each time up to MOST
    #[arg(long, value_name = "SECONDS[:MOST]", default_value = "0", hide_default_value = true)]
    pub(crate) restart_backoff: Backoff,

    /// Exit codes of the first failing worker after which it is not started again, such as 2,64-78
    #[arg(long, value_name = "CODES")]
    pub(crate) no_restart_on: Option<ExitCodes>,

    /// A group that failed sooner after its start is not started again
    #[arg(long, value_name = "SECONDS", default_value = "0", hide_default_value = true, value_parser = parse_seconds)]
    pub(crate) min_uptime: Duration,
}

impl RestartArgs {
    pub(crate) fn policy(&self) -> RestartPolicy {
        RestartPolicy {
            max_restarts: self.max_restarts,
            backoff: self.restart_backoff,
            never_on: self.no_restart_on.clone().unwrap_or_default(),
            min_uptime: self.min_uptime,
        }
    }
}
