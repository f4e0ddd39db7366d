//! torchrun's arguments about the program and the number of workers: [`EntryArgs`], [`SizeArgs`], [`TakenArgs`].
//!
//! Not here: those of its arguments that other groups have, what they mean (`entry`), their names in the
//! environment (`pet`).

use std::ffi::OsString;

use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::nproc::NprocPerNode;
use crate::values::parse_seconds;

/// The names of all options that torchrun has; `--help` has them apart from ours.
pub(crate) const TORCHRUN: &[&str] = &[
    "nproc-per-node",
    "nnodes",
    "node-rank",
    "rdzv-backend",
    "rdzv-endpoint",
    "rdzv-id",
    "rdzv-conf",
    "standalone",
    "max-restarts",
    "monitor-interval",
    "start-method",
    "event-log-handler",
    "role",
    "module",
    "no-python",
    "run-path",
    "log-dir",
    "redirects",
    "tee",
    "log-line-prefix-template",
    "local-ranks-filter",
    "duplicate-stdout-filters",
    "duplicate-stderr-filters",
    "master-addr",
    "master-port",
    "local-addr",
    "logs-specs",
    "numa-binding",
    "signals-to-handle",
    "shutdown-timeout",
    "virtual-local-rank",
];

/// Shortened names that are clear in torchrun and would not be among our options: what they mean there.
pub(crate) const SHORTENED: &[(&str, &[&str])] = &[
    ("event-log-handler", &["e", "ev", "eve", "even", "event"]),
    ("no-python", &["no-"]),
    ("run-path", &["ru", "run", "run-"]),
    ("redirects", &["re"]),
    ("tee", &["t"]),
    (
        "signals-to-handle",
        &["si", "sig", "sign", "signa", "signal", "signals", "signals-", "signals-t", "signals-to", "signals-to-"],
    ),
    ("virtual-local-rank", &["v"]),
];

/// What each worker runs.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct EntryArgs {
    /// PROGRAM is a Python module: run it as `python3 -u -m PROGRAM`
    #[arg(short = 'm', long, conflicts_with_all = ["no_python", "run_path"])]
    pub(crate) module: bool,

    /// Run PROGRAM directly even if it is a .py file
    #[arg(long)]
    pub(crate) no_python: bool,

    /// PROGRAM is the absolute path of a Python script, whatever its name ends with; before --no-python
    #[arg(long)]
    pub(crate) run_path: bool,

    /// The Python that runs .py files and modules [default: $PYTHON_EXEC, or python3]
    #[arg(long, value_name = "PROGRAM", help_heading = "Program", value_parser = python_parser())]
    pub(crate) python: Option<OsString>,
}

/// Arguments of torchrun for which there is nothing to do here.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct TakenArgs {
    /// Accepted; an end of a worker is noticed at once
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) monitor_interval: Option<std::time::Duration>,

    /// Accepted; workers are programs, not forked from rankrun
    #[arg(long, value_name = "METHOD", hide_possible_values = true)]
    pub(crate) start_method: Option<StartMethod>,

    /// Accepted if it is null: torchrun's other handlers are Python
    #[arg(long, value_name = "NAME", value_parser = parse_event_log_handler)]
    pub(crate) event_log_handler: Option<String>,

    /// Refused: a Python class that chooses log files
    #[arg(long, value_name = "NAME", value_parser = refuse_logs_specs)]
    pub(crate) logs_specs: Option<String>,
}

/// How Python's multiprocessing would start workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StartMethod {
    Spawn,
    Fork,
    Forkserver,
}

/// How many workers: of both worlds, so it stands alone.
#[derive(Debug, clap::Args)]
pub(crate) struct SizeArgs {
    /// How many workers on this host: a number, gpu (one for each), cpu, or auto (gpu if there are any, else cpu)
    #[arg(short = 'n', long, value_name = "N", default_value = "1")]
    pub(crate) nproc_per_node: NprocPerNode,
}

/// Any bytes, but some.
fn python_parser() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(|python| match python.is_empty() {
        true => Err("expected the name or path of a Python, such as python3"),
        false => Ok(python),
    })
}

fn parse_event_log_handler(text: &str) -> Result<String, String> {
    match text {
        "null" => Ok(text.to_owned()),
        _ => Err("expected null: torchrun's other handlers are Python".to_owned()),
    }
}

fn refuse_logs_specs(_: &str) -> Result<String, String> {
    Err("it names a Python class, which rankrun cannot load: use --log-dir, --redirects and --tee".to_owned())
}
