//! The command `release`: what must hold before the crates are published. It never publishes.

use std::fs;
use std::path::Path;

use crate::metadata::{Package, packages};
use crate::run::{cargo, root};

/// What the command line asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Options {
    dry_run: bool,
    allow_dirty: bool,
}

impl Options {
    pub(crate) fn parse(args: &[&str]) -> Result<Self, String> {
        let mut options = Self { dry_run: false, allow_dirty: false };
        for arg in args {
            match *arg {
                "--dry-run" => options.dry_run = true,
                "--allow-dirty" => options.allow_dirty = true,
                other => return Err(format!("release does not take `{other}`")),
            }
        }
        Ok(options)
    }
}

pub(crate) fn release(options: Options) -> Result<(), String> {
    if !options.dry_run {
        return Err(
            "release only rehearses: say --dry-run. Publishing is done by hand, with `cargo publish --workspace`"
                .to_owned(),
        );
    }
    let packages = packages()?;
    let found =
        check(&packages, &read(&root().join("Cargo.toml"))?, &read(&root().join("CHANGELOG.md")).unwrap_or_default());
    crate::report("release", Ok(found))?;
    // Cargo leaves out what has `publish = false` and puts the others in the order of their dependencies.
    let mut publish = cargo(&["publish", "--workspace", "--dry-run"]);
    if options.allow_dirty {
        publish = publish.with(&["--allow-dirty"]);
    }
    publish.pass_through()
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// What is not ready, one line each.
fn check(packages: &[Package], manifest: &str, changelog: &str) -> Vec<String> {
    let Some(version) =
        entries(manifest, "workspace.package").find_map(|(key, value)| (key == "version").then(|| quoted(value))?)
    else {
        return vec!["Cargo.toml: no version in [workspace.package]".to_owned()];
    };
    let mut found = Vec::new();
    for package in packages.iter().filter(|package| package.published) {
        if package.version != version {
            found.push(format!("{}: version {}, but the workspace has {version}", package.name, package.version));
        }
        for dependency in &package.dependencies {
            let published = |to: &&Package| to.name == dependency.name && to.published;
            if dependency.is_path
                && packages.iter().any(|to| published(&to))
                && dependency.requirement != format!("^{version}")
            {
                found.push(format!(
                    "{}: needs {} {}, not ^{version}",
                    package.name, dependency.name, dependency.requirement
                ));
            }
        }
    }
    for (name, value) in entries(manifest, "workspace.dependencies") {
        let published = packages.iter().any(|package| package.name == name && package.published);
        let given = value.split_once("version").and_then(|(_, after)| quoted(after.trim_start().strip_prefix('=')?));
        if published && given != Some(version) {
            let given = given.unwrap_or("none");
            found.push(format!("Cargo.toml: [workspace.dependencies] has version {given} for {name}, not {version}"));
        }
    }
    let headings = changelog.lines().filter_map(|line| line.strip_prefix("## "));
    let mut names =
        headings.map(|heading| heading.split_whitespace().next().unwrap_or_default().trim_matches(['[', ']']));
    if !names.any(|name| name == version || name.eq_ignore_ascii_case("unreleased")) {
        found.push(format!("CHANGELOG.md: no entry `## [{version}]` or `## [Unreleased]`"));
    }
    found
}

/// The `key = value` lines of one table of a Cargo.toml.
fn entries<'a>(manifest: &'a str, table: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let mut inside = false;
    manifest.lines().filter_map(move |line| {
        if let Some(header) = line.trim().strip_prefix('[') {
            inside = header.strip_suffix(']') == Some(table);
            return None;
        }
        let (key, value) = line.split_once('=')?;
        inside.then_some((key.trim(), value.trim()))
    })
}

/// The text between the first two quotation marks, which nothing but spaces comes before.
fn quoted(value: &str) -> Option<&str> {
    Some(value.trim_start().strip_prefix('"')?.split_once('"')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Dependency, Kind};

    const MANIFEST: &str = "[workspace]\nresolver = \"3\"\n[workspace.package]\nedition = \"2024\"\nversion = \"0.2.0\"\n\
        [workspace.dependencies]\na = { path = \"crates/a\", version = \"0.2.0\" }\nkit = { path = \"crates/kit\" }\nlog = \"0.4\"\n";
    const CHANGELOG: &str = "# Changelog\n\n## [0.2.0] - 2026-12-01\n";

    fn packages() -> Vec<Package> {
        let package = |name: &str, published| Package {
            name: name.to_owned(),
            version: "0.2.0".to_owned(),
            published,
            ..Package::default()
        };
        let dependency = |name: &str, requirement: &str, kind| Dependency {
            name: name.to_owned(),
            kind,
            requirement: requirement.to_owned(),
            is_path: true,
        };
        let mut b = package("b", true);
        b.dependencies = vec![dependency("a", "^0.2.0", Kind::Normal), dependency("kit", "*", Kind::Dev)];
        vec![package("a", true), b, package("kit", false)]
    }

    #[test]
    fn versions_that_agree_are_ready() {
        assert_eq!(check(&packages(), MANIFEST, CHANGELOG), [""; 0]);
        assert_eq!(check(&packages(), MANIFEST, "## Unreleased\n"), [""; 0]);
    }

    #[test]
    fn a_package_with_another_version_is_named() {
        let mut packages = packages();
        packages[0].version = "0.1.9".to_owned();
        packages[2].version = "0.0.0".to_owned();
        assert_eq!(check(&packages, MANIFEST, CHANGELOG), ["a: version 0.1.9, but the workspace has 0.2.0"]);
    }

    #[test]
    fn a_dependency_on_another_version_is_named() {
        let mut packages = packages();
        packages[1].dependencies[0].requirement = "^0.1.0".to_owned();
        assert_eq!(check(&packages, MANIFEST, CHANGELOG), ["b: needs a ^0.1.0, not ^0.2.0"]);
        let manifest = MANIFEST.replace(", version = \"0.2.0\"", "");
        let expected = ["Cargo.toml: [workspace.dependencies] has version none for a, not 0.2.0"];
        assert_eq!(check(&self::packages(), &manifest, CHANGELOG), expected);
    }

    #[test]
    fn a_version_without_an_entry_in_the_changelog_is_named() {
        for changelog in ["", "## [0.1.0]\n", "the 0.2.0\n", "### [0.2.0]\n"] {
            let expected = ["CHANGELOG.md: no entry `## [0.2.0]` or `## [Unreleased]`"];
            assert_eq!(check(&packages(), MANIFEST, changelog), expected, "{changelog}");
        }
    }

    #[test]
    fn options_that_are_unknown_are_refused() {
        assert_eq!(Options::parse(&["--allow-dirty", "--dry-run"]), Ok(Options { dry_run: true, allow_dirty: true }));
        assert!(Options::parse(&["--force"]).is_err());
        assert!(release(Options { dry_run: false, allow_dirty: false }).unwrap_err().contains("--dry-run"));
    }
}
