//! One run of a benchmark: [`Session`]. Not here: the cases, or how numbers are shown (`table`).

use std::process::ExitCode;
use std::time::Duration;

use crate::error::BenchError;
use crate::options::Options;
use crate::stats::Pair;
use crate::table::{Limit, Row, Verdict};

/// Exit code with `--check` when a limit was not kept.
const OVER: u8 = 1;
/// Exit code when the command line makes no sense.
const USAGE: u8 = 2;
/// Exit code when something could not be measured.
const NOT_MEASURED: u8 = 3;

/// One run of a benchmark: runs cases, prints a row for each as soon as it is measured.
#[derive(Debug)]
pub struct Session {
    options: Options,
    over: bool,
}

impl Session {
    /// Runs a benchmark with this program's arguments and returns its exit code.
    ///
    /// `title` says what A and B are.
    pub fn main(title: &str, cases: impl FnOnce(&mut Self) -> Result<(), BenchError>) -> ExitCode {
        let options = match Options::parse(std::env::args().skip(1)) {
            Ok(options) => options,
            Err(error) => {
                eprintln!("error: {error}");
                return USAGE.into();
            }
        };
        println!("{title}\n{}", Row::header());
        let mut session = Self { options, over: false };
        match cases(&mut session) {
            Ok(()) if session.over && session.options.check => OVER.into(),
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                NOT_MEASURED.into()
            }
        }
    }

    /// Whether a case is wanted; for cases that need much before they can run.
    #[must_use]
    pub fn selects(&self, case: &str) -> bool {
        self.options.selects(case)
    }

    /// Runs a case of pairs, A B A B, and prints its row; does nothing if the case is not wanted.
    ///
    /// Each closure runs its side once and returns the time it took, so that setting up and cleaning up are not in it.
    /// One pair more is run first, to warm up.
    ///
    /// # Errors
    /// The first error of a closure; the case ends with it.
    pub fn compare(
        &mut self,
        case: &str,
        usual_rounds: usize,
        limit: Limit,
        mut subject: impl FnMut() -> Result<Duration, BenchError>,
        mut baseline: impl FnMut() -> Result<Duration, BenchError>,
    ) -> Result<(), BenchError> {
        if !self.selects(case) {
            return Ok(());
        }
        let rounds = self.options.rounds(usual_rounds);
        if rounds > 1 {
            subject()?;
            baseline()?;
        }
        let mut pairs = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            pairs.push(Pair { subject: subject()?, baseline: baseline()? });
        }
        if let Some(row) = Row::of_pairs(case, &pairs, limit) {
            self.show(&row);
        }
        Ok(())
    }

    /// Prints the row of a case that is one value.
    pub fn value(&mut self, case: &str, value: &str, limit: &str, verdict: Verdict) {
        self.show(&Row::of_value(case, value, limit, verdict));
    }

    fn show(&mut self, row: &Row) {
        self.over |= row.verdict == Verdict::Over;
        println!("{row}");
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn session(line: &str) -> Session {
        let options = Options::parse(line.split_whitespace().map(str::to_owned)).unwrap();
        Session { options, over: false }
    }

    /// The sides that ran, in order.
    fn sides(line: &str, limit: Limit) -> (String, bool) {
        let ran = RefCell::new(String::new());
        let side = |name, millis| {
            ran.borrow_mut().push(name);
            Ok(Duration::from_millis(millis))
        };
        let mut session = session(line);
        session.compare("64 workers", 3, limit, || side('A', 3), || side('B', 1)).unwrap();
        (ran.take(), session.over)
    }

    #[test]
    fn the_sides_run_in_turn_after_one_pair_to_warm_up() {
        assert_eq!(sides("--bench", Limit::None), ("ABABABAB".to_owned(), false));
        assert_eq!(sides("", Limit::None), ("AB".to_owned(), false));
        assert_eq!(sides("--bench 256", Limit::None), (String::new(), false));
    }

    #[test]
    fn a_limit_that_is_not_kept_is_remembered() {
        assert!(sides("--bench", Limit::Ratio(2.9)).1);
        assert!(!sides("--bench", Limit::Ratio(3.0)).1);
    }

    #[test]
    fn an_error_ends_the_case() {
        let failed = || Err(BenchError::Unexpected("no".to_owned()));
        assert!(session("").compare("c", 3, Limit::None, || Ok(Duration::ZERO), failed).is_err());
    }
}
