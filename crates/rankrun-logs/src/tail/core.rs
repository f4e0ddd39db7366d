//! The pure core of the tail engine: bytes of sources in, whole lines of outputs out, and who is read next.
//!
//! Not here: files, consoles, threads, clocks. The engine feeds it and carries out what it says.

use std::time::SystemTime;

use super::row::{self, Bar, Frame, Row};
use crate::lines::{Lines, Shape};
use crate::prefix::LinePrefix;

/// An output with this many bytes waiting takes no more: its sources are not read until some are written.
///
/// One chunk may exceed it, so an output holds at most this and one chunk with its prefixes.
const HIGH_WATER: usize = 64 * 1024;

/// Lines of many sources on their way to few outputs.
#[derive(Debug)]
pub(crate) struct TailCore {
    sources: Vec<Source>,
    outputs: Vec<Output>,
}

/// A source to be.
#[derive(Debug, Clone)]
pub(crate) struct CoreSource {
    pub(crate) prefix: LinePrefix,
    /// Whether its prefix has a colour.
    pub(crate) colored: bool,
    /// How many blanks follow its prefix.
    pub(crate) pad: usize,
    pub(crate) shape: Shape,
    pub(crate) output: usize,
}

#[derive(Debug)]
struct Source {
    lines: Lines,
    prefix: LinePrefix,
    colored: bool,
    pad: usize,
    /// The prefix as bytes, for a line of now.
    shown_prefix: Vec<u8>,
    output: usize,
    dirty: bool,
    /// Its prefix is not whole yet: it is not read.
    held: bool,
}

impl Source {
    fn frame(&self) -> Frame {
        match self.lines.frame() {
            None => Frame::None,
            Some(_) if self.lines.has_new_frame() => Frame::New,
            Some(_) => Frame::Old,
        }
    }

    fn is_ready(&self) -> bool {
        self.dirty && !self.held
    }

    fn make_prefix(&mut self, now: SystemTime) {
        self.shown_prefix.clear();
        self.prefix.append(now, self.colored, self.pad, &mut self.shown_prefix);
    }
}

#[derive(Debug, Default)]
struct Output {
    pending: Vec<u8>,
    written: usize,
    closed: bool,
    sources: Vec<usize>,
    /// Where among `sources` the next turn begins.
    turn: usize,
    /// Of a terminal on which progress bars live or a status is shown.
    row: Option<Row>,
    /// Progress bars live in the row.
    live: bool,
}

impl Output {
    fn takes_more(&self) -> bool {
        !self.closed && self.pending.len() - self.written < HIGH_WATER
    }

    /// The sources whose progress bars may be in the row.
    fn bars(&self) -> &[usize] {
        if self.live { &self.sources } else { &[] }
    }

    /// The buffer to append to; what was written is dropped first, once that is most of it.
    fn buffer(&mut self) -> &mut Vec<u8> {
        if self.written * 2 > self.pending.len() {
            self.pending.drain(..self.written);
            self.written = 0;
        }
        &mut self.pending
    }

    /// Lets lines be appended; those that are take the place of a frame that is shown.
    fn append(&mut self, lines: impl FnOnce(&mut Vec<u8>)) {
        if self.closed {
            return;
        }
        let erase = self.row.as_ref().is_some_and(|row| row.shown);
        let buffer = self.buffer();
        let start = buffer.len();
        if erase {
            buffer.extend_from_slice(row::ERASE);
        }
        let before = buffer.len();
        lines(buffer);
        if !erase {
            return;
        }
        if buffer.len() == before {
            buffer.truncate(start);
        } else if let Some(row) = &mut self.row {
            row.shown = false;
        }
    }
}

impl TailCore {
    /// A core with these sources and as many outputs as `live` has; true for those on which progress bars live.
    pub(crate) fn new(sources: Vec<CoreSource>, live: &[bool]) -> Self {
        let output = |live: &bool| Output { row: live.then(Row::default), live: *live, ..Output::default() };
        let mut core = Self { sources: Vec::new(), outputs: live.iter().map(output).collect() };
        for (i, source) in sources.into_iter().enumerate() {
            core.outputs[source.output].sources.push(i);
            let mut source = Source {
                lines: Lines::new(source.shape),
                held: source.prefix.needs_pid(),
                prefix: source.prefix,
                colored: source.colored,
                pad: source.pad,
                shown_prefix: Vec::new(),
                output: source.output,
                dirty: false,
            };
            source.make_prefix(SystemTime::UNIX_EPOCH);
            core.sources.push(source);
        }
        core
    }

    /// Says which process a source's lines are of, or that none will be: from now on it is read.
    pub(crate) fn set_pid(&mut self, source: usize, pid: Option<u32>) {
        let source = &mut self.sources[source];
        if std::mem::take(&mut source.held) {
            source.prefix.set_pid(pid);
            source.make_prefix(SystemTime::UNIX_EPOCH);
        }
    }

    /// Says that a source may have bytes to read.
    pub(crate) fn mark_dirty(&mut self, source: usize) {
        self.sources[source].dirty = true;
    }

    /// Says that a source was read to its end.
    pub(crate) fn mark_clean(&mut self, source: usize) {
        self.sources[source].dirty = false;
    }

    /// The source to read one chunk of now: dirty, with room in its output, each in its turn.
    pub(crate) fn next_source(&mut self) -> Option<usize> {
        for output in self.outputs.iter_mut().filter(|output| output.takes_more()) {
            let count = output.sources.len();
            for step in 0..count {
                let place = (output.turn + step) % count;
                let source = output.sources[place];
                if self.sources[source].is_ready() {
                    output.turn = (place + 1) % count;
                    return Some(source);
                }
            }
        }
        None
    }

    /// Whether [`TailCore::next_source`] has something to say.
    pub(crate) fn has_work(&self) -> bool {
        self.outputs
            .iter()
            .any(|output| output.takes_more() && output.sources.iter().any(|source| self.sources[*source].is_ready()))
    }

    /// Takes the next bytes of a source, which were read now.
    pub(crate) fn feed(&mut self, source: usize, chunk: &[u8], now: impl FnOnce() -> SystemTime) {
        let source = &mut self.sources[source];
        if source.prefix.is_timed() {
            source.make_prefix(now());
        }
        self.outputs[source.output].append(|out| source.lines.push(chunk, &source.shown_prefix, out));
    }

    /// Ends a source's unfinished line, at the end or where the file was cut.
    pub(crate) fn finish_line(&mut self, source: usize) {
        let source = &mut self.sources[source];
        self.outputs[source.output].append(|out| source.lines.finish(&source.shown_prefix, out));
    }

    /// Whether the newest state of a progress bar is to be drawn, now that the output has taken all lines.
    pub(crate) fn wants_draw(&self, output: usize) -> bool {
        let output = &self.outputs[output];
        let idle = !output.closed && output.pending.len() == output.written;
        let wants = |row: &Row| row.wants_draw(output.bars(), |source| self.sources[source].frame());
        idle && output.row.as_ref().is_some_and(wants)
    }

    /// Draws the status, and the newest state of the progress bar whose turn it is, in a row of `columns`.
    pub(crate) fn draw(&mut self, output: usize, columns: usize) {
        if !self.wants_draw(output) {
            return;
        }
        let output = &mut self.outputs[output];
        let Some(mut row) = output.row.take() else { return };
        let frame = |source: usize| self.sources[source].frame();
        let next = row.next(output.bars(), frame).or_else(|| row.current(frame).filter(|_| row.wants_status()));
        if next.is_some() || row.wants_status() {
            let bar = next.map(|source| {
                let source = &self.sources[source];
                Bar {
                    prefix: &source.shown_prefix,
                    prefix_columns: source.prefix.width() + source.pad,
                    frame: source.lines.frame().unwrap_or_default(),
                }
            });
            row::draw(row.take_status(), bar, columns, output.buffer());
            row.shown = true;
            if let Some(source) = next {
                self.sources[source].lines.frame_shown();
            }
        }
        output.row = Some(row);
    }

    /// Sets what stands in the last row of an output, which is a terminal; an empty text is for none.
    pub(crate) fn set_status(&mut self, output: usize, text: &str) {
        self.outputs[output].row.get_or_insert_default().set_status(text.as_bytes());
    }

    /// Erases the status, at the end, when no progress bar is left.
    pub(crate) fn clear_status(&mut self, output: usize) {
        let output = &mut self.outputs[output];
        let Some(row) = &mut output.row else { return };
        row.set_status(b"");
        if std::mem::take(&mut row.shown) && !output.closed {
            output.buffer().extend_from_slice(row::ERASE);
        }
    }

    /// The output of a source.
    pub(crate) fn output_of(&self, source: usize) -> usize {
        self.sources[source].output
    }

    /// The bytes that wait to be written to an output.
    pub(crate) fn pending(&self, output: usize) -> &[u8] {
        let output = &self.outputs[output];
        &output.pending[output.written..]
    }

    /// Says that the first `count` of the pending bytes are written.
    pub(crate) fn wrote(&mut self, output: usize, count: usize) {
        let output = &mut self.outputs[output];
        output.written += count;
        if output.written >= output.pending.len() {
            output.pending.clear();
            output.written = 0;
        }
    }

    /// Ends an output: what waits is dropped and its sources are not read any more.
    pub(crate) fn close(&mut self, output: usize) {
        let output = &mut self.outputs[output];
        output.closed = true;
        output.pending = Vec::new();
        output.written = 0;
    }

    /// Whether an output was closed.
    pub(crate) fn is_closed(&self, output: usize) -> bool {
        self.outputs[output].closed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lines::model;
    use crate::lines::tests::{shapes, streams};

    /// What may happen to a core; the numbers are reduced to what exists.
    #[derive(Debug, Clone)]
    enum Step {
        /// A worker writes to its file.
        Append(usize, Vec<u8>),
        /// The engine reads up to so many bytes from whoever is next.
        Read(usize),
        /// The console takes up to so many bytes.
        Write(usize, usize),
        Close(usize),
        /// Somebody cuts a file to nothing, as copytruncate does.
        Cut(usize),
        /// Time has come to draw in a terminal's last row.
        Draw,
        /// The status of so many seconds.
        Status(u8),
    }

    /// Output 0 is a terminal, output 1 is not.
    const LIVE: [bool; 2] = [true, false];

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let bytes = prop_oneof![
            9 => streams(),
            1 => (0..3 * HIGH_WATER).prop_map(|n| vec![b'x'; n]),
        ];
        let step = prop_oneof![
            40 => (any::<usize>(), bytes).prop_map(|(source, bytes)| Step::Append(source, bytes)),
            30 => (1..100_000_usize).prop_map(Step::Read),
            30 => (any::<usize>(), 0..100_000_usize).prop_map(|(output, n)| Step::Write(output, n)),
            1 => any::<usize>().prop_map(Step::Close),
            3 => any::<usize>().prop_map(Step::Cut),
            20 => Just(Step::Draw),
            3 => any::<u8>().prop_map(Step::Status),
        ];
        prop::collection::vec(step, 0..60)
    }

    /// Files and consoles in memory around a core.
    struct World {
        core: TailCore,
        files: Vec<Vec<u8>>,
        /// What was read of each file before it was cut, each time.
        cut: Vec<Vec<Vec<u8>>>,
        read: Vec<usize>,
        shown: Vec<Vec<u8>>,
    }

    impl World {
        fn new(sources: Vec<CoreSource>) -> Self {
            let count = sources.len();
            Self {
                core: TailCore::new(sources, &LIVE),
                files: vec![Vec::new(); count],
                cut: vec![Vec::new(); count],
                read: vec![0; count],
                shown: vec![Vec::new(); LIVE.len()],
            }
        }

        fn read(&mut self, limit: usize) -> bool {
            let Some(source) = self.core.next_source() else {
                assert!(!self.core.has_work());
                return false;
            };
            let start = self.read[source];
            let end = self.files[source].len().min(start + limit);
            self.core.feed(source, &self.files[source][start..end], || SystemTime::UNIX_EPOCH);
            self.read[source] = end;
            if end == self.files[source].len() {
                self.core.mark_clean(source);
            }
            true
        }

        fn cut(&mut self, source: usize) {
            let mut file = std::mem::take(&mut self.files[source]);
            file.truncate(std::mem::take(&mut self.read[source]));
            self.cut[source].push(file);
            self.core.finish_line(source);
        }

        fn write(&mut self, output: usize, limit: usize) {
            let pending = self.core.pending(output);
            let count = pending.len().min(limit);
            self.shown[output].extend_from_slice(&pending[..count]);
            self.core.wrote(output, count);
        }
    }

    fn prefix(source: usize) -> Vec<u8> {
        format!("<{source}>").into_bytes()
    }

    fn source(number: usize, output: usize, shape: Shape) -> CoreSource {
        CoreSource { prefix: prefix(number).into(), colored: false, pad: 0, shape, output }
    }

    fn plain(outputs_of: &[usize]) -> TailCore {
        let source = |output: &usize| CoreSource { prefix: "".into(), ..source(0, *output, Shape::default()) };
        let sources = outputs_of.iter().map(source);
        TailCore::new(sources.collect(), &LIVE)
    }

    /// The lines of a console that begin with a source's prefix; what the source wrote stands behind a prefix.
    fn lines_of(shown: &[u8], source: usize) -> Vec<u8> {
        shown
            .split_inclusive(|byte| *byte == b'\n')
            .filter(|line| line.starts_with(&prefix(source)))
            .flatten()
            .copied()
            .collect()
    }

    /// What stays of a terminal's bytes: the frames of its last row are erased by what follows.
    fn without_rows(shown: &[u8]) -> Vec<u8> {
        let mut lines = Vec::new();
        let mut rest = shown;
        while !rest.is_empty() {
            rest = rest.strip_prefix(row::ERASE).unwrap_or(rest);
            let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(rest.len());
            let line_end = rest[end..].iter().position(|byte| *byte != b'\r').map_or(rest.len(), |at| end + at);
            if rest.get(line_end) == Some(&b'\n') {
                lines.extend_from_slice(&rest[..=line_end]);
                rest = &rest[line_end + 1..];
            } else {
                rest = &rest[line_end..];
            }
        }
        lines
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn each_line_is_shown_once_whole_prefixed_and_in_its_ranks_order(
            sources in prop::collection::vec((0..2_usize, shapes()), 1..5),
            steps in steps(),
        ) {
            let sources: Vec<CoreSource> = sources
                .into_iter()
                .enumerate()
                // Where progress bars live, nothing but their last state is in a line.
                .map(|(i, (output, shape))| source(i, output, Shape { frames: shape.frames || LIVE[output], ..shape }))
                .collect();
            let mut world = World::new(sources.clone());
            for step in steps {
                match step {
                    Step::Append(source, bytes) => {
                        let source = source % world.files.len();
                        world.files[source].extend_from_slice(&bytes);
                        world.core.mark_dirty(source);
                    }
                    Step::Read(limit) => {
                        world.read(limit);
                    }
                    Step::Write(output, limit) => world.write(output % 2, limit),
                    Step::Close(output) => world.core.close(output % 2),
                    Step::Cut(source) => world.cut(source % world.files.len()),
                    Step::Draw => world.core.draw(0, 40),
                    Step::Status(seconds) => world.core.set_status(0, &format!("running {seconds} s")),
                }
                // Bounded: the high water mark, a chunk, and prefixes and resets of at most seven bytes for each byte of it.
                prop_assert!((0..2).all(|output| world.core.pending(output).len() <= HIGH_WATER + 900_000));
            }
            loop {
                world.write(0, usize::MAX);
                world.write(1, usize::MAX);
                if !world.read(usize::MAX / 2) {
                    break;
                }
            }
            for source in 0..world.files.len() {
                world.core.finish_line(source);
            }
            world.core.clear_status(0);
            world.write(0, usize::MAX);
            world.write(1, usize::MAX);

            world.shown[0] = without_rows(&world.shown[0]);
            let mut total = [0; 2];
            for (number, CoreSource { output, shape, .. }) in sources.into_iter().enumerate() {
                // What was read before each cut, as lines of its own, and what is there now.
                let parts = world.cut[number].iter().chain([&world.files[number]]);
                let want = parts.flat_map(|part| model(part, &prefix(number), &shape)).collect::<Vec<u8>>();
                total[output] += want.len();
                let got = lines_of(&world.shown[output], number);
                if world.core.is_closed(output) {
                    // Cut where the console went away, perhaps in the middle of a line, but nothing else.
                    prop_assert!(want.starts_with(&got));
                } else {
                    prop_assert!(got == want, "source {number}");
                }
            }
            for (output, total) in total.into_iter().enumerate() {
                prop_assert!(world.core.is_closed(output) || world.shown[output].len() == total);
            }
        }
    }

    #[test]
    fn a_rank_that_always_has_more_does_not_starve_the_others() {
        let mut core = plain(&[0, 0, 0]);
        (0..3).for_each(|source| core.mark_dirty(source));
        let turns: Vec<_> = (0..6).map(|_| core.next_source()).collect();
        assert_eq!(turns, [0, 1, 2, 0, 1, 2].map(Some));
    }

    #[test]
    fn a_full_output_stops_its_own_sources_only_and_they_go_on_where_they_stopped() {
        let mut core = plain(&[0, 1, 0]);
        (0..3).for_each(|source| core.mark_dirty(source));
        assert_eq!(core.next_source(), Some(0));
        core.feed(0, &[b'\n'; HIGH_WATER], || SystemTime::UNIX_EPOCH);
        assert_eq!((core.next_source(), core.next_source()), (Some(1), Some(1)));
        core.mark_clean(1);
        assert_eq!((core.next_source(), core.has_work()), (None, false));
        core.wrote(0, 1);
        assert_eq!(core.next_source(), Some(2));
    }

    #[test]
    fn a_closed_output_takes_nothing_and_holds_nothing() {
        let mut core = plain(&[0]);
        core.mark_dirty(0);
        core.feed(0, b"a\n", || SystemTime::UNIX_EPOCH);
        core.close(0);
        core.feed(0, b"b\n", || SystemTime::UNIX_EPOCH);
        assert_eq!(core.pending(0), b"");
        assert_eq!(core.next_source(), None);
    }
    #[test]
    fn a_source_is_not_read_before_its_process_is_known() {
        let pid: crate::PrefixTemplate = "${pid}:".parse().unwrap();
        let values = crate::PrefixValues { role_name: "", local_rank: 0, rank: "", hostname: "", stream: "" };
        let mut core =
            TailCore::new(vec![CoreSource { prefix: pid.prefix(values), ..source(0, 1, Shape::default()) }], &LIVE);
        core.mark_dirty(0);
        assert_eq!((core.next_source(), core.has_work()), (None, false));
        core.set_pid(0, Some(42));
        assert_eq!((core.next_source(), core.has_work()), (Some(0), true));
        core.feed(0, b"a\n", || SystemTime::UNIX_EPOCH);
        assert_eq!(core.pending(1), b"42:a\n");
    }

    #[test]
    fn each_chunk_has_its_time() {
        let time: crate::PrefixTemplate = "${time} ".parse().unwrap();
        let values = crate::PrefixValues { role_name: "", local_rank: 0, rank: "", hostname: "", stream: "" };
        let mut core =
            TailCore::new(vec![CoreSource { prefix: time.prefix(values), ..source(0, 1, Shape::default()) }], &LIVE);
        for second in [1, 2] {
            core.feed(0, b"a\n", || SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(second));
        }
        assert_eq!(core.pending(1), b"1970-01-01T00:00:01.000Z a\n1970-01-01T00:00:02.000Z a\n");
    }

    #[test]
    fn the_newest_frame_lives_in_the_last_row_until_a_line_takes_its_place() {
        let frames = Shape { frames: true, ..Shape::default() };
        let mut core = TailCore::new(vec![source(0, 0, frames.clone()), source(1, 0, frames)], &LIVE);
        let now = || SystemTime::UNIX_EPOCH;
        let take = |core: &mut TailCore| {
            let taken = core.pending(0).escape_ascii().to_string();
            core.wrote(0, core.pending(0).len());
            taken
        };
        core.feed(0, b"\r10%\r20%", now);
        assert!(core.wants_draw(0));
        core.draw(0, 80);
        assert!(!core.wants_draw(0), "nothing is drawn while something waits to be written");
        assert_eq!(take(&mut core), "\\x1b[K<0>20%\\r");
        core.feed(1, b"line\n", now);
        assert_eq!(take(&mut core), "\\x1b[K<1>line\\n");
        core.draw(0, 80);
        assert_eq!(take(&mut core), "\\x1b[K<0>20%\\r");
        core.feed(0, b"\r100%\n", now);
        assert_eq!(take(&mut core), "\\x1b[K<0>100%\\n");
        assert!(!core.wants_draw(0));
        core.feed(1, b"half a line", now);
        assert!(!core.wants_draw(0), "an unfinished line is no frame");
    }
}
