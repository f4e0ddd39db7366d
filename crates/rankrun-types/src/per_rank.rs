//! One value for each local rank: [`PerRank`]. Not here: specs that name only some ranks (`rankrun-redirects`).

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Index, IndexMut};

/// One value for each local rank, 0 to `len() - 1`, none missing.
///
/// It is dense by construction, so that "the map lacks rank 3" can happen only where a map comes in from outside
/// ([`PerRank::from_map`]) and nowhere after.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PerRank<T>(Vec<T>);

/// A map that should have one entry for each local rank has others, or not all.
///
/// Mirrors `_validate_full_rank` of torch's `multiprocessing.api`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: local rank mapping is not full: expected ranks {}, got {}", RankList(expected), RankList(got))]
pub struct RankMapError {
    /// Which map it is, for example `args`.
    pub what: String,
    /// The ranks that the group has.
    pub expected: Vec<usize>,
    /// The ranks that the map has.
    pub got: Vec<usize>,
}

/// Shows ascending ranks as `0-2,5`; none as `none`.
struct RankList<'a>(&'a [usize]);

impl fmt::Display for RankList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (i, run) in self.0.chunk_by(|a, b| a.checked_add(1) == Some(*b)).enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            match run {
                [one] => write!(f, "{one}")?,
                [first, .., last] => write!(f, "{first}-{last}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

impl<T> PerRank<T> {
    /// Makes the value of each of `local_world_size` ranks by calling `make`, in rank order.
    pub fn from_fn(local_world_size: usize, make: impl FnMut(usize) -> T) -> Self {
        Self((0..local_world_size).map(make).collect())
    }

    /// Takes the values in rank order.
    #[must_use]
    pub fn from_vec(values: Vec<T>) -> Self {
        Self(values)
    }

    /// Takes a map from outside, which must name each rank of `0..local_world_size` and no other.
    ///
    /// `what` names the map in the error.
    ///
    /// # Errors
    /// [`RankMapError`] with both key sets.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use rankrun_types::PerRank;
    ///
    /// let args = BTreeMap::from([(0, "a"), (2, "c")]);
    /// let error = PerRank::from_map("args", args, 3).unwrap_err();
    /// assert_eq!(error.to_string(), "args: local rank mapping is not full: expected ranks 0-2, got 0,2");
    /// ```
    pub fn from_map(what: &str, map: BTreeMap<usize, T>, local_world_size: usize) -> Result<Self, RankMapError> {
        if map.len() == local_world_size && map.keys().copied().eq(0..local_world_size) {
            return Ok(Self(map.into_values().collect()));
        }
        Err(RankMapError {
            what: what.to_owned(),
            expected: (0..local_world_size).collect(),
            got: map.into_keys().collect(),
        })
    }

    /// How many ranks there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no rank at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a rank, or `None` if there is no such rank.
    #[must_use]
    pub fn get(&self, local_rank: usize) -> Option<&T> {
        self.0.get(local_rank)
    }

    /// The value of a rank to change, or `None` if there is no such rank.
    #[must_use]
    pub fn get_mut(&mut self, local_rank: usize) -> Option<&mut T> {
        self.0.get_mut(local_rank)
    }

    /// Each rank with its value, in rank order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (usize, &T)> + DoubleEndedIterator {
        self.0.iter().enumerate()
    }

    /// Each rank with its value to change, in rank order.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (usize, &mut T)> + DoubleEndedIterator {
        self.0.iter_mut().enumerate()
    }

    /// The values in rank order.
    #[must_use]
    pub fn values(&self) -> &[T] {
        &self.0
    }

    /// The values in rank order, by value.
    #[must_use]
    pub fn into_values(self) -> Vec<T> {
        self.0
    }

    /// The same ranks with other values.
    pub fn map<U>(&self, mut make: impl FnMut(usize, &T) -> U) -> PerRank<U> {
        PerRank(self.iter().map(|(local_rank, value)| make(local_rank, value)).collect())
    }
}

impl<T: Clone> PerRank<T> {
    /// The same value for each of `local_world_size` ranks.
    #[must_use]
    pub fn filled(local_world_size: usize, value: T) -> Self {
        Self(vec![value; local_world_size])
    }
}

impl<T> Index<usize> for PerRank<T> {
    type Output = T;

    fn index(&self, local_rank: usize) -> &T {
        &self.0[local_rank]
    }
}

impl<T> IndexMut<usize> for PerRank<T> {
    fn index_mut(&mut self, local_rank: usize) -> &mut T {
        &mut self.0[local_rank]
    }
}

impl<T> FromIterator<T> for PerRank<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_with_a_rank_too_many_is_refused_with_both_key_sets() {
        let map: BTreeMap<usize, ()> = (0..5).map(|rank| (rank, ())).collect();
        let error = PerRank::from_map("envs", map, 4).unwrap_err();
        assert_eq!(error.to_string(), "envs: local rank mapping is not full: expected ranks 0-3, got 0-4");
    }

    #[test]
    fn an_empty_map_is_refused_for_a_group_of_one() {
        let error = PerRank::from_map("envs", BTreeMap::<usize, ()>::new(), 1).unwrap_err();
        assert_eq!(error.to_string(), "envs: local rank mapping is not full: expected ranks 0, got none");
    }

    #[test]
    fn a_full_map_keeps_rank_order() {
        let map = BTreeMap::from([(1, 'b'), (0, 'a')]);
        assert_eq!(PerRank::from_map("x", map, 2).unwrap().values(), ['a', 'b']);
    }
}
