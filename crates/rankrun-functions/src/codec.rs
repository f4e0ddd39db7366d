//! How arguments and return values are written: the one place that knows. Not here: where (`files`).
//!
//! MessagePack by `rmp-serde`, structs with the names of their fields. What decided:
//!
//! - It describes itself, so that what other formats cannot read comes back: internally tagged and untagged enums, `flatten`,
//!   `skip_serializing_if`, `serde_json::Value`. The compact formats (postcard, bincode, bitcode) cannot read those, or
//!   read them wrong. (bincode is given up by its authors besides.)
//! - It is maintained, small, and streams to a writer, so that no second copy of a value is made in memory.
//!
//! As in JSON, `None` and `()` are one and the same there: `Some(())` and `Some(None)` come back as `None`. A `u128` is
//! written as bytes, so that an untagged enum may take it for another variant. Values may be nested 1,024 deep.
//!
//! A `Vec<u8>` that is the whole value is written as it is: through serde each of its bytes is an element, which takes
//! three to eight times as long as the copy in every format that was tried. Bytes inside of another value are written at once
//! with `#[serde(with = "serde_bytes")]`. rmp-serde can guess what is bytes, but then a `Vec<u8>` in a flattened struct cannot be
//! read back, so it is not asked to.

use std::any::{Any, type_name};
use std::io::{self, BufWriter, Write};

use rmp_serde::decode::Error;
use serde::Serialize;
use serde::de::{Deserialize, DeserializeOwned, IgnoredAny};

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
/// A text that says why: the value's own `Serialize`, or the writer.
pub(crate) fn encode<T: Serialize + 'static>(value: &T, mut out: impl Write) -> Result<Encoding, String> {
    if let Some(bytes) = (value as &dyn Any).downcast_ref::<Vec<u8>>() {
        return out.write_all(bytes).map(|()| Encoding::Bytes).map_err(|error| error.to_string());
    }
    let mut out = Failing { out: BufWriter::with_capacity(BUFFER, out), error: None };
    let written = value.serialize(&mut rmp_serde::Serializer::new(&mut out).with_struct_map());
    let written =
        written.map_err(|error| error.to_string()).and_then(|()| out.flush().map_err(|error| error.to_string()));
    match out.error {
        Some(error) => Err(error.to_string()),
        None => written.map(|()| Encoding::MessagePack),
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
/// A text that says why.
pub(crate) fn decode<T: DeserializeOwned + 'static>(encoding: Encoding, written: Vec<u8>) -> Result<T, String> {
    match encoding {
        Encoding::Bytes => {
            let value: Box<dyn Any> = Box::new(written);
            value
                .downcast()
                .map(|value| *value)
                .map_err(|_| format!("there are plain bytes, not a `{}`", type_name::<T>()))
        }
        Encoding::MessagePack => {
            let mut decoder = rmp_serde::Deserializer::from_read_ref(&written);
            let value = T::deserialize(&mut decoder).map_err(|error| error.to_string())?;
            match IgnoredAny::deserialize(&mut decoder) {
                Err(Error::InvalidMarkerRead(end)) if end.kind() == io::ErrorKind::UnexpectedEof => Ok(value),
                _ => Err("there is more than one value: what was announced is less than what was written".to_owned()),
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
        assert!(decode::<Vec<u8>>(encoding, written).unwrap_err().contains("more than one value"));
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
        assert!(decode::<String>(Encoding::Bytes, vec![1]).unwrap_err().contains("plain bytes"));
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
            assert!(why.as_ref().unwrap_err().contains("No space left"), "{why:?}");
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
        assert_eq!(encode(&Never, io::sink()), Err("a lock is held".to_owned()));
    }

    proptest::proptest! {
        #[test]
        fn any_value_comes_back(value: (u64, i64, bool, char, String, Vec<i32>, Option<Vec<String>>, u8)) {
            assert_eq!(through(&value), value);
        }
    }
}
