//! Rust source as far as the checks read it: [`Source`], which tells code from comments and strings.
//!
//! Not here: what is forbidden (`tidy`). This is no parser; it knows comments, strings and characters, nothing more.

/// A file's text, and its code alone.
pub(crate) struct Source<'a> {
    pub(crate) text: &'a str,
    /// The text with each character of comments and strings replaced by a space; lines stay where they were.
    pub(crate) code: String,
}

impl<'a> Source<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, code: code_of(text) }
    }

    /// The lines of the text with the code of each, counted from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str, &str)> {
        self.text.lines().zip(self.code.lines()).enumerate().map(|(at, (text, code))| (at + 1, text, code))
    }
}

fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    let mut after_word = false;
    while let Some(first) = rest.chars().next() {
        let other = length_of_other(rest, after_word);
        let (taken, remaining) = rest.split_at(if other == 0 { first.len_utf8() } else { other });
        if other == 0 {
            code.push_str(taken);
        } else {
            code.extend(taken.chars().map(|character| if character == '\n' { '\n' } else { ' ' }));
        }
        after_word = other == 0 && (first.is_alphanumeric() || first == '_');
        rest = remaining;
    }
    code
}

/// How many bytes at the start of `text` are one comment, string or character; 0 if it starts with code.
fn length_of_other(text: &str, after_word: bool) -> usize {
    let bytes = text.as_bytes();
    match bytes {
        [b'/', b'/', ..] => text.find('\n').unwrap_or(text.len()),
        [b'/', b'*', ..] => block_comment(bytes),
        [b'"', ..] => string(bytes, 1),
        [b'b' | b'c', b'"', ..] if !after_word => string(bytes, 2),
        [b'r', ..] if !after_word => raw_string(text, 1),
        [b'b' | b'c', b'r', ..] if !after_word => raw_string(text, 2),
        [b'\'', ..] => character(text),
        _ => 0,
    }
}

fn block_comment(bytes: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                at += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

/// `start` is just after the opening quote.
fn string(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// `start` is just after the `r`. An identifier such as `r#type` is no string.
fn raw_string(text: &str, start: usize) -> usize {
    let hashes = text[start..].bytes().take_while(|byte| *byte == b'#').count();
    let open = start + hashes;
    if text.as_bytes().get(open) != Some(&b'"') {
        return 0;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    text[open + 1..].find(&close).map_or(text.len(), |at| open + 1 + at + close.len())
}

/// A character, not a lifetime: `'x'` or `'\...'`.
fn character(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    match characters.next() {
        Some((_, '\\')) => {
            // The escaped character may itself be a quote.
            characters.next();
            characters.find(|(_, character)| *character == '\'').map_or(0, |(at, _)| at + 1)
        }
        Some(_) => match characters.next() {
            Some((at, '\'')) => at + 1,
            _ => 0,
        },
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        let code = Source::new(text).code;
        assert_eq!(code.chars().count(), text.chars().count());
        assert_eq!(code.lines().count(), text.lines().count());
        code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_are_no_code() {
        assert_eq!(code("a // b\nc /* d /* e */ f */ g /// h"), "a c g");
        assert_eq!(code("//! x\n/* never closed"), "");
    }

    #[test]
    fn strings_are_no_code() {
        assert_eq!(code(r#"f("a // b", c)"#), "f( , c)");
        assert_eq!(code(r#"f("a \" b", b"x", c"y")"#), "f( , , )");
        assert_eq!(code("f(r\"\\\", r##\"a \"# b\"##, br#\"c\"#, d)"), "f( , , , d)");
        assert_eq!(code("\"two\nlines\" x"), "x");
    }

    #[test]
    fn characters_are_told_from_lifetimes() {
        assert_eq!(
            code(r#"fn f<'a>(x: &'a str) { '"' == '\'' || '\u{22}' == 'é' }"#),
            "fn f<'a>(x: &'a str) { == || == }"
        );
    }

    #[test]
    fn words_that_begin_or_end_like_a_string_are_code() {
        assert_eq!(code("r#type for_r bar b c rb"), "r#type for_r bar b c rb");
        assert_eq!(code(r#"concat_r!("x")"#), "concat_r!( )");
    }
}
