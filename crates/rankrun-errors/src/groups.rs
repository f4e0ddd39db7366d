//! Equal failures put together, and ranks listed as ranges, so that a report of hundreds stays short.
//! Not here: the report's text (`report`).

use std::collections::HashMap;

use crate::child_failed::RankFailure;

/// Runs of ranks that are listed before the rest is only counted.
const MAX_RUNS: usize = 16;

/// Failures that differ only in rank, pid, time and files.
pub(crate) struct Group<'a> {
    /// The earliest first; never empty.
    pub(crate) members: Vec<&'a RankFailure>,
}

impl<'a> Group<'a> {
    /// The earliest of them.
    pub(crate) fn first(&self) -> &'a RankFailure {
        self.members[0]
    }
}

/// Puts equal failures together; groups and members are in the order of failures.
pub(crate) fn group_equal<'a>(failures: &[&'a RankFailure]) -> Vec<Group<'a>> {
    let mut ordered = failures.to_vec();
    ordered.sort_by_key(|one| one.failure.order(one.rank));
    let mut groups: Vec<Group<'a>> = Vec::new();
    let mut known = HashMap::new();
    for one in ordered {
        let failure = &one.failure;
        let message = failure.own_message();
        let key = (&one.role, failure.kind, failure.exit, message, failure.error_file_problem.as_deref());
        let at = *known.entry(key).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.members.push(one),
            None => groups.push(Group { members: vec![one] }),
        }
    }
    groups
}

/// The ranks as `rank 3` or `ranks 0-2,5`; after sixteen runs the rest is counted.
pub(crate) fn rank_list(ranks: impl IntoIterator<Item = usize>) -> String {
    let mut ranks: Vec<usize> = ranks.into_iter().collect();
    ranks.sort_unstable();
    ranks.dedup();
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    let runs: Vec<&[usize]> = ranks.chunk_by(|a, b| a.checked_add(1) == Some(*b)).collect();
    let shown = runs.len().min(MAX_RUNS);
    let texts: Vec<String> = runs[..shown]
        .iter()
        .map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            run => run.iter().map(usize::to_string).collect(),
        })
        .collect();
    let rest: usize = runs[shown..].iter().map(|run| run.len()).sum();
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    format!("{word} {}{more}", texts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_listed_as_runs_in_order() {
        assert_eq!(rank_list([5, 0, 2, 1]), "ranks 0-2,5");
        assert_eq!(rank_list([7]), "rank 7");
        assert_eq!(rank_list([usize::MAX, usize::MAX - 1, 0]), format!("ranks 0,{}-{}", usize::MAX - 1, usize::MAX));
    }

    #[test]
    fn many_scattered_ranks_are_counted_at_the_end() {
        let text = rank_list((0..512).step_by(2));
        assert!(text.ends_with(",28,30 and 240 more"), "{text}");
    }
}
