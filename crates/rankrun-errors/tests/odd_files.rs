//! Whatever lies at the path of an error file: the reader neither fails nor waits, and says what it is.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use rankrun_errors::{ErrorFileReading, MAX_ERROR_FILE_BYTES, UnusableErrorFile, read_error_file};

fn why(path: &Path) -> UnusableErrorFile {
    match read_error_file(path) {
        ErrorFileReading::Unusable { why } => why,
        other => panic!("{}: {other:?}", path.display()),
    }
}

#[test]
fn what_is_no_regular_file_is_named_and_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    assert!(Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
    let _listener = UnixListener::bind(at("socket")).unwrap();
    std::fs::create_dir(at("directory")).unwrap();
    std::fs::write(at("file"), r#"{"message": "m"}"#).unwrap();
    symlink(at("file"), at("link")).unwrap();
    symlink(at("nowhere"), at("dangling")).unwrap();

    for (name, what) in [
        ("fifo", "a FIFO"),
        ("socket", "a socket"),
        ("directory", "a directory"),
        ("link", "a symbolic link"),
        ("dangling", "a symbolic link"),
        ("/dev/zero", "a device"),
    ] {
        let path = at(name);
        assert_eq!(why(&path), UnusableErrorFile::NotRegular { what }, "{name}");
    }
}

#[test]
fn no_file_and_no_directory_are_absent() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert_eq!(read_error_file(&dir.path().join("error.json")), ErrorFileReading::Absent);
    assert_eq!(read_error_file(&dir.path().join("no/error.json")), ErrorFileReading::Absent);
    assert_eq!(read_error_file(&file.join("error.json")), ErrorFileReading::Absent);
}

#[test]
fn a_directory_reached_through_a_link_is_fine() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("real")).unwrap();
    std::fs::write(dir.path().join("real/error.json"), r#"{"message": "m"}"#).unwrap();
    symlink(dir.path().join("real"), dir.path().join("link")).unwrap();
    assert!(matches!(read_error_file(&dir.path().join("link/error.json")), ErrorFileReading::Record(_)));
}

#[test]
fn a_message_of_20_megabytes_is_too_large() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("error.json");
    let mut file = File::create(&path).unwrap();
    file.write_all(br#"{"message": ""#).unwrap();
    file.seek(SeekFrom::Start(20 << 20)).unwrap();
    file.write_all(br#""}"#).unwrap();
    let bytes = (20 << 20) + 2;
    assert_eq!(why(&path), UnusableErrorFile::TooLarge { bytes });
    assert_eq!(why(&path).to_string(), "is too large: 20971522 bytes where at most 3145728 are read");
}

#[test]
fn a_file_of_exactly_the_cap_is_read_and_one_byte_more_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("error.json");
    let frame = r#"{"message": ""}"#.len();
    let text = |len: usize| format!(r#"{{"message": "{}"}}"#, "x".repeat(len - frame));
    std::fs::write(&path, text(MAX_ERROR_FILE_BYTES)).unwrap();
    assert!(matches!(read_error_file(&path), ErrorFileReading::Record(_)));
    std::fs::write(&path, text(MAX_ERROR_FILE_BYTES + 1)).unwrap();
    assert_eq!(why(&path), UnusableErrorFile::TooLarge { bytes: MAX_ERROR_FILE_BYTES as u64 + 1 });
}
