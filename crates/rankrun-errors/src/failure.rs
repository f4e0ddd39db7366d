//! One failed worker: [`ProcessFailure`], made from its exit and its error file. Not here: several (`child_failed`).

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rankrun_types::ExitKind;

use crate::escape::first_line;
use crate::owner::{ended_of_panic, judge};
use crate::read::{ErrorFileReading, read_error_file};
use crate::reason::MemoryKills;
use crate::root_cause::{FailureKind, FailureOrder};
use crate::schema::{ErrorFileData, TimeResolution};
use crate::time::{NANOSECONDS, local_seconds, system_time, unix_ns};

/// What the reference shows where there is nothing to show.
pub(crate) const NOT_AVAILABLE: &str = "<N/A>";

/// Characters of the message of a record that is left aside.
const IGNORED_MESSAGE: usize = 200;

/// How far a file's modification time may lie before the start of its writer: the kernel stamps files with a clock
/// that is up to a tick old.
const MTIME_LAG_NS: i64 = 20_000_000;

/// A worker's end as its launcher saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedExit {
    /// The worker's index among the workers of this host.
    pub local_rank: usize,
    /// Its process id.
    pub pid: u32,
    /// How it ended.
    pub exit: ExitKind,
    /// When it was started, where that is known: no time before it is believed.
    pub started_at: Option<SystemTime>,
    /// A moment not after its start, in clock ticks since the boot, where that is known: a record of a process that is
    /// older is not its own.
    pub start_ticks: Option<u64>,
    /// When the launcher began to stop it, if it did so before its end.
    pub stopped_at: Option<SystemTime>,
    /// When its end was seen: no time after it is believed.
    pub ended_at: SystemTime,
}

/// Structured failure of one worker process.
///
/// Mirrors `ProcessFailure` of torch and TensorPlay; `kind`, `exit`, `timestamp_ns` and all after `timestamp_ns` are
/// ours.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessFailure {
    /// The worker's index among the workers of its host.
    pub local_rank: usize,
    /// Its process id.
    pub pid: u32,
    /// Its exit code, minus the signal's number for a signal.
    pub exitcode: i32,
    /// How it ended, in full.
    pub exit: ExitKind,
    /// Its part in the end of the group; the launcher sets [`FailureKind::Collateral`] where it stopped the worker.
    pub kind: FailureKind,
    /// Its error file, `None` if it wrote none.
    pub error_file: Option<PathBuf>,
    /// What the error file says; `None` if there is none, it is unusable, or it is not this worker's own.
    pub error_file_data: Option<ErrorFileData>,
    /// Why the error file is not used, as a fragment that goes after its name, such as `is empty`.
    pub error_file_problem: Option<String>,
    /// The path of the function that it ran, where it ran one in place of a program; set by the launcher.
    pub function: Option<String>,
    /// The launcher's note, or the error file's message, or else a sentence about how the worker ended.
    pub message: String,
    /// What the launcher found wrong beyond what exit and error file tell; see [`set_note`](Self::set_note).
    pub note: Option<String>,
    /// When it failed, in whole seconds since the Unix epoch: the error file's own time where it has a credible one.
    pub timestamp: i64,
    /// When it failed, in nanoseconds since the Unix epoch: what failures are put in order by.
    ///
    /// The error file's own time where that is finer than a second, else the time it was last written at, else the
    /// time of the exit. A time outside the worker's life is skipped: some clock was wrong.
    pub timestamp_ns: i64,
    /// How long it ran, if its start is known.
    pub ran: Option<Duration>,
    /// Whether it was the launcher that ended it, after it had recorded its failure.
    pub stopped: bool,
    /// The last lines of its stderr, where they were captured, in an [`excerpt`](crate::excerpt); filled in by the launcher.
    pub stderr_tail: Vec<String>,
    /// The same of its stdout, where its stderr was not captured or has nothing in it; filled in by the launcher.
    pub stdout_tail: Vec<String>,
    /// The files that have all it wrote, stdout before stderr; filled in by the launcher.
    pub log_files: Vec<PathBuf>,
    /// Whether its stderr was captured, so that an empty tail means that it wrote nothing, unless
    /// [`stderr_incomplete`](Self::stderr_incomplete); set by the launcher.
    pub stderr_captured: bool,
    /// Whether the file of its stderr may lack what it wrote, because the disk was full or the file is gone; set by the launcher.
    pub stderr_incomplete: bool,
    /// Whether the kernel killed processes for want of memory meanwhile; set by the launcher.
    pub memory_kills: MemoryKills,
    /// Where its core dump went, as words that go after `core dump:`; set by the launcher.
    pub core_dump: Option<String>,
}

impl ProcessFailure {
    /// The failure of a worker whose end was seen, with what its error file says.
    ///
    /// Reads the file if a path is given, and never fails: see [`read_error_file`].
    ///
    /// ```
    /// use std::time::SystemTime;
    /// use rankrun_errors::ProcessFailure;
    /// use rankrun_types::{ExitKind, Signal};
    ///
    /// let exit = ExitKind::Signal { signal: Signal::SEGV, core_dumped: false };
    /// let failure = ProcessFailure::observe(1, 4242, exit, SystemTime::now(), None);
    /// assert_eq!(failure.message, "Signal 11 (SIGSEGV) received by PID 4242");
    /// assert_eq!((failure.exitcode, failure.signal_name().as_str()), (-11, "SIGSEGV"));
    /// ```
    #[must_use]
    pub fn observe(
        local_rank: usize,
        pid: u32,
        exit: ExitKind,
        ended_at: SystemTime,
        error_file: Option<&Path>,
    ) -> Self {
        let observed =
            ObservedExit { local_rank, pid, exit, started_at: None, start_ticks: None, stopped_at: None, ended_at };
        Self::observe_exit(observed, error_file)
    }

    /// The same as [`ProcessFailure::observe`] for a worker of which more is known.
    #[must_use]
    pub fn observe_exit(observed: ObservedExit, error_file: Option<&Path>) -> Self {
        let reading = error_file.map_or(ErrorFileReading::Absent, read_error_file);
        Self::from_parts(observed, error_file.map(Path::to_owned), reading)
    }

    /// The failure made from a worker's end and what was read of its error file, without IO.
    ///
    /// A record that tells of something else is left aside, with the reason and its message in
    /// [`error_file_problem`](Self::error_file_problem): one that is older than the worker; one by another process, unless
    /// the worker ended within 3 s of it as a wrapper does: with the exit code that the record announces, or with 1, or, if it
    /// announces none, with any; one that another launcher of rankrun passed on, unless it ended with the code of that one's
    /// worker, or with 1, within 30 s; one by nobody knows whom, if the worker lived on for half an hour, or for 10 s until a signal
    /// other than SIGABRT.
    #[must_use]
    pub fn from_parts(observed: ObservedExit, error_file: Option<PathBuf>, reading: ErrorFileReading) -> Self {
        let (error_file, data, problem) = match reading {
            ErrorFileReading::Absent => (None, None, None),
            ErrorFileReading::Unusable { why } => (error_file, None, Some(why.to_string())),
            ErrorFileReading::Record(data) => match judge(&observed, &data, Times::choose(&observed, Some(&data)).ns) {
                Ok(()) => (error_file, Some(*data), None),
                Err(why) => {
                    let message = first_line(&data.message, IGNORED_MESSAGE);
                    (error_file, None, Some(format!("{why}; it says: {message}")))
                }
            },
        };
        let of_record = Times::choose(&observed, data.as_ref());
        let times = match &data {
            Some(data) if data.provisional && !ended_of_panic(&observed, of_record.ns) => {
                Times::choose(&observed, None)
            }
            _ => of_record,
        };
        let exit = exit_message(observed.exit, observed.pid);
        let message = match data.as_ref() {
            Some(data) if data.provisional => with_panic(&exit, data),
            Some(data) if !data.message.trim_end().is_empty() => data.message.trim_end().to_owned(),
            _ => exit,
        };
        // A record says that the worker failed, even if nobody knows its status.
        let lost = observed.exit == ExitKind::Lost && data.as_ref().is_none_or(|data| data.provisional);
        Self {
            local_rank: observed.local_rank,
            pid: observed.pid,
            exitcode: observed.exit.exitcode(),
            exit: observed.exit,
            kind: if lost { FailureKind::Lost } else { FailureKind::Failed },
            error_file,
            error_file_data: data,
            error_file_problem: problem,
            function: None,
            message,
            note: None,
            timestamp: times.seconds,
            timestamp_ns: times.ns,
            ran: observed.started_at.and_then(|started| observed.ended_at.duration_since(started).ok()),
            stopped: observed.stopped_at.is_some(),
            stderr_tail: Vec::new(),
            stdout_tail: Vec::new(),
            log_files: Vec::new(),
            stderr_captured: false,
            stderr_incomplete: false,
            memory_kills: MemoryKills::NotKnown,
            core_dump: None,
        }
    }

    /// Makes what the launcher found wrong itself the failure's message, such as that a worker exited 0 and left out
    /// what it was there for. The error file's traceback stays.
    ///
    /// After it comes a panic of which it is not known whether it has to do with the end.
    pub fn set_note(&mut self, note: impl Into<String>) {
        let note = note.into();
        self.message = match &self.error_file_data {
            Some(data) if data.provisional => with_panic(&note, data),
            _ => note,
        };
        self.note = Some(self.message.clone());
    }

    /// The same for what goes on where the sentence about the exit ends, unless a record tells of the end itself.
    pub fn set_note_on_exit(&mut self, rest: &str) {
        if !rest.is_empty() && self.error_file_data.as_ref().is_none_or(|data| data.provisional) {
            self.set_note(exit_message(self.exit, self.pid) + rest);
        }
    }

    /// The name of the signal that ended the worker, such as `SIGSEGV`; `<N/A>` if none did.
    ///
    /// Mirrors `ProcessFailure.signal_name`.
    #[must_use]
    pub fn signal_name(&self) -> String {
        self.exit.signal().map_or_else(|| NOT_AVAILABLE.to_owned(), |signal| signal.name())
    }

    /// When it failed: [`timestamp_ns`](Self::timestamp_ns) as the system's time.
    #[must_use]
    pub fn time(&self) -> SystemTime {
        system_time(self.timestamp_ns)
    }

    /// Whether the kernel wrote a core dump.
    #[must_use]
    pub fn core_dumped(&self) -> bool {
        matches!(self.exit, ExitKind::Signal { core_dumped: true, .. })
    }

    /// [`timestamp`](Self::timestamp) in the machine's time zone, such as `2026-11-30_22:12:24`.
    ///
    /// Mirrors `ProcessFailure.timestamp_isoformat`.
    #[must_use]
    pub fn timestamp_isoformat(&self) -> String {
        local_seconds(self.timestamp)
    }

    /// The traceback of the error file, if it has one.
    #[must_use]
    pub fn traceback(&self) -> Option<&str> {
        self.error_file_data.as_ref()?.traceback.as_deref()
    }

    /// The message, if the worker left one or the launcher knows better: not one that only says how it ended.
    pub(crate) fn own_message(&self) -> Option<&str> {
        let recorded = || {
            let data = self.error_file_data.as_ref()?;
            // What comes after the exit.
            Some(if data.provisional { self.message.split_once(AND_BEFORE)?.1 } else { &data.message })
        };
        let message = self.note.as_deref().or_else(recorded)?.trim();
        (!message.is_empty() && message != exit_message(self.exit, self.pid)).then_some(message)
    }

    /// Its last lines and the name of the stream that they are of; none if there are none.
    pub(crate) fn tail(&self) -> Option<(&'static str, &[String])> {
        let streams = [("stderr", &self.stderr_tail), ("stdout", &self.stdout_tail)];
        let (name, lines) = streams.into_iter().find(|(_, lines)| lines.iter().any(|line| !line.trim().is_empty()))?;
        Some((name, lines))
    }

    /// What counts for the order of failures, for the worker of this rank.
    #[must_use]
    pub fn order(&self, rank: usize) -> FailureOrder {
        FailureOrder { kind: self.kind, timestamp_ns: self.timestamp_ns, rank }
    }
}

/// The two times of a failure.
struct Times {
    seconds: i64,
    ns: i64,
}

impl Times {
    fn choose(observed: &ObservedExit, data: Option<&ErrorFileData>) -> Self {
        let ended = unix_ns(observed.ended_at);
        let started = observed.started_at.map_or(i64::MIN, |time| unix_ns(time).saturating_sub(MTIME_LAG_NS));
        let own = data.and_then(|data| data.time).filter(|time| {
            // A whole second stands for any moment in it.
            let slack = if time.resolution == TimeResolution::Seconds { NANOSECONDS } else { 0 };
            time.unix_ns <= ended && time.unix_ns >= started.saturating_sub(slack)
        });
        let finer = own.filter(|time| time.resolution == TimeResolution::Finer).map(|time| time.unix_ns);
        let mtime = data.and_then(|data| data.mtime_ns).filter(|ns| (started..=ended).contains(ns));
        let ns = finer.or(mtime).unwrap_or(ended);
        Self { seconds: own.map_or(ns, |time| time.unix_ns).div_euclid(NANOSECONDS), ns }
    }
}

/// Between an end and a panic before it.
const AND_BEFORE: &str = "; ";

/// Before the message of a panic that may be the reason of an end.
pub(crate) const BEFORE_THAT: &str = "before that, ";

/// How a worker ended, and the panic that it may have ended of.
fn with_panic(end: &str, panic: &ErrorFileData) -> String {
    format!("{end}{AND_BEFORE}{BEFORE_THAT}{}", panic.message.trim_end())
}

fn exit_message(exit: ExitKind, pid: u32) -> String {
    match exit {
        ExitKind::Code(code) => format!("exited with code {code}"),
        // The reference's words.
        ExitKind::Signal { signal, .. } => format!("Signal {} ({signal}) received by PID {pid}", signal.as_raw()),
        ExitKind::Lost => exit.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::schema::{UnusableErrorFile, parse_error_file};

    fn observed(exit: ExitKind) -> ObservedExit {
        let ended_at = UNIX_EPOCH + Duration::new(1_796_080_000, 500);
        ObservedExit { local_rank: 1, pid: 4242, exit, started_at: None, start_ticks: None, stopped_at: None, ended_at }
    }

    fn record(text: &str) -> ErrorFileReading {
        ErrorFileReading::Record(Box::new(parse_error_file(text.as_bytes()).unwrap()))
    }

    #[test]
    fn without_an_error_file_the_failure_is_told_from_the_exit() {
        let failure =
            ProcessFailure::from_parts(observed(ExitKind::Code(3)), Some("e.json".into()), ErrorFileReading::Absent);
        assert_eq!(failure.message, "exited with code 3");
        assert_eq!((failure.error_file.as_ref(), failure.signal_name().as_str()), (None, "<N/A>"));
        assert_eq!((failure.timestamp, failure.timestamp_ns), (1_796_080_000, 1_796_080_000_000_000_500));
    }

    #[test]
    fn an_unusable_error_file_is_named_with_its_problem() {
        let reading = ErrorFileReading::Unusable { why: UnusableErrorFile::Empty };
        let failure = ProcessFailure::from_parts(observed(ExitKind::Code(3)), Some("e.json".into()), reading);
        assert_eq!(failure.error_file.as_deref(), Some(Path::new("e.json")));
        assert_eq!(failure.error_file_problem.as_deref(), Some("is empty"));
        assert_eq!(failure.message, "exited with code 3");
    }

    #[test]
    fn the_whole_second_of_the_file_is_shown_and_the_mtime_orders() {
        let ErrorFileReading::Record(mut data) = record(r#"{"message": "m", "timestamp": 1796070000}"#) else {
            unreachable!()
        };
        data.mtime_ns = Some(1_796_070_001_000_000_007);
        let reading = ErrorFileReading::Record(data);
        let failure = ProcessFailure::from_parts(observed(ExitKind::Code(1)), Some("e.json".into()), reading);
        assert_eq!((failure.timestamp, failure.timestamp_ns), (1_796_070_000, 1_796_070_001_000_000_007));
    }

    #[test]
    fn a_record_of_something_else_is_named_with_its_message_and_its_reason() {
        let mut seen = observed(ExitKind::Code(3));
        (seen.started_at, seen.start_ticks) = (Some(seen.ended_at - Duration::from_secs(60)), Some(500));
        let text = r#"{"message": {"message": "no \u001b[31mGPU", "extraInfo": {"pid": 9, "start_ticks": 7}}}"#;
        let failure = ProcessFailure::from_parts(seen, Some("e.json".into()), record(text));
        let problem = r"is by process 9, which is older than the worker; it says: no \x1b[31mGPU";
        assert_eq!(failure.error_file_problem.as_deref(), Some(problem));
        assert_eq!((failure.error_file_data, failure.message.as_str()), (None, "exited with code 3"));
        assert_eq!(failure.ran, Some(Duration::from_secs(60)));
    }

    #[test]
    fn a_panic_that_may_have_been_survived_is_told_after_the_end() {
        let text = r#"{"message": {"message": "thread 'a' panicked", "extraInfo":
            {"py_callstack": "frames", "timestamp_ns": 1796079990000000000, "provisional": true}}}"#;
        let failure = |exit, ended_s| {
            let mut seen = observed(exit);
            seen.started_at = Some(UNIX_EPOCH + Duration::from_secs(1_796_079_000));
            seen.ended_at = UNIX_EPOCH + Duration::from_secs(ended_s);
            ProcessFailure::from_parts(seen, Some("e.json".into()), record(text))
        };
        let soon = failure(ExitKind::Code(5), 1_796_079_991);
        assert_eq!(soon.message, "exited with code 5; before that, thread 'a' panicked");
        assert_eq!(soon.own_message(), Some("before that, thread 'a' panicked"));
        assert_eq!((soon.traceback(), soon.timestamp), (Some("frames"), 1_796_079_990));
        let mut later = failure(ExitKind::Code(0), 1_796_080_000);
        assert_eq!(later.timestamp, 1_796_080_000, "it went on for long");
        later.set_note("exited 0 without a word");
        assert_eq!(later.message, "exited 0 without a word; before that, thread 'a' panicked");
        let killed = ExitKind::Signal { signal: rankrun_types::Signal::KILL, core_dumped: false };
        let mut killed = failure(killed, 1_796_080_000);
        killed.set_note_on_exit(" while it wrote");
        let expected = "Signal 9 (SIGKILL) received by PID 4242 while it wrote; before that, thread 'a' panicked";
        assert_eq!(killed.message, expected);
    }

    #[test]
    fn an_empty_message_falls_back_to_the_exit() {
        let failure =
            ProcessFailure::from_parts(observed(ExitKind::Code(1)), Some("e.json".into()), record(r#"{"message":""}"#));
        assert_eq!(failure.message, "exited with code 1");
    }

    #[test]
    fn a_lost_worker_is_lost_unless_it_left_a_record() {
        let lost = observed(ExitKind::Lost);
        let kind = |reading| ProcessFailure::from_parts(lost, Some("e.json".into()), reading).kind;
        assert_eq!(kind(ErrorFileReading::Absent), FailureKind::Lost);
        assert_eq!(kind(record(r#"{"message":"m"}"#)), FailureKind::Failed);
    }
}
