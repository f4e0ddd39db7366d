//! The failures of a group: [`ChildFailedError`]. Not here: its report's text (`report`).

use std::collections::BTreeMap;
use std::fmt;

use crate::failure::ProcessFailure;
use crate::report::Report;
use crate::root_cause::root_cause;

/// A failed worker with its place in the job.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankFailure {
    /// The worker's rank among all workers of the job.
    pub rank: usize,
    /// The role it played.
    pub role: String,
    /// Its failure.
    pub failure: ProcessFailure,
}

/// One or more workers of a group failed.
///
/// It holds at least one failure. Its `Display` is the report: plain text, several lines, without a newline at the
/// end. Mirrors `ChildFailedError` of torch ([`ChildFailedError::new`]) and of TensorPlay
/// ([`ChildFailedError::from_pairs`]).
///
/// ```
/// use std::{collections::BTreeMap, time::SystemTime};
/// use rankrun_errors::{ChildFailedError, ProcessFailure};
/// use rankrun_types::ExitKind;
///
/// let failure = ProcessFailure::observe(1, 4242, ExitKind::Code(7), SystemTime::now(), None);
/// let error = ChildFailedError::new("trainer", BTreeMap::from([(1, failure)]))?;
/// assert_eq!(error.get_first_failure().0, 1);
/// assert!(error.to_string().starts_with("trainer FAILED: rank 1 (local rank 1, pid 4242): exit code 7\n"));
/// # Ok::<(), rankrun_errors::NoFailuresError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildFailedError {
    name: String,
    host: Option<String>,
    /// In the order of ranks, and of roles within a rank. Never empty.
    failures: Vec<RankFailure>,
    /// The position of the root cause.
    first: usize,
    /// Those that did not fail but were stopped, in order.
    stopped: Vec<usize>,
}

/// A `ChildFailedError` was to be made of no failures.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no failed worker was given for group `{name}`: at least one is needed")]
pub struct NoFailuresError {
    /// The name of the group.
    pub name: String,
}

impl ChildFailedError {
    /// The error of a group with this name (its role), from each failed worker's rank in the job to its failure.
    ///
    /// # Errors
    /// [`NoFailuresError`] if there is no failure.
    pub fn new(name: impl Into<String>, failures: BTreeMap<usize, ProcessFailure>) -> Result<Self, NoFailuresError> {
        let name = name.into();
        let failures =
            failures.into_iter().map(|(rank, failure)| RankFailure { rank, role: name.clone(), failure }).collect();
        Self::build(name, failures)
    }

    /// The error of workers given as pairs of role and failure; each one's rank is its local rank.
    ///
    /// None is lost: two roles may have a failed worker of the same rank. The name is that of all the roles.
    ///
    /// # Errors
    /// [`NoFailuresError`] if there is no failure.
    pub fn from_pairs(pairs: Vec<(String, ProcessFailure)>) -> Result<Self, NoFailuresError> {
        let mut roles: Vec<&str> = Vec::new();
        for (role, _) in &pairs {
            if !roles.contains(&role.as_str()) {
                roles.push(role);
            }
        }
        let name = roles.join(", ");
        let mut failures: Vec<_> =
            pairs.into_iter().map(|(role, failure)| RankFailure { rank: failure.local_rank, role, failure }).collect();
        failures.sort_by(|a, b| (a.rank, &a.role).cmp(&(b.rank, &b.role)));
        Self::build(name, failures)
    }

    fn build(name: String, failures: Vec<RankFailure>) -> Result<Self, NoFailuresError> {
        match root_cause(failures.iter().map(|one| one.failure.order(one.rank))) {
            Some(first) => Ok(Self { name, host: None, failures, first, stopped: Vec::new() }),
            None => Err(NoFailuresError { name }),
        }
    }

    /// The error with the name of the host for its report.
    #[must_use]
    pub fn with_host(self, host: impl Into<String>) -> Self {
        Self { host: Some(host.into()), ..self }
    }

    /// The error with the ranks of the workers that the launcher stopped because of it; the report lists them in a line.
    #[must_use]
    pub fn with_stopped(self, ranks: impl IntoIterator<Item = usize>) -> Self {
        let mut stopped: Vec<usize> = ranks.into_iter().collect();
        stopped.sort_unstable();
        Self { stopped, ..self }
    }

    /// The name of the group.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The host on which the workers ran, if it was given.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// The ranks of the workers that did not fail but were stopped, in order, if they were given.
    #[must_use]
    pub fn stopped_ranks(&self) -> &[usize] {
        &self.stopped
    }

    /// All failures in the order of ranks, at least one.
    #[must_use]
    pub fn failures(&self) -> &[RankFailure] {
        &self.failures
    }

    /// The rank and the failure of the root cause: the earliest genuine failure, of equal ones that of the lowest rank.
    ///
    /// See [`FailureOrder`](crate::FailureOrder). Mirrors `ChildFailedError.get_first_failure`.
    #[must_use]
    pub fn get_first_failure(&self) -> (usize, &ProcessFailure) {
        let first = self.root();
        (first.rank, &first.failure)
    }

    /// The root cause with its role.
    #[must_use]
    pub fn root(&self) -> &RankFailure {
        &self.failures[self.first]
    }

    /// The report, for showing it in another way than `Display` does.
    #[must_use]
    pub fn report(&self) -> Report<'_> {
        Report::new(self)
    }
}

impl fmt::Display for ChildFailedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report().fmt(f)
    }
}

impl std::error::Error for ChildFailedError {}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use rankrun_types::ExitKind;

    use super::*;

    fn failure(local_rank: usize, at_ms: u64) -> ProcessFailure {
        let ended_at = UNIX_EPOCH + Duration::from_millis(at_ms);
        ProcessFailure::observe(local_rank, 100 + local_rank as u32, ExitKind::Code(1), ended_at, None)
    }

    #[test]
    fn no_failures_are_an_error_of_both_constructors() {
        let error = ChildFailedError::new("trainer", BTreeMap::new()).unwrap_err();
        assert_eq!(error.to_string(), "no failed worker was given for group `trainer`: at least one is needed");
        assert!(ChildFailedError::from_pairs(Vec::new()).is_err());
    }

    #[test]
    fn the_first_failure_has_the_rank_of_the_job() {
        let error = ChildFailedError::new("trainer", BTreeMap::from([(8, failure(0, 20)), (9, failure(1, 10))]));
        let error = error.unwrap();
        let (rank, first) = error.get_first_failure();
        assert_eq!((rank, first.local_rank), (9, 1));
    }

    #[test]
    fn pairs_with_the_same_rank_in_two_roles_are_all_kept() {
        let pairs =
            vec![("b".to_owned(), failure(0, 5)), ("a".to_owned(), failure(0, 5)), ("b".to_owned(), failure(0, 1))];
        let error = ChildFailedError::from_pairs(pairs).unwrap();
        assert_eq!(error.failures().len(), 3);
        assert_eq!((error.name(), error.root().role.as_str()), ("b, a", "b"));
        assert_eq!(error.get_first_failure().1.timestamp_ns, 1_000_000);
    }
}
