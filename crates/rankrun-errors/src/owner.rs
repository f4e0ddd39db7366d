//! Whose an error file is: whether a record that lies at a worker's path tells of this worker's end. Pure but for
//! [`own_start_ticks`]. Not here: reading the file (`read`), its times (`failure`).
//!
//! All that a worker starts inherits the path of its error file. A wrapper such as `sh -c 'python train.py'` ends of what
//! its child recorded; a helper records something harmless and the worker goes on. Nothing tells the two apart but the
//! worker itself: a wrapper ends soon after, with the code that its child ended with or, whatever that was, with 1. So a
//! record by another process counts for a worker that ended so, and else is named and left aside. (A helper's counts too
//! where the worker fails with the same code, or with 1, right after it.) A record without a pid (torch's, TensorPlay's) is
//! taken for the worker's own, as long as it can be: who hangs in its shutdown is ended by its peers' timeouts, which are
//! half an hour at most by default, and who crashes in it does so at once.

use std::fmt;
use std::time::{Duration, SystemTime};

use rankrun_types::{ExitKind, Signal};

use crate::failure::ObservedExit;
use crate::schema::ErrorFileData;
use crate::time::{NANOSECONDS, unix_ns};

/// How long after another process's record a worker may end for its failure to be that one.
const HANDED_ON: Duration = Duration::from_secs(3);
/// The same after a launcher passed a record on, which is about the last that it does.
const PASSED_ON: Duration = Duration::from_secs(30);
/// How long after a record of which the writer is not known a signal may end the worker in its shutdown.
const CRASH_IN_SHUTDOWN: Duration = Duration::from_secs(10);
/// The same where the worker was not ended by a signal, or by a watchdog's.
const SHUTDOWN: Duration = Duration::from_secs(30 * 60);

/// Why a record is not taken for the reason of a worker's end: a fragment that goes after the file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotTheCause {
    /// It was there before the worker.
    Older,
    /// It is by a process that was there before the worker, perhaps with the same pid.
    OlderProcess { pid: u32 },
    /// It is by another process, and the worker did not end of that.
    OtherProcess { pid: u32, worker: u32, lived_on: Duration },
    /// It is by another process, and the worker ended otherwise than that does: exit codes, negative for a signal.
    OtherEnd { pid: u32, recorded: i32, worker: u32, ended: i32 },
    /// It was passed on by a launcher, and the worker ended otherwise than that does.
    OtherLauncher { pid: u32, passed_on: i32, worker: u32, ended: i32 },
    /// Nobody knows whose it is, and the worker lived on for too long.
    LivedOn { lived_on: Duration },
}

impl fmt::Display for NotTheCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = |duration: &Duration| (duration.as_secs_f64() * 10.0).round() / 10.0;
        match self {
            Self::Older => f.write_str("is older than the worker"),
            Self::OlderProcess { pid } => write!(f, "is by process {pid}, which is older than the worker"),
            Self::OtherProcess { pid, worker, lived_on } => {
                write!(f, "is by process {pid}, not by the worker {worker}, which went on for {} s", secs(lived_on))
            }
            Self::OtherEnd { pid, recorded, worker, ended } => {
                let (recorded, ended) = (code_or_signal(*recorded), code_or_signal(*ended));
                write!(
                    f,
                    "is by process {pid}, which it ends with {recorded}, not by the worker {worker}, which ended with {ended}"
                )
            }
            Self::OtherLauncher { pid, passed_on, worker, ended } => {
                let (passed_on, ended) = (code_or_signal(*passed_on), code_or_signal(*ended));
                write!(
                    f,
                    "was passed on by process {pid}, whose worker ended with {passed_on}, not by the worker {worker}, which ended with {ended}"
                )
            }
            Self::LivedOn { lived_on } => {
                write!(f, "was written {} s before the worker ended, of something else", secs(lived_on))
            }
        }
    }
}

/// Whether a record, made at `recorded_ns`, tells of the end of this worker.
pub(crate) fn judge(observed: &ObservedExit, data: &ErrorFileData, recorded_ns: i64) -> Result<(), NotTheCause> {
    let older_process = data.start_ticks.zip(observed.start_ticks).is_some_and(|(writer, worker)| writer < worker);
    if let (true, Some(pid)) = (older_process && data.passed_on_code().is_none(), data.pid) {
        return Err(NotTheCause::OlderProcess { pid });
    }
    // The worker is known by its pid as long as it is there.
    if data.pid == Some(observed.pid) && data.start_ticks.is_some() && observed.start_ticks.is_some() {
        return Ok(());
    }
    let Some(started) = observed.started_at else {
        // Whoever asks does not know when the worker lived.
        return Ok(());
    };
    if is_older(started, data) {
        return Err(NotTheCause::Older);
    }
    let (worker, ended) = (observed.pid, observed.exit);
    if [data.pid, data.passed_on_by].contains(&Some(worker)) {
        return Ok(());
    }
    // The time is that of the failure of a launcher's worker, which may be long before its own end.
    if let Some(code) = data.passed_on_code() {
        // Torch's launchers do not say who they are, and a worker of torch may have written the code itself.
        let Some(pid) = data.passed_on_by else { return Ok(()) };
        let since = data.mtime_ns.map_or(Duration::ZERO, |passed_on_ns| lived_on(observed, passed_on_ns));
        if since > PASSED_ON {
            return Err(NotTheCause::OtherProcess { pid, worker, lived_on: since });
        }
        // A launcher ends with the code of its worker, as a shell has it, or with 1.
        return match may_be_handed_on(code, observed) {
            true => Ok(()),
            false => Err(NotTheCause::OtherLauncher { pid, passed_on: code, worker, ended: ended.exitcode() }),
        };
    }
    let lived_on = lived_on(observed, recorded_ns);
    // Of its own signal, not of one that the launcher sent.
    let signal = observed.exit.signal().filter(|_| observed.stopped_at.is_none());
    // Of a panic that its process may have survived that one did not need to end.
    let recorded = data.exit_code.filter(|_| !data.provisional);
    match (data.pid, recorded) {
        (Some(pid), _) if lived_on > HANDED_ON => Err(NotTheCause::OtherProcess { pid, worker, lived_on }),
        (Some(pid), None) if signal.is_some() => Err(NotTheCause::OtherProcess { pid, worker, lived_on }),
        (Some(pid), Some(recorded)) if !may_be_handed_on(recorded, observed) => {
            Err(NotTheCause::OtherEnd { pid, recorded, worker, ended: ended.exitcode() })
        }
        (Some(_), _) => Ok(()),
        (None, _) if lived_on > anonymous_limit(signal) => Err(NotTheCause::LivedOn { lived_on }),
        (None, _) => Ok(()),
    }
}

/// Whether a worker that waited for a process, which ended with this code (negative for a signal), can have ended so of it.
///
/// It may pass the end on as it is, as a shell does, or as the low byte of a negative code, as Python's `sys.exit` does; or it
/// has one code for all failures: then 1, as an error that nobody handles has. One that was stopped, or whose status
/// is lost, says nothing.
fn may_be_handed_on(recorded: i32, observed: &ObservedExit) -> bool {
    if observed.stopped_at.is_some() || observed.exit == ExitKind::Lost {
        return true;
    }
    let shell_code = if recorded < 0 { 128 - recorded } else { recorded };
    match observed.exit {
        ExitKind::Code(code) => code == 1 || code == shell_code || code == recorded & 0xff,
        _ => observed.exit.exitcode() == recorded,
    }
}

fn code_or_signal(exitcode: i32) -> String {
    match exitcode {
        0.. => format!("code {exitcode}"),
        _ => format!("signal {}", -exitcode),
    }
}

/// Whether a worker that recorded a panic which it could have survived ended of it, as far as one can see: of itself, and
/// soon. If not, its failure is as late as its end.
pub(crate) fn ended_of_panic(observed: &ObservedExit, recorded_ns: i64) -> bool {
    let of_itself = observed.stopped_at.is_none() || observed.exit.signal().is_none();
    of_itself && observed.exit != ExitKind::Lost && lived_on(observed, recorded_ns) <= HANDED_ON
}

/// How long a worker went on after a record, until its end or until it was told to end.
fn lived_on(observed: &ObservedExit, recorded_ns: i64) -> Duration {
    let end_ns = unix_ns(observed.stopped_at.map_or(observed.ended_at, |stopped| stopped.min(observed.ended_at)));
    Duration::from_nanos(u64::try_from(end_ns.saturating_sub(recorded_ns)).unwrap_or(0))
}

/// Watchdogs that wait for peers abort; other signals end a process at once.
fn anonymous_limit(signal: Option<Signal>) -> Duration {
    match signal {
        None | Some(Signal::ABRT) => SHUTDOWN,
        Some(_) => CRASH_IN_SHUTDOWN,
    }
}

/// Whether each time that is known of the record lies before the worker's start. A second is allowed for clocks that are
/// coarse, and whole seconds.
fn is_older(started: SystemTime, data: &ErrorFileData) -> bool {
    let started = unix_ns(started).saturating_sub(NANOSECONDS);
    let times = [data.mtime_ns, data.time.map(|time| time.unix_ns)];
    times.iter().flatten().count() > 0 && times.iter().flatten().all(|ns| *ns < started)
}

/// When this process was started, in clock ticks since the boot: the 22nd field of /proc/self/stat.
pub(crate) fn own_start_ticks() -> Option<u64> {
    start_ticks(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

fn start_ticks(stat: &str) -> Option<u64> {
    // The name, in parentheses, may itself hold spaces and parentheses: what counts is after the last one.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::schema::parse_error_file;

    const T: u64 = 1_796_070_000;
    const WORKER: u32 = 100;
    const STARTED_TICKS: u64 = 5000;
    const SEGV: ExitKind = ExitKind::Signal { signal: Signal::SEGV, core_dumped: false };
    const ABRT: ExitKind = ExitKind::Signal { signal: Signal::ABRT, core_dumped: false };
    const TERM: ExitKind = ExitKind::Signal { signal: Signal::TERM, core_dumped: false };

    /// A worker that ran from [`T`] on, and whether the launcher stopped it in the end.
    fn worker(exit: ExitKind, ended_s: u64, stopped: bool) -> ObservedExit {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        ObservedExit {
            local_rank: 0,
            pid: WORKER,
            exit,
            started_at: Some(at(T)),
            start_ticks: Some(STARTED_TICKS),
            stopped_at: stopped.then(|| at(T + ended_s)),
            ended_at: at(T + ended_s),
        }
    }

    fn at_ns(second: i64) -> i64 {
        (T as i64 + second) * 1_000_000_000
    }

    /// A record of a process at a second after the worker's start, in our dialect if it has a pid.
    fn record(pid: Option<u32>, start_ticks: Option<u64>, second: i64) -> ErrorFileData {
        let mut data = parse_error_file(br#"{"message": "m"}"#).unwrap();
        (data.pid, data.start_ticks, data.mtime_ns) = (pid, start_ticks, Some(at_ns(second)));
        data
    }

    #[test]
    fn a_record_counts_for_the_worker_that_it_tells_of() {
        let one = ExitKind::Code(1);
        let own = |second| record(Some(WORKER), Some(STARTED_TICKS + 1), second);
        let other = |second| record(Some(117), Some(STARTED_TICKS + 50), second);
        let unknown = |second| record(None, None, second);
        let passed_on = |second| ErrorFileData { error_code: Some(-11), ..other(second) };
        let passed_on_by = |by| ErrorFileData { passed_on_by: Some(by), ..passed_on(5) };
        let coded = |code| ErrorFileData { error_code: Some(code), ..unknown(5) };
        let ends_with = |code| ErrorFileData { exit_code: Some(code), ..other(5) };
        let failed_itself = |code| ErrorFileData { error_code: Some(code), own_error_code: true, ..ends_with(code) };
        let survives = |code| ErrorFileData { provisional: true, ..ends_with(code) };
        let code = ExitKind::Code;
        let table: Vec<(&str, bool, ErrorFileData, i64, ObservedExit)> = vec![
            ("its own, at once", true, own(5), 5, worker(one, 5, false)),
            ("its own, then an hour of shutdown", true, own(5), 5, worker(one, 3605, false)),
            ("its own, then a crash in the shutdown", true, own(5), 5, worker(SEGV, 8, false)),
            ("its own, on a file server whose clock is late", true, own(-500), 5, worker(one, 5, false)),
            (
                "by an earlier process of the same pid",
                false,
                record(Some(WORKER), Some(7), 5),
                5,
                worker(one, 5, false),
            ),
            ("by a process that started the launcher", false, record(Some(9), Some(7), 5), 5, worker(one, 5, false)),
            ("by the child of a wrapper", true, other(5), 5, worker(one, 6, false)),
            ("by the child of a wrapper that shuts down for 2 s", true, other(5), 5, worker(one, 7, false)),
            ("by the child of a wrapper that was stopped meanwhile", true, other(5), 5, worker(TERM, 7, true)),
            ("by the child of a wrapper that passes its code on", true, ends_with(3), 5, worker(code(3), 5, false)),
            ("by the child of a shell that passes its signal on", true, ends_with(-11), 5, worker(code(139), 5, false)),
            ("by the child of a wrapper that dies of its signal", true, ends_with(-11), 5, worker(SEGV, 5, false)),
            (
                "by the child of Python, which took its signal for a code",
                true,
                ends_with(-11),
                5,
                worker(code(245), 5, false),
            ),
            ("by a panicking child of a wrapper that knows one code", true, ends_with(101), 5, worker(one, 5, false)),
            ("by a crashing child of a wrapper that knows one code", true, ends_with(-11), 5, worker(one, 5, false)),
            (
                "by the child of a wrapper that was stopped with a code",
                true,
                ends_with(1),
                5,
                worker(code(143), 7, true),
            ),
            (
                "by the child of a wrapper whose status is lost",
                true,
                ends_with(101),
                5,
                worker(ExitKind::Lost, 5, false),
            ),
            ("by a helper that exits 1, and another failure", false, ends_with(1), 5, worker(code(6), 5, false)),
            ("by a helper that exits 1, and a panic", false, ends_with(1), 5, worker(code(101), 5, false)),
            ("by a helper that panics, and another failure", false, ends_with(101), 5, worker(code(6), 5, false)),
            ("by a helper that crashes, and another failure", false, ends_with(-11), 5, worker(code(6), 5, false)),
            ("by a helper that exits 1, and a crash", false, ends_with(1), 5, worker(SEGV, 5, false)),
            (
                "by a helper that exits 1, and the same some seconds later",
                false,
                ends_with(1),
                5,
                worker(one, 9, false),
            ),
            (
                "by a launcher below a shell that failed itself",
                true,
                failed_itself(127),
                5,
                worker(code(127), 5, false),
            ),
            (
                "by a launcher that was a helper and failed itself",
                false,
                failed_itself(2),
                5,
                worker(code(6), 5, false),
            ),
            ("by such a one, long before", false, failed_itself(1), 5, worker(one, 65, false)),
            ("of a panic that a wrapper's child may have survived", true, survives(101), 5, worker(code(4), 5, false)),
            ("by a helper, and a crash of the worker a little later", false, other(5), 5, worker(SEGV, 6, false)),
            ("by a helper, and a failure some seconds later", false, other(5), 5, worker(one, 9, false)),
            ("by a helper, and a stop because of another rank", false, other(5), 5, worker(TERM, 65, true)),
            (
                "passed on by a launcher that is the worker",
                true,
                passed_on(5),
                5,
                worker(ExitKind::Code(139), 40, false),
            ),
            (
                "passed on by a launcher that is the worker and has codes of its own",
                true,
                passed_on_by(WORKER),
                5,
                worker(code(3), 40, false),
            ),
            ("passed on by a launcher that has one code", true, passed_on_by(117), 5, worker(one, 6, false)),
            ("passed on by a launcher that was a helper", false, passed_on_by(117), 5, worker(code(6), 6, false)),
            ("passed on by such a one, and a crash", false, passed_on_by(117), 5, worker(ABRT, 6, false)),
            (
                "passed on by a launcher below a shell that cleans up",
                true,
                passed_on_by(117),
                5,
                worker(code(139), 25, false),
            ),
            (
                "passed on by a launcher that was a helper, an hour before",
                false,
                passed_on_by(117),
                5,
                worker(one, 3605, false),
            ),
            ("passed on by a launcher that was stopped", true, passed_on_by(117), 5, worker(TERM, 6, true)),
            ("passed on by nobody knows whom", true, passed_on(5), 5, worker(code(6), 6, false)),
            ("of a foreign dialect with another code in it", true, coded(3), 5, worker(code(7), 5, false)),
            ("of a foreign dialect, then two seconds of shutdown", true, unknown(5), 5, worker(one, 7, false)),
            ("of a foreign dialect, then a crash in the shutdown", true, unknown(5), 5, worker(SEGV, 8, false)),
            ("of a foreign dialect, then a watchdog's abort", true, unknown(5), 5, worker(ABRT, 605, false)),
            ("of a foreign dialect, then a crash minutes later", false, unknown(5), 5, worker(SEGV, 305, false)),
            ("of a foreign dialect, and a stop a day later", false, unknown(5), 5, worker(TERM, 86_400, true)),
            ("of a foreign dialect, older than the worker", false, unknown(-60), -60, worker(one, 5, false)),
            ("of a whole second just before the start", true, unknown(-1), -1, worker(one, 0, false)),
        ];
        for (what, expected, data, recorded, observed) in table {
            let judged = judge(&observed, &data, at_ns(recorded));
            assert_eq!(judged.is_ok(), expected, "{what}: {judged:?}");
        }
    }

    #[test]
    fn a_panic_is_what_a_worker_ended_of_if_it_did_so_of_itself_and_soon() {
        for (expected, observed) in [
            (true, worker(ExitKind::Code(3), 5, false)),
            (true, worker(ABRT, 6, false)),
            (true, worker(ExitKind::Code(3), 6, true)),
            (false, worker(TERM, 6, true)),
            (false, worker(ExitKind::Code(3), 9, false)),
            (false, worker(ExitKind::Lost, 5, false)),
        ] {
            assert_eq!(ended_of_panic(&observed, at_ns(5)), expected, "{observed:?}");
        }
    }

    #[test]
    fn without_the_start_of_the_worker_nothing_is_doubted() {
        let mut observed = worker(SEGV, 5, false);
        (observed.started_at, observed.start_ticks) = (None, None);
        for data in [record(None, None, -3600), record(Some(9), Some(7), -3600)] {
            assert_eq!(judge(&observed, &data, at_ns(-3600)), Ok(()));
        }
    }

    #[test]
    fn the_reasons_go_after_the_name_of_the_file() {
        let lived_on = Duration::from_millis(65_250);
        for (why, text) in [
            (NotTheCause::Older, "is older than the worker"),
            (NotTheCause::OlderProcess { pid: 7 }, "is by process 7, which is older than the worker"),
            (
                NotTheCause::OtherProcess { pid: 7, worker: 5, lived_on },
                "is by process 7, not by the worker 5, which went on for 65.3 s",
            ),
            (
                NotTheCause::OtherEnd { pid: 7, recorded: 1, worker: 5, ended: -11 },
                "is by process 7, which it ends with code 1, not by the worker 5, which ended with signal 11",
            ),
            (
                NotTheCause::OtherLauncher { pid: 7, passed_on: -9, worker: 5, ended: 6 },
                "was passed on by process 7, whose worker ended with signal 9, not by the worker 5, which ended with code 6",
            ),
            (NotTheCause::LivedOn { lived_on }, "was written 65.3 s before the worker ended, of something else"),
        ] {
            assert_eq!(why.to_string(), text);
        }
    }

    #[test]
    fn the_start_of_this_process_is_known() {
        assert!(own_start_ticks().unwrap() > 0);
        assert_eq!(start_ticks("7 (a) b) S 1 7 7 0 -1 1 1 0 0 0 250 50 3 4 20 0 1 0 777 0 0"), Some(777));
    }
}
