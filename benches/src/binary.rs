//! The release binary of the command, which benchmarks measure and do not build: [`release_binary`].

use std::path::PathBuf;

/// The variable that names another binary.
const BINARY: &str = "RANKRUN_BIN";

/// The binary in `RANKRUN_BIN` or beside this program, if there is one.
#[must_use]
pub fn release_binary() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(BINARY) {
        return Some(path.into()).filter(|path: &PathBuf| path.is_file());
    }
    // This program is <target>/release/deps/NAME-<hash>.
    let own = std::env::current_exe().ok()?;
    own.ancestors().skip(1).take(2).map(|dir| dir.join("rankrun")).find(|path| path.is_file())
}
