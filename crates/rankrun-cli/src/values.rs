//! Values of arguments that more than one group of arguments has. Not here: the arguments.

use std::ops::Deref;
use std::str::FromStr;
use std::time::Duration;

use rankrun::Signal;

/// A value with the text that it was typed as, for who can only later tell that it is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Typed<T> {
    pub(crate) text: String,
    pub(crate) value: T,
}

impl<T: FromStr> FromStr for Typed<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        Ok(Self { text: text.to_owned(), value: text.parse()? })
    }
}

impl<T> Deref for Typed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Signals that were given as one argument, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SignalList(pub(crate) Vec<Signal>);

pub(crate) fn parse_signals(text: &str) -> Result<SignalList, String> {
    // torchrun passes over empty names too: a comma at the end is no fault.
    let names = text.split(',').filter(|name| !name.trim().is_empty());
    names.map(parse_watchable).collect::<Result<_, _>>().map(SignalList)
}

/// Not for what rankrun's own faults, its children and job control send to it.
fn parse_watchable(text: &str) -> Result<Signal, String> {
    const OWN: [Signal; 9] = [
        Signal::SEGV,
        Signal::BUS,
        Signal::FPE,
        Signal::ILL,
        Signal::CHLD,
        Signal::CONT,
        Signal::TSTP,
        Signal::TTIN,
        Signal::TTOU,
    ];
    let signal = parse_catchable(text)?;
    if OWN.contains(&signal) {
        return Err(format!(
            "{signal} is rankrun's own: expected signals that others send to end it or to tell the workers something, such as \
             TERM, INT or USR1"
        ));
    }
    Ok(signal)
}

pub(crate) fn parse_catchable(text: &str) -> Result<Signal, String> {
    let signal: Signal = text.parse().map_err(|error: rankrun::crates::types::ParseSignalError| error.to_string())?;
    if !signal.can_be_caught() {
        return Err(format!("{signal} cannot be caught: expected any signal but SIGKILL and SIGSTOP"));
    }
    Ok(signal)
}

/// The local ranks of a group of this size, as what is expected.
pub(crate) fn ranks_of(local_world_size: usize) -> String {
    match local_world_size {
        1 => "0".to_owned(),
        size => format!("0 to {}", size.saturating_sub(1)),
    }
}

/// How many, from 0.
pub(crate) fn parse_count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("expected a whole number from 0 to {}", u32::MAX))
}

pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "expected a number of seconds, 0 or more and less than 1e19, such as 30 or 0.5".to_owned())
}

/// A text that can be in the environment and has something to say.
pub(crate) fn parse_text(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains('\0') {
        return Err("expected a text without NUL bytes that is not empty".to_owned());
    }
    Ok(text.to_owned())
}
