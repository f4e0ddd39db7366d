//! Times as nanoseconds since the Unix epoch, and how they are shown. Not here: which time counts (`failure`).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::{Timestamp, tz::TimeZone};

pub(crate) const NANOSECONDS: i64 = 1_000_000_000;

/// Nanoseconds since the Unix epoch; negative before it, clamped to the years 1677 to 2262.
pub(crate) fn unix_ns(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
    }
}

/// The system's time of nanoseconds since the Unix epoch.
pub(crate) fn system_time(unix_ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(unix_ns.unsigned_abs());
    if unix_ns < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

/// The time in whole seconds as torch shows it, in the machine's time zone: `2026-11-30_22:12:24`.
pub(crate) fn local_seconds(seconds: i64) -> String {
    shown(Timestamp::from_second(seconds).ok(), "%Y-%m-%d_%H:%M:%S").unwrap_or_else(|| format!("@{seconds}"))
}

/// The time with milliseconds in the machine's time zone: `2026-11-30_22:12:24.250`.
pub(crate) fn local_milliseconds(unix_ns: i64) -> String {
    shown(Timestamp::from_nanosecond(i128::from(unix_ns)).ok(), "%Y-%m-%d_%H:%M:%S%.3f")
        .unwrap_or_else(|| format!("@{unix_ns}ns"))
}

fn shown(time: Option<Timestamp>, format: &str) -> Option<String> {
    Some(time?.to_zoned_datetime(TimeZone::system()).strftime(format).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_before_the_epoch_is_negative() {
        assert_eq!(unix_ns(UNIX_EPOCH - Duration::from_nanos(5)), -5);
        assert_eq!(unix_ns(UNIX_EPOCH + Duration::from_millis(1)), 1_000_000);
        for ns in [i64::MIN + 1, -5, 0, 7, i64::MAX] {
            assert_eq!(unix_ns(system_time(ns)), ns);
        }
    }

    #[test]
    fn a_time_that_no_calendar_has_is_shown_as_a_number() {
        assert_eq!(local_seconds(i64::MAX), format!("@{}", i64::MAX));
    }

    #[test]
    fn a_time_has_the_shape_that_torch_users_know() {
        let text = local_seconds(1_796_076_744);
        let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00_00:00:00");
        assert!(local_milliseconds(1_796_076_744_250_000_000).ends_with(".250"));
    }
}
