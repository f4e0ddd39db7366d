//! Replacing a file that is too long by its end: [`all`]. Not here: freeing the beginning of one that grows (`limit`).

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use memchr::memchr;

/// The most that is copied between two looks at the clock.
const PIECE: u64 = 8 << 20;

/// How far the start of a line is looked for before one is cut.
const LONGEST: u64 = 64 * 1024;

/// A file that is too long: where it is, and its device and inode.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) identity: (u64, u64),
}

/// Cuts each file, as long as there is time, and says what could not be done.
pub(super) fn all(files: &[File], max: u64, deadline: Instant) -> Vec<String> {
    if files.is_empty() {
        return Vec::new();
    }
    let writers = writers();
    let mut left = Vec::new();
    for File { path, identity } in files {
        let shown = path.display();
        if let Some(pid) = writers.get(identity) {
            left.push(format!("{shown} is not cut to its size: process {pid} still writes to it"));
        } else if let Err(error) = one(path, max, deadline) {
            left.push(format!("{shown} is not cut to its size: {error}"));
        }
    }
    left
}

/// The line that stands for what is not there any more.
pub(crate) fn dropped(bytes: u64) -> String {
    format!("[rankrun: {bytes} bytes dropped]\n")
}

fn one(path: &Path, max: u64, deadline: Instant) -> io::Result<()> {
    let mut file = fs::File::open(path)?;
    let meta = file.metadata()?;
    let start = kept_from(&file, meta.len(), max)?;
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut kept = tempfile::Builder::new().prefix(".rankrun_").tempfile_in(directory)?;
    kept.write_all(dropped(start).as_bytes())?;
    file.seek(SeekFrom::Start(start))?;
    loop {
        if Instant::now() >= deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "there was no time left"));
        }
        // In the kernel, from file to file.
        if io::copy(&mut (&file).take(PIECE), kept.as_file_mut())? == 0 {
            break;
        }
    }
    kept.as_file().set_permissions(meta.permissions())?;
    kept.as_file().set_modified(meta.modified()?)?;
    kept.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// From where a file of this length is kept so that with its first line it has at most `max` bytes: from the start of a
/// line, unless one is very long.
fn kept_from(file: &fs::File, length: u64, max: u64) -> io::Result<u64> {
    let from = length.saturating_sub(max) + dropped(length).len() as u64;
    // The byte before: if it ends a line, the next one is whole.
    let before = from.saturating_sub(1);
    let mut window = vec![0; usize::try_from(LONGEST.min(max / 2)).unwrap_or(0)];
    let read = file.read_at(&mut window, before)?;
    Ok(match memchr(b'\n', &window[..read]) {
        // Else nothing would be kept.
        Some(end) if before + (end as u64) + 1 < length => before + end as u64 + 1,
        _ => from,
    })
}

/// The files that processes of this host, as far as we may look, have open for writing: device and inode, and a pid.
fn writers() -> BTreeMap<(u64, u64), u32> {
    let mut writers = BTreeMap::new();
    let entries = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
    for process in entries("/proc".into()) {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        for descriptor in entries(process.path().join("fd")) {
            let Ok(meta) = fs::metadata(descriptor.path()) else { continue };
            if meta.is_file() && is_for_writing(&process.path().join("fdinfo").join(descriptor.file_name())) {
                writers.insert((meta.dev(), meta.ino()), pid);
            }
        }
    }
    writers
}

/// Whether proc_pid_fdinfo(5) says that a descriptor is open for writing.
fn is_for_writing(fdinfo: &Path) -> bool {
    let text = fs::read_to_string(fdinfo).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    // Not O_RDONLY, which is 0.
    flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).is_some_and(|flags| flags & 0o3 != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, UNIX_EPOCH};

    use proptest::prelude::*;

    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    fn file_of(text: &[u8]) -> (tempfile::TempDir, File) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stdout.log");
        fs::write(&path, text).unwrap();
        let meta = fs::metadata(&path).unwrap();
        (dir, File { path, identity: (meta.dev(), meta.ino()) })
    }

    fn lines(count: usize) -> Vec<u8> {
        (0..count).flat_map(|i| format!("line {i}\n").into_bytes()).collect()
    }

    #[test]
    fn the_end_is_kept_from_the_start_of_a_line_with_mode_and_time() {
        let text = lines(10_000);
        let (dir, file) = file_of(&text);
        fs::set_permissions(&file.path, fs::Permissions::from_mode(0o640)).unwrap();
        let opened = fs::File::options().append(true).open(&file.path).unwrap();
        opened.set_modified(UNIX_EPOCH + SOON).unwrap();
        drop(opened);
        assert_eq!(all(std::slice::from_ref(&file), 5000, Instant::now() + SOON), [""; 0]);
        let kept = fs::read(&file.path).unwrap();
        assert!(kept.len() <= 5000 && kept.len() > 4900);
        let end = memchr(b'\n', &kept).unwrap() + 1;
        assert!(text.ends_with(&kept[end..]) && kept[end..].starts_with(b"line "));
        assert_eq!(kept[..end], *dropped((text.len() - (kept.len() - end)) as u64).as_bytes());
        let meta = fs::metadata(&file.path).unwrap();
        assert_eq!((meta.mode() & 0o777, meta.modified().unwrap()), (0o640, UNIX_EPOCH + SOON));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_somebody_writes_to_is_left_as_it_is() {
        let text = lines(10_000);
        let (dir, file) = file_of(&text);
        let mut writer = crate::open_log(&file.path).unwrap();
        let left = all(std::slice::from_ref(&file), 5000, Instant::now() + SOON);
        let pid = std::process::id();
        let expected = format!("{} is not cut to its size: process {pid} still writes to it", file.path.display());
        assert_eq!(left, [expected]);
        writer.write_all(b"more\n").unwrap();
        assert!(fs::read(&file.path).unwrap() == [&text[..], b"more\n"].concat());
        drop(writer);
        let reader = fs::File::open(&file.path).unwrap();
        assert_eq!(all(std::slice::from_ref(&file), 5000, Instant::now() + SOON), [""; 0], "a reader is no writer");
        assert_eq!(reader.metadata().unwrap().len(), text.len() as u64 + 5, "and keeps what it has");
        drop(dir);
    }

    #[test]
    fn without_time_the_file_stays_and_nothing_is_left_beside_it() {
        let (dir, file) = file_of(&lines(10_000));
        let left = all(std::slice::from_ref(&file), 5000, Instant::now());
        assert_eq!(left, [format!("{} is not cut to its size: there was no time left", file.path.display())]);
        assert_eq!(fs::metadata(&file.path).unwrap().ino(), file.identity.1);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_is_kept_is_an_end_of_at_most_the_size(
            lengths in prop::collection::vec(prop_oneof![9 => 0..200_usize, 1 => 0..20_000_usize], 1..200),
            ended: bool,
            max in 4096..20_000_u64,
        ) {
            let mut text = lengths.iter().map(|length| vec![b'x'; *length]).collect::<Vec<_>>().join(&b'\n');
            if ended {
                text.push(b'\n');
            }
            prop_assume!(text.len() as u64 > max);
            let (_dir, file) = file_of(&text);
            let opened = fs::File::open(&file.path).unwrap();
            let start = kept_from(&opened, text.len() as u64, max).unwrap();
            one(&file.path, max, Instant::now() + SOON).unwrap();
            let kept = fs::read(&file.path).unwrap();
            prop_assert!(kept.len() as u64 <= max && kept.len() as u64 > max / 2 - 64);
            let start = usize::try_from(start).unwrap();
            prop_assert!(kept == [dropped(start as u64).as_bytes(), &text[start..]].concat());
            let whole = text[start - 1] == b'\n';
            // A line that does not end soon, or only with the file, is cut.
            let rest = &text[start..];
            prop_assert!(whole || memchr(b'\n', &rest[..rest.len() - 1]).is_none_or(|end| end as u64 + 1 >= max / 2));
        }
    }
}
