//! Numbered lines of known content, and the proof that each came whole, once and in its rank's order: [`write_lines`],
//! [`LineChecker`].

use std::io::Write;

use crate::error::{BenchError, os};

/// How long a line is, its newline counted.
pub const LINE: usize = 100;

/// Where the number stands in a line, and how many digits it has.
const NUMBER: std::ops::Range<usize> = 7..17;

/// A line of a rank with number 0: `r0003 n0000000000 ...`.
fn first_line(rank: usize) -> [u8; LINE] {
    let mut line = [b'.'; LINE];
    line[..NUMBER.end].copy_from_slice(format!("r{rank:04} n{:010}", 0).as_bytes());
    line[NUMBER.end] = b' ';
    line[LINE - 1] = b'\n';
    line
}

/// Counts the number of a line up by one.
fn count_up(line: &mut [u8; LINE]) {
    for digit in line[NUMBER].iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            return;
        }
        *digit = b'0';
    }
}

/// Writes a rank's lines from number 0 on, `piece` bytes with each write.
///
/// # Errors
/// [`BenchError::Os`].
pub fn write_lines(mut out: impl Write, rank: usize, count: usize, piece: usize) -> Result<(), BenchError> {
    let mut line = first_line(rank);
    let mut buffer = Vec::with_capacity(piece + LINE);
    for _ in 0..count {
        buffer.extend_from_slice(&line);
        count_up(&mut line);
        if buffer.len() >= piece {
            out.write_all(&buffer[..piece]).map_err(os("write lines"))?;
            buffer.drain(..piece);
        }
    }
    out.write_all(&buffer).map_err(os("write lines"))
}

/// Checks the bytes of a console.
#[derive(Debug)]
pub struct LineChecker {
    /// What stands before a line of each rank.
    prefixes: Vec<Vec<u8>>,
    /// The line that is to come next of each rank.
    next: Vec<[u8; LINE]>,
    counts: Vec<usize>,
    /// The beginning of a line whose end has not come.
    rest: Vec<u8>,
}

impl LineChecker {
    /// For lines of so many ranks, each with its prefix; the prefix of one must not begin that of another.
    #[must_use]
    pub fn new(ranks: usize, prefix: impl Fn(usize) -> String) -> Self {
        Self {
            prefixes: (0..ranks).map(|rank| prefix(rank).into_bytes()).collect(),
            next: (0..ranks).map(first_line).collect(),
            counts: vec![0; ranks],
            rest: Vec::new(),
        }
    }

    /// How many lines have come.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.counts.iter().sum()
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`BenchError::Unexpected`] for the first line that is torn, lost, doubled, or of somebody else.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), BenchError> {
        let mut bytes = bytes;
        if !self.rest.is_empty() {
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                self.rest.extend_from_slice(bytes);
                return Ok(());
            };
            let mut line = std::mem::take(&mut self.rest);
            line.extend_from_slice(&bytes[..=end]);
            self.line(&line)?;
            line.clear();
            self.rest = line;
            bytes = &bytes[end + 1..];
        }
        // Where a line has the length that it must have, its newline need not be looked for.
        while let Some(line) = self.whole(bytes) {
            self.line(&bytes[..line])?;
            bytes = &bytes[line..];
        }
        self.rest.extend_from_slice(bytes);
        Ok(())
    }

    fn whole(&self, bytes: &[u8]) -> Option<usize> {
        let likely = self.prefixes[0].len() + LINE;
        match bytes.get(likely - 1) {
            Some(b'\n') => Some(likely),
            _ => bytes.iter().position(|byte| *byte == b'\n').map(|end| end + 1),
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), BenchError> {
        let start = line.len().checked_sub(LINE);
        let rank = start.and_then(|start| std::str::from_utf8(&line[start + 1..start + 5]).ok()?.parse::<usize>().ok());
        if let (Some(start), Some(rank)) = (start, rank)
            && rank < self.next.len()
            && line[start..] == self.next[rank]
            && line[..start] == self.prefixes[rank]
        {
            self.counts[rank] += 1;
            count_up(&mut self.next[rank]);
            return Ok(());
        }
        Err(BenchError::Unexpected(format!("after {} lines: {:?}", self.lines(), String::from_utf8_lossy(line))))
    }

    /// Says whether each rank's lines have all come, and nothing else.
    ///
    /// # Errors
    /// [`BenchError::Unexpected`].
    pub fn finish(&self, count: usize) -> Result<(), BenchError> {
        if !self.rest.is_empty() {
            return Err(BenchError::Unexpected(format!("half a line: {:?}", String::from_utf8_lossy(&self.rest))));
        }
        match self.counts.iter().position(|got| *got != count) {
            Some(rank) => {
                let got = self.counts[rank];
                Err(BenchError::Unexpected(format!("rank {rank}: {got} lines came, {count} were written")))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(rank: usize, count: usize, piece: usize) -> Vec<u8> {
        let mut out = Vec::new();
        write_lines(&mut out, rank, count, piece).unwrap();
        out
    }

    fn prefixed(rank: usize, count: usize) -> Vec<Vec<u8>> {
        let bytes = lines(rank, count, 8192);
        bytes.chunks(LINE).map(|line| [format!("[{rank}]:").as_bytes(), line].concat()).collect()
    }

    fn check(bytes: &[u8], chunk: usize, count: usize) -> Result<(), BenchError> {
        let mut checker = LineChecker::new(2, |rank| format!("[{rank}]:"));
        bytes.chunks(chunk).try_for_each(|chunk| checker.push(chunk))?;
        checker.finish(count)
    }

    #[test]
    fn lines_are_the_same_however_they_are_written() {
        assert_eq!(lines(3, 1000, 8192), lines(3, 1000, LINE));
        let text = String::from_utf8(lines(3, 12, 1)).unwrap();
        assert!(text.lines().last().unwrap().starts_with("r0003 n0000000011 ..."), "{text}");
    }

    #[test]
    fn lines_of_ranks_among_each_other_pass_in_any_chunks() {
        let both: Vec<u8> =
            prefixed(0, 50).into_iter().zip(prefixed(1, 50)).flat_map(|(a, b)| [a, b].concat()).collect();
        for chunk in [1, 7, 104, 4096, 100_000] {
            check(&both, chunk, 50).unwrap();
        }
    }

    #[test]
    fn a_line_that_is_torn_lost_doubled_or_anothers_does_not_pass() {
        let good = || [prefixed(0, 5), prefixed(1, 5)].concat();
        type Change = fn(&mut Vec<Vec<u8>>);
        let changes: [Change; 6] = [
            |lines| drop(lines.remove(2)),
            |lines| drop(lines.pop()),
            |lines| lines.insert(3, lines[2].clone()),
            |lines| lines.swap(1, 2),
            |lines| lines[1].truncate(50),
            |lines| lines[1][1] = b'1',
        ];
        for (i, change) in changes.into_iter().enumerate() {
            let mut lines = good();
            change(&mut lines);
            assert!(check(&lines.concat(), 64, 5).is_err(), "change {i}");
        }
    }
}
