//! Holes in files: freeing the beginning of one, finding where its bytes begin. Not here: when (`limit`).

use std::fs::File;
use std::ops::Range;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::unistd::{Whence, lseek};

/// Gives the disk blocks of a part of the file back; its length and all offsets stay, the part reads as NUL bytes.
pub(crate) fn punch(file: &File, range: Range<u64>) -> Result<(), Errno> {
    let number = |n: u64| i64::try_from(n).map_err(|_| Errno::EFBIG);
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(file, flags, number(range.start)?, number(range.end.saturating_sub(range.start))?)
}

/// Where the first bytes at or after `offset` are that are not in a hole; the file's length if there are none.
///
/// `offset` where the file system cannot say. Moves the file's own offset.
pub(crate) fn data_from(file: &File, offset: u64) -> u64 {
    let Ok(start) = i64::try_from(offset) else { return offset };
    match lseek(file, start, Whence::SeekData) {
        Ok(data) => u64::try_from(data).unwrap_or(offset),
        // Nothing but a hole from there on, or the end.
        Err(Errno::ENXIO) => file.metadata().map_or(offset, |meta| meta.len().max(offset)),
        Err(_) => offset,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_freed_beginning_takes_no_blocks_and_is_skipped() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![b'x'; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        assert_eq!(data_from(&file, 0), 0);
        assert_eq!(data_from(&file, 7), 7);
        match punch(&file, 0..(1 << 20) - 65_536) {
            Ok(()) => {}
            Err(Errno::EOPNOTSUPP) => return eprintln!("skipped: no holes in files on this file system"),
            Err(errno) => panic!("{errno}"),
        }
        let meta = file.metadata().unwrap();
        assert_eq!(meta.len(), 1 << 20);
        assert!(meta.blocks() * 512 <= 2 * 65_536, "{} blocks", meta.blocks());
        assert_eq!(data_from(&file, 0), (1 << 20) - 65_536);
        assert_eq!(data_from(&file, 1 << 20), 1 << 20);
        punch(&file, 0..1 << 20).unwrap();
        assert_eq!(data_from(&file, 0), 1 << 20);
    }
}
