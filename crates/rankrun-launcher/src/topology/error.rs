//! Why it is not known how the job is laid out: [`TopologyError`]. Each says which variable or argument with which value.

use std::borrow::Cow;

use rankrun::crates::types::escape_line;

use super::{HostlistError, TopologyChoice};

/// It cannot be said how the job is laid out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A variable or an argument has a value that it cannot have.
    #[error("invalid value `{}` of {name}: expected {expected}", escape_line(&shortened(.value)))]
    Invalid {
        /// The variable or the argument.
        name: String,
        /// Its value.
        value: String,
        /// What it could be.
        expected: String,
    },
    /// There is a part of what is needed for more nodes than one.
    #[error("{given} without {missing}: a job of several nodes needs both on each of them")]
    Half {
        /// What there is, with its value.
        given: String,
        /// What there is not.
        missing: &'static str,
    },
    /// Two values contradict each other.
    #[error("{one} and {other} disagree about {what}")]
    Disagree {
        /// What about.
        what: &'static str,
        /// One with its name.
        one: String,
        /// The other with its name.
        other: String,
    },
    /// There are fewer nodes than this one's rank says.
    #[error("{node_rank} with {nodes}: expected the rank of a node, from 0 to {last}")]
    NoSuchNode {
        /// The rank with its name.
        node_rank: String,
        /// How many nodes there are, with its name.
        nodes: String,
        /// The last node's rank.
        last: usize,
    },
    /// A list of hosts does not parse.
    #[error("invalid value `{}` of {name}: {source}", escape_line(&shortened(.value)))]
    Hostlist {
        /// The variable.
        name: String,
        /// Its value.
        value: String,
        /// What is wrong with it.
        source: HostlistError,
    },
    /// The engine started rankrun more than once on a node.
    #[error(
        "{name}={value} means more than one rankrun on a node, which starts that node's workers itself: use {fix}, or --topology none if each is a run of its own"
    )]
    TasksPerNode {
        /// The variable.
        name: String,
        /// Its value.
        value: String,
        /// How to start one for each node.
        fix: &'static str,
    },
    /// It is known that there are several nodes, but not how many.
    #[error(
        "{seen} says that this is one of several nodes, but not of how many: give --nnodes, or --topology none for a run of its own"
    )]
    NoNodes {
        /// What was seen, with its value.
        seen: String,
    },
    /// It is not known which node this is.
    #[error("{seen} does not say which node this is: give --node-rank")]
    NoNodeRank {
        /// What was seen, with its value.
        seen: String,
    },
    /// It is not known where rank 0 listens.
    #[error(
        "it is not known where rank 0 of the {nodes} nodes listens: give --master-addr, or set MASTER_ADDR ({why})"
    )]
    NoMaster {
        /// How many nodes there are.
        nodes: usize,
        /// Why it is not known.
        why: String,
    },
    /// The allocation has several nodes, but nothing starts rankrun on each.
    #[error(
        "{seen}, but this is no step of the job that runs on each node: start rankrun by `srun --ntasks-per-node=1`, or with --topology none for this node alone"
    )]
    NotAStep {
        /// How many nodes there are, as the engine says.
        seen: String,
    },
    /// What was chosen is not there.
    #[error("--topology {choice}, but there is no {expected} in the environment")]
    NotThere {
        /// The choice.
        choice: TopologyChoice,
        /// The variables that would be.
        expected: &'static str,
    },
    /// One node was asked for, and several.
    #[error("{one} means one node, {other} means more")]
    OneNode {
        /// What asks for one.
        one: &'static str,
        /// What asks for more, with its value.
        other: String,
    },
}

/// A value as a line has room for it: of a long one, such as a list of ten thousand hosts, the ends and its length.
pub(super) fn shortened(value: &str) -> Cow<'_, str> {
    const ENDS: (usize, usize) = (120, 60);
    if value.chars().count() <= ENDS.0 + ENDS.1 + 40 {
        return Cow::Borrowed(value);
    }
    let first: String = value.chars().take(ENDS.0).collect();
    let last = value.char_indices().nth_back(ENDS.1 - 1).map_or(0, |(at, _)| at);
    Cow::Owned(format!("{first} ... {} ({} bytes)", &value[last..], value.len()))
}
