//! The state machine against a table of stories. Not here: rules for every pair of state and event (`machine_rules_tests`).

use std::time::{Duration, Instant};

use rankrun_types::{ExitKind, Signal};

use super::*;
use crate::policy::*;

pub(super) const GRACE: Duration = Duration::from_secs(30);
pub(super) const OK: ExitKind = ExitKind::Code(0);
pub(super) const BAD: ExitKind = ExitKind::Code(7);

/// The default without a settle time, which tests of it set.
pub(super) fn policy() -> StopPolicy {
    StopPolicy { settle_time: Duration::ZERO, ..StopPolicy::default() }
}

pub(super) const SETTLE: Duration = Duration::from_millis(50);
pub(super) const STALL: Duration = Duration::from_secs(60);

pub(super) fn settling() -> StopPolicy {
    StopPolicy { settle_time: SETTLE, ..policy() }
}

/// A running group that is watched.
pub(super) fn watched(n: usize) -> (Machine, Instant) {
    let (machine, now) = running(n, false);
    let mut machine = machine.watch(StallPolicy::new(STALL), true);
    machine.watch.as_mut().unwrap().begin(now);
    (machine, now)
}

/// A machine with `n` running workers and the time at which they were started.
pub(super) fn running(n: usize, has_tee: bool) -> (Machine, Instant) {
    running_with(n, policy(), has_tee)
}

pub(super) fn running_with(n: usize, policy: StopPolicy, has_tee: bool) -> (Machine, Instant) {
    let now = Instant::now();
    let mut machine = Machine::new(n, policy, has_tee);
    for local_rank in 0..n {
        assert_eq!(machine.step(now, Event::Started { local_rank }), []);
    }
    assert_eq!(machine.step(now, Event::AllStarted), []);
    (machine, now)
}

/// A step of a group whose tree has nothing but its workers: each search finds nothing.
pub(super) fn calm(machine: &mut Machine, now: Instant, event: Event) -> Vec<Action> {
    let mut actions = machine.step(now, event);
    while let Some(search) = actions.iter().position(|action| *action == Action::FindStrays) {
        actions.remove(search);
        actions.extend(machine.step(now, Event::Strays { found: false }));
    }
    actions
}

pub(super) fn exit(local_rank: usize, exit: ExitKind) -> Event {
    Event::Exited { local_rank, exit, leftover: false }
}

pub(super) fn signal(local_rank: usize, signal: Signal) -> Action {
    Action::Signal { local_rank, signal }
}

pub(super) fn group(local_rank: usize, signal: Signal) -> Action {
    Action::SignalGroup { local_rank, signal }
}

#[test]
fn a_worker_that_exits_0_without_its_return_value_stops_the_group_as_a_failure() {
    let (mut machine, now) = running(2, false);
    assert_eq!(machine.step(now, Event::NoValue { local_rank: 1 }), []);
    assert_eq!(machine.step(now, exit(1, OK)), [signal(0, Signal::TERM), signal(0, Signal::CONT)]);
    assert_eq!(machine.reason(), Some(StopReason::Failure));
}

#[test]
fn a_group_whose_workers_all_exit_0_is_published_at_the_last_exit_without_a_signal() {
    let (mut machine, now) = running(2, false);
    assert_eq!(calm(&mut machine, now, exit(1, OK)), []);
    assert_eq!(machine.wake_at(), None, "nothing to wake for while workers run");
    assert_eq!(calm(&mut machine, now, exit(0, OK)), [Action::Publish]);
    assert_eq!((machine.reason(), machine.drained()), (None, true));
}

#[test]
fn the_first_failure_stops_the_rest_with_the_death_signal_and_lets_stopped_ones_go_on() {
    let (mut machine, now) = running(3, false);
    let actions = calm(&mut machine, now, exit(1, BAD));
    let expected = [signal(0, Signal::TERM), signal(0, Signal::CONT), signal(2, Signal::TERM), signal(2, Signal::CONT)];
    assert_eq!(actions, expected);
    assert_eq!(machine.wake_at(), Some(now + GRACE));
    assert_eq!(calm(&mut machine, now, exit(0, BAD)), [], "a second failure starts no second stop");
    assert_eq!(calm(&mut machine, now, exit(2, OK)), [Action::Publish]);
    assert_eq!(machine.reason(), Some(StopReason::Failure));
}

#[test]
fn a_lost_exit_is_a_failure() {
    let (mut machine, now) = running(2, false);
    assert!(calm(&mut machine, now, exit(0, ExitKind::Lost)).contains(&signal(1, Signal::TERM)));
}

#[test]
fn who_outlives_the_grace_is_killed_with_its_group_and_who_outlives_that_is_given_up() {
    let (mut machine, now) = running(2, false);
    calm(&mut machine, now, exit(0, BAD));
    assert_eq!(calm(&mut machine, now + GRACE - Duration::from_nanos(1), Event::Tick), []);
    let due = now + GRACE;
    assert_eq!(calm(&mut machine, due, Event::Tick), [group(1, Signal::KILL)]);
    let given_up = due + policy().kill_wait;
    assert_eq!(machine.wake_at(), Some(given_up));
    assert_eq!(calm(&mut machine, given_up, Event::Tick), [Action::Publish]);
    assert_eq!(machine.lives()[1], Life::Abandoned(None));
}

#[test]
fn a_second_stop_request_kills_at_once() {
    let (mut machine, now) = running(1, false);
    let request = Event::StopRequested { signal: Signal::HUP, grace: GRACE };
    assert_eq!(calm(&mut machine, now, request), [signal(0, Signal::HUP), signal(0, Signal::CONT)]);
    assert_eq!(calm(&mut machine, now, request), [group(0, Signal::KILL)]);
    assert_eq!(calm(&mut machine, now, request), [], "a third changes nothing");
    assert_eq!(machine.reason(), Some(StopReason::Requested));
}

#[test]
fn the_first_request_after_a_failure_shortens_the_grace_and_the_second_kills() {
    let (mut machine, now) = running(2, false);
    calm(&mut machine, now, exit(0, BAD));
    let request = Event::StopRequested { signal: Signal::INT, grace: Duration::from_secs(1) };
    assert_eq!(calm(&mut machine, now, request), []);
    assert_eq!(machine.wake_at(), Some(now + Duration::from_secs(1)));
    assert_eq!(calm(&mut machine, now, request), [group(1, Signal::KILL)]);
    assert_eq!(machine.reason(), Some(StopReason::Failure), "the cause stays the failure");
}

#[test]
fn a_request_with_sigkill_kills_at_once() {
    let (mut machine, now) = running(1, false);
    let request = Event::StopRequested { signal: Signal::KILL, grace: GRACE };
    assert_eq!(calm(&mut machine, now, request), [group(0, Signal::KILL)]);
}

#[test]
fn what_a_worker_left_behind_waits_for_the_last_worker_and_is_then_stopped_with_grace() {
    let (mut machine, now) = running(2, false);
    assert_eq!(calm(&mut machine, now, Event::Exited { local_rank: 0, exit: OK, leftover: true }), []);
    assert_eq!(calm(&mut machine, now, exit(1, OK)), [group(0, Signal::TERM), group(0, Signal::CONT)]);
    assert_eq!(machine.wake_at(), Some(now), "it is looked at right away");
    assert_eq!(calm(&mut machine, now, Event::Tick), [Action::CheckLeftovers]);
    assert_eq!(machine.wake_at(), Some(now + FIRST_CHECK), "and again soon");
    assert_eq!(calm(&mut machine, now, Event::LeftoverGone { local_rank: 0 }), [Action::Publish]);
    assert_eq!(machine.reason(), Some(StopReason::Leftovers));
}

#[test]
fn what_a_stopped_worker_left_behind_gets_the_death_signal_once_the_worker_is_gone() {
    let (mut machine, now) = running(2, false);
    calm(&mut machine, now, exit(0, BAD));
    let exited = Event::Exited { local_rank: 1, exit: BAD, leftover: true };
    assert_eq!(calm(&mut machine, now, exited), [group(1, Signal::TERM), group(1, Signal::CONT)]);
    assert_eq!(calm(&mut machine, now + GRACE, Event::Tick), [group(1, Signal::KILL)]);
}

#[test]
fn a_start_that_fails_kills_who_was_started() {
    let now = Instant::now();
    let mut machine = Machine::new(3, policy(), true);
    calm(&mut machine, now, Event::Started { local_rank: 0 });
    assert_eq!(calm(&mut machine, now, Event::StartFailed { local_rank: 1 }), [group(0, Signal::KILL)]);
    assert!(machine.is_stopping());
    let killed = ExitKind::Signal { signal: Signal::KILL, core_dumped: false };
    assert!(matches!(calm(&mut machine, now, exit(0, killed))[..], [Action::Drain { .. }]));
}

#[test]
fn a_stop_half_way_through_the_start_reaches_a_worker_that_was_being_started() {
    let now = Instant::now();
    let mut machine = Machine::new(3, policy(), false);
    calm(&mut machine, now, Event::Started { local_rank: 0 });
    calm(&mut machine, now, Event::StopRequested { signal: Signal::TERM, grace: GRACE });
    let actions = calm(&mut machine, now, Event::Started { local_rank: 1 });
    assert_eq!(actions, [signal(1, Signal::TERM), signal(1, Signal::CONT)]);
}

#[test]
fn logs_are_drained_before_the_result_and_never_past_the_deadline() {
    for complete in [true, false] {
        let (mut machine, now) = running(1, true);
        let deadline = now + policy().drain;
        assert_eq!(calm(&mut machine, now, exit(0, OK)), [Action::Drain { deadline }]);
        assert_eq!(calm(&mut machine, now, Event::Drained { complete }), [Action::Publish]);
        assert_eq!(machine.drained(), complete);
    }
    let (mut machine, now) = running(1, true);
    calm(&mut machine, now, exit(0, OK));
    let late = now + policy().drain;
    assert_eq!(
        calm(&mut machine, late, Event::Tick),
        [Action::CheckDrain],
        "the tail has a moment to say how far it came"
    );
    assert_eq!(calm(&mut machine, late + DRAIN_MARGIN, Event::Tick), [Action::Publish]);
    assert!(!machine.drained());
}

#[test]
fn what_comes_from_a_keyboard_reaches_whole_groups_as_it_does_from_there() {
    for keyboard in [Signal::INT, Signal::QUIT] {
        let (mut machine, now) = running(1, false);
        let request = Event::StopRequested { signal: keyboard, grace: GRACE };
        assert_eq!(calm(&mut machine, now, request), [group(0, keyboard), group(0, Signal::CONT)]);
    }
}

#[test]
fn a_slow_reader_is_waited_for_as_long_as_it_reads_if_the_group_ended_well() {
    let (mut machine, mut now) = running(1, true);
    calm(&mut machine, now, exit(0, OK));
    for _ in 0..100 {
        now = machine.wake_at().unwrap();
        assert_eq!(calm(&mut machine, now, Event::Tick), [Action::CheckDrain]);
        let deadline = now + policy().drain;
        assert_eq!(calm(&mut machine, now, Event::DrainProgress), [Action::Drain { deadline }]);
    }
    // It stops reading.
    let last = now;
    while machine.phase != Phase::Done {
        now = machine.wake_at().unwrap();
        calm(&mut machine, now, Event::Tick);
    }
    assert_eq!(now - last, policy().drain + DRAIN_MARGIN);
    assert!(!machine.drained());
}

#[test]
fn a_group_that_failed_waits_for_no_reader_beyond_the_deadline() {
    let (mut machine, now) = running(1, true);
    calm(&mut machine, now, exit(0, BAD));
    let end = now + policy().drain + DRAIN_MARGIN;
    assert_eq!(machine.wake_at(), Some(end));
    assert_eq!(calm(&mut machine, now, Event::DrainProgress), []);
    assert_eq!(calm(&mut machine, end, Event::Tick), [Action::Publish]);
}

#[test]
fn a_grace_without_end_is_no_overflow() {
    let (mut machine, now) = running(1, false);
    calm(&mut machine, now, Event::StopRequested { signal: Signal::TERM, grace: Duration::MAX });
    assert!(machine.wake_at().unwrap() > now + Duration::from_secs(3600));
}

#[test]
fn what_is_outside_the_process_groups_is_sought_when_all_workers_are_gone_and_then_stopped() {
    let (mut machine, now) = running(2, false);
    assert_eq!(machine.step(now, exit(0, OK)), []);
    assert_eq!(machine.step(now, exit(1, OK)), [Action::FindStrays]);
    let told = |signal| Action::SignalStrays { signal };
    assert_eq!(machine.step(now, Event::Strays { found: true }), [told(Signal::TERM), told(Signal::CONT)]);
    assert_eq!(machine.reason(), Some(StopReason::Leftovers));
    assert_eq!(machine.step(now, Event::Tick), [Action::FindStrays]);
    machine.step(now, Event::Strays { found: true });
    assert_eq!(machine.step(now + GRACE, Event::Tick), [Action::FindStrays]);
    assert_eq!(machine.step(now + GRACE, Event::Strays { found: true }), [told(Signal::KILL)]);
    assert_eq!(machine.step(now + GRACE, Event::Strays { found: false }), [Action::Publish]);
    assert!(!machine.gave_up_strays());
}

#[test]
fn strays_that_outlive_sigkill_are_given_up_and_said() {
    let (mut machine, now) = running(1, false);
    machine.step(now, exit(0, BAD));
    machine.step(now, Event::Strays { found: true });
    machine.step(now + GRACE, Event::Tick);
    machine.step(now + GRACE, Event::Strays { found: true });
    assert_eq!(machine.step(now + GRACE + policy().kill_wait, Event::Tick), [Action::Publish]);
    assert!(machine.gave_up_strays());
}

#[test]
fn strays_have_no_death_signal_while_a_worker_may_need_them() {
    let (mut machine, now) = running(2, false);
    machine.step(now, exit(0, BAD));
    assert_eq!(machine.step(now, Event::Strays { found: true }), []);
}

#[test]
fn descendants_that_are_to_be_kept_are_kept_when_all_ends_well_and_only_then() {
    let keep = StopPolicy { descendants: Descendants::Keep, ..policy() };
    let leaves = |local_rank, exit| Event::Exited { local_rank, exit, leftover: true };
    let (mut machine, now) = running_with(1, keep, false);
    assert_eq!(machine.step(now, leaves(0, OK)), [Action::Publish]);
    let (mut machine, now) = running_with(1, keep, false);
    assert_eq!(machine.step(now, leaves(0, BAD))[0], group(0, Signal::TERM));
}

#[test]
fn the_whole_group_gets_the_death_signal_at_once_where_that_is_the_order() {
    let (mut machine, now) = running_with(2, StopPolicy { order: StopOrder::Group, ..policy() }, false);
    let actions = calm(&mut machine, now, exit(0, BAD));
    assert_eq!(actions, [group(1, Signal::TERM), group(1, Signal::CONT)]);
    let left = Event::Exited { local_rank: 1, exit: BAD, leftover: true };
    assert_eq!(calm(&mut machine, now, left), [], "what is left of it has had it");
}

#[test]
fn workers_are_asked_for_their_stacks_before_the_death_signal() {
    let timeout = Duration::from_secs(3);
    let dump = Some(DumpStep { signal: Signal::USR1, timeout });
    let (mut machine, now) = running_with(2, StopPolicy { dump, ..policy() }, false);
    let actions = calm(&mut machine, now, exit(0, BAD));
    assert_eq!(actions, [signal(1, Signal::USR1), signal(1, Signal::CONT)]);
    let later = now + timeout;
    assert_eq!(machine.wake_at(), Some(later));
    assert_eq!(calm(&mut machine, later, Event::Tick), [signal(1, Signal::TERM), signal(1, Signal::CONT)]);
    assert_eq!(machine.wake_at(), Some(later + GRACE), "the grace begins with the death signal");
}

#[test]
fn a_dump_that_ends_all_workers_leaves_nothing_to_wait_for() {
    let dump = Some(DumpStep { signal: Signal::ABRT, timeout: Duration::from_secs(3) });
    let (mut machine, now) = running_with(2, StopPolicy { dump, ..policy() }, false);
    calm(&mut machine, now, exit(0, BAD));
    assert_eq!(calm(&mut machine, now, exit(1, BAD)), [Action::Publish]);
}

#[test]
fn time_stands_still_while_the_group_is_suspended() {
    let (mut machine, now) = running(1, false);
    let request = Event::StopRequested { signal: Signal::TERM, grace: GRACE };
    calm(&mut machine, now, request);
    assert_eq!(calm(&mut machine, now, Event::Suspended), [group(0, Signal::STOP)]);
    assert_eq!(machine.wake_at(), None);
    let much_later = now + GRACE * 5;
    assert_eq!(calm(&mut machine, much_later, Event::Tick), []);
    assert_eq!(calm(&mut machine, much_later, Event::Resumed), [group(0, Signal::CONT)]);
    assert_eq!(machine.wake_at(), Some(much_later + GRACE));
    assert_eq!(calm(&mut machine, much_later, Event::Resumed), [], "only once");
}

#[test]
fn a_stop_ends_a_suspension() {
    let (mut machine, now) = running(1, false);
    calm(&mut machine, now, Event::Suspended);
    let request = Event::StopRequested { signal: Signal::TERM, grace: GRACE };
    let expected = [group(0, Signal::CONT), signal(0, Signal::TERM), signal(0, Signal::CONT)];
    assert_eq!(calm(&mut machine, now, request), expected);
}

#[test]
fn after_a_failure_nothing_is_sent_until_the_settle_time_is_over() {
    let (mut machine, now) = running_with(3, settling(), false);
    assert_eq!(calm(&mut machine, now, exit(1, BAD)), []);
    assert_eq!((machine.reason(), machine.tells_to_end()), (Some(StopReason::Failure), false));
    assert_eq!(machine.wake_at(), Some(now + SETTLE));
    assert_eq!(calm(&mut machine, now + SETTLE / 2, exit(2, BAD)), [], "a second failure does not prolong it");
    assert_eq!(machine.wake_at(), Some(now + SETTLE));
    let over = now + SETTLE;
    assert_eq!(calm(&mut machine, over, Event::Tick), [signal(0, Signal::TERM), signal(0, Signal::CONT)]);
    assert!(machine.tells_to_end());
    assert_eq!(machine.wake_at(), Some(over + GRACE), "the grace begins with the death signal");
}

#[test]
fn the_settle_time_ends_with_the_last_worker_or_a_stop_request() {
    let (mut machine, now) = running_with(2, settling(), false);
    calm(&mut machine, now, exit(0, BAD));
    assert_eq!(calm(&mut machine, now, exit(1, BAD)), [Action::Publish]);
    let (mut machine, now) = running_with(2, settling(), false);
    calm(&mut machine, now, exit(0, BAD));
    let request = Event::StopRequested { signal: Signal::HUP, grace: Duration::from_secs(1) };
    assert_eq!(calm(&mut machine, now, request), [signal(1, Signal::HUP), signal(1, Signal::CONT)]);
    assert_eq!(machine.wake_at(), Some(now + Duration::from_secs(1)));
    assert_eq!(calm(&mut machine, now, request), [group(1, Signal::KILL)], "the second kills");
    assert_eq!(machine.reason(), Some(StopReason::Failure));
}

#[test]
fn what_is_left_of_a_worker_that_failed_in_the_settle_time_has_its_signal_after_it() {
    let (mut machine, now) = running_with(3, settling(), false);
    let leaves = |local_rank| Event::Exited { local_rank, exit: BAD, leftover: true };
    assert_eq!(calm(&mut machine, now, leaves(0)), []);
    assert_eq!(calm(&mut machine, now, leaves(1)), []);
    let actions = calm(&mut machine, now + SETTLE, Event::Tick);
    let [left, last] = [group(1, Signal::TERM), signal(2, Signal::TERM)];
    assert!(actions.contains(&group(0, Signal::TERM)) && actions.contains(&left) && actions.contains(&last));
}

#[test]
fn a_stop_on_request_or_for_leftovers_has_no_settle_time() {
    let (mut machine, now) = running_with(1, settling(), false);
    let request = Event::StopRequested { signal: Signal::TERM, grace: GRACE };
    assert_eq!(calm(&mut machine, now, request).len(), 2);
    let (mut machine, now) = running_with(1, settling(), false);
    let leaves = Event::Exited { local_rank: 0, exit: OK, leftover: true };
    assert_eq!(calm(&mut machine, now, leaves), [group(0, Signal::TERM), group(0, Signal::CONT)]);
}

#[test]
fn the_dump_follows_the_settle_time() {
    let dump = Some(DumpStep { signal: Signal::USR1, timeout: Duration::from_secs(3) });
    let (mut machine, now) = running_with(2, StopPolicy { dump, ..settling() }, false);
    assert_eq!(calm(&mut machine, now, exit(0, BAD)), []);
    assert_eq!(calm(&mut machine, now + SETTLE, Event::Tick), [signal(1, Signal::USR1), signal(1, Signal::CONT)]);
}

#[test]
fn a_group_without_a_sign_of_life_is_dumped_and_stopped() {
    let (mut machine, mut now) = watched(2);
    let begin = now;
    let stalled = loop {
        now = machine.wake_at().unwrap();
        assert_eq!(calm(&mut machine, now, Event::Tick), [Action::LookForProgress]);
        let actions = calm(&mut machine, now, Event::Looked { progress: false });
        if !actions.is_empty() {
            break actions;
        }
    };
    assert_eq!(now - begin, STALL);
    let expected = [
        Action::NoteStall { quiet: STALL },
        signal(0, Signal::ABRT),
        signal(0, Signal::CONT),
        signal(1, Signal::ABRT),
        signal(1, Signal::CONT),
    ];
    assert_eq!(stalled, expected);
    assert_eq!(machine.reason(), Some(StopReason::Stalled));
    now = machine.wake_at().unwrap();
    assert_eq!(calm(&mut machine, now, Event::Tick)[0], signal(0, Signal::TERM));
    assert_eq!(calm(&mut machine, now, Event::Looked { progress: true }), [], "too late");
}

#[test]
fn an_exit_is_a_sign_of_life_and_a_suspension_does_not_count() {
    let (mut machine, now) = watched(2);
    let most = STALL - Duration::from_millis(1);
    let mut at = now;
    while machine.wake_at().unwrap() <= now + most {
        at = machine.wake_at().unwrap();
        assert_eq!(calm(&mut machine, at, Event::Looked { progress: false }), []);
    }
    assert_eq!(calm(&mut machine, at, Event::Suspended).len(), 2);
    assert_eq!(machine.wake_at(), None);
    assert_eq!(calm(&mut machine, at + STALL * 9, Event::Looked { progress: false }), []);
    at += STALL * 10;
    assert_eq!(calm(&mut machine, at, Event::Resumed).len(), 2);
    assert!(machine.wake_at().unwrap() > at);
    calm(&mut machine, at, exit(0, OK));
    at += most;
    assert_eq!(calm(&mut machine, at, Event::Looked { progress: false }), []);
}
