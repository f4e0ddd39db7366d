//! What a context does about signals to its program: [`SignalPlan`]. Not here: catching them (`rankrun-process`).

use rankrun_types::Signal;

/// What each signal to this program means for the group. Whatever is not named keeps its usual effect.
///
/// Mirrors `TORCHELASTIC_SIGNALS_TO_HANDLE` and what mpirun and Slurm do with the rest.
///
/// ```
/// use rankrun_context::SignalPlan;
/// use rankrun_types::Signal;
///
/// let plan = SignalPlan::default().stop([Signal::TERM, Signal::INT]).forward([Signal::USR1]).job_control(true);
/// assert_eq!(plan.signals(), [Signal::TERM, Signal::INT, Signal::USR1, Signal::TSTP, Signal::CONT]);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignalPlan {
    pub(crate) stop: Vec<Signal>,
    pub(crate) forward: Vec<Signal>,
    pub(crate) job_control: bool,
    pub(crate) children: bool,
}

impl SignalPlan {
    /// Sets the signals that end the wait for the group, so that the caller can close it.
    #[must_use]
    pub fn stop(mut self, signals: impl IntoIterator<Item = Signal>) -> Self {
        self.stop = signals.into_iter().collect();
        self
    }

    /// Sets the signals that are passed on to the workers while the group goes on. One that also stops, stops.
    #[must_use]
    pub fn forward(mut self, signals: impl IntoIterator<Item = Signal>) -> Self {
        self.forward = signals.into_iter().collect();
        self
    }

    /// Sets whether SIGTSTP and SIGCONT (Ctrl-Z and `fg`) stop the workers and let them go on together with this program.
    #[must_use]
    pub fn job_control(mut self, job_control: bool) -> Self {
        self.job_control = job_control;
        self
    }

    /// Whether this signal ends the wait for the group.
    #[must_use]
    pub fn stops_at(&self, signal: Signal) -> bool {
        self.stop.contains(&signal)
    }

    /// Adds SIGCHLD, by which orphans that end are noticed.
    pub(crate) fn children(mut self, children: bool) -> Self {
        self.children = children;
        self
    }

    /// The signals that are caught, each once.
    #[must_use]
    pub fn signals(&self) -> Vec<Signal> {
        let job_control: &[Signal] = if self.job_control { &[Signal::TSTP, Signal::CONT] } else { &[] };
        let children: &[Signal] = if self.children { &[Signal::CHLD] } else { &[] };
        let mut signals = Vec::new();
        for signal in self.stop.iter().chain(&self.forward).chain(job_control).chain(children) {
            if !signals.contains(signal) {
                signals.push(*signal);
            }
        }
        signals
    }

    /// What to do about a signal that came.
    pub(crate) fn meaning(&self, signal: Signal) -> Meaning {
        if self.stop.contains(&signal) {
            Meaning::Stop
        } else if self.forward.contains(&signal) {
            Meaning::Forward
        } else if self.job_control && signal == Signal::TSTP {
            Meaning::Suspend
        } else if self.job_control && signal == Signal::CONT {
            Meaning::Resume
        } else if self.children && signal == Signal::CHLD {
            Meaning::Child
        } else {
            Meaning::Nothing
        }
    }
}

/// What a signal that came means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    Stop,
    Forward,
    Suspend,
    Resume,
    Child,
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_the_first_meaning_that_fits() {
        let plan = SignalPlan::default().stop([Signal::USR1, Signal::TSTP]).forward([Signal::USR1, Signal::USR2]);
        let plan = plan.job_control(true);
        assert_eq!(plan.meaning(Signal::USR1), Meaning::Stop);
        assert_eq!(plan.meaning(Signal::USR2), Meaning::Forward);
        assert_eq!(plan.meaning(Signal::TSTP), Meaning::Stop);
        assert_eq!(plan.meaning(Signal::CONT), Meaning::Resume);
        assert_eq!(plan.meaning(Signal::CHLD), Meaning::Nothing);
        assert_eq!(plan.signals(), [Signal::USR1, Signal::TSTP, Signal::USR2, Signal::CONT]);
    }
}
