//! Times in records: RFC 3339 in UTC with nanoseconds, `2026-12-01T10:15:00.123456789Z`.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// The time as text; one that no calendar has is the epoch.
pub(crate) fn text(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{time:.9}")
}

fn parse<E: Error>(text: &str) -> Result<SystemTime, E> {
    let since_epoch = text.parse::<Timestamp>().map_err(E::custom)?.as_duration();
    let time = match since_epoch.is_negative() {
        false => UNIX_EPOCH.checked_add(since_epoch.unsigned_abs()),
        true => UNIX_EPOCH.checked_sub(since_epoch.unsigned_abs()),
    };
    time.ok_or_else(|| E::custom("a time that the system cannot hold"))
}

pub(crate) fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text(*time))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
    parse(&String::deserialize(deserializer)?)
}

/// The same for a time that there may not be.
pub(crate) mod option {
    use super::{Deserialize, Deserializer, Serializer, SystemTime, parse, text};

    pub(crate) fn serialize<S: Serializer>(time: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.serialize_some(&text(*time)),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SystemTime>, D::Error> {
        Option::<String>::deserialize(deserializer)?.as_deref().map(parse).transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_keeps_its_nanoseconds_and_is_in_utc() {
        for (nanos, expected) in [
            (1_796_076_744_000_000_007, "2026-11-30T22:12:24.000000007Z"),
            (1_796_076_744_000_000_000, "2026-11-30T22:12:24.000000000Z"),
            (0, "1970-01-01T00:00:00.000000000Z"),
        ] {
            let time = UNIX_EPOCH + Duration::from_nanos(nanos);
            assert_eq!(text(time), expected);
            assert_eq!(parse::<serde_json::Error>(expected).unwrap(), time);
        }
        assert_eq!(
            parse::<serde_json::Error>("1970-01-01T01:00:00.5+01:00").unwrap(),
            UNIX_EPOCH + Duration::from_millis(500)
        );
        let before = UNIX_EPOCH - Duration::from_nanos(1);
        assert_eq!(parse::<serde_json::Error>(&text(before)).unwrap(), before);
        assert!(parse::<serde_json::Error>("yesterday").is_err());
    }
}
