//! What an exit usually means, in a sentence: codes that shells use, signals with a usual cause, and for SIGKILL what
//! the kernel's counters say. Pure. Not here: reading the counters, which the launcher does.

use std::fmt;

use rankrun_types::{ExitKind, Signal};

/// What the kernel's counters of processes killed for want of memory say of the time while a worker ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MemoryKills {
    /// They cannot be read, or nobody looked.
    #[default]
    NotKnown,
    /// No process was killed.
    None,
    /// Processes of the launcher's control group were killed.
    InGroup {
        /// How many.
        count: u64,
        /// The group's memory limit in bytes, if it has one.
        limit: Option<u64>,
    },
    /// Processes of this host were killed, which may be others.
    OnHost {
        /// How many.
        count: u64,
    },
}

impl fmt::Display for MemoryKills {
    /// What it means for a process that SIGKILL ended.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let processes = |count: &u64| if *count == 1 { "1 process".to_owned() } else { format!("{count} processes") };
        match self {
            Self::NotKnown => f.write_str("killed from outside, often by the kernel when memory ran out"),
            Self::None => f.write_str(
                "killed, not for want of memory: by a person, a batch system or a daemon, or at a hard limit on CPU time",
            ),
            Self::InGroup { count, limit } => {
                let killed = processes(count);
                write!(f, "probably out of memory: the kernel killed {killed} of this control group meanwhile")?;
                match limit {
                    Some(bytes) => write!(f, " (memory limit {} MiB)", bytes.div_ceil(1 << 20)),
                    None => Ok(()),
                }
            }
            Self::OnHost { count } => {
                write!(f, "probably out of memory: the kernel killed {} of this host meanwhile", processes(count))
            }
        }
    }
}

/// The usual meaning of an exit, or `None` where there is none.
///
/// A guess from the exit, and for SIGKILL from the counters, worded as one.
///
/// ```
/// use rankrun_errors::{MemoryKills, usual_meaning};
/// use rankrun_types::ExitKind;
///
/// let meaning = |code| usual_meaning(ExitKind::Code(code), MemoryKills::NotKnown);
/// assert_eq!(meaning(127).as_deref(), Some("a shell's code for: program not found"));
/// assert_eq!(meaning(1), None);
/// ```
#[must_use]
pub fn usual_meaning(exit: ExitKind, memory_kills: MemoryKills) -> Option<String> {
    match exit {
        ExitKind::Code(101) => Some("a Rust program's code for: panic".to_owned()),
        ExitKind::Code(126) => Some("a shell's code for: program found but not executable".to_owned()),
        ExitKind::Code(127) => Some("a shell's code for: program not found".to_owned()),
        ExitKind::Code(code @ 129..=192) => {
            let signal = Signal::from_raw(code - 128)?;
            let meaning = signal_meaning(signal, memory_kills).map(|text| format!(", {text}")).unwrap_or_default();
            Some(format!("a shell's code for: ended by signal {} ({signal}){meaning}", signal.as_raw()))
        }
        ExitKind::Code(255) => Some("often -1 of a program, or ssh that lost its connection".to_owned()),
        ExitKind::Signal { signal, .. } => signal_meaning(signal, memory_kills),
        ExitKind::Code(_) | ExitKind::Lost => None,
    }
}

fn signal_meaning(signal: Signal, memory_kills: MemoryKills) -> Option<String> {
    let text = match signal {
        Signal::KILL => return Some(memory_kills.to_string()),
        Signal::SEGV => "invalid memory reference, often a fault in native code or a stack overflow",
        Signal::ABRT => "the program aborted itself, often a failed assertion or an uncaught C++ exception",
        Signal::BUS => "bad memory access, often a full /dev/shm or a mapped file that was cut short",
        Signal::FPE => "bad arithmetic, often an integer division by zero",
        Signal::ILL => "illegal instruction, often a program built for another processor",
        Signal::TRAP => "a trap: a failed check in native code, or a breakpoint without a debugger",
        Signal::SYS => "a system call that a sandbox forbids",
        Signal::PIPE => "it wrote to a pipe or socket that nobody reads any more",
        Signal::ALRM => "a timer of its own ran out",
        Signal::XCPU => "its CPU time limit was exceeded (ulimit -t)",
        Signal::XFSZ => "its file size limit was exceeded (ulimit -f)",
        Signal::TERM => "it was asked to end by another process",
        Signal::INT => "it was interrupted, usually with Ctrl-C",
        Signal::QUIT => "it was told to quit, usually with Ctrl-\\",
        Signal::HUP => "its terminal or session was closed",
        _ => return None,
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(signal: Signal) -> ExitKind {
        ExitKind::Signal { signal, core_dumped: false }
    }

    #[test]
    fn each_exit_has_its_usual_meaning() {
        let oom = MemoryKills::InGroup { count: 1, limit: Some(20 << 20) };
        let unknown = MemoryKills::NotKnown;
        for (exit, kills, part) in [
            (ExitKind::Code(101), unknown, Some("panic")),
            (ExitKind::Code(126), unknown, Some("not executable")),
            (ExitKind::Code(127), unknown, Some("not found")),
            (ExitKind::Code(134), unknown, Some("signal 6 (SIGABRT), the program aborted itself")),
            (ExitKind::Code(137), oom, Some("signal 9 (SIGKILL), probably out of memory")),
            (ExitKind::Code(138), unknown, Some("signal 10 (SIGUSR1)")),
            (ExitKind::Code(143), unknown, Some("signal 15 (SIGTERM)")),
            (ExitKind::Code(255), unknown, Some("often -1")),
            (ExitKind::Code(1), oom, None),
            (ExitKind::Code(2), unknown, None),
            (ExitKind::Code(128), unknown, None),
            (ExitKind::Code(193), unknown, None),
            (ExitKind::Lost, oom, None),
            (signal(Signal::XCPU), unknown, Some("CPU time limit")),
            (signal(Signal::BUS), unknown, Some("/dev/shm")),
            (signal(Signal::PIPE), unknown, Some("nobody reads")),
            (signal(Signal::SEGV), oom, Some("invalid memory reference")),
            (signal(Signal::USR1), unknown, None),
        ] {
            let meaning = usual_meaning(exit, kills);
            assert_eq!(meaning.is_some(), part.is_some(), "{exit:?}: {meaning:?}");
            assert!(meaning.unwrap_or_default().contains(part.unwrap_or_default()), "{exit:?}");
        }
    }

    #[test]
    fn a_kill_is_told_with_what_the_counters_say() {
        for (kills, text) in [
            (MemoryKills::NotKnown, "killed from outside, often by the kernel when memory ran out"),
            (
                MemoryKills::None,
                "killed, not for want of memory: by a person, a batch system or a daemon, or at a hard limit on CPU time",
            ),
            (
                MemoryKills::InGroup { count: 1, limit: Some(20 << 20) },
                "probably out of memory: the kernel killed 1 process of this control group meanwhile (memory limit 20 MiB)",
            ),
            (
                MemoryKills::InGroup { count: 3, limit: None },
                "probably out of memory: the kernel killed 3 processes of this control group meanwhile",
            ),
            (
                MemoryKills::OnHost { count: 2 },
                "probably out of memory: the kernel killed 2 processes of this host meanwhile",
            ),
        ] {
            assert_eq!(usual_meaning(signal(Signal::KILL), kills).as_deref(), Some(text));
        }
    }
}
