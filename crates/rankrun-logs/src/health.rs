//! Whether log files can be complete: [`doubts`]. Not here: writing them, which the workers do.

use std::fs;
use std::io;
use std::path::Path;

use nix::sys::statvfs::statvfs;

/// What speaks against the files of a log directory being complete; for people, `None` if nothing does.
///
/// The directory is gone, or its file system is full, so that workers could not write. Neither holds up a run: a
/// worker's write fails as it would without a launcher. Ask when a run ends. Does not block, but on a file system that
/// does.
///
/// ```
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().to_owned();
/// drop(dir);
/// let doubts = rankrun_logs::doubts(&path).expect("it is gone");
/// assert_eq!(doubts, format!("log directory {} is gone, and the log and error files with it", path.display()));
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn doubts(log_directory: &Path) -> Option<String> {
    let shown = log_directory.display();
    if let Err(error) = fs::metadata(log_directory) {
        return Some(match error.kind() {
            io::ErrorKind::NotFound => format!("log directory {shown} is gone, and the log and error files with it"),
            _ => format!("log directory {shown} cannot be reached: {error}"),
        });
    }
    let full = statvfs(log_directory).is_ok_and(|stat| stat.blocks() > 0 && stat.blocks_available() == 0);
    full.then(|| format!("the file system of {shown} is full: log and error files may be incomplete"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_room_raises_no_doubts() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(doubts(dir.path()), None);
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let text = doubts(&file.join("below")).unwrap();
        assert!(text.ends_with("cannot be reached: Not a directory (os error 20)"), "{text}");
    }
}
