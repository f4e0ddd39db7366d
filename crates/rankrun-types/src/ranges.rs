//! Numbers listed as ranges, so that a line about hundreds of ranks stays short: [`ranges`]. Not here: what is said of them.

/// Ranges that are listed before the rest is only counted.
const MOST: usize = 16;

/// The numbers as a list of ranges for people, in order and each once: `rank 3`, `ranks 0-2,5`; after 16 ranges the rest is
/// counted.
///
/// `noun`: what they are, to which an `s` is put unless there is just one.
///
/// ```
/// use rankrun_types::ranges;
///
/// assert_eq!(ranges("rank", [5, 0, 2, 1]), "ranks 0-2,5");
/// assert!(ranges("rank", (0..512).step_by(2)).ends_with(",28,30 and 240 more"));
/// ```
#[must_use]
pub fn ranges(noun: &str, numbers: impl IntoIterator<Item = usize>) -> String {
    let mut numbers: Vec<usize> = numbers.into_iter().collect();
    numbers.sort_unstable();
    numbers.dedup();
    let runs: Vec<&[usize]> = numbers.chunk_by(|a, b| a.checked_add(1) == Some(*b)).collect();
    let (shown, rest) = runs.split_at(runs.len().min(MOST));
    let text = |run: &&[usize]| match *run {
        [first, .., last] => format!("{first}-{last}"),
        run => run.iter().map(usize::to_string).collect(),
    };
    let texts: Vec<String> = shown.iter().map(text).collect();
    let (plural, list) = (if numbers.len() == 1 { "" } else { "s" }, texts.join(","));
    match rest.iter().map(|run| run.len()).sum() {
        0 => format!("{noun}{plural} {list}"),
        rest => format!("{noun}{plural} {list} and {rest} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_listed_as_ranges_in_order_and_once() {
        assert_eq!(ranges("rank", [7, 7]), "rank 7");
        assert_eq!(ranges("node", [5, 0, 2, 1, 5]), "nodes 0-2,5");
        let ends = [usize::MAX, usize::MAX - 1, 0];
        assert_eq!(ranges("rank", ends), format!("ranks 0,{}-{}", usize::MAX - 1, usize::MAX));
    }

    #[test]
    fn after_many_ranges_the_rest_is_counted() {
        let text = ranges("rank", (0..512).step_by(2));
        assert!(text.ends_with(",28,30 and 240 more"), "{text}");
        assert_eq!(ranges("rank", (0..32).step_by(2)).matches(',').count(), 15);
    }
}
