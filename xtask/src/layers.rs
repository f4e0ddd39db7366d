//! Which crate may depend on which: the table of the layers, and the check against it. Arrows point down only.

use crate::metadata::{Kind, Package, packages};

/// A crate with the crates of ours and of others that it may use.
struct Layer {
    name: &'static str,
    ours: Ours,
    /// Others' crates beyond [`LIBRARY`].
    others: &'static [&'static str],
}

enum Ours {
    Only(&'static [&'static str]),
    /// A member that tests or measures the rest and on which nothing depends.
    Any,
}

/// The layers from the bottom up. A crate that is not here fails the check: add it with a reason.
const LAYERS: &[Layer] = &[
    Layer { name: "rankrun-types", ours: Ours::Only(&[]), others: &[] },
    Layer { name: "rankrun-redirects", ours: Ours::Only(&["rankrun-types"]), others: &["bitflags"] },
    Layer { name: "rankrun-errors", ours: Ours::Only(&["rankrun-types"]), others: &["jiff"] },
    // linkme: what takes over before main is linked in from above.
    Layer { name: "rankrun-process", ours: Ours::Only(&["rankrun-types"]), others: &["linkme"] },
    // rustix: FIONREAD, TIOCGWINSZ and TIOCGPTPEER, which nix has as macros that make unsafe functions only.
    Layer {
        name: "rankrun-logs",
        ours: Ours::Only(&["rankrun-types", "rankrun-redirects"]),
        others: &["memchr", "rustix"],
    },
    // linkme: functions are registered by the linker. rmp-serde: what they take and return, as MessagePack.
    Layer {
        name: "rankrun-functions",
        ours: Ours::Only(&["rankrun-types", "rankrun-errors", "rankrun-process"]),
        others: &["linkme", "rmp-serde"],
    },
    Layer {
        name: "rankrun-context",
        ours: Ours::Only(&[
            "rankrun-types",
            "rankrun-redirects",
            "rankrun-errors",
            "rankrun-process",
            "rankrun-logs",
            "rankrun-functions",
        ]),
        others: &[],
    },
    Layer {
        name: "rankrun",
        ours: Ours::Only(&[
            "rankrun-types",
            "rankrun-redirects",
            "rankrun-errors",
            "rankrun-process",
            "rankrun-logs",
            "rankrun-functions",
            "rankrun-context",
        ]),
        others: &[],
    },
    // jiff: times in RFC 3339.
    Layer { name: "rankrun-launcher", ours: Ours::Only(&["rankrun"]), others: &["jiff"] },
    Layer {
        name: "rankrun-cli",
        ours: Ours::Only(&["rankrun", "rankrun-launcher"]),
        // clap_complete, clap_mangen: completions and man pages, from the same parser.
        others: &["anstream", "anstyle", "clap", "clap_complete", "clap_mangen", "env_logger", "humantime", "jiff"],
    },
    Layer { name: "rankrun-testkit", ours: Ours::Only(&["rankrun-types"]), others: &[] },
    Layer { name: "rankrun-tests", ours: Ours::Any, others: DEV },
    Layer { name: "rankrun-benches", ours: Ours::Any, others: DEV },
    Layer { name: "xtask", ours: Ours::Only(&[]), others: &[] },
];

/// Others' crates that each of ours may use.
const LIBRARY: &[&str] = &[
    "crossbeam-channel",
    "libc",
    "log",
    "nix",
    "parking_lot",
    "serde",
    "serde_json",
    "signal-hook",
    "tempfile",
    "thiserror",
];

/// Others' crates that may be used in tests, examples and benches besides.
const DEV: &[&str] =
    &["assert_cmd", "criterion", "env_logger", "expect-test", "proptest", "rustix", "saphyr", "tokio", "trybuild"];

/// May be a dev-dependency of any crate.
const TESTKIT: &str = "rankrun-testkit";

/// Each dependency of the workspace's members that is not allowed, one line each.
pub(crate) fn layers() -> Result<Vec<String>, String> {
    Ok(check(&packages()?))
}

fn check(packages: &[Package]) -> Vec<String> {
    packages.iter().flat_map(check_package).collect()
}

fn check_package(package: &Package) -> Vec<String> {
    let name = &package.name;
    let Some(layer) = LAYERS.iter().find(|layer| layer.name == name) else {
        return vec![format!("{name}: not in the table of layers (xtask/src/layers.rs)")];
    };
    let mut found = Vec::new();
    for dependency in &package.dependencies {
        let (to, dev) = (dependency.name.as_str(), dependency.kind == Kind::Dev);
        let kind = if dev { "dev-dependency" } else { "dependency" };
        let ours = LAYERS.iter().any(|layer| layer.name == to) || dependency.is_path;
        if ours {
            let allowed = match layer.ours {
                Ours::Any => true,
                Ours::Only(names) => names.contains(&to) || (dev && to == TESTKIT),
            };
            if !allowed {
                found.push(format!("{name}: the {kind} {name} -> {to} is against the layers"));
            }
        } else if !(LIBRARY.contains(&to) || layer.others.contains(&to) || (dev && DEV.contains(&to))) {
            found.push(format!("{name}: the {kind} {name} -> {to} is not among the crates of others that it may use"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Dependency;

    fn package(name: &str, dependencies: &[(&str, Kind)]) -> Package {
        let dependencies = dependencies
            .iter()
            .map(|(name, kind)| Dependency {
                name: (*name).to_owned(),
                kind: *kind,
                requirement: "*".to_owned(),
                is_path: name.starts_with("rankrun"),
            })
            .collect();
        Package { name: name.to_owned(), dependencies, ..Package::default() }
    }

    #[test]
    fn the_workspace_keeps_to_the_table() {
        assert_eq!(layers().unwrap(), [""; 0]);
    }

    #[test]
    fn a_dependency_that_points_up_is_named() {
        let found = check(&[package("rankrun-types", &[("rankrun-logs", Kind::Normal)])]);
        assert_eq!(found, ["rankrun-types: the dependency rankrun-types -> rankrun-logs is against the layers"]);
    }

    #[test]
    fn a_dependency_that_points_sideways_is_named_for_tests_too() {
        let found = check(&[package("rankrun-logs", &[("rankrun-process", Kind::Dev), ("rankrun-types", Kind::Dev)])]);
        assert_eq!(found, ["rankrun-logs: the dev-dependency rankrun-logs -> rankrun-process is against the layers"]);
    }

    #[test]
    fn the_testkit_is_for_tests_only() {
        assert_eq!(check(&[package("rankrun-types", &[(TESTKIT, Kind::Dev)])]), [""; 0]);
        for kind in [Kind::Normal, Kind::Build] {
            let found = check(&[package("rankrun", &[(TESTKIT, kind)])]);
            assert_eq!(found, ["rankrun: the dependency rankrun -> rankrun-testkit is against the layers"]);
        }
    }

    #[test]
    fn loggers_parsers_and_runtimes_stay_out_of_the_libraries() {
        for name in ["env_logger", "clap", "tokio", "anyhow"] {
            let found = check(&[package("rankrun-context", &[(name, Kind::Normal)])]);
            assert_eq!(found.len(), 1, "{name}");
            assert!(found[0].contains(&format!("rankrun-context -> {name} is not among")), "{found:?}");
        }
        assert_eq!(check(&[package("rankrun-cli", &[("clap", Kind::Normal), ("env_logger", Kind::Normal)])]), [""; 0]);
        assert_eq!(check(&[package("rankrun", &[("tokio", Kind::Dev)])]), [""; 0]);
    }

    #[test]
    fn a_crate_that_is_not_in_the_table_is_named() {
        let found = check(&[package("rankrun-extra", &[])]);
        assert_eq!(found, ["rankrun-extra: not in the table of layers (xtask/src/layers.rs)"]);
    }

    #[test]
    fn the_table_itself_points_down_only() {
        for (at, layer) in LAYERS.iter().enumerate() {
            let Ours::Only(names) = layer.ours else { continue };
            for name in names {
                assert!(LAYERS[..at].iter().any(|below| below.name == *name), "{} -> {name}", layer.name);
            }
        }
    }
}
