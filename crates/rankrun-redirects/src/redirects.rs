//! A spec for each of the two streams: [`Redirects`]. Not here: the specs themselves (`spec`).

use std::fmt;

use rankrun_types::PerRank;
use serde::{Deserialize, Serialize};

use crate::error::ParseStdError;
use crate::map::RankOutOfWorldError;
use crate::mode::Std;
use crate::parse::{self, Grammar};
use crate::spec::StdSpec;

/// Which workers' stdout and which workers' stderr go to a file, each by a spec of its own.
///
/// Of `stdouts` only the OUT of each mode counts and of `stderrs` only the ERR, so one spec can serve as both. It shows as
/// `OUTS->ERRS` in the mapping grammar, see [`StdSpec`].
///
/// Mirrors TensorPlay's `Redirects(stdouts, stderrs)`.
///
/// ```
/// use rankrun_redirects::{Redirects, Std};
///
/// let redirects = Redirects::new(Std::OUT, Std::NONE);
/// assert_eq!(redirects.to_map(2).values(), [Std::OUT, Std::OUT]);
/// assert_eq!(redirects.to_string(), "OUT->NONE");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Redirects {
    /// The ranks whose mode has OUT get their stdout redirected.
    pub stdouts: StdSpec,
    /// The ranks whose mode has ERR get their stderr redirected.
    pub stderrs: StdSpec,
}

impl Redirects {
    /// Takes a spec for stdout and one for stderr.
    pub fn new(stdouts: impl Into<StdSpec>, stderrs: impl Into<StdSpec>) -> Self {
        Self { stdouts: stdouts.into(), stderrs: stderrs.into() }
    }

    /// Redirects nothing: [`Std::NONE`] for both streams.
    #[must_use]
    pub fn from_default() -> Self {
        Self::default()
    }

    /// Reads `OUTS->ERRS`, or one spec for both streams, each in the reference grammar, that of [`Std::from_str`].
    ///
    /// Which form of the grammar it is (with a comma, or without) is found for each side on its own. `str::parse` is not
    /// offered, because what a redirects shows reads back in the other grammar: [`Redirects::parse_mapping`].
    ///
    /// # Errors
    /// [`ParseStdError`]; the position counts from the start of the whole text.
    ///
    /// ```
    /// use rankrun_redirects::{Redirects, Std};
    ///
    /// let redirects = Redirects::from_str("1:0:1 -> 0:2,default:0")?;
    /// assert_eq!(redirects.to_map(4).values(), [Std::ALL, Std::NONE, Std::OUT, Std::NONE]);
    /// assert_eq!(Redirects::from_str("3")?, Redirects::new(Std::ALL, Std::ALL));
    /// assert_eq!(Redirects::from_str("1->4").unwrap_err().position(), 3);
    /// # Ok::<(), rankrun_redirects::ParseStdError>(())
    /// ```
    #[expect(clippy::should_implement_trait, reason = "the reference's name; Display shows the other grammar")]
    pub fn from_str(text: &str) -> Result<Self, ParseStdError> {
        parse::redirects(text, Grammar::Reference)
    }

    /// Reads `OUTS->ERRS`, or one spec for both streams, each in the mapping grammar, that of [`StdSpec::parse_mapping`].
    ///
    /// # Errors
    /// [`ParseStdError`]; the position counts from the start of the whole text.
    ///
    /// ```
    /// use rankrun_redirects::{Redirects, Std};
    ///
    /// let redirects = Redirects::parse_mapping("0:1->1:2")?;
    /// assert_eq!(redirects.to_map(3).values(), [Std::OUT, Std::ERR, Std::NONE]);
    /// # Ok::<(), rankrun_redirects::ParseStdError>(())
    /// ```
    pub fn parse_mapping(text: &str) -> Result<Self, ParseStdError> {
        parse::redirects(text, Grammar::Mapping)
    }

    /// One mode for each of `local_world_size` ranks: OUT where `stdouts` says OUT, ERR where `stderrs` says ERR.
    ///
    /// Ranks outside of the group are ignored; [`Redirects::to_map_strict`] refuses them.
    #[must_use]
    pub fn to_map(&self, local_world_size: usize) -> PerRank<Std> {
        join(&self.stdouts.to_map(local_world_size), &self.stderrs.to_map(local_world_size))
    }

    /// As [`Redirects::to_map`], if each rank that the specs name is in the group.
    ///
    /// # Errors
    /// [`RankOutOfWorldError`] with the ranks of the first spec that names one outside.
    pub fn to_map_strict(&self, local_world_size: usize) -> Result<PerRank<Std>, RankOutOfWorldError> {
        let stdouts = self.stdouts.to_map_strict(local_world_size)?;
        let stderrs = self.stderrs.to_map_strict(local_world_size)?;
        Ok(join(&stdouts, &stderrs))
    }
}

fn join(stdouts: &PerRank<Std>, stderrs: &PerRank<Std>) -> PerRank<Std> {
    stdouts.map(|local_rank, stdout| (*stdout & Std::OUT) | (stderrs[local_rank] & Std::ERR))
}

impl fmt::Display for Redirects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}->{}", self.stdouts, self.stderrs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_out_of_stdouts_and_only_err_of_stderrs_count() {
        let modes = [Std::NONE, Std::OUT, Std::ERR, Std::ALL];
        for out in modes {
            for err in modes {
                let joined = Redirects::new(out, err).to_map(1)[0];
                assert_eq!(joined.contains(Std::OUT), out.contains(Std::OUT));
                assert_eq!(joined.contains(Std::ERR), err.contains(Std::ERR));
            }
        }
    }

    #[test]
    fn the_default_redirects_nothing() {
        assert_eq!(Redirects::from_default().to_map(3).values(), [Std::NONE; 3]);
        assert_eq!(Redirects::from_default().to_string(), "NONE->NONE");
    }

    #[test]
    fn one_spec_serves_both_streams() {
        let redirects = Redirects::parse_mapping("0:1,1:2,2:3").unwrap();
        assert_eq!(redirects.to_map(4).values(), [Std::OUT, Std::ERR, Std::ALL, Std::NONE]);
    }

    #[test]
    fn each_side_has_its_own_form_of_the_reference_grammar() {
        let redirects = Redirects::from_str("0:1->0:1,5:2").unwrap();
        assert_eq!(redirects.stdouts, Std::from_str("0:1").unwrap());
        assert_eq!(redirects.stderrs, StdSpec::parse_mapping("0:1,5:2").unwrap());
    }

    #[test]
    fn a_rank_outside_on_either_side_is_refused() {
        for (text, rank) in [("4:1->0:2", 4), ("0:1->7:2", 7)] {
            let error = Redirects::parse_mapping(text).unwrap().to_map_strict(4).unwrap_err();
            assert_eq!(error, RankOutOfWorldError { ranks: vec![rank], local_world_size: 4 });
        }
    }

    #[test]
    fn positions_count_from_the_start_of_the_whole_text() {
        for (text, position) in [
            ("->1", 0),
            ("1->", 3),
            ("1->1->2", 4),
            ("0:1,0:2->1", 4),
            (" 1 -> 0:1,0:2 ", 10),
            ("->", 0),
            ("1 2->1", 2),
        ] {
            for error in [Redirects::from_str(text).unwrap_err(), Redirects::parse_mapping(text).unwrap_err()] {
                assert_eq!(error.position(), position, "{error}");
            }
        }
    }
}
