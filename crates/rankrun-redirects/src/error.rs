//! What is wrong with a spec's text and where: [`ParseStdError`]. Not here: the grammar that finds it out (`parse`).

use std::borrow::Cow;

use rankrun_types::escape_line;

/// How much of the text and of the wrong token an error shows, in characters of the text.
const SHOWN_TEXT: usize = 80;
const SHOWN_TOKEN: usize = 32;

/// A text is no redirect spec: where, what was expected there and what was found.
///
/// It shows as one line, however long the text is and whatever is in it.
///
/// ```
/// use rankrun_redirects::StdSpec;
///
/// let error = StdSpec::parse_mapping("0:4").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "invalid redirect spec `0:4` at byte 2: expected a mode (0-3, none, out, err or all), found `4`",
/// );
/// assert_eq!((error.position(), error.found()), (2, "`4`"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid redirect spec `{text}` at byte {position}: expected {expected}, found {found}")]
pub struct ParseStdError {
    text: String,
    position: usize,
    expected: Cow<'static, str>,
    found: String,
}

impl ParseStdError {
    /// `found` is the token at `position`, or `None` at the end of `text`.
    pub(crate) fn new(text: &str, position: usize, expected: Cow<'static, str>, found: Option<&str>) -> Self {
        let found = match found {
            Some(token) => format!("`{}`", excerpt(token, SHOWN_TOKEN)),
            None => "the end of the text".to_owned(),
        };
        Self { text: excerpt(text, SHOWN_TEXT), position, expected, found }
    }

    /// Where the text stops being a spec: a byte offset on a character boundary, from 0 to the text's length.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.position
    }

    /// What would have been right there, in words.
    #[must_use]
    pub fn expected(&self) -> &str {
        &self.expected
    }

    /// What is there instead: the token in backticks, escaped and shortened, or `the end of the text`.
    #[must_use]
    pub fn found(&self) -> &str {
        &self.found
    }
}

/// The first `shown` characters, escaped where they would not show on a line; `...` for the rest.
fn excerpt(text: &str, shown: usize) -> String {
    let mut excerpt = String::new();
    let mut chars = text.chars();
    for c in chars.by_ref().take(shown) {
        match c {
            // A space that is none of ours looks like one.
            c if c.is_whitespace() && !c.is_ascii() => excerpt.extend(c.escape_unicode()),
            c => excerpt.push(c),
        }
    }
    if chars.next().is_some() {
        excerpt.push_str("...");
    }
    escape_line(&excerpt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_direction_marks_are_escaped_and_letters_are_not() {
        assert_eq!(excerpt("a\n\u{1b}[31m\u{202e}é'٣", 80), r"a\n\x1b[31m\u{202e}é'٣");
    }

    #[test]
    fn a_long_text_is_shortened() {
        assert_eq!(excerpt("0123456789", 4), "0123...");
        assert_eq!(excerpt("0123", 4), "0123");
    }
}
