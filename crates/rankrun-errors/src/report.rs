//! The report of a failed group, for people: short first, then the root cause in full, then the others by groups of
//! equal failures. Pure: text from data. Not here: which failure is the root cause (`root_cause`).

use std::fmt::{self, Write};

use rankrun_types::ExitKind;

use crate::child_failed::{ChildFailedError, RankFailure};
use crate::escape;
use crate::failure::ProcessFailure;
use crate::groups::{Group, group_equal, rank_list};
use crate::reason::usual_meaning;
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
/// Plain text without colour, several lines, no newline at the end. Control characters that workers wrote are
/// escaped. It stays readable for hundreds of failures: equal ones are shown once, and of many different ones the
/// earliest.
pub struct Report<'a> {
    error: &'a ChildFailedError,
    show_time: fn(i64) -> String,
}

impl fmt::Debug for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Report").field("error", self.error).finish_non_exhaustive()
    }
}

impl<'a> Report<'a> {
    pub(crate) fn new(error: &'a ChildFailedError) -> Self {
        Self { error, show_time: local_milliseconds }
    }

    /// The report with times shown by this function, which takes nanoseconds since the Unix epoch.
    ///
    /// Without it they are in the machine's time zone, with milliseconds.
    #[must_use]
    pub fn with_time_format(self, show_time: fn(i64) -> String) -> Self {
        Self { show_time, ..self }
    }

    fn time(&self, failure: &ProcessFailure) -> String {
        (self.show_time)(failure.timestamp_ns)
    }

    /// The one line that says it all.
    fn headline(&self, f: &mut impl Write) -> fmt::Result {
        let RankFailure { rank, role, failure } = self.error.root();
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
        if let Some(message) = own_message(failure) {
            write!(f, ": {}", escape::first_line(message, SHORT_MESSAGE))?;
        }
        Ok(())
    }

    fn root_cause(&self, f: &mut impl Write) -> fmt::Result {
        let RankFailure { rank, role, failure } = self.error.root();
        f.write_str("\n\nRoot cause (first observed failure):")?;
        write!(f, "\n  time:       {}", self.time(failure))?;
        if let Some(host) = self.error.host() {
            write!(f, "\n  host:       {}", escape::line(host))?;
        }
        write!(f, "\n  rank:       {rank} (local rank {}, role {})", failure.local_rank, escape::line(role))?;
        write!(f, "\n  exit code:  {}, pid {}", exit_code(failure), failure.pid)?;
        if failure.stopped {
            f.write_str("\n  meaning:    the launcher ended it, after it had recorded its error")?;
        } else if let Some(meaning) = usual_meaning(failure.exit) {
            write!(f, "\n  meaning:    {meaning}")?;
        }
        write!(f, "\n  error file: {}", error_file(failure))?;
        self.reason(f, failure)
    }

    /// Message, traceback, last lines of stderr: whatever of them there is, or how to get them.
    fn reason(&self, f: &mut impl Write, failure: &ProcessFailure) -> fmt::Result {
        let message = own_message(failure);
        let traceback = failure.traceback();
        if let Some(message) = message.filter(|message| !traceback.is_some_and(|text| text.contains(message))) {
            block(f, "message", message)?;
        }
        if let Some(traceback) = traceback {
            return block(f, "traceback", traceback);
        }
        if !failure.stderr_tail.is_empty() {
            return block(f, "last lines of stderr", &failure.stderr_tail.join("\n"));
        }
        if message.is_none() {
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
        write!(f, "\n\nOther failures ({}):", others.len())?;
        let groups = group_equal(&others);
        let shown = groups.len().min(MAX_GROUPS);
        for group in &groups[..shown] {
            self.group(f, group)?;
        }
        let rest: Vec<usize> = groups[shown..].iter().flat_map(|group| &group.members).map(|one| one.rank).collect();
        if !rest.is_empty() {
            write!(f, "\n  and {} more, later ones: {}", rest.len(), rank_list(rest))?;
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
        write!(f, "{}", rank_list(group.members.iter().map(|one| one.rank)))?;
        match group.members.len() {
            1 => write!(f, " (local rank {}, pid {})", failure.local_rank, failure.pid)?,
            many => write!(f, " ({many} workers)")?,
        }
        write!(f, ": {}", failure.exit)?;
        if let Some(message) = own_message(failure) {
            write!(f, ": {}", escape::first_line(message, SHORT_MESSAGE))?;
        }
        let (first_at, of) = match group.members.len() {
            1 => ("at", String::new()),
            _ => ("first at", format!(" of rank {}", first.rank)),
        };
        write!(f, "\n    {first_at} {}", self.time(failure))?;
        if failure.error_file.is_some() {
            write!(f, ", error file{of}: {}", error_file(failure))?;
        } else if let Some(last) = failure.stderr_tail.iter().rev().find(|line| !line.trim().is_empty()) {
            write!(f, ", last line of stderr{of}: {}", escape::first_line(last, SHORT_MESSAGE))?;
        }
        Ok(())
    }

    fn collateral(&self, f: &mut impl Write) -> fmt::Result {
        let root = self.error.root();
        let ranks: Vec<usize> = self
            .error
            .failures()
            .iter()
            .filter(|one| !std::ptr::eq(*one, root) && one.failure.kind == FailureKind::Collateral)
            .map(|one| one.rank)
            .collect();
        match ranks.len() {
            0 => Ok(()),
            many => write!(f, "\n\nStopped by the launcher after that ({many}): {}", rank_list(ranks)),
        }
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

/// The message, if the worker left one or the launcher knows better: not one that was made up from its exit.
fn own_message(failure: &ProcessFailure) -> Option<&str> {
    let recorded = || Some(failure.error_file_data.as_ref()?.message.as_str());
    let message = failure.note.as_deref().or_else(recorded)?.trim();
    (!message.is_empty()).then_some(message)
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

/// What is missing for a reason, and how to have it next time.
fn hint(failure: &ProcessFailure) -> String {
    let file = if failure.error_file_problem.is_some() { "no usable error file" } else { "no error file" };
    if failure.stderr_captured {
        format!("{file}, and nothing on stderr, so the reason is not known.\n{HOW_TO_RECORD}.")
    } else {
        format!(
            "{file} and no captured stderr, so the reason is not known.\n{HOW_TO_RECORD},\nor keep its stderr with --tee 3 or --redirects 3."
        )
    }
}

fn error_file(failure: &ProcessFailure) -> String {
    match (&failure.error_file, &failure.error_file_problem) {
        (None, _) => "none".to_owned(),
        (Some(path), None) => escape::line(&path.to_string_lossy()),
        (Some(path), Some(problem)) => {
            format!("{} (not usable: it {})", escape::line(&path.to_string_lossy()), escape::line(problem))
        }
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
