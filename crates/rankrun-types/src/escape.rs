//! Text and bytes from elsewhere made harmless for a terminal: [`escape_line`], [`escape_block`], [`escape_os_str`]. All of
//! rankrun shows them in this form. Not here: what is shown.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

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

/// The text on one line: all harmful characters escaped, also newline and tab. A backslash stays as it is.
///
/// ```
/// assert_eq!(rankrun_types::escape_line("a\u{1b}[31m\tb\n"), r"a\x1b[31m\tb\n");
/// ```
#[must_use]
pub fn escape_line(text: &str) -> String {
    escaped(text, |_| false)
}

/// The text with newlines and tabs kept and all other harmful characters escaped.
///
/// A carriage return before a newline is part of the line's end and is dropped.
///
/// ```
/// assert_eq!(rankrun_types::escape_block("a\r\n\tb\u{7}"), "a\n\tb\\x07");
/// ```
#[must_use]
pub fn escape_block(text: &str) -> String {
    escaped(&text.replace("\r\n", "\n"), |c| c == '\n' || c == '\t')
}

/// As [`escape_line`], of what need not be text: bytes that are not UTF-8 are escaped too.
///
/// ```
/// use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
///
/// assert_eq!(rankrun_types::escape_os_str(OsStr::from_bytes(b"a\xff\n")), r"a\xff\n");
/// ```
#[must_use]
pub fn escape_os_str(text: &OsStr) -> String {
    let mut out = String::with_capacity(text.len());
    for chunk in text.as_bytes().utf8_chunks() {
        out.push_str(&escape_line(chunk.valid()));
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_cannot_reach_the_terminal() {
        assert_eq!(
            escape_line("a\u{1b}[31mb\u{7}\r\n\tc\u{9b}\u{202e}\u{7f}"),
            r"a\x1b[31mb\x07\r\n\tc\u{9b}\u{202e}\x7f"
        );
    }

    #[test]
    fn a_block_keeps_its_lines_and_its_letters() {
        assert_eq!(escape_block("é\n\tx\r\ny\rz — 日本"), "é\n\tx\ny\\rz — 日本");
    }

    #[test]
    fn bytes_that_are_no_text_are_told_apart() {
        assert_eq!(escape_os_str(OsStr::from_bytes(b"\xc3\xa9\xc3\xff \x1b")), r"é\xc3\xff \x1b");
    }
}
