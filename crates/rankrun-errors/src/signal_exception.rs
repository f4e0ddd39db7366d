//! The error of a wait that a signal to the launcher ended: [`SignalException`]. Not here: catching the signal.

use rankrun_types::Signal;

/// The launcher got a signal while it supervised its workers.
///
/// Mirrors `SignalException(msg, sigval)` of the reference.
///
/// ```
/// use rankrun_errors::SignalException;
/// use rankrun_types::Signal;
///
/// let error = SignalException::new("process 17 got signal SIGTERM", Signal::TERM);
/// assert_eq!(error.to_string(), "process 17 got signal SIGTERM");
/// assert_eq!(error.sigval, Signal::TERM);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{msg}")]
pub struct SignalException {
    /// What happened.
    pub msg: String,
    /// The signal.
    pub sigval: Signal,
}

impl SignalException {
    /// The exception with this message and signal.
    #[must_use]
    pub fn new(msg: impl Into<String>, sigval: Signal) -> Self {
        Self { msg: msg.into(), sigval }
    }
}
