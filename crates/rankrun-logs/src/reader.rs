//! Reading a log file from its start while it may grow, be freed at its beginning, or be cut: [`LogReader`]. Not here: when
//! to read (`run_tail`), what is shown where bytes are missing (`gap`).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::gap::GappedLines;
use crate::lines::Shape;
use crate::sparse::data_from;
use crate::tail::trail::{Found, KEPT, Trail};

/// How much is read at once, in bytes.
pub(crate) const CHUNK: usize = 64 * 1024;

/// Room for a chunk and what is read once more before it.
pub(crate) fn buffer() -> Box<[u8]> {
    vec![0; CHUNK + KEPT].into()
}

/// One file, which stays the same when it is renamed or replaced.
#[derive(Debug)]
pub(crate) struct LogReader {
    file: File,
    offset: u64,
    trail: Trail,
    lines: GappedLines,
}

impl LogReader {
    pub(crate) fn open(path: &Path, shape: Shape) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, offset: 0, trail: Trail::new(), lines: GappedLines::new(shape) })
    }

    /// Its length now.
    pub(crate) fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    pub(crate) fn lines(&mut self) -> &mut GappedLines {
        &mut self.lines
    }

    pub(crate) fn shown(&self) -> &GappedLines {
        &self.lines
    }

    /// Reads one chunk, nothing beyond `end`, and appends the lines that are complete; `false` at the end.
    pub(crate) fn read(&mut self, end: u64, buffer: &mut [u8], prefix: &[u8], out: &mut Vec<u8>) -> io::Result<bool> {
        let again = self.trail.len();
        let wanted = usize::try_from(end.saturating_sub(self.offset)).unwrap_or(CHUNK).min(CHUNK);
        let count = match self.file.read_at(&mut buffer[..again + wanted], self.offset - again as u64) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error),
        };
        let new = match self.trail.find(&buffer[..count]) {
            Found::Next(new) if !new.is_empty() => new,
            Found::Other => return Ok(self.start_again(prefix, out)),
            _ if self.length()? < self.offset => return Ok(self.start_again(prefix, out)),
            Found::Next(_) => return Ok(false),
            // It has grown to where it was meanwhile.
            Found::Short => return Ok(true),
        };
        // Asked after the read: what is there now was there then, as beginnings are freed and nothing else.
        let data = data_from(&self.file, self.offset).min(end.max(self.offset));
        if data > self.offset {
            self.lines.skip(data - self.offset);
            (self.offset, self.trail) = (data, Trail::new());
            return Ok(true);
        }
        self.lines.push(new, prefix, out);
        self.offset += new.len() as u64;
        self.trail.follow(&buffer[..count]);
        Ok(true)
    }

    fn start_again(&mut self, prefix: &[u8], out: &mut Vec<u8>) -> bool {
        self.lines.start_again(prefix, out);
        (self.offset, self.trail) = (0, Trail::new());
        true
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use nix::errno::Errno;

    use super::*;
    use crate::limit::dropped;
    use crate::sparse::punch;

    const ALL: u64 = u64::MAX;

    struct World {
        _dir: tempfile::TempDir,
        writer: File,
        reader: LogReader,
        out: Vec<u8>,
    }

    impl World {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("stdout.log");
            let writer = crate::open_log(&path).unwrap();
            let reader = LogReader::open(&path, Shape::default()).unwrap();
            Self { _dir: dir, writer, reader, out: Vec::new() }
        }

        fn write(&mut self, text: &str) {
            self.writer.write_all(text.as_bytes()).unwrap();
        }

        fn read(&mut self) -> String {
            let mut buffer = buffer();
            while self.reader.read(ALL, &mut buffer, b"", &mut self.out).unwrap() {}
            String::from_utf8(std::mem::take(&mut self.out)).unwrap()
        }
    }

    fn numbers(range: std::ops::Range<usize>) -> String {
        range.map(|i| format!("line {i}\n")).collect()
    }

    #[test]
    fn what_was_freed_before_it_was_read_is_counted_and_lines_stay_whole() {
        let mut world = World::new();
        world.write(&numbers(0..1000));
        world.write("unfini");
        assert_eq!(world.read(), numbers(0..1000));
        let (before, unfinished) = (numbers(0..1000).len(), "unfini".len());
        world.write("shed\n");
        world.write(&numbers(1000..50_000));
        match punch(&world.writer, 0..256 * 1024) {
            Ok(()) => {}
            Err(Errno::EOPNOTSUPP) => return eprintln!("skipped: no holes in files on this file system"),
            Err(errno) => panic!("{errno}"),
        }
        let text = world.read();
        let (mark, rest) = text.split_at(text.find('\n').unwrap() + 1);
        assert!(rest.starts_with("line ") && rest.ends_with("line 49999\n"), "{mark}");
        assert!(numbers(0..50_000).ends_with(rest));
        let all = before + unfinished + "shed\n".len() + numbers(1000..50_000).len();
        assert_eq!(mark, dropped((all - before - rest.len()) as u64));
    }

    #[test]
    fn a_file_that_was_replaced_by_its_end_is_read_as_it_was() {
        let mut world = World::new();
        world.write("one\ntwo\n");
        assert_eq!(world.read(), "one\ntwo\n");
        world.write("three\n");
        let path = world._dir.path().join("stdout.log");
        let kept = world._dir.path().join("kept");
        fs::write(&kept, dropped(8) + "three\n").unwrap();
        fs::rename(kept, path).unwrap();
        assert_eq!(world.read(), "three\n");
    }

    #[test]
    fn a_file_that_was_cut_is_read_from_its_start_also_when_it_has_outgrown_what_was_read() {
        for new in ["new\n", "a new line that is longer\n"] {
            let mut world = World::new();
            world.write("one\ntwo\n");
            assert_eq!(world.read(), "one\ntwo\n");
            world.writer.set_len(0).unwrap();
            world.write(new);
            assert_eq!(world.read(), format!("[rankrun: the file was cut, bytes may be missing]\n{new}"));
        }
    }
}
