//! The link to the newest run in a log directory: [`LATEST`]. Not here: what a run directory has in it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

/// The link's name.
pub(crate) const LATEST: &str = "latest";

/// Lets the link point to a run in the same directory and gives where it pointed before.
///
/// A link is replaced atomically, so that whoever goes through it finds one run or the other. What is no link to a run of
/// this directory is somebody's own, and left.
pub(crate) fn point_to(log_dir: &Path, run: &OsStr) -> io::Result<Option<PathBuf>> {
    let link = log_dir.join(LATEST);
    let before = match fs::symlink_metadata(&link) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match symlink(run, &link) {
            Ok(()) => return Ok(None),
            // Another run was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => fs::read_link(&link)?,
            Err(error) => return Err(error),
        },
        Err(error) => return Err(error),
        Ok(meta) if meta.is_symlink() => fs::read_link(&link)?,
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is there and is no link")),
    };
    if !is_run(&before) {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is a link to somewhere else"));
    }
    replace(&link, run)?;
    Ok(Some(before))
}

/// Takes the link back from a run that is gone: to where it pointed before, or away.
pub(crate) fn take_back(log_dir: &Path, run: &OsStr, before: Option<&Path>) {
    let link = log_dir.join(LATEST);
    if fs::read_link(&link).is_ok_and(|target| target == run) {
        // It is a convenience; a link to what is gone does no harm.
        let _ = match before.filter(|before| log_dir.join(before).is_dir()) {
            Some(before) => replace(&link, before.as_os_str()),
            None => fs::remove_file(&link),
        };
    }
}

fn replace(link: &Path, run: &OsStr) -> io::Result<()> {
    let directory = link.parent().unwrap_or(Path::new("."));
    let made = tempfile::Builder::new().prefix(".latest_").make_in(directory, |path| symlink(run, path))?;
    made.persist(link).map(drop).map_err(|error| error.error)
}

/// Whether a link's target is a name in the same directory, as ours are.
fn is_run(target: &Path) -> bool {
    let mut parts = target.components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(dir: &Path) -> Option<String> {
        fs::read_link(dir.join(LATEST)).ok().map(|target| target.to_str().unwrap().to_owned())
    }

    #[test]
    fn the_link_goes_to_the_newest_run_and_back_when_that_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        for run in ["a", "b"] {
            fs::create_dir(dir.path().join(run)).unwrap();
        }
        assert_eq!(point_to(dir.path(), OsStr::new("a")).unwrap(), None);
        let before = point_to(dir.path(), OsStr::new("b")).unwrap();
        assert_eq!((before.as_deref(), target(dir.path()).as_deref()), (Some(Path::new("a")), Some("b")));
        take_back(dir.path(), OsStr::new("a"), None);
        assert_eq!(target(dir.path()).as_deref(), Some("b"), "it is not that run's any more");
        take_back(dir.path(), OsStr::new("b"), before.as_deref());
        assert_eq!(target(dir.path()).as_deref(), Some("a"));
        take_back(dir.path(), OsStr::new("a"), Some(Path::new("gone")));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_is_somebodys_own_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join(LATEST);
        fs::write(&link, "mine").unwrap();
        assert!(point_to(dir.path(), OsStr::new("a")).is_err());
        assert_eq!(fs::read_to_string(&link).unwrap(), "mine");
        fs::remove_file(&link).unwrap();
        for theirs in ["/somewhere", "../there", "sub/dir"] {
            symlink(theirs, &link).unwrap();
            assert!(point_to(dir.path(), OsStr::new("a")).is_err());
            assert_eq!(target(dir.path()).as_deref(), Some(theirs));
            fs::remove_file(&link).unwrap();
        }
    }
}
