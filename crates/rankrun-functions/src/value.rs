//! What comes back of a function: [`ReturnSlot`] while its worker lives, [`ReturnValue`] afterwards. Not here: writing it
//! (`worker`).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rankrun_types::ExitKind;

use crate::codec::{self, Encoding};
use crate::files::{ResultFile, Span, State};
use crate::function::Identity;
use crate::value_error::{ValueError, without_panic};
use crate::{Function, registry};

/// Values up to this size are read at once, so that many small ones hold no descriptors.
const SMALL: u64 = 64 << 10;

/// Where a worker's return value will be.
#[derive(Debug)]
pub struct ReturnSlot {
    function: Identity,
    file: ResultFile,
}

impl ReturnSlot {
    pub(crate) fn new(function: Identity, file: ResultFile) -> Self {
        Self { function, file }
    }

    /// The return value of a worker that has ended.
    ///
    /// Does not block and does not decode it: a value of many bytes stays where it is.
    ///
    /// # Errors
    /// [`NoReturnValue`] if it is not there in full, or the worker did not exit 0.
    pub fn collect(self, exit: ExitKind) -> Result<ReturnValue, NoReturnValue> {
        let header = self.file.header();
        let missing = |why| NoReturnValue { function: self.function.name, exit, why };
        let (State::Returned, Some(span), true) = (header.state, header.span, exit.is_success()) else {
            return Err(missing(Why::of(header.state)));
        };
        let value = if span.len <= SMALL {
            // It says that it is there, and it is not.
            Place::Memory(span.encoding, self.file.read(span, false).map_err(|_| missing(Why::Writes))?)
        } else {
            Place::File(span, self.file)
        };
        Ok(ReturnValue { function: self.function, place: Arc::new(Mutex::new(Some(value))) })
    }
}

/// A worker has ended and left no return value.
///
/// Shown, it goes on where a sentence about the exit ends: `exited 0` + ` without returning a value from ...`; empty where
/// the exit says it all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoReturnValue {
    function: &'static str,
    exit: ExitKind,
    why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    NotTaken,
    NotReturned,
    Writes,
    /// The value is there, but the worker failed when it was to exit.
    Afterwards,
}

impl Why {
    fn of(state: State) -> Self {
        match state {
            State::New => Self::NotTaken,
            State::Runs => Self::NotReturned,
            State::Writes => Self::Writes,
            State::Returned => Self::Afterwards,
        }
    }
}

impl NoReturnValue {
    /// The name of the function.
    #[must_use]
    pub fn function(&self) -> &str {
        self.function
    }
}

impl fmt::Display for NoReturnValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let function = &self.function;
        match (self.why, self.exit.is_success()) {
            (Why::NotTaken, true) => {
                write!(f, " without running `{function}`: call `rankrun::init()` as the first statement of `main`")
            }
            (Why::NotTaken, false) => write!(f, " before it ran `{function}`"),
            (Why::NotReturned | Why::Afterwards, true) => write!(f, " without returning a value from `{function}`"),
            (Why::NotReturned, false) => Ok(()),
            (Why::Writes, _) => write!(f, " while it wrote the return value of `{function}`"),
            (Why::Afterwards, false) => write!(f, " after `{function}` had returned"),
        }
    }
}

/// A return value cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReturnValueError {
    /// It is another function's.
    #[error("the workers ran `{ran}`, not {}`{asked}`", if asked == ran { "another function of the same path, " } else { "" })]
    OtherFunction {
        /// The function that was asked for.
        asked: String,
        /// The function that ran.
        ran: String,
    },
    /// It was taken before.
    #[error("the return value of `{function}` has been taken already")]
    Taken {
        /// The function.
        function: String,
    },
    /// It cannot be decoded.
    #[error("the return value of `{function}` cannot be decoded as `{type_name}`: {why}")]
    Undecodable {
        /// The function.
        function: String,
        /// The type.
        type_name: String,
        /// Why.
        why: ValueError,
    },
}

#[derive(Debug)]
enum Place {
    Memory(Encoding, Vec<u8>),
    File(Span, ResultFile),
}

/// What a worker's function returned, still encoded. Cheap to clone: all clones are the same value.
#[derive(Debug, Clone)]
pub struct ReturnValue {
    function: Identity,
    place: Arc<Mutex<Option<Place>>>,
}

impl PartialEq for ReturnValue {
    /// Whether both are clones of one value.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.place, &other.place)
    }
}

impl Eq for ReturnValue {}

impl ReturnValue {
    /// The name of the function that returned it.
    #[must_use]
    pub fn function(&self) -> &str {
        self.function.name
    }

    /// Decodes the value, which stays here and can be had again.
    ///
    /// # Errors
    /// [`ReturnValueError`].
    pub fn get<M, F: Function<M>>(&self, function: F) -> Result<F::Value, ReturnValueError> {
        self.of(function)?;
        let place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        let (encoding, bytes) = match &*place {
            Some(Place::Memory(encoding, bytes)) => (*encoding, Ok(bytes.clone())),
            Some(Place::File(span, file)) => (span.encoding, file.read(*span, false)),
            None => return Err(ReturnValueError::Taken { function: self.function.name.to_owned() }),
        };
        drop(place);
        self.decode(function, encoding, bytes)
    }

    /// Decodes the value and frees what it was decoded from: what is encoded while it is read, so that bytes are never
    /// in memory twice.
    ///
    /// # Errors
    /// [`ReturnValueError`].
    pub fn take<M, F: Function<M>>(&self, function: F) -> Result<F::Value, ReturnValueError> {
        self.of(function)?;
        let (encoding, bytes) = match self.place.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(Place::Memory(encoding, bytes)) => (encoding, Ok(bytes)),
            Some(Place::File(span, file)) => (span.encoding, file.read(span, true)),
            None => return Err(ReturnValueError::Taken { function: self.function.name.to_owned() }),
        };
        self.decode(function, encoding, bytes)
    }

    fn of<M, F: Function<M>>(&self, function: F) -> Result<(), ReturnValueError> {
        if function.identity().id == self.function.id {
            return Ok(());
        }
        Err(ReturnValueError::OtherFunction { asked: function.name().to_owned(), ran: self.function.name.to_owned() })
    }

    fn decode<M, F: Function<M>>(
        &self,
        function: F,
        encoding: Encoding,
        bytes: Result<Vec<u8>, ValueError>,
    ) -> Result<F::Value, ReturnValueError> {
        let decoded = bytes.and_then(|bytes| without_panic(|| codec::decode(encoding, bytes)));
        decoded.map_err(|why| ReturnValueError::Undecodable {
            function: self.function.name.to_owned(),
            type_name: registry::types(function)[1].to_owned(),
            why,
        })
    }
}

#[cfg(test)]
mod tests {
    use rankrun_types::Signal;

    use super::*;

    const KILLED: ExitKind = ExitKind::Signal { signal: Signal::KILL, core_dumped: false };

    fn bytes(_: u64) -> Vec<u8> {
        Vec::new()
    }
    fn words(_: u64) -> Vec<String> {
        Vec::new()
    }

    fn slot(state: State, value: Option<&Vec<u8>>) -> ReturnSlot {
        let file = ResultFile::new().unwrap();
        file.set(State::Writes, None).unwrap();
        let span = value.map(|value| file.write(value).unwrap());
        file.set(state, span).unwrap();
        ReturnSlot::new(bytes.identity(), file)
    }

    #[test]
    fn what_is_missing_is_said_as_the_exit_goes_on() {
        let name = bytes.name();
        for (state, exit, text) in [
            (
                State::New,
                ExitKind::Code(0),
                format!(" without running `{name}`: call `rankrun::init()` as the first statement of `main`"),
            ),
            (State::New, ExitKind::Code(2), format!(" before it ran `{name}`")),
            (State::Runs, ExitKind::Code(0), format!(" without returning a value from `{name}`")),
            (State::Runs, ExitKind::Code(7), String::new()),
            (State::Runs, KILLED, String::new()),
            (State::Writes, KILLED, format!(" while it wrote the return value of `{name}`")),
            (State::Writes, ExitKind::Code(0), format!(" while it wrote the return value of `{name}`")),
        ] {
            assert_eq!(slot(state, None).collect(exit).unwrap_err().to_string(), text, "{state:?} {exit}");
        }
        let after = slot(State::Returned, Some(&vec![1])).collect(KILLED).unwrap_err();
        assert_eq!(after.to_string(), format!(" after `{name}` had returned"));
    }

    #[test]
    fn small_and_large_values_can_be_had_again_until_they_are_taken() {
        for len in [0, 1, SMALL, SMALL + 1, 1 << 20] {
            let sent = vec![7_u8; len as usize];
            let value = slot(State::Returned, Some(&sent)).collect(ExitKind::Code(0)).unwrap();
            assert_eq!(value.get(bytes).as_ref(), Ok(&sent));
            assert_eq!(value.clone().take(bytes).as_ref(), Ok(&sent));
            let taken = ReturnValueError::Taken { function: bytes.name().to_owned() };
            assert_eq!((value.get(bytes), value.take(bytes)), (Err(taken.clone()), Err(taken)));
        }
    }

    #[test]
    fn a_value_is_that_of_its_function_only() {
        let value = slot(State::Returned, Some(&vec![1])).collect(ExitKind::Code(0)).unwrap();
        let text = value.get(words).unwrap_err().to_string();
        assert_eq!(text, format!("the workers ran `{}`, not `{}`", bytes.name(), words.name()));
        assert_eq!(value.get(bytes), Ok(vec![1]));
    }
}
