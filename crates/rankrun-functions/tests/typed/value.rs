//! A function that returns a number is asked for a text.

use rankrun_functions::{ReturnValue, ReturnValueError};

fn train(epochs: u64) -> Result<u64, std::num::TryFromIntError> {
    Ok(epochs)
}

fn text(value: &ReturnValue) -> Result<String, ReturnValueError> {
    value.get(train)
}

fn main() {}
