//! Equal failures put together, so that a report of hundreds stays short.
//! Not here: the report's text (`report`).

use std::collections::HashMap;

use crate::child_failed::RankFailure;

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
