//! Cuts a stream of bytes into whole lines with a prefix: [`LineSplitter`]. Not here: reading, writing, sinks.

use memchr::{memchr, memchr_iter};

/// The longest line, in bytes without its newline, that is shown in one piece.
pub const MAX_LINE: usize = 64 * 1024;

/// What follows, before a newline, each part but the last of a line longer than [`MAX_LINE`].
///
/// It stands before CRs at the end of the part: after them a terminal would draw it over the part's beginning.
pub const CONTINUES: &[u8] = b" [rankrun: line continues]";

/// Cuts one stream of bytes into whole lines.
///
/// Feed it chunks in order, cut anywhere; it appends to an output each line that is complete, with a prefix and its
/// newline, and keeps the unfinished rest (at most [`MAX_LINE`] bytes). Bytes pass unchanged, whatever they encode.
/// A line longer than [`MAX_LINE`] becomes several: each has the prefix, and each but the last ends with
/// [`CONTINUES`].
///
/// ```
/// use rankrun_logs::LineSplitter;
///
/// let mut out = Vec::new();
/// let mut splitter = LineSplitter::new();
/// splitter.push(b"epoch 1\nepo", b"[a0]:", &mut out);
/// splitter.push(b"ch 2", b"[a0]:", &mut out);
/// assert_eq!(out, b"[a0]:epoch 1\n");
/// splitter.finish(b"[a0]:", &mut out);
/// assert_eq!(out, b"[a0]:epoch 1\n[a0]:epoch 2\n");
/// ```
#[derive(Debug, Default, Clone)]
pub struct LineSplitter {
    pub(crate) partial: Vec<u8>,
}

impl LineSplitter {
    /// A splitter at the start of a line.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes of the stream and appends each line that is now complete to `out`.
    pub fn push(&mut self, chunk: &[u8], prefix: &[u8], out: &mut Vec<u8>) {
        let mut rest = chunk;
        if !self.partial.is_empty() {
            let Some(end) = memchr(b'\n', rest) else {
                return self.keep(rest, prefix, out);
            };
            self.keep(&rest[..end], prefix, out);
            self.finish(prefix, out);
            rest = &rest[end + 1..];
        }
        let mut start = 0;
        for end in memchr_iter(b'\n', rest) {
            if end - start <= MAX_LINE {
                out.extend_from_slice(prefix);
                out.extend_from_slice(&rest[start..=end]);
            } else {
                self.keep(&rest[start..end], prefix, out);
                self.finish(prefix, out);
            }
            start = end + 1;
        }
        self.keep(&rest[start..], prefix, out);
    }

    /// Ends the stream: appends an unfinished last line, if there is one, with a newline.
    ///
    /// The splitter is then at the start of a line again.
    pub fn finish(&mut self, prefix: &[u8], out: &mut Vec<u8>) {
        if !self.partial.is_empty() {
            out.extend_from_slice(prefix);
            out.extend_from_slice(&self.partial);
            out.push(b'\n');
            self.partial.clear();
        }
    }

    /// The bytes of the line that has begun and not ended.
    #[must_use]
    pub fn partial(&self) -> &[u8] {
        &self.partial
    }

    /// Keeps bytes without a newline; what exceeds a part is shown, so that memory stays bounded.
    fn keep(&mut self, mut bytes: &[u8], prefix: &[u8], out: &mut Vec<u8>) {
        loop {
            let room = MAX_LINE - self.partial.len();
            if bytes.len() <= room {
                self.partial.extend_from_slice(bytes);
                return;
            }
            self.partial.extend_from_slice(&bytes[..room]);
            bytes = &bytes[room..];
            let (text, crs) = self.partial.split_at(length_without_crs(&self.partial));
            out.extend_from_slice(prefix);
            out.extend_from_slice(text);
            out.extend_from_slice(CONTINUES);
            out.extend_from_slice(crs);
            out.push(b'\n');
            self.partial.clear();
        }
    }
}

/// The length of a line without the CRs at its end.
pub(crate) fn length_without_crs(line: &[u8]) -> usize {
    line.iter().rposition(|byte| *byte != b'\r').map_or(0, |last| last + 1)
}

/// The slow and obvious way to do what the splitter does, for the property tests of this crate.
#[cfg(test)]
pub(crate) fn model(stream: &[u8], prefix: &[u8]) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = stream.split(|byte| *byte == b'\n').collect();
    if lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    let mut out = Vec::new();
    for line in lines {
        let parts: Vec<&[u8]> = if line.is_empty() { vec![line] } else { line.chunks(MAX_LINE).collect() };
        for (i, part) in parts.iter().enumerate() {
            let mut part = part.to_vec();
            if i + 1 < parts.len() {
                let at = length_without_crs(&part);
                part.splice(at..at, CONTINUES.iter().copied());
            }
            out.extend([prefix, &part, b"\n"].concat());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(chunks: &[&[u8]], prefix: &[u8]) -> Vec<u8> {
        let mut splitter = LineSplitter::new();
        let mut out = Vec::new();
        for chunk in chunks {
            splitter.push(chunk, prefix, &mut out);
            assert!(splitter.partial().len() <= MAX_LINE);
        }
        splitter.finish(prefix, &mut out);
        out
    }

    #[test]
    fn empty_lines_crlf_nul_and_invalid_utf8_pass_unchanged() {
        assert_eq!(split(&[b"\n\na\r\n\0\xff\xfe\nz"], b"p:"), b"p:\np:\np:a\r\np:\0\xff\xfe\np:z\n");
    }

    #[test]
    fn a_stream_without_bytes_has_no_line() {
        assert_eq!(split(&[b"", b""], b"p:"), b"");
    }

    #[test]
    fn a_line_of_exactly_the_maximum_stays_whole_however_it_arrives() {
        let mut line = vec![b'x'; MAX_LINE];
        line.push(b'\n');
        let whole = [b"p:".as_slice(), &line].concat();
        assert_eq!(split(&[&line], b"p:"), whole);
        assert_eq!(split(&[&line[..MAX_LINE], b"\n"], b"p:"), whole);
        assert_eq!(split(&[&line[..MAX_LINE]], b"p:"), whole);
    }

    #[test]
    fn a_longer_line_is_split_and_each_part_but_the_last_is_marked() {
        let line = vec![b'x'; MAX_LINE + 1];
        let part = [b"p:".as_slice(), &line[1..], CONTINUES, b"\n", b"p:x\n"].concat();
        assert_eq!(split(&[&line, b"\n"], b"p:"), part);
        assert_eq!(split(&[&[line.as_slice(), b"\n"].concat()], b"p:"), part);
    }

    #[test]
    fn a_line_that_is_split_after_crs_has_its_mark_before_them() {
        let line = [vec![b'x'; MAX_LINE - 2], b"\r\rrest".to_vec()].concat();
        let expected = [b"p:", &line[..MAX_LINE - 2], CONTINUES, b"\r\r\np:rest\n"].concat();
        assert_eq!(split(&[&line], b"p:"), expected);
    }

    /// Streams whose lines are often empty, short, or near a multiple of the maximum.
    fn streams() -> impl Strategy<Value = Vec<u8>> {
        let length = prop_oneof![
            6 => 0..200_usize,
            1 => (MAX_LINE - 2)..(MAX_LINE + 3),
            1 => (2 * MAX_LINE - 2)..(2 * MAX_LINE + 3),
        ];
        // A CR here and there, so that lines are often split after some.
        let line = (length, any::<u8>(), 0..4_usize).prop_map(|(length, fill, crs)| {
            let fill = if fill == b'\n' { 0 } else { fill };
            let mut line = vec![fill; length];
            (1..=crs).for_each(|i| {
                if i <= length.min(MAX_LINE) {
                    line[length.min(MAX_LINE) - i] = b'\r'
                }
            });
            line
        });
        (prop::collection::vec(line, 0..8), any::<bool>()).prop_map(|(lines, ended)| {
            let mut stream = lines.join(&b'\n');
            if ended {
                stream.push(b'\n');
            }
            stream
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn chunks_cut_anywhere_give_the_lines_of_the_stream(
            stream in streams(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]).collect();
            let shown = split(&chunks, b"[r0]:");
            let after_cr = [b"\r", CONTINUES].concat();
            prop_assert!(memchr::memmem::find(&shown, &after_cr).is_none());
            // Not prop_assert_eq: it would print megabytes.
            prop_assert!(shown == model(&stream, b"[r0]:"));
        }
    }
}
