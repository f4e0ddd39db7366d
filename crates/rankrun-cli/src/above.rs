//! Telling the launcher above of a failure of rankrun itself, where rankrun is a worker: [`failed`], [`tell`]. Not here:
//! passing on that of a worker (`rankrun-errors`).

use rankrun::crates::errors::{ErrorRecord, get_error_handler};

use crate::console::say;

/// Leaves in this process's own error file, if a launcher asked for one, why rankrun ends with this exit code. Otherwise
/// the launcher above knows the code alone, as its report is all that its user sees.
pub(crate) fn tell(exit_code: u8, message: &str, details: &str) {
    let record = ErrorRecord::new(message).with_callstack(details).with_own_error_code(exit_code.into());
    if let Err(error) = get_error_handler().write_record(&record) {
        log::warn!("{error}");
    }
}

/// Says why rankrun itself fails, here and to the launcher above, and returns the exit code.
pub(crate) fn failed(exit_code: u8, message: &str) -> u8 {
    say(message);
    tell(exit_code, message, "");
    exit_code
}
