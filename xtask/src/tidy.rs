//! The command `tidy`: the rules of the house that neither rustc nor clippy checks.
//!
//! Not here: which crate may use which (`layers`), versions (`release`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::metadata::{Package, packages};
use crate::run::{Tool, root};
use crate::rust_source::Source;

/// A file with more lines has more than one concern.
const MOST_LINES: usize = 600;

/// The one crate with `unsafe`.
const UNSAFE_CRATE: &str = "rankrun-process";

/// What must not stand in code, with the reason.
const FORBIDDEN: &[(&str, &str)] = &[
    ("todo!", "finish it, or leave it out"),
    ("unimplemented!", "finish it, or leave it out"),
    (
        "#[ignore",
        "a test that nobody runs proves nothing; only `#[ignore = \"the body of ...\"]` may be, which other tests start",
    ),
];

/// How an ignored test says that other tests run it in a process of its own.
const BODY: &str = "#[ignore = \"the body of ";

/// Files whose white space is ours; others, such as tables for tests, are as they are for a reason.
const WRITTEN_BY_US: &[&str] = &["rs", "toml", "md", "sh", "yml", "yaml"];

/// Each breach of a rule in the tracked files and in those not yet added, one line each.
pub(crate) fn tidy() -> Result<Vec<String>, String> {
    let root = root();
    let packages = packages()?;
    let machine = machine_paths(&root, std::env::var_os("HOME").map(PathBuf::from).as_deref());
    let mut found = Vec::new();
    let files = files()?;
    for file in &files {
        let Ok(bytes) = fs::read(root.join(file)) else { continue };
        // What is no text is data.
        let Ok(text) = String::from_utf8(bytes) else { continue };
        let published =
            packages.iter().find(|package| package.published && root.join(file).starts_with(&package.directory));
        let within = published.and_then(|package| package.directory.strip_prefix(&root).ok()).unwrap_or(Path::new(""));
        found.extend(check_file(file, &text, within, &machine));
    }
    for package in &packages {
        found.extend(check_package(package, &root)?);
    }
    Ok(found)
}

/// The files of the repository relative to its root: tracked, or new and not ignored.
fn files() -> Result<BTreeSet<PathBuf>, String> {
    // The tree may belong to another user than the one who checks it.
    let git = Tool::new("git").with(&["-c", "safe.directory=*"]);
    let names = git.with(&["ls-files", "--cached", "--others", "--exclude-standard", "-z"]).stdout()?;
    let names = String::from_utf8(names).map_err(|_| "git ls-files: a file's name is not UTF-8")?;
    Ok(names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect())
}

/// The directories above the repository that exist on this machine only, so that a text that names one leaks it.
fn machine_paths(root: &Path, home: Option<&Path>) -> Vec<String> {
    const EVERYWHERE: &[&str] = &["/", "/home", "/mnt", "/opt", "/root", "/srv", "/tmp", "/usr", "/var", "/var/tmp"];
    root.ancestors()
        .filter(|path| !EVERYWHERE.iter().any(|known| path == &Path::new(known)) && Some(*path) != home)
        .map(|path| format!("{}/", path.display()))
        .collect()
}

/// `within`: the directory that what the file includes must lie in.
fn check_file(file: &Path, text: &str, within: &Path, machine: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let shown = file.display();
    if let Some(path) = machine.iter().find(|path| names_path(text, path)) {
        found.push(format!("{shown}: names a path of this machine, {path}"));
    }
    let extension = file.extension().and_then(|extension| extension.to_str());
    if extension.is_some_and(|extension| WRITTEN_BY_US.contains(&extension)) || file.starts_with(".ci") {
        for (at, line) in text.split('\n').enumerate() {
            if line.ends_with([' ', '\t', '\r']) {
                found.push(format!("{shown}:{}: white space at the end of the line", at + 1));
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            found.push(format!("{shown}: no newline at the end"));
        }
    }
    if extension == Some("rs") {
        found.extend(check_rust(file, &Source::new(text), within));
    }
    found
}

/// Whether `path` stands in the text by itself, not as the tail of a longer path or an address.
fn names_path(text: &str, path: &str) -> bool {
    text.match_indices(path).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        before.is_none_or(|before| !before.is_alphanumeric() && !"._-/".contains(before))
    })
}

fn check_rust(file: &Path, source: &Source<'_>, within: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let shown = file.display();
    let lines = source.text.lines().count();
    if lines > MOST_LINES {
        found.push(format!("{shown}: {lines} lines, more than {MOST_LINES}"));
    }
    let first = source.text.lines().find(|line| !line.starts_with("#!") && !line.trim().is_empty());
    if !first.is_some_and(|line| line.starts_with("//!")) {
        found.push(format!("{shown}: does not start with a `//!` comment that says what is in it"));
    }
    let mut above = "";
    for (number, line, code) in source.lines() {
        for (word, why) in FORBIDDEN {
            if code.contains(word) && !line.contains(BODY) {
                found.push(format!("{shown}:{number}: `{word}`: {why}"));
            }
        }
        if code.contains("thread::sleep") && !says_why_it_sleeps(line) && !says_why_it_sleeps(above) {
            found.push(format!("{shown}:{number}: sleeps; wait for a fact, or say `// sleep: why`"));
        }
        for path in included(line, code) {
            if !file.parent().is_some_and(|directory| stays_within(directory, path, within)) {
                found.push(format!(
                    "{shown}:{number}: includes {path}, which lies outside the package or the repository"
                ));
            }
        }
        above = line;
    }
    found
}

fn says_why_it_sleeps(line: &str) -> bool {
    line.split_once("// sleep:").is_some_and(|(_, why)| !why.trim().is_empty())
}

/// The literal paths in the `include...!("...")` of a line.
fn included<'a>(line: &'a str, code: &str) -> Vec<&'a str> {
    if !code.contains("include") {
        return Vec::new();
    }
    let literal =
        |start: &str| line.split(start).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0)).collect::<Vec<_>>();
    ["include_str!(\"", "include_bytes!(\"", "include!(\""].into_iter().flat_map(literal).collect()
}

/// Whether `path`, seen from `directory`, lies in `within`; all relative to the root but `path` may be absolute.
fn stays_within(directory: &Path, path: &str, within: &Path) -> bool {
    let mut place: Vec<&std::ffi::OsStr> = directory.iter().collect();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => place.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if place.pop().is_none() {
                    return false;
                }
            }
            Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    place.into_iter().collect::<PathBuf>().starts_with(within)
}

fn check_package(package: &Package, root: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let name = &package.name;
    let manifest =
        fs::read_to_string(package.directory.join("Cargo.toml")).map_err(|error| format!("{name}: {error}"))?;
    if !manifest.contains("[lints]\nworkspace = true\n") {
        found.push(format!("{name}: does not take the lints of the workspace"));
    }
    if package.description.as_deref().is_none_or(str::is_empty) {
        found.push(format!("{name}: no description"));
    }
    if !package.directory.starts_with(root.join("crates")) {
        return Ok(found);
    }
    if package.keywords.is_empty() {
        found.push(format!("{name}: no keywords"));
    }
    if !fs::read_to_string(package.directory.join("README.md")).is_ok_and(|text| !text.trim().is_empty()) {
        found.push(format!("{name}: no README.md"));
    }
    if name != UNSAFE_CRATE {
        for file in crate_roots(&package.directory.join("src")) {
            let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            if !forbids_unsafe(&Source::new(&text)) {
                let shown = file.strip_prefix(root).unwrap_or(&file).display();
                found.push(format!("{shown}: no `#![forbid(unsafe_code)]`"));
            }
        }
    }
    Ok(found)
}

fn forbids_unsafe(source: &Source<'_>) -> bool {
    source.code.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]")
}

fn crate_roots(src: &Path) -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = ["lib.rs", "main.rs"].iter().map(|name| src.join(name)).collect();
    if let Ok(entries) = fs::read_dir(src.join("bin")) {
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            roots.push(if path.is_dir() { path.join("main.rs") } else { path });
        }
    }
    roots.retain(|file| file.is_file() && file.extension().is_some_and(|extension| extension == "rs"));
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(text: &str) -> Vec<String> {
        check_file(Path::new("crates/a/src/b.rs"), text, Path::new("crates/a"), &[])
    }

    #[test]
    fn the_tree_is_tidy() {
        let found = tidy().unwrap();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    #[test]
    fn a_tidy_file_has_nothing_to_report() {
        assert_eq!(rust("#![no_main]\n//! What is here.\n\nfn f() {}\n"), [""; 0]);
        assert_eq!(
            rust("//! todo!() is not code here, nor is thread::sleep.\nconst A: &str = \"#[ignore]\";\n"),
            [""; 0]
        );
    }

    #[test]
    fn a_file_that_does_not_say_what_is_in_it_is_named() {
        let expected = ["crates/a/src/b.rs: does not start with a `//!` comment that says what is in it"];
        for text in ["", "fn f() {}\n", "// Not a doc comment.\n//! Late.\n"] {
            assert_eq!(rust(text), expected, "{text}");
        }
    }

    #[test]
    fn a_file_that_is_too_long_is_named() {
        let text = |lines: usize| format!("//! Long.\n{}", "\n".repeat(lines - 1));
        assert_eq!(rust(&text(600)), [""; 0]);
        assert_eq!(rust(&text(601)), ["crates/a/src/b.rs: 601 lines, more than 600"]);
    }

    #[test]
    fn unfinished_code_and_ignored_tests_are_named_with_their_line() {
        let found = rust("//! A.\nfn f() { todo!() }\n#[ignore = \"slow\"]\nfn g() { unimplemented!(\"later\") }\n");
        let places: Vec<&str> = found.iter().filter_map(|line| Some(line.split_once(": ")?.0)).collect();
        assert_eq!(places, [2, 3, 4].map(|line| format!("crates/a/src/b.rs:{line}")), "{found:?}");
    }

    #[test]
    fn a_test_that_other_tests_start_may_be_ignored() {
        assert_eq!(rust("//! A.\n#[ignore = \"the body of the workers that other tests start\"]\n"), [""; 0]);
    }

    #[test]
    fn a_sleep_needs_its_reason_beside_or_above() {
        let sleeps =
            |comment: &str, beside: &str| rust(&format!("//! A.\n{comment}\nstd::thread::sleep(x); {beside}\n")).len();
        assert_eq!(sleeps("// sleep: the clock is what is tested.", "//"), 0);
        assert_eq!(sleeps("", "// sleep: the clock is what is tested."), 0);
        for (comment, beside) in [("", "//"), ("// sleep:", "//"), ("// It sleeps.", "//")] {
            assert_eq!(sleeps(comment, beside), 1, "{comment} {beside}");
        }
    }

    #[test]
    fn white_space_at_the_end_and_a_missing_newline_are_named() {
        let check = |file: &str, text: &str| check_file(Path::new(file), text, Path::new(""), &[]);
        let found = check("README.md", "a \nb\t\nc\r\nd");
        assert_eq!(found.len(), 4, "{found:?}");
        assert_eq!(found[0], "README.md:1: white space at the end of the line");
        assert_eq!(check(".ci/run", "a \n").len(), 1);
        assert_eq!(check("crates/a/tests/cut_off.json", "{\"a\": \t"), [""; 0]);
    }

    #[test]
    fn a_path_of_this_machine_is_named_wherever_it_stands() {
        let machine = machine_paths(Path::new("/home/me/src/rankrun"), Some(Path::new("/home/me")));
        assert_eq!(machine, ["/home/me/src/rankrun/", "/home/me/src/"]);
        let check = |text: &str| check_file(Path::new("a.json"), text, Path::new(""), &machine).len();
        assert_eq!(check("see /home/me/src/other/table.json"), 1);
        assert_eq!(check("\"/home/me/src/rankrun/x\""), 1);
        assert_eq!(check("https://example.org/home/me/src/x and /home/you/src/x"), 0);
        assert_eq!(machine_paths(Path::new("/tmp/clone"), None), ["/tmp/clone/"]);
    }

    #[test]
    fn an_include_stays_within_the_package() {
        let include = |path: &str| rust(&format!("//! A.\nconst A: &str = include_str!(\"{path}\");\n")).len();
        assert_eq!(include("../README.md"), 0);
        assert_eq!(include("table.json"), 0);
        for path in ["../../README.md", "../../../table.json", "../../../../shared/table.json", "/etc/passwd"] {
            assert_eq!(include(path), 1, "{path}");
        }
        let unpublished = "//! A.\nconst A: &[u8] = include_bytes!(\"../../crates/a/x\");\n";
        assert_eq!(check_file(Path::new("tests/tests/a.rs"), unpublished, Path::new(""), &[]), [""; 0]);
    }

    #[test]
    fn forbidding_unsafe_in_a_comment_does_not_count() {
        assert!(forbids_unsafe(&Source::new("//! A.\n\n#![forbid(unsafe_code)]\n")));
        assert!(!forbids_unsafe(&Source::new("//! #![forbid(unsafe_code)]\n/*\n#![forbid(unsafe_code)]\n*/\n")));
    }
}
