//! The same test with pidfds and without: [`Pidfds`].

use rankrun_testkit::Launcher;

/// Whether rankrun may use pidfds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pidfds {
    /// Where the kernel has them.
    Used,
    /// As on a kernel without them.
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
            Self::Used => launcher.env_remove(CHOICE),
            Self::Refused => launcher.env(CHOICE, "1"),
        }
    }
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
