//! The programs under test, built once and found: [`binary`], [`example`]. Not here: running them ([`crate::Launcher`]).
//!
//! Cargo gives a test the path of a binary only where both are in one package, and builds no other package's binaries
//! for it. So this asks cargo, which is quick when there is nothing to do.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

type Built = Arc<OnceLock<PathBuf>>;

/// By what it is, its package and its name.
type Programs = HashMap<(Kind, String, String), Built>;

/// What cargo builds a program from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Bin,
    Example,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Bin => "bin",
            Self::Example => "example",
        }
    }
}

/// Builds a binary of the workspace, as debug or release like the running test and in the same target directory, and
/// returns its path.
///
/// Once per process and binary; later calls, from any thread, wait for the first and return the same path. Test
/// programs that run at the same time may all call it: cargo itself lets one build at a time.
///
/// # Panics
/// When it can't be built; the message holds what cargo said.
#[must_use]
pub fn binary(package: &str, bin: &str) -> PathBuf {
    built(Kind::Bin, package, bin)
}

/// As [`binary`], of an example.
///
/// # Panics
/// As [`binary`].
#[must_use]
pub fn example(package: &str, name: &str) -> PathBuf {
    built(Kind::Example, package, name)
}

fn built(kind: Kind, package: &str, name: &str) -> PathBuf {
    static BUILT: Mutex<Option<Programs>> = Mutex::new(None);
    let built = {
        let mut all = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.get_or_insert_default().entry((kind, package.to_owned(), name.to_owned())).or_default())
    };
    built.get_or_init(|| build(kind, package, name)).clone()
}

/// The program whose arguments are a script; see [`crate::script`]. Built as by [`binary`].
///
/// # Panics
/// As [`binary`].
#[must_use]
pub fn scripted_worker() -> PathBuf {
    binary("rankrun-testkit", "scripted-worker")
}

fn build(kind: Kind, package: &str, name: &str) -> PathBuf {
    let mut command = cargo(kind, package, name, std::env::current_exe().ok().as_deref().and_then(Layout::of).as_ref());
    let output = command.output().unwrap_or_else(|error| panic!("cargo does not start: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "building {name} of {package} failed, {}:\n{said}", output.status);
    let messages = String::from_utf8_lossy(&output.stdout);
    executable(&messages, kind, name).unwrap_or_else(|| panic!("cargo built no {name} of {package}:\n{said}"))
}

fn cargo(kind: Kind, package: &str, name: &str, layout: Option<&Layout>) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate is two below the root");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).stdin(Stdio::null());
    command.args(["build", "--message-format=json-render-diagnostics", "--package", package]);
    command.args([&format!("--{}", kind.name()), name]);
    if let Some(Layout { target_dir, triple, profile }) = layout {
        command.arg("--target-dir").arg(target_dir).args(["--profile", profile]);
        if let Some(triple) = triple {
            command.args(["--target", triple]);
        }
    }
    command
}

/// Where a test program lies: `<target_dir>/[triple/]<profile>/...`.
#[derive(Debug, PartialEq, Eq)]
struct Layout {
    target_dir: PathBuf,
    triple: Option<String>,
    profile: String,
}

impl Layout {
    /// `None` for a program outside a target directory, such as a doctest: cargo's defaults hold then.
    fn of(program: &Path) -> Option<Self> {
        let target_dir = program.ancestors().skip(1).find(|directory| directory.join("CACHEDIR.TAG").is_file())?;
        let below: Vec<&str> =
            program.strip_prefix(target_dir).ok()?.iter().map(|part| part.to_str()).collect::<Option<_>>()?;
        let (triple, profile) = match below[..] {
            [first, second, ..] if is_triple(first) => (Some(first.to_owned()), second),
            [first, _, ..] => (None, first),
            _ => return None,
        };
        // The directory of the dev profile has another name than the profile.
        let profile = if profile == "debug" { "dev" } else { profile }.to_owned();
        Some(Self { target_dir: target_dir.to_owned(), triple, profile })
    }
}

fn is_triple(directory: &str) -> bool {
    directory.split('-').count() >= 3
}

/// The path of a program in the messages that cargo writes, one JSON value a line.
fn executable(messages: &str, kind: Kind, name: &str) -> Option<PathBuf> {
    messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()).find_map(|message| {
        let target = &message["target"];
        let is_it = message["reason"] == "compiler-artifact"
            && target["name"] == name
            && target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|other| other == kind.name()));
        is_it.then(|| message["executable"].as_str().map(PathBuf::from)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_found_among_the_messages_and_not_a_library_of_the_same_name() {
        let messages = concat!(
            "{\"reason\":\"compiler-artifact\",\"target\":{\"kind\":[\"lib\"],\"name\":\"x\"},\"executable\":null}\n",
            "no json\n",
            "{\"reason\":\"compiler-artifact\",\"target\":{\"kind\":[\"bin\"],\"name\":\"y\"},\"executable\":\"/t/y\"}\n",
            "{\"reason\":\"compiler-artifact\",\"target\":{\"kind\":[\"bin\"],\"name\":\"x\"},\"executable\":\"/t/x\"}\n",
            "{\"reason\":\"build-finished\",\"success\":true}\n",
        );
        assert_eq!(executable(messages, Kind::Bin, "x"), Some(PathBuf::from("/t/x")));
        assert_eq!(executable(messages, Kind::Bin, "z"), None);
        assert_eq!(executable(messages, Kind::Example, "x"), None);
    }

    #[test]
    fn profile_triple_and_target_directory_are_those_of_the_running_test() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("t");
        std::fs::create_dir(&target).unwrap();
        std::fs::write(target.join("CACHEDIR.TAG"), "").unwrap();
        let of = |below: &str| Layout::of(&target.join(below)).map(|layout| (layout.triple, layout.profile));
        let triple = Some("x86_64-unknown-linux-gnu".to_owned());
        assert_eq!(of("debug/deps/a-0f"), Some((None, "dev".to_owned())));
        assert_eq!(of("release/deps/a-0f"), Some((None, "release".to_owned())));
        assert_eq!(of("x86_64-unknown-linux-gnu/release/deps/a-0f"), Some((triple, "release".to_owned())));
        assert_eq!(Layout::of(&directory.path().join("debug/deps/a-0f")), None);
    }

    #[test]
    fn the_scripted_worker_is_built_once_and_runs() {
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(scripted_worker)).collect();
        let paths: Vec<PathBuf> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(paths.windows(2).all(|pair| pair[0] == pair[1]), "{paths:?}");
        let own = Layout::of(&std::env::current_exe().unwrap());
        assert_eq!(Layout::of(&paths[0].with_file_name("deps").join("x")), own);
        assert!(Command::new(&paths[0]).status().unwrap().success());
    }
}
