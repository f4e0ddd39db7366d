//! The two memory files between a launcher and a worker: arguments and what they are for ([`ArgumentsFile`]), and the
//! return value ([`ResultFile`]). Not here: how a value is written (`codec`).
//!
//! A file has no end to be waited for and no size that it could block at: whoever dies leaves what is there. A worker says
//! in the header how far it is; only a header that says [`State::Returned`], written last, makes a return value.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::codec::{self, Encoding};

/// First in each file: what it is, and the version of its form.
const ARGUMENTS_MAGIC: u64 = u64::from_le_bytes(*b"rr-args1");
const RESULT_MAGIC: u64 = u64::from_le_bytes(*b"rr-rslt1");

/// How much of a file is read at a time where it is freed as it is read.
const PIECE: usize = 8 << 20;

/// A part of a file that holds a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) encoding: Encoding,
}

impl Span {
    /// The form for a [`rankrun_process::Handover`]'s note.
    pub(crate) fn to_note(self) -> String {
        format!("{}:{}:{}", self.offset, self.len, self.encoding as u64)
    }

    pub(crate) fn from_note(note: &str) -> Option<Self> {
        let mut numbers = note.split(':').map(|number| number.parse::<u64>().ok());
        let span = Self {
            offset: numbers.next()??,
            len: numbers.next()??,
            encoding: Encoding::from_number(numbers.next()??)?,
        };
        numbers.next().is_none().then_some(span)
    }
}

/// What a worker is to run; what it takes and gives is said so that two builds of a program do not mistake each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) function: String,
    pub(crate) arguments: String,
    pub(crate) value: String,
    pub(crate) build: u64,
}

fn memfd(name: &str) -> io::Result<File> {
    Ok(memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?.into())
}

/// Reads the whole span, and frees the pieces of it that have been read if `free`.
pub(crate) fn read(file: &File, span: Span, free: bool) -> io::Result<Vec<u8>> {
    let len = usize::try_from(span.len).map_err(|_| io::ErrorKind::OutOfMemory)?;
    // What is not there is not to be made room for.
    if span.offset.checked_add(span.len).is_none_or(|end| file.metadata().is_ok_and(|file| file.len() < end)) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut bytes = vec![0; len];
    let mut offset = span.offset;
    for piece in bytes.chunks_mut(PIECE) {
        file.read_exact_at(piece, offset)?;
        if free && let (Ok(from), Ok(len)) = (offset.try_into(), piece.len().try_into()) {
            // Where that cannot be done, it is freed later.
            let _ =
                fallocate(file, FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE, from, len);
        }
        offset += piece.len() as u64;
    }
    Ok(bytes)
}

/// The assignment and the arguments of all workers; written by the launcher, then read only.
#[derive(Debug)]
pub(crate) struct ArgumentsFile(File);

impl ArgumentsFile {
    pub(crate) fn new(assignment: &Assignment) -> io::Result<Self> {
        let mut file = memfd("rankrun-arguments")?;
        let mut text = Vec::new();
        codec::encode(assignment, &mut text).map_err(io::Error::other)?;
        file.write_all(&ARGUMENTS_MAGIC.to_le_bytes())?;
        file.write_all(&(text.len() as u64).to_le_bytes())?;
        file.write_all(&text)?;
        Ok(Self(file))
    }

    /// Adds arguments and says where they are; the reason if they cannot be written.
    pub(crate) fn add<A: Serialize + 'static>(&mut self, arguments: &A) -> Result<Span, String> {
        let offset = self.0.stream_position().map_err(|error| error.to_string())?;
        let encoding = codec::encode(arguments, &mut self.0)?;
        let end = self.0.stream_position().map_err(|error| error.to_string())?;
        Ok(Span { offset, len: end - offset, encoding })
    }

    /// Makes it unchangeable.
    pub(crate) fn seal(self) -> io::Result<OwnedFd> {
        let all = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&self.0, FcntlArg::F_ADD_SEALS(all))?;
        Ok(self.0.into())
    }

    /// The file as a worker is handed it.
    pub(crate) fn open(fd: OwnedFd) -> Self {
        Self(fd.into())
    }

    pub(crate) fn assignment(&self) -> Result<Assignment, String> {
        let mut head = [0; 16];
        self.0.read_exact_at(&mut head, 0).map_err(|error| error.to_string())?;
        let [magic, len] = [0, 8].map(|at| number_at(&head, at));
        if magic != ARGUMENTS_MAGIC {
            return Err("it is of another version of rankrun".to_owned());
        }
        let span = Span { offset: 16, len, encoding: Encoding::MessagePack };
        codec::decode(span.encoding, read(&self.0, span, false).map_err(|error| error.to_string())?)
    }

    pub(crate) fn arguments<A: DeserializeOwned + 'static>(&self, span: Span) -> Result<A, String> {
        codec::decode(span.encoding, read(&self.0, span, false).map_err(|error| error.to_string())?)
    }
}

fn number_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

/// How far a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It has not taken its function yet.
    New = 0,
    /// It has its arguments, and the function runs or is about to.
    Runs = 1,
    /// The function has returned, and its value is being written.
    Writes = 2,
    /// The value is there.
    Returned = 3,
}

const HEADER_BYTES: usize = 32;

/// How far a worker is, and where its value is once it has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) state: State,
    pub(crate) span: Option<Span>,
}

impl Header {
    fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let (len, encoding) = self.span.map_or((0, 0), |span| (span.len, span.encoding as u64));
        let mut bytes = [0; HEADER_BYTES];
        for (place, number) in bytes.chunks_mut(8).zip([RESULT_MAGIC, self.state as u64, len, encoding]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// `None` if no worker of this version has written them.
    fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let [magic, state, len, encoding] = [0, 8, 16, 24].map(|at| number_at(bytes, at));
        let state =
            [State::New, State::Runs, State::Writes, State::Returned].into_iter().find(|s| *s as u64 == state)?;
        let encoding = Encoding::from_number(encoding);
        let span = encoding.map(|encoding| Span { offset: HEADER_BYTES as u64, len, encoding });
        let fits = (state == State::Returned) == span.is_some();
        (magic == RESULT_MAGIC && fits).then_some(Self { state, span })
    }
}

/// What a worker returns; written by the worker, read by the launcher when the worker has ended.
#[derive(Debug)]
pub(crate) struct ResultFile(File);

impl ResultFile {
    pub(crate) fn new() -> io::Result<Self> {
        memfd("rankrun-result").map(Self)
    }

    /// The file as a worker is handed it.
    pub(crate) fn open(fd: OwnedFd) -> Self {
        Self(fd.into())
    }

    /// A descriptor for the worker.
    pub(crate) fn to_hand_over(&self) -> io::Result<OwnedFd> {
        Ok(self.0.try_clone()?.into())
    }

    pub(crate) fn set(&self, state: State, span: Option<Span>) -> io::Result<()> {
        self.0.write_all_at(&Header { state, span }.to_bytes(), 0)
    }

    /// Writes the value, which is not returned yet.
    pub(crate) fn write<R: Serialize + 'static>(&mut self, value: &R) -> Result<Span, String> {
        let offset = HEADER_BYTES as u64;
        self.0.seek(SeekFrom::Start(offset)).map_err(|error| error.to_string())?;
        let encoding = codec::encode(value, &mut self.0)?;
        let end = self.0.stream_position().map_err(|error| error.to_string())?;
        Ok(Span { offset, len: end - offset, encoding })
    }

    pub(crate) fn read(&self, span: Span, free: bool) -> io::Result<Vec<u8>> {
        read(&self.0, span, free)
    }

    /// What the worker has said.
    pub(crate) fn header(&self) -> Header {
        let mut bytes = [0; HEADER_BYTES];
        let new = Header { state: State::New, span: None };
        match self.0.read_exact_at(&mut bytes, 0) {
            Ok(()) => Header::from_bytes(&bytes).unwrap_or(new),
            Err(_) => new,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_goes_through_a_note() {
        let span = Span { offset: 1 << 40, len: 0, encoding: Encoding::Bytes };
        assert_eq!(Span::from_note(&span.to_note()), Some(span));
        for note in ["", "1:2", "1:2:9", "1:2:1:", "-1:2:1", "a"] {
            assert_eq!(Span::from_note(note), None, "{note}");
        }
    }

    #[test]
    fn a_value_is_returned_only_when_the_header_says_so() {
        let mut file = ResultFile::new().unwrap();
        assert_eq!(file.header(), Header { state: State::New, span: None });
        file.set(State::Runs, None).unwrap();
        file.set(State::Writes, None).unwrap();
        let span = file.write(&"text").unwrap();
        assert_eq!(file.header(), Header { state: State::Writes, span: None });
        file.set(State::Returned, Some(span)).unwrap();
        assert_eq!(file.header(), Header { state: State::Returned, span: Some(span) });
        assert_eq!(codec::decode(span.encoding, file.read(span, true).unwrap()), Ok("text".to_owned()));
    }

    #[test]
    fn a_header_that_nobody_wrote_is_none() {
        let good =
            Header { state: State::Returned, span: Some(Span { offset: 32, len: 7, encoding: Encoding::Bytes }) };
        assert_eq!(Header::from_bytes(&good.to_bytes()), Some(good));
        for (at, byte) in [(0, 0), (8, 9), (8, 1), (24, 0), (24, 3)] {
            let mut bytes = good.to_bytes();
            bytes[at] = byte;
            assert_eq!(Header::from_bytes(&bytes), None, "{at} {byte}");
        }
    }

    #[test]
    fn a_span_beyond_the_end_is_refused_before_memory_is_asked_for() {
        let file = ResultFile::new().unwrap();
        file.set(State::Runs, None).unwrap();
        for (offset, len) in [(32, u64::MAX), (32, 1 << 45), (32, 1)] {
            let span = Span { offset, len, encoding: Encoding::Bytes };
            assert_eq!(file.read(span, false).unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{len}");
        }
    }

    #[test]
    fn sealed_arguments_cannot_be_changed() {
        let assignment =
            Assignment { function: "f".to_owned(), arguments: "u8".to_owned(), value: "()".to_owned(), build: 7 };
        let mut file = ArgumentsFile::new(&assignment).unwrap();
        let spans = [file.add(&vec![1_u8, 2]).unwrap(), file.add(&"x").unwrap(), file.add(&()).unwrap()];
        let file = File::from(file.seal().unwrap());
        assert!(file.write_all_at(b"x", 0).is_err() && file.set_len(0).is_err());
        let file = ArgumentsFile(file);
        assert_eq!(file.assignment(), Ok(assignment));
        assert_eq!(file.arguments(spans[0]), Ok(vec![1_u8, 2]));
        assert_eq!(file.arguments(spans[1]), Ok("x".to_owned()));
        assert_eq!(file.arguments(spans[2]), Ok(()));
        assert!(file.arguments::<u64>(spans[1]).is_err());
    }

    #[test]
    fn what_is_read_to_be_freed_is_gone_from_memory() {
        use std::os::unix::fs::MetadataExt;
        let mut file = ResultFile::new().unwrap();
        let value = vec![7_u8; 2 * PIECE + 5];
        let span = file.write(&value).unwrap();
        assert!(file.0.metadata().unwrap().blocks() * 512 >= value.len() as u64);
        assert_eq!(file.read(span, true).unwrap(), value);
        assert!(file.0.metadata().unwrap().blocks() * 512 <= 16 << 10, "all but the edges");
    }
}
