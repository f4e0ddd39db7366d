//! `Std` and `StdSpec` in serde: written as a number or a map, read also from their texts. Not here: the grammar (`parse`).

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Unexpected, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use crate::mode::Std;
use crate::parse::{self, Ranks};
use crate::spec::{StdMap, StdSpec};

impl Serialize for Std {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.bits())
    }
}

impl<'de> Deserialize<'de> for Std {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StdVisitor)
    }
}

struct StdVisitor;

impl Visitor<'_> for StdVisitor {
    type Value = Std;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a redirect mode (0-3, none, out, err or all)")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Std, E> {
        mode(number).ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Std, E> {
        let mode = u64::try_from(number).ok().and_then(mode);
        mode.ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Std, E> {
        Std::from_token(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

fn mode(number: u64) -> Option<Std> {
    u8::try_from(number).ok().and_then(Std::from_bits)
}

impl Serialize for StdSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::One(mode) => mode.serialize(serializer),
            Self::PerRank(spec) => spec.serialize(serializer),
        }
    }
}

impl Serialize for StdMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entries = self.ranks.len() + usize::from(self.default.is_some());
        let mut map = serializer.serialize_map(Some(entries))?;
        for (rank, mode) in &self.ranks {
            map.serialize_entry(&rank.to_string(), mode)?;
        }
        if let Some(mode) = self.default {
            map.serialize_entry("default", &mode)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for StdSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SpecVisitor)
    }
}

struct SpecVisitor;

impl<'de> Visitor<'de> for SpecVisitor {
    type Value = StdSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a redirect mode (0-3), a redirect spec or a map from ranks to modes")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<StdSpec, E> {
        StdVisitor.visit_u64(number).map(StdSpec::One)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<StdSpec, E> {
        StdVisitor.visit_i64(number).map(StdSpec::One)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<StdSpec, E> {
        StdSpec::parse_mapping(text).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<StdSpec, A::Error> {
        MapVisitor.visit_map(access).map(StdSpec::PerRank)
    }
}

impl<'de> Deserialize<'de> for StdMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MapVisitor)
    }
}

struct MapVisitor;

impl<'de> Visitor<'de> for MapVisitor {
    type Value = StdMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from ranks to redirect modes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<StdMap, A::Error> {
        let mut map = StdMap::default();
        while let Some(ranks) = access.next_key_seed(RanksSeed)? {
            ranks.check_new(&map).map_err(|expected| {
                de::Error::custom(format_args!("redirect map gives a rank twice: expected {expected}"))
            })?;
            ranks.insert(&mut map, access.next_value()?);
        }
        Ok(map)
    }
}

/// Reads a key of the map, a text in the grammar's RANKS or a number.
struct RanksSeed;

impl<'de> DeserializeSeed<'de> for RanksSeed {
    type Value = Ranks;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Ranks, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for RanksSeed {
    type Value = Ranks;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ranks (0-65535, a range a-b, default or *)")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Ranks, E> {
        Ranks::one(number).ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Ranks, E> {
        let ranks = u64::try_from(number).ok().and_then(Ranks::one);
        ranks.ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Ranks, E> {
        parse::ranks(text).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Redirects;

    #[test]
    fn a_mode_is_its_number_and_reads_from_a_name_too() {
        assert_eq!(serde_json::to_string(&Std::ERR).unwrap(), "2");
        for text in ["2", "\"2\"", "\"ERR\"", "\"err\""] {
            assert_eq!(serde_json::from_str::<Std>(text).unwrap(), Std::ERR);
        }
        for text in ["4", "-1", "260", "1.0", "\"4\"", "\"\"", "null", "true", "[1]"] {
            assert!(serde_json::from_str::<Std>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_spec_is_a_number_or_a_map_with_every_rank() {
        let spec = StdSpec::parse_mapping("0-1:1,10:2,*:3").unwrap();
        assert_eq!(serde_json::to_string(&spec).unwrap(), r#"{"0":1,"1":1,"10":2,"default":3}"#);
        assert_eq!(serde_json::to_string(&StdSpec::One(Std::ALL)).unwrap(), "3");
        for text in [r#"{"0":1,"1":1,"10":2,"default":3}"#, r#"{"0-1":"out"," 10 ":2,"*":3}"#, r#""10:2,0-1:1,*:3""#] {
            assert_eq!(serde_json::from_str::<StdSpec>(text).unwrap(), spec);
        }
    }

    #[test]
    fn a_map_that_names_nothing_reads_back_equal() {
        let nothing = StdSpec::from(StdMap::default());
        let json = serde_json::to_string(&nothing).unwrap();
        assert_eq!(json, "{}");
        assert_eq!(serde_json::from_str::<StdSpec>(&json).unwrap(), nothing);
    }

    #[test]
    fn a_wrong_map_says_what_is_wrong() {
        for (text, part) in [
            (r#"{"0":1,"0":2}"#, "expected a rank that is not given yet"),
            (r#"{"*":1,"default":2}"#, "default"),
            (r#"{"x":1}"#, "found `x`"),
            (r#"{"0:1":1}"#, "byte 1: expected `-` or the end of the text"),
            (r#"{"65536":1}"#, "a rank from 0 to 65535"),
            (r#"{"0":4}"#, "a redirect mode (0-3"),
            (r#""0:4""#, "at byte 2"),
        ] {
            let error = serde_json::from_str::<StdSpec>(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn redirects_are_two_specs_and_a_missing_one_is_none() {
        let redirects = Redirects::parse_mapping("3->0:2").unwrap();
        let json = serde_json::to_string(&redirects).unwrap();
        assert_eq!(json, r#"{"stdouts":3,"stderrs":{"0":2}}"#);
        assert_eq!(serde_json::from_str::<Redirects>(&json).unwrap(), redirects);
        let only = serde_json::from_str::<Redirects>(r#"{"stderrs":"*:err"}"#).unwrap();
        assert_eq!(only.to_map(1).values(), [Std::ERR]);
        assert!(serde_json::from_str::<Redirects>(r#"{"stdout":3}"#).is_err());
    }
}
