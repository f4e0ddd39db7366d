//! Whether a group that ended is started again, and when: [`decide`], pure. Not here: starting it (`run`).

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::{Duration, Instant};

use rankrun::crates::types::escape_line;
use rankrun::{ExitKind, RunState, Signal};

/// The longest pause between two attempts unless chosen otherwise.
const DEFAULT_CAP: Duration = Duration::from_secs(300);

/// When a group is started again. The default never does, as torchrun's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RestartPolicy {
    /// How often the whole group may be started again; torchrun's `--max-restarts`.
    pub max_restarts: u32,
    /// How long to wait before that.
    pub backoff: Backoff,
    /// Exit codes of the first failing worker after which it is not, as a shell reports them (128 and the signal's number).
    pub never_on: ExitCodes,
    /// A group that failed sooner than this after its start is not started again: it would fail again.
    pub min_uptime: Duration,
}

/// The pause before each restart: `first` before the first one, twice as long before each further one, at most `most`.
///
/// As text: seconds, or two numbers of seconds with a colon (`5`, `0.5:60`); without a second one the most is 300 s, or
/// the first pause if that is longer. The default is no pause, as in torchrun.
///
/// ```
/// use std::time::Duration;
/// use rankrun_launcher::Backoff;
///
/// let backoff: Backoff = "5:60".parse()?;
/// let pauses: Vec<u64> = (0..6).map(|restarts| backoff.pause(restarts).as_secs()).collect();
/// assert_eq!(pauses, [5, 10, 20, 40, 60, 60]);
/// # Ok::<(), rankrun_launcher::ParseBackoffError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backoff {
    /// The first pause.
    pub first: Duration,
    /// The longest.
    pub most: Duration,
}

/// A text is no [`Backoff`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid pause `{}`: expected seconds, or the first and the longest pause, such as 5 or 5:60", escape_line(.text))]
pub struct ParseBackoffError {
    /// What was given.
    pub text: String,
}

impl Backoff {
    /// The pause before a restart when there were `restarts` of them.
    #[must_use]
    pub fn pause(self, restarts: u32) -> Duration {
        let factor = 1_u32.checked_shl(restarts).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.most)
    }
}

impl FromStr for Backoff {
    type Err = ParseBackoffError;

    fn from_str(text: &str) -> Result<Self, ParseBackoffError> {
        let wrong = || ParseBackoffError { text: text.to_owned() };
        let seconds = |text: &str| {
            let seconds = text.trim().parse::<f64>().map_err(|_| wrong())?;
            Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
        };
        let (first, most) = match text.split_once(':') {
            Some((first, most)) => (seconds(first)?, seconds(most)?),
            None => {
                let first = seconds(text)?;
                (first, first.max(DEFAULT_CAP))
            }
        };
        if most < first {
            return Err(wrong());
        }
        Ok(Self { first, most })
    }
}

/// A set of exit codes, 0 to 255.
///
/// As text: codes and ranges with commas.
///
/// ```
/// let codes: rankrun_launcher::ExitCodes = "2,64-78".parse()?;
/// assert!(codes.contains(2) && codes.contains(78) && !codes.contains(1));
/// assert_eq!(codes.to_string(), "2,64-78");
/// # Ok::<(), rankrun_launcher::ParseExitCodesError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExitCodes(Vec<RangeInclusive<u8>>);

/// A text is no [`ExitCodes`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid exit codes `{}`: expected numbers from 0 to 255 and ranges with commas, such as 2,64-78", escape_line(.part))]
pub struct ParseExitCodesError {
    /// The part between two commas that is wrong.
    pub part: String,
}

impl ExitCodes {
    /// Whether this code is in the set.
    #[must_use]
    pub fn contains(&self, code: u8) -> bool {
        self.0.iter().any(|range| range.contains(&code))
    }
}

impl FromStr for ExitCodes {
    type Err = ParseExitCodesError;

    fn from_str(text: &str) -> Result<Self, ParseExitCodesError> {
        let range = |part: &str| {
            let wrong = || ParseExitCodesError { part: part.to_owned() };
            let code = |text: &str| text.trim().parse::<u8>().map_err(|_| wrong());
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (code(first)?, code(last)?);
            if last < first { Err(wrong()) } else { Ok(first..=last) }
        };
        text.split(',').map(range).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for ExitCodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, range) in self.0.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{}", range.start())?;
            if range.end() > range.start() {
                write!(f, "-{}", range.end())?;
            }
        }
        Ok(())
    }
}

/// How one attempt of a group ended, as far as [`decide`] looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// How often the group had been started again before this attempt.
    pub restarts: u32,
    /// How it ended.
    pub state: RunState,
    /// How the worker that failed first ended; `None` if none did.
    pub root_cause: Option<ExitKind>,
    /// From the start of the group to its first failure, or to its end.
    pub uptime: Duration,
    /// Whether a signal to the launcher, or its user, asked for the end.
    pub stop_requested: bool,
}

/// What is to be done after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Start the group again, not before this.
    Restart {
        /// When.
        at: Instant,
    },
    /// It is over.
    End(Verdict),
}

/// Why a group is not started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It succeeded.
    Succeeded,
    /// It was asked to stop.
    Stopped,
    /// A signal came after an attempt had failed and before the next one ran.
    Interrupted {
        /// The signal.
        signal: Signal,
    },
    /// What became of it is not known; starting it again could run it twice.
    Unknown,
    /// All restarts are used up, or there were none.
    NoRestartsLeft {
        /// How many there were.
        max_restarts: u32,
    },
    /// The exit code is one after which it is never tried again.
    NeverOn {
        /// The code.
        code: u8,
    },
    /// It failed too soon.
    TooShort {
        /// How long it had run.
        uptime: Duration,
        /// How long it should have.
        min_uptime: Duration,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeeded => f.write_str("the group succeeded"),
            Self::Stopped => f.write_str("the group was asked to stop"),
            Self::Interrupted { signal } => write!(f, "{signal} came before the next attempt"),
            Self::Unknown => f.write_str("what became of the group is not known"),
            Self::NoRestartsLeft { max_restarts: 0 } => f.write_str("no restart was asked for"),
            Self::NoRestartsLeft { max_restarts: 1 } => f.write_str("the one restart is used up"),
            Self::NoRestartsLeft { max_restarts } => write!(f, "all {max_restarts} restarts are used up"),
            Self::NeverOn { code } => write!(f, "exit code {code} is among those that are not tried again"),
            Self::TooShort { uptime, min_uptime } => write!(
                f,
                "the group failed {:.1} s after its start, sooner than the {} s that a restart needs",
                uptime.as_secs_f64(),
                min_uptime.as_secs_f64()
            ),
        }
    }
}

/// Says whether the group is started again after an attempt that ended `now`.
///
/// Only a failed group is. Of several reasons not to, the one that would hold for any number of restarts is named.
/// Mirrors the loop of torch's `SimpleElasticAgent`, with more ways to give up.
#[must_use]
pub fn decide(now: Instant, ended: &Ended, policy: &RestartPolicy) -> Decision {
    let code = ended.root_cause.map(ExitKind::shell_code);
    let verdict = match ended.state {
        RunState::Succeeded => Verdict::Succeeded,
        _ if ended.stop_requested => Verdict::Stopped,
        RunState::Stopped => Verdict::Stopped,
        RunState::Failed => match code.filter(|code| policy.never_on.contains(*code)) {
            _ if policy.max_restarts == 0 => Verdict::NoRestartsLeft { max_restarts: 0 },
            Some(code) => Verdict::NeverOn { code },
            None if ended.uptime < policy.min_uptime => {
                Verdict::TooShort { uptime: ended.uptime, min_uptime: policy.min_uptime }
            }
            None if ended.restarts >= policy.max_restarts => {
                Verdict::NoRestartsLeft { max_restarts: policy.max_restarts }
            }
            None => {
                let pause = policy.backoff.pause(ended.restarts);
                // A pause that no clock can count is as good as the longest of a year.
                let at = now.checked_add(pause).unwrap_or(now + Duration::from_secs(365 * 86_400));
                return Decision::Restart { at };
            }
        },
        _ => Verdict::Unknown,
    };
    Decision::End(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policy() -> RestartPolicy {
        RestartPolicy {
            max_restarts: 3,
            backoff: "5:15".parse().unwrap(),
            never_on: "2,64-78,137".parse().unwrap(),
            min_uptime: Duration::from_secs(10),
        }
    }

    fn failed() -> Ended {
        Ended {
            restarts: 0,
            state: RunState::Failed,
            root_cause: Some(ExitKind::Code(1)),
            uptime: Duration::from_secs(60),
            stop_requested: false,
        }
    }

    #[test]
    fn each_way_to_end_has_its_verdict() {
        let now = Instant::now();
        let killed = ExitKind::Signal { signal: Signal::KILL, core_dumped: false };
        let short = Duration::from_secs(9);
        let policy = policy();
        for (ended, expected) in [
            (Ended { state: RunState::Succeeded, root_cause: None, ..failed() }, Verdict::Succeeded),
            (Ended { state: RunState::Succeeded, stop_requested: true, ..failed() }, Verdict::Succeeded),
            (Ended { state: RunState::Stopped, root_cause: None, ..failed() }, Verdict::Stopped),
            (Ended { stop_requested: true, ..failed() }, Verdict::Stopped),
            (Ended { state: RunState::Unknown, ..failed() }, Verdict::Unknown),
            (Ended { restarts: 3, ..failed() }, Verdict::NoRestartsLeft { max_restarts: 3 }),
            (Ended { root_cause: Some(ExitKind::Code(64)), ..failed() }, Verdict::NeverOn { code: 64 }),
            (Ended { root_cause: Some(killed), ..failed() }, Verdict::NeverOn { code: 137 }),
            (
                Ended { uptime: short, ..failed() },
                Verdict::TooShort { uptime: short, min_uptime: Duration::from_secs(10) },
            ),
        ] {
            assert_eq!(decide(now, &ended, &policy), Decision::End(expected), "{ended:?}");
        }
        let never = RestartPolicy { max_restarts: 0, ..policy };
        let expected = Decision::End(Verdict::NoRestartsLeft { max_restarts: 0 });
        assert_eq!(decide(now, &failed(), &never), expected);
    }

    #[test]
    fn pauses_grow_up_to_their_most() {
        let now = Instant::now();
        for (restarts, seconds) in [(0, 5), (1, 10), (2, 15)] {
            let at = now + Duration::from_secs(seconds);
            assert_eq!(decide(now, &Ended { restarts, ..failed() }, &policy()), Decision::Restart { at });
        }
        assert_eq!(Backoff::default().pause(7), Duration::ZERO);
        assert_eq!("1000".parse::<Backoff>().unwrap().pause(3), Duration::from_secs(1000));
    }

    #[test]
    fn what_is_no_backoff_or_no_code_is_refused_with_what_was_expected() {
        for text in ["", "x", "-1", "5:", "5:1", "nan", "5:6:7"] {
            let error = text.parse::<Backoff>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("5:60"), "{error}");
        }
        for (text, part) in
            [("", "``"), ("256", "`256`"), ("1,x", "`x`"), ("9-3", "`9-3`"), ("1,,2", "``"), ("-1", "`-1`")]
        {
            let error = text.parse::<ExitCodes>().unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("2,64-78"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_group_is_started_more_often_than_allowed_and_none_that_did_not_fail(
            restarts in 0_u32..20,
            max_restarts in 0_u32..10,
            code in 0_i32..256,
            uptime in 0_u64..20,
            state in prop::sample::select(vec![RunState::Succeeded, RunState::Failed, RunState::Stopped, RunState::Unknown]),
            stop_requested: bool,
        ) {
            let policy = RestartPolicy { max_restarts, ..policy() };
            let ended = Ended {
                restarts,
                state,
                root_cause: Some(ExitKind::Code(code)),
                uptime: Duration::from_secs(uptime),
                stop_requested,
            };
            let now = Instant::now();
            if let Decision::Restart { at } = decide(now, &ended, &policy) {
                prop_assert!(restarts < max_restarts && state == RunState::Failed && !stop_requested);
                prop_assert!(uptime >= 10 && !policy.never_on.contains(code as u8));
                prop_assert!(at >= now && at <= now + policy.backoff.most);
            }
        }

        #[test]
        fn codes_are_read_as_they_are_shown(ranges in prop::collection::vec((0_u8..=255, 0_u8..=255), 1..6)) {
            let text: Vec<String> = ranges.iter().map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))).collect();
            let codes: ExitCodes = text.join(",").parse().unwrap();
            prop_assert_eq!(codes.to_string().parse::<ExitCodes>().unwrap(), codes.clone());
            for code in 0..=255_u8 {
                let inside = ranges.iter().any(|(a, b)| (*a.min(b)..=*a.max(b)).contains(&code));
                prop_assert_eq!(codes.contains(code), inside);
            }
        }
    }
}
