//! Which standard streams of which worker go to a file: the mode, the spec grammar and the map they expand to.
//!
//! Here: [`Std`] (one worker's mode), [`StdSpec`] (one mode for all workers, or one for each named rank), [`to_map`]
//! and [`to_map_strict`] (a spec made full for a group), [`Redirects`] (a spec for stdout and one for stderr).
//! Not here: anything that opens a file or copies a line (`rankrun-logs`).
//!
//! ```
//! use rankrun_redirects::{Std, StdSpec, to_map};
//!
//! let spec = StdSpec::parse_mapping("0:all, 1-2:err, default:none")?;
//! assert_eq!(to_map(&spec, 4).values(), [Std::ALL, Std::ERR, Std::ERR, Std::NONE]);
//! assert_eq!(spec.to_string(), "0:ALL,1-2:ERR,default:NONE");
//! # Ok::<(), rankrun_redirects::ParseStdError>(())
//! ```
//!
//! # The two grammars
//! The *mapping* grammar is what command lines take: [`StdSpec::parse_mapping`], also through `str::parse`. It is a superset
//! of what torchrun's `--redirects` and `--tee` take.
//!
//! ```text
//! mapping   = mode | item , { "," , item } ;
//! item      = ranks , ":" , mode ;
//! ranks     = rank , [ "-" , rank ]              (* the second not below the first *)
//!           | "default" | "*" ;                  (* every rank not named *)
//! mode      = "0" | "1" | "2" | "3"
//!           | "none" | "out" | "err" | "all" ;   (* 0, 1, 2, 3 *)
//! rank      = "0" | nonzero , { digit } ;        (* at most 65535 *)
//! nonzero   = "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" ;
//! digit     = "0" | nonzero ;
//! ```
//!
//! The *reference* grammar is that of torch's and TensorPlay's `Std.from_str`: [`Std::from_str`]. It differs where a text
//! has a colon and no comma:
//!
//! ```text
//! reference  = positional                        (* if the text has ":" and no "," *)
//!            | mapping ;                         (* else *)
//! positional = slot , ":" , slot , [ ":" , slot ] ;
//! slot       = mode | "default" ;                (* default: that rank is not named *)
//! ```
//!
//! The slots are the modes of ranks 0, 1 and 2, and `i:j` is short for `i:j:j`. So `0:1` names ranks 0, 1 and 2 in the
//! reference grammar but rank 0 alone in the mapping grammar, and `4:0` and `0-3:1` are errors in the first (4 is no mode)
//! and fine in the second. With a comma the two agree.
//!
//! [`Redirects`] takes two specs, both in one of the grammars; which of them is chosen for each side on its own:
//!
//! ```text
//! redirects = spec , [ "->" , spec ] ;           (* one spec is for both streams *)
//! ```
//!
//! In all of them names are case-insensitive, ASCII white space may stand around every token, only ASCII digits are
//! digits, and a rank that is given twice, by itself or in a range, is an error, as is a second `default` or `*`.
//! Time and memory are bounded by the length of the text and by 65,536 ranks, whatever the text is.

#![forbid(unsafe_code)]

mod error;
mod integer;
mod map;
mod mode;
mod parse;
mod redirects;
mod serialize;
mod spec;

pub use error::ParseStdError;
pub use integer::{ByteOrder, FromBytesError, ToBytesError};
pub use map::{RankOutOfWorldError, to_map, to_map_strict};
pub use mode::{InvalidStdError, Std};
pub use redirects::Redirects;
pub use spec::{StdMap, StdSpec};

/// The README's example, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
