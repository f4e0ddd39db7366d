//! What is told of a run that stalled: [`stall_report`]. Pure. Not here: noticing it (`rankrun`).

use std::collections::HashMap;

use rankrun::crates::errors::{escape_block, escape_line};
use rankrun::crates::types::ranges;
use rankrun::{SinkId, Stall};

/// Ranks, or sets of ranks with the same last lines, whose last lines are shown.
const SHOWN: usize = 16;

/// What a worker had written last.
#[derive(Debug, Clone)]
pub(crate) struct Tail<'a> {
    pub(crate) rank: usize,
    pub(crate) stream: SinkId,
    pub(crate) lines: &'a [String],
}

/// The report of a run that stalled; several lines, without a newline at the end.
///
/// `tails`: by rank, of those that are not told of elsewhere.
pub(crate) fn stall_report(role: &str, host: &str, stall: &Stall, tails: &[Tail<'_>]) -> String {
    let role = escape_line(role);
    format!(
        "{role} FAILED on {host}: {}\n\n\
         No worker wrote captured output, or touched its heartbeat file, for that long. What they did then:\n{stall}{}",
        message(stall),
        last_lines(tails)
    )
}

fn last_lines(tails: &[Tail<'_>]) -> String {
    let mut text = String::new();
    let groups = equal(tails);
    for (ranks, tail) in groups.iter().take(SHOWN) {
        text += &format!("\n\nLast lines of {} ({}):", ranges("rank", ranks.iter().copied()), tail.stream);
        for line in tail.lines {
            text += "\n";
            let line = escape_block(line.trim_end());
            if !line.is_empty() {
                text += &format!("  {line}");
            }
        }
    }
    let rest: Vec<usize> = groups.iter().skip(SHOWN).flat_map(|(ranks, _)| ranks.iter().copied()).collect();
    if !rest.is_empty() {
        text += &format!("\n\nThe last lines of {} are in their log files.", ranges("rank", rest));
    }
    text
}

/// The reason in a line.
pub(crate) fn message(stall: &Stall) -> String {
    let quiet = (stall.quiet.as_secs_f64() * 10.0).round() / 10.0;
    format!("stalled: no output for {quiet} s")
}

/// The ranks with the same last lines together, in the order of the first of each.
fn equal<'a>(tails: &[Tail<'a>]) -> Vec<(Vec<usize>, Tail<'a>)> {
    let mut groups: Vec<(Vec<usize>, Tail<'a>)> = Vec::new();
    let mut known = HashMap::new();
    for tail in tails {
        let at = *known.entry((tail.stream, tail.lines)).or_insert(groups.len());
        match groups.get_mut(at) {
            Some((ranks, _)) => ranks.push(tail.rank),
            None => groups.push((vec![tail.rank], tail.clone())),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_each_rank_follow_and_equal_ones_are_there_once() {
        let (waits, reads) = (["step 7".to_owned(), String::new(), "waits".to_owned()], ["\u{1b}[2Kreads".to_owned()]);
        let tail = |rank, stream, lines| Tail { rank, stream, lines };
        let tails = [
            tail(8, SinkId::Stderr, &waits[..]),
            tail(9, SinkId::Stdout, &reads[..]),
            tail(10, SinkId::Stderr, &waits[..]),
        ];
        let expected = "\n\nLast lines of ranks 8,10 (stderr):\n  step 7\n\n  waits\n\n\
                        Last lines of rank 9 (stdout):\n  \\x1b[2Kreads";
        assert_eq!(last_lines(&tails), expected);
        assert_eq!(last_lines(&[]), "");
    }

    #[test]
    fn of_many_ranks_some_are_shown_and_the_rest_is_named() {
        let lines: Vec<_> = (0..512).map(|rank| [format!("step {rank}")]).collect();
        let tails = lines.iter().enumerate();
        let tails: Vec<_> = tails.map(|(rank, lines)| Tail { rank, stream: SinkId::Stderr, lines }).collect();
        let text = last_lines(&tails);
        assert!(text.contains("\n  step 15\n\n") && text.lines().count() < 60, "{text}");
        assert!(text.ends_with("\n\nThe last lines of ranks 16-511 are in their log files."), "{text}");
    }
}
