//! What the end-to-end tests share beyond the testkit: where their programs and interpreters are.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program of `tests/programs`.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

/// Whether Python 3 is there; if not, says in one line that `what` is skipped.
#[must_use]
pub fn has_python(what: &str) -> bool {
    let found = Command::new("python3").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        eprintln!("skipped: {what}: there is no python3");
    }
    found
}

/// The run directories that rankrun keeps in its temporary directory, `tmp`.
#[must_use]
pub fn kept_runs(tmp: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(tmp).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Compiles the example of the workspace's README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
