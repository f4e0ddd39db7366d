//! What can keep a benchmark from measuring: [`BenchError`].

use std::io;

/// A case could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The system refused something that the benchmark itself needs.
    #[error("{what}: {source}")]
    Os {
        /// What was tried, with the path.
        what: String,
        /// Why it did not work.
        source: io::Error,
    },
    /// A group did not start.
    #[error(transparent)]
    Start(#[from] rankrun::StartProcessesError),
    /// A return value cannot be had.
    #[error(transparent)]
    Value(#[from] rankrun::ReturnValuesError),
    /// A group gave no result.
    #[error(transparent)]
    Wait(#[from] rankrun::WaitError),
    /// What was measured did something else than what the case is about.
    #[error("{0}")]
    Unexpected(String),
}

/// Says of an error of the system what was tried; for `map_err`.
pub fn os<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> BenchError {
    move |error| BenchError::Os { what: what.into(), source: error.into() }
}
