//! The table that a benchmark prints: [`Row`], [`Limit`]. Not here: measuring (`session`).

use std::fmt;
use std::time::Duration;

use crate::stats::{Pair, Summary, summarize};

/// What a case is held against.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// Nothing: shown for the reader.
    None,
    /// The median of A / B is at most this.
    Ratio(f64),
    /// The median of A is below this.
    Time(Duration),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("-"),
            Self::Ratio(ratio) => write!(f, "A/B <= {ratio:.2}"),
            Self::Time(time) => write!(f, "A < {} ms", time.as_secs_f64() * 1e3),
        }
    }
}

/// Whether a limit was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// There is no limit, or nothing was measured.
    None,
    /// It was.
    Pass,
    /// It was not.
    Over,
}

impl Verdict {
    /// [`Pass`](Self::Pass) if `kept`, else [`Over`](Self::Over).
    #[must_use]
    pub fn of(kept: bool) -> Self {
        if kept { Self::Pass } else { Self::Over }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "-",
            Self::Pass => "PASS",
            Self::Over => "OVER",
        })
    }
}

/// One case of the table; its [`Display`](fmt::Display) is a line without newline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The case.
    pub case: String,
    /// What A took.
    pub subject: String,
    /// What B took.
    pub baseline: String,
    /// A / B.
    pub ratio: String,
    /// What it is held against.
    pub limit: String,
    /// Whether the limit was kept.
    pub verdict: Verdict,
}

impl Row {
    /// What stands above the rows.
    #[must_use]
    pub fn header() -> String {
        line("case", "A ms: median (min..max)", "B ms: median (min..max)", "A/B: median (q1..q3)", "limit", "verdict")
    }

    /// The row of a case of pairs; `None` without pairs.
    #[must_use]
    pub fn of_pairs(case: &str, pairs: &[Pair], limit: Limit) -> Option<Self> {
        let (subject, baseline, ratio) = summarize(pairs)?;
        let verdict = match limit {
            Limit::None => Verdict::None,
            Limit::Ratio(limit) => Verdict::of(ratio.median <= limit),
            Limit::Time(limit) => Verdict::of(subject.median < limit.as_secs_f64() * 1e3),
        };
        let times = |times: Summary| format!("{} ({}..{})", Digits(times.median), Digits(times.min), Digits(times.max));
        Some(Self {
            case: case.to_owned(),
            subject: times(subject),
            baseline: times(baseline),
            ratio: format!("{:.2} ({:.2}..{:.2})", ratio.median, ratio.lower, ratio.upper),
            limit: limit.to_string(),
            verdict,
        })
    }

    /// The row of a case that is one value and compared with nothing.
    #[must_use]
    pub fn of_value(case: &str, value: &str, limit: &str, verdict: Verdict) -> Self {
        let none = || "-".to_owned();
        Self {
            case: case.to_owned(),
            subject: value.to_owned(),
            baseline: none(),
            ratio: none(),
            limit: limit.to_owned(),
            verdict,
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, subject, baseline, ratio, limit, verdict } = self;
        f.write_str(&line(case, subject, baseline, ratio, limit, &verdict.to_string()))
    }
}

fn line(case: &str, subject: &str, baseline: &str, ratio: &str, limit: &str, verdict: &str) -> String {
    format!("{case:<34} {subject:<26} {baseline:<26} {ratio:<22} {limit:<13} {verdict}")
}

/// A time in as many digits as mean something.
struct Digits(f64);

impl fmt::Display for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = match self.0 {
            value if value < 1.0 => 3,
            value if value < 10.0 => 2,
            _ => 1,
        };
        write!(f, "{:.digits$}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs() -> [Pair; 3] {
        [(12, 10), (13, 10), (90, 60)].map(|(subject, baseline)| Pair {
            subject: Duration::from_millis(subject),
            baseline: Duration::from_millis(baseline),
        })
    }

    #[test]
    fn a_row_has_times_ratio_limit_and_verdict() {
        let row = Row::of_pairs("64 workers", &pairs(), Limit::Ratio(1.2)).unwrap();
        assert_eq!(
            row.to_string().split_whitespace().collect::<Vec<_>>().join(" "),
            "64 workers 13.0 (12.0..90.0) 10.0 (10.0..60.0) 1.30 (1.25..1.40) A/B <= 1.20 OVER"
        );
    }

    #[test]
    fn a_limit_on_the_ratio_may_be_reached_and_one_on_the_time_not() {
        let verdict = |limit| Row::of_pairs("c", &pairs(), limit).unwrap().verdict;
        assert_eq!(verdict(Limit::Ratio(1.3)), Verdict::Pass);
        assert_eq!(verdict(Limit::Ratio(1.29)), Verdict::Over);
        assert_eq!(verdict(Limit::Time(Duration::from_millis(13))), Verdict::Over);
        assert_eq!(verdict(Limit::Time(Duration::from_millis(14))), Verdict::Pass);
        assert_eq!(verdict(Limit::None), Verdict::None);
    }

    #[test]
    fn a_case_without_pairs_has_no_row() {
        assert_eq!(Row::of_pairs("c", &[], Limit::None), None);
    }
}
