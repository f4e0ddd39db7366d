//! The reader and the report hold for any input: bytes, broken conformance files, messages, numbers of failures.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use rankrun_errors::{ChildFailedError, ErrorFileReading, ErrorRecord, ObservedExit, ProcessFailure, parse_error_file};
use rankrun_types::ExitKind;

fn conformance_files() -> Vec<Vec<u8>> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/error_files");
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 14);
    files.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Parses, and if there is a record makes its report, which must be harmless.
fn parse_and_report(bytes: &[u8]) {
    let reading = match parse_error_file(bytes) {
        Ok(data) => ErrorFileReading::Record(Box::new(data)),
        Err(why) => ErrorFileReading::Unusable { why },
    };
    let observed = ObservedExit {
        local_rank: 0,
        pid: 1,
        exit: ExitKind::Code(1),
        started_at: None,
        start_ticks: None,
        stopped_at: None,
        ended_at: UNIX_EPOCH,
    };
    let failure = ProcessFailure::from_parts(observed, Some("error.json".into()), reading);
    let report = ChildFailedError::new("trainer", BTreeMap::from([(0, failure)])).unwrap().to_string();
    assert!(!report.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{report:?}");
    assert_eq!(report.lines().filter(|line| line.contains(" FAILED: rank 0 ")).count(), 1);
}

#[test]
fn each_truncation_of_a_conformance_file_is_read_without_panic() {
    for file in conformance_files() {
        for end in 0..=file.len() {
            let parsed = parse_error_file(&file[..end]);
            let whole = file[..end].trim_ascii_end() == file.trim_ascii_end();
            assert!(whole || parsed.is_err(), "{:?}", String::from_utf8_lossy(&file[..end]));
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        parse_and_report(&bytes);
    }

    #[test]
    fn any_mutation_of_a_conformance_file_is_read_without_panic(
        pick in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let files: Vec<_> = conformance_files().into_iter().filter(|file| !file.is_empty()).collect();
        let mut bytes = pick.get(&files).clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        parse_and_report(&bytes);
    }

    #[test]
    fn what_is_written_is_what_is_read(
        message in ".{0,200}",
        callstack in "(?s).{1,200}[a-z]",
        ns in 0..4_000_000_000_000_000_000u64,
        pid in any::<u32>(),
        code in proptest::option::of(any::<i32>()),
    ) {
        let mut record = ErrorRecord::new(message.as_str())
            .with_callstack(callstack.as_str())
            .with_time(UNIX_EPOCH + Duration::from_nanos(ns))
            .with_pid(pid);
        record.error_code = code;
        let data = parse_error_file(record.to_json().as_bytes()).unwrap();
        prop_assert_eq!(data.message, message);
        prop_assert_eq!(data.traceback, Some(callstack));
        prop_assert_eq!(data.time.unwrap().unix_ns, ns as i64);
        prop_assert_eq!((data.pid, data.error_code), (Some(pid), code));
    }
}
