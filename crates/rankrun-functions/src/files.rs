//! The two memory files between a launcher and a worker: arguments and what they are for ([`ArgumentsFile`]), and the
//! return value ([`ResultFile`]). Not here: how a value is written (`codec`).
//!
//! A file has no end to be waited for and no size that it could block at: whoever dies leaves what is there. A worker says
//! in the header how far it is; only a header that says [`State::Returned`], written last, makes a return value.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::codec::{self, Encoding};
use crate::value_error::ValueError;

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

/// Writes to a file from a place on, and never beyond what the process may write: the kernel would end it by SIGXFSZ.
struct Out<'a> {
    file: &'a File,
    at: u64,
    limit: u64,
}

impl<'a> Out<'a> {
    fn new(file: &'a File, at: u64) -> io::Result<Self> {
        let (limit, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
        Ok(Self { file, at, limit })
    }
}

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.at.saturating_add(bytes.len() as u64) > self.limit {
            return Err(io::Error::other(ValueError::FileSizeLimit { limit: self.limit }));
        }
        let written = self.file.write_at(bytes, self.at)?;
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a value and says where it is.
fn write<T: Serialize + 'static>(file: &File, offset: u64, value: &T) -> Result<Span, ValueError> {
    let mut out = Out::new(file, offset)?;
    let encoding = codec::encode(value, &mut out)?;
    Ok(Span { offset, len: out.at - offset, encoding })
}

/// Reads the whole span, and frees the pieces of it that have been read if `free`.
pub(crate) fn read(file: &File, span: Span, free: bool) -> Result<Vec<u8>, ValueError> {
    let short = ValueError::Short { bytes: span.len };
    // What is not there is not to be made room for.
    if span.offset.checked_add(span.len).is_none_or(|end| file.metadata().is_ok_and(|file| file.len() < end)) {
        return Err(short);
    }
    let mut bytes = zeros(span.len)?;
    let mut offset = span.offset;
    for piece in bytes.chunks_mut(PIECE) {
        match file.read_exact_at(piece, offset) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(short),
            done => done?,
        }
        if free && let (Ok(from), Ok(len)) = (offset.try_into(), piece.len().try_into()) {
            // Where that cannot be done, it is freed later.
            let _ =
                fallocate(file, FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE, from, len);
        }
        offset += piece.len() as u64;
    }
    Ok(bytes)
}

/// So many zeros, or an error where `vec!` would end the program.
fn zeros(bytes: u64) -> Result<Vec<u8>, ValueError> {
    let no_memory = ValueError::Memory { bytes };
    let Ok(len) = usize::try_from(bytes) else { return Err(no_memory) };
    // Only asks: what is had from `vec!` is not touched until something is read into it.
    Vec::<u8>::new().try_reserve_exact(len).map_err(|_| no_memory)?;
    Ok(vec![0; len])
}

/// The assignment and the arguments of all workers; written by the launcher, then read only.
#[derive(Debug)]
pub(crate) struct ArgumentsFile {
    file: File,
    end: u64,
}

impl ArgumentsFile {
    pub(crate) fn new(assignment: &Assignment) -> Result<Self, ValueError> {
        let file = memfd("rankrun-arguments")?;
        let mut text = Vec::new();
        codec::encode(assignment, &mut text)?;
        let mut out = Out::new(&file, 0)?;
        out.write_all(&ARGUMENTS_MAGIC.to_le_bytes())?;
        out.write_all(&(text.len() as u64).to_le_bytes())?;
        out.write_all(&text)?;
        let end = out.at;
        Ok(Self { file, end })
    }

    /// Adds arguments and says where they are; the reason if they cannot be written.
    pub(crate) fn add<A: Serialize + 'static>(&mut self, arguments: &A) -> Result<Span, ValueError> {
        let span = write(&self.file, self.end, arguments)?;
        self.end += span.len;
        Ok(span)
    }

    /// Makes it unchangeable.
    pub(crate) fn seal(self) -> io::Result<OwnedFd> {
        let all = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&self.file, FcntlArg::F_ADD_SEALS(all))?;
        Ok(self.file.into())
    }

    /// The file as a worker is handed it.
    pub(crate) fn open(fd: OwnedFd) -> Self {
        Self { file: fd.into(), end: 0 }
    }

    pub(crate) fn assignment(&self) -> Result<Assignment, ValueError> {
        let mut head = [0; 16];
        self.file.read_exact_at(&mut head, 0)?;
        let [magic, len] = [0, 8].map(|at| number_at(&head, at));
        if magic != ARGUMENTS_MAGIC {
            return Err(ValueError::refused("it is of another version of rankrun"));
        }
        let span = Span { offset: 16, len, encoding: Encoding::MessagePack };
        codec::decode(span.encoding, read(&self.file, span, false)?)
    }

    pub(crate) fn arguments<A: DeserializeOwned + 'static>(&self, span: Span) -> Result<A, ValueError> {
        codec::decode(span.encoding, read(&self.file, span, false)?)
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

/// A worker cannot leave its value where it belongs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResultFileError {
    #[error("this is not the worker but a process that it has forked, which has no value to return")]
    Forked,
    #[error(
        "descriptor {fd}, which the value is returned through, was closed by the program, or is another file by now"
    )]
    Gone { fd: i32 },
    #[error("{0}")]
    Value(#[from] ValueError),
}

/// Who may write to a result file, and which file it is: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    pid: u32,
    file: (u64, u64),
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|file| (file.dev(), file.ino()))
}

/// What a worker returns; written by the worker, read by the launcher when the worker has ended.
#[derive(Debug)]
pub(crate) struct ResultFile {
    /// There until it is dropped.
    file: Option<File>,
    /// In the worker: its function may close or replace any descriptor.
    owner: Option<Owner>,
}

impl ResultFile {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { file: Some(memfd("rankrun-result")?), owner: None })
    }

    /// The file as a worker is handed it.
    pub(crate) fn open(fd: OwnedFd) -> io::Result<Self> {
        let file = File::from(fd);
        let owner = Owner { pid: std::process::id(), file: identity(&file)? };
        Ok(Self { file: Some(file), owner: Some(owner) })
    }

    /// A descriptor for the worker.
    pub(crate) fn to_hand_over(&self) -> io::Result<OwnedFd> {
        Ok(self.file()?.try_clone()?.into())
    }

    fn file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The file, if it still is the one that was handed over, and this the process that it was handed to.
    fn own(&self) -> Result<&File, ResultFileError> {
        let file = self.file().map_err(ValueError::from)?;
        match self.owner {
            Some(owner) if owner.pid != std::process::id() => Err(ResultFileError::Forked),
            Some(owner) if !identity(file).is_ok_and(|file| file == owner.file) => {
                Err(ResultFileError::Gone { fd: file.as_raw_fd() })
            }
            _ => Ok(file),
        }
    }

    pub(crate) fn set(&self, state: State, span: Option<Span>) -> Result<(), ResultFileError> {
        let mut out = Out::new(self.own()?, 0).map_err(ValueError::from)?;
        Ok(out.write_all(&Header { state, span }.to_bytes()).map_err(ValueError::from)?)
    }

    /// Writes the value, which is not returned yet.
    pub(crate) fn write<R: Serialize + 'static>(&self, value: &R) -> Result<Span, ResultFileError> {
        Ok(write(self.own()?, HEADER_BYTES as u64, value)?)
    }

    pub(crate) fn read(&self, span: Span, free: bool) -> Result<Vec<u8>, ValueError> {
        read(self.file()?, span, free)
    }

    /// What the worker has said.
    pub(crate) fn header(&self) -> Header {
        let mut bytes = [0; HEADER_BYTES];
        let new = Header { state: State::New, span: None };
        match self.file().and_then(|file| file.read_exact_at(&mut bytes, 0)) {
            Ok(()) => Header::from_bytes(&bytes).unwrap_or(new),
            Err(_) => new,
        }
    }
}

impl Drop for ResultFile {
    /// Closes the file, but not one that the program has under this number by now.
    fn drop(&mut self) {
        if let Err(ResultFileError::Gone { .. }) = self.own()
            && let Some(file) = self.file.take()
        {
            let _ = file.into_raw_fd();
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
        let file = ResultFile::new().unwrap();
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
            assert_eq!(file.read(span, false), Err(ValueError::Short { bytes: len }));
        }
    }

    #[test]
    fn a_length_that_no_memory_has_is_an_error() {
        let file = ResultFile::new().unwrap();
        // Nothing of it is there, and yet the file is as long.
        file.file().unwrap().set_len(1 << 62).unwrap();
        let span = Span { offset: 32, len: 1 << 61, encoding: Encoding::Bytes };
        assert_eq!(file.read(span, false), Err(ValueError::Memory { bytes: 1 << 61 }));
    }

    #[test]
    fn a_file_that_took_the_place_of_a_workers_own_is_left_alone() {
        let other = tempfile::tempfile().unwrap();
        other.write_all_at(b"mine", 0).unwrap();
        let file = ResultFile::open(memfd("own").unwrap().into()).unwrap();
        let fd = file.file().unwrap().as_raw_fd();
        assert_eq!(file.set(State::Runs, None), Ok(()));
        let replaced = ResultFile { file: Some(other.try_clone().unwrap()), owner: file.owner };
        let number = replaced.file().unwrap().as_raw_fd();
        let gone = Err(ResultFileError::Gone { fd: number });
        assert_eq!((replaced.set(State::Writes, None), number == fd), (gone, false));
        drop(replaced);
        assert!(std::path::Path::new(&format!("/proc/self/fd/{number}")).exists(), "it is not ours to close");
        assert_eq!(other.metadata().unwrap().len(), 4);
        let forked = Owner { pid: 1, ..file.owner.unwrap() };
        let forked = ResultFile { file: Some(file.file().unwrap().try_clone().unwrap()), owner: Some(forked) };
        assert_eq!(forked.set(State::Writes, None), Err(ResultFileError::Forked));
        assert_eq!(file.header().state, State::Runs);
    }

    #[test]
    fn sealed_arguments_cannot_be_changed() {
        let assignment =
            Assignment { function: "f".to_owned(), arguments: "u8".to_owned(), value: "()".to_owned(), build: 7 };
        let mut file = ArgumentsFile::new(&assignment).unwrap();
        let spans = [file.add(&vec![1_u8, 2]).unwrap(), file.add(&"x").unwrap(), file.add(&()).unwrap()];
        let file = File::from(file.seal().unwrap());
        assert!(file.write_all_at(b"x", 0).is_err() && file.set_len(0).is_err());
        let file = ArgumentsFile::open(file.into());
        assert_eq!(file.assignment(), Ok(assignment));
        assert_eq!(file.arguments(spans[0]), Ok(vec![1_u8, 2]));
        assert_eq!(file.arguments(spans[1]), Ok("x".to_owned()));
        assert_eq!(file.arguments(spans[2]), Ok(()));
        assert!(file.arguments::<u64>(spans[1]).is_err());
    }

    #[test]
    fn what_is_read_to_be_freed_is_gone_from_memory() {
        let file = ResultFile::new().unwrap();
        let value = vec![7_u8; 2 * PIECE + 5];
        let span = file.write(&value).unwrap();
        assert!(file.file().unwrap().metadata().unwrap().blocks() * 512 >= value.len() as u64);
        assert_eq!(file.read(span, true).unwrap(), value);
        assert!(file.file().unwrap().metadata().unwrap().blocks() * 512 <= 16 << 10, "all but the edges");
    }
}
