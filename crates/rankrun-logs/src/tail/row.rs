//! The last row of a terminal, in which the newest state of a progress bar is shown: [`Row`], pure. Not here: which
//! bytes make a state (`lines`).
//!
//! The row is written without a newline and with the cursor back at its start. What comes next erases what is right of
//! it and goes on there, so lines are whole, and what others write to the same terminal loses nothing.

use crate::sgr::{RESET, leaves_attributes, sequence};

/// Erases from the cursor to the end of the row, ECMA-48 8.3.41.
pub(super) const ERASE: &[u8] = b"\x1b[K";

/// How often a source draws before it is another one's turn.
const TURN: u32 = 10;

/// Who is in the row.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// The terminal shows a frame now.
    pub(super) shown: bool,
    source: Option<usize>,
    /// How many draws its turn has had.
    draws: u32,
}

/// What a source has for the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    None,
    Old,
    New,
}

impl Row {
    /// Whether a draw would do something.
    pub(super) fn wants_draw(&self, sources: &[usize], frame: impl Fn(usize) -> Frame) -> bool {
        sources.iter().any(|source| frame(*source) == Frame::New)
            || (!self.shown && self.source.is_some_and(|source| frame(source) == Frame::Old))
    }

    /// Whose frame to draw now, if any: call it once for each draw.
    pub(super) fn next(&mut self, sources: &[usize], frame: impl Fn(usize) -> Frame) -> Option<usize> {
        let current = self.source.filter(|source| frame(*source) != Frame::None);
        let draw = |source: usize, shown: bool| (frame(source) == Frame::New || !shown).then_some(source);
        if let Some(current) = current
            && self.draws < TURN
        {
            self.draws += 1;
            return draw(current, self.shown);
        }
        // The next in the order after the current one, which itself comes last.
        let start =
            current.and_then(|current| sources.iter().position(|source| *source == current)).map_or(0, |at| at + 1);
        let others = sources[start..].iter().chain(&sources[..start]);
        let next = others.copied().find(|source| frame(*source) == Frame::New).or(current);
        (self.source, self.draws) = (next, 1);
        next.and_then(|next| draw(next, self.shown && current == Some(next)))
    }
}

/// Appends what draws a frame in a row of `columns`: as much as has room, without what moves the cursor.
pub(super) fn draw(prefix: &[u8], prefix_columns: usize, frame: &[u8], columns: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(ERASE);
    out.extend_from_slice(prefix);
    // The last column stays free: a terminal that is written to its edge wraps at the next character.
    let mut room = columns.saturating_sub(prefix_columns + 1);
    let start = out.len();
    let mut rest = frame;
    while let Some(first) = rest.first() {
        let (length, width, keep) = match sequence(rest) {
            Some((length, is_sgr)) => (length, 0, is_sgr),
            None if *first < 0x20 || *first == 0x7f => (1, 0, false),
            None => {
                let length = character(rest);
                (length, columns_of(&rest[..length]), true)
            }
        };
        if width > room {
            break;
        }
        if keep {
            out.extend_from_slice(&rest[..length]);
        }
        room -= width;
        rest = &rest[length..];
    }
    if leaves_attributes(&out[start..]) {
        out.extend_from_slice(RESET);
    }
    out.push(b'\r');
}

/// How many bytes the first character has; 1 for what is no UTF-8.
fn character(bytes: &[u8]) -> usize {
    (1..=bytes.len().min(4)).find(|length| std::str::from_utf8(&bytes[..*length]).is_ok()).unwrap_or(1)
}

/// How many columns a character takes: two from the first block of wide ones on, where many are.
fn columns_of(character: &[u8]) -> usize {
    let wide = |c: char| matches!(u32::from(c), 0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f | 0xff00..=0xff60 | 0x1f300..=0x1faff | 0x20000..=0x3fffd);
    let text = std::str::from_utf8(character).ok();
    text.and_then(|text| text.chars().next()).map_or(1, |c| if wide(c) { 2 } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(frame: &[u8], columns: usize) -> String {
        let mut out = Vec::new();
        draw(b"p:", 2, frame, columns, &mut out);
        out.escape_ascii().to_string()
    }

    #[test]
    fn a_frame_is_cut_to_the_width_of_the_terminal() {
        assert_eq!(drawn(b" 50%", 80), "\\x1b[Kp: 50%\\r");
        assert_eq!(drawn(b"123456789", 8), "\\x1b[Kp:12345\\r");
        assert_eq!(drawn("\u{2588}\u{2588}\u{2588}".as_bytes(), 5), "\\x1b[Kp:\\xe2\\x96\\x88\\xe2\\x96\\x88\\r");
        assert_eq!(drawn("\u{4e2d}\u{4e2d}".as_bytes(), 6), "\\x1b[Kp:\\xe4\\xb8\\xad\\r");
        assert_eq!(drawn(b"x", 0), "\\x1b[Kp:\\r");
        assert_eq!(drawn(b"\xff\xfe", 80), "\\x1b[Kp:\\xff\\xfe\\r");
    }

    #[test]
    fn what_moves_the_cursor_is_left_out_and_colours_are_ended() {
        assert_eq!(drawn(b"a\x1b[A\tb\x1b[2K\x07\x1b[31mc", 80), "\\x1b[Kp:ab\\x1b[31mc\\x1b[0m\\r");
    }

    #[test]
    fn sources_take_turns_and_one_that_is_alone_stays() {
        let sources = [0, 1, 2];
        let mut row = Row::default();
        let draws: Vec<_> = (0..3 * TURN)
            .map(|_| {
                let next = row.next(&sources, |source| if source == 1 { Frame::None } else { Frame::New });
                row.shown = true;
                next
            })
            .collect();
        let turn = |source| vec![Some(source); TURN as usize];
        assert_eq!(draws, [turn(0), turn(2), turn(0)].concat());
        let mut row = Row::default();
        assert!((0..3 * TURN).all(|_| row.next(&[4], |_| Frame::New) == Some(4)));
    }

    #[test]
    fn a_frame_is_drawn_again_only_when_it_is_new_or_a_line_took_its_place() {
        let mut row = Row::default();
        assert_eq!(row.next(&[0], |_| Frame::New), Some(0));
        row.shown = true;
        assert!(!row.wants_draw(&[0], |_| Frame::Old));
        assert_eq!(row.next(&[0], |_| Frame::Old), None);
        row.shown = false;
        assert!(row.wants_draw(&[0], |_| Frame::Old));
        assert_eq!(row.next(&[0], |_| Frame::Old), Some(0));
        assert!(!row.wants_draw(&[0], |_| Frame::None));
        assert_eq!(row.next(&[0], |_| Frame::None), None);
    }
}
