//! A file system for one test: [`Mounted`]. Not here: what is written to it.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A file system of its own in memory, unmounted when it is dropped.
#[derive(Debug)]
pub struct Mounted(TempDir);

impl Mounted {
    /// A tmpfs of one MiB; `None`, and a line that says so, where mounting is not permitted.
    #[must_use]
    pub fn tmpfs() -> Option<Self> {
        Self::mount("tmpfs", "size=1m")
    }

    /// One of this kind, with options of mount(8); `None` as for [`tmpfs`](Self::tmpfs).
    ///
    /// # Panics
    /// When there is no temporary directory.
    #[must_use]
    pub fn mount(kind: &str, options: &str) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut mount = Command::new("mount");
        mount.args(["-t", kind, "-o", options, kind]).arg(dir.path());
        if mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            return Some(Self(dir));
        }
        eprintln!("skipped: log files on a {kind}: mounting is not permitted");
        None
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let done = Command::new("umount").arg(self.path()).status().is_ok_and(|status| status.success());
        assert!(done || std::thread::panicking(), "{} is still mounted", self.path().display());
    }
}
