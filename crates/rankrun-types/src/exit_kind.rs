//! How a worker process ended: [`ExitKind`]. Not here: reading it from the kernel (`rankrun-process`).

use std::fmt;

use crate::Signal;

/// The exit code that stands for [`ExitKind::Lost`] where a number is needed.
pub const LOST_EXITCODE: i32 = 255;

/// How a worker process ended.
///
/// Mirrors the siginfo of waitid(2): `CLD_EXITED`, `CLD_KILLED`, `CLD_DUMPED`; `Lost` is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExitKind {
    /// It called exit with this code, 0 to 255.
    Code(i32),
    /// A signal ended it.
    Signal {
        /// The signal.
        signal: Signal,
        /// Whether the kernel wrote a core dump.
        core_dumped: bool,
    },
    /// It ended, but somebody else took its status: the host program reaped it or ignores SIGCHLD.
    ///
    /// A failure, never a success: nothing is known about it.
    Lost,
}

impl ExitKind {
    /// Whether the worker exited with code 0.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }

    /// The signal that ended the worker, if one did.
    #[must_use]
    pub fn signal(self) -> Option<Signal> {
        match self {
            Self::Signal { signal, .. } => Some(signal),
            Self::Code(_) | Self::Lost => None,
        }
    }

    /// The exit code as the reference counts it: the code, or minus the signal's number.
    ///
    /// [`LOST_EXITCODE`] for a lost worker. Mirrors `exitcode` of Python's `multiprocessing.Process`.
    #[must_use]
    pub fn exitcode(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal { signal, .. } => -signal.as_raw(),
            Self::Lost => LOST_EXITCODE,
        }
    }

    /// The exit code that a shell would report: the code, or 128 plus the signal's number.
    ///
    /// [`LOST_EXITCODE`] for a lost worker. In the range 0 to 255.
    #[must_use]
    pub fn shell_code(self) -> u8 {
        let code = match self {
            Self::Code(code) => code,
            Self::Signal { signal, .. } => 128 + signal.as_raw(),
            Self::Lost => LOST_EXITCODE,
        };
        (code & 0xff) as u8
    }
}

impl fmt::Display for ExitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal { signal, core_dumped } => {
                write!(f, "signal {} ({signal})", signal.as_raw())?;
                if *core_dumped {
                    f.write_str(", core dumped")?;
                }
                Ok(())
            }
            Self::Lost => f.write_str("exit status lost (taken by another part of the program)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_exit_is_never_a_success() {
        assert!(!ExitKind::Lost.is_success());
        assert_ne!(ExitKind::Lost.shell_code(), 0);
    }

    #[test]
    fn codes_follow_multiprocessing_and_the_shell() {
        let killed = ExitKind::Signal { signal: Signal::KILL, core_dumped: false };
        assert_eq!((killed.exitcode(), killed.shell_code()), (-9, 137));
        assert_eq!((ExitKind::Code(7).exitcode(), ExitKind::Code(7).shell_code()), (7, 7));
        let dumped = ExitKind::Signal { signal: Signal::ABRT, core_dumped: true };
        assert_eq!(dumped.to_string(), "signal 6 (SIGABRT), core dumped");
    }
}
