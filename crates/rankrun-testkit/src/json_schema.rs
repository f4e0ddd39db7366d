//! Whether a JSON value is as a JSON Schema says: [`schema_violations`]. Not here: keywords that the schemas of this
//! workspace do not use; one that is not known is a violation itself.

use serde_json::{Map, Value};

/// What is wrong with a value, a line each; empty if nothing is.
///
/// Stricter than JSON Schema in one thing: a property that the schema does not describe is a violation, so that a test
/// notices what nobody has written down.
#[must_use]
pub fn schema_violations(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    Validator { root: schema, found: &mut found }.check(schema, value, "$");
    found
}

struct Validator<'a> {
    root: &'a Value,
    found: &'a mut Vec<String>,
}

impl Validator<'_> {
    fn check(&mut self, schema: &Value, value: &Value, at: &str) {
        let Some(keywords) = schema.as_object() else {
            return self.found.push(format!("{at}: the schema is no object: {schema}"));
        };
        for (keyword, wanted) in keywords {
            let is_kept = match keyword.as_str() {
                "$schema" | "$id" | "title" | "description" | "$defs" => true,
                "$ref" => {
                    let target = wanted.as_str().and_then(|path| self.root.pointer(path.strip_prefix('#')?));
                    match target.cloned() {
                        Some(target) => {
                            self.check(&target, value, at);
                            true
                        }
                        None => false,
                    }
                }
                "type" => match wanted {
                    Value::Array(types) => types.iter().any(|one| has_type(value, one)),
                    one => has_type(value, one),
                },
                "const" => value == wanted,
                "enum" => wanted.as_array().is_some_and(|values| values.contains(value)),
                "oneOf" => self.check_one_of(wanted, value, at),
                "properties" => {
                    self.check_properties(wanted, value, at);
                    true
                }
                "required" => {
                    self.check_required(wanted, value, at);
                    true
                }
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(wanted, item, &format!("{at}[{index}]"));
                    }
                    true
                }
                "minItems" => value.as_array().is_none_or(|items| Some(items.len() as u64) >= wanted.as_u64()),
                "minimum" => value.as_f64().is_none_or(|number| wanted.as_f64().is_some_and(|least| number >= least)),
                "maximum" => value.as_f64().is_none_or(|number| wanted.as_f64().is_some_and(|most| number <= most)),
                "format" => wanted == "date-time" && value.as_str().is_none_or(is_date_time),
                _ => false,
            };
            if !is_kept {
                self.found.push(format!("{at}: {value} does not keep {keyword:?}: {wanted}"));
            }
        }
    }

    /// Whether exactly one fits; if only the `const` of one fits, what is wrong with that one is said.
    fn check_one_of(&mut self, choices: &Value, value: &Value, at: &str) -> bool {
        let choices: Vec<&Value> = choices.as_array().into_iter().flatten().collect();
        let tried = choices.iter().map(|choice| {
            let mut found = Vec::new();
            Validator { root: self.root, found: &mut found }.check(choice, value, at);
            found
        });
        let tried: Vec<Vec<String>> = tried.collect();
        if tried.iter().filter(|found| found.is_empty()).count() == 1 {
            return true;
        }
        let likely = choices.iter().position(|choice| has_the_consts_of(value, choice));
        self.found.extend(likely.into_iter().flat_map(|choice| tried[choice].clone()));
        false
    }

    fn check_properties(&mut self, described: &Value, value: &Value, at: &str) {
        let (Some(described), Some(object)) = (described.as_object(), value.as_object()) else { return };
        for (name, value) in object {
            match described.get(name) {
                Some(schema) => self.check(schema, value, &format!("{at}.{name}")),
                None => self.found.push(format!("{at}.{name}: is not described")),
            }
        }
    }

    fn check_required(&mut self, names: &Value, value: &Value, at: &str) {
        let Some(object) = value.as_object() else { return };
        for name in names.as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !object.contains_key(name) {
                self.found.push(format!("{at}.{name}: is missing"));
            }
        }
    }
}

fn has_the_consts_of(value: &Value, schema: &Value) -> bool {
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let mut consts = properties.iter().filter_map(|(name, schema)| Some((name, schema.get("const")?))).peekable();
    consts.peek().is_some() && consts.all(|(name, wanted)| value.get(name) == Some(wanted))
}

fn has_type(value: &Value, name: &Value) -> bool {
    match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some("number") => value.is_number(),
        Some("integer") => value.is_i64() || value.is_u64(),
        _ => false,
    }
}

/// RFC 3339 in UTC, as `2026-12-01T10:15:00.123Z`.
fn is_date_time(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let Some(rest) = shape.strip_prefix("0000-00-00T00:00:00").and_then(|rest| rest.strip_suffix('Z')) else {
        return false;
    };
    rest.is_empty() || rest.strip_prefix('.').is_some_and(|part| !part.is_empty() && part.chars().all(|c| c == '0'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_keyword_is_checked() {
        for (schema, good, bad) in [
            (json!({"type": "integer"}), json!(3), json!(3.5)),
            (json!({"type": ["string", "null"]}), json!(null), json!(1)),
            (json!({"const": 1}), json!(1), json!(2)),
            (json!({"enum": ["a", "b"]}), json!("b"), json!("c")),
            (json!({"oneOf": [{"type": "string"}, {"type": "null"}]}), json!("x"), json!(1)),
            (json!({"oneOf": [{"type": "number"}, {"type": "integer"}]}), json!(1.5), json!(1)),
            (json!({"properties": {"a": {"type": "string"}}}), json!({"a": "x"}), json!({"a": 1})),
            (json!({"properties": {}}), json!({}), json!({"b": 1})),
            (json!({"required": ["a"]}), json!({"a": 1}), json!({})),
            (json!({"items": {"minimum": 2}}), json!([2, 3]), json!([2, 1])),
            (json!({"minItems": 1}), json!([1]), json!([])),
            (json!({"maximum": 2}), json!(2), json!(2.5)),
            (json!({"format": "date-time"}), json!("2026-12-01T10:15:00.5Z"), json!("2026-12-01 10:15:00")),
            (json!({"$ref": "#/$defs/x", "$defs": {"x": {"const": 1}}}), json!(1), json!(2)),
        ] {
            assert_eq!(schema_violations(&schema, &good), [""; 0], "{schema}");
            assert_ne!(schema_violations(&schema, &bad), [""; 0], "{schema}");
        }
    }

    #[test]
    fn what_the_validator_does_not_know_is_never_taken_for_granted() {
        for schema in [json!({"pattern": "a"}), json!({"$ref": "#/nowhere"}), json!({"format": "email"}), json!(true)] {
            assert_ne!(schema_violations(&schema, &json!("a")), [""; 0], "{schema}");
        }
    }

    #[test]
    fn of_choices_the_one_that_was_meant_is_named() {
        let choice = |name: &str| json!({"properties": {"event": {"const": name}, "n": {"type": "integer"}}});
        let found = schema_violations(&json!({"oneOf": [choice("a"), choice("b")]}), &json!({"event": "b", "n": "x"}));
        assert!(found[0].starts_with("$.n: \"x\" does not keep \"type\""), "{found:?}");
    }
}
