//! Choosing lines by what they contain: [`LineFilter`]. Not here: where chosen lines go (`tail`).

use memchr::memmem::Finder;

/// Matches lines that contain any of some substrings, as torch's `duplicate_stdout_filters` do.
///
/// ```
/// use rankrun_logs::LineFilter;
///
/// let filter = LineFilter::new(["loss", "error"])?;
/// assert!(filter.matches(b"step 3: loss 0.5"));
/// assert!(!filter.matches(b"step 3"));
/// # Ok::<(), rankrun_logs::LineFilterError>(())
/// ```
#[derive(Debug, Clone)]
pub struct LineFilter {
    finders: Vec<Finder<'static>>,
}

/// There is nothing to look for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineFilterError {
    /// No substring was given.
    #[error("the list of filters is empty: expected one or more texts")]
    NoSubstring,
    /// A substring is empty, and would match every line.
    #[error("filter {index} is empty and would match every line: expected a text")]
    EmptySubstring {
        /// Which, from 0.
        index: usize,
    },
}

impl LineFilter {
    /// A filter that matches lines with any of these substrings, byte by byte.
    ///
    /// # Errors
    /// [`LineFilterError`] if there are none, or one is empty.
    pub fn new<S: AsRef<[u8]>>(substrings: impl IntoIterator<Item = S>) -> Result<Self, LineFilterError> {
        let mut finders = Vec::new();
        for (index, substring) in substrings.into_iter().enumerate() {
            if substring.as_ref().is_empty() {
                return Err(LineFilterError::EmptySubstring { index });
            }
            finders.push(Finder::new(substring.as_ref()).into_owned());
        }
        if finders.is_empty() { Err(LineFilterError::NoSubstring) } else { Ok(Self { finders }) }
    }

    /// How long the longest substring is.
    pub(crate) fn longest(&self) -> usize {
        self.finders.iter().map(|finder| finder.needle().len()).max().unwrap_or(0)
    }

    /// Whether a line has any of the substrings.
    #[must_use]
    pub fn matches(&self, line: &[u8]) -> bool {
        self.finders.iter().any(|finder| finder.find(line).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_matches_nothing_or_everything_is_refused() {
        assert_eq!(LineFilter::new([""; 0]).unwrap_err(), LineFilterError::NoSubstring);
        assert_eq!(LineFilter::new(["a", ""]).unwrap_err(), LineFilterError::EmptySubstring { index: 1 });
    }

    #[test]
    fn bytes_that_are_no_text_are_matched_too() {
        let filter = LineFilter::new([&b"\xff\0"[..]]).unwrap();
        assert!(filter.matches(b"a\xff\0b") && !filter.matches(b"a\xffb\0"));
    }
}
