//! Whether this program can be executed again: [`loader`]. Not here: doing it (`call`).

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What is executed: the very file that this program was started from, even if another lies at its path by now.
pub(crate) const THIS_PROGRAM: &str = "/proc/self/exe";

/// The dynamic loader, if it was executed and this program is no more than its argument, as with `ld.so ./program`: what
/// would be executed again is the loader, without an argument.
pub(crate) fn loader() -> Option<PathBuf> {
    let executed = std::fs::read_link(THIS_PROGRAM).ok()?;
    let maps = std::fs::read("/proc/self/maps").ok()?;
    let here = mapped_at(&maps, loader as fn() -> Option<PathBuf> as usize)?;
    // Code in a library is executed again with the program that links it; a loader asks for no other loader.
    (here != executed && asks_for_loader(Path::new(THIS_PROGRAM)) == Some(false)).then_some(executed)
}

/// The file that an address is of, in the form of /proc/PID/maps.
fn mapped_at(maps: &[u8], address: usize) -> Option<&Path> {
    maps.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.splitn(6, |byte| *byte == b' ');
        let (start, end) = std::str::from_utf8(fields.next()?).ok()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let is_in = (number(start)?..number(end)?).contains(&address);
        let path = fields.nth(4).filter(|_| is_in)?.trim_ascii_start();
        Some(Path::new(OsStr::from_bytes(path)))
    })
}

/// Whether an ELF file of this machine's form has a segment that names its loader; `None` if it is no such file.
fn asks_for_loader(path: &Path) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    const ELF_64_BITS: &[u8] = b"\x7fELF\x02";
    let file = File::open(path).ok()?;
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    if !header.starts_with(ELF_64_BITS) {
        return None;
    }
    let [size, count] = [54, 56].map(|at| u16::from_ne_bytes([header[at], header[at + 1]]));
    let offset = u64::from_ne_bytes(header[32..40].try_into().ok()?);
    (0..u64::from(count)).try_fold(false, |found, at| {
        let mut kind = [0; 4];
        file.read_exact_at(&mut kind, offset.checked_add(at * u64::from(size))?).ok()?;
        Some(found || u32::from_ne_bytes(kind) == PT_INTERP)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_executed_itself_has_no_loader_in_its_way() {
        assert_eq!(loader(), None);
    }

    #[test]
    fn an_address_is_that_of_the_file_it_lies_in() {
        let maps = b"1000-2000 r-xp 00000000 08:01 7        /bin/a b\n2000-3000 rw-p 00000000 00:00 0 \n";
        assert_eq!(mapped_at(maps, 0x1fff), Some(Path::new("/bin/a b")));
        assert_eq!((mapped_at(maps, 0x2000), mapped_at(maps, 0x3000)), (Some(Path::new("")), None));
    }

    #[test]
    fn what_is_no_program_asks_for_nothing() {
        assert_eq!(asks_for_loader(Path::new("/proc/self/maps")), None);
        assert_eq!(asks_for_loader(Path::new("/nonexistent")), None);
    }
}
