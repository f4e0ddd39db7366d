//! Reading a command line by its definition, and what is said of one that is wrong: one line with the argument, the value
//! and what is accepted ([`parse`], [`matches`](fn@matches)). Not here: the definitions (`args` and others), what only a plan can tell
//! to be wrong (`plan`).

use std::any::TypeId;
use std::error::Error as _;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Command, Parser};
use rankrun::crates::types::{escape_line, escape_os_str};

/// Why there is nothing to run.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Help or the version was asked for and has been shown.
    Shown,
    /// Help or the version was asked for and could not be shown.
    Unprintable(std::io::Error),
    /// The command line is wrong; one line that says where and what is accepted.
    Usage(String),
}

/// Reads the arguments of a command of its own, its name before them. `help`: what shows more.
pub(crate) fn parse<T: Parser>(line: &[OsString], help: &str) -> Result<T, Stop> {
    let mut command = T::command();
    let matches = matches(&mut command, line, help)?;
    T::from_arg_matches(&matches).map_err(|error| stop(&command, &error, help))
}

/// Takes a command line apart, argument 0 included.
pub(crate) fn matches(command: &mut Command, line: &[OsString], help: &str) -> Result<ArgMatches, Stop> {
    command.try_get_matches_from_mut(line).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => stop(command, &error, help),
        _ if line.iter().any(|word| word.to_str().is_none()) => usage(&no_text(command, line), help),
        _ => stop(command, &error, help),
    })
}

/// What to do about what clap says: show it, or one line of it with the way to help.
pub(crate) fn stop(command: &Command, error: &clap::Error, help: &str) -> Stop {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match error.print() {
            // A closed pipe is the reader's choice.
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Stop::Unprintable(error),
            _ => Stop::Shown,
        },
        _ => usage(&text(command, error), help),
    }
}

fn usage(text: &str, help: &str) -> Stop {
    Stop::Usage(format!("{} (see {help})", escape_line(text)))
}

/// What is wrong, without the way to help.
fn text(command: &Command, error: &clap::Error) -> String {
    let get = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(escape_line(text)),
        _ => None,
    };
    let (argument, value) = (get(ContextKind::InvalidArg), get(ContextKind::InvalidValue));
    match (error.kind(), argument, value) {
        (ErrorKind::ValueValidation, Some(argument), Some(value)) => {
            let why = error.source().map_or_else(String::new, |why| format!(": {why}"));
            format!("invalid value '{value}' for '{argument}'{why}")
        }
        (ErrorKind::InvalidValue, Some(argument), Some(value)) if !value.is_empty() => {
            let accepted = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(values)) => format!(": expected one of {}", values.join(", ")),
                _ => String::new(),
            };
            format!("invalid value '{value}' for '{argument}'{accepted}")
        }
        (ErrorKind::TooManyValues, Some(argument), Some(value)) => {
            format!("unexpected value '{value}' for '{argument}': it takes none")
        }
        (ErrorKind::UnknownArgument, Some(argument), _) => {
            unknown(command, &argument, get(ContextKind::SuggestedArg).as_deref())
        }
        // The rest has no value; its first paragraph has what is wrong.
        _ => {
            let message = error.render().to_string();
            let paragraph = message.split("\n\n").next().unwrap_or(&message);
            let words: Vec<&str> = paragraph.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            let text = words.join(" ");
            text.strip_prefix("error: ").unwrap_or(&text).to_owned()
        }
    }
}

/// An option that there is not, or that is one of several.
fn unknown(command: &Command, argument: &str, similar: Option<&str>) -> String {
    let typed = argument.strip_prefix("--").filter(|name| !name.is_empty()).map(|name| name.replace('_', "-"));
    let longs = command.get_arguments().filter_map(Arg::get_long);
    let could: Vec<String> = typed.map_or_else(Vec::new, |typed| {
        longs.filter(|long| long.starts_with(&typed)).map(|long| format!("--{long}")).collect()
    });
    match (could.as_slice(), similar) {
        ([], None) => format!("unexpected argument '{argument}'"),
        // It is also found with `_`, but shown as help has it.
        ([], Some(one)) => format!("unexpected argument '{argument}': did you mean '{}'?", one.replace('_', "-")),
        ([one], _) => format!("unexpected argument '{argument}': did you mean '{one}'?"),
        (several, _) => format!("ambiguous argument '{argument}': expected one of {}", several.join(", ")),
    }
}

/// What is wrong with a command line in which there are bytes that are no text.
fn no_text(command: &mut Command, line: &[OsString]) -> String {
    let escaped = |word: &OsString| if word.to_str().is_some() { word.clone() } else { escape_os_str(word).into() };
    let shown: Vec<OsString> = line.iter().map(escaped).collect();
    let matches = match command.try_get_matches_from_mut(&shown) {
        // Escaped it is no better, and what it is not is known.
        Err(error) => return text(command, &error),
        Ok(matches) => matches,
    };
    let changed: Vec<&str> =
        line.iter().zip(&shown).filter(|(word, shown)| word != shown).filter_map(|(_, shown)| shown.to_str()).collect();
    let of_text = command.get_arguments().filter(|arg| arg.get_action().takes_values() && !takes_bytes(arg));
    let found = of_text.flat_map(|arg| {
        let values = matches.get_raw(arg.get_id().as_str()).into_iter().flatten();
        values.filter_map(OsStr::to_str).map(move |value| (arg, value))
    });
    let mut found = found.filter(|(_, value)| !value.is_empty() && changed.iter().any(|word| word.ends_with(value)));
    match (found.next(), changed.first()) {
        (Some((arg, value)), _) => format!("invalid value '{value}' for '{arg}': expected text in UTF-8"),
        // It does not count, as a later one of its name does, but may be no other bytes either.
        (None, Some(word)) => format!("invalid argument '{word}': expected text in UTF-8"),
        (None, None) => "invalid argument: expected text in UTF-8".to_owned(),
    }
}

/// Whether a path or a program's argument is taken, which may be any bytes.
fn takes_bytes(arg: &Arg) -> bool {
    let kind = arg.get_value_parser().type_id();
    kind == TypeId::of::<OsString>() || kind == TypeId::of::<PathBuf>()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn wrong(line: &[&[u8]]) -> String {
        let line = [&[&b"rankrun"[..]], line, &[b"true"]].concat();
        let line: Vec<OsString> = line.into_iter().map(|word| OsString::from_vec(word.to_vec())).collect();
        match matches(&mut crate::help::command(), &line, "rankrun --help") {
            Err(Stop::Usage(text)) => text.strip_suffix(" (see rankrun --help)").unwrap().to_owned(),
            other => panic!("{line:?} gave {other:?}"),
        }
    }

    #[test]
    fn a_value_that_is_no_text_is_named_with_its_option_and_what_is_accepted() {
        for (line, expected) in [
            (&[&b"--role"[..], b"a\xff"][..], r"invalid value 'a\xff' for '--role <NAME>': expected text in UTF-8"),
            (&[b"--role=\xff"], r"invalid value '\xff' for '--role <NAME>': expected text in UTF-8"),
            (&[b"--role=\xff", b"--role=x"], r"invalid argument '--role=\xff': expected text in UTF-8"),
            (
                &[b"-n\xff"],
                r"invalid value '\xff' for '--nproc-per-node <N>': expected a whole number from 1 to 65536, auto, cpu or gpu",
            ),
            (
                &[b"--log-dir=\xfe", b"--color", b"\xff"],
                r"invalid value '\xff' for '--color <WHEN>': expected one of auto, always, never",
            ),
        ] {
            assert_eq!(wrong(line), expected);
        }
    }

    #[test]
    fn paths_programs_and_their_arguments_may_be_any_bytes() {
        let line: Vec<OsString> = [
            &b"rankrun"[..],
            b"--log-dir=\xff",
            b"--events",
            b"\xff",
            b"--python",
            b"\xff",
            b"--chdir=\xff",
            b"\xff",
            b"--\xff",
        ]
        .map(|word| OsString::from_vec(word.to_vec()))
        .to_vec();
        assert!(matches(&mut crate::help::command(), &line, "").is_ok());
    }

    #[test]
    fn whatever_is_in_a_value_it_is_one_line_with_what_is_accepted() {
        assert_eq!(
            wrong(&[b"-n", b"a\n\nb\x1b[31m"]),
            r"invalid value 'a\n\nb\x1b[31m' for '--nproc-per-node <N>': expected a whole number from 1 to 65536, auto, cpu or gpu"
        );
        assert_eq!(wrong(&[b"--pty=\n\n"]), r"unexpected value '\n\n' for '--pty': it takes none");
        assert_eq!(wrong(&[b"--\x1b"]), r"unexpected argument '--\x1b'");
        assert_eq!(wrong(&[b"--\xff"]), r"unexpected argument '--\xff'");
    }

    #[test]
    fn an_option_that_is_none_is_told_with_those_that_it_could_be() {
        assert_eq!(
            wrong(&[b"--local_r", b"--l=3"]),
            "ambiguous argument '--l': expected one of --log-dir, --local-addr, --logs-specs, --log-max-size, --log-line-prefix-template, --local-ranks-filter"
        );
        let text = wrong(&[b"--n", b"2"]);
        assert!(text.contains("'--n'") && text.contains("--nproc-per-node, ") && text.contains("--nnodes, "), "{text}");
        assert_eq!(wrong(&[b"--n_proc", b"2"]), "unexpected argument '--n_proc': did you mean '--nproc-per-node'?");
        assert_eq!(wrong(&[b"--colour", b"always"]), "unexpected argument '--colour': did you mean '--color'?");
        // Shortened as elsewhere.
        let line = ["logs", "dir", "--foll"].map(OsString::from);
        assert!(parse::<crate::logs_args::LogsArgs>(&line, "").is_ok_and(|args| args.follow));
    }
}
