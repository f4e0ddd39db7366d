//! `record` end to end: workers are this test program, run again in processes of their own.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::env;
use std::error::Error;
use std::fmt;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::{Command, ExitCode, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rankrun_errors::{
    ChildFailedError, DefaultErrorHandler, Dialect, ErrorFileData, ErrorFileReading, ErrorHandler, ErrorRecord,
    ProcessFailure, TimeResolution, get_error_handler, read_error_file, record, record_main, record_with,
    set_error_handler,
};
use rankrun_types::{ExitKind, Signal};

const SCENARIO: &str = "RANKRUN_ERRORS_TEST_SCENARIO";
const CHILD_FILE: &str = "RANKRUN_ERRORS_TEST_CHILD_FILE";

/// What an error is of that panics when it is shown.
const PANIC: &str = "panic";

#[derive(Debug)]
struct Failed {
    what: &'static str,
    source: Option<Box<Failed>>,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        assert_ne!(self.what, PANIC, "no words for it");
        f.write_str(self.what)
    }
}

impl Error for Failed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

fn failed() -> Failed {
    let source = Box::new(Failed { what: "no such file: data.bin", source: None });
    Failed { what: "cannot load the data", source: Some(source) }
}

fn child_failure() -> ChildFailedError {
    let exit = ExitKind::Signal { signal: Signal::SEGV, core_dumped: false };
    let path = env::var_os(CHILD_FILE).map(std::path::PathBuf::from);
    let failure = ProcessFailure::observe(2, 77, exit, std::time::SystemTime::now(), path.as_deref());
    ChildFailedError::new("trainer", [(2, failure)].into()).unwrap()
}

/// What a worker does in each scenario.
#[test]
#[ignore = "the body of the workers that the other tests start"]
fn worker() -> ExitCode {
    let outcome: Result<(), Box<dyn Error>> = match env::var(SCENARIO).unwrap().as_str() {
        "ok" => record(|| Ok::<_, Failed>(())).map_err(Into::into),
        "error" => record(|| Err(failed())).map_err(Into::into),
        "panic" => record(|| -> Result<(), Failed> { panic!("loss is {}", "NaN") }).map_err(Into::into),
        "caught" => record(|| {
            assert!(catch_unwind(|| panic!("harmless")).is_err());
            Ok::<_, Failed>(())
        })
        .map_err(Into::into),
        "thread" => record(|| -> Result<(), Failed> {
            let thread = std::thread::Builder::new().name("loader".to_owned());
            let joined = thread.spawn(|| panic!("bad shard")).unwrap().join();
            if joined.is_err() { Err(Failed { what: "the loader died", source: None }) } else { Ok(()) }
        })
        .map_err(Into::into),
        "resumed" => record(|| -> Result<(), Failed> {
            match std::thread::spawn(|| panic!("bad shard")).join() {
                Err(payload) => std::panic::resume_unwind(payload),
                Ok(()) => Ok(()),
            }
        })
        .map_err(Into::into),
        "child" => record(|| Err::<(), _>(child_failure())).map_err(Into::into),
        "hooks" => {
            hooks();
            Ok(())
        }
        "display" => record(|| Err::<(), _>(Failed { what: PANIC, source: None })).map_err(Into::into),
        "silent" => return record_main(|| Err("")),
        "main" => return record_main(|| Err("a text is an error too")),
        "main-ok" => return record_main(|| Ok::<(), Failed>(())),
        other => panic!("no scenario {other}"),
    };
    if let Err(error) = outcome {
        println!("passed on: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The program's own hooks are called before, under and after `record`, also one that is set under it.
fn hooks() {
    static BEFORE: AtomicUsize = AtomicUsize::new(0);
    static WITHIN: AtomicUsize = AtomicUsize::new(0);
    let calls = || (BEFORE.load(Ordering::Relaxed), WITHIN.load(Ordering::Relaxed));
    let panic = || assert!(catch_unwind(|| panic!("harmless")).is_err());
    let panic_recorded = || {
        let outcome = record(|| {
            panic();
            Ok::<_, Failed>(())
        });
        outcome.unwrap();
    };
    std::panic::set_hook(Box::new(|_| {
        BEFORE.fetch_add(1, Ordering::Relaxed);
    }));
    for _ in 0..3 {
        panic_recorded();
        panic();
    }
    assert_eq!(calls(), (6, 0));
    record(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            WITHIN.fetch_add(1, Ordering::Relaxed);
            previous(info);
        }));
        panic();
        Ok::<_, Failed>(())
    })
    .unwrap();
    panic();
    assert_eq!(calls(), (8, 2));
    panic_recorded();
    assert_eq!(calls(), (9, 3));
    drop(std::panic::take_hook());
}

fn run(scenario: &str, error_file: Option<&Path>, child_file: Option<&Path>) -> Output {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "worker", "--ignored", "--nocapture"]).env(SCENARIO, scenario);
    command.env_remove("TORCHELASTIC_ERROR_FILE");
    if let Some(path) = error_file {
        command.env("TORCHELASTIC_ERROR_FILE", path);
    }
    if let Some(path) = child_file {
        command.env(CHILD_FILE, path);
    }
    command.output().unwrap()
}

/// Runs a worker that must fail, and gives its output and its error file.
fn run_failing(scenario: &str, child_file: Option<&str>) -> (String, ErrorFileData) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("error.json");
    let child_path = dir.path().join("child.json");
    if let Some(text) = child_file {
        std::fs::write(&child_path, text).unwrap();
    }
    let output = run(scenario, Some(&path), child_file.is_some().then_some(&child_path));
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{text}");
    match read_error_file(&path) {
        ErrorFileReading::Record(data) => (text, *data),
        other => panic!("{other:?}\n{text}"),
    }
}

#[test]
fn an_error_is_written_with_its_sources_and_passed_on() {
    let (output, data) = run_failing("error", None);
    assert!(output.contains("passed on: cannot load the data"), "{output}");
    assert_eq!((data.dialect, data.message.as_str()), (Dialect::Torch, "cannot load the data"));
    assert_eq!(data.traceback.as_deref(), Some("cannot load the data\ncaused by: no such file: data.bin\n"));
    assert_eq!(data.time.unwrap().resolution, TimeResolution::Finer);
    assert!(data.pid.is_some());
    // As torch reads it: int(data["message"]["extraInfo"]["timestamp"]).
    let json: serde_json::Value = serde_json::from_str(&data.raw).unwrap();
    let timestamp = json["message"]["extraInfo"]["timestamp"].as_str().unwrap();
    assert_eq!(timestamp.parse::<i64>().unwrap(), data.time.unwrap().unix_ns / 1_000_000_000);
}

#[test]
fn a_panic_is_written_with_thread_place_and_backtrace_and_goes_on() {
    let (output, data) = run_failing("panic", None);
    // The hook that was there before was called, and the panic reached the caller of record.
    assert!(output.contains("loss is NaN") && output.contains("worker ... FAILED"), "{output}");
    assert!(data.message.starts_with("thread 'worker' panicked at "), "{}", data.message);
    assert!(data.message.contains("tests/record.rs:") && data.message.ends_with(": loss is NaN"), "{}", data.message);
    let traceback = data.traceback.unwrap();
    assert!(traceback.contains("record::worker"), "{traceback}");
}

#[test]
fn a_panic_that_is_caught_inside_leaves_no_error_file() {
    for scenario in ["ok", "caught", "hooks", "main-ok"] {
        let dir = tempfile::tempdir().unwrap();
        let output = run(scenario, Some(&dir.path().join("error.json")), None);
        assert!(output.status.success(), "{scenario}: {output:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{scenario}");
    }
}

#[test]
fn a_panic_of_another_thread_is_told_beside_the_error_that_it_led_to() {
    let (_, data) = run_failing("thread", None);
    assert_eq!(data.message, "the loader died");
    let traceback = data.traceback.unwrap();
    assert!(traceback.contains("\nbefore that, thread 'loader' panicked at "), "{traceback}");
    assert!(traceback.contains(": bad shard\n"), "{traceback}");
}

#[test]
fn a_panic_that_is_resumed_from_another_thread_keeps_its_place() {
    let (_, data) = run_failing("resumed", None);
    assert!(data.message.starts_with("thread '<unnamed>' panicked at "), "{}", data.message);
    assert!(data.message.contains("tests/record.rs:") && data.message.ends_with(": bad shard"), "{}", data.message);
    assert!(!data.traceback.unwrap().contains("before that"));
}

#[test]
fn the_root_cause_of_failed_children_goes_up_with_its_exit_code() {
    let child = include_str!("error_files/torch_exception.json");
    let (_, data) = run_failing("child", Some(child));
    assert_eq!(data.message, "ValueError: loss is NaN at step 17 \u{2014} lr=0.1");
    assert_eq!((data.error_code, data.time.unwrap().unix_ns), (Some(-11), 1_796_076_744_000_000_000));
}

#[test]
fn a_child_without_a_usable_error_file_goes_up_as_what_is_known_of_it() {
    for child in [None, Some("{")] {
        let (_, data) = run_failing("child", child);
        assert_eq!(data.message, "Signal 11 (SIGSEGV) received by PID 77");
        assert_eq!((data.error_code, data.pid), (Some(-11), Some(77)));
    }
}

#[test]
fn record_main_prints_the_error_and_fails() {
    let (output, data) = run_failing("main", None);
    assert!(output.contains("Error: a text is an error too\n"), "{output}");
    assert_eq!(data.message, "a text is an error too");
}

#[test]
fn record_main_prints_something_for_an_error_without_a_message() {
    let (output, data) = run_failing("silent", None);
    assert!(output.contains("Error: an error without a message: \"\"\n"), "{output}");
    assert_eq!(data.message, "");
}

#[test]
fn an_error_that_panics_when_it_is_shown_leaves_the_record_of_that_panic() {
    let (_, data) = run_failing("display", None);
    assert!(data.message.contains("no words for it") && data.provisional, "{data:?}");
}

#[test]
fn without_an_error_file_in_the_environment_the_error_is_only_passed_on() {
    let output = run("error", None, None);
    assert!(String::from_utf8_lossy(&output.stdout).contains("passed on: cannot load the data"), "{output:?}");
    let output = run("error", Some(Path::new("")), None);
    assert!(String::from_utf8_lossy(&output.stdout).contains("passed on: cannot load the data"), "{output:?}");
}

#[test]
fn an_error_file_that_cannot_be_written_changes_nothing_else() {
    let output = run("error", Some(Path::new("/nonexistent/error.json")), None);
    assert!(String::from_utf8_lossy(&output.stdout).contains("passed on: cannot load the data"), "{output:?}");
}

/// Counts what it is asked to do.
#[derive(Default)]
struct Counting {
    initialized: AtomicUsize,
    recorded: AtomicUsize,
}

impl ErrorHandler for Counting {
    fn error_file(&self) -> Option<std::path::PathBuf> {
        None
    }

    fn initialize(&self) {
        self.initialized.fetch_add(1, Ordering::Relaxed);
    }

    fn write_record(&self, _: &ErrorRecord) -> Result<Option<std::path::PathBuf>, rankrun_errors::WriteErrorFileError> {
        self.recorded.fetch_add(1, Ordering::Relaxed);
        Ok(None)
    }
}

#[test]
fn the_handler_of_the_process_can_be_replaced() {
    let counting = Arc::new(Counting::default());
    let before = get_error_handler();
    set_error_handler(counting.clone());
    let _ = record(|| Ok::<_, Failed>(()));
    let _ = record(|| Err::<(), _>(failed()));
    set_error_handler(before);
    let _ = record(|| Ok::<_, Failed>(()));
    assert_eq!((counting.initialized.load(Ordering::Relaxed), counting.recorded.load(Ordering::Relaxed)), (2, 1));
}

#[test]
fn records_of_several_threads_at_once_each_have_their_own_panic() {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for rank in 0..8 {
            let path = dir.path().join(rank.to_string());
            scope.spawn(move || {
                let handler = Arc::new(DefaultErrorHandler::with_path(&path));
                let payload = catch_unwind(|| record_with(handler, || -> Result<(), Failed> { panic!("rank {rank}") }));
                assert_eq!(*payload.unwrap_err().downcast::<String>().unwrap(), format!("rank {rank}"));
                let ErrorFileReading::Record(data) = read_error_file(&path) else { panic!("no record") };
                assert!(data.message.ends_with(&format!(": rank {rank}")), "{}", data.message);
            });
        }
    });
}
