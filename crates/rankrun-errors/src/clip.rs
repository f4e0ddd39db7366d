//! How long the texts of a record may be, and cutting longer ones. Not here: where they come from.

use std::borrow::Cow;

/// Kept of a message, in bytes. With [`MAX_CALLSTACK_BYTES`] it stays below the reader's cap even if each byte
/// becomes six (`\u001b`).
pub(crate) const MAX_MESSAGE_BYTES: usize = 64 << 10;
/// Kept of a call stack, in bytes.
pub(crate) const MAX_CALLSTACK_BYTES: usize = 384 << 10;

/// Which part of a text is wanted.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    /// Its characters that end within this many bytes.
    Head(usize),
    /// Its characters that begin within its last bytes, this many.
    Tail(usize),
}

/// A text of `total` bytes without its middle: its first three and last one quarters of `max` with a note between.
pub(crate) fn cut(total: usize, max: usize, mut push: impl FnMut(Part, &mut String)) -> String {
    let mut text = String::with_capacity(max + 64);
    if total <= max {
        push(Part::Head(total), &mut text);
        return text;
    }
    push(Part::Head(max / 4 * 3), &mut text);
    let head = text.len();
    let mut tail = String::with_capacity(max / 4);
    push(Part::Tail(max / 4), &mut tail);
    text.push_str(&format!("\n... {} bytes left out ...\n", total - head - tail.len()));
    text + &tail
}

/// The text, or what is kept of a longer one.
pub(crate) fn clipped(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return text.into();
    }
    let boundary = |mut at: usize, step: fn(usize) -> usize| {
        while !text.is_char_boundary(at) {
            at = step(at);
        }
        at
    };
    Cow::Owned(cut(text.len(), max, |part, out| match part {
        Part::Head(head) => out.push_str(&text[..boundary(head, |at| at - 1)]),
        Part::Tail(tail) => out.push_str(&text[boundary(text.len() - tail, |at| at + 1)..]),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_whole_characters_at_both_ends() {
        let text = "é".repeat(100);
        assert_eq!(clipped(&text, 200), text);
        let short = clipped(&text, 21);
        assert_eq!(short, format!("{}\n... 182 bytes left out ...\n{}", "é".repeat(7), "é".repeat(2)));
    }
}
