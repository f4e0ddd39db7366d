//! A signal's number with its name: [`Signal`]. Not here: sending or catching one (`rankrun-process`).

use std::fmt;
use std::str::FromStr;

use crate::escape_line;

/// A signal number of this system, with the names of signal(7).
///
/// Open: any number from 1 to `SIGRTMAX` can be held, named or not.
///
/// ```
/// use rankrun_types::Signal;
///
/// assert_eq!("TERM".parse(), Ok(Signal::TERM));
/// assert_eq!("sigterm".parse(), Ok(Signal::TERM));
/// assert_eq!("15".parse(), Ok(Signal::TERM));
/// assert_eq!(Signal::KILL.to_string(), "SIGKILL");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signal(i32);

/// A text that is no signal's name or number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown signal `{}`: expected a name such as SIGTERM, TERM or SIGRTMIN+1, or a number from 1 to {max}",
    escape_line(text)
)]
pub struct ParseSignalError {
    /// The text.
    pub text: String,
    /// The largest signal number of this system.
    pub max: i32,
}

macro_rules! signals {
    ($($name:ident $raw:ident $doc:literal;)*) => {
        impl Signal {
            $(#[doc = $doc] pub const $name: Self = Self(libc::$raw);)*
        }
        const NAMES: &[(&str, i32)] = &[$((stringify!($raw), libc::$raw),)*];
    };
}

signals! {
    HUP SIGHUP "The terminal hung up.";
    INT SIGINT "Interrupt from the keyboard.";
    QUIT SIGQUIT "Quit from the keyboard.";
    ILL SIGILL "Illegal instruction.";
    TRAP SIGTRAP "Trace trap.";
    ABRT SIGABRT "Abort.";
    BUS SIGBUS "Bad memory access, for example past the end of a mapped file.";
    FPE SIGFPE "Bad arithmetic.";
    KILL SIGKILL "Kill; cannot be caught.";
    USR1 SIGUSR1 "For users, the first.";
    SEGV SIGSEGV "Invalid memory reference.";
    USR2 SIGUSR2 "For users, the second.";
    PIPE SIGPIPE "Write to a pipe that nobody reads.";
    ALRM SIGALRM "Timer.";
    TERM SIGTERM "Please end.";
    STKFLT SIGSTKFLT "Stack fault of a coprocessor; unused.";
    CHLD SIGCHLD "A child stopped or ended.";
    CONT SIGCONT "Go on if stopped.";
    STOP SIGSTOP "Stop; cannot be caught.";
    TSTP SIGTSTP "Stop from the keyboard.";
    TTIN SIGTTIN "Read from the terminal in the background.";
    TTOU SIGTTOU "Write to the terminal in the background.";
    URG SIGURG "Urgent data on a socket.";
    XCPU SIGXCPU "CPU time limit exceeded.";
    XFSZ SIGXFSZ "File size limit exceeded.";
    VTALRM SIGVTALRM "Virtual timer.";
    PROF SIGPROF "Profiling timer.";
    WINCH SIGWINCH "The terminal's size changed.";
    IO SIGIO "Input or output is possible.";
    PWR SIGPWR "Power failure.";
    SYS SIGSYS "Bad system call.";
}

/// Names that signal(7) lists as synonyms.
const SYNONYMS: &[(&str, i32)] = &[("SIGIOT", libc::SIGIOT), ("SIGPOLL", libc::SIGPOLL), ("SIGCLD", libc::SIGCHLD)];

impl Signal {
    /// The signal with this number, or `None` outside 1 to `SIGRTMAX`.
    #[must_use]
    pub fn from_raw(number: i32) -> Option<Self> {
        (1..=libc::SIGRTMAX()).contains(&number).then_some(Self(number))
    }

    /// The signal's number, 1 to `SIGRTMAX`.
    #[must_use]
    pub const fn as_raw(self) -> i32 {
        self.0
    }

    /// The name with its `SIG`: `SIGTERM`, `SIGRTMIN+2`; `SIG33` for a number without a name.
    #[must_use]
    pub fn name(self) -> String {
        if let Some((name, _)) = NAMES.iter().find(|(_, number)| *number == self.0) {
            return (*name).to_owned();
        }
        match self.0 - libc::SIGRTMIN() {
            0 => "SIGRTMIN".to_owned(),
            above if above > 0 => format!("SIGRTMIN+{above}"),
            _ => format!("SIG{}", self.0),
        }
    }

    /// Whether the signal can be caught or ignored: all but SIGKILL and SIGSTOP.
    #[must_use]
    pub fn can_be_caught(self) -> bool {
        self != Self::KILL && self != Self::STOP
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signal({} {})", self.0, self.name())
    }
}

impl FromStr for Signal {
    type Err = ParseSignalError;

    /// Takes a name with or without `SIG`, in any case, `SIGRTMIN+n`, `SIGRTMAX-n`, or a number.
    fn from_str(text: &str) -> Result<Self, ParseSignalError> {
        parse(text.trim()).ok_or_else(|| ParseSignalError { text: text.to_owned(), max: libc::SIGRTMAX() })
    }
}

fn parse(text: &str) -> Option<Signal> {
    if let Some(number) = decimal(text) {
        return Signal::from_raw(number);
    }
    let upper = text.to_ascii_uppercase();
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    let known = NAMES.iter().chain(SYNONYMS).find(|(name, _)| name[3..] == *bare);
    if let Some((_, number)) = known {
        return Some(Signal(*number));
    }
    let number = match (bare.strip_prefix("RTMIN"), bare.strip_prefix("RTMAX")) {
        (Some(""), _) => libc::SIGRTMIN(),
        (Some(above), _) => libc::SIGRTMIN().checked_add(decimal(above.strip_prefix('+')?)?)?,
        (_, Some("")) => libc::SIGRTMAX(),
        (_, Some(below)) => libc::SIGRTMAX().checked_sub(decimal(below.strip_prefix('-')?)?)?,
        (None, None) => decimal(bare)?,
    };
    Signal::from_raw(number)
}

/// A number of ASCII digits only: no sign, as `i32::from_str` would allow.
fn decimal(text: &str) -> Option<i32> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_signal_parses_from_its_own_name() {
        for number in 1..=libc::SIGRTMAX() {
            let signal = Signal::from_raw(number).unwrap();
            assert_eq!(signal.name().parse(), Ok(signal), "{number}");
            assert_eq!(number.to_string().parse(), Ok(signal));
        }
    }

    #[test]
    fn what_is_no_signal_is_refused() {
        for text in [
            "",
            "0",
            "-1",
            "+9",
            "65",
            "SIG",
            "SIGFOO",
            "TERM ME",
            "RTMIN+99",
            "RTMIN-1",
            "٩",
            "RTMAX-99",
            "99999999999",
        ] {
            assert!(text.parse::<Signal>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn synonyms_and_real_time_signals_are_known() {
        assert_eq!("cld".parse(), Ok(Signal::CHLD));
        assert_eq!("SIGIOT".parse(), Ok(Signal::ABRT));
        assert_eq!("rtmin+2".parse::<Signal>().unwrap().as_raw(), libc::SIGRTMIN() + 2);
        assert_eq!("SIGRTMAX-1".parse::<Signal>().unwrap().as_raw(), libc::SIGRTMAX() - 1);
    }
}
