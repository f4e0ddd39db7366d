//! The same test with what new kernels have and without: [`Pidfds`]; and control groups: [`control_groups_of`].

use std::path::PathBuf;

use rankrun::crates::process::ControlGroup;

use rankrun_testkit::Launcher;

/// Whether rankrun may use pidfds, and control groups where they can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pidfds {
    /// Where the kernel has them.
    Used,
    /// As on a kernel without them, or one that has other things not either.
    Refused,
}

impl Pidfds {
    /// Both, for a test that does the same with each.
    pub const BOTH: [Self; 2] = [Self::Used, Self::Refused];

    /// A run of the `rankrun` binary.
    pub fn rankrun(self) -> Launcher {
        self.apply(Launcher::rankrun())
    }

    /// Sets the choice in the environment of what is run.
    pub fn apply(self, launcher: Launcher) -> Launcher {
        const CHOICE: &str = "RANKRUN_NO_PIDFD";
        match self {
            Self::Used => launcher.env_remove(CHOICE).env_remove(NO_CGROUP),
            Self::Refused => launcher.env(CHOICE, "1").env(NO_CGROUP, "1"),
        }
    }
}

/// Makes rankrun do without control groups.
pub const NO_CGROUP: &str = "RANKRUN_NO_CGROUP";

/// Where rankrun's control groups are; `None` if it can make none. `what` is said to be skipped then.
#[must_use]
pub fn control_groups(what: &str) -> Option<PathBuf> {
    match ControlGroup::new("rankrun-tests") {
        Ok(group) => group.dir().parent().map(PathBuf::from),
        Err(error) => {
            eprintln!("skipped: {what}: {error}");
            None
        }
    }
}

/// The directories of the control groups that this rankrun has made.
#[must_use]
pub fn control_groups_of(pid: i32) -> Vec<PathBuf> {
    let Some(parent) = control_groups("a look for control groups") else { return Vec::new() };
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_its = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&format!("rankrun-{pid}-")))
    };
    entries.filter(is_its).collect()
}

/// Makes two tests of each named function that takes a [`Pidfds`].
#[macro_export]
macro_rules! with_and_without_pidfds {
    ($($name:ident),+ $(,)?) => {
        mod with_pidfds {
            $(#[test] fn $name() { super::$name($crate::Pidfds::Used); })+
        }
        mod without_pidfds {
            $(#[test] fn $name() { super::$name($crate::Pidfds::Refused); })+
        }
    };
}
