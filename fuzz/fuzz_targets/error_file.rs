//! The error-file reader on any bytes: no panic, and a reason without control characters where it cannot be used.
//! Not here: what each dialect gives (the crate's tests).
#![no_main]

use libfuzzer_sys::fuzz_target;
use rankrun_errors::parse_error_file;

fuzz_target!(|bytes: &[u8]| {
    match parse_error_file(bytes) {
        Ok(data) => assert!(data.raw.len() <= bytes.len()),
        Err(why) => assert!(!why.to_string().contains(char::is_control), "{why}"),
    }
});
