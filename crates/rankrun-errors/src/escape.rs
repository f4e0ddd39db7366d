//! Text from workers made harmless for a terminal, and short where it must be. Not here: what is shown (`report`).

use std::fmt::Write as _;

/// Whether a character can move the cursor, change colours, or change the order in which text is shown.
fn is_harmful(c: char) -> bool {
    // C0, DEL and C1; line and paragraph separators; bidirectional controls.
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn push_escaped(out: &mut String, c: char) {
    // Writing to a String does not fail.
    let _ = match c {
        '\n' => write!(out, "\\n"),
        '\r' => write!(out, "\\r"),
        '\t' => write!(out, "\\t"),
        c if u32::from(c) < 0x80 => write!(out, "\\x{:02x}", u32::from(c)),
        c => write!(out, "\\u{{{:x}}}", u32::from(c)),
    };
}

/// The text on one line: all harmful characters escaped, also newline and tab.
#[must_use]
pub fn line(text: &str) -> String {
    escaped(text, |_| false)
}

/// The text with newlines and tabs kept and all other harmful characters escaped.
///
/// A carriage return before a newline is part of the line's end and is dropped.
#[must_use]
pub fn block(text: &str) -> String {
    escaped(&text.replace("\r\n", "\n"), |c| c == '\n' || c == '\t')
}

fn escaped(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_harmful(c) && !keep(c) {
            push_escaped(&mut out, c);
        } else {
            out.push(c);
        }
    }
    out
}

/// The first line of the text, escaped, at most `max` characters and then `...`.
pub(crate) fn first_line(text: &str, max: usize) -> String {
    let text = text.trim();
    let first = text.lines().next().unwrap_or("");
    let mut short: String = first.chars().take(max).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    line(&short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_cannot_reach_the_terminal() {
        assert_eq!(line("a\u{1b}[31mb\u{7}\r\n\tc\u{9b}\u{202e}\u{7f}"), r"a\x1b[31mb\x07\r\n\tc\u{9b}\u{202e}\x7f");
    }

    #[test]
    fn a_block_keeps_its_lines_and_its_letters() {
        assert_eq!(block("é\n\tx\r\ny\rz — 日本"), "é\n\tx\ny\\rz — 日本");
    }

    #[test]
    fn a_first_line_says_when_there_is_more() {
        assert_eq!(first_line("one\ntwo", 80), "one...");
        assert_eq!(first_line("\nabcdef\n", 3), "abc...");
        assert_eq!(first_line("abc\n", 3), "abc");
        assert_eq!(first_line("", 3), "");
    }
}
