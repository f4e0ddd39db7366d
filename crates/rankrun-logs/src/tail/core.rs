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
#[path = "core_tests.rs"]
mod tests;
