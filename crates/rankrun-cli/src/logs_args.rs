//! The command line of `rankrun logs`: [`LogsArgs`]. Not here: carrying it out (`logs`).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::SystemTime;

use clap::Parser;
use jiff::civil::DateTime;
use jiff::{Span, Timestamp, ZonedDateTime};
use rankrun::crates::logs::SinkId;

use crate::output::ColorArg;
use crate::usage::{self, Stop};
use crate::values::Typed;

pub(crate) const HELP: &str = "rankrun logs --help";

/// Show the log files of a run, each line with its rank.
///
/// The lines of a file have no times of their own, so nothing is guessed: files come one after the other, by node, by attempt,
/// then by rank, each rank's stdout before its stderr. With --follow, lines of a run that goes on come as they are written.
#[derive(Debug, Clone, Parser)]
#[command(
    bin_name = "rankrun logs",
    infer_long_args = true,
    name = "rankrun logs",
    version,
    max_term_width = 100,
    after_help = "A log directory has <run id>_<unique>/attempt_<n>/<local rank>/{stdout,stderr}.log, the link `latest` to its newest run, \
                  and in each run a run.json. Where nodes share a run it is <run id>/node_<k>/attempt_<n>/..., and each line begins with node_<k> here.\n\n\
                  Exit code: 0 shown (also if nothing was captured), 2 wrong usage or no run in DIR, 125 a file could not be read."
)]
pub(crate) struct LogsArgs {
    /// A run's directory, also one that several nodes share, or a log directory: then its newest run
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Only these local ranks, such as 3 or 0,2-5
    #[arg(long, value_name = "RANKS", default_value = "", hide_default_value = true, value_parser = parse_ranks)]
    pub(crate) rank: Typed<Ranks>,

    /// Only these nodes of a run that several share, such as 3 or 0,2-5
    #[arg(long, value_name = "NODES", default_value = "", hide_default_value = true, value_parser = parse_ranks)]
    pub(crate) node: Typed<Ranks>,

    /// Only this stream
    #[arg(long, value_name = "STREAM")]
    pub(crate) stream: Option<Stream>,

    /// Go on with what is being written, until the run ends
    #[arg(short, long)]
    pub(crate) follow: bool,

    /// Only files that were written to since: a time such as 2026-12-01T10:15:00Z or 2026-12-01 10:15 (local), or so long ago: 10m, 2h, 1d
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    pub(crate) since: Option<SystemTime>,

    /// Whether prefixes have a colour for each rank: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub(crate) color: ColorArg,
}

/// Local ranks, or nodes; none stands for all.
pub(crate) type Ranks = BTreeSet<usize>;

/// One of the two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Stream {
    /// Standard output
    #[value(alias = "stdout")]
    Out,
    /// Standard error
    #[value(alias = "stderr")]
    Err,
}

impl Stream {
    pub(crate) fn sink(self) -> SinkId {
        match self {
            Self::Out => SinkId::Stdout,
            Self::Err => SinkId::Stderr,
        }
    }

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Out => Self::Err,
            Self::Err => Self::Out,
        }
    }
}

/// Takes a command line that begins with `logs` apart; `None` if it does not.
///
/// As the first argument `logs` is always this command, whatever exists on disk, so that it means the same everywhere.
pub(crate) fn parse(command_line: &[OsString]) -> Option<Result<LogsArgs, Stop>> {
    if command_line.get(1)? != "logs" {
        return None;
    }
    Some(usage::parse(&command_line[1..], HELP))
}

fn parse_ranks(text: &str) -> Result<Typed<Ranks>, String> {
    let value = parse_numbers(text).ok_or_else(|| {
        format!("expected numbers from 0 to {}, such as 3 or 0,2-5", rankrun::crates::types::MAX_LOCAL_RANK)
    })?;
    Ok(Typed { text: text.to_owned(), value })
}

/// Numbers and ranges of them, separated by commas; none in an empty text.
pub(crate) fn parse_numbers(text: &str) -> Option<Ranks> {
    let mut ranks = Ranks::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<usize>().ok();
        let (first, last) = (number(first)?, number(last)?);
        if first > last || last > rankrun::crates::types::MAX_LOCAL_RANK {
            return None;
        }
        ranks.extend(first..=last);
    }
    Some(ranks)
}

fn parse_since(text: &str) -> Result<SystemTime, String> {
    since(text, &ZonedDateTime::now())
}

fn since(text: &str, now: &ZonedDateTime) -> Result<SystemTime, String> {
    const EXPECTED: &str =
        "expected a time such as 2026-12-01T10:15:00Z or 2026-12-01 10:15, or so long ago: 10m, 2h, 1d";
    let text = text.trim();
    let moment = || text.parse::<Timestamp>().ok();
    let local = || text.parse::<DateTime>().ok()?.to_zoned_datetime(now.time_zone().clone()).ok();
    let ago = || {
        let span = text.parse::<Span>().ok().filter(|span| !span.is_negative())?;
        now.checked_sub(span).ok()
    };
    let time = moment().or_else(|| local().or_else(ago).map(|time| time.timestamp()));
    time.and_then(|time| SystemTime::try_from(time).ok()).ok_or_else(|| EXPECTED.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use jiff::tz::TimeZone;

    use super::*;

    fn parsed(line: &[&str]) -> Result<LogsArgs, String> {
        let line: Vec<OsString> = ["rankrun", "logs"].iter().chain(line).map(OsString::from).collect();
        match parse(&line).unwrap() {
            Ok(args) => Ok(args),
            Err(Stop::Usage(text)) => Err(text),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        <LogsArgs as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn only_a_first_argument_logs_is_this_command() {
        let is = |line: &[&str]| parse(&line.iter().map(OsString::from).collect::<Vec<_>>()).is_some();
        assert!(is(&["rankrun", "logs"]) && is(&["rankrun", "logs", "--help"]));
        for program in
            [&["rankrun", "--", "logs"][..], &["rankrun", "./logs"], &["rankrun", "-n", "2", "logs"], &["rankrun"]]
        {
            assert!(!is(program), "{program:?}");
        }
    }

    #[test]
    fn what_to_show_is_read() {
        let args = parsed(&["dir", "--rank", "5,0-2", "--stream", "err", "-f"]).unwrap();
        assert_eq!(args.rank.value.into_iter().collect::<Vec<_>>(), [0, 1, 2, 5]);
        assert_eq!((args.stream, args.follow, args.since), (Some(Stream::Err), true, None));
        assert_eq!(parsed(&["dir", "--stream", "stdout"]).unwrap().stream, Some(Stream::Out));
        assert!(parsed(&["dir"]).unwrap().rank.is_empty());
    }

    #[test]
    fn a_time_is_a_moment_or_so_long_ago() {
        let now = Timestamp::from_second(1_796_120_100).unwrap().to_zoned_datetime(TimeZone::UTC);
        let seconds = |text| since(text, &now).unwrap().duration_since(UNIX_EPOCH).unwrap();
        assert_eq!(seconds("2026-12-01T10:15:00Z"), Duration::from_secs(1_796_120_100));
        assert_eq!(seconds("10m"), Duration::from_secs(1_796_119_500));
        assert_eq!(seconds("1d 2h"), Duration::from_secs(1_796_120_100 - 26 * 3600));
        assert_eq!(seconds("2026-12-01 10:15"), Duration::from_secs(1_796_120_100));
        for wrong in ["", "yesterday", "-10m", "10", "10m ago?"] {
            assert!(since(wrong, &now).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_argument_gives_one_line_that_names_it_and_what_is_accepted() {
        for (line, words) in [
            (&[][..], &["DIR"][..]),
            (&["dir", "--rank", "x"], &["--rank", "'x'", "0,2-5"]),
            (&["dir", "--rank", "3-1"], &["--rank", "'3-1'"]),
            (&["dir", "--color", "yes"], &["--color", "'yes'", "auto", "always", "never"]),
            (&["dir", "--stream", "both"], &["--stream", "out", "err"]),
            (&["dir", "--since", "soon"], &["--since", "'soon'", "10m"]),
            (&["dir", "other"], &["other"]),
        ] {
            let text = parsed(line).unwrap_err();
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(text.ends_with("(see rankrun logs --help)"), "{text}");
            for word in words {
                assert!(text.contains(word), "{line:?}: `{word}` not in: {text}");
            }
        }
    }
}
