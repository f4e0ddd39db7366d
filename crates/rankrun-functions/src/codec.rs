//! How arguments and return values are written: the one place that knows. Not here: where (`files`).
//!
//! MessagePack by `rmp-serde`, structs with the names of their fields. What decided:
//!
//! - It describes itself, so that what other formats cannot read comes back: internally tagged and untagged enums, `flatten`,
//!   `skip_serializing_if`, `serde_json::Value`. The compact formats (postcard, bincode, bitcode) cannot read those, or
//!   read them wrong. (bincode is given up by its authors besides.)
//! - It is maintained, small, and streams to a writer, so that no second copy of a value is made in memory.
//!
//! As in JSON, `None` and `()` are one and the same there, so that `Some(())` and `Some(None)` would come back as `None`: they
//! are refused (`checked`), as is what is nested deeper than 1024 levels. To tell them apart would take a form of our own for
//! `Some`, which flattened structs and untagged enums could not read. A `u128` is written as bytes, so that an untagged
//! enum may take it for another variant.
//!
//! A `Vec<u8>` that is the whole value is written as it is: through serde each of its bytes is an element, which takes
//! three to eight times as long as the copy in every format that was tried. Bytes inside of another value are written at once
//! with `#[serde(with = "serde_bytes")]`. rmp-serde can guess what is bytes, but then a `Vec<u8>` in a flattened struct cannot be
//! read back, so it is not asked to.

use std::any::{Any, type_name};
use std::cell::Cell;
use std::io::{self, BufWriter, Write};

use rmp_serde::decode::Error;
use serde::Serialize;
use serde::de::{Deserialize, DeserializeOwned, IgnoredAny};

use crate::checked::{Checked, MAX_DEPTH};
use crate::value_error::ValueError;

/// Small pieces are collected up to this many bytes; larger ones go straight through.
const BUFFER: usize = 64 << 10;

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// The bytes of a `Vec<u8>`.
    Bytes = 1,
    /// MessagePack.
    MessagePack = 2,
}

impl Encoding {
    pub(crate) fn from_number(number: u64) -> Option<Self> {
        [Self::Bytes, Self::MessagePack].into_iter().find(|encoding| *encoding as u64 == number)
    }
}

/// Writes a value.
///
/// # Errors
/// [`ValueError`]: what the value is, its own `Serialize`, or the writer.
pub(crate) fn encode<T: Serialize + 'static>(value: &T, mut out: impl Write) -> Result<Encoding, ValueError> {
    if let Some(bytes) = (value as &dyn Any).downcast_ref::<Vec<u8>>() {
        return Ok(out.write_all(bytes).map(|()| Encoding::Bytes)?);
    }
    let mut out = Failing { out: BufWriter::with_capacity(BUFFER, out), error: None };
    let fault = Cell::new(None);
    let mut encoder = rmp_serde::Serializer::new(&mut out).with_struct_map();
    let written = value.serialize(Checked::new(&mut encoder, &fault)).map_err(ValueError::refused);
    let written = written.and_then(|()| out.flush().map_err(ValueError::from));
    match (out.error, fault.get()) {
        (Some(error), _) => Err(error.into()),
        (_, Some(fault)) => Err(fault.into()),
        _ => written.map(|()| Encoding::MessagePack),
    }
}

/// Remembers the error of a writer, which serde's formats bury under their own.
struct Failing<W: Write> {
    out: BufWriter<W>,
    error: Option<io::Error>,
}

impl<W: Write> Write for Failing<W> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes).map_err(|error| self.keep(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush().map_err(|error| self.keep(error))
    }
}

impl<W: Write> Failing<W> {
    #[cold]
    fn keep(&mut self, error: io::Error) -> io::Error {
        let kind = error.kind();
        self.error.get_or_insert(error);
        kind.into()
    }
}

/// Makes the value of what was written, given all of it.
///
/// # Errors
/// [`ValueError`].
pub(crate) fn decode<T: DeserializeOwned + 'static>(encoding: Encoding, written: Vec<u8>) -> Result<T, ValueError> {
    match encoding {
        Encoding::Bytes => {
            let value: Box<dyn Any> = Box::new(written);
            value
                .downcast()
                .map(|value| *value)
                .map_err(|_| ValueError::refused(format!("there are plain bytes, not a `{}`", type_name::<T>())))
        }
        Encoding::MessagePack => {
            let mut decoder = rmp_serde::Deserializer::from_read_ref(&written);
            // The one that it counts to is one too many.
            decoder.set_max_depth(usize::from(MAX_DEPTH) + 1);
            let value = T::deserialize(&mut decoder).map_err(|error| match error {
                Error::DepthLimitExceeded => ValueError::TooDeep,
                error => ValueError::refused(error),
            })?;
            match IgnoredAny::deserialize(&mut decoder) {
                Err(Error::InvalidMarkerRead(end)) if end.kind() == io::ErrorKind::UnexpectedEof => Ok(value),
                _ => Err(ValueError::refused(
                    "there is more than one value: what was announced is less than what was written",
                )),
            }
        }
    }
}

/// Whether a value that was encoded so is sure to be decoded again.
pub(crate) fn is_certain(encoding: Encoding) -> bool {
    encoding == Encoding::Bytes
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use serde::{Deserialize, Serializer};

    use super::*;

    fn through<T: Serialize + DeserializeOwned + 'static>(value: &T) -> T {
        let mut written = Vec::new();
        let encoding = encode(value, &mut written).unwrap();
        decode(encoding, written).unwrap()
    }

    /// Announces one element and writes three.
    struct Liar;

    impl Serialize for Liar {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            use serde::ser::SerializeSeq;
            let mut elements = serializer.serialize_seq(Some(1))?;
            for element in 1..=3_u8 {
                elements.serialize_element(&element)?;
            }
            elements.end()
        }
    }

    #[test]
    fn what_is_left_over_makes_a_value_unreadable() {
        let mut written = Vec::new();
        let encoding = encode(&Liar, &mut written).unwrap();
        assert!(decode::<Vec<u8>>(encoding, written).unwrap_err().to_string().contains("more than one value"));
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "type")]
    enum Optimizer {
        Sgd { lr: f64 },
        Adam { lr: f64, betas: (f64, f64) },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Shape {
        Number(u64),
        Data { data: Vec<u8> },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Inner {
        data: Vec<u8>,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        last: i64,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Config {
        optimizer: Optimizer,
        shapes: Vec<Shape>,
        #[serde(flatten)]
        inner: Inner,
        table: BTreeMap<(u8, i8), HashMap<String, Option<char>>>,
    }

    #[test]
    fn what_compact_formats_cannot_read_comes_back() {
        let config = Config {
            optimizer: Optimizer::Adam { lr: f64::MIN_POSITIVE, betas: (0.9, f64::INFINITY) },
            shapes: vec![Shape::Data { data: vec![0, 127, 128, 255] }, Shape::Number(u64::MAX)],
            inner: Inner { data: vec![255; 300], name: None, last: i64::MIN },
            table: BTreeMap::from([((1, -1), HashMap::from([("ü".to_owned(), Some('☃'))]))]),
        };
        assert_eq!(through(&config), config);
        assert_eq!(through(&Optimizer::Sgd { lr: -0.0 }), Optimizer::Sgd { lr: 0.0 });
    }

    #[test]
    fn bytes_are_written_as_they_are() {
        for bytes in [vec![], vec![0], vec![200; 100_000]] {
            let mut written = Vec::new();
            assert_eq!(encode(&bytes, &mut written), Ok(Encoding::Bytes));
            assert_eq!(written, bytes);
            assert_eq!(through(&bytes), bytes);
        }
        assert!(decode::<String>(Encoding::Bytes, vec![1]).unwrap_err().to_string().contains("plain bytes"));
    }

    #[test]
    fn a_full_writer_is_the_reason_that_is_given() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::from_raw_os_error(28))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for why in [encode(&vec![1_u8], Full), encode(&vec![1_u64; 100_000], Full), encode(&1_u64, Full)] {
            assert!(why.as_ref().unwrap_err().to_string().contains("No space left"), "{why:?}");
        }
    }

    #[test]
    fn a_value_that_refuses_says_why() {
        struct Never;
        impl Serialize for Never {
            fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(serde::ser::Error::custom("a lock is held"))
            }
        }
        assert_eq!(encode(&Never, io::sink()), Err(ValueError::refused("a lock is held")));
    }

    #[test]
    fn a_some_that_would_come_back_as_none_is_refused() {
        #[derive(Serialize)]
        struct Newtype<T>(T);
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Nothing;
        #[derive(Serialize)]
        #[serde(tag = "kind")]
        enum Tagged {
            Holds { name: Option<Option<u8>> },
        }
        let refused = |outcome| assert_eq!(outcome, Err(ValueError::SomeOfNothing));
        refused(encode(&Some(()), io::sink()));
        refused(encode(&Some(None::<u8>), io::sink()));
        refused(encode(&Some(Some(())), io::sink()));
        refused(encode(&vec![(1, Some(Newtype(Box::new(None::<String>))))], io::sink()));
        refused(encode(&BTreeMap::from([("key", Some(()))]), io::sink()));
        refused(encode(&Tagged::Holds { name: Some(None) }, io::sink()));
        for fine in [None, Some(Some(1_u8))] {
            assert_eq!(through(&fine), fine);
        }
        let fine = (Some(Nothing), Some(vec![None, Some(false)]), Some(((), None::<u8>)), Some([(); 2]));
        assert_eq!(through(&fine), fine);
    }

    #[test]
    fn values_are_nested_up_to_the_limit_and_no_deeper() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        enum List {
            End,
            Cell(Box<List>),
            Named { next: Box<List> },
        }
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Node(Vec<Node>);
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        #[serde(untagged)]
        enum Json {
            Null,
            List(Vec<Json>),
        }
        // Without optimization the decoder needs more than a test's thread has.
        let checks = || {
            let cells = |n| (0..n).fold(List::End, |list, _| List::Cell(Box::new(list)));
            let named = |n| (0..n).fold(List::End, |list, _| List::Named { next: Box::new(list) });
            let nodes = |n| (1..n).fold(Node(Vec::new()), |node, _| Node(vec![node]));
            let json = |n| (0..n).fold(Json::Null, |json, _| Json::List(vec![json]));
            assert_eq!((through(&cells(1024)), through(&named(1024))), (cells(1024), named(1024)));
            assert_eq!((through(&nodes(1024)), through(&json(1024))), (nodes(1024), json(1024)));
            let deeper =
                [encode(&cells(1025), io::sink()), encode(&named(1025), io::sink()), encode(&nodes(1025), io::sink())];
            assert_eq!(deeper, [Err(ValueError::TooDeep), Err(ValueError::TooDeep), Err(ValueError::TooDeep)]);
            // As another version of this might write it.
            let mut written = vec![0x91; 1025];
            written.push(0x90);
            assert_eq!(decode::<Node>(Encoding::MessagePack, written), Err(ValueError::TooDeep));
        };
        std::thread::Builder::new().stack_size(32 << 20).spawn(checks).unwrap().join().unwrap();
    }

    proptest::proptest! {
        #[test]
        fn any_value_comes_back(value: (u64, i64, bool, char, String, Vec<i32>, Option<Vec<String>>, u8)) {
            assert_eq!(through(&value), value);
        }
    }
}
