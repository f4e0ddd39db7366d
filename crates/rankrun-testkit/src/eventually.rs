//! Waiting for a fact with a deadline: [`eventually`]. The one place of the workspace where a test may sleep.

use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_micros(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// What a check of [`eventually`] returns: `bool`, or `Option` with what was found.
pub trait Observation {
    /// What is there once the fact holds.
    type Value;

    /// The value, or `None` if the fact does not hold yet.
    fn value(self) -> Option<Self::Value>;
}

impl Observation for bool {
    type Value = ();

    fn value(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Observation for Option<T> {
    type Value = T;

    fn value(self) -> Option<T> {
        self
    }
}

/// Calls `check` until it returns `true` or `Some`, and returns what is in it.
///
/// The pause between two calls grows from 0.2 ms to 10 ms. `check` is called at least once, and once more after the
/// deadline, so that a machine that stood still does not make a test fail.
///
/// # Panics
/// When `what` did not come true before the deadline.
///
/// ```
/// use std::time::Duration;
/// use rankrun_testkit::eventually;
///
/// let found = eventually("the list has an even number", Duration::from_secs(1), || [1, 2].into_iter().find(|n| n % 2 == 0));
/// assert_eq!(found, 2);
/// ```
#[track_caller]
pub fn eventually<O: Observation>(what: &str, deadline: Duration, check: impl FnMut() -> O) -> O::Value {
    match try_eventually(deadline, check) {
        Some(value) => value,
        None => panic!("did not come true within {deadline:?}: {what}"),
    }
}

/// As [`eventually`], but `None` where that panics.
pub fn try_eventually<O: Observation>(deadline: Duration, mut check: impl FnMut() -> O) -> Option<O::Value> {
    let start = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let last = start.elapsed() >= deadline;
        if let Some(value) = check().value() {
            return Some(value);
        }
        if last {
            return None;
        }
        // sleep: this is the loop that other code calls so as not to sleep.
        std::thread::sleep(pause.min(deadline.saturating_sub(start.elapsed())));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_that_comes_true_later_is_found() {
        let mut calls = 0;
        eventually("the third call", Duration::from_secs(10), || {
            calls += 1;
            calls == 3
        });
        assert_eq!(calls, 3);
    }

    #[test]
    fn a_check_runs_once_even_when_the_deadline_is_zero() {
        assert_eq!(eventually("at once", Duration::ZERO, || Some(5)), 5);
    }

    #[test]
    #[should_panic(expected = "did not come true within 20ms: pigs fly")]
    fn a_fact_that_never_comes_true_panics_with_its_name() {
        eventually("pigs fly", Duration::from_millis(20), || false);
    }

    #[test]
    fn the_deadline_bounds_the_wait() {
        let start = Instant::now();
        assert_eq!(try_eventually(Duration::from_millis(30), || None::<()>), None);
        assert!(start.elapsed() >= Duration::from_millis(30));
    }
}
