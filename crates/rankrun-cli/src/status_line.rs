//! The status line on a terminal: whether there is one, and what it says. Not here: drawing it (`rankrun-logs`), counting
//! (`rankrun-context`).

use std::io::{IsTerminal, stderr, stdout};
use std::time::Duration;

use crate::output::is_relayed;
use rankrun::{GroupStatus, PerRank, Std};

/// The argument about the status line.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Teed lines")]
pub(crate) struct StatusArgs {
    /// Whether a terminal shows below the lines how many workers run: always, never, or auto (if all that they write to it
    /// is teed or redirected, and the terminal is not one of mpirun's)
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub(crate) status: StatusArg,
}

/// When there is a status line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum StatusArg {
    #[default]
    Auto,
    Always,
    Never,
}

/// Which streams of rankrun are terminals that can erase a row.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Terminals {
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
    /// Whether they only carry what is written elsewhere, see [`is_relayed`].
    pub(crate) relayed: bool,
}

impl Terminals {
    pub(crate) fn of_this_process() -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        Self {
            stdout: !dumb && stdout().is_terminal(),
            stderr: !dumb && stderr().is_terminal(),
            relayed: is_relayed(|name| std::env::var_os(name)),
        }
    }

    fn any(self) -> bool {
        self.stdout || self.stderr
    }
}

/// Whether to show it. `captured`: what of each rank goes to files.
pub(crate) fn is_wanted(arg: StatusArg, terminals: Terminals, captured: &PerRank<Std>) -> bool {
    let all = |stream| captured.values().iter().all(|captured| captured.contains(stream));
    match arg {
        StatusArg::Never => false,
        StatusArg::Always => terminals.any(),
        // What a worker itself writes to the terminal would be beside the status.
        StatusArg::Auto => {
            terminals.any()
                && !terminals.relayed
                && (!terminals.stdout || all(Std::OUT))
                && (!terminals.stderr || all(Std::ERR))
        }
    }
}

/// What it says, in an attempt from 0.
pub(crate) fn text(status: &GroupStatus, attempt: u32, max_restarts: u32) -> String {
    let GroupStatus { workers, running, failed, elapsed, .. } = *status;
    let mut text = format!("rankrun: {running} of {workers} workers running, {failed} failed, {}", clock(elapsed));
    if max_restarts > 0 {
        text.push_str(&format!(", attempt {} of {}", attempt + 1, max_restarts + 1));
    }
    text
}

/// `5:09`, or `1:00:09`.
pub(crate) fn clock(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_on_where_nothing_else_writes_to_the_terminal() {
        let both = Terminals { stdout: true, stderr: true, relayed: false };
        let out = Terminals { stdout: true, stderr: false, relayed: false };
        for (terminals, captured, expected) in [
            (both, [Std::ALL, Std::ALL], true),
            (both, [Std::ALL, Std::OUT], false),
            (both, [Std::NONE, Std::ALL], false),
            (out, [Std::OUT, Std::OUT], true),
            (out, [Std::ERR, Std::ERR], false),
            (Terminals { relayed: true, ..both }, [Std::ALL, Std::ALL], false),
            (Terminals::default(), [Std::ALL, Std::ALL], false),
        ] {
            let captured = PerRank::from_vec(captured.to_vec());
            assert_eq!(is_wanted(StatusArg::Auto, terminals, &captured), expected, "{terminals:?} {captured:?}");
            assert_eq!(is_wanted(StatusArg::Always, terminals, &captured), terminals.any());
            assert!(!is_wanted(StatusArg::Never, terminals, &captured));
        }
    }

    #[test]
    fn it_says_what_runs_what_failed_how_long_and_which_attempt() {
        let mut status = GroupStatus::default();
        (status.workers, status.running, status.failed, status.elapsed) = (4, 3, 1, Duration::from_secs(72));
        assert_eq!(text(&status, 0, 0), "rankrun: 3 of 4 workers running, 1 failed, 1:12");
        status.elapsed = Duration::from_secs(3 * 3600 + 9);
        assert_eq!(text(&status, 1, 3), "rankrun: 3 of 4 workers running, 1 failed, 3:00:09, attempt 2 of 4");
    }
}
