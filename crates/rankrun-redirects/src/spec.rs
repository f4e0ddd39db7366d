//! A spec, one mode for all ranks or one for each named rank: [`StdSpec`] and [`StdMap`], and how they show.
//! Not here: reading one (`parse`), making one full (`map`).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::error::ParseStdError;
use crate::mode::Std;
use crate::parse::{self, Grammar};

/// One mode for all ranks, or modes for some ranks and perhaps for the rest.
///
/// It shows in the mapping grammar, with neighbouring ranks of one mode as a range, and reads back equal in that grammar
/// (not always in that of [`Std::from_str`], where a single rank is something else). The one exception is a map that names
/// nothing, for which the grammar has no text: it shows as `default:NONE`, which [`to_map`](crate::to_map) takes the
/// same. Ranks above 65535 show but do not read back.
///
/// In serde it is the mode's number or a map from ranks, as text, to modes. A spec in the mapping grammar and a range
/// of ranks as a key are read too, so reading needs a self-describing format such as JSON.
///
/// Mirrors `Std | dict[int, Std]` of the reference.
///
/// ```
/// use rankrun_redirects::{Std, StdSpec};
///
/// let spec: StdSpec = "3:1, 0:2, 1:2, *:none".parse()?;
/// assert_eq!(spec.to_string(), "0-1:ERR,3:OUT,default:NONE");
/// assert_eq!("all".parse::<StdSpec>()?, Std::ALL.into());
/// # Ok::<(), rankrun_redirects::ParseStdError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StdSpec {
    /// The same mode for every rank.
    One(Std),
    /// A mode for each rank that is named.
    PerRank(StdMap),
}

/// The modes of the ranks that a spec names, and of those it does not.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct StdMap {
    /// The mode of each local rank that is named.
    pub ranks: BTreeMap<usize, Std>,
    /// The mode of every other rank; `None` is as good as [`Std::NONE`].
    pub default: Option<Std>,
}

impl StdSpec {
    /// Reads a spec in the mapping grammar: `MODE`, or `RANKS:MODE` once or more with commas between.
    ///
    /// RANKS is a rank, a range `a-b`, or `default` or `*` for every rank not named. The crate's docs have the grammar.
    /// `str::parse` does the same.
    ///
    /// # Errors
    /// [`ParseStdError`] with the position.
    ///
    /// ```
    /// use rankrun_redirects::StdSpec;
    ///
    /// assert_eq!(StdSpec::parse_mapping("0:1, 1 : ERR")?, StdSpec::parse_mapping("1:2,0:out")?);
    /// let error = StdSpec::parse_mapping("0-3:1,2:2").unwrap_err();
    /// assert_eq!((error.position(), error.expected()), (6, "a rank that is not given yet"));
    /// # Ok::<(), rankrun_redirects::ParseStdError>(())
    /// ```
    pub fn parse_mapping(text: &str) -> Result<Self, ParseStdError> {
        parse::one_spec(text, Grammar::Mapping)
    }
}

impl FromStr for StdSpec {
    type Err = ParseStdError;

    /// Reads the mapping grammar, as [`StdSpec::parse_mapping`] does.
    fn from_str(text: &str) -> Result<Self, ParseStdError> {
        Self::parse_mapping(text)
    }
}

impl Default for StdSpec {
    /// [`Std::NONE`] for every rank.
    fn default() -> Self {
        Self::One(Std::NONE)
    }
}

impl From<Std> for StdSpec {
    fn from(mode: Std) -> Self {
        Self::One(mode)
    }
}

impl From<StdMap> for StdSpec {
    fn from(map: StdMap) -> Self {
        Self::PerRank(map)
    }
}

impl From<BTreeMap<usize, Std>> for StdSpec {
    /// The modes of these ranks, and no default.
    fn from(ranks: BTreeMap<usize, Std>) -> Self {
        Self::PerRank(StdMap { ranks, default: None })
    }
}

impl From<&StdSpec> for StdSpec {
    fn from(spec: &StdSpec) -> Self {
        spec.clone()
    }
}

impl fmt::Display for StdSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(mode) => mode.fmt(f),
            Self::PerRank(map) => map.fmt(f),
        }
    }
}

impl fmt::Display for StdMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        let mut ranks = self.ranks.iter().map(|(rank, mode)| (*rank, *mode)).peekable();
        while let Some((first, mode)) = ranks.next() {
            let mut last = first;
            while let Some((rank, _)) = ranks.next_if(|next| last.checked_add(1) == Some(next.0) && next.1 == mode) {
                last = rank;
            }
            f.write_str(comma)?;
            write_run(f, first, last)?;
            write!(f, ":{mode}")?;
            comma = ",";
        }
        match self.default {
            Some(mode) => write!(f, "{comma}default:{mode}"),
            None if self.ranks.is_empty() => f.write_str("default:NONE"),
            None => Ok(()),
        }
    }
}

/// Writes `first` or `first-last`.
fn write_run(f: &mut impl fmt::Write, first: usize, last: usize) -> fmt::Result {
    if first == last { write!(f, "{first}") } else { write!(f, "{first}-{last}") }
}

/// Appends ascending ranks as `4-5, 9`, at most `most` runs; says whether some were left out.
pub(crate) fn write_runs(out: &mut String, ranks: impl Iterator<Item = usize>, most: usize) -> bool {
    let mut ranks = ranks.peekable();
    for run in 0..most {
        let Some(first) = ranks.next() else { return false };
        let mut last = first;
        while let Some(rank) = ranks.next_if(|next| last.checked_add(1) == Some(*next)) {
            last = rank;
        }
        if run > 0 {
            out.push_str(", ");
        }
        // Writing to a String cannot fail.
        let _ = write_run(out, first, last);
    }
    ranks.next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_show_as_one_range_only_if_their_mode_is_the_same() {
        let spec = StdSpec::parse_mapping("0:1,1:1,2:2,3:2,5:2,7-9:3,default:0").unwrap();
        assert_eq!(spec.to_string(), "0-1:OUT,2-3:ERR,5:ERR,7-9:ALL,default:NONE");
    }

    #[test]
    fn a_map_that_names_nothing_shows_as_a_spec_with_the_same_meaning() {
        let nothing = StdSpec::from(StdMap::default());
        assert_eq!(Std::from_str("default:default"), Ok(nothing.clone()));
        let shown = StdSpec::parse_mapping(&nothing.to_string()).unwrap();
        assert_eq!(shown, StdMap { ranks: BTreeMap::new(), default: Some(Std::NONE) }.into());
        assert_eq!(shown.to_map(3), nothing.to_map(3));
    }

    #[test]
    fn the_largest_number_a_map_can_hold_shows_without_overflow() {
        let map = BTreeMap::from([(usize::MAX - 1, Std::OUT), (usize::MAX, Std::OUT)]);
        assert_eq!(StdSpec::from(map).to_string(), format!("{}-{}:OUT", usize::MAX - 1, usize::MAX));
    }
}
