//! A port that all nodes of a job find without talking to each other: [`derived`]. Not here: when one is needed.

use std::ops::RangeInclusive;

/// torchrun's port where nobody gives one; used for several nodes where no job has an id.
pub const STATIC_PORT: u16 = 29_500;

/// The ports that are made from a job's id: below those that Kubernetes gives to services (30000) and that Linux gives to
/// outgoing connections (32768), and without torchrun's own.
///
/// Jobs whose ids follow each other have different ones. Two jobs that share a node can still have the same, about once
/// in 9500 pairs of unrelated ids: the later one then fails to listen, and `--master-port` chooses another.
pub const DERIVED_PORTS: RangeInclusive<u16> = 20_000..=29_499;

const COUNT: u64 = 9_500;

/// The distance of the ports of two steps of a job that follow each other; no divisor of [`COUNT`].
const STEP: u64 = 997;

/// The port of a job and its step.
pub(super) fn derived(job: &str, step: u64) -> u16 {
    let job = job.parse::<u64>().unwrap_or_else(|_| hash(job));
    let offset = (job % COUNT + (step % COUNT) * STEP) % COUNT;
    // Less than COUNT, which fits.
    DERIVED_PORTS.start() + offset as u16
}

/// FNV-1a, which all builds agree on.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_range_is_what_is_counted_and_is_stable() {
        assert_eq!(DERIVED_PORTS.count() as u64, COUNT);
        // Nodes may run different builds: these must never change.
        assert_eq!((derived("0", 0), derived("4242", 0), derived("4242", 1)), (20_000, 24_242, 25_239));
        assert_eq!(derived("prterun-host-17@1", 0), derived("prterun-host-17@1", 0));
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
    }

    proptest! {
        #[test]
        fn each_job_has_a_port_of_the_range_and_the_next_one_another(job: u64, text: String, step: u64) {
            prop_assert!(DERIVED_PORTS.contains(&derived(&job.to_string(), step)));
            prop_assert!(DERIVED_PORTS.contains(&derived(&text, step)));
            let next = derived(&job.saturating_sub(1).to_string(), step);
            prop_assert!(job == 0 || next != derived(&job.to_string(), step));
            prop_assert_ne!(derived(&text, step), derived(&text, step ^ 1));
        }
    }
}
