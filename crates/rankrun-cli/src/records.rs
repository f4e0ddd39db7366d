//! What is noticed and told of a run beside its output: the arguments, and what they mean. Not here: noticing it
//! (`rankrun`).

use std::time::Duration;

use rankrun::{DumpStep, Signal, Stall, StallPolicy};

use crate::values::parse_seconds;

/// The arguments about failures and stalls.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Failures and records")]
pub(crate) struct RecordArgs {
    /// How long after the first failure workers that are failing too have until the others are stopped, 0 for not at all
    #[arg(long, value_name = "SECONDS", default_value = "0.05", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(crate) settle_time: Duration,

    /// Stops the run as failed when no worker has written captured output, or touched the file in its
    /// RANKRUN_HEARTBEAT_FILE, for this long: --dump-signal (SIGABRT unless given), then as after a failure [default: 0, never]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(crate) stall_timeout: Option<Duration>,
}

impl RecordArgs {
    /// When the run counts as stalled; `None` for never.
    pub(crate) fn stall_policy(&self, dump_signal: Option<Signal>, dump_timeout: Duration) -> Option<StallPolicy> {
        let timeout = self.stall_timeout.filter(|timeout| !timeout.is_zero())?;
        let StallPolicy { dump, .. } = StallPolicy::new(timeout);
        let dump = DumpStep { signal: dump_signal.unwrap_or(dump.signal), timeout: dump_timeout };
        Some(StallPolicy { timeout, dump })
    }
}

/// What is said when the watch for stalls cannot see what workers write.
pub(crate) const BLIND_WATCH: &str = "--stall-timeout sees no output, because none goes to files (see --redirects and --tee): it begins with the first \
     heartbeat (RANKRUN_HEARTBEAT_FILE)";

/// The report of a run that stalled.
pub(crate) fn stall_report(role: &str, host: &str, stall: &Stall) -> String {
    let quiet = (stall.quiet.as_secs_f64() * 10.0).round() / 10.0;
    let role = role.escape_debug();
    format!(
        "{role} FAILED on {host}: stalled: no output for {quiet} s\n\n\
         No worker wrote captured output, or touched its heartbeat file, for that long. What they did then:\n{stall}"
    )
}
