//! The state machine against every pair of state and event, and against random histories. Not here: stories of what it
//! does (`machine_tests`).

use std::time::Duration;

use proptest::prelude::*;
use rankrun_types::{ExitKind, Signal};

use super::tests::*;
use super::*;
use crate::policy::*;

/// One machine in each state that can be told apart.
fn each_state() -> Vec<(&'static str, Machine, Instant)> {
    let request = Event::StopRequested { signal: Signal::TERM, grace: GRACE };
    let mut states = Vec::new();
    let now = Instant::now();
    states.push(("starting", Machine::new(2, policy(), true), now));
    let mut half = Machine::new(2, policy(), true);
    half.step(now, Event::Started { local_rank: 0 });
    states.push(("half started", half, now));
    let then = |name: &'static str, events: &[Event], states: &mut Vec<_>| {
        let (mut machine, now) = running(2, true);
        for event in events {
            calm(&mut machine, now, *event);
        }
        states.push((name, machine, now));
    };
    let leftover = Event::Exited { local_rank: 0, exit: OK, leftover: true };
    then("running", &[], &mut states);
    then("one ended", &[exit(0, OK)], &mut states);
    then("one left something", &[leftover], &mut states);
    then("stopping after a failure", &[exit(0, BAD)], &mut states);
    then("stopping on request", &[request], &mut states);
    then("killing", &[request, request], &mut states);
    then("suspended", &[Event::Suspended], &mut states);
    then("suspended while stopping", &[request, Event::Suspended], &mut states);
    then("sweeping", &[leftover, exit(1, OK)], &mut states);
    then("draining", &[exit(0, OK), exit(1, OK)], &mut states);
    let (mut seeking, now) = running(2, true);
    seeking.step(now, exit(0, OK));
    seeking.step(now, exit(1, OK));
    states.push(("seeking strays", seeking.clone(), now));
    seeking.step(now, Event::Strays { found: true });
    states.push(("ending strays", seeking, now));
    let dump = Some(DumpStep { signal: Signal::ABRT, timeout: Duration::from_secs(3) });
    let mut dumping = Machine::new(2, StopPolicy { dump, ..policy() }, true);
    for event in [Event::Started { local_rank: 0 }, Event::Started { local_rank: 1 }, Event::AllStarted, exit(0, BAD)] {
        dumping.step(now, event);
    }
    states.push(("dumping", dumping, now));
    let mut settling = Machine::new(2, settling(), true);
    for event in [Event::Started { local_rank: 0 }, Event::Started { local_rank: 1 }, Event::AllStarted, exit(0, BAD)] {
        settling.step(now, event);
    }
    states.push(("settling", settling, now));
    let (mut stalled, now) = watched(2);
    states.push(("watched", stalled.clone(), now));
    stalled.watch = Some(Watch::new(StallPolicy::new(Duration::ZERO), true));
    stalled.watch.as_mut().unwrap().begin(now);
    stalled.step(now, Event::Looked { progress: false });
    assert_eq!(stalled.reason(), Some(StopReason::Stalled));
    states.push(("stalled", stalled, now));
    then("done", &[exit(0, OK), exit(1, OK), Event::Drained { complete: true }], &mut states);
    states
}

fn each_event() -> Vec<Event> {
    let mut events = vec![
        Event::AllStarted,
        Event::StopRequested { signal: Signal::TERM, grace: GRACE },
        Event::StopRequested { signal: Signal::KILL, grace: GRACE },
        Event::ForwardRequested { signal: Signal::USR1 },
        Event::Strays { found: true },
        Event::Strays { found: false },
        Event::Suspended,
        Event::Resumed,
        Event::Looked { progress: true },
        Event::Looked { progress: false },
        Event::DrainProgress,
        Event::Drained { complete: true },
        Event::Drained { complete: false },
        Event::Tick,
    ];
    for local_rank in 0..2 {
        events.extend([
            Event::Started { local_rank },
            Event::StartFailed { local_rank },
            Event::NoValue { local_rank },
            exit(local_rank, OK),
            exit(local_rank, BAD),
            exit(local_rank, ExitKind::Lost),
            Event::Exited { local_rank, exit: BAD, leftover: true },
            Event::LeftoverGone { local_rank },
        ]);
    }
    events
}

/// What must hold after any step: signals go only to who can take them, and the result comes when nobody is left.
fn check(name: &str, before: &Machine, event: Event, after: &Machine, actions: &[Action]) {
    for action in actions {
        let sends = match action {
            // Lets a suspended group go on.
            Action::SignalGroup { signal: Signal::CONT, .. } => false,
            Action::Signal { .. } | Action::SignalGroup { .. } | Action::SignalStrays { .. } => true,
            _ => false,
        };
        let goes_on = matches!(event, Event::ForwardRequested { .. } | Event::Suspended | Event::Resumed);
        assert!(!sends || goes_on || after.tells_to_end(), "{name} {event:?}: {action:?} before its time");
        match *action {
            Action::Signal { local_rank, .. } => {
                assert_eq!(after.lives()[local_rank], Life::Running, "{name} {event:?}: {action:?}");
            }
            Action::SignalGroup { local_rank, .. } => {
                let life = after.lives()[local_rank];
                assert!(matches!(life, Life::Running | Life::Leftover(_)), "{name} {event:?}: {action:?} to {life:?}");
            }
            Action::Publish => {
                assert!(after.lives().values().iter().all(|life| life.is_over()), "{name} {event:?}");
            }
            Action::LookForProgress => assert!(after.watch.is_some() && after.phase == Phase::Running),
            Action::NoteStall { .. } => assert_eq!(after.reason(), Some(StopReason::Stalled), "{name} {event:?}"),
            Action::CheckLeftovers => assert!(after.has_leftovers()),
            Action::FindStrays => assert!(after.strays != Strays::Settled, "{name} {event:?}"),
            Action::SignalStrays { .. } => assert_eq!(after.strays, Strays::Found, "{name} {event:?}"),
            Action::Drain { .. } | Action::CheckDrain => assert!(after.has_tee),
        }
    }
    if before.phase == Phase::Done {
        assert_eq!((actions, &after.phase), (&[][..], &Phase::Done), "{name}: done is done");
    }
    if matches!(before.phase, Phase::Stopping(_) | Phase::Draining(_)) {
        assert!(after.is_stopping(), "{name} {event:?}: no way back");
        assert_eq!(before.reason(), after.reason(), "{name} {event:?}: the first reason stays");
    }
    if let (Phase::Stopping(old), Phase::Stopping(new)) = (before.phase, after.phase) {
        let more = new.stage > old.stage || before.suspended.is_some();
        assert!(more || new.deadline <= old.deadline, "{name} {event:?}: no event gives more time");
        assert!(new.stage >= old.stage, "{name} {event:?}: the ladder goes one way");
    }
}

#[test]
fn every_pair_of_state_and_event_keeps_the_rules() {
    for (name, machine, now) in each_state() {
        for event in each_event() {
            for late in [Duration::ZERO, GRACE, GRACE * 10] {
                let mut next = machine.clone();
                let actions = next.step(now + late, event);
                check(name, &machine, event, &next, &actions);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_history_ends_in_one_result_within_the_policys_time(
        history in prop::collection::vec((0..each_event().len(), 0_u64..20_000), 0..40),
        has_tee: bool,
        dump: bool,
        keep: bool,
        whole_group: bool,
        settle: bool,
        stall in prop::option::of(0_u64..40),
    ) {
        let mut policy = policy();
        policy.dump = dump.then_some(DumpStep { signal: Signal::ABRT, timeout: Duration::from_secs(3) });
        policy.order = if whole_group { StopOrder::Group } else { StopOrder::LeaderThenGroup };
        policy.descendants = if keep { Descendants::Keep } else { Descendants::End };
        policy.settle_time = if settle { SETTLE } else { Duration::ZERO };
        let (mut machine, mut now) = running_with(2, policy, has_tee);
        if let Some(seconds) = stall {
            machine = machine.watch(StallPolicy::new(Duration::from_secs(seconds)), true);
            machine.watch.as_mut().unwrap().begin(now);
        }
        let (events, mut published) = (each_event(), 0);
        for (event, millis) in history {
            now += Duration::from_millis(millis);
            let before = machine.clone();
            let actions = machine.step(now, events[event]);
            check("history", &before, events[event], &machine, &actions);
            published += actions.iter().filter(|action| **action == Action::Publish).count();
        }
        // However it went: one request and only the passing of time bring it to its end.
        let asked = now;
        let mut actions = machine.step(now, Event::StopRequested { signal: Signal::TERM, grace: GRACE });
        if actions.contains(&Action::FindStrays) {
            actions.extend(machine.step(now, Event::Strays { found: true }));
        }
        loop {
            published += actions.iter().filter(|action| **action == Action::Publish).count();
            let Some(wake_at) = machine.wake_at() else { break };
            now = now.max(wake_at);
            // Whoever is sought is there and does not die.
            actions = machine.step(now, Event::Tick);
            if actions.contains(&Action::FindStrays) {
                actions.extend(machine.step(now, Event::Strays { found: true }));
            }
        }
        prop_assert_eq!(machine.phase, Phase::Done);
        prop_assert_eq!(published, 1);
        let StopPolicy { grace, kill_wait, drain, .. } = policy;
        // A group that has stalled is dumped in any case.
        let dump = policy.dump.map_or(Duration::ZERO, |dump| dump.timeout).max(StallPolicy::new(STALL).dump.timeout);
        prop_assert!(now - asked <= dump + grace + kill_wait + drain + DRAIN_MARGIN);
    }
}
