//! Lines of a file of which bytes may be gone: [`GappedLines`], pure. Not here: noticing that they are (`reader`).

use memchr::memchr;

use crate::limit::dropped;
use crate::lines::{Lines, Shape};
use crate::splitter::MAX_LINE;

/// Stands where a file was cut by somebody else: nobody can know what it had by then.
const CUT: &[u8] = b"[rankrun: the file was cut, bytes may be missing]\n";

/// Lines as [`Lines`] makes them, with one line that says how many bytes are missing wherever some are.
///
/// After a gap it goes on at the start of a line: what is there of the line that the gap begins or ends in counts as missing.
/// Only where no line begins within 64 KiB, or before the end, is the rest of one shown: the end is never lost.
#[derive(Debug)]
pub(crate) struct GappedLines {
    lines: Lines,
    gap: Option<Gap>,
}

/// A gap that no line has begun after.
#[derive(Debug, Default)]
struct Gap {
    missing: u64,
    /// What was there since, at most [`MAX_LINE`] bytes.
    rest: Vec<u8>,
}

impl GappedLines {
    pub(crate) fn new(shape: Shape) -> Self {
        Self { lines: Lines::new(shape), gap: None }
    }

    /// Takes the next bytes that are there.
    pub(crate) fn push(&mut self, mut bytes: &[u8], prefix: &[u8], out: &mut Vec<u8>) {
        if let Some(mut gap) = self.gap.take() {
            let room = MAX_LINE - gap.rest.len();
            let (piece, beyond) = bytes.split_at(room.min(bytes.len()));
            gap.rest.extend_from_slice(piece);
            // Whether it begins a line is known once there is something behind.
            let start = memchr(b'\n', &gap.rest).map(|end| end + 1).filter(|start| *start < gap.rest.len());
            if start.is_none() && beyond.is_empty() {
                self.gap = Some(gap);
                return;
            }
            self.go_on(&gap, start.unwrap_or(0), prefix, out);
            bytes = beyond;
        }
        self.lines.push(bytes, prefix, out);
    }

    /// Says that so many bytes are gone between what was taken and what will be.
    pub(crate) fn skip(&mut self, missing: u64) {
        let gap = self.gap.get_or_insert_default();
        gap.missing += missing + (gap.rest.len() + self.lines.discard()) as u64;
        gap.rest.clear();
    }

    /// Says that the file was cut, so that what comes next is its start.
    pub(crate) fn start_again(&mut self, prefix: &[u8], out: &mut Vec<u8>) {
        self.finish(prefix, out);
        self.lines.push(CUT, prefix, out);
    }

    /// Ends the stream.
    pub(crate) fn finish(&mut self, prefix: &[u8], out: &mut Vec<u8>) {
        if let Some(gap) = self.gap.take() {
            self.go_on(&gap, 0, prefix, out);
        }
        self.lines.finish(prefix, out);
    }

    /// The unfinished line of a progress bar.
    pub(crate) fn bar(&self) -> &Lines {
        &self.lines
    }

    /// Says that the newest state of a progress bar was shown.
    pub(crate) fn frame_shown(&mut self) {
        self.lines.frame_shown();
    }

    fn go_on(&mut self, gap: &Gap, start: usize, prefix: &[u8], out: &mut Vec<u8>) {
        let missing = gap.missing + start as u64;
        if missing > 0 {
            self.lines.push(dropped(missing).as_bytes(), prefix, out);
        }
        self.lines.push(&gap.rest[start..], prefix, out);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is shown of these parts of a file, between which so many bytes are missing.
    fn shown(parts: &[(u64, &str)]) -> String {
        let mut lines = GappedLines::new(Shape::default());
        let mut out = Vec::new();
        for (missing, text) in parts {
            if *missing > 0 {
                lines.skip(*missing);
            }
            lines.push(text.as_bytes(), b"p:", &mut out);
        }
        lines.finish(b"p:", &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn after_a_gap_it_goes_on_at_the_start_of_a_line() {
        assert_eq!(shown(&[(100, "st\ntwo\n")]), "p:[rankrun: 103 bytes dropped]\np:two\n");
        assert_eq!(shown(&[(0, "one\ntw"), (100, "st\nlast")]), "p:one\np:[rankrun: 105 bytes dropped]\np:last\n");
    }

    #[test]
    fn gaps_between_which_no_line_begins_are_one() {
        assert_eq!(
            shown(&[(0, "one\ntw"), (10, "torn"), (10, "torn\n"), (10, "n\nlast\n")]),
            "p:one\np:[rankrun: 43 bytes dropped]\np:last\n"
        );
        assert_eq!(
            shown(&[(10, "\none\n"), (10, "\ntwo\n")]),
            "p:[rankrun: 11 bytes dropped]\np:one\np:[rankrun: 11 bytes dropped]\np:two\n"
        );
    }

    #[test]
    fn the_end_is_shown_where_no_line_begins() {
        assert_eq!(shown(&[(10, "the end")]), "p:[rankrun: 10 bytes dropped]\np:the end\n");
        assert_eq!(shown(&[(10, "the "), (0, "end\n")]), "p:[rankrun: 10 bytes dropped]\np:the end\n");
        assert_eq!(shown(&[(10, "")]), "p:[rankrun: 10 bytes dropped]\n");
        let long = "x".repeat(MAX_LINE);
        let text = shown(&[(10, &long), (0, "y\nlast\n")]);
        assert!(text.starts_with("p:[rankrun: 10 bytes dropped]\np:xxx") && text.ends_with("p:y\np:last\n"));
    }

    #[test]
    fn a_file_that_was_cut_is_told_of_and_read_from_its_start() {
        let mut lines = GappedLines::new(Shape::default());
        let mut out = Vec::new();
        lines.push(b"one\nunfinished", b"p:", &mut out);
        lines.start_again(b"p:", &mut out);
        lines.push(b"new\n", b"p:", &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "p:one\np:unfinished\np:[rankrun: the file was cut, bytes may be missing]\np:new\n");
    }

    proptest! {
        #[test]
        fn lines_are_whole_and_what_is_not_shown_is_counted(
            lines in prop::collection::vec("[a-z]{0,12}", 1..40),
            mut cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..12),
        ) {
            let numbered = lines.iter().enumerate().map(|(i, text)| format!("<{i} {text}>\n"));
            let text: String = numbered.chain(["<end>\n".to_owned()]).collect();
            cuts.sort_by_key(|(cut, _)| cut.index(text.len()));
            let mut gapped = GappedLines::new(Shape::default());
            let mut out = Vec::new();
            let mut at = 0;
            for (cut, missing) in cuts {
                let end = cut.index(text.len() - "\n<end>\n".len());
                if end <= at {
                    continue;
                }
                if missing {
                    gapped.skip((end - at) as u64);
                } else {
                    gapped.push(&text.as_bytes()[at..end], b"", &mut out);
                }
                at = end;
            }
            gapped.push(&text.as_bytes()[at..], b"", &mut out);
            gapped.finish(b"", &mut out);
            let out = String::from_utf8(out).unwrap();
            let mut known = 0_u64;
            for line in out.split_inclusive('\n') {
                match line.strip_prefix("[rankrun: ").and_then(|line| line.strip_suffix(" bytes dropped]\n")) {
                    Some(missing) => known += missing.parse::<u64>().unwrap(),
                    None => {
                        prop_assert!(text.contains(line) && line.starts_with('<') && line.ends_with(">\n"), "{line}");
                        let start = usize::try_from(known).unwrap();
                        prop_assert_eq!(&text[start..start + line.len()], line, "each in its place");
                        known += line.len() as u64;
                    }
                }
            }
            prop_assert_eq!(known, text.len() as u64);
        }
    }
}
