//! Names that no other test uses: [`unique_id`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A name that begins with `prefix` and that no other call gives, in this process or another.
///
/// The rest is of ASCII letters, digits and `-`: it can be a file's name, a variable's value or a group's cookie.
///
/// ```
/// assert_ne!(rankrun_testkit::unique_id("run"), rankrun_testkit::unique_id("run"));
/// ```
#[must_use]
pub fn unique_id(prefix: &str) -> String {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    // The time tells this process from an earlier one with the same pid.
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("{prefix}-{}-{call}-{nanos:x}", std::process::id())
}
