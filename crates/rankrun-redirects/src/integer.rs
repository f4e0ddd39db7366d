//! A mode as the integer that it is in Python: the methods of `int` that the reference's `Std` has. Not here: `Std`
//! itself (`mode`).

use crate::mode::Std;

/// Which byte of an integer comes first; in Python `"big"` or `"little"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ByteOrder {
    /// The most significant byte first; Python's default.
    #[default]
    Big,
    /// The least significant byte first.
    Little,
}

/// A mode does not fit into so few bytes; Python's `OverflowError: int too big to convert`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("mode {mode} does not fit into {length} bytes")]
pub struct ToBytesError {
    /// The mode.
    pub mode: Std,
    /// The number of bytes asked for.
    pub length: usize,
}

/// The integer in some bytes is no mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {} integer in {length} bytes is no redirect mode: expected {}", sign(*signed), range(*signed))]
pub struct FromBytesError {
    /// How many bytes there were.
    pub length: usize,
    /// Whether they were read as two's complement.
    pub signed: bool,
}

fn sign(signed: bool) -> &'static str {
    if signed { "signed" } else { "unsigned" }
}

fn range(signed: bool) -> &'static str {
    if signed { "-4 to 3" } else { "0 to 3" }
}

/// The integer methods of the reference: those of Python's `int`, for a value from 0 to 3.
impl Std {
    /// Numerator and denominator of the number in lowest terms: itself and 1.
    #[must_use]
    pub const fn as_integer_ratio(self) -> (u8, u8) {
        (self.numerator(), self.denominator())
    }

    /// How many ones the number has in binary, that is how many streams are in the set: 0 to 2.
    #[must_use]
    pub const fn bit_count(self) -> u32 {
        self.bits().count_ones()
    }

    /// How many bits the number has without leading zeros: 0 to 2.
    #[must_use]
    pub const fn bit_length(self) -> u32 {
        u8::BITS - self.bits().leading_zeros()
    }

    /// The complex conjugate: the number itself.
    #[must_use]
    pub const fn conjugate(self) -> u8 {
        self.bits()
    }

    /// The denominator in lowest terms: 1.
    #[must_use]
    pub const fn denominator(self) -> u8 {
        1
    }

    /// The imaginary part: 0.
    #[must_use]
    pub const fn imag(self) -> u8 {
        0
    }

    /// Whether the number is whole: true.
    #[must_use]
    pub const fn is_integer(self) -> bool {
        true
    }

    /// The numerator in lowest terms: the number itself.
    #[must_use]
    pub const fn numerator(self) -> u8 {
        self.bits()
    }

    /// The real part: the number itself.
    #[must_use]
    pub const fn real(self) -> u8 {
        self.bits()
    }

    /// The mode whose number these bytes are; no bytes are 0.
    ///
    /// With `signed` they are two's complement, and a negative number is a complement, as in Python's `IntFlag`: -1 is
    /// `!NONE`, -4 is `!ALL`.
    ///
    /// # Errors
    /// [`FromBytesError`] if the number is none of 0 to 3 (or -4 to 3 if signed). Python keeps the bits that no stream has.
    ///
    /// ```
    /// use rankrun_redirects::{ByteOrder, Std};
    ///
    /// assert_eq!(Std::from_bytes(&[0, 2], ByteOrder::Big, false), Ok(Std::ERR));
    /// assert_eq!(Std::from_bytes(&[0xff], ByteOrder::Big, true), Ok(Std::ALL));
    /// assert!(Std::from_bytes(&[0, 2], ByteOrder::Little, false).is_err());
    /// ```
    pub fn from_bytes(bytes: &[u8], byteorder: ByteOrder, signed: bool) -> Result<Self, FromBytesError> {
        let (least, rest) = match (byteorder, bytes) {
            (_, []) => return Ok(Self::NONE),
            (ByteOrder::Big, [rest @ .., least]) | (ByteOrder::Little, [least, rest @ ..]) => (*least, rest),
        };
        let all_rest_are = |byte| rest.iter().all(|other| *other == byte);
        match least {
            0..=3 if all_rest_are(0) => Ok(Self::from_low_bits(least)),
            0xfc.. if signed && all_rest_are(0xff) => Ok(Self::from_low_bits(least)),
            _ => Err(FromBytesError { length: bytes.len(), signed }),
        }
    }

    /// The number in `length` bytes; `signed` makes no difference, because a mode fits in either way.
    ///
    /// Python's defaults are one byte, big-endian, unsigned.
    ///
    /// # Errors
    /// [`ToBytesError`] if `length` is 0 and the mode is not [`Std::NONE`].
    ///
    /// ```
    /// use rankrun_redirects::{ByteOrder, Std};
    ///
    /// assert_eq!(Std::ALL.to_bytes(2, ByteOrder::Big, false), Ok(vec![0, 3]));
    /// assert!(Std::ALL.to_bytes(0, ByteOrder::Big, false).is_err());
    /// ```
    pub fn to_bytes(self, length: usize, byteorder: ByteOrder, signed: bool) -> Result<Vec<u8>, ToBytesError> {
        let _ = signed;
        let mut bytes = vec![0; length];
        let least = match byteorder {
            ByteOrder::Big => bytes.last_mut(),
            ByteOrder::Little => bytes.first_mut(),
        };
        match least {
            Some(least) => *least = self.bits(),
            None if self == Self::NONE => {}
            None => return Err(ToBytesError { mode: self, length }),
        }
        Ok(bytes)
    }

    /// The mode in the two lowest bits.
    fn from_low_bits(byte: u8) -> Self {
        [Self::NONE, Self::OUT, Self::ERR, Self::ALL][usize::from(byte & 3)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [Std; 4] = [Std::NONE, Std::OUT, Std::ERR, Std::ALL];

    #[test]
    fn integer_properties_are_those_of_python() {
        // [int(m).<method>() for m in Std] of CPython 3.11.
        assert_eq!(MODES.map(Std::bit_count), [0, 1, 1, 2]);
        assert_eq!(MODES.map(Std::bit_length), [0, 1, 2, 2]);
        assert_eq!(MODES.map(Std::as_integer_ratio), [(0, 1), (1, 1), (2, 1), (3, 1)]);
        assert_eq!(MODES.map(Std::conjugate), [0, 1, 2, 3]);
        assert_eq!(MODES.map(Std::numerator), [0, 1, 2, 3]);
        assert_eq!(MODES.map(Std::denominator), [1; 4]);
        assert_eq!(MODES.map(Std::real), [0, 1, 2, 3]);
        assert_eq!(MODES.map(Std::imag), [0; 4]);
        assert_eq!(MODES.map(Std::is_integer), [true; 4]);
    }

    #[test]
    fn bytes_round_trip_at_every_length_order_and_sign() {
        for mode in MODES {
            for length in 1..20 {
                for order in [ByteOrder::Big, ByteOrder::Little] {
                    for signed in [false, true] {
                        let bytes = mode.to_bytes(length, order, signed).unwrap();
                        assert_eq!(bytes.len(), length);
                        assert_eq!(Std::from_bytes(&bytes, order, signed), Ok(mode));
                    }
                }
            }
        }
    }

    #[test]
    fn only_zero_fits_into_no_bytes() {
        assert_eq!(Std::NONE.to_bytes(0, ByteOrder::Big, false), Ok(vec![]));
        assert_eq!(Std::from_bytes(&[], ByteOrder::Little, true), Ok(Std::NONE));
        let error = Std::OUT.to_bytes(0, ByteOrder::Little, true).unwrap_err();
        assert_eq!(error.to_string(), "mode OUT does not fit into 0 bytes");
    }

    #[test]
    fn negative_numbers_are_complements_down_to_minus_four() {
        // Std(-1) .. Std(-4) of a Python IntFlag are ALL, ERR, OUT, NONE.
        let modes = [-1i32, -2, -3, -4].map(|n| Std::from_bytes(&n.to_be_bytes(), ByteOrder::Big, true));
        assert_eq!(modes, [Ok(Std::ALL), Ok(Std::ERR), Ok(Std::OUT), Ok(Std::NONE)]);
        assert!(Std::from_bytes(&(-5i32).to_le_bytes(), ByteOrder::Little, true).is_err());
        assert!(Std::from_bytes(&(-1i32).to_le_bytes(), ByteOrder::Little, false).is_err());
    }

    #[test]
    fn a_number_above_three_is_refused_wherever_its_bits_are() {
        for bytes in [&[4][..], &[1, 3], &[0xff, 3], &[0, 0, 1, 0, 0]] {
            let error = Std::from_bytes(bytes, ByteOrder::Big, false).unwrap_err();
            assert_eq!(error, FromBytesError { length: bytes.len(), signed: false });
        }
        let error = Std::from_bytes(&[9], ByteOrder::Big, true).unwrap_err();
        assert_eq!(error.to_string(), "the signed integer in 1 bytes is no redirect mode: expected -4 to 3");
    }
}
