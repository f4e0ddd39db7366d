//! How large a log file may become: [`LogSize`]. Not here: keeping it so small (`limit`).

use std::fmt;
use std::str::FromStr;

use rankrun_types::escape_line;

/// The smallest size: less than a block cannot be freed.
const LEAST: u64 = 4096;

/// The size that a log file is kept at, 4 KiB at least.
///
/// As text it is a whole number with a unit, all of them powers of 1024: `512k`, `10M`, `10MiB`, `1G`, or bytes without
/// one. Upper and lower case are the same.
///
/// ```
/// use rankrun_logs::LogSize;
///
/// assert_eq!("10M".parse::<LogSize>()?.bytes(), 10 << 20);
/// assert_eq!("10MiB".parse::<LogSize>()?.to_string(), "10M");
/// let error = "10Q".parse::<LogSize>().unwrap_err();
/// assert!(error.to_string().contains("expected a whole number with k, M, G or T"));
/// # Ok::<(), rankrun_logs::ParseLogSizeError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogSize(u64);

/// A text is no [`LogSize`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "size `{}`: expected a whole number with k, M, G or T (or KiB, MiB, GiB, TiB) from 4k to 16777215T, such as 512k, 10M or 1G",
    escape_line(text)
)]
pub struct ParseLogSizeError {
    text: String,
}

impl LogSize {
    /// So many bytes; `None` for less than 4096.
    #[must_use]
    pub fn from_bytes(bytes: u64) -> Option<Self> {
        (bytes >= LEAST).then_some(Self(bytes))
    }

    /// The size in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for LogSize {
    type Err = ParseLogSizeError;

    fn from_str(text: &str) -> Result<Self, ParseLogSizeError> {
        let refused = || ParseLogSizeError { text: text.to_owned() };
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let shift = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kib" => 10,
            "m" | "mib" => 20,
            "g" | "gib" => 30,
            "t" | "tib" => 40,
            _ => return Err(refused()),
        };
        let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
        bytes.and_then(Self::from_bytes).ok_or_else(refused)
    }
}

impl fmt::Display for LogSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, shift) in [("T", 40), ("G", 30), ("M", 20), ("k", 10)] {
            if self.0 >> shift > 0 && self.0.trailing_zeros() >= shift {
                return f.pad(&format!("{}{unit}", self.0 >> shift));
            }
        }
        f.pad(&self.0.to_string())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_are_powers_of_1024_in_any_case() {
        for (text, bytes) in [
            ("4096", 4096),
            ("4k", 4096),
            ("512K", 512 << 10),
            ("10M", 10 << 20),
            ("10mib", 10 << 20),
            ("1G", 1 << 30),
            ("3TiB", 3 << 40),
            ("16777215T", 16_777_215 << 40),
        ] {
            assert_eq!(text.parse::<LogSize>().map(LogSize::bytes), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_what_is() {
        for text in ["10Q", "", "M", "10 M", "-1M", "+1M", "1.5G", "10MB", "0", "4095", "1k", "99999999999T", "1e6"] {
            let message = text.parse::<LogSize>().unwrap_err().to_string();
            assert!(message.contains(&format!("`{text}`")) && message.contains("10M"), "{message}");
            assert!(message.contains("4k to 16777215T"), "{message}");
        }
    }

    proptest! {
        #[test]
        fn a_size_reads_back_what_it_shows(bytes in LEAST..=u64::MAX, shift in 0..40_u32) {
            let size = LogSize::from_bytes((bytes >> shift << shift).max(LEAST)).unwrap();
            prop_assert_eq!(size.to_string().parse::<LogSize>(), Ok(size));
        }
    }
}
