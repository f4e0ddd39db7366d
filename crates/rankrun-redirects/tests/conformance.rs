//! Every row of the conformance table in both grammars. Not here: error positions (the parser's own tests).

#![expect(clippy::unwrap_used, reason = "what is not there fails the test, in a helper too")]

use std::collections::BTreeMap;

use rankrun_redirects::{ParseStdError, Std, StdMap, StdSpec};
use serde_json::Value;

/// The answer of a row: the spec, or `None` where an error is right.
fn answer(value: &Value) -> Option<StdSpec> {
    let mode = |value: &Value| {
        let bits = value.as_u64().unwrap_or_else(|| panic!("not a mode: {value}"));
        Std::from_bits(bits.try_into().unwrap()).unwrap()
    };
    let Value::Object(entries) = value else { return Some(mode(value).into()) };
    if entries.contains_key("error") {
        assert_eq!(value, &serde_json::json!({"error": "invalid"}));
        return None;
    }
    let mut map = StdMap { ranks: BTreeMap::new(), default: None };
    for (key, value) in entries {
        match key.as_str() {
            "default" => map.default = Some(mode(value)),
            rank => assert_eq!(map.ranks.insert(rank.parse().unwrap(), mode(value)), None),
        }
    }
    Some(map.into())
}

fn check(column: &str, parse: fn(&str) -> Result<StdSpec, ParseStdError>) {
    let rows: Vec<Value> = serde_json::from_str(include_str!("std_from_str.json")).unwrap();
    assert_eq!(rows.len(), 255);
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|row| {
            let input = row["input"].as_str().unwrap();
            let got = parse(input);
            let expected = answer(&row[column]);
            (got.as_ref().ok() != expected.as_ref()).then(|| format!("{input:?}: expected {expected:?}, got {got:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{} rows of {column}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn from_str_agrees_with_every_row() {
    check("from_str", Std::from_str);
}

#[test]
fn parse_mapping_agrees_with_every_row() {
    check("mapping", StdSpec::parse_mapping);
}

#[test]
fn the_parse_method_of_str_takes_the_mapping_grammar() {
    check("mapping", |text| text.parse());
}
