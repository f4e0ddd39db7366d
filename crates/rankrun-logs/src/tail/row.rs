//! The last row of a terminal, in which a status and the newest state of a progress bar are shown: [`Row`], pure. Not
//! here: which bytes make a state (`lines`), what the status says.
//!
//! The row is written without a newline and with the cursor back at its start. What comes next erases what is right of
//! it and goes on there, so lines are whole, and what others write to the same terminal loses nothing.

use crate::sgr::{RESET, leaves_attributes, sequence};

/// Erases from the cursor to the end of the row, ECMA-48 8.3.41.
pub(crate) const ERASE: &[u8] = b"\x1b[K";

/// What stands between the status and a frame.
const GAP: &[u8] = b"  ";

/// How many columns a frame has beside the status at least.
const LEAST_FRAME: usize = 16;

/// How often a source draws before it is another one's turn.
const TURN: u32 = 10;

/// Who is in the row.
#[derive(Debug, Default)]
pub(crate) struct Row {
    /// The terminal shows a frame or the status now.
    pub(crate) shown: bool,
    source: Option<usize>,
    /// How many draws its turn has had.
    draws: u32,
    /// Empty for none.
    status: Vec<u8>,
    /// The status was not drawn since it changed.
    status_is_new: bool,
}

/// What a source has for the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame {
    None,
    Old,
    New,
}

impl Row {
    /// Whether a draw would do something.
    pub(crate) fn wants_draw(&self, sources: &[usize], frame: impl Fn(usize) -> Frame) -> bool {
        self.wants_status()
            || sources.iter().any(|source| frame(*source) == Frame::New)
            || (!self.shown && self.source.is_some_and(|source| frame(source) == Frame::Old))
    }

    /// Sets the status; an empty one is none.
    pub(crate) fn set_status(&mut self, status: &[u8]) {
        if self.status != status {
            self.status = status.to_vec();
            self.status_is_new = true;
        }
    }

    /// Whether the status is to be drawn, whatever the frames do.
    pub(crate) fn wants_status(&self) -> bool {
        !self.status.is_empty() && (self.status_is_new || !self.shown)
    }

    /// The status, which is drawn now.
    pub(crate) fn take_status(&mut self) -> &[u8] {
        self.status_is_new = false;
        &self.status
    }

    /// Whose frame stands in the row, or did before a line took its place.
    pub(crate) fn current(&self, frame: impl Fn(usize) -> Frame) -> Option<usize> {
        self.source.filter(|source| frame(*source) != Frame::None)
    }

    /// Whose frame to draw now, if any: call it once for each draw.
    pub(crate) fn next(&mut self, sources: &[usize], frame: impl Fn(usize) -> Frame) -> Option<usize> {
        let current = self.current(&frame);
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

/// A source's frame with what stands before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bar<'a> {
    pub(crate) prefix: &'a [u8],
    /// How many columns the prefix takes.
    pub(crate) prefix_columns: usize,
    pub(crate) frame: &'a [u8],
}

/// Appends what draws the status and a frame beside it in a row of `columns`: as much as has room, without what moves the
/// cursor. A frame that would have no room beside the status has the row for itself.
pub(crate) fn draw(status: &[u8], bar: Option<Bar<'_>>, columns: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(ERASE);
    // The last column stays free: a terminal that is written to its edge wraps at the next character.
    let mut room = columns.saturating_sub(1);
    let least = bar.map_or(0, |bar| bar.prefix_columns + GAP.len() + LEAST_FRAME);
    if !status.is_empty() && (bar.is_none() || text_columns(status) + least <= room) {
        room = draw_text(status, room, out);
        if bar.is_some() {
            room = draw_text(GAP, room, out);
        }
    }
    if let Some(Bar { prefix, prefix_columns, frame }) = bar {
        out.extend_from_slice(prefix);
        draw_text(frame, room.saturating_sub(prefix_columns), out);
    }
    out.push(b'\r');
}

/// Appends as much of a text as has room, and says how much room is left.
fn draw_text(text: &[u8], mut room: usize, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    let mut rest = text;
    while let Some((length, width, keep)) = first(rest) {
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
    room
}

/// How many columns a text takes.
fn text_columns(text: &[u8]) -> usize {
    let mut rest = text;
    std::iter::from_fn(|| {
        let (length, width, _) = first(rest)?;
        rest = &rest[length..];
        Some(width)
    })
    .sum()
}

/// How many bytes and columns the first character or sequence takes, and whether it is shown.
fn first(text: &[u8]) -> Option<(usize, usize, bool)> {
    let byte = text.first()?;
    Some(match sequence(text) {
        Some((length, is_sgr)) => (length, 0, is_sgr),
        None if *byte < 0x20 || *byte == 0x7f => (1, 0, false),
        None => {
            let length = character(text);
            (length, columns_of(&text[..length]), true)
        }
    })
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
        draw(b"", Some(Bar { prefix: b"p:", prefix_columns: 2, frame }), columns, &mut out);
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
    fn the_status_stands_before_a_frame_that_has_room_beside_it() {
        let drawn = |status: &str, frame: Option<&str>, columns| {
            let mut out = Vec::new();
            let bar = |frame: &'static str| Bar { prefix: b"p:", prefix_columns: 2, frame: frame.as_bytes() };
            draw(status.as_bytes(), frame.map(|_| bar("123456789012345678901234567890")), columns, &mut out);
            out.escape_ascii().to_string()
        };
        assert_eq!(drawn("4 running", None, 80), "\\x1b[K4 running\\r");
        assert_eq!(drawn("4 running", None, 5), "\\x1b[K4 ru\\r");
        assert_eq!(drawn("4 running", Some(""), 33), "\\x1b[K4 running  p:1234567890123456789\\r");
        assert_eq!(drawn("4 running", Some(""), 29), "\\x1b[Kp:12345678901234567890123456\\r");
    }

    #[test]
    fn a_status_is_drawn_when_it_changed_or_a_line_took_its_place() {
        let mut row = Row::default();
        assert!(!row.wants_draw(&[], |_| Frame::None));
        row.set_status(b"a");
        assert!(row.wants_draw(&[], |_| Frame::None));
        assert_eq!(row.take_status(), b"a");
        row.shown = true;
        row.set_status(b"a");
        assert!(!row.wants_draw(&[], |_| Frame::None));
        row.shown = false;
        assert!(row.wants_draw(&[], |_| Frame::None));
        row.set_status(b"");
        assert!(!row.wants_draw(&[], |_| Frame::None));
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
