//! Panics of functions as workers: which are the reason of an end, which came before it, and which were survived.
//! Not here: the other ways to end (`functions`).

#![expect(clippy::unwrap_used, reason = "clippy knows test functions, not their helpers")]
#![forbid(unsafe_code)]

use std::panic::{catch_unwind, set_hook, take_hook};
use std::path::PathBuf;
use std::process::exit;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rankrun::{
    Cause, ChildFailedError, Entrypoint, ExitKind, FunctionCall, ProcessFailure, RunProcsResult, RunState, Signal,
};
use rankrun::{WorkerGroup, entrypoint, start_processes};
use rankrun_testkit::{assert_no_process_with_cookie, eventually};

const SOON: Duration = Duration::from_secs(30);

fn run(call: FunctionCall, n: usize) -> Arc<RunProcsResult> {
    let context = start_processes(WorkerGroup::new("test", call, n)).unwrap();
    let result = context.wait(Some(SOON)).unwrap().expect("a result in time");
    assert_no_process_with_cookie(context.cookie());
    result
}

/// The failure of a group of one.
macro_rules! failure_of {
    ($function:expr) => {{
        entrypoint!($function);
        let result = run(Entrypoint::function($function).with(()), 1);
        assert_eq!(result.state, RunState::Failed, "{result:?}");
        result.failures[&0].clone()
    }};
}

fn panics(what: &'static str) -> thread::JoinHandle<()> {
    thread::Builder::new().name("loader".to_owned()).spawn(move || panic!("{what}")).unwrap()
}

/// The message is this end, and then the panic of the thread; with a backtrace that names where it was.
fn assert_before_the_end(failure: &ProcessFailure, end: &str, what: &str) {
    let text = &failure.message;
    assert!(text.starts_with(&format!("{end}; before that, thread 'loader' panicked at ")), "{text}");
    assert!(text.contains("function_panics.rs:") && text.ends_with(what), "{text}");
    assert!(failure.traceback().unwrap().contains("function_panics::panics"), "{failure:?}");
}

#[test]
fn a_panic_of_a_thread_is_told_when_a_hook_ends_the_worker() {
    fn hooked(_: ()) {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            before(info);
            exit(3)
        }));
        panics("bad shard").join().unwrap();
    }
    let failure = failure_of!(hooked);
    assert_eq!(failure.exit, ExitKind::Code(3));
    assert_before_the_end(&failure, "exited with code 3", "bad shard");
}

#[test]
fn a_panic_of_a_thread_is_told_when_who_waits_for_it_exits() {
    fn joins(_: ()) {
        if panics("bad shard").join().is_err() {
            exit(3);
        }
    }
    fn joins_and_leaves(_: ()) {
        if panics("bad shard").join().is_err() {
            exit(0);
        }
    }
    let failure = failure_of!(joins);
    assert_before_the_end(&failure, "exited with code 3", "bad shard");
    let report = ChildFailedError::new("test", [(0, failure)].into()).unwrap().to_string();
    let first = report.lines().next().unwrap();
    assert!(first.contains(": exit code 3: before that, thread 'loader' panicked at "), "{report}");
    assert_eq!(report.matches("bad shard").count(), 2, "in the first line and with the backtrace: {report}");
    let failure = failure_of!(joins_and_leaves);
    let text = failure.message;
    assert!(text.starts_with("exited 0 without returning a value from `function_panics::"), "{text}");
    assert!(text.contains("joins_and_leaves`; before that, thread 'loader' panicked at "), "{text}");
}

#[test]
fn the_newest_panic_is_the_one_that_is_told() {
    fn two(_: ()) {
        let _ = panics("harmless").join();
        let _ = panics("bad shard").join();
        exit(5);
    }
    assert_before_the_end(&failure_of!(two), "exited with code 5", "bad shard");
}

#[test]
fn the_first_panic_is_told_when_a_second_one_aborts() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("while it unwinds");
        }
    }
    fn in_destructor(_: ()) {
        let _bad = Bad;
        panic!("the first");
    }
    fn in_hook(_: ()) {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            before(info);
            panic!("in the hook");
        }));
        panic!("the first");
    }
    extern "C" fn foreign() {
        panic!("the first");
    }
    fn beyond_a_border(_: ()) {
        foreign();
    }
    for failure in [failure_of!(in_destructor), failure_of!(in_hook), failure_of!(beyond_a_border)] {
        assert_eq!(failure.exit.signal(), Some(Signal::ABRT));
        let text = &failure.message;
        assert!(text.starts_with("Signal 6 (SIGABRT) received by PID ") && text.contains("; before that, "), "{text}");
        assert!(text.ends_with(": the first"), "{text}");
    }
}

#[test]
fn a_panic_that_is_survived_is_no_failure_and_leaves_no_file() {
    fn survives(_: ()) -> Result<PathBuf, Box<dyn std::error::Error>> {
        assert!(panics("harmless").join().is_err() && catch_unwind(|| panic!("harmless")).is_err());
        let path = PathBuf::from(std::env::var_os("TORCHELASTIC_ERROR_FILE").ok_or("no error file")?);
        assert!(path.exists(), "it is there as long as the worker may end of it");
        Ok(path)
    }
    entrypoint!(survives);
    let dir = tempfile::tempdir().unwrap();
    let group = WorkerGroup::new("test", Entrypoint::function(survives).with(()), 1).log_dir(dir.path());
    let context = start_processes(group).unwrap();
    let result = context.wait(Some(SOON)).unwrap().expect("a result in time");
    assert_no_process_with_cookie(context.cookie());
    assert_eq!(result.state, RunState::Succeeded, "{:?}", result.failures);
    let path = result.return_values_of(survives).unwrap()[0].clone().unwrap();
    assert!(!path.exists());
}

#[test]
fn an_error_is_the_record_and_has_the_panic_before_it_as_context() {
    fn fails(_: ()) -> Result<(), Box<dyn std::error::Error>> {
        panics("bad shard").join().map_err(|_| "the loader died".into())
    }
    let failure = failure_of!(fails);
    assert_eq!(failure.message, "the loader died");
    assert!(failure.traceback().unwrap().contains("\nbefore that, thread 'loader' panicked at "), "{failure:?}");
}

#[test]
fn a_worker_that_survived_a_panic_and_is_stopped_has_not_failed() {
    fn rank_1_fails((rank, survived): (usize, PathBuf)) {
        if rank == 0 {
            let _ = panics("harmless").join();
            std::fs::write(survived, "").unwrap();
            // sleep: a worker that would never end of itself.
            thread::sleep(Duration::from_secs(600));
        } else {
            eventually("the other worker survives its panic", SOON, || survived.exists());
            exit(7)
        }
    }
    entrypoint!(rank_1_fails);
    let dir = tempfile::tempdir().unwrap();
    let survived = dir.path().join("survived");
    let result = run(Entrypoint::function(rank_1_fails).by_rank(move |rank| (rank, survived.clone())), 2);
    assert_eq!(result.workers[0].cause, Cause::Collateral);
    assert_eq!(result.failures.keys().collect::<Vec<_>>(), [&1]);
}

#[test]
fn a_backtrace_goes_from_the_panic_to_the_function() {
    fn here(_: ()) {
        panic!("here");
    }
    let failure = failure_of!(here);
    let traceback = failure.traceback().unwrap();
    let first = traceback.lines().nth(1).unwrap();
    assert!(first.starts_with("   0: ") && first.contains("::here"), "{traceback}");
    assert!(!traceback.contains("take_over") && !traceback.contains("rust_begin"), "{traceback}");
}
