//! What the driver does to processes at the machine's word, and what it tells of it. Not here: waiting for what happens to
//! them (`driver`).

use std::time::Duration;

use rankrun_process::Child;
use rankrun_types::Signal;

use super::{Driver, Slot};
use crate::events::{GroupEventKind, SignalTarget};
use crate::machine::Event;
use crate::outcome::RunProcsResult;
use crate::stall::Stall;
use crate::terminals::Terminals;

impl Driver {
    pub(super) fn signal(
        &mut self,
        local_rank: usize,
        signal: Signal,
        whole_group: bool,
    ) -> Result<(), rankrun_process::SignalError> {
        let Slot { child: Some(child), facts, .. } = &mut self.slots[local_rank] else { return Ok(()) };
        // A worker whose end is there but not yet taken ended of itself, not of this signal.
        if self.machine.tells_to_end() && facts.exit.is_none() && !child.try_wait().is_ok_and(|exit| exit.is_some()) {
            facts.signalled = true;
        }
        let pid = child.pid();
        let (sent, to) = if whole_group {
            (child.signal_group(signal), SignalTarget::Group { local_rank, pid })
        } else {
            (child.signal(signal), SignalTarget::Worker { local_rank, pid })
        };
        if sent.is_ok() {
            self.tell_signal(to, signal);
        }
        sent
    }

    fn tell_signal(&self, to: SignalTarget, signal: Signal) {
        if signal != Signal::CONT {
            let reason = self.machine.reason().filter(|_| self.machine.tells_to_end());
            self.events.tell(GroupEventKind::SignalSent { to, signal, reason });
        }
    }

    pub(super) fn look_for_progress(&mut self) {
        let moved = self.terminals.as_ref().map_or(0, Terminals::moved);
        let progress = self.signs.as_mut().is_some_and(|signs| signs.look(moved));
        self.feed(Event::Looked { progress });
    }

    pub(super) fn note_stall(&mut self, quiet: Duration) {
        let workers = self.slots.iter().filter_map(|(rank, slot)| Some((rank, slot.child.as_ref()?.pid())));
        self.stall = Some(Stall::observe(quiet, &workers.collect::<Vec<_>>()));
        self.events.tell(GroupEventKind::Stalled { quiet });
    }

    /// Searches the tree for what is neither a worker nor already known to be gone.
    pub(super) fn find_strays(&mut self) {
        self.reap_orphans();
        let running = |slot: &Slot| slot.facts.exit.is_none().then(|| slot.child.as_ref().map(Child::pid)).flatten();
        let running: Vec<u32> = self.slots.values().iter().filter_map(running).collect();
        let found = self.family.find(&running).unwrap_or_else(|error| {
            self.warn(format!("cannot look for what the workers left: /proc: {error}"));
            false
        });
        self.feed(Event::Strays { found });
    }

    pub(super) fn signal_strays(&mut self, signal: Signal) {
        for pid in self.family.signal(signal) {
            self.tell_signal(SignalTarget::Stray { pid }, signal);
        }
    }

    pub(super) fn check_leftovers(&mut self) {
        for local_rank in 0..self.slots.len() {
            let slot = &mut self.slots[local_rank];
            if slot.facts.exit.is_some() && slot.child.as_ref().is_some_and(Child::group_is_empty) {
                self.let_go(local_rank);
                self.feed(Event::LeftoverGone { local_rank });
            }
        }
    }

    /// Makes the result known. Who waits for it finds all events told.
    pub(super) fn publish(&self, result: RunProcsResult) {
        self.events.tell(GroupEventKind::Ended { state: result.state });
        self.shared.publish(result);
    }
}
