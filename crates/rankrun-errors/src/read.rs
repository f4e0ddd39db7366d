//! Opening and reading an error file so that nothing that may lie at its path can block or fail the reader.
//! Not here: what the text means (`schema`).

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use crate::schema::{ErrorFileData, MAX_ERROR_FILE_BYTES, UnusableErrorFile, from_bytes};
use crate::time::unix_ns;

/// How much room is made at a time for a file that grows while it is read.
const PIECE: usize = 64 << 10;

/// What was found at the path of an error file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorFileReading {
    /// There is no file: the worker wrote none.
    Absent,
    /// There is something, but nothing can be learnt from it.
    Unusable {
        /// What is wrong with it.
        why: UnusableErrorFile,
    },
    /// There is a record.
    Record(Box<ErrorFileData>),
}

/// Reads the error file at a path; never fails, never blocks on a FIFO or device, and reads at most
/// [`MAX_ERROR_FILE_BYTES`] + 1 bytes.
///
/// A symbolic link at the path itself is not followed: a worker must not be able to make its launcher show another
/// user's file.
///
/// ```
/// use rankrun_errors::{ErrorFileReading, read_error_file};
///
/// assert_eq!(read_error_file("/nonexistent/error.json".as_ref()), ErrorFileReading::Absent);
/// ```
#[must_use]
pub fn read_error_file(path: &Path) -> ErrorFileReading {
    match try_read(path) {
        Ok(data) => ErrorFileReading::Record(Box::new(data)),
        Err(UnusableErrorFile::Io { kind: io::ErrorKind::NotFound | io::ErrorKind::NotADirectory, .. }) => {
            ErrorFileReading::Absent
        }
        Err(why) => ErrorFileReading::Unusable { why },
    }
}

fn try_read(path: &Path) -> Result<ErrorFileData, UnusableErrorFile> {
    // Look before opening: to open a device can have effects, and to open a socket fails without saying why.
    check_type(path.symlink_metadata().map_err(io_error)?.file_type())?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NOCTTY)
        .open(path)
        .map_err(io_error)?;
    // And look again: the path may name something else by now.
    let metadata = file.metadata().map_err(io_error)?;
    check_type(metadata.file_type())?;
    if metadata.len() > MAX_ERROR_FILE_BYTES as u64 {
        return Err(UnusableErrorFile::TooLarge { bytes: metadata.len() });
    }
    let mut data = from_bytes(read_capped(&file, &metadata)?)?;
    data.mtime_ns = metadata.modified().ok().map(unix_ns);
    Ok(data)
}

fn read_capped(file: &File, metadata: &Metadata) -> Result<Vec<u8>, UnusableErrorFile> {
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0) + 1);
    take_capped(file, &mut bytes).map_err(io_error)?;
    if bytes.len() > MAX_ERROR_FILE_BYTES {
        return Err(UnusableErrorFile::TooLarge { bytes: bytes.len() as u64 });
    }
    Ok(bytes)
}

/// Reads to the end, but at most one byte over the cap, even if the source grows meanwhile; and holds no more than that.
fn take_capped(source: impl Read, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut source = source.take(MAX_ERROR_FILE_BYTES as u64 + 1);
    while source.limit() > 0 {
        if bytes.len() == bytes.capacity() {
            bytes.reserve_exact(PIECE);
        }
        let room = (bytes.capacity() - bytes.len()) as u64;
        if source.by_ref().take(room).read_to_end(bytes)? == 0 {
            break;
        }
    }
    Ok(())
}

fn check_type(file_type: FileType) -> Result<(), UnusableErrorFile> {
    let what = match file_type {
        regular if regular.is_file() => return Ok(()),
        dir if dir.is_dir() => "a directory",
        link if link.is_symlink() => "a symbolic link",
        fifo if fifo.is_fifo() => "a FIFO",
        socket if socket.is_socket() => "a socket",
        _ => "a device",
    };
    Err(UnusableErrorFile::NotRegular { what })
}

fn io_error(error: io::Error) -> UnusableErrorFile {
    if error.raw_os_error() == Some(libc::ELOOP) {
        return UnusableErrorFile::NotRegular { what: "a symbolic link" };
    }
    UnusableErrorFile::Io { kind: error.kind(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source without an end that counts what is taken from it.
    struct Endless(usize);

    impl Read for &mut Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.fill(b' ');
            self.0 += buffer.len();
            Ok(buffer.len())
        }
    }

    #[test]
    fn no_more_than_one_byte_over_the_cap_is_read_of_a_growing_file() {
        let mut source = Endless(0);
        let mut bytes = Vec::new();
        take_capped(&mut source, &mut bytes).unwrap();
        assert_eq!((source.0, bytes.len()), (MAX_ERROR_FILE_BYTES + 1, MAX_ERROR_FILE_BYTES + 1));
    }
}
