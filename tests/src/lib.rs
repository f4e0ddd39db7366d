//! What the end-to-end tests share beyond the testkit: programs and interpreters ([`program`], [`has`]), rankrun with
//! and without pidfds ([`Pidfds`]), a group that runs as the tests see it ([`Group`]), jobs of Slurm ([`slurm`]).

#![forbid(unsafe_code)]

mod group;
mod mounted;
mod pidfds;
pub mod slurm;
pub mod terminal;

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rankrun_testkit::Launcher;

pub use group::{Group, Script, signal_to, touch_by_rank, worker};
pub use mounted::Mounted;
pub use pidfds::{NO_CGROUP, Pidfds, control_groups, control_groups_of};
pub use terminal::Terminal;

/// How long anything may take that is to happen soon. Far longer than it takes: the machine may stand still.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A program of `tests/programs`.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

/// A job script or manifest of `docs/jobs`.
#[must_use]
pub fn job_script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/jobs").join(name)
}

/// Whether Python 3 is there; if not, says in one line that `what` is skipped.
#[must_use]
pub fn has_python(what: &str) -> bool {
    has(what, "there is no python3", &["python3", "--version"])
}

/// The Python that has TensorPlay; if none is named, says in one line that `what` is skipped.
#[must_use]
pub fn tensorplay_python(what: &str) -> Option<OsString> {
    let python = std::env::var_os("RANKRUN_TENSORPLAY_PYTHON").filter(|python| !python.is_empty());
    if python.is_none() {
        eprintln!("skipped: {what}: RANKRUN_TENSORPLAY_PYTHON names no Python with TensorPlay");
    }
    python
}

/// A run of a copy of rankrun by a user without rights, who may write into `dir`; if there can be none, says in one line that
/// `what` is skipped.
///
/// # Panics
/// When the program cannot be copied.
#[must_use]
pub fn as_nobody(what: &str, dir: &Path) -> Option<Launcher> {
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    if !has(what, "setpriv cannot change the user", &[&["setpriv"], &user[..], &["true"]].concat()) {
        return None;
    }
    let program = dir.join("rankrun");
    if !program.exists() {
        // A copy that this user can reach.
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).expect("the directory is ours");
        std::fs::copy(rankrun_testkit::binary("rankrun-cli", "rankrun"), &program).expect("there is room for a copy");
    }
    Some(Launcher::new("setpriv").args(user).arg(&program).env("TMPDIR", dir).env("OMP_NUM_THREADS", "1"))
}

/// Whether this command succeeds; if not, says in one line that `what` is skipped and `why`.
#[must_use]
pub fn has(what: &str, why: &str, command: &[&str]) -> bool {
    let mut found = Command::new(command[0]);
    found.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let found = found.status().is_ok_and(|status| status.success());
    if !found {
        eprintln!("skipped: {what}: {why}");
    }
    found
}

/// The run directories that rankrun keeps in its temporary directory, `tmp`, or in a log directory; not the link `latest`.
#[must_use]
pub fn kept_runs(tmp: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(tmp).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| !path.is_symlink()).collect()
}

/// Compiles the example of the workspace's README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// Compiles and runs the example of the README of `rankrun-functions`, which lies below `rankrun` and cannot.
#[cfg(doctest)]
#[doc = include_str!("../../crates/rankrun-functions/README.md")]
struct FunctionsReadme;
