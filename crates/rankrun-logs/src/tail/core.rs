//! The pure core of the tail engine: bytes of sources in, whole lines of outputs out, and who is read next.
//!
//! Not here: files, consoles, threads, clocks. The engine feeds it and carries out what it says.

use crate::splitter::LineSplitter;

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

#[derive(Debug)]
struct Source {
    splitter: LineSplitter,
    prefix: Vec<u8>,
    output: usize,
    dirty: bool,
}

#[derive(Debug, Default)]
struct Output {
    pending: Vec<u8>,
    written: usize,
    closed: bool,
    sources: Vec<usize>,
    /// Where among `sources` the next turn begins.
    turn: usize,
}

impl Output {
    fn takes_more(&self) -> bool {
        !self.closed && self.pending.len() - self.written < HIGH_WATER
    }

    /// The buffer to append to; what was written is dropped first, once that is most of it.
    fn buffer(&mut self) -> &mut Vec<u8> {
        if self.written * 2 > self.pending.len() {
            self.pending.drain(..self.written);
            self.written = 0;
        }
        &mut self.pending
    }
}

impl TailCore {
    /// A core with `outputs` outputs and, for each source, its prefix and its output.
    pub(crate) fn new(sources: Vec<(Vec<u8>, usize)>, outputs: usize) -> Self {
        let mut core = Self { sources: Vec::new(), outputs: (0..outputs).map(|_| Output::default()).collect() };
        for (i, (prefix, output)) in sources.into_iter().enumerate() {
            core.outputs[output].sources.push(i);
            core.sources.push(Source { splitter: LineSplitter::new(), prefix, output, dirty: false });
        }
        core
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
                if self.sources[source].dirty {
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
            .any(|output| output.takes_more() && output.sources.iter().any(|source| self.sources[*source].dirty))
    }

    /// Takes the next bytes of a source.
    pub(crate) fn feed(&mut self, source: usize, chunk: &[u8]) {
        let source = &mut self.sources[source];
        let output = &mut self.outputs[source.output];
        if !output.closed {
            source.splitter.push(chunk, &source.prefix, output.buffer());
        }
    }

    /// Ends a source's unfinished line, at the end or where the file was cut.
    pub(crate) fn finish_line(&mut self, source: usize) {
        let source = &mut self.sources[source];
        let output = &mut self.outputs[source.output];
        if !output.closed {
            source.splitter.finish(&source.prefix, output.buffer());
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
    use crate::splitter::model;

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
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let byte = prop_oneof![3 => any::<u8>(), 1 => Just(b'\n')];
        let bytes = prop_oneof![
            9 => prop::collection::vec(byte, 0..40),
            1 => (0..3 * HIGH_WATER).prop_map(|n| vec![b'x'; n]),
        ];
        let step = prop_oneof![
            40 => (any::<usize>(), bytes).prop_map(|(source, bytes)| Step::Append(source, bytes)),
            30 => (1..100_000_usize).prop_map(Step::Read),
            30 => (any::<usize>(), 0..100_000_usize).prop_map(|(output, n)| Step::Write(output, n)),
            1 => any::<usize>().prop_map(Step::Close),
        ];
        prop::collection::vec(step, 0..80)
    }

    /// Files and consoles in memory around a core.
    struct World {
        core: TailCore,
        files: Vec<Vec<u8>>,
        read: Vec<usize>,
        shown: Vec<Vec<u8>>,
    }

    impl World {
        fn new(outputs_of: &[usize], outputs: usize) -> Self {
            let sources = outputs_of.iter().enumerate().map(|(i, o)| (prefix(i), *o)).collect();
            Self {
                core: TailCore::new(sources, outputs),
                files: vec![Vec::new(); outputs_of.len()],
                read: vec![0; outputs_of.len()],
                shown: vec![Vec::new(); outputs],
            }
        }

        fn read(&mut self, limit: usize) -> bool {
            let Some(source) = self.core.next_source() else {
                assert!(!self.core.has_work());
                return false;
            };
            let start = self.read[source];
            let end = self.files[source].len().min(start + limit);
            self.core.feed(source, &self.files[source][start..end]);
            self.read[source] = end;
            if end == self.files[source].len() {
                self.core.mark_clean(source);
            }
            true
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

    /// The lines of a console that begin with a source's prefix; what the source wrote stands behind a prefix.
    fn lines_of(shown: &[u8], source: usize) -> Vec<u8> {
        shown
            .split_inclusive(|byte| *byte == b'\n')
            .filter(|line| line.starts_with(&prefix(source)))
            .flatten()
            .copied()
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn each_line_is_shown_once_whole_prefixed_and_in_its_ranks_order(
            outputs_of in prop::collection::vec(0..2_usize, 1..5),
            steps in steps(),
        ) {
            let mut world = World::new(&outputs_of, 2);
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
                }
                // Bounded: the high water mark, a chunk, and prefixes of at most three bytes for each byte of it.
                prop_assert!((0..2).all(|output| world.core.pending(output).len() <= HIGH_WATER + 500_000));
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
            world.write(0, usize::MAX);
            world.write(1, usize::MAX);

            let mut total = [0; 2];
            for (source, output) in outputs_of.iter().copied().enumerate() {
                let want = model(&world.files[source], &prefix(source));
                total[output] += want.len();
                let got = lines_of(&world.shown[output], source);
                if world.core.is_closed(output) {
                    // Cut where the console went away, perhaps in the middle of a line, but nothing else.
                    prop_assert!(want.starts_with(&got));
                } else {
                    prop_assert!(got == want, "source {source}");
                }
            }
            for (output, total) in total.into_iter().enumerate() {
                prop_assert!(world.core.is_closed(output) || world.shown[output].len() == total);
            }
        }
    }

    #[test]
    fn a_rank_that_always_has_more_does_not_starve_the_others() {
        let mut core = TailCore::new(vec![(vec![], 0), (vec![], 0), (vec![], 0)], 1);
        (0..3).for_each(|source| core.mark_dirty(source));
        let turns: Vec<_> = (0..6).map(|_| core.next_source()).collect();
        assert_eq!(turns, [0, 1, 2, 0, 1, 2].map(Some));
    }

    #[test]
    fn a_full_output_stops_its_own_sources_only_and_they_go_on_where_they_stopped() {
        let mut core = TailCore::new(vec![(vec![], 0), (vec![], 1), (vec![], 0)], 2);
        (0..3).for_each(|source| core.mark_dirty(source));
        assert_eq!(core.next_source(), Some(0));
        core.feed(0, &[b'\n'; HIGH_WATER]);
        assert_eq!((core.next_source(), core.next_source()), (Some(1), Some(1)));
        core.mark_clean(1);
        assert_eq!((core.next_source(), core.has_work()), (None, false));
        core.wrote(0, 1);
        assert_eq!(core.next_source(), Some(2));
    }

    #[test]
    fn a_closed_output_takes_nothing_and_holds_nothing() {
        let mut core = TailCore::new(vec![(vec![], 0)], 1);
        core.mark_dirty(0);
        core.feed(0, b"a\n");
        core.close(0);
        core.feed(0, b"b\n");
        assert_eq!(core.pending(0), b"");
        assert_eq!(core.next_source(), None);
    }
}
