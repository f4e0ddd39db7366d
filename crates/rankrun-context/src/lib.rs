//! temp
#![forbid(unsafe_code)]
#![allow(dead_code)]
mod machine;
