//! A function that takes a number is given a text.

use rankrun_functions::callable;

fn train(epochs: u64) -> u64 {
    epochs
}

fn main() {
    let _ = callable(train).with("three");
}
