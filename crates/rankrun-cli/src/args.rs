//! The command line as typed: [`Args`]. Not here: what it means together with the environment (`plan`).

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Command, FromArgMatches, Parser, ValueHint};

use crate::environment::EnvironmentArgs;
use crate::help::{self, HELP, command};
use crate::nodes::NodesArgs;
use crate::output::OutputArgs;
use crate::pet;
use crate::placement::PlacementArgs;
use crate::records::RecordArgs;
use crate::restarts::RestartArgs;
use crate::status_line::StatusArgs;
use crate::torchrun_args::{EntryArgs, SizeArgs, TakenArgs};
use crate::usage::{self, Stop};
use crate::values::{SignalList, Typed, parse_catchable, parse_seconds, parse_signals, parse_text};
use rankrun::{LogSize, Signal, StdSpec};

/// Start N copies of a program, each with its rank, and report the first failure.
///
/// Each worker gets LOCAL_RANK, RANK, LOCAL_WORLD_SIZE, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and the other variables
/// that torchrun sets. A .py file is run by Python, anything else directly. The first worker that fails stops the others.
#[derive(Debug, Parser)]
#[command(
    name = "rankrun",
    version,
    max_term_width = 100,
    infer_long_args = true,
    args_override_self = true,
    override_usage = help::USAGE,
    after_help = help::below_first(),
    after_long_help = help::below_all()
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) size: SizeArgs,

    #[command(flatten)]
    pub(crate) entry: EntryArgs,

    /// Which streams go to files instead of here
    #[arg(short = 'r', long, value_name = "SPEC", default_value = "0", hide_default_value = true)]
    pub(crate) redirects: Typed<StdSpec>,

    /// Which streams go to files and are shown here line by line, with a prefix
    #[arg(short = 't', long, value_name = "SPEC", default_value = "0", hide_default_value = true)]
    pub(crate) tee: Typed<StdSpec>,

    /// Where this run gets a directory for its log and error files [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub(crate) log_dir: Option<PathBuf>,

    /// The id of this run: TORCHELASTIC_RUN_ID, and the start of its directory's name [default: time and pid]
    #[arg(long, visible_alias = "run-id", value_name = "ID", value_parser = parse_text)]
    pub(crate) rdzv_id: Option<String>,

    /// The workers' role: ROLE_NAME, the prefix of teed lines, the name in reports
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) role: String,

    /// How long workers have from the death signal to SIGKILL
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds)]
    pub(crate) shutdown_timeout: Duration,

    /// Signals that stop the run: passed on to the workers with grace, a second one kills
    /// [default: SIGTERM,SIGINT,SIGHUP,SIGQUIT]
    #[arg(long, value_name = "SIGNALS", value_parser = parse_signals)]
    pub(crate) signals_to_handle: Option<SignalList>,

    #[command(flatten)]
    pub(crate) nodes: NodesArgs,

    #[command(flatten)]
    pub(crate) taken: TakenArgs,

    #[command(flatten)]
    pub(crate) restarts: RestartArgs,

    #[command(flatten)]
    pub(crate) environment: EnvironmentArgs,

    /// Print what would be run, each rank's environment, files and placement, and start nothing
    #[arg(long, help_heading = help::OWN_HEADING)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) status: StatusArgs,

    /// How large each log file may become, such as 512k, 10M or 1G: its end is kept, and one line says how much was dropped
    #[arg(long, value_name = "SIZE", help_heading = "Log files")]
    pub(crate) log_max_size: Option<LogSize>,

    /// Signals that are passed on to the workers while the run goes on; one that also stops the run stops it
    /// [default: SIGUSR1,SIGUSR2]
    #[arg(long, value_name = "SIGNALS", value_parser = parse_signals, help_heading = "Stopping")]
    pub(crate) signals_to_forward: Option<SignalList>,

    /// Who gets the death signal: each worker and then, once it is gone, the rest of its process group, or all at once
    #[arg(long, value_name = "ORDER", default_value = "leader-then-group", help_heading = "Stopping")]
    pub(crate) stop_order: StopOrderArg,

    /// A signal before the death signal, for workers that hang to write their stacks
    #[arg(long, value_name = "SIGNAL", value_parser = parse_catchable, help_heading = "Stopping")]
    pub(crate) dump_signal: Option<Signal>,

    /// How long from the dump signal to the death signal
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "5",
        value_parser = parse_seconds,
        help_heading = "Stopping"
    )]
    pub(crate) dump_timeout: Duration,

    /// Leave alone what workers left running, if all workers exit 0; with --pty what it writes then is lost
    #[arg(long, help_heading = "Stopping")]
    pub(crate) keep_descendants: bool,

    /// Make no control group for the workers, also where one can be made
    #[arg(long, alias = "no_cgroup", help_heading = "Stopping")]
    pub(crate) no_cgroup: bool,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    #[command(flatten)]
    pub(crate) placement: PlacementArgs,

    #[command(flatten)]
    pub(crate) records: RecordArgs,

    /// The variables of the environment that some of these are from.
    #[arg(skip)]
    pub(crate) variables: Vec<String>,

    /// The program, or the module, and its arguments: options after it are its own
    #[arg(
        value_name = "PROGRAM [ARGS]",
        required = true,
        num_args = 1..,
        trailing_var_arg = true,
        value_hint = ValueHint::CommandWithArguments
    )]
    pub(crate) command: Vec<OsString>,
}

/// [`rankrun::StopOrder`] as an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StopOrderArg {
    LeaderThenGroup,
    Group,
}

/// Reads a command line, argument 0 included, with what the environment says before it.
pub(crate) fn parse(
    command_line: Vec<OsString>,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Args, Stop> {
    Ok(read(command(), command_line, environment, HELP)?.0)
}

/// The same by a definition that has more than these arguments; `help`: what shows them.
pub(crate) fn read(
    mut command: Command,
    mut line: Vec<OsString>,
    environment: impl Iterator<Item = (OsString, OsString)>,
    help: &str,
) -> Result<(Args, ArgMatches), Stop> {
    let given = pet::arguments(&command, environment)?;
    let start = line.len().min(1);
    line.splice(start..start, given.arguments);
    let read = usage::matches(&mut command, &line, help).and_then(|matches| {
        let args = Args::from_arg_matches(&matches).map_err(|error| usage::stop(&command, &error, help))?;
        Ok((args, matches))
    });
    match read {
        Ok((args, matches)) => Ok((Args { variables: given.variables, ..args }, matches)),
        Err(Stop::Usage(text)) => Err(Stop::Usage(pet::with_variables(text, &given.variables))),
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nproc::NprocPerNode;

    fn parsed(line: &[&str]) -> Result<Args, Stop> {
        parsed_in(&[], line)
    }

    fn parsed_in(environment: &[(&str, &str)], line: &[&str]) -> Result<Args, Stop> {
        let environment = environment.iter().map(|(name, value)| (name.into(), value.into()));
        parse(std::iter::once("rankrun").chain(line.iter().copied()).map(OsString::from).collect(), environment)
    }

    fn usage(line: &[&str]) -> String {
        match parsed(line) {
            Err(Stop::Usage(text)) => text,
            other => panic!("{line:?} gave {other:?}"),
        }
    }

    #[test]
    fn a_negative_number_is_the_value_of_the_option_before_it() {
        for arg in crate::help::command().get_arguments().filter(|arg| arg.get_action().takes_values()) {
            let Some(long) = arg.get_long() else { continue };
            let option = format!("--{long}");
            if let Err(Stop::Usage(text)) = parsed(&[&option, "-1", "true"]) {
                assert!(text.contains(&option) && !text.contains("unexpected argument"), "{text}");
            }
        }
    }

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn an_option_is_typed_with_either_sign_between_each_of_its_words() {
        assert_eq!(parsed(&["--nproc-per_node=2", "true"]).unwrap().size.nproc_per_node, NprocPerNode::Count(2));
        assert_eq!(parsed(&["--nproc_per-n=2", "true"]).unwrap().size.nproc_per_node, NprocPerNode::Count(2));
        let args = parsed(&["--log_line-prefix_template=${rank}", "--run_id=a", "--signals-to_=TERM", "true"]).unwrap();
        assert!(args.output.log_line_prefix_template.is_some());
        assert_eq!((args.rdzv_id.as_deref(), args.signals_to_handle.map(|list| list.0.len())), (Some("a"), Some(1)));
    }

    #[test]
    fn what_follows_the_program_is_the_programs() {
        let args = parsed(&["-n", "4", "--tee", "3", "sh", "-c", "echo", "-n", "--help"]).unwrap();
        assert_eq!(args.command, ["sh", "-c", "echo", "-n", "--help"]);
        assert_eq!(args.size.nproc_per_node, NprocPerNode::Count(4));
        let args = parsed(&["--", "-x", "--", "y"]).unwrap();
        assert_eq!(args.command, ["-x", "--", "y"]);
    }

    #[test]
    fn a_wrong_argument_gives_one_line_that_names_it_and_what_is_accepted() {
        let mut tried: Vec<&str> = Vec::new();
        for (line, words) in [
            (&["-n", "0", "true"][..], &["-n", "'0'", "1 to 65536, auto, cpu or gpu"][..]),
            (&["-n", "x", "true"], &["'x'", "1 to 65536, auto, cpu or gpu"]),
            (&["-n", "-1", "true"], &["-1"]),
            (&["-r", "0:4", "true"], &["--redirects", "byte 2", "0-3"]),
            (&["-t", "", "true"], &["--tee"]),
            (&["--shutdown-timeout", "-1", "true"], &["'-1'", "0 or more"]),
            (&["--shutdown-timeout", "nan", "true"], &["'nan'", "0 or more"]),
            (&["--signals-to-handle", "TERM,FOO", "true"], &["--signals-to-handle", "`FOO`", "SIGTERM"]),
            (&["--signals-to-handle", "KILL", "true"], &["SIGKILL cannot be caught"]),
            (
                &["--signals-to-handle", "CHLD", "true"],
                &["--signals-to-handle", "SIGCHLD is rankrun's own", "TERM, INT"],
            ),
            (&["--signals-to-forward", "USR1,STOP", "true"], &["--signals-to-forward", "SIGSTOP cannot be caught"]),
            (&["--dump-signal", "99", "true"], &["--dump-signal", "`99`", "1 to 64"]),
            (&["--settle-time", "-1", "true"], &["--settle-time", "0 or more"]),
            (&["--stall-timeout", "soon", "true"], &["--stall-timeout", "'soon'", "0 or more"]),
            (&["--dump-timeout", "-3", "true"], &["--dump-timeout", "0 or more"]),
            (&["--stop-order", "random", "true"], &["--stop-order", "leader-then-group", "group"]),
            (&["--numa-binding", "tile", "true"], &["--numa-binding", "node", "core-complex"]),
            (&["--rlimit", "fds=3", "true"], &["--rlimit", "fds", "nofile"]),
            (
                &["--rlimit", "stack=1Q", "true"],
                &["--rlimit", "'stack=1Q'", "bytes, also with k, M, G or T", "unlimited"],
            ),
            (&["--python", "", "x.py"], &["--python", "''", "such as python3"]),
            (&["--rlimit", "nofile=10:5", "true"], &["--rlimit", "nofile=10:5", "at most the hard one, 5"]),
            (&["--stdin", "-1", "true"], &["--stdin", "-1", "a local rank, from 0", "none"]),
            (&["--cpu-affinity", "0;;1", "true"], &["--cpu-affinity", "'0;;1'", "0-3,8"]),
            (&["--umask", "888", "true"], &["--umask", "'888'", "octal number from 0 to 777"]),
            (&["--stdin", "all", "true"], &["--stdin", "'all'", "a local rank, from 0"]),
            (&["--nice", "40", "true"], &["--nice", "-20", "19"]),
            (&["--nice", "low", "true"], &["--nice", "'low'", "whole number from -20 to 19"]),
            (&["--log-max-size", "10Q", "true"], &["--log-max-size", "`10Q`", "k, M, G or T", "10M"]),
            (&["--run-id", "", "true"], &["--rdzv-id", "not empty"]),
            (
                &["--log-line-prefix-template", "${x}", "true"],
                &["--log-line-prefix-template", "`${x}`", "${role_name}"],
            ),
            (&["--progress", "all", "true"], &["--progress", "'all'", "raw", "latest", "off"]),
            (&["--color", "yes", "true"], &["--color", "'yes'", "auto", "always", "never"]),
            (&["--local-ranks-filter", "", "true"], &["--local-ranks-filter", "such as 3 or 0,2-5"]),
            (&["--local-ranks-filter", "0,x", "true"], &["--local-ranks-filter", "'0,x'", "such as 3 or 0,2-5"]),
            (&["--duplicate-stdout-filters", "", "true"], &["--duplicate-stdout-filters", "one or more texts"]),
            (
                &["--duplicate-stderr-filters", "a,", "true"],
                &["--duplicate-stderr-filters", "'a,'", "none of them empty", "such as loss,error"],
            ),
            (&["-m", "--no-python", "pkg"], &["'--module'", "'--no-python'"]),
            (&["-m", "--run-path", "/pkg"], &["'--module'", "'--run-path'"]),
            (&["--monitor-interval", "often", "true"], &["--monitor-interval", "'often'", "0 or more"]),
            (&["--start-method", "thread", "true"], &["--start-method", "'thread'", "spawn", "fork", "forkserver"]),
            (&["--event-log-handler", "console", "true"], &["--event-log-handler", "'console'", "null"]),
            (&["--logs-specs", "mine", "true"], &["--logs-specs", "Python", "--log-dir"]),
            (&["--log", "x", "true"], &["--log"]),
            (&["--nnodes", "0", "true"], &["--nnodes", "'0'", "1 to 65536"]),
            (&["--node-rank", "-1", "true"], &["-1"]),
            (&["--node-rank", "first", "true"], &["--node-rank", "'first'", "from 0 to the number of nodes less one"]),
            (&["--master-addr", "", "true"], &["--master-addr", "not empty"]),
            (&["--master-addr", "a:1", "true"], &["--master-addr", "'a:1'", "without a port", "--master-port"]),
            (&["--master-addr", "a b", "true"], &["--master-addr", "'a b'", "name or address of a host"]),
            (&["--shutdown-timeout", "inf", "true"], &["--shutdown-timeout", "'inf'", "less than 1e19"]),
            (&["--master-port", "70000", "true"], &["--master-port", "'70000'", "1 to 65535"]),
            (&["--rdzv-conf", "timeout", "true"], &["--rdzv-conf", "'timeout'", "KEY=VALUE"]),
            (&["--local-addr", "", "true"], &["--local-addr", "not empty"]),
            (&["--topology", "pbs", "true"], &["--topology", "`pbs`", "slurm"]),
            (&["--max-restarts", "-1", "true"], &["-1"]),
            (&["--max-restarts", "some", "true"], &["--max-restarts", "'some'", "a whole number from 0 to 4294967295"]),
            (&["--restart-backoff", "5:1", "true"], &["--restart-backoff", "`5:1`", "5:60"]),
            (&["--no-restart-on", "300", "true"], &["--no-restart-on", "`300`", "2,64-78"]),
            (&["--min-uptime", "-1", "true"], &["--min-uptime", "'-1'", "0 or more"]),
            (&["--status", "on", "true"], &["--status", "'on'", "auto", "always", "never"]),
            (&["--omp-threads", "0", "true"], &["--omp-threads", "'0'", "1 or more"]),
            (&["--bogus", "true"], &["--bogus"]),
            (&["--n", "2", "true"], &["ambiguous argument '--n'", "--nproc-per-node", "--nnodes", "--node-rank"]),
            (&["--module=x", "true"], &["--module", "'x'", "it takes none"]),
            (&[], &["PROGRAM"]),
        ] {
            let text = usage(line);
            tried.extend(line.first());
            assert_eq!(text.lines().count(), 1, "{text}");
            for word in words {
                assert!(text.contains(word), "{line:?}: `{word}` not in: {text}");
            }
        }
        // Any text will do for these, or the plan says more of it.
        let free = ["role", "log-dir", "events", "rdzv-id", "rdzv-backend", "rdzv-endpoint", "python", "chdir"];
        for arg in command().get_arguments().filter(|arg| arg.get_action().takes_values()) {
            let Some(long) = arg.get_long() else { continue };
            let short = arg.get_short().map(|short| format!("-{short}"));
            let is_it = |tried: &&str| tried.strip_prefix("--") == Some(long) || short.as_deref() == Some(*tried);
            assert!(tried.iter().any(is_it) || free.contains(&long), "no wrong value was tried for --{long}");
        }
    }
    #[test]
    fn an_option_can_be_typed_with_underscores_shortened_and_again() {
        for line in [
            &["--nproc_per_node", "3", "true"][..],
            &["--nproc_per_node=3", "true"],
            &["--nproc-per=3", "true"],
            &["--nproc_per=3", "true"],
            &["-n", "2", "-n3", "true"],
        ] {
            assert_eq!(parsed(line).unwrap().size.nproc_per_node, NprocPerNode::Count(3), "{line:?}");
        }
        assert_eq!(parsed(&["--log_max_size", "1M", "--run_id", "7", "true"]).unwrap().rdzv_id.as_deref(), Some("7"));
    }

    #[test]
    fn an_argument_in_the_environment_comes_before_the_command_line() {
        let environment = [
            ("PET_NPROC_PER_NODE", "4"),
            ("PET_RDZV_ID", "job"),
            ("PET_NO_PYTHON", "1"),
            ("PET_MODULE", "0"),
            ("PET_ROLE", ""),
            ("PET_UNKNOWN", "x"),
            ("PET_HELP", "1"),
            ("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"),
            ("TORCHELASTIC_SIGNALS_TO_HANDLE", "TERM,"),
            ("PET_SIGNALS_TO_HANDLE", "INT"),
        ];
        let args = parsed_in(&environment, &["a.py"]).unwrap();
        assert_eq!(args.size.nproc_per_node, NprocPerNode::Count(4));
        assert_eq!((args.rdzv_id.as_deref(), args.role.as_str()), (Some("job"), "default"));
        assert_eq!((args.entry.no_python, args.entry.module), (true, false));
        assert_eq!(args.shutdown_timeout, Duration::from_secs(7));
        assert_eq!(args.signals_to_handle, Some(SignalList(vec![Signal::INT])));
        let args = parsed_in(&environment, &["-n", "auto", "--role", "r", "a.py"]).unwrap();
        assert_eq!((args.size.nproc_per_node, args.role.as_str()), (NprocPerNode::Auto, "r"));
        // torchrun passes over what is empty between commas.
        let args = parsed_in(&[("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM, ,SIGINT,")], &["a.py"]).unwrap();
        assert_eq!(args.signals_to_handle, Some(SignalList(vec![Signal::TERM, Signal::INT])));
    }

    #[test]
    fn variables_about_nodes_are_not_a_workers_own() {
        let environment =
            [("PET_NNODES", "2"), ("PET_NODE_RANK", "1"), ("PET_RDZV_ID", "job"), ("PET_MAX_RESTARTS", "3")];
        let taken = |environment: &[(&str, &str)]| {
            let args = parsed_in(environment, &["a.py"]).unwrap();
            (args.nodes.nnodes.is_some(), args.nodes.node_rank, args.rdzv_id, args.restarts.max_restarts)
        };
        assert_eq!(taken(&environment), (true, Some(1), Some("job".to_owned()), 3));
        for variable in ["LOCAL_RANK", "TORCHELASTIC_RUN_ID", "RANKRUN_GROUP"] {
            assert_eq!(taken(&[&environment[..], &[(variable, "0")]].concat()), (false, None, None, 3), "{variable}");
        }
    }

    #[test]
    fn a_variable_that_is_no_text_is_told_with_its_name_and_what_is_accepted() {
        for (name, words) in [
            ("PET_MAX_RESTARTS", &["PET_MAX_RESTARTS", r"'1\xff'", "a whole number from 0"][..]),
            ("PET_ROLE", &["PET_ROLE", r"'1\xff'", "--role", "text in UTF-8"]),
            ("PET_NO_PYTHON", &["PET_NO_PYTHON", r"'1\xff'", "0 or 1"]),
        ] {
            let value = <OsString as std::os::unix::ffi::OsStringExt>::from_vec(b"1\xff".to_vec());
            let line = ["rankrun", "true"].map(OsString::from).to_vec();
            let Err(Stop::Usage(text)) = parse(line, std::iter::once((name.into(), value))) else { panic!("{name}") };
            assert!(text.lines().count() == 1 && words.iter().all(|word| text.contains(word)), "{text}");
        }
    }

    #[test]
    fn a_contradiction_is_told_with_the_variables_that_have_a_part_in_it() {
        let Err(Stop::Usage(text)) = parsed_in(&[("PET_MODULE", "1"), ("PET_RDZV_CONF", "")], &["--no-python", "x"])
        else {
            panic!("it is none")
        };
        let expected = "the argument '--module' cannot be used with '--no-python' (see rankrun --help); some arguments are from PET_MODULE";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_wrong_value_in_the_environment_is_told_with_the_variables_name() {
        for (name, value, words) in [
            ("PET_NPROC_PER_NODE", "many", &["PET_NPROC_PER_NODE", "'many'", "auto, cpu or gpu"][..]),
            ("PET_NO_PYTHON", "maybe", &["PET_NO_PYTHON", "'maybe'", "0 or 1"]),
            ("TORCHELASTIC_SIGNALS_TO_HANDLE", "FOO", &["TORCHELASTIC_SIGNALS_TO_HANDLE", "`FOO`", "SIGTERM"]),
        ] {
            let Err(Stop::Usage(text)) = parsed_in(&[(name, value)], &["-n", "1", "true"]) else { panic!("{name}") };
            assert_eq!(text.lines().count(), 1, "{text}");
            for word in words {
                assert!(text.contains(word), "`{word}` not in: {text}");
            }
        }
    }
}
