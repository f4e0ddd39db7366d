//! Arguments that stand in the environment, as torchrun has them: `PET_NPROC_PER_NODE=4` is `--nproc-per-node=4`.
//!
//! They are put before those of the command line, where the last one of a name counts. Not here: the arguments.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::{Arg, ArgAction, Command};
use rankrun::crates::types::escape_os_str;
use rankrun_launcher::{Env, worker_of_another};

use crate::help::HELP;
use crate::usage::{self, Stop};

/// What a name in the environment begins with.
const PET: &str = "PET_";

/// Other names that torch has for some; [`PET`] comes after them.
const OTHERS: &[(&str, &str)] = &[
    ("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "log-line-prefix-template"),
    ("TORCHELASTIC_SIGNALS_TO_HANDLE", "signals-to-handle"),
    ("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "shutdown-timeout"),
];

/// The options about nodes. Within a worker their variables are about the nodes of the launcher that started it.
const OF_NODES: &[&str] = &[
    "nnodes",
    "node-rank",
    "master-addr",
    "master-port",
    "local-addr",
    "rdzv-backend",
    "rdzv-conf",
    "rdzv-endpoint",
    "rdzv-id",
];

/// A variable with the option that it stands for.
struct Given<'a> {
    variable: String,
    option: &'a str,
    takes_value: bool,
    value: OsString,
}

/// Arguments in the environment.
#[derive(Debug, Default)]
pub(crate) struct EnvironmentArguments {
    pub(crate) arguments: Vec<OsString>,
    /// The names of the variables that they are from.
    pub(crate) variables: Vec<String>,
}

/// What is wrong with a command line, with the variables that had a part in it.
pub(crate) fn with_variables(text: String, variables: &[String]) -> String {
    if variables.is_empty() { text } else { format!("{text}; some arguments are from {}", variables.join(", ")) }
}

/// The arguments in the environment, each checked so that what is wrong is told with the variable's name.
///
/// Empty variables and names that are no option's do not count; nor, in a worker of another launcher, do those about nodes.
pub(crate) fn arguments(
    command: &Command,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<EnvironmentArguments, Stop> {
    let environment: Env = environment.collect();
    let is_worker = worker_of_another(&environment).is_some();
    let found = environment.into_iter().filter_map(|(name, value)| look_up(command, &name, value));
    let mut given: Vec<Given<'_>> = found.filter(|given| !(is_worker && OF_NODES.contains(&given.option))).collect();
    given.sort_by(|a, b| (a.variable.starts_with(PET), &a.variable).cmp(&(b.variable.starts_with(PET), &b.variable)));
    let mut found = EnvironmentArguments::default();
    for given in given {
        let mut argument = OsString::from(format!("--{}", given.option));
        if given.takes_value {
            argument.push("=");
            argument.push(&given.value);
            check(command, &argument, &given.variable)?;
        } else if !is_on(&given)? {
            continue;
        }
        found.arguments.push(argument);
        found.variables.push(given.variable);
    }
    Ok(found)
}

fn look_up<'a>(command: &'a Command, name: &OsStr, value: OsString) -> Option<Given<'a>> {
    let name = name.to_str().filter(|_| !value.is_empty())?;
    let of_pet = |name: &str| name.strip_prefix(PET).map(|option| option.to_ascii_lowercase().replace('_', "-"));
    let of_other = || OTHERS.iter().find(|(other, _)| *other == name).map(|(_, option)| (*option).to_owned());
    let option = of_pet(name).or_else(of_other)?;
    let is_it = |arg: &&Arg| {
        arg.get_long() == Some(&option) || arg.get_all_aliases().is_some_and(|all| all.contains(&option.as_str()))
    };
    let arg = command.get_arguments().find(is_it)?;
    let takes_value = match arg.get_action() {
        ArgAction::Set | ArgAction::Append => true,
        ArgAction::SetTrue => false,
        _ => return None,
    };
    Some(Given { variable: name.to_owned(), option: arg.get_long()?, takes_value, value })
}

/// Whether a flag is on; as torchrun has it, by a number.
fn is_on(given: &Given<'_>) -> Result<bool, Stop> {
    match given.value.as_bytes().trim_ascii() {
        b"0" | b"false" => Ok(false),
        b"1" | b"true" => Ok(true),
        _ => {
            let (value, variable) = (escape_os_str(&given.value), &given.variable);
            Err(Stop::Usage(format!(
                "invalid value '{value}' of the environment variable {variable}: expected 0 or 1 (see {HELP})"
            )))
        }
    }
}

fn check(command: &Command, argument: &OsStr, variable: &str) -> Result<(), Stop> {
    let line = ["rankrun".into(), argument.to_owned(), "program".into()];
    match usage::matches(&mut command.clone(), &line, HELP) {
        Ok(_) => Ok(()),
        Err(Stop::Usage(text)) => Err(Stop::Usage(format!("environment variable {variable}: {text}"))),
        Err(other) => Err(other),
    }
}
