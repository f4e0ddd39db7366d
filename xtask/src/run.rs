//! Starting other programs in the workspace's root: [`Tool`]. Not here: which, and what their end means.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The root directory of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies below the root").to_owned()
}

/// A program with arguments, to be started in the root directory.
pub(crate) struct Tool {
    command: Command,
    shown: String,
}

/// The cargo that runs us.
pub(crate) fn cargo(args: &[&str]) -> Tool {
    let mut tool = Tool::new("cargo");
    tool.command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    tool.command.current_dir(root());
    tool.with(args)
}

impl Tool {
    pub(crate) fn new(program: &str) -> Self {
        let mut command = Command::new(program);
        command.current_dir(root());
        Self { command, shown: program.to_owned() }
    }

    pub(crate) fn with(mut self, args: &[&str]) -> Self {
        self.command.args(args);
        for arg in args {
            self.shown.push(' ');
            self.shown.push_str(arg);
        }
        self
    }

    pub(crate) fn env(mut self, key: &str, value: &str) -> Self {
        self.command.env(key, value);
        self
    }

    /// Lets it write to our output, and waits for it.
    pub(crate) fn pass_through(mut self) -> Result<(), String> {
        eprintln!("$ {}", self.shown);
        let status = self.command.status().map_err(|error| format!("`{}` does not start: {error}", self.shown))?;
        if status.success() { Ok(()) } else { Err(format!("`{}` failed: {status}", self.shown)) }
    }

    /// Takes all that it writes, and waits for it.
    pub(crate) fn capture(mut self) -> Result<Output, String> {
        self.command.output().map_err(|error| format!("`{}` does not start: {error}", self.shown))
    }

    /// What it writes to stdout, if it ends well.
    pub(crate) fn stdout(self) -> Result<Vec<u8>, String> {
        let shown = self.shown.clone();
        let output = self.capture()?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        Err(format!("`{shown}` failed: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
    }
}
