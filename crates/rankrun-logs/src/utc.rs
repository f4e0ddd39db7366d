//! A time as text, in UTC. Not here: clocks, local time.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

const DAY: u64 = 86_400;

/// How many columns the text of a time has, until the year 9999.
pub(crate) const WIDTH: usize = 24;

/// Appends `2026-12-01T10:15:00.123Z`; a time before 1970 is shown as 1970.
pub(crate) fn append(time: SystemTime, out: &mut Vec<u8>) {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / DAY, since.as_secs() % DAY);
    let (year, month, day) = civil(days);
    let (hour, minute, second, millis) = (second / 3600, second / 60 % 60, second % 60, since.subsec_millis());
    // Writing to a Vec does not fail.
    let _ = write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z");
}

/// Year, month and day of a number of days since 1970-01-01, in the Gregorian calendar.
///
/// Years begin in March here, so that a leap day is the last day of one.
fn civil(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    let days = days + 719_468;
    let (era, day_of_era) = (days / ERA, days % ERA);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn known_times_have_their_known_text() {
        for (millis, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_796_076_744_005, "2026-11-30T22:12:24.005Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            let mut text = Vec::new();
            append(UNIX_EPOCH + Duration::from_millis(millis), &mut text);
            assert_eq!(String::from_utf8(text).unwrap(), expected);
            assert_eq!(expected.len(), WIDTH);
        }
    }

    #[test]
    fn each_day_follows_the_one_before() {
        let mut before = civil(0);
        for days in 1..60_000 {
            let date = civil(days);
            let next_day = (before.0, before.1, before.2 + 1);
            let next_month = (before.0, before.1 + 1, 1);
            let next_year = (before.0 + 1, 1, 1);
            assert!(
                date == next_day || (before.2 >= 28 && (date == next_month || (before.1 == 12 && date == next_year)))
            );
            before = date;
        }
    }
}
