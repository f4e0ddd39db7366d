//! Medians and ratios, pure: [`Summary`], [`Pair`].

use std::time::Duration;

/// The times of the two sides of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// What is measured: A.
    pub subject: Duration,
    /// What it is compared with: B.
    pub baseline: Duration,
}

impl Pair {
    /// A / B.
    #[must_use]
    pub fn ratio(self) -> f64 {
        self.subject.as_secs_f64() / self.baseline.as_secs_f64()
    }
}

/// The five numbers that describe a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The smallest.
    pub min: f64,
    /// The lower quartile.
    pub lower: f64,
    /// The middle.
    pub median: f64,
    /// The upper quartile.
    pub upper: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Describes a series in any order; `None` if it is empty.
    ///
    /// Between two values of the sorted series it interpolates, so the median of an even number is the mean of the two
    /// in the middle.
    #[must_use]
    pub fn of(series: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = series.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let quantile = |part: f64| {
            let place = part * last as f64;
            let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        Some(Self {
            min: sorted[0],
            lower: quantile(0.25),
            median: quantile(0.5),
            upper: quantile(0.75),
            max: sorted[last],
        })
    }
}

/// Describes A in milliseconds, B in milliseconds, and A / B of each pair; `None` without pairs.
///
/// The ratio's median is that of the pairs' ratios, not the ratio of the medians: what slows the machine for a while
/// slows both sides of a pair.
#[must_use]
pub fn summarize(pairs: &[Pair]) -> Option<(Summary, Summary, Summary)> {
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    Some((
        Summary::of(pairs.iter().map(|pair| millis(pair.subject)))?,
        Summary::of(pairs.iter().map(|pair| millis(pair.baseline)))?,
        Summary::of(pairs.iter().map(|pair| pair.ratio()))?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(subject: u64, baseline: u64) -> Pair {
        Pair { subject: Duration::from_millis(subject), baseline: Duration::from_millis(baseline) }
    }

    #[test]
    fn an_odd_series_has_its_middle_value_as_median_in_any_order() {
        let summary = Summary::of([9.0, 1.0, 5.0, 3.0, 7.0]).unwrap();
        assert_eq!(summary, Summary { min: 1.0, lower: 3.0, median: 5.0, upper: 7.0, max: 9.0 });
    }

    #[test]
    fn an_even_series_has_the_mean_of_the_middle_two_as_median() {
        let summary = Summary::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(summary, Summary { min: 1.0, lower: 1.75, median: 2.5, upper: 3.25, max: 4.0 });
    }

    #[test]
    fn one_value_is_all_of_its_summary_and_none_has_no_summary() {
        assert_eq!(Summary::of([2.0]), Some(Summary { min: 2.0, lower: 2.0, median: 2.0, upper: 2.0, max: 2.0 }));
        assert_eq!(Summary::of([]), None);
        assert_eq!(summarize(&[]), None);
    }

    #[test]
    fn the_ratio_is_that_of_each_pair_so_a_slow_moment_does_not_count() {
        // The machine was ten times slower, then faster, for a whole pair: both sides had it.
        let (subject, baseline, ratio) = summarize(&[pair(20, 10), pair(2, 1), pair(200, 100)]).unwrap();
        assert_eq!((subject.median, baseline.median), (20.0, 10.0));
        assert_eq!((ratio.min, ratio.median, ratio.max), (2.0, 2.0, 2.0));
        let (_, _, ratio) = summarize(&[pair(10, 10), pair(30, 10), pair(100, 1000)]).unwrap();
        assert!((ratio.median - 1.0).abs() < 1e-9, "{ratio:?}");
    }
}
