//! A spec made full, one mode for each local rank of a group: [`to_map`] and [`to_map_strict`]. Not here: two specs
//! made one map (`redirects`).

use rankrun_types::PerRank;

use crate::mode::Std;
use crate::spec::{StdSpec, write_runs};

/// A spec names ranks that the group does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.describe())]
pub struct RankOutOfWorldError {
    /// The ranks that are outside, ascending; at least one.
    pub ranks: Vec<usize>,
    /// How many workers the group has on this host.
    pub local_world_size: usize,
}

impl RankOutOfWorldError {
    fn describe(&self) -> String {
        let mut ranks = String::new();
        // Some runs are enough to see what is wrong with the spec.
        let left_out = write_runs(&mut ranks, self.ranks.iter().copied(), 8);
        if left_out {
            ranks.push_str(", ...");
        }
        let (rank, is) = if self.ranks.len() == 1 { ("rank", "is") } else { ("ranks", "are") };
        let (workers, world) = match self.local_world_size {
            0 => ("workers", String::new()),
            1 => ("worker", " (0)".to_owned()),
            n => ("workers", format!(" (0-{})", n - 1)),
        };
        format!("{rank} {ranks} {is} outside of the {} {workers} of this host{world}", self.local_world_size)
    }
}

/// Makes a spec full: one mode for each of `local_world_size` ranks.
///
/// A rank that the spec does not name gets the spec's default, or [`Std::NONE`]. Ranks outside of the group are
/// ignored, as the reference does; [`to_map_strict`] refuses them.
///
/// Mirrors `to_map` of `torch.distributed.elastic.multiprocessing`.
///
/// ```
/// use std::collections::BTreeMap;
/// use rankrun_redirects::{Std, to_map};
///
/// assert_eq!(to_map(Std::ALL, 2).values(), [Std::ALL, Std::ALL]);
/// assert_eq!(to_map(BTreeMap::from([(1, Std::OUT), (9, Std::ERR)]), 2).values(), [Std::NONE, Std::OUT]);
/// ```
pub fn to_map(spec: impl Into<StdSpec>, local_world_size: usize) -> PerRank<Std> {
    spec.into().to_map(local_world_size)
}

/// Makes a spec full as [`to_map`] does, if each rank that it names is in the group.
///
/// # Errors
/// [`RankOutOfWorldError`] with the ranks that are not.
///
/// ```
/// use rankrun_redirects::{StdSpec, to_map_strict};
///
/// let error = to_map_strict(StdSpec::parse_mapping("3-5:1,9:1")?, 4).unwrap_err();
/// assert_eq!(error.to_string(), "ranks 4-5, 9 are outside of the 4 workers of this host (0-3)");
/// # Ok::<(), rankrun_redirects::ParseStdError>(())
/// ```
pub fn to_map_strict(spec: impl Into<StdSpec>, local_world_size: usize) -> Result<PerRank<Std>, RankOutOfWorldError> {
    spec.into().to_map_strict(local_world_size)
}

impl StdSpec {
    /// Makes the spec full without taking it; the contract is that of the function [`to_map`].
    #[must_use]
    pub fn to_map(&self, local_world_size: usize) -> PerRank<Std> {
        match self {
            Self::One(mode) => PerRank::filled(local_world_size, *mode),
            Self::PerRank(map) => {
                let mut modes = PerRank::filled(local_world_size, map.default.unwrap_or_default());
                for (local_rank, mode) in map.ranks.range(..local_world_size) {
                    modes[*local_rank] = *mode;
                }
                modes
            }
        }
    }

    /// Makes the spec full without taking it; the contract is that of the function [`to_map_strict`].
    ///
    /// # Errors
    /// [`RankOutOfWorldError`] with the ranks that are outside of the group.
    pub fn to_map_strict(&self, local_world_size: usize) -> Result<PerRank<Std>, RankOutOfWorldError> {
        if let Self::PerRank(map) = self {
            let ranks: Vec<usize> = map.ranks.range(local_world_size..).map(|(rank, _)| *rank).collect();
            if !ranks.is_empty() {
                return Err(RankOutOfWorldError { ranks, local_world_size });
            }
        }
        Ok(self.to_map(local_world_size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(spec: &str, local_world_size: usize) -> String {
        let spec = StdSpec::parse_mapping(spec).unwrap();
        to_map_strict(&spec, local_world_size).unwrap_err().to_string()
    }

    #[test]
    fn a_rank_outside_is_named_with_the_world() {
        assert_eq!(refusal("9:1", 4), "rank 9 is outside of the 4 workers of this host (0-3)");
        assert_eq!(refusal("0-2:1", 1), "ranks 1-2 are outside of the 1 worker of this host (0)");
        assert_eq!(refusal("0:1", 0), "rank 0 is outside of the 0 workers of this host");
    }

    #[test]
    fn many_ranks_outside_are_named_in_one_short_line() {
        assert_eq!(refusal("4-65535:1", 4), "ranks 4-65535 are outside of the 4 workers of this host (0-3)");
        let every_other: Vec<String> = (10..60).step_by(2).map(|rank| format!("{rank}:1")).collect();
        assert_eq!(
            refusal(&every_other.join(","), 4),
            "ranks 10, 12, 14, 16, 18, 20, 22, 24, ... are outside of the 4 workers of this host (0-3)"
        );
    }

    #[test]
    fn a_default_and_a_single_mode_name_no_rank_outside() {
        for spec in ["default:2", "2", "0:2,*:2"] {
            let spec = StdSpec::parse_mapping(spec).unwrap();
            assert_eq!(to_map_strict(&spec, 1).unwrap().values(), [Std::ERR]);
        }
    }
}
