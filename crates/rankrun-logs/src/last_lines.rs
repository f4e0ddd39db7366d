//! The last lines of a log file, for a report: [`last_lines`]. Not here: following a file that grows (`tail`).

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::sparse::data_from;

/// How much of a file's end is looked at: enough for a reason and a stack after it.
const WINDOW: u64 = 64 * 1024;

/// How many characters of a line are given.
const LINE: usize = 1000;

/// The last lines of a file, at most `count`, oldest first; none if it cannot be read or is empty.
///
/// Of a line over 1,000 characters the end is given, after `...`; of a progress bar its last state; of a file, only the
/// last 64 KiB are looked at. Bytes that are not UTF-8 become U+FFFD; other control characters are left as they are.
///
/// ```
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("stderr.log");
/// std::fs::write(&path, "one\ntwo\nthree\n")?;
/// assert_eq!(rankrun_logs::last_lines(&path, 2), ["two", "three"]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn last_lines(path: impl AsRef<Path>, count: usize) -> Vec<String> {
    end_of(path.as_ref()).map_or(Vec::new(), |bytes| last_lines_of(&bytes, count))
}

/// The last lines of the end of some output.
pub(crate) fn last_lines_of(bytes: &[u8], count: usize) -> Vec<String> {
    let whole = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    // Only what is shown is decoded.
    let start = count
        .checked_sub(1)
        .map_or(bytes.len(), |before| memchr::memrchr_iter(b'\n', whole).nth(before).map_or(0, |newline| newline + 1));
    let text = String::from_utf8_lossy(&bytes[start..]);
    text.lines().map(|line| shortened(last_state(line))).collect()
}

/// What a line shows in the end of text that `\r` overwrites.
fn last_state(line: &str) -> &str {
    line.trim_end_matches('\r').rsplit('\r').next().unwrap_or(line)
}

fn shortened(line: &str) -> String {
    // As many bytes are not more characters.
    let cut = (line.len() > LINE).then(|| line.char_indices().nth_back(LINE - 1)).flatten();
    match cut {
        Some((start, _)) if start > 0 => format!("...{}", &line[start..]),
        _ => line.to_owned(),
    }
}

pub(crate) fn end_of(path: &Path) -> std::io::Result<Vec<u8>> {
    end_of_file(&File::open(path)?, WINDOW)
}

/// The last bytes of an open file, at most `window`. Moves its offset.
pub(crate) fn end_of_file(mut file: &File, window: u64) -> std::io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    // Not the NUL bytes of a beginning that was freed.
    let start = data_from(file, length.saturating_sub(window));
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::with_capacity(length.saturating_sub(start).min(window) as usize + 1);
    file.take(window).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_empty_file_has_no_last_lines() {
        let dir = tempfile::tempdir().unwrap();
        assert!(last_lines(dir.path().join("none"), 5).is_empty());
        std::fs::write(dir.path().join("empty"), "").unwrap();
        assert!(last_lines(dir.path().join("empty"), 5).is_empty());
    }

    #[test]
    fn of_a_progress_bar_the_last_state_is_given() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "\r10%\r100%\ndos\r\n\r10%\r20%\r").unwrap();
        assert_eq!(last_lines(&path, 3), ["100%", "dos", "20%"]);
    }

    #[test]
    fn only_the_end_of_a_large_file_is_read_and_a_last_line_needs_no_newline() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut text = vec![b'x'; 100_000];
        text.extend(b"\n\xff\nlast");
        std::fs::write(&path, text).unwrap();
        assert_eq!(last_lines(&path, 2), ["\u{fffd}", "last"]);
        assert_eq!((last_lines(&path, 1), last_lines(&path, 0)), (vec!["last".to_owned()], vec![]));
        let long = &last_lines(&path, 3)[0];
        assert!(long.starts_with("...x") && long.ends_with("xxx"), "{long}");
        assert_eq!(long.chars().count(), LINE + 3);
    }
}
