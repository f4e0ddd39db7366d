//! What an error file says: the three dialects, from text to [`ErrorFileData`], without IO.
//! Not here: opening a file (`read`) and writing one (`write`).
//!
//! What a file costs is its own text and what is kept of it: nothing else is copied while it is read.

use serde::de::IgnoredAny;

use crate::clip::{MAX_CALLSTACK_BYTES, MAX_MESSAGE_BYTES};
use crate::json;
use crate::time::NANOSECONDS;

/// The largest error file that is read, in bytes: 3 MiB, so that with what is kept of it no file costs more than 4 MiB.
pub const MAX_ERROR_FILE_BYTES: usize = 3 << 20;

/// How deep objects and arrays may lie in each other: the parser needs memory for each.
const MAX_DEPTH: usize = 1 << 17;

/// The longest text that is looked at for a number, in bytes.
const MAX_NUMBER_BYTES: usize = 64;

/// Which system's form an error file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `{"message": {"message", "extraInfo": {"py_callstack", "timestamp"}, "errorCode"}}`, as torch and rankrun write it.
    Torch,
    /// `{"message": "...", "timestamp": 1}`, the short form that torch reads.
    TorchString,
    /// `{"message": "...", "extraInfo": {"traceback"}}`, as TensorPlay writes it.
    TensorPlay,
}

/// How exact an error file's own time is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimeResolution {
    /// Whole seconds: of no use for telling who was first.
    Seconds,
    /// Finer than a second.
    Finer,
}

/// The time that an error file itself gives for the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorTime {
    /// Nanoseconds since the Unix epoch.
    pub unix_ns: i64,
    /// How exact it is.
    pub resolution: TimeResolution,
}

/// What a usable error file says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorFileData {
    /// The error's message; empty if the file gives only a traceback. Of more than 64 KiB the middle is left out.
    pub message: String,
    /// The traceback or call stack, if the file has one that is not empty. Of more than 384 KiB the middle is left out.
    pub traceback: Option<String>,
    /// The file's own time, if it gives one that can be understood.
    pub time: Option<ErrorTime>,
    /// The exit code that a parent noted when it passed the file on; negative for a signal. See
    /// [`own_error_code`](Self::own_error_code).
    pub error_code: Option<i32>,
    /// The process that wrote the record, as it sees itself; only rankrun's records have it.
    pub pid: Option<u32>,
    /// When that process was started, in clock ticks since the boot, as the 22nd field of /proc/PID/stat has it; only
    /// rankrun's records have it.
    pub start_ticks: Option<u64>,
    /// The exit code that the writer expected to end with, negative for a signal; only rankrun's records have it.
    pub exit_code: Option<i32>,
    /// The process that passed the record on; only rankrun says so.
    pub passed_on_by: Option<u32>,
    /// Whether the error code is that of the writer, a launcher that failed itself, unless it was passed on; only rankrun's
    /// records can be so.
    pub own_error_code: bool,
    /// Whether it was written at a panic that its process may have survived: it may have ended of something else. Only
    /// rankrun's records can be so.
    pub provisional: bool,
    /// The form it was written in.
    pub dialect: Dialect,
    /// The whole JSON text.
    pub raw: String,
    /// When the file was last written, in nanoseconds since the Unix epoch; `None` if it was not read from a file.
    pub mtime_ns: Option<i64>,
}

impl ErrorFileData {
    /// The exit code of a child whose failure the writer passed on, if that is what it is.
    pub(crate) fn passed_on_code(&self) -> Option<i32> {
        self.error_code.filter(|_| !self.own_error_code || self.passed_on_by.is_some())
    }
}

/// Why an error file is of no use.
///
/// Each is a fragment that goes after the file's name: `error.json is empty`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnusableErrorFile {
    /// The system refused to open or read it.
    #[error("cannot be read: {reason}")]
    Io {
        /// The kind of IO error.
        kind: std::io::ErrorKind,
        /// What the system said.
        reason: String,
    },
    /// A directory, a symbolic link, a FIFO, a device or a socket.
    #[error("is not a regular file but {what}")]
    NotRegular {
        /// What it is, with its article.
        what: &'static str,
    },
    /// Larger than [`MAX_ERROR_FILE_BYTES`].
    #[error("is too large: {bytes} bytes where at most {MAX_ERROR_FILE_BYTES} are read")]
    TooLarge {
        /// The size of the file, or what was read of it before reading stopped.
        bytes: u64,
    },
    /// No bytes, or white space only.
    #[error("is empty")]
    Empty,
    /// Bytes that are no UTF-8.
    #[error("is not UTF-8 text (first bad byte at offset {at})")]
    NotUtf8 {
        /// The offset of the first bad byte.
        at: usize,
    },
    /// The JSON text stops in the middle: its writer died or is still writing.
    #[error("is cut off after {bytes} bytes, in the middle of its JSON text")]
    Truncated {
        /// The length of the file in bytes.
        bytes: usize,
    },
    /// No JSON.
    #[error("is not valid JSON: {detail}")]
    InvalidJson {
        /// What the parser said, with line and column.
        detail: String,
    },
    /// JSON, but no object.
    #[error("holds {found} where a JSON object is expected")]
    NotAnObject {
        /// What it is, with its article.
        found: &'static str,
    },
    /// An object without a `message`.
    #[error("has no `message`")]
    NoMessage,
    /// `"message": null`.
    #[error("has a `message` that is null")]
    NullMessage,
    /// A message that is neither a text nor an object.
    #[error("has a `message` that is {found} where a text or an object is expected")]
    MessageType {
        /// What it is, with its article.
        found: &'static str,
    },
}

/// Reads the bytes of an error file in any of the three dialects.
///
/// Pure: the result has no [`mtime_ns`](ErrorFileData::mtime_ns). It never panics, whatever the bytes are.
///
/// # Errors
/// [`UnusableErrorFile`] says what is wrong with the bytes.
///
/// ```
/// use rankrun_errors::{Dialect, parse_error_file};
///
/// let data = parse_error_file(br#"{"message": "out of memory", "timestamp": 1796070000}"#)?;
/// assert_eq!((data.message.as_str(), data.dialect), ("out of memory", Dialect::TorchString));
/// # Ok::<(), rankrun_errors::UnusableErrorFile>(())
/// ```
pub fn parse_error_file(bytes: &[u8]) -> Result<ErrorFileData, UnusableErrorFile> {
    if bytes.len() > MAX_ERROR_FILE_BYTES {
        return Err(UnusableErrorFile::TooLarge { bytes: bytes.len() as u64 });
    }
    from_bytes(bytes.to_vec())
}

/// The same for bytes that can be kept, without a copy.
pub(crate) fn from_bytes(bytes: Vec<u8>) -> Result<ErrorFileData, UnusableErrorFile> {
    let raw = String::from_utf8(bytes)
        .map_err(|error| UnusableErrorFile::NotUtf8 { at: error.utf8_error().valid_up_to() })?;
    let parsed = Parsed::from_text(&raw)?;
    Ok(ErrorFileData {
        message: parsed.message,
        traceback: parsed.traceback,
        time: parsed.time,
        error_code: parsed.error_code,
        pid: parsed.pid,
        start_ticks: parsed.start_ticks,
        exit_code: parsed.exit_code,
        passed_on_by: parsed.passed_on_by,
        own_error_code: parsed.own_error_code,
        provisional: parsed.provisional,
        dialect: parsed.dialect,
        raw,
        mtime_ns: None,
    })
}

/// [`ErrorFileData`] before it owns its text.
struct Parsed {
    message: String,
    traceback: Option<String>,
    time: Option<ErrorTime>,
    error_code: Option<i32>,
    pid: Option<u32>,
    start_ticks: Option<u64>,
    exit_code: Option<i32>,
    passed_on_by: Option<u32>,
    own_error_code: bool,
    provisional: bool,
    dialect: Dialect,
}

impl Parsed {
    fn from_text(raw: &str) -> Result<Self, UnusableErrorFile> {
        let text = raw.strip_prefix('\u{feff}').unwrap_or(raw).trim();
        if text.is_empty() {
            return Err(UnusableErrorFile::Empty);
        }
        if json::depth(text) > MAX_DEPTH {
            return Err(UnusableErrorFile::InvalidJson { detail: "values are nested too deep".to_owned() });
        }
        if let Err(error) = serde_json::from_str::<IgnoredAny>(text)
            && serde_json::from_reader::<_, IgnoredAny>(json::WithoutConstants::new(text)).is_err()
        {
            return Err(json_error(&error, raw.len()));
        }
        let top = object(text).ok_or_else(|| UnusableErrorFile::NotAnObject { found: json_type(text) })?;
        let message = top.message.ok_or(UnusableErrorFile::NoMessage)?;
        match message.as_bytes().first() {
            Some(b'"') => Ok(Self::from_string_form(&top, message)),
            Some(b'{') => Self::from_object_form(message),
            Some(b'n') => Err(UnusableErrorFile::NullMessage),
            _ => Err(UnusableErrorFile::MessageType { found: json_type(message) }),
        }
    }

    fn from_string_form(top: &Level<'_>, message: &str) -> Self {
        let extra = top.extra_info.and_then(object);
        let dialect = if extra.is_some() { Dialect::TensorPlay } else { Dialect::TorchString };
        let extra = extra.unwrap_or_default();
        Self {
            message: json::string(message, MAX_MESSAGE_BYTES).unwrap_or_default(),
            traceback: traceback(&extra),
            time: error_time(&extra).or_else(|| error_time(top)),
            error_code: top.error_code.and_then(integer),
            pid: extra.pid.and_then(integer),
            start_ticks: extra.start_ticks.and_then(integer),
            exit_code: extra.exit_code.and_then(integer),
            passed_on_by: top.passed_on_by.and_then(integer),
            own_error_code: extra.own_error_code == Some("true"),
            provisional: extra.provisional == Some("true"),
            dialect,
        }
    }

    fn from_object_form(message: &str) -> Result<Self, UnusableErrorFile> {
        let inner = object(message).unwrap_or_default();
        let extra = inner.extra_info.and_then(object).unwrap_or_default();
        let traceback = traceback(&extra);
        let message = inner.message.and_then(|message| json::string(message, MAX_MESSAGE_BYTES));
        if message.is_none() && traceback.is_none() {
            return Err(UnusableErrorFile::NoMessage);
        }
        Ok(Self {
            message: message.unwrap_or_default(),
            traceback,
            time: error_time(&extra),
            error_code: inner.error_code.and_then(integer),
            pid: extra.pid.and_then(integer),
            start_ticks: extra.start_ticks.and_then(integer),
            exit_code: extra.exit_code.and_then(integer),
            passed_on_by: inner.passed_on_by.and_then(integer),
            own_error_code: extra.own_error_code == Some("true"),
            provisional: extra.provisional == Some("true"),
            dialect: Dialect::Torch,
        })
    }
}

fn json_error(error: &serde_json::Error, bytes: usize) -> UnusableErrorFile {
    if error.is_eof() {
        UnusableErrorFile::Truncated { bytes }
    } else {
        UnusableErrorFile::InvalidJson { detail: error.to_string() }
    }
}

fn json_type(value: &str) -> &'static str {
    match value.as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a text",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}

/// The values of the keys that count, of one JSON object of any of the three levels. The last of equal keys wins, as
/// in Python.
#[derive(Default)]
struct Level<'a> {
    message: Option<&'a str>,
    extra_info: Option<&'a str>,
    error_code: Option<&'a str>,
    callstack: Option<&'a str>,
    traceback: Option<&'a str>,
    timestamp: Option<&'a str>,
    timestamp_ns: Option<&'a str>,
    pid: Option<&'a str>,
    start_ticks: Option<&'a str>,
    exit_code: Option<&'a str>,
    passed_on_by: Option<&'a str>,
    own_error_code: Option<&'a str>,
    provisional: Option<&'a str>,
}

/// The object that valid JSON text holds, `None` if it holds something else.
fn object(value: &str) -> Option<Level<'_>> {
    if !value.starts_with('{') {
        return None;
    }
    let mut level = Level::default();
    for (key, value) in json::members(value) {
        let slots = [
            ("message", &mut level.message),
            ("extraInfo", &mut level.extra_info),
            ("errorCode", &mut level.error_code),
            ("py_callstack", &mut level.callstack),
            ("traceback", &mut level.traceback),
            ("timestamp", &mut level.timestamp),
            ("timestamp_ns", &mut level.timestamp_ns),
            ("pid", &mut level.pid),
            ("start_ticks", &mut level.start_ticks),
            ("exit_code", &mut level.exit_code),
            ("passed_on_by", &mut level.passed_on_by),
            ("own_error_code", &mut level.own_error_code),
            ("provisional", &mut level.provisional),
        ];
        for (name, slot) in slots {
            if json::is(key, name) {
                *slot = Some(value);
            }
        }
    }
    Some(level)
}

/// The text of a number, or of a text that holds one: torch writes its timestamps as texts.
fn number_text(value: &str) -> Option<String> {
    if value.len() > MAX_NUMBER_BYTES {
        return None;
    }
    match value.as_bytes().first()? {
        b'"' => Some(json::string(value, MAX_NUMBER_BYTES)?.trim().to_owned()),
        b'-' | b'0'..=b'9' => Some(value.to_owned()),
        _ => None,
    }
}

fn integer<T: std::str::FromStr>(value: &str) -> Option<T> {
    number_text(value)?.parse().ok()
}

fn traceback(extra: &Level<'_>) -> Option<String> {
    let texts = [extra.callstack, extra.traceback].into_iter().flatten();
    texts.filter_map(|text| json::string(text, MAX_CALLSTACK_BYTES)).find(|text| !text.trim().is_empty())
}

fn error_time(level: &Level<'_>) -> Option<ErrorTime> {
    if let Some(unix_ns) = level.timestamp_ns.and_then(integer) {
        return Some(ErrorTime { unix_ns, resolution: TimeResolution::Finer });
    }
    parse_seconds(&number_text(level.timestamp?)?)
}

/// Reads seconds with or without a fraction, digit by digit so that none is lost to a float.
fn parse_seconds(text: &str) -> Option<ErrorTime> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let exact = whole.parse::<i64>().ok().filter(|_| fraction.bytes().all(|byte| byte.is_ascii_digit()));
    let unix_ns = match exact {
        Some(seconds) => {
            let digits = format!("{:0<9}", &fraction[..fraction.len().min(9)]);
            let nanoseconds: i64 = digits.parse().ok()?;
            let signed = if whole.starts_with('-') { -nanoseconds } else { nanoseconds };
            seconds.checked_mul(NANOSECONDS)?.checked_add(signed)?
        }
        None => {
            // An exponent, as in 1.79607e9. A cast would turn NaN into 0 and infinity into the last of all times.
            let ns = text.parse::<f64>().ok()? * 1e9;
            if ns.is_nan() || ns.abs() >= i64::MAX as f64 {
                return None;
            }
            ns as i64
        }
    };
    // A fraction of exactly zero is a whole second that went through a float.
    let resolution = if unix_ns % NANOSECONDS == 0 { TimeResolution::Seconds } else { TimeResolution::Finer };
    Some(ErrorTime { unix_ns, resolution })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ErrorFileData, UnusableErrorFile> {
        parse_error_file(text.as_bytes())
    }

    #[test]
    fn numbers_that_only_python_writes_do_no_harm() {
        let text = r#"{"message": {"message": "a \" NaN", "extraInfo": {"loss": NaN, "min": [-Infinity,Infinity], "pid": NaN, "timestamp": NaN}}}"#;
        let data = parse(text).unwrap();
        assert_eq!((data.message.as_str(), data.pid, data.time), ("a \" NaN", None, None));
        assert_eq!(data.raw, text);
        assert!(matches!(parse(r#"{"message": NaN}"#), Err(UnusableErrorFile::MessageType { .. })));
        assert!(matches!(parse(r#"{"message": "x", "loss": NaNx}"#), Err(UnusableErrorFile::InvalidJson { .. })));
        assert!(matches!(parse(r#"{"message": "x", "loss": nan}"#), Err(UnusableErrorFile::InvalidJson { .. })));
        assert!(matches!(
            parse(r#"{"message": "x", "loss": NaN"#),
            Err(UnusableErrorFile::InvalidJson { .. } | UnusableErrorFile::Truncated { .. })
        ));
    }

    #[test]
    fn seconds_keep_every_digit_of_their_fraction() {
        let ns = |text| parse_seconds(text).map(|time| time.unix_ns);
        assert_eq!(ns("1796070000"), Some(1_796_070_000_000_000_000));
        assert_eq!(ns("1796070000.123456789"), Some(1_796_070_000_123_456_789));
        assert_eq!(ns("1796070000.1234567891"), Some(1_796_070_000_123_456_789));
        assert_eq!(ns("-1.5"), Some(-1_500_000_000));
        assert_eq!(ns("1.5e3"), Some(1_500_000_000_000));
        for bad in ["", "soon", "NaN", "inf", "1e300", "99999999999999999999", "9999999999999", "1.x"] {
            assert_eq!(ns(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_zero_fraction_is_a_whole_second() {
        let resolution = |text| parse_seconds(text).map(|time| time.resolution);
        assert_eq!(resolution("1796070000.0"), Some(TimeResolution::Seconds));
        assert_eq!(resolution("1796070000.5"), Some(TimeResolution::Finer));
    }

    #[test]
    fn half_a_surrogate_pair_does_not_hide_the_message() {
        let data = parse(r#"{"message": {"message": "no file caf\udce9", "\ud800": 1}}"#).unwrap();
        assert!(data.message.starts_with("no file caf\u{fffd}"), "{:?}", data.message);
    }

    #[test]
    fn the_last_of_equal_keys_wins_as_in_python() {
        assert_eq!(parse(r#"{"message": "a", "message": "b"}"#).unwrap().message, "b");
    }

    #[test]
    fn a_traceback_alone_is_a_record() {
        let data = parse(r#"{"message": {"extraInfo": {"py_callstack": "line 1"}}}"#).unwrap();
        assert_eq!((data.message.as_str(), data.traceback.as_deref()), ("", Some("line 1")));
        assert_eq!(parse(r#"{"message": {"extraInfo": {}}}"#), Err(UnusableErrorFile::NoMessage));
    }

    #[test]
    fn fields_of_the_wrong_type_are_as_if_they_were_not_there() {
        let data = parse(
            r#"{"message": {"message": "m", "errorCode": "x", "extraInfo":
                {"py_callstack": 7, "timestamp": [1], "timestamp_ns": 1.5, "pid": -3}}}"#,
        )
        .unwrap();
        assert_eq!((data.traceback, data.time, data.error_code, data.pid), (None, None, None, None));
    }

    #[test]
    fn a_message_of_another_type_is_named() {
        for (text, found) in [("1", "a number"), ("[]", "an array"), ("true", "a boolean")] {
            assert_eq!(parse(&format!(r#"{{"message": {text}}}"#)), Err(UnusableErrorFile::MessageType { found }));
        }
    }

    #[test]
    fn deep_nesting_and_trailing_text_are_no_trouble() {
        let deep = format!(r#"{{"x": {}{}, "message": "m"}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(parse(&deep).unwrap().message, "m");
        let deeper = format!(r#"{{"x": {}{}, "message": "m"}}"#, "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
        assert!(matches!(parse(&deeper), Err(UnusableErrorFile::InvalidJson { .. })));
        assert!(matches!(parse(r#"{"message": "m"} {"#), Err(UnusableErrorFile::InvalidJson { .. })));
    }

    #[test]
    fn a_byte_order_mark_and_white_space_are_skipped() {
        assert_eq!(parse("\u{feff} {\"message\": \"m\"}\n").unwrap().message, "m");
        assert_eq!(parse(" \n"), Err(UnusableErrorFile::Empty));
    }
}
