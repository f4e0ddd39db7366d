//! Each file of `error_files`, as torch and TensorPlay wrote it or broken on purpose, gives what it should.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rankrun_errors::{
    Dialect, ErrorFileData, ErrorFileReading, ErrorTime, ProcessFailure, TimeResolution, UnusableErrorFile,
    read_error_file,
};
use rankrun_types::{ExitKind, Signal};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/error_files").join(name)
}

fn record(name: &str) -> ErrorFileData {
    match read_error_file(&path(name)) {
        ErrorFileReading::Record(data) => {
            assert_eq!(data.raw, std::fs::read_to_string(path(name)).unwrap(), "{name}");
            assert!(data.mtime_ns.is_some(), "{name}");
            *data
        }
        other => panic!("{name}: {other:?}"),
    }
}

fn unusable(name: &str) -> UnusableErrorFile {
    match read_error_file(&path(name)) {
        ErrorFileReading::Unusable { why } => why,
        other => panic!("{name}: {other:?}"),
    }
}

fn seconds(seconds: i64) -> Option<ErrorTime> {
    Some(ErrorTime { unix_ns: seconds * 1_000_000_000, resolution: TimeResolution::Seconds })
}

#[test]
fn each_file_is_tested_here() {
    let this = include_str!("conformance.rs");
    for entry in std::fs::read_dir(path("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(this.contains(&format!("\"{name}\"")), "{name}");
    }
}

#[test]
fn torch_records_give_message_callstack_time_and_error_code() {
    let data = record("torch_exception.json");
    assert_eq!(data.dialect, Dialect::Torch);
    assert_eq!(data.message, "ValueError: loss is NaN at step 17 \u{2014} lr=0.1");
    let traceback = data.traceback.unwrap();
    assert!(traceback.starts_with("Traceback (most recent call last):\n  File \"/usr/lib"), "{traceback}");
    assert!(traceback.ends_with("ValueError: loss is NaN at step 17 \u{2014} lr=0.1\n"), "{traceback}");
    assert_eq!((data.time, data.error_code, data.pid), (seconds(1_796_076_744), None, None));

    let dumped = record("torch_parent_dump.json");
    assert_eq!((dumped.message, dumped.traceback.as_deref()), (data.message, Some(traceback.as_str())));
    assert_eq!((dumped.dialect, dumped.error_code), (Dialect::Torch, Some(-11)));
    assert_eq!(dumped.time, seconds(1_796_076_744));
}

#[test]
fn tensorplay_records_give_message_and_traceback() {
    let data = record("tensorplay_exception.json");
    assert_eq!(data.dialect, Dialect::TensorPlay);
    assert_eq!(data.message, "ValueError('loss is NaN at step 17')");
    assert!(data.traceback.unwrap().ends_with("\nValueError: loss is NaN at step 17\n"));
    assert_eq!((data.time, data.error_code), (None, None));
}

#[test]
fn string_records_give_a_message_and_a_time_if_there_is_one() {
    let data = record("string_message.json");
    assert_eq!((data.dialect, data.message.as_str()), (Dialect::TorchString, "out of memory on device 3"));
    assert_eq!((data.time, data.traceback), (seconds(1_796_070_000), None));

    let data = record("string_message_no_timestamp.json");
    assert_eq!((data.dialect, data.message.as_str()), (Dialect::TorchString, "no timestamp here"));
    assert_eq!((data.time, data.traceback), (None, None));
}

#[test]
fn a_float_timestamp_keeps_its_fraction() {
    let data = record("float_timestamp.json");
    assert_eq!((data.message.as_str(), data.traceback.as_deref()), ("KeyError: x", Some("Traceback...")));
    let time = ErrorTime { unix_ns: 1_796_070_000_750_000_000, resolution: TimeResolution::Finer };
    assert_eq!(data.time, Some(time));
}

#[test]
fn a_record_without_extra_info_gives_its_message() {
    let data = record("no_extra_info.json");
    assert_eq!((data.dialect, data.message.as_str()), (Dialect::Torch, "KeyError: x"));
    assert_eq!((data.time, data.traceback), (None, None));
}

#[test]
fn control_characters_are_read_as_they_are() {
    let data = record("control_characters.json");
    assert_eq!(data.message, "has \u{1b}[31mcolour\u{1b}[0m and \u{7} bell");
    assert_eq!(data.traceback.as_deref(), Some("line1\nline2 \u{1b}]0;title\u{7}"));
}

#[test]
fn a_broken_file_is_unusable_and_says_why() {
    let table = [
        ("empty.json", UnusableErrorFile::Empty, "is empty"),
        ("no_message.json", UnusableErrorFile::NoMessage, "has no `message`"),
        ("null_message.json", UnusableErrorFile::NullMessage, "has a `message` that is null"),
        (
            "not_an_object.json",
            UnusableErrorFile::NotAnObject { found: "an array" },
            "holds an array where a JSON object is expected",
        ),
        ("not_utf8.json", UnusableErrorFile::NotUtf8 { at: 0 }, "is not UTF-8 text (first bad byte at offset 0)"),
        (
            "truncated.json",
            UnusableErrorFile::Truncated { bytes: 44 },
            "is cut off after 44 bytes, in the middle of its JSON text",
        ),
    ];
    for (name, why, text) in table {
        assert_eq!(unusable(name), why, "{name}");
        assert_eq!(why.to_string(), text, "{name}");
        let failure = ProcessFailure::observe(0, 7, ExitKind::Code(3), SystemTime::now(), Some(&path(name)));
        assert_eq!(failure.message, "exited with code 3", "{name}");
        assert_eq!(failure.error_file_problem.as_deref(), Some(text), "{name}");
    }
}

#[test]
fn a_failure_has_the_time_that_torch_shows() {
    let exit = ExitKind::Signal { signal: Signal::SEGV, core_dumped: false };
    let ended = SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_076_750);
    let failure = ProcessFailure::observe(1, 4242, exit, ended, Some(&path("torch_exception.json")));
    assert_eq!(failure.timestamp, 1_796_076_744);
    assert_eq!((failure.exitcode, failure.signal_name().as_str()), (-11, "SIGSEGV"));
    assert_eq!(failure.message, "ValueError: loss is NaN at step 17 \u{2014} lr=0.1");
    assert_eq!(failure.error_file, Some(path("torch_exception.json")));
}
