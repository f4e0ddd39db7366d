//! A set of CPUs: [`CpuSet`], its text form and the kernel's bit mask. Not here: which CPUs a worker should get (`numa`),
//! and giving them to it (`placement`).

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use libc::{c_long, c_ulong};
use rankrun_types::escape_line;

/// The largest CPU number that is taken from a text; the kernel's own limit is 8,191 at the time of writing.
const MAX_CPU: u32 = u16::MAX as u32;
const BITS: usize = c_ulong::BITS as usize;
/// How much of a wrong text an error shows, in characters.
const SHOWN: usize = 80;

/// A set of CPU numbers, in ascending order.
///
/// Its text is the kernel's list format, as in `/sys/devices/system/node/node0/cpulist` and `taskset --cpu-list`
/// (without strides): `0-3,8,10-11`. The empty text is the empty set.
///
/// ```
/// use rankrun_process::CpuSet;
///
/// let cpus: CpuSet = "8,0-3,10-11".parse()?;
/// assert_eq!(cpus.to_string(), "0-3,8,10-11");
/// assert_eq!(cpus.intersection(&(2..9).collect()).iter().collect::<Vec<_>>(), [2, 3, 8]);
/// # Ok::<(), rankrun_process::ParseCpuSetError>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CpuSet(BTreeSet<u32>);

/// A text is no list of CPUs: where, and what was expected there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid CPU list `{}` at byte {position}: expected {expected}", shown(text))]
#[non_exhaustive]
pub struct ParseCpuSetError {
    /// The text.
    pub text: String,
    /// Where it stops being a list: a byte offset, from 0 to the text's length.
    pub position: usize,
    /// What would have been right there, in words.
    pub expected: &'static str,
}

/// The kernel would not say which CPUs this thread may use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the allowed CPUs: sched_getaffinity: {}", std::io::Error::from_raw_os_error(*errno))]
#[non_exhaustive]
pub struct AllowedCpusError {
    /// The errno of sched_getaffinity(2).
    pub errno: i32,
}

impl CpuSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self(BTreeSet::new())
    }

    /// The CPUs that the calling thread may use, which a process that it starts inherits.
    ///
    /// # Errors
    /// [`AllowedCpusError`] with EINVAL on a host with more than 65,536 CPUs.
    pub fn allowed() -> Result<Self, AllowedCpusError> {
        let mut mask = vec![0 as c_ulong; (MAX_CPU as usize + 1) / BITS];
        // SAFETY: the kernel writes at most as many bytes as are passed, and the vector has them. The raw call, because
        // nix's set and glibc's fixed one end at 1,024 CPUs.
        let written =
            unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0 as c_long, size_of_val(&*mask), mask.as_mut_ptr()) };
        if written < 0 { Err(AllowedCpusError { errno: crate::sys::errno() }) } else { Ok(Self::from_mask(&mask)) }
    }

    /// How many CPUs are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no CPU is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this CPU is in it.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// The lowest CPU number, if there is any.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// The CPU numbers, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + DoubleEndedIterator {
        self.0.iter().copied()
    }

    /// The CPUs that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// Whether all of this set's CPUs are in the other one too.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    /// The kernel's bit mask, at least one word; numbers that no kernel can have are left out, as it would do itself.
    pub(crate) fn to_mask(&self) -> Vec<c_ulong> {
        let known = || self.0.range(..=MAX_CPU).map(|cpu| *cpu as usize);
        let mut mask = vec![0; known().next_back().unwrap_or(0) / BITS + 1];
        for cpu in known() {
            mask[cpu / BITS] |= 1 << (cpu % BITS);
        }
        mask
    }

    fn from_mask(mask: &[c_ulong]) -> Self {
        let of_word = |(base, word): (u32, &c_ulong)| {
            (0..c_ulong::BITS).filter(|bit| word >> bit & 1 == 1).map(move |bit| base + bit).collect::<Vec<_>>()
        };
        (0..).step_by(BITS).zip(mask).flat_map(of_word).collect()
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl Extend<u32> for CpuSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, cpus: I) {
        self.0.extend(cpus);
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|next| *next == last + 1) {
                last = next;
            }
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

impl FromStr for CpuSet {
    type Err = ParseCpuSetError;

    /// Takes numbers from 0 to 65,535 and ranges of them, separated by commas, in any order; white space around the whole
    /// text is ignored.
    fn from_str(text: &str) -> Result<Self, ParseCpuSetError> {
        let mut rest = Rest { text, position: text.len() - text.trim_start().len(), end: text.trim_end().len() };
        let mut cpus = BTreeSet::new();
        if rest.position >= rest.end {
            return Ok(Self(cpus));
        }
        loop {
            let first = rest.number(0)?;
            let last = if rest.take(b'-') { rest.number(first)? } else { first };
            cpus.extend(first..=last);
            if rest.position == rest.end {
                return Ok(Self(cpus));
            }
            if !rest.take(b',') {
                return Err(rest.error("`,`, `-` or the end of the text"));
            }
        }
    }
}

/// What is left to be read of a list.
struct Rest<'a> {
    text: &'a str,
    position: usize,
    end: usize,
}

impl Rest<'_> {
    fn bytes(&self) -> &[u8] {
        &self.text.as_bytes()[self.position..self.end]
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.bytes().first() == Some(&byte);
        self.position += usize::from(found);
        found
    }

    /// A CPU number of at least `least`.
    fn number(&mut self, least: u32) -> Result<u32, ParseCpuSetError> {
        let length = self.bytes().iter().take_while(|byte| byte.is_ascii_digit()).count();
        let digits = &self.text[self.position..self.position + length];
        match digits.parse::<u32>() {
            Ok(number) if number < least => Err(self.error("an end of the range that is not below its start")),
            Ok(number) if number <= MAX_CPU => {
                self.position += length;
                Ok(number)
            }
            _ => Err(self.error("a CPU number from 0 to 65535")),
        }
    }

    fn error(&self, expected: &'static str) -> ParseCpuSetError {
        ParseCpuSetError { text: self.text.to_owned(), position: self.position, expected }
    }
}

fn shown(text: &str) -> String {
    let start: String = text.chars().take(SHOWN).collect();
    let more = if start.len() < text.len() { "..." } else { "" };
    format!("{}{more}", escape_line(&start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<String, String> {
        text.parse::<CpuSet>().map(|cpus| cpus.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_list_is_read_and_shown_as_the_kernel_does() {
        for (text, shown) in [
            ("0", "0"),
            ("0-3,8,10-11", "0-3,8,10-11"),
            ("8,10-11,0-3", "0-3,8,10-11"),
            ("0,1,2", "0-2"),
            ("0-2,2-4,3", "0-4"),
            ("5-5", "5"),
            ("0-1\n", "0-1"),
            (" 007 ", "7"),
            ("65535", "65535"),
            ("", ""),
            ("\n", ""),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(shown), "{text:?}");
        }
    }

    #[test]
    fn a_wrong_list_is_refused_with_the_place_and_what_was_expected() {
        let number = "a CPU number from 0 to 65535";
        for (text, position, expected) in [
            (",", 0, number),
            ("0,", 2, number),
            ("0-", 2, number),
            ("-1", 0, number),
            ("0-3,x", 4, number),
            ("0 -3", 1, "`,`, `-` or the end of the text"),
            ("0-3-5", 3, "`,`, `-` or the end of the text"),
            ("0-31:2", 4, "`,`, `-` or the end of the text"),
            ("0, 1", 2, number),
            ("  3-1", 4, "an end of the range that is not below its start"),
            ("65536", 0, number),
            ("0-99999999999999999999", 2, number),
            ("+1", 0, number),
            ("0,\u{663}", 2, number),
        ] {
            let error = text.parse::<CpuSet>().unwrap_err();
            assert_eq!((error.position, error.expected), (position, expected), "{text:?}");
        }
        assert_eq!(
            parse("0-3,x\n").unwrap_err(),
            "invalid CPU list `0-3,x\\n` at byte 4: expected a CPU number from 0 to 65535"
        );
        assert!(parse(&"x".repeat(1 << 20)).unwrap_err().len() < 200);
    }

    #[test]
    fn this_threads_allowed_cpus_are_those_that_proc_shows() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        assert_eq!(CpuSet::allowed().unwrap(), list.parse().unwrap());
    }

    #[test]
    fn a_mask_is_as_long_as_its_highest_cpu_needs() {
        let words = |text: &str| text.parse::<CpuSet>().unwrap().to_mask();
        assert_eq!(words(""), [0]);
        assert_eq!(words("0-1,5"), [0b10_0011]);
        assert_eq!(words("2047").len(), 2048 / BITS);
        assert_eq!(CpuSet::from_iter([3, u32::MAX]).to_mask(), [0b1000]);
    }

    proptest! {
        #[test]
        fn text_and_mask_give_back_the_set(cpus in proptest::collection::btree_set(0_u32..5000, 0..60)) {
            let cpus = CpuSet::from_iter(cpus);
            prop_assert_eq!(&cpus.to_string().parse::<CpuSet>().unwrap(), &cpus);
            prop_assert_eq!(CpuSet::from_mask(&cpus.to_mask()), cpus);
        }

        #[test]
        fn no_text_panics(text in "[0-9,x \\n-]{0,12}|.{0,12}") {
            if let Err(error) = text.parse::<CpuSet>() {
                prop_assert!(text.is_char_boundary(error.position), "{}", error);
            }
        }
    }
}
