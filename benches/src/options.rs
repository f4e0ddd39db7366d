//! The command line of a benchmark: [`Options`].

use std::num::NonZeroUsize;

/// How a benchmark was called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// `--bench`, which `cargo bench` gives: measure. Without it each case runs once, as `cargo test --benches` wants.
    pub measure: bool,
    /// `--rounds N`: how many pairs a case runs, instead of its own number.
    pub rounds: Option<NonZeroUsize>,
    /// `--check`: the exit code tells whether all limits were kept.
    pub check: bool,
    /// Parts of names of cases; a case whose name has one of them runs. None: all run.
    pub filters: Vec<String>,
}

/// The command line makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// There is no such option.
    #[error("unknown option `{0}`: expected --rounds N, --check, or part of a case's name")]
    UnknownOption(String),
    /// `--rounds` without a number above 0.
    #[error("--rounds needs a number above 0, got `{0}`")]
    Rounds(String),
}

impl Options {
    /// Reads the arguments that follow the program's name.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Self, UsageError> {
        let mut options = Self::default();
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--bench" => options.measure = true,
                "--check" => options.check = true,
                "--rounds" => {
                    let text = args.next().unwrap_or_default();
                    options.rounds = Some(text.parse().map_err(|_| UsageError::Rounds(text))?);
                }
                option if option.starts_with('-') => return Err(UsageError::UnknownOption(arg)),
                _ => options.filters.push(arg),
            }
        }
        Ok(options)
    }

    /// Whether a case is wanted.
    #[must_use]
    pub fn selects(&self, case: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| case.contains(filter))
    }

    /// How many pairs a case runs, `usual` unless the command line says otherwise.
    #[must_use]
    pub fn rounds(&self, usual: usize) -> usize {
        match self.rounds {
            Some(rounds) => rounds.get(),
            None if self.measure => usual,
            None => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, UsageError> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn cases_run_once_unless_cargo_bench_or_a_number_says_more() {
        assert_eq!(parse("").unwrap().rounds(30), 1);
        assert_eq!(parse("--bench").unwrap().rounds(30), 30);
        assert_eq!(parse("--rounds 7").unwrap().rounds(30), 7);
        assert_eq!(parse("--bench --rounds 7").unwrap().rounds(30), 7);
    }

    #[test]
    fn a_case_is_selected_by_any_part_of_its_name() {
        let options = parse("64 256 --check").unwrap();
        assert!(options.check);
        assert!(options.selects("64 workers") && options.selects("256 workers") && !options.selects("8 workers"));
        assert!(parse("--bench").unwrap().selects("8 workers"));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        assert_eq!(parse("--round 7"), Err(UsageError::UnknownOption("--round".to_owned())));
        assert_eq!(parse("--rounds 0"), Err(UsageError::Rounds("0".to_owned())));
        assert_eq!(parse("--rounds"), Err(UsageError::Rounds(String::new())));
    }
}
