//! Which failure was first: a pure order over kind, time and rank. Not here: where a failure's time comes from
//! (`failure`).

/// What part a failure has in the end of its group.
///
/// In the order in which they are taken for the root cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureKind {
    /// The worker failed by itself.
    Failed,
    /// The worker ended, but how is not known.
    Lost,
    /// The launcher stopped the worker because another had failed.
    Collateral,
}

/// What counts for the order of failures; the lesser was first.
///
/// A genuine failure goes before one whose status was lost, and that before one that the launcher caused, whatever
/// their times. Then the earlier goes first, then the lower rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailureOrder {
    /// Its part.
    pub kind: FailureKind,
    /// When, in nanoseconds since the Unix epoch.
    pub timestamp_ns: i64,
    /// The worker's rank among all workers of the job.
    pub rank: usize,
}

/// The position of the root cause among failures, `None` if there are none.
///
/// ```
/// use rankrun_errors::{FailureKind, FailureOrder, root_cause};
///
/// let stopped = FailureOrder { kind: FailureKind::Collateral, timestamp_ns: 1, rank: 0 };
/// let failed = FailureOrder { kind: FailureKind::Failed, timestamp_ns: 2, rank: 1 };
/// assert_eq!(root_cause([stopped, failed]), Some(1));
/// ```
pub fn root_cause(failures: impl IntoIterator<Item = FailureOrder>) -> Option<usize> {
    failures.into_iter().enumerate().min_by_key(|(_, order)| *order).map(|(position, _)| position)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::{Duration, UNIX_EPOCH};

    use rankrun_types::{ExitKind, Signal};

    use super::*;
    use crate::failure::{ObservedExit, ProcessFailure};
    use crate::read::ErrorFileReading;
    use crate::schema::parse_error_file;

    const T: u64 = 1_796_070_000;
    const SEGV: ExitKind = ExitKind::Signal { signal: Signal::SEGV, core_dumped: false };
    const TERM: ExitKind = ExitKind::Signal { signal: Signal::TERM, core_dumped: false };

    /// Milliseconds after [`T`].
    fn at(ms: u64) -> std::time::SystemTime {
        UNIX_EPOCH + Duration::from_secs(T) + Duration::from_millis(ms)
    }

    struct Case {
        exit: ExitKind,
        ended_ms: u64,
        /// The text of the error file and the time at which it was written.
        file: Option<(String, u64)>,
        collateral: bool,
    }

    fn exited(exit: ExitKind, ended_ms: u64) -> Case {
        Case { exit, ended_ms, file: None, collateral: false }
    }

    impl Case {
        fn with_file(self, text: String, mtime_ms: u64) -> Self {
            Self { file: Some((text, mtime_ms)), ..self }
        }

        fn failure(&self, rank: usize) -> ProcessFailure {
            let reading = self.file.as_ref().map_or(ErrorFileReading::Absent, |(text, mtime_ms)| {
                let mut data = parse_error_file(text.as_bytes()).unwrap();
                data.mtime_ns = Some(crate::time::unix_ns(at(*mtime_ms)));
                ErrorFileReading::Record(Box::new(data))
            });
            let observed = ObservedExit {
                local_rank: rank,
                pid: 4000 + rank as u32,
                exit: self.exit,
                started_at: Some(at(0)),
                start_ticks: None,
                stopped_at: None,
                ended_at: at(self.ended_ms),
            };
            let mut failure = ProcessFailure::from_parts(observed, Some(PathBuf::from("error.json")), reading);
            if self.collateral {
                failure.kind = FailureKind::Collateral;
            }
            failure
        }
    }

    fn torch(seconds: u64) -> String {
        format!(r#"{{"message": {{"message": "m", "extraInfo": {{"py_callstack": "s", "timestamp": "{seconds}"}}}}}}"#)
    }

    fn ours(ms: u64) -> String {
        crate::write::ErrorRecord::new("m").with_time(at(ms)).to_json()
    }

    fn tensorplay() -> String {
        r#"{"message": "m", "extraInfo": {"traceback": "s"}}"#.to_owned()
    }

    #[test]
    fn the_root_cause_is_the_failure_that_came_first() {
        let one = ExitKind::Code(1);
        let table: Vec<(&str, usize, Vec<Case>)> = vec![
            ("one failure alone", 0, vec![exited(one, 5)]),
            (
                "two in the same second, the second because of the first",
                1,
                vec![exited(one, 900).with_file(torch(T), 700), exited(one, 950).with_file(torch(T), 300)],
            ),
            (
                "a peer raises 200 ms after a segmentation fault",
                1,
                vec![exited(one, 5300).with_file(torch(T + 5), 5200), exited(SEGV, 5000)],
            ),
            (
                "a peer raises in the same second as, but after, a segmentation fault late in that second",
                1,
                vec![exited(one, 5990).with_file(torch(T + 5), 5980), exited(SEGV, 5900)],
            ),
            (
                "the first takes two seconds to shut down and peers exit meanwhile",
                2,
                vec![exited(one, 1500), exited(SEGV, 1200), exited(one, 3000).with_file(torch(T + 1), 1000)],
            ),
            (
                "our own record's time is finer than the time its file was written at",
                1,
                vec![exited(one, 900).with_file(tensorplay(), 200), exited(one, 950).with_file(ours(100), 400)],
            ),
            (
                "a float time counts, a whole-second time does not",
                0,
                vec![
                    exited(one, 900).with_file(format!(r#"{{"message": "m", "timestamp": {T}.25}}"#), 800),
                    exited(one, 900).with_file(format!(r#"{{"message": "m", "timestamp": {T}}}"#), 300),
                ],
            ),
            (
                "a clock in the future does not make a rank the last: its file was written first",
                0,
                vec![exited(one, 600).with_file(ours(3_600_000), 100), exited(one, 400)],
            ),
            (
                "a clock in the past does not make a rank the first",
                1,
                vec![
                    exited(one, 600).with_file(r#"{"message": "m", "timestamp": 0.5}"#.to_owned(), 500),
                    exited(one, 400),
                ],
            ),
            (
                "a file server's clock that is off falls back to the exit",
                1,
                vec![exited(one, 600).with_file(torch(T), 90_000), exited(one, 400)],
            ),
            (
                "a worker that the launcher stopped is never it, even when its exit was seen first",
                1,
                vec![Case { collateral: true, ..exited(TERM, 100) }, exited(one, 200)],
            ),
            (
                "a lost status is never it while a genuine failure is there",
                1,
                vec![exited(ExitKind::Lost, 100), exited(one, 900)],
            ),
            (
                "a lost status is it when only collateral ones are beside it",
                1,
                vec![Case { collateral: true, ..exited(TERM, 100) }, exited(ExitKind::Lost, 900)],
            ),
            (
                "a lost status with an error record is a genuine failure",
                0,
                vec![exited(ExitKind::Lost, 900).with_file(torch(T), 100), exited(one, 300)],
            ),
            ("somebody else's SIGTERM is a genuine failure", 0, vec![exited(TERM, 100), exited(one, 200)]),
            ("a tie goes to the lowest rank", 0, vec![exited(one, 100), exited(one, 100)]),
            (
                "only collateral ones: the first of them",
                1,
                vec![Case { collateral: true, ..exited(TERM, 200) }, Case { collateral: true, ..exited(TERM, 100) }],
            ),
        ];
        for (what, expected, cases) in table {
            let failures: Vec<_> = cases.iter().enumerate().map(|(rank, case)| case.failure(rank)).collect();
            let orders = failures.iter().enumerate().map(|(rank, failure)| failure.order(rank));
            assert_eq!(root_cause(orders), Some(expected), "{what}");
        }
        assert_eq!(root_cause([]), None);
    }
}
