//! One worker's mode, a set of standard streams: [`Std`]. Not here: modes of many ranks (`spec`), its methods as an
//! integer (`integer`).

use std::fmt;
use std::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, BitXor, BitXorAssign, Not};

use crate::error::ParseStdError;
use crate::parse::{self, Grammar};
use crate::spec::StdSpec;

/// Which standard streams of a worker are meant: a set of stdout and stderr.
///
/// Its number is 0 to 3, the one that torchrun's `--redirects` and `--tee` take. In serde it is that number; a name is
/// read too, so reading needs a self-describing format such as JSON.
///
/// Mirrors `torch.distributed.elastic.multiprocessing.Std`.
///
/// ```
/// use rankrun_redirects::Std;
///
/// assert_eq!(Std::OUT | Std::ERR, Std::ALL);
/// assert!(Std::ALL.contains(Std::ERR));
/// assert_eq!((!Std::OUT).to_string(), "ERR");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Std(u8);

/// A number that is no mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no redirect mode has the number {bits}: expected 0-3")]
pub struct InvalidStdError {
    /// The number.
    pub bits: u8,
}

impl Std {
    /// Neither stream (0).
    pub const NONE: Self = Self(0);
    /// stdout (1).
    pub const OUT: Self = Self(1);
    /// stderr (2).
    pub const ERR: Self = Self(2);
    /// Both streams (3).
    pub const ALL: Self = Self(3);

    /// The mode's number, 0 to 3.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The mode with this number, or `None` above 3.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits <= Self::ALL.0 { Some(Self(bits)) } else { None }
    }

    /// Whether every stream of `other` is in this set; always true for [`Std::NONE`].
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The name in capitals: `NONE`, `OUT`, `ERR` or `ALL`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            0 => "NONE",
            1 => "OUT",
            2 => "ERR",
            _ => "ALL",
        }
    }

    /// Reads a spec in the reference grammar: one mode, the modes of ranks 0, 1 and 2 as `i:j:k`, or a mapping with a comma.
    ///
    /// `i:j` is short for `i:j:j`, and `default` leaves its rank unnamed. The crate's docs have the grammar. Command lines
    /// take the other one: [`StdSpec::parse_mapping`].
    ///
    /// Mirrors `Std.from_str` of torch and TensorPlay; like theirs it gives one mode or a map.
    ///
    /// # Errors
    /// [`ParseStdError`] with the position.
    ///
    /// ```
    /// use rankrun_redirects::{Std, StdSpec, to_map};
    ///
    /// assert_eq!(Std::from_str("3"), Ok(StdSpec::One(Std::ALL)));
    /// let spec = Std::from_str("0:default:2")?;
    /// assert_eq!(to_map(spec, 4).values(), [Std::NONE, Std::NONE, Std::ERR, Std::NONE]);
    /// assert_eq!(Std::from_str("0:1"), Std::from_str("0:1:1"));
    /// # Ok::<(), rankrun_redirects::ParseStdError>(())
    /// ```
    #[expect(clippy::should_implement_trait, reason = "the reference's name; it gives a spec, as the trait could not")]
    pub fn from_str(text: &str) -> Result<StdSpec, ParseStdError> {
        parse::one_spec(text, Grammar::Reference)
    }

    /// The mode that a whole token says, one digit or a name in any case.
    pub(crate) fn from_token(token: &str) -> Option<Self> {
        match token.as_bytes() {
            [digit @ b'0'..=b'3'] => Some(Self(digit - b'0')),
            _ => [Self::NONE, Self::OUT, Self::ERR, Self::ALL]
                .into_iter()
                .find(|mode| token.eq_ignore_ascii_case(mode.name())),
        }
    }
}

impl fmt::Display for Std {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for Std {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Std::{}", self.name())
    }
}

impl From<Std> for u8 {
    fn from(mode: Std) -> Self {
        mode.0
    }
}

impl TryFrom<u8> for Std {
    type Error = InvalidStdError;

    fn try_from(bits: u8) -> Result<Self, InvalidStdError> {
        Self::from_bits(bits).ok_or(InvalidStdError { bits })
    }
}

impl BitOr for Std {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Std {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitXor for Std {
    type Output = Self;

    fn bitxor(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }
}

impl Not for Std {
    type Output = Self;

    /// The other streams, as `~` does for Python's `IntFlag`.
    fn not(self) -> Self {
        Self(self.0 ^ Self::ALL.0)
    }
}

impl BitOrAssign for Std {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

impl BitAndAssign for Std {
    fn bitand_assign(&mut self, other: Self) {
        *self = *self & other;
    }
}

impl BitXorAssign for Std {
    fn bitxor_assign(&mut self, other: Self) {
        *self = *self ^ other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [Std; 4] = [Std::NONE, Std::OUT, Std::ERR, Std::ALL];

    #[test]
    fn operators_are_those_of_the_numbers_and_never_leave_0_to_3() {
        for a in MODES {
            for b in MODES {
                assert_eq!((a | b).bits(), a.bits() | b.bits());
                assert_eq!((a & b).bits(), a.bits() & b.bits());
                assert_eq!((a ^ b).bits(), a.bits() ^ b.bits());
                let (mut or, mut and, mut xor) = (a, a, a);
                or |= b;
                and &= b;
                xor ^= b;
                assert_eq!((or, and, xor), (a | b, a & b, a ^ b));
                assert_eq!(a.contains(b), a | b == a);
            }
            assert_eq!((!a).bits(), 3 - a.bits());
        }
    }

    #[test]
    fn only_0_to_3_are_modes() {
        assert_eq!(Std::try_from(2), Ok(Std::ERR));
        assert_eq!(Std::from_bits(3), Some(Std::ALL));
        let error = Std::try_from(4).unwrap_err();
        assert_eq!(error.to_string(), "no redirect mode has the number 4: expected 0-3");
        assert_eq!(Std::from_bits(255), None);
    }

    #[test]
    fn a_mode_shows_its_name_and_fills_a_width() {
        assert_eq!(format!("{:>4}|{:?}", Std::OUT, Std::ERR), " OUT|Std::ERR");
        assert_eq!(Std::default(), Std::NONE);
    }
}
