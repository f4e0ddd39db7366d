//! What reading an error file costs in memory, whatever it holds. Each file is read by this test program in a process of
//! its own, whose peak the kernel tells.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use rankrun_errors::{
    ChildFailedError, DefaultErrorHandler, MAX_ERROR_FILE_BYTES, ProcessFailure, record_child_failure,
};
use rankrun_testkit::peak_memory_kib;
use rankrun_types::ExitKind;

const ERROR_FILE: &str = "RANKRUN_ERRORS_TEST_FILE";

/// What no error file may cost.
const MOST_KIB: u64 = 4 << 10;

/// Reads the file as a launcher does, reports it, and prints by how much the peak grew for the reading, in KiB.
#[test]
#[ignore = "the body of the processes that the other test starts"]
fn reader() {
    let path = std::env::var_os(ERROR_FILE).unwrap();
    let own_pid = std::process::id().cast_signed();
    // So that the pages of the program itself are there already.
    let small = Path::new(&path).with_extension("small");
    std::fs::write(&small, r#"{"message": {"message": "\u0041", "extraInfo": {"py_callstack": "\n"}}}"#).unwrap();
    let observe = |path: &Path| ProcessFailure::observe(0, 7, ExitKind::Code(1), SystemTime::now(), Some(path));
    assert!(observe(&small).error_file_data.is_some());
    let before = peak_memory_kib(own_pid).unwrap();
    let failure = observe(Path::new(&path));
    let after = peak_memory_kib(own_pid).unwrap();
    println!("grew {}", after - before);
    let usable = failure.error_file_data.is_some();
    let error = ChildFailedError::new("trainer", BTreeMap::from([(0, failure)])).unwrap();
    println!("report {}", error.to_string().lines().count());
    let handler = DefaultErrorHandler::with_path(Path::new(&path).with_extension("up"));
    assert!(record_child_failure(&handler, &error).unwrap().is_some());
    println!("usable {usable}");
}

#[test]
fn no_error_file_costs_more_than_4_mib_whatever_it_holds() {
    let fill = |before: &str, piece: &str, after: &str| {
        let room = MAX_ERROR_FILE_BYTES - before.len() - after.len();
        [before, &piece.repeat(room / piece.len()), after].concat().into_bytes()
    };
    let nested = "[".repeat(MAX_ERROR_FILE_BYTES / 2 - 20);
    let table: Vec<(&str, bool, Vec<u8>)> = vec![
        ("a long message of escapes", true, fill(r#"{"message": ""#, r"\u0041", r#""}"#)),
        (
            "a long traceback",
            true,
            fill(r#"{"message": {"message": "m", "extraInfo": {"py_callstack": ""#, r"\n", r#""}}}"#),
        ),
        ("a long key", true, fill(r#"{""#, r"\u0041", r#"": 1, "message": "m"}"#)),
        ("many keys", true, fill("{", r#""message":"x","#, r#""message": "m"}"#)),
        ("a long list", true, fill(r#"{"message": {"message": "m", "x": ["#, "0,", "0]}}")),
        ("deep nesting", false, format!(r#"{{"x": {nested}{}}}"#, nested.replace('[', "]")).into_bytes()),
        ("binary", false, (0..MAX_ERROR_FILE_BYTES).map(|at| (at * 7 % 256) as u8).collect()),
        ("20 MB", false, vec![b' '; 20_000_000]),
    ];
    let dir = tempfile::tempdir().unwrap();
    let start = |at: usize, bytes: &[u8]| {
        let path = dir.path().join(format!("{at}.json"));
        std::fs::write(&path, bytes).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "reader", "--ignored", "--nocapture"]).env(ERROR_FILE, &path);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let readers: Vec<_> = table.iter().enumerate().map(|(at, (_, _, bytes))| start(at, bytes)).collect();
    for ((what, usable, _), reader) in table.iter().zip(readers) {
        let output = reader.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let word = |name: &str| {
            let found = text.lines().find_map(|line| line.rsplit_once(name));
            found.unwrap_or_else(|| panic!("{what}: {output:?}")).1.to_owned()
        };
        assert_eq!(word("usable "), usable.to_string(), "{what}: {text}");
        let grew: u64 = word("grew ").parse().unwrap();
        assert!(grew <= MOST_KIB, "{what}: {grew} KiB");
        if *usable {
            assert!(grew >= (MAX_ERROR_FILE_BYTES >> 10) as u64 / 2, "{what}: the measure sees only {grew} KiB");
        }
        println!("{what}: {grew} KiB");
    }
}
