//! Walking through JSON text that a parser has found valid, without memory of its own: members of an object, the
//! characters of a text. Not here: which members count (`schema`).
//!
//! A general parser copies each text that has an escape, and keys that nobody wants; a hostile file must not cost that.

use crate::clip::{Part, cut};

/// The members of the object that a valid JSON text holds, key and value as they are written; none if it is no object.
pub(crate) fn members(text: &str) -> Members<'_> {
    let text = text.trim_start();
    Members { text, at: if text.starts_with('{') { 1 } else { text.len() } }
}

pub(crate) struct Members<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.text.as_bytes();
        let key = skip_until(bytes, self.at, |byte| byte == b'"' || byte == b'}');
        if bytes.get(key) != Some(&b'"') {
            self.at = bytes.len();
            return None;
        }
        let key_end = after_string(bytes, key);
        let colon = skip_until(bytes, key_end, |byte| byte == b':');
        let value = skip_until(bytes, colon + 1, |byte| !byte.is_ascii_whitespace());
        self.at = after_value(bytes, value);
        Some((self.text.get(key..key_end)?, self.text.get(value..self.at)?))
    }
}

fn skip_until(bytes: &[u8], from: usize, stop: impl Fn(u8) -> bool) -> usize {
    (from..bytes.len()).find(|at| stop(bytes[*at])).unwrap_or(bytes.len())
}

/// The place after the text that begins with the quote at `from`.
fn after_string(bytes: &[u8], from: usize) -> usize {
    let mut at = from + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn after_value(bytes: &[u8], from: usize) -> usize {
    match bytes.get(from) {
        Some(b'"') => after_string(bytes, from),
        Some(b'{' | b'[') => after_nested(bytes, from),
        _ => skip_until(bytes, from, |byte| byte.is_ascii_whitespace() || matches!(byte, b',' | b'}' | b']')),
    }
}

fn after_nested(bytes: &[u8], from: usize) -> usize {
    let (mut at, mut depth) = (from, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at = after_string(bytes, at);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
}

/// The names of numbers that Python writes, and reads, though JSON has none, longest first.
const CONSTANTS: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];

/// Text with each such name made a 0 and blanks, for a parser that reads it without a copy.
pub(crate) struct WithoutConstants<'a> {
    rest: &'a [u8],
    /// How many of the next bytes are a name.
    name: usize,
    in_text: bool,
    escaped: bool,
}

impl<'a> WithoutConstants<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { rest: text.as_bytes(), name: 0, in_text: false, escaped: false }
    }

    fn next_byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        let mut byte = *first;
        if self.name > 0 {
            (self.name, byte) = (self.name - 1, b' ');
        } else if self.in_text {
            self.in_text = self.escaped || byte != b'"';
            self.escaped = !self.escaped && byte == b'\\';
        } else if byte == b'"' {
            self.in_text = true;
        } else if let Some(name) = CONSTANTS.iter().find(|name| self.rest.starts_with(name)) {
            (self.name, byte) = (name.len() - 1, b'0');
        }
        self.rest = rest;
        Some(byte)
    }
}

impl std::io::Read for WithoutConstants<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut count = 0;
        while let Some(slot) = buffer.get_mut(count)
            && let Some(byte) = self.next_byte()
        {
            *slot = byte;
            count += 1;
        }
        Ok(count)
    }
}

/// How many objects and arrays lie in each other at most, in text that need not be valid.
pub(crate) fn depth(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut depth, mut most) = (0, 0_usize, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at = after_string(bytes, at);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        most = most.max(depth);
        at += 1;
    }
    most
}

/// The characters that a JSON text, in its quotes, stands for. Half a surrogate pair, which Python writes for a file
/// name that is no UTF-8, becomes U+FFFD.
fn characters(quoted: &str) -> Characters<'_> {
    Characters { rest: quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or("") }
}

struct Characters<'a> {
    rest: &'a str,
}

impl Characters<'_> {
    fn hex(&mut self) -> Option<u32> {
        let (digits, rest) = self.rest.split_at_checked(4)?;
        self.rest = rest;
        u32::from_str_radix(digits, 16).ok()
    }

    fn unicode(&mut self) -> char {
        let first = self.hex().unwrap_or(0xfffd);
        if (0xd800..0xdc00).contains(&first)
            && let Some(rest) = self.rest.strip_prefix("\\u")
        {
            let mut after = Characters { rest };
            if let Some(second @ 0xdc00..0xe000) = after.hex() {
                self.rest = after.rest;
                return char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)).unwrap_or('\u{fffd}');
            }
        }
        char::from_u32(first).unwrap_or('\u{fffd}')
    }
}

impl Iterator for Characters<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let first = chars.next()?;
        self.rest = chars.as_str();
        if first != '\\' {
            return Some(first);
        }
        let escape = chars.next()?;
        self.rest = chars.as_str();
        Some(match escape {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => self.unicode(),
            same => same,
        })
    }
}

/// Whether a JSON text, in its quotes, stands for this one.
pub(crate) fn is(quoted: &str, text: &str) -> bool {
    if quoted.contains('\\') {
        return characters(quoted).eq(text.chars());
    }
    characters(quoted).rest == text
}

/// What a JSON text stands for, `None` if the value is no text. Of more than `max` bytes the middle is left out, and
/// never held.
pub(crate) fn string(value: &str, max: usize) -> Option<String> {
    if !value.starts_with('"') {
        return None;
    }
    // An escape is never shorter than what it stands for.
    if value.len() - 2 <= max {
        let mut text = String::with_capacity(value.len() - 2);
        let mut left = characters(value);
        while let Some(plain) = left.rest.find('\\') {
            text.push_str(&left.rest[..plain]);
            left.rest = &left.rest[plain..];
            text.extend(left.next());
        }
        text.push_str(left.rest);
        return Some(text);
    }
    let total = characters(value).map(char::len_utf8).sum();
    Some(cut(total, max, |part, out| {
        let mut at = 0;
        for c in characters(value) {
            let end = at + c.len_utf8();
            match part {
                Part::Head(head) if end > head => break,
                Part::Tail(tail) if at < total - tail => {}
                _ => out.push(c),
            }
            at = end;
        }
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((any::<String>(), inner), 0..6).prop_map(|members| members.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_object_is_walked_as_a_parser_would(value in any_value(), pretty in any::<bool>()) {
            let text = if pretty { format!("{value:#}") } else { value.to_string() };
            let expected = value.as_object().cloned().unwrap_or_default();
            let found: Vec<_> = members(&text).collect();
            prop_assert_eq!(found.len(), expected.len());
            for (key, value) in found {
                let name = string(key, usize::MAX).expect("a key is a text");
                prop_assert!(is(key, &name));
                let parsed: Value = serde_json::from_str(value).expect("a value is JSON by itself");
                prop_assert_eq!(Some(&parsed), expected.get(&name));
                prop_assert_eq!(string(value, usize::MAX), parsed.as_str().map(str::to_owned));
            }
        }
    }

    #[test]
    fn members_are_found_whatever_their_values_hold() {
        let text = r#" { "a" : "x\"}," , "b":[{"c":"]"},1] ,"d": {}, "e":-1.5e3}"#;
        let found: Vec<_> = members(text).collect();
        assert_eq!(
            found,
            [(r#""a""#, r#""x\"},""#), (r#""b""#, r#"[{"c":"]"},1]"#), (r#""d""#, "{}"), (r#""e""#, "-1.5e3")]
        );
        for no_object in ["[1]", "7", "", "{}"] {
            assert_eq!(members(no_object).count(), 0, "{no_object}");
        }
    }

    #[test]
    fn texts_are_what_a_parser_makes_of_them() {
        for quoted in [r#""""#, r#""a\"\\\/\b\f\n\r\tb""#, r#""\u00e9\ud83d\ude00 é日""#] {
            let expected: String = serde_json::from_str(quoted).unwrap();
            assert_eq!(string(quoted, 100), Some(expected), "{quoted}");
        }
        assert_eq!(string(r#""\udce9x\ud83d""#, 100).as_deref(), Some("\u{fffd}x\u{fffd}"));
        assert_eq!(string("7", 100), None);
    }

    #[test]
    fn of_a_long_text_the_middle_is_never_made() {
        let quoted = format!("\"{}\"", r"\u0041".repeat(100) + &"é".repeat(100));
        let text = string(&quoted, 40).unwrap();
        assert_eq!(text, format!("{}\n... 260 bytes left out ...\n{}", "A".repeat(30), "é".repeat(5)));
        // It fits once its escapes are gone.
        assert_eq!(string(&quoted, 300).unwrap().len(), 300);
    }

    #[test]
    fn a_key_is_the_same_however_it_is_written() {
        assert!(is(r#""message""#, "message") && is(r#""mess\u0061ge""#, "message"));
        assert!(!is(r#""message ""#, "message") && !is(r#""mess\nage""#, "message"));
    }

    #[test]
    fn brackets_in_texts_have_no_depth() {
        assert_eq!(depth(r#"{"[[[\"[": [1, {"x": []}]}"#), 4);
        assert_eq!(depth("]]["), 1);
        assert_eq!(depth(r#""\"#), 0);
    }
}
