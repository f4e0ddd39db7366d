//! Whether a file still is what was read of it: [`Trail`], pure. Not here: reading it (`engine`).

/// How many bytes before the place that a file was read to are kept.
pub(crate) const KEPT: usize = 64;

/// The last bytes that were read of a file, to be read once more with those that follow.
///
/// A file that was cut and has grown past that place again is known by them: it has others there. Where it has the same
/// ones, as when each of its lines is the same, it cannot be told from one that only grew.
#[derive(Debug, Clone)]
pub(crate) struct Trail {
    bytes: [u8; KEPT],
    length: usize,
}

/// What was found at the place that a trail leads to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// The same bytes as before, and those that follow them; none at the end.
    Next(&'a [u8]),
    /// Other bytes: it was cut and written anew.
    Other,
    /// An end before that place.
    Short,
}

impl Trail {
    /// One that leads anywhere: nothing was read just before.
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; KEPT], length: 0 }
    }

    /// How far before the place to read on from reading begins.
    pub(crate) const fn len(&self) -> usize {
        self.length
    }

    /// What was found from [`Self::len`] bytes before the place.
    ///
    /// A NUL byte on either side is no evidence: a beginning that was freed reads so, and on a network file system what has
    /// not come yet.
    pub(crate) fn find<'a>(&self, found: &'a [u8]) -> Found<'a> {
        let Some((again, next)) = found.split_at_checked(self.length) else { return Found::Short };
        let known = &self.bytes[..self.length];
        let differs = |(known, again): (&u8, &u8)| known != again && *known != 0 && *again != 0;
        if again != known && known.iter().zip(again).any(differs) { Found::Other } else { Found::Next(next) }
    }

    /// Leads on from the end of what was found and taken, which began [`Self::len`] bytes before the place.
    pub(crate) fn follow(&mut self, found: &[u8]) {
        let kept = &found[found.len().saturating_sub(KEPT)..];
        self.bytes[..kept.len()].copy_from_slice(kept);
        self.length = kept.len();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn after(read: &[u8]) -> Trail {
        let mut trail = Trail::new();
        trail.follow(read);
        trail
    }

    #[test]
    fn a_file_that_only_grew_goes_on() {
        assert_eq!(Trail::new().find(b"first"), Found::Next(b"first"));
        assert_eq!(after(b"one\n").find(b"one\ntwo\n"), Found::Next(b"two\n"));
        assert_eq!(after(b"one\n").find(b"one\n"), Found::Next(b""));
    }

    #[test]
    fn a_file_that_has_other_bytes_there_was_written_anew() {
        assert_eq!(after(b"one\n").find(b"two\n"), Found::Other, "also where it is as long as before");
        assert_eq!(after(b"one\n").find(b"a longer line\n"), Found::Other);
        assert_eq!(after(b"one\n").find(b"on"), Found::Short);
    }

    #[test]
    fn what_was_freed_is_no_sign_that_the_file_was_written_anew() {
        assert_eq!(after(b"one\n").find(b"\0\0e\ntwo\n"), Found::Next(b"two\n"));
        assert_eq!(after(b"one\n").find(b"\0\0\0\0two\n"), Found::Next(b"two\n"));
        assert_eq!(after(b"\0\0\0\0").find(b"one\ntwo\n"), Found::Next(b"two\n"), "nor what has come since");
    }

    proptest! {
        #[test]
        fn any_change_of_the_last_bytes_is_found_and_no_change_is_not(
            pieces in prop::collection::vec(prop::collection::vec(1..=u8::MAX, 0..90), 1..6),
            next in prop::collection::vec(any::<u8>(), 0..90),
            at in any::<prop::sample::Index>(),
        ) {
            let mut trail = Trail::new();
            let mut file = Vec::new();
            for piece in pieces {
                let from = file.len() - trail.len();
                file.extend_from_slice(&piece);
                prop_assert_eq!(trail.find(&file[from..]), Found::Next(&piece));
                trail.follow(&file[from..]);
            }
            prop_assert_eq!(trail.len(), file.len().min(KEPT));
            let from = file.len() - trail.len();
            file.extend_from_slice(&next);
            prop_assert_eq!(trail.find(&file[from..]), Found::Next(&next));
            if trail.len() > 0 {
                let at = from + at.index(trail.len());
                file[at] = if file[at] == 1 { 2 } else { file[at] - 1 };
                prop_assert_eq!(trail.find(&file[from..]) == Found::Other, file[at] != 0);
            }
        }
    }
}
