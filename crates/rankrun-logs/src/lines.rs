//! Lines of one source as they are shown: [`Lines`], the splitter with progress frames, attribute resets and filters.
//! Not here: whose turn it is, the row of the newest frame (`tail::core`).

use std::collections::VecDeque;
use std::sync::Arc;

use memchr::memchr;

use crate::filter::LineFilter;
use crate::sgr::{ESC, RESET, leaves_attributes};
use crate::splitter::{CONTINUES, LineSplitter, MAX_LINE, length_without_crs};

/// What is done to lines beyond cutting them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shape {
    /// Of text that `\r` overwrites only the last state is kept.
    pub(crate) frames: bool,
    /// Attributes that a line leaves set are ended.
    pub(crate) reset: bool,
    /// Only lines that match are kept.
    pub(crate) filter: Option<Arc<LineFilter>>,
}

impl Shape {
    /// What a console gets that is not told otherwise.
    pub(crate) fn of_console() -> Self {
        Self { frames: true, reset: true, filter: None }
    }
}

/// Cuts one stream of bytes into lines of a [`Shape`].
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Holds the unfinished line; of a progress bar its newest state.
    splitter: LineSplitter,
    shape: Shape,
    /// The unfinished line has had a `\r`.
    framed: bool,
    /// Its newest state was not shown yet.
    news: bool,
    /// It may have an escape sequence.
    escaped: bool,
    choice: Choice,
}

/// How many parts of a line that no filter has matched yet are kept.
const HELD_PARTS: usize = 16;

/// Whether the unfinished line is one that the filter matches, as far as parts of it were cut off.
#[derive(Debug, Default)]
struct Choice {
    /// It is: the parts to come are too.
    made: bool,
    /// The last parts, as they are to be shown if it is.
    held: VecDeque<Vec<u8>>,
    /// The end of the last part, with which the next may make up a match.
    end: Vec<u8>,
}

impl Choice {
    /// Looks at the next part of the line and says whether it matches by now.
    fn make(&mut self, filter: &LineFilter, part: &[u8]) -> bool {
        let overlap = filter.longest().saturating_sub(1);
        let spans = |end: &[u8]| filter.matches(&[end, &part[..part.len().min(overlap)]].concat());
        self.made = self.made || filter.matches(part) || (!self.end.is_empty() && spans(&self.end));
        self.made
    }

    /// Keeps a part that did not match, as it is to be shown.
    fn hold(&mut self, filter: &LineFilter, part: &[u8], shown: Vec<u8>) {
        self.end.extend_from_slice(&part[part.len().saturating_sub(filter.longest())..]);
        self.end.drain(..self.end.len().saturating_sub(filter.longest().saturating_sub(1)));
        if self.held.len() == HELD_PARTS {
            self.held.pop_front();
        }
        self.held.push_back(shown);
    }
}

impl Lines {
    pub(crate) fn new(shape: Shape) -> Self {
        Self { shape, ..Self::default() }
    }

    /// Takes the next bytes of the stream and appends each line that is now complete to `out`.
    pub(crate) fn push(&mut self, chunk: &[u8], prefix: &[u8], out: &mut Vec<u8>) {
        if self.is_plain(chunk) {
            return self.splitter.push(chunk, prefix, out);
        }
        let mut rest = chunk;
        while let Some(end) = memchr(b'\n', rest) {
            self.keep(&rest[..end], prefix, out);
            self.end_line(prefix, out);
            rest = &rest[end + 1..];
        }
        self.keep(rest, prefix, out);
    }

    /// Ends the stream: appends an unfinished last line, if there is one, with a newline.
    pub(crate) fn finish(&mut self, prefix: &[u8], out: &mut Vec<u8>) {
        if !self.splitter.partial.is_empty() {
            self.end_line(prefix, out);
        }
        self.choice = Choice::default();
    }

    /// Forgets the unfinished line and gives how many bytes that were.
    pub(crate) fn discard(&mut self) -> usize {
        let length = self.splitter.partial.len();
        self.splitter.partial.clear();
        (self.framed, self.news, self.escaped) = (false, false, false);
        length
    }

    /// The newest state of a progress bar, if the unfinished line is one.
    pub(crate) fn frame(&self) -> Option<&[u8]> {
        let state = self.splitter.partial();
        let end = length_without_crs(state);
        (self.framed && end > 0).then(|| &state[..end])
    }

    /// Whether there is a frame that [`Lines::frame_shown`] was not said of.
    pub(crate) fn has_new_frame(&self) -> bool {
        self.news && self.frame().is_some()
    }

    /// Says that the newest state was shown.
    pub(crate) fn frame_shown(&mut self) {
        self.news = false;
    }

    /// Whether the chunk needs nothing but cutting, as most do; looking is much faster than line by line.
    fn is_plain(&self, chunk: &[u8]) -> bool {
        let in_shape = self.shape.filter.is_some() || self.framed || self.escaped;
        let has = |wanted, byte| wanted && memchr(byte, chunk).is_some();
        !(in_shape || has(self.shape.frames, b'\r') || has(self.shape.reset, ESC))
    }

    /// Keeps bytes without a newline.
    fn keep(&mut self, mut bytes: &[u8], prefix: &[u8], out: &mut Vec<u8>) {
        if !self.shape.frames {
            return self.append(bytes, prefix, out);
        }
        while let Some(first) = bytes.first() {
            let end = if *first == b'\r' {
                self.framed = true;
                bytes.iter().position(|byte| *byte != b'\r')
            } else {
                if self.splitter.partial.last() == Some(&b'\r') {
                    // A new state begins.
                    self.splitter.partial.clear();
                }
                memchr(b'\r', bytes)
            };
            let (piece, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            self.append(piece, prefix, out);
            bytes = rest;
            self.news = self.framed;
        }
    }

    /// Appends to the unfinished line; what exceeds a part is shown, so that memory stays bounded.
    fn append(&mut self, mut bytes: &[u8], prefix: &[u8], out: &mut Vec<u8>) {
        self.escaped |= self.shape.reset && memchr(ESC, bytes).is_some();
        loop {
            let room = MAX_LINE - self.splitter.partial.len();
            if bytes.len() <= room {
                self.splitter.partial.extend_from_slice(bytes);
                return;
            }
            self.splitter.partial.extend_from_slice(&bytes[..room]);
            bytes = &bytes[room..];
            self.show(CONTINUES, prefix, out);
        }
    }

    fn end_line(&mut self, prefix: &[u8], out: &mut Vec<u8>) {
        self.show(b"", prefix, out);
        (self.framed, self.news, self.escaped) = (false, false, false);
        if !self.choice.held.is_empty() || self.choice.made {
            self.choice = Choice::default();
        }
    }

    /// Appends what is kept as a line, or as the part of one that the mark follows, and keeps nothing; if there is a filter,
    /// only what it matches, and then all parts of the line.
    fn show(&mut self, mark: &[u8], prefix: &[u8], out: &mut Vec<u8>) {
        let line = &self.splitter.partial;
        match &self.shape.filter {
            Some(filter) if !self.choice.make(filter, line) => {
                if !mark.is_empty() {
                    let mut shown = Vec::new();
                    self.append_line(mark, prefix, &mut shown);
                    self.choice.hold(filter, line, shown);
                }
            }
            _ => {
                self.choice.held.drain(..).for_each(|part| out.extend(part));
                self.append_line(mark, prefix, out);
            }
        }
        self.splitter.partial.clear();
    }

    fn append_line(&self, mark: &[u8], prefix: &[u8], out: &mut Vec<u8>) {
        let line = &self.splitter.partial;
        let reset = self.escaped && leaves_attributes(line);
        let (text, crs) = line.split_at(length_without_crs(line));
        out.extend_from_slice(prefix);
        out.extend_from_slice(text);
        if reset {
            out.extend_from_slice(RESET);
        }
        out.extend_from_slice(mark);
        out.extend_from_slice(crs);
        out.push(b'\n');
    }
}

/// The slow and obvious way to do what [`Lines`] does, byte by byte, for the property tests of this crate.
#[cfg(test)]
pub(crate) fn model(stream: &[u8], prefix: &[u8], shape: &Shape) -> Vec<u8> {
    let mut out = Vec::new();
    // The parts of a line.
    let mut parts: Vec<Vec<u8>> = Vec::new();
    let mut show = |line: &[u8], mark: &[u8]| {
        parts.push(line.to_vec());
        if !mark.is_empty() {
            return;
        }
        // Up to which part it takes to match.
        let chosen = match &shape.filter {
            None => Some(0),
            Some(filter) => (0..parts.len()).find(|last| filter.matches(&parts[..=*last].concat())),
        };
        for (i, line) in parts.iter().enumerate().filter(|(i, _)| chosen.is_some_and(|chosen| i + HELD_PARTS >= chosen))
        {
            let (text, crs) = line.split_at(length_without_crs(line));
            let reset = if shape.reset && leaves_attributes(line) { RESET } else { b"" };
            let mark = if i + 1 < parts.len() { CONTINUES } else { b"" };
            out.extend([prefix, text, reset, mark, crs, b"\n"].concat());
        }
        parts.clear();
    };
    let mut state: Vec<u8> = Vec::new();
    for byte in stream {
        if *byte == b'\n' {
            show(&state, b"");
            state.clear();
            continue;
        }
        if shape.frames && state.ends_with(b"\r") && *byte != b'\r' {
            state.clear();
        }
        if state.len() == MAX_LINE {
            show(&state, CONTINUES);
            state.clear();
        }
        state.push(*byte);
    }
    if !state.is_empty() {
        show(&state, b"");
    }
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    const FRAMES: Shape = Shape { frames: true, reset: false, filter: None };
    const RESETS: Shape = Shape { frames: false, reset: true, filter: None };

    fn shown(shape: &Shape, chunks: &[&[u8]]) -> String {
        let mut lines = Lines::new(shape.clone());
        let mut out = Vec::new();
        chunks.iter().for_each(|chunk| lines.push(chunk, b"p:", &mut out));
        lines.finish(b"p:", &mut out);
        out.escape_ascii().to_string()
    }

    #[test]
    fn of_a_progress_bar_the_last_state_is_shown() {
        for (stream, expected) in [
            (&b"a\rb\rc\n"[..], "p:c\\n"),
            (b"\r 10%\r 20%\r100%\ndone\n", "p:100%\\np:done\\n"),
            (b"10%\r20%\r\n", "p:20%\\r\\n"),
            (b"10%\r20%\r", "p:20%\\r\\n"),
            (b"10%\r20%", "p:20%\\n"),
            (b"bar\r   \rlog line\n", "p:log line\\n"),
            (b"\r\n\n\r\r\n", "p:\\r\\np:\\np:\\r\\r\\n"),
            (b"dos\r\nunix\n", "p:dos\\r\\np:unix\\n"),
        ] {
            assert_eq!(shown(&FRAMES, &[stream]), expected, "{}", stream.escape_ascii());
            let bytes: Vec<&[u8]> = stream.chunks(1).collect();
            assert_eq!(shown(&FRAMES, &bytes), expected, "{} byte by byte", stream.escape_ascii());
        }
    }

    #[test]
    fn raw_lines_keep_their_frames() {
        assert_eq!(shown(&Shape::default(), &[b"a\rb", b"\rc\n"]), "p:a\\rb\\rc\\n");
    }

    #[test]
    fn attributes_that_a_line_leaves_set_are_ended_with_it() {
        assert_eq!(shown(&RESETS, &[b"\x1b[31mred\nplain\n"]), "p:\\x1b[31mred\\x1b[0m\\np:plain\\n");
        assert_eq!(shown(&RESETS, &[b"\x1b[31", b"mred\r", b"\n"]), "p:\\x1b[31mred\\x1b[0m\\r\\n");
        assert_eq!(shown(&RESETS, &[b"\x1b[31mred\x1b[0m\n"]), "p:\\x1b[31mred\\x1b[0m\\n");
    }

    #[test]
    fn a_progress_bar_without_end_is_bounded_and_its_newest_state_is_there() {
        let mut lines = Lines::new(FRAMES);
        let mut out = Vec::new();
        for i in 0..100_000 {
            lines.push(format!("\rstep {i}").as_bytes(), b"", &mut out);
        }
        assert_eq!(lines.frame(), Some(&b"step 99999"[..]));
        assert!(lines.has_new_frame());
        lines.frame_shown();
        assert!(!lines.has_new_frame());
        lines.push(b"\nplain", b"", &mut out);
        assert_eq!((lines.frame(), out), (None, b"step 99999\n".to_vec()));
    }

    #[test]
    fn only_lines_that_match_are_kept() {
        let shape = Shape { filter: Some(Arc::new(LineFilter::new(["loss", "!"]).unwrap())), ..FRAMES };
        assert_eq!(shown(&shape, &[b"step 1\nlo", b"ss 2\nloss\rgone\nhey!"]), "p:loss 2\\np:hey!\\n");
    }

    #[test]
    fn a_long_line_is_chosen_whole_wherever_its_match_is_also_across_two_parts() {
        let shape = Shape { filter: Some(Arc::new(LineFilter::new(["loss", "!"]).unwrap())), ..Shape::default() };
        let dots = |count: usize| ".".repeat(count);
        for (line, is_chosen) in [
            (dots(2 * MAX_LINE + 5), false),
            (format!("loss{}", dots(2 * MAX_LINE)), true),
            (format!("{}loss{}", dots(MAX_LINE - 2), dots(MAX_LINE)), true),
            (format!("{}loss{}", dots(2 * MAX_LINE - 1), dots(9)), true),
            (format!("{}!", dots(2 * MAX_LINE)), true),
        ] {
            let chosen = shown(&shape, &[line.as_bytes(), b"\nnot\nloss\n"]);
            let parts: Vec<&str> = if is_chosen {
                vec![&line[..MAX_LINE], &line[MAX_LINE..2 * MAX_LINE], &line[2 * MAX_LINE..]]
            } else {
                vec![]
            };
            let expected = parts.join(" [rankrun: line continues]\\np:");
            let expected = if is_chosen { format!("p:{expected}\\n") } else { expected };
            assert!(chosen == format!("{expected}p:loss\\n"), "{} bytes of {}", chosen.len(), line.len());
        }
    }

    #[test]
    fn of_a_line_without_end_a_bounded_part_waits_for_a_match() {
        let shape = Shape { filter: Some(Arc::new(LineFilter::new(["!"]).unwrap())), ..Shape::default() };
        let line = [vec![b'x'; 40 * MAX_LINE], b"!\n".to_vec()].concat();
        let chosen = shown(&shape, &[&line]);
        assert_eq!(chosen.matches("line continues").count(), HELD_PARTS);
        assert!(chosen.ends_with("p:!\\n"));
    }

    pub(crate) fn shapes() -> impl Strategy<Value = Shape> {
        (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(frames, reset, filtered)| {
            let filter = filtered.then(|| Arc::new(LineFilter::new(["a", "x"]).expect("not empty")));
            Shape { frames, reset, filter }
        })
    }

    /// Bytes that are often at the edges of what is looked at.
    pub(crate) fn streams() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            4 => Just(b"\n".to_vec()),
            4 => Just(b"\r".to_vec()),
            2 => Just(b"\x1b[31m".to_vec()),
            1 => Just(b"\x1b[0m".to_vec()),
            1 => Just(b"\x1b[3".to_vec()),
            6 => prop::collection::vec(any::<u8>(), 0..8),
            4 => "[a-z]{0,20}".prop_map(String::into_bytes),
            1 => (MAX_LINE - 3..MAX_LINE + 3).prop_map(|length| vec![b'x'; length]),
            1 => (MAX_LINE - 3..MAX_LINE + 1).prop_map(|length| [vec![b'x'; length], vec![b'\r'; 3]].concat()),
        ];
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn chunks_cut_anywhere_give_what_the_model_gives(
            stream in streams(),
            shape in shapes(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let mut lines = Lines::new(shape.clone());
            let mut out = Vec::new();
            for cut in cuts.windows(2) {
                lines.push(&stream[cut[0]..cut[1]], b"[r0]:", &mut out);
                prop_assert!(lines.splitter.partial().len() <= MAX_LINE);
            }
            lines.finish(b"[r0]:", &mut out);
            let after_cr = [b"\r", CONTINUES].concat();
            prop_assert!(memchr::memmem::find(&out, &after_cr).is_none());
            // Not prop_assert_eq: it would print megabytes.
            prop_assert!(out == model(&stream, b"[r0]:", &shape));
        }
    }
}
