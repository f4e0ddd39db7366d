//! When the tail engine has done what it was asked to do at the end, and what it has not done. Not here: doing it (`engine`).

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use super::{Engine, Followed};
use crate::last_lines::end_of_file;
use crate::tail::{DrainOutcome, IncompleteDrain, lock};
use crate::unsaved::Follower;

/// How much is kept of the end of a file that is gone, in bytes.
const GONE: u64 = 16 * 1024;

impl Engine {
    /// The outcome, if it was asked to end and there is nothing left to do or no time left.
    pub(super) fn ended(&mut self, now: Instant) -> Option<DrainOutcome> {
        if self.idle_until().is_some_and(|until| until <= now) {
            if let Some(ending) = &mut self.ending {
                ending.flushing = true;
            }
            for source in 0..self.files.len() {
                self.core.mark_clean(source);
                self.core.finish_line(source);
            }
            if let Some(status) = self.status.take() {
                self.core.clear_status(status.output);
            }
            self.flush();
        }
        let ending = self.ending.as_ref()?;
        let left = (0..self.outputs.len()).find(|output| self.left(*output) > 0);
        if now < ending.request.deadline && (left.is_some() || !ending.flushing) {
            return None;
        }
        let failed = self.outputs.iter_mut().find_map(|output| output.failed.take());
        let late = left.map(|i| self.outputs[i].late(self.left(i)));
        // A console comes before its files, and these before files of chosen lines.
        let failed = match (failed, self.unreadable.take()) {
            (Some(IncompleteDrain::FilteredFailed { .. }), Some(unreadable)) => Some(unreadable),
            (failed, unreadable) => failed.or(unreadable),
        };
        self.keep_gone();
        match late.or(failed) {
            Some(why) => Some(DrainOutcome::Incomplete { why }),
            None => Some(DrainOutcome::Complete),
        }
    }

    /// Keeps the ends of files that are not where they were: nobody else has them open.
    fn keep_gone(&self) {
        let identity = |meta: Metadata| (meta.dev(), meta.ino());
        let is_gone = |followed: &&Followed| {
            let there = fs::metadata(&followed.path).map(identity).ok();
            there.is_none() || there != followed.file.metadata().map(identity).ok()
        };
        let mut gone = lock(&self.shared.gone);
        for followed in self.files.iter().filter(is_gone) {
            if let Ok(end) = end_of_file(&followed.file, GONE) {
                gone.insert(followed.path.clone(), end);
            }
        }
    }

    /// Until when to wait for more, once each file is read as far as it must be; before that, and after it, `None`.
    pub(super) fn idle_until(&self) -> Option<Instant> {
        let ending = self.ending.as_ref().filter(|ending| !ending.flushing)?;
        let drained = self.files.iter().enumerate().all(|(source, followed)| {
            followed.dead
                || self.core.is_closed(self.core.output_of(source))
                || followed.target.is_none_or(|target| followed.offset >= target)
                    && !followed.unsaved.as_ref().is_some_and(Follower::is_waiting)
        });
        let quiet = self.last_read.max(ending.since) + ending.request.idle;
        drained.then_some(quiet.min(ending.request.deadline))
    }

    /// How many bytes an open console has not got: pending, kept for the end of their line, or not read yet.
    fn left(&self, output: usize) -> u64 {
        if self.core.is_closed(output) {
            return 0;
        }
        let unread = self
            .files
            .iter()
            .enumerate()
            .filter(|(source, followed)| !followed.dead && self.core.output_of(*source) == output);
        let unsaved = |followed: &Followed| followed.unsaved.as_ref().map_or(0, Follower::held);
        let unread: u64 = unread
            .map(|(_, followed)| {
                followed.target.map_or(0, |end| end.saturating_sub(followed.offset)) + unsaved(followed)
            })
            .sum();
        self.core.pending(output).len() as u64 + unread
    }
}
