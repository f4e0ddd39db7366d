//! The command `lint`: all checks, each with one line of result. Not here: the checks of our own (`layers`, `tidy`).

use std::time::Instant;

use crate::run::{Tool, cargo};
use crate::{layers, tidy};

type Check<'a> = (&'a str, &'a dyn Fn() -> Result<(), String>);

/// Runs all checks, also after one failed.
pub(crate) fn lint() -> Result<(), String> {
    let rustdoc = || {
        // A library and a binary may share a name, and with it the place of their pages: so one after the other.
        tool(denying_warnings(cargo(&["doc", "--workspace", "--no-deps", "--lib"])))?;
        tool(denying_warnings(cargo(&["doc", "--workspace", "--no-deps", "--bins"])))
    };
    let checks: [Check<'_>; 5] = [
        ("fmt", &|| tool(cargo(&["fmt", "--all", "--check"]))),
        ("layers", &|| list(layers::layers())),
        ("tidy", &|| list(tidy::tidy())),
        ("clippy", &|| tool(cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))),
        ("rustdoc", &rustdoc),
    ];
    let mut failed = Vec::new();
    for (name, check) in checks {
        let start = Instant::now();
        let outcome = check();
        let word = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("{name:<8} {word} ({:.1} s)", start.elapsed().as_secs_f64());
        if let Err(why) = outcome {
            println!("{}", why.trim_end());
            failed.push(name);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("lint failed: {}", failed.join(", "))) }
}

fn denying_warnings(tool: Tool) -> Tool {
    let flags = std::env::var("RUSTDOCFLAGS").unwrap_or_default();
    tool.env("RUSTDOCFLAGS", format!("{flags} -D warnings").trim())
}

fn tool(tool: Tool) -> Result<(), String> {
    let output = tool.capture()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
}

fn list(found: Result<Vec<String>, String>) -> Result<(), String> {
    let found = found?;
    if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
}
