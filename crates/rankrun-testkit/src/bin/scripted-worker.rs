//! A worker whose arguments say what it does; the language is described in `rankrun_testkit::script`.

#![forbid(unsafe_code)]

use rankrun_testkit::script::Script;
use rankrun_testkit::{EXIT_USAGE, perform};

fn main() {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    match Script::parse(words) {
        Ok(script) => perform(&script),
        Err(error) => {
            eprintln!("scripted-worker: {error}");
            std::process::exit(EXIT_USAGE);
        }
    }
}
