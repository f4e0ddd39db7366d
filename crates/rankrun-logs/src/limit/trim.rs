//! Which part of a growing file can be freed now, [`Trim`], and when to look again, [`next_look`]; pure. Not here: freeing
//! it (`sparse`).

use std::ops::Range;
use std::time::Duration;

/// The longest time between two looks at files that are being written to.
pub(super) const SLOW: Duration = Duration::from_millis(20);
/// The shortest one.
pub(super) const FAST: Duration = Duration::from_millis(1);

/// How long to wait before the next look at a file that has `grown` by so many bytes in the time since the last one: until
/// it has grown by a quarter of `max` more, if it goes on so; from [`FAST`] to [`SLOW`].
pub(super) fn next_look(grown: u64, since: Duration, max: u64) -> Duration {
    let quarters = grown as f64 / (max as f64 / 4.0);
    if quarters <= 1.0 {
        return SLOW;
    }
    since.div_f64(quarters).clamp(FAST, SLOW)
}

/// What was freed of one file so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Trim {
    freed: u64,
}

impl Trim {
    /// What to free of a file that has this length, so that about `max` bytes stay; `None` if it is not worth it yet.
    ///
    /// Never anything of the last `max` bytes, nor from `read_to` on; only whole blocks of `block` bytes. What it gives
    /// counts as freed.
    pub(super) fn next(&mut self, length: u64, max: u64, block: u64, read_to: u64) -> Option<Range<u64>> {
        if length < self.freed {
            // Somebody has cut it, and it begins anew.
            self.freed = 0;
        }
        let end = length.saturating_sub(max).min(read_to) / block * block;
        // Many small holes cost more than an eighth of the size.
        if end < self.freed.saturating_add((max / 8).max(block)) {
            return None;
        }
        let range = self.freed..end;
        self.freed = end;
        Some(range)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_file_within_its_size_is_left_alone() {
        let mut trim = Trim::default();
        assert_eq!(trim.next(100_000, 100_000, 4096, u64::MAX), None);
        assert_eq!(trim.next(100_000 + 12_000, 100_000, 4096, u64::MAX), None);
        assert_eq!(trim.next(100_000 + 16_384, 100_000, 4096, u64::MAX), Some(0..16_384));
        assert_eq!(trim.next(100_000 + 16_385, 100_000, 4096, u64::MAX), None);
    }

    #[test]
    fn the_faster_a_file_grows_the_sooner_it_is_looked_at_again() {
        let ms = Duration::from_millis;
        for (grown, since, next) in [
            (0, ms(20), ms(20)),
            (256 << 10, ms(20), ms(20)),
            (512 << 10, ms(20), ms(10)),
            (1 << 20, ms(8), ms(2)),
            (1 << 20, ms(200), ms(20)),
            (100 << 20, ms(20), ms(1)),
            (u64::MAX, ms(20), ms(1)),
            (1 << 20, Duration::ZERO, ms(1)),
        ] {
            assert_eq!(next_look(grown, since, 1 << 20), next, "{grown} bytes in {since:?}");
        }
    }

    #[test]
    fn a_file_that_was_cut_begins_anew() {
        let mut trim = Trim::default();
        assert_eq!(trim.next(50_000, 4096, 4096, u64::MAX), Some(0..45_056));
        assert_eq!(trim.next(10_000, 4096, 4096, u64::MAX), Some(0..4096));
    }

    proptest! {
        #[test]
        fn the_end_and_what_was_not_read_are_never_freed_and_the_rest_stays_bounded(
            max in 4096..1_000_000_u64,
            block in prop::sample::select(vec![512_u64, 4096, 65_536]),
            steps in prop::collection::vec((0..300_000_u64, any::<prop::sample::Index>(), prop::bool::weighted(0.05)), 1..60),
        ) {
            let mut trim = Trim::default();
            let (mut length, mut read_to, mut freed) = (0_u64, 0_u64, 0_u64);
            for (grown, read, cut) in steps {
                if cut {
                    (length, read_to, freed) = (0, 0, 0);
                    // A look at it while it is short, as one that grew past this point at once cannot be told.
                    prop_assert_eq!(trim.next(0, max, block, 0), None);
                }
                length += grown;
                read_to += read.index(usize::try_from(length - read_to + 1).unwrap()) as u64;
                if let Some(range) = trim.next(length, max, block, read_to) {
                    prop_assert_eq!(range.start, freed);
                    prop_assert!(range.end > range.start && range.end % block == 0);
                    prop_assert!(range.end <= read_to && range.end + max <= length);
                    freed = range.end;
                }
                if read_to == length {
                    prop_assert!(length - freed <= max + max / 8 + 2 * block);
                }
            }
        }
    }
}
