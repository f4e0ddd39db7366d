//! Reading a run's files afterwards.

#![allow(clippy::unwrap_used, reason = "a test's helpers may fail as the test may")]

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use rankrun_logs::{LogsError, Run, RunInfo, SinkId};

fn write(run: &Path, name: &str, text: &str) {
    let path = run.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn text(run: &Run) -> String {
    let mut text = Vec::new();
    for log in run.logs().unwrap() {
        log.write_lines(run.line_prefix(log.local_rank, log.stream).as_bytes(), &mut text).unwrap();
    }
    String::from_utf8(text).unwrap()
}

#[test]
fn files_come_by_attempt_rank_and_stream_in_the_order_of_numbers() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("attempt_10/0/stdout.log", "late"),
        ("attempt_2/10/stdout.log", "ten\n"),
        ("attempt_2/9/stderr.log", "warning\n"),
        ("attempt_2/9/stdout.log", "a\nb\n"),
        ("attempt_2/9/error.json", "{}"),
        ("attempt_2/filtered_stdout.log", "x\n"),
        ("attempt_2/09/stdout.log", "not ours\n"),
        ("attempt_x/0/stdout.log", "not ours\n"),
    ] {
        write(dir.path(), name, text);
    }
    let run = Run::open(dir.path()).unwrap();
    assert_eq!(run.info(), None);
    let expected = "[default9]:a\n[default9]:b\n[default9]:warning\n[default10]:ten\n[default0]:late\n";
    assert_eq!(text(&run), expected);
    let logs = run.logs().unwrap();
    let first = (logs[0].attempt, logs[0].local_rank, logs[0].stream);
    assert_eq!((first, logs[1].stream), ((2, 9, SinkId::Stdout), SinkId::Stderr));
    assert!(!run.goes_on());
}

#[test]
fn of_a_log_directory_the_newest_run_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    for run in ["b", "a"] {
        write(dir.path(), &format!("{run}/attempt_0/0/stdout.log"), run);
        drop(RunInfo::new(run, "trainer", 1).publish(&dir.path().join(run).join("run.json")).unwrap());
    }
    let run = Run::open(dir.path()).unwrap();
    assert_eq!((run.info().unwrap().run_id.as_str(), text(&run).as_str()), ("a", "[trainer0]:a\n"));
    symlink("b", dir.path().join("latest")).unwrap();
    assert_eq!(Run::open(dir.path()).unwrap().info().unwrap().run_id, "b");
    fs::remove_dir_all(dir.path().join("b")).unwrap();
    assert_eq!(Run::open(dir.path()).unwrap().info().unwrap().run_id, "a", "a link to nowhere is not followed");
}

#[test]
fn the_parts_of_nodes_that_share_a_run_come_in_the_order_of_the_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("job");
    for node in ["node_10", "node_2", "node_x", "node_02"] {
        write(&job, &format!("{node}/attempt_0/0/stdout.log"), node);
    }
    write(&job, "node_3/notes", "no run");
    let nodes = |place: &Path| -> Vec<_> { Run::open_nodes(place).unwrap().iter().map(Run::node).collect() };
    assert_eq!(nodes(&job), [Some(2), Some(10)]);
    // Of a log directory it is the newest run, as one of a single host would be.
    assert_eq!(nodes(dir.path()), [Some(2), Some(10)]);
    write(dir.path(), "other/attempt_0/0/stdout.log", "other");
    symlink("job", dir.path().join("latest")).unwrap();
    assert_eq!(nodes(dir.path()), [Some(2), Some(10)]);
    fs::remove_file(dir.path().join("latest")).unwrap();
    symlink("other", dir.path().join("latest")).unwrap();
    assert_eq!(nodes(dir.path()), [None]);

    let error = Run::open(&job).unwrap_err().to_string();
    assert!(error.ends_with("several nodes' parts of a run"), "{error}");
    let part = Run::open(&job.join("node_10")).unwrap();
    assert_eq!((part.node(), text(&part).as_str()), (Some(10), "[default0]:node_10\n"));
}

#[test]
fn what_has_no_run_is_an_error_with_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |path: &Path| Run::open(path).unwrap_err();
    let error = refused(dir.path());
    assert!(matches!(error, LogsError::NoRun { .. }), "{error}");
    assert!(error.to_string().starts_with(&format!("{}: neither ", dir.path().display())));
    write(dir.path(), "file", "");
    assert!(refused(&dir.path().join("file")).to_string().ends_with("/file: not a directory"));
    assert!(refused(&dir.path().join("missing")).to_string().ends_with("/missing: no such directory"));
}

#[test]
fn what_was_freed_is_said_in_one_line_and_not_shown_as_nul_bytes() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "attempt_0/0/stdout.log", "");
    // A hole, as it is after the beginning was freed.
    let file = fs::File::options().write(true).open(dir.path().join("attempt_0/0/stdout.log")).unwrap();
    file.write_all_at(b"the end", 1 << 20).unwrap();
    let shown = text(&Run::open(dir.path()).unwrap());
    if shown.contains('\0') {
        return eprintln!("skipped: no holes in files on this file system");
    }
    assert_eq!(shown, "[default0]:[rankrun: 1048576 bytes dropped]\n[default0]:the end\n");
}
