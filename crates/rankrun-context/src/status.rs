//! How a group is doing at a moment: [`GroupStatus`], and the text that a terminal shows of it. Not here: showing it
//! (`rankrun-logs`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::events::GroupEventKind;
use crate::outcome::Cause;

/// How a group is doing at a moment, for [`GroupSpec::status_line`](crate::GroupSpec::status_line).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct GroupStatus {
    /// How many workers the group has.
    pub workers: usize,
    /// How many of them run.
    pub running: usize,
    /// How many failed, as far as is known by now.
    pub failed: usize,
    /// How long ago the group began to start.
    pub elapsed: Duration,
}

/// Makes a text of a status.
#[derive(Clone)]
pub(crate) struct StatusLine(Arc<dyn Fn(&GroupStatus) -> String + Send + Sync>);

impl StatusLine {
    pub(crate) fn new(text: impl Fn(&GroupStatus) -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(text))
    }

    /// The text of what is counted, at any time from now on.
    pub(crate) fn of(&self, workers: usize, counts: Arc<Counts>) -> impl Fn() -> String + Send + Sync + 'static {
        let (text, started) = (Arc::clone(&self.0), Instant::now());
        move || text(&counts.status(workers, started.elapsed()))
    }
}

impl fmt::Debug for StatusLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StatusLine(..)")
    }
}

/// Counts workers as they come and go.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    running: AtomicUsize,
    failed: AtomicUsize,
}

impl Counts {
    /// Takes notice of what happened.
    pub(crate) fn count(&self, kind: &GroupEventKind) {
        match kind {
            GroupEventKind::Started { .. } => {
                self.running.fetch_add(1, Ordering::Relaxed);
            }
            GroupEventKind::Exited { cause, .. } => {
                self.running.fetch_sub(1, Ordering::Relaxed);
                if matches!(cause, Cause::Failed | Cause::Lost) {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                }
            }
            _ => {}
        }
    }

    fn status(&self, workers: usize, elapsed: Duration) -> GroupStatus {
        let now = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        GroupStatus { workers, running: now(&self.running), failed: now(&self.failed), elapsed }
    }
}

#[cfg(test)]
mod tests {
    use rankrun_types::ExitKind;

    use super::*;

    #[test]
    fn workers_are_counted_as_they_come_and_go() {
        let counts = Arc::new(Counts::default());
        let text = StatusLine::new(|status| format!("{} {} {}", status.workers, status.running, status.failed));
        let text = text.of(3, Arc::clone(&counts));
        assert_eq!(text(), "3 0 0");
        (0..3).for_each(|local_rank| counts.count(&GroupEventKind::Started { local_rank, pid: 1 }));
        let exited =
            |local_rank, exit, cause| counts.count(&GroupEventKind::Exited { local_rank, pid: 1, exit, cause });
        exited(0, ExitKind::Code(0), Cause::Succeeded);
        assert_eq!(text(), "3 2 0");
        exited(1, ExitKind::Code(1), Cause::Failed);
        exited(2, ExitKind::Code(143), Cause::Collateral);
        assert_eq!(text(), "3 0 1");
    }
}
