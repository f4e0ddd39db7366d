//! Rust functions as worker entrypoints, by executing the program again. Not here: starting and supervising a group.

#![forbid(unsafe_code)]
