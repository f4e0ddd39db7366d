//! What an exit usually means, in a sentence: codes that shells use, signals with a usual cause.
//! Not here: evidence for it, such as counters of the kernel.

use rankrun_types::{ExitKind, Signal};

/// The usual meaning of an exit, or `None` where there is none.
///
/// A guess from the exit alone, worded as one.
///
/// ```
/// use rankrun_errors::usual_meaning;
/// use rankrun_types::ExitKind;
///
/// assert_eq!(usual_meaning(ExitKind::Code(127)).as_deref(), Some("a shell's code for: program not found"));
/// assert_eq!(usual_meaning(ExitKind::Code(1)), None);
/// ```
#[must_use]
pub fn usual_meaning(exit: ExitKind) -> Option<String> {
    match exit {
        ExitKind::Code(126) => Some("a shell's code for: program found but not executable".to_owned()),
        ExitKind::Code(127) => Some("a shell's code for: program not found".to_owned()),
        ExitKind::Code(101) => Some("a Rust program's code for: panic".to_owned()),
        ExitKind::Code(code @ 129..=192) => {
            let signal = Signal::from_raw(code - 128)?;
            Some(format!("a shell's code for: ended by signal {} ({signal})", signal.as_raw()))
        }
        ExitKind::Signal { signal, .. } => signal_meaning(signal).map(str::to_owned),
        ExitKind::Code(_) | ExitKind::Lost => None,
    }
}

fn signal_meaning(signal: Signal) -> Option<&'static str> {
    Some(match signal {
        Signal::SEGV => "invalid memory reference, often a fault in native code or a stack overflow",
        Signal::ABRT => "the program aborted itself, often a failed assertion or an uncaught C++ exception",
        Signal::BUS => "bad memory access, often a full /dev/shm or a mapped file that was cut short",
        Signal::FPE => "bad arithmetic, often an integer division by zero",
        Signal::ILL => "illegal instruction, often a program built for another processor",
        Signal::SYS => "a system call that a sandbox forbids",
        Signal::PIPE => "it wrote to a pipe or socket that nobody reads any more",
        Signal::XCPU => "its CPU time limit was exceeded",
        Signal::XFSZ => "its file size limit was exceeded",
        Signal::KILL => "killed from outside, often by the kernel when memory ran out",
        Signal::TERM => "it was asked to end by another process",
        Signal::INT => "it was interrupted, usually with Ctrl-C",
        Signal::HUP => "its terminal or session was closed",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_code_above_128_names_its_signal() {
        let meaning = |code| usual_meaning(ExitKind::Code(code));
        assert_eq!(meaning(137).as_deref(), Some("a shell's code for: ended by signal 9 (SIGKILL)"));
        assert_eq!((meaning(0), meaning(128), meaning(193), meaning(255)), (None, None, None, None));
    }

    #[test]
    fn a_signal_without_a_usual_cause_has_no_meaning() {
        let signal = Signal::USR1;
        assert_eq!(usual_meaning(ExitKind::Signal { signal, core_dumped: false }), None);
    }
}
