//! The report of a failed group, for people: short first, then the root cause in full, then the others by groups of
//! equal failures. Pure: text from data. Not here: which failure is the root cause (`root_cause`).

use std::fmt::{self, Write};
use std::time::Duration;

use rankrun_types::{ExitKind, Signal, ranges};

use crate::child_failed::{ChildFailedError, RankFailure};
use crate::escape;
use crate::failure::{BEFORE_THAT, ProcessFailure};
use crate::groups::{Group, group_equal};
use crate::last_words::{LastWords, last_words};
use crate::reason::{MemoryKills, usual_meaning};
use crate::root_cause::FailureKind;
use crate::time::local_milliseconds;

/// Characters of a message in a line that has other things too.
const SHORT_MESSAGE: usize = 120;
/// Groups of equal failures that are listed one by one.
const MAX_GROUPS: usize = 20;
/// Lines of a traceback or message that are shown: its beginning and, more of it, its end.
const HEAD_LINES: usize = 20;
const TAIL_LINES: usize = 80;
const MAX_LINE_CHARS: usize = 2000;

const HOW_TO_RECORD: &str = "\
To get it next time, run the worker's main function under `record` (in Rust
rankrun's, in Python that of torch.distributed.elastic.multiprocessing.errors)";

/// The report of a [`ChildFailedError`]; its `Display` is the text.
///
/// Several lines, plain unless [`with_color`](Self::with_color), no newline at the end. Control characters that workers wrote are
/// escaped. It stays readable for hundreds of failures: equal ones are shown once, and of many different ones the
/// earliest.
pub struct Report<'a> {
    error: &'a ChildFailedError,
    show_time: fn(i64) -> String,
    color: bool,
}

/// How the headline and the headings look on a terminal: ECMA-48 codes for bold red, bold, and the end of both.
const RED: &str = "\x1b[1;31m";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

impl fmt::Debug for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Report").field("error", self.error).finish_non_exhaustive()
    }
}

impl<'a> Report<'a> {
    pub(crate) fn new(error: &'a ChildFailedError) -> Self {
        Self { error, show_time: local_milliseconds, color: false }
    }

    /// The report with times shown by this function, which takes nanoseconds since the Unix epoch.
    ///
    /// Without it they are in the machine's time zone, with milliseconds.
    #[must_use]
    pub fn with_time_format(self, show_time: fn(i64) -> String) -> Self {
        Self { show_time, ..self }
    }

    /// The report with its headline and headings in colour, for a terminal.
    #[must_use]
    pub fn with_color(self, color: bool) -> Self {
        Self { color, ..self }
    }

    fn heading(&self, f: &mut impl Write, text: &str) -> fmt::Result {
        if self.color { write!(f, "\n\n{BOLD}{text}{PLAIN}") } else { write!(f, "\n\n{text}") }
    }

    fn time(&self, failure: &ProcessFailure) -> String {
        (self.show_time)(failure.timestamp_ns)
    }

    /// The one line that says it all.
    fn headline(&self, f: &mut impl Write) -> fmt::Result {
        let RankFailure { rank, role, failure } = self.error.root();
        if self.color {
            f.write_str(RED)?;
        }
        write!(f, "{} FAILED: ", escape::line(role))?;
        write!(f, "rank {rank} (local rank {}, pid {})", failure.local_rank, failure.pid)?;
        if let Some(host) = self.error.host() {
            write!(f, " on {}", escape::line(host))?;
        }
        if failure.stopped {
            f.write_str(": failed, and was then stopped by the launcher")?;
        } else {
            write!(f, ": {}", failure.exit)?;
        }
        if let Some(message) = failure.own_message() {
            write!(f, ": {}", escape::first_line(message, SHORT_MESSAGE))?;
        } else if is_out_of_memory(failure) {
            f.write_str(": probably out of memory")?;
        } else if let Some((stream, last)) = said_last(failure) {
            write!(f, ", last on {stream}: {}", escape::first_line(&last.text, SHORT_MESSAGE))?;
        }
        f.write_str(if self.color { PLAIN } else { "" })
    }

    fn root_cause(&self, f: &mut impl Write) -> fmt::Result {
        let RankFailure { rank, role, failure } = self.error.root();
        self.heading(f, "Root cause (first observed failure):")?;
        write!(f, "\n  time:       {}", self.time(failure))?;
        if let Some(ran) = failure.ran {
            write!(f, ", after {} of running", run_time(ran))?;
        }
        if let Some(host) = self.error.host() {
            write!(f, "\n  host:       {}", escape::line(host))?;
        }
        write!(f, "\n  rank:       {rank} (local rank {}, role {})", failure.local_rank, escape::line(role))?;
        write!(f, "\n  exit code:  {}, pid {}", exit_code(failure), failure.pid)?;
        if failure.stopped {
            f.write_str("\n  meaning:    the launcher ended it, after it had recorded its error")?;
        } else if let Some(meaning) = usual_meaning(failure.exit, failure.memory_kills) {
            write!(f, "\n  meaning:    {meaning}")?;
        }
        if let Some(code) = passed_on_code(failure) {
            write!(f, "\n  inside it:  a worker of its own failed first, exit code {code}")?;
        }
        if let Some(core_dump) = &failure.core_dump {
            write!(f, "\n  core dump:  {}", escape::line(core_dump))?;
        }
        write!(f, "\n  error file: {}", error_file(failure))?;
        if let Some(logs) = log_files(failure) {
            write!(f, "\n  logs:       {logs}")?;
        }
        self.reason(f, failure)
    }

    /// Message, traceback, last lines: whatever of them there is, or how to get them.
    fn reason(&self, f: &mut impl Write, failure: &ProcessFailure) -> fmt::Result {
        let message = failure.own_message();
        let traceback = failure.traceback();
        let is_in = |text: &str, message: &str| text.contains(message.strip_prefix(BEFORE_THAT).unwrap_or(message));
        if let Some(message) = message.filter(|message| !traceback.is_some_and(|text| is_in(text, message))) {
            block(f, "message", message)?;
        }
        if let Some(traceback) = traceback {
            block(f, "traceback", traceback)?;
            // Of a signal the traceback tells nothing; the program or its libraries may have.
            let explained = failure.exit.signal().is_none() || failure.stopped;
            if explained && !may_be_of_another(failure) {
                return Ok(());
            }
        }
        if let Some((stream, lines)) = failure.tail() {
            block(f, &format!("last lines of {stream}"), &lines.join("\n"))?;
            if stream == "stderr" {
                return Ok(());
            }
        }
        if message.is_none() && traceback.is_none() {
            block(f, "hint", &hint(failure))?;
        }
        Ok(())
    }

    fn others(&self, f: &mut impl Write) -> fmt::Result {
        let root = self.error.root();
        let others: Vec<&RankFailure> = self
            .error
            .failures()
            .iter()
            .filter(|one| !std::ptr::eq(*one, root) && one.failure.kind != FailureKind::Collateral)
            .collect();
        if others.is_empty() {
            return Ok(());
        }
        self.heading(f, &format!("Other failures ({}):", others.len()))?;
        let groups = group_equal(&others);
        let shown = groups.len().min(MAX_GROUPS);
        for group in &groups[..shown] {
            self.group(f, group)?;
        }
        let rest: Vec<usize> = groups[shown..].iter().flat_map(|group| &group.members).map(|one| one.rank).collect();
        if !rest.is_empty() {
            write!(f, "\n  and {} more, later ones: {}", rest.len(), ranges("rank", rest))?;
        }
        Ok(())
    }

    fn group(&self, f: &mut impl Write, group: &Group<'_>) -> fmt::Result {
        let first = group.first();
        let failure = &first.failure;
        let several_roles = self.error.failures().iter().any(|one| one.role != first.role);
        f.write_str("\n  ")?;
        if several_roles {
            write!(f, "{} ", escape::line(&first.role))?;
        }
        write!(f, "{}", ranges("rank", group.members.iter().map(|one| one.rank)))?;
        match group.members.len() {
            1 => write!(f, " (local rank {}, pid {})", failure.local_rank, failure.pid)?,
            many => write!(f, " ({many} workers)")?,
        }
        write!(f, ": {}", failure.exit)?;
        if let Some(message) = failure.own_message() {
            write!(f, ": {}", escape::first_line(message, SHORT_MESSAGE))?;
        }
        let (first_at, of) = match group.members.len() {
            1 => ("at", String::new()),
            _ => ("first at", format!(" of rank {}", first.rank)),
        };
        write!(f, "\n    {first_at} {}", self.time(failure))?;
        if failure.error_file.is_some() {
            write!(f, ", error file{of}: {}", error_file(failure))?;
        } else if let Some((stream, last)) = last_of(failure) {
            write!(f, ", last line of {stream}{of}: {}", escape::first_line(&last.text, SHORT_MESSAGE))?;
        }
        Ok(())
    }

    /// Those that the launcher stopped, in one line: they are no failures.
    fn collateral(&self, f: &mut impl Write) -> fmt::Result {
        let root = self.error.root();
        let is_collateral =
            |one: &&RankFailure| !std::ptr::eq(*one, root) && one.failure.kind == FailureKind::Collateral;
        let failures = self.error.failures().iter().filter(is_collateral).map(|one| one.rank);
        let ranks: Vec<usize> = failures.chain(self.error.stopped_ranks().iter().copied()).collect();
        if ranks.is_empty() {
            return Ok(());
        }
        write!(f, "\n\n{}: stopped by rankrun", ranges("rank", ranks))
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.headline(f)?;
        self.root_cause(f)?;
        self.others(f)?;
        self.collateral(f)
    }
}

fn exit_code(failure: &ProcessFailure) -> String {
    match failure.exit {
        ExitKind::Code(code) => code.to_string(),
        ExitKind::Signal { signal, core_dumped } => {
            format!("{} ({signal}{})", failure.exitcode, if core_dumped { ", core dumped" } else { "" })
        }
        ExitKind::Lost => "not known, the exit status was lost".to_owned(),
    }
}

/// What says most of its last lines, and the stream they are of.
fn last_of(failure: &ProcessFailure) -> Option<(&'static str, LastWords)> {
    let (stream, lines) = failure.tail()?;
    Some((stream, last_words(lines)?))
}

/// The same where it is likely to be the reason.
pub(crate) fn said_last(failure: &ProcessFailure) -> Option<(&'static str, LastWords)> {
    // Of a signal, only a runtime's report is sure to have to do with it.
    last_of(failure).filter(|(_, last)| last.is_report || matches!(failure.exit, ExitKind::Code(_)))
}

/// What is missing for a reason, and how to have it next time.
fn hint(failure: &ProcessFailure) -> String {
    if failure.error_file_data.is_some() {
        return "the error that it recorded has an empty message and no traceback.".to_owned();
    }
    let file = if failure.error_file_problem.is_some() { "no usable error file" } else { "no error file" };
    let missing = if failure.stderr_captured && failure.stderr_incomplete {
        format!("{file}, and nothing in the log of its stderr, which may be incomplete, so the reason is not known.")
    } else if failure.stderr_captured {
        format!("{file}, and nothing on stderr, so the reason is not known.")
    } else {
        format!("{file} and no captured stderr, so the reason is not known.")
    };
    let (next_time, or_keep) = match &failure.function {
        // It runs under `record` as it is, in a program that has options of its own.
        Some(function) => (
            format!("An error that `{}` returns, or its panic, would be told here", escape::line(function)),
            "and what it writes is kept by `tee` or `redirects` of its group.",
        ),
        None => (HOW_TO_RECORD.to_owned(), "or keep its stderr with --tee 3 or --redirects 3."),
    };
    if failure.stderr_captured {
        format!("{missing}\n{next_time}.")
    } else {
        format!("{missing}\n{next_time},\n{or_keep}")
    }
}

fn error_file(failure: &ProcessFailure) -> String {
    let Some(path) = &failure.error_file else { return "none".to_owned() };
    let path = escape::line(&path.to_string_lossy());
    if let Some(problem) = &failure.error_file_problem {
        return format!("{path} (not used: it {})", escape::line(problem));
    }
    let writer = failure.error_file_data.as_ref().and_then(|data| data.pid);
    match writer.filter(|pid| *pid != failure.pid && passed_on_code(failure).is_none()) {
        Some(pid) => format!("{path} (by process {pid}, of which the worker ended)"),
        None if may_be_of_another(failure) => format!("{path} (it does not say which process wrote it)"),
        None => path,
    }
}

/// Whether the record, which does not name its process, may be of another than the worker, as the worker did not end as an
/// exception ends a program.
fn may_be_of_another(failure: &ProcessFailure) -> bool {
    let anonymous = failure.error_file_data.as_ref().is_some_and(|data| data.pid.is_none());
    let otherwise = !matches!(failure.exit, ExitKind::Code(1) | ExitKind::Lost) && !failure.stopped;
    anonymous && otherwise && passed_on_code(failure).is_none()
}

/// The exit code of the worker's own worker, if the worker is a launcher that passed on its failure.
fn passed_on_code(failure: &ProcessFailure) -> Option<i32> {
    failure.error_file_data.as_ref()?.passed_on_code()
}

fn is_out_of_memory(failure: &ProcessFailure) -> bool {
    let killed = failure.exit.signal() == Some(Signal::KILL) && !failure.stopped;
    killed && matches!(failure.memory_kills, MemoryKills::InGroup { .. } | MemoryKills::OnHost { .. })
}

/// The log files; of several in one directory only the first with it.
fn log_files(failure: &ProcessFailure) -> Option<String> {
    let mut shown = Vec::new();
    let mut directory = None;
    for path in &failure.log_files {
        let name = path.file_name().filter(|_| directory.is_some() && directory == path.parent());
        shown.push(escape::line(&name.unwrap_or(path.as_os_str()).to_string_lossy()));
        directory = path.parent();
    }
    (!shown.is_empty()).then(|| shown.join(", "))
}

/// A time as people say it: `0.25 s`, `12.3 s`, `5 min 2 s`, `3 h 5 min`.
fn run_time(ran: Duration) -> String {
    let secs = ran.as_secs();
    match secs {
        0 => format!("{:.2} s", ran.as_secs_f64()),
        1..60 => format!("{:.1} s", ran.as_secs_f64()),
        60..3600 => format!("{} min {} s", secs / 60, secs % 60),
        _ => format!("{} h {} min", secs / 3600, secs / 60 % 60),
    }
}

/// A heading and the text below it, indented. Of a long text the middle is left out.
fn block(f: &mut impl Write, heading: &str, text: &str) -> fmt::Result {
    write!(f, "\n  {heading}:")?;
    let text = text.trim_end();
    let count = text.lines().count();
    let left_out = count.saturating_sub(HEAD_LINES + TAIL_LINES);
    for (at, line) in text.lines().enumerate() {
        if left_out > 0 && at == HEAD_LINES {
            write!(f, "\n    ... {left_out} lines left out ...")?;
        }
        if left_out > 0 && (HEAD_LINES..HEAD_LINES + left_out).contains(&at) {
            continue;
        }
        let line = line.trim_end();
        let shown: String = line.chars().take(MAX_LINE_CHARS).collect();
        let cut = if shown.len() < line.len() { "..." } else { "" };
        if shown.is_empty() {
            f.write_str("\n")?;
        } else {
            write!(f, "\n    {}{cut}", escape::block(&shown))?;
        }
    }
    Ok(())
}
