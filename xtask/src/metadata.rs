//! What `cargo metadata` says of the workspace, as far as the checks need it: [`Package`].

use std::path::PathBuf;

use serde_json::Value;

use crate::run::cargo;

/// A member of the workspace.
#[derive(Debug, Clone, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The directory of its Cargo.toml.
    pub(crate) directory: PathBuf,
    pub(crate) description: Option<String>,
    pub(crate) keywords: Vec<String>,
    /// Whether it may go to a registry.
    pub(crate) published: bool,
    pub(crate) dependencies: Vec<Dependency>,
}

/// What a package depends on.
#[derive(Debug, Clone)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The version requirement, `*` where none is given.
    pub(crate) requirement: String,
    /// Whether it lies in this workspace.
    pub(crate) is_path: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Build,
    Dev,
}

/// The members of this workspace, in the order of their names.
pub(crate) fn packages() -> Result<Vec<Package>, String> {
    let json = cargo(&["metadata", "--no-deps", "--format-version", "1"]).stdout()?;
    let json = serde_json::from_slice(&json).map_err(|error| format!("cargo metadata: {error}"))?;
    parse(&json)
}

pub(crate) fn parse(metadata: &Value) -> Result<Vec<Package>, String> {
    let packages = metadata["packages"].as_array().ok_or("cargo metadata: no packages")?;
    let mut packages: Vec<Package> =
        packages.iter().map(package).collect::<Option<_>>().ok_or("cargo metadata: a package is not as expected")?;
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(packages)
}

fn package(value: &Value) -> Option<Package> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Some(Package {
        name: text(&value["name"])?,
        version: text(&value["version"])?,
        directory: PathBuf::from(value["manifest_path"].as_str()?).parent()?.to_owned(),
        description: text(&value["description"]),
        keywords: value["keywords"].as_array()?.iter().filter_map(text).collect(),
        // `publish = false` is the empty list of registries; null is all of them.
        published: value["publish"].as_array().is_none_or(|registries| !registries.is_empty()),
        dependencies: value["dependencies"].as_array()?.iter().map(dependency).collect::<Option<_>>()?,
    })
}

fn dependency(value: &Value) -> Option<Dependency> {
    Some(Dependency {
        name: value["name"].as_str()?.to_owned(),
        kind: match value["kind"].as_str() {
            None => Kind::Normal,
            Some("build") => Kind::Build,
            Some("dev") => Kind::Dev,
            Some(_) => return None,
        },
        requirement: value["req"].as_str()?.to_owned(),
        is_path: value["path"].is_string(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_package_is_read_with_its_dependencies() {
        let metadata = json!({"packages": [{
            "name": "a", "version": "0.1.0", "manifest_path": "/r/crates/a/Cargo.toml", "description": null,
            "keywords": ["k"], "publish": [], "dependencies": [
                {"name": "b", "kind": null, "req": "^0.1.0", "path": "/r/crates/b"},
                {"name": "c", "kind": "dev", "req": "*"},
            ],
        }]});
        let packages = parse(&metadata).unwrap();
        let [package] = &packages[..] else { panic!("{packages:?}") };
        assert_eq!((package.description.as_deref(), package.published), (None, false));
        assert_eq!(package.directory, PathBuf::from("/r/crates/a"));
        let [b, c] = &package.dependencies[..] else { panic!("{package:?}") };
        assert_eq!((b.kind, b.is_path, b.requirement.as_str()), (Kind::Normal, true, "^0.1.0"));
        assert_eq!((c.kind, c.is_path, c.requirement.as_str()), (Kind::Dev, false, "*"));
    }

    #[test]
    fn what_is_not_metadata_is_an_error() {
        assert!(parse(&json!({})).is_err());
        assert!(parse(&json!({"packages": [{"name": "a"}]})).is_err());
    }
}
