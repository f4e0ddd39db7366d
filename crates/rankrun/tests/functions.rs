//! Functions as workers, in a group started by a test: what they get, what they return, and each way to die.

#![expect(clippy::unwrap_used, reason = "clippy knows test functions, not their helpers")]
#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rankrun::{
    Cause, ChildFailedError, Entrypoint, ExitKind, FunctionCall, PContext, ProcessFailure, RunProcsResult, RunState,
    Signal, StartError, StartProcessesError, Std, WorkerGroup, entrypoint, start_processes,
};
use rankrun_testkit::assert_no_process_with_cookie;
use serde::{Deserialize, Serialize};

const SOON: Duration = Duration::from_secs(30);

fn run(call: FunctionCall, n: usize) -> Arc<RunProcsResult> {
    end(&start_processes(WorkerGroup::new("test", call, n)).unwrap())
}

fn end(context: &PContext) -> Arc<RunProcsResult> {
    let result = context.wait(Some(SOON)).unwrap().expect("a result in time");
    assert_no_process_with_cookie(context.cookie());
    result
}

/// The failure of the only rank that failed.
fn failure(result: &RunProcsResult, local_rank: usize) -> &ProcessFailure {
    assert_eq!(result.state, RunState::Failed);
    assert_eq!(result.failures.keys().collect::<Vec<_>>(), [&local_rank], "{result:#?}");
    assert_eq!(result.return_values[local_rank], None);
    &result.failures[&local_rank]
}

/// The failure of rank 1 of two. Rank 0 would go on for ever, so the group has ended at once.
fn alone(call: FunctionCall) -> ProcessFailure {
    let start = Instant::now();
    let result = run(call, 2);
    assert!(start.elapsed() < SOON / 2, "at once, not when rank 0 has slept");
    assert_eq!(result.workers[0].cause, Cause::Collateral);
    failure(&result, 1).clone()
}

fn number(n: u64) -> u64 {
    n * n
}
entrypoint!(number);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Report {
    name: String,
    losses: Vec<f32>,
    rank: String,
}

fn train(report: Report) -> Result<Report, std::env::VarError> {
    println!("rank {} trains", std::env::var("LOCAL_RANK")?);
    Ok(Report { rank: std::env::var("RANK_NAME")?, ..report })
}
entrypoint!(train);

#[test]
fn values_come_back_by_local_rank_and_can_be_had_again() {
    let result = run(Entrypoint::function(number).by_rank(|local_rank| local_rank as u64), 4);
    assert_eq!(result.state, RunState::Succeeded);
    for _ in 0..2 {
        let values = result.return_values_of(number).unwrap();
        assert_eq!(values.into_values(), [Some(0), Some(1), Some(4), Some(9)]);
    }
    assert_eq!(result.take_return_values_of(number).unwrap()[3], Some(9));
    assert_eq!(
        result.return_values_of(number).unwrap_err().to_string(),
        "local rank 0: the return value of `functions::number` has been taken already"
    );
    assert_eq!(
        result.return_values_of(train).unwrap_err().to_string(),
        "local rank 0: the workers ran `functions::number`, not `functions::train`"
    );
}

#[test]
fn a_function_gets_all_that_a_binary_gets() {
    let dir = tempfile::tempdir().unwrap();
    let report = Report { name: "n".to_owned(), losses: vec![0.5, f32::MIN], rank: String::new() };
    let group = WorkerGroup::new("test", Entrypoint::function(train).with(report.clone()), 2)
        .envs_by_rank(|local_rank| [("RANK_NAME", format!("r{local_rank}"))])
        .redirects(Std::OUT)
        .log_dir(dir.path());
    let result = end(&start_processes(group).unwrap());
    let values = result.return_values_of(train).unwrap();
    for local_rank in 0..2 {
        let rank = format!("r{local_rank}");
        assert_eq!(values[local_rank], Some(Report { rank, ..report.clone() }));
        let stdout = std::fs::read_to_string(result.stdouts[local_rank].as_ref().unwrap()).unwrap();
        assert_eq!(stdout, format!("rank {local_rank} trains\n"));
    }
}

#[test]
fn a_binary_returns_nothing() {
    let group = WorkerGroup::new("test", Entrypoint::binary("true"), 2);
    let result = end(&start_processes(group).unwrap());
    assert_eq!(result.return_values.values(), [None, None]);
    assert_eq!(result.return_values_of(number).unwrap().into_values(), [None, None]);
}

#[derive(Debug)]
struct TrainError(std::num::ParseIntError);

impl fmt::Display for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no number of epochs")
    }
}

impl Error for TrainError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// Rank 0 sleeps until it is stopped; rank 1 does what the test is about.
fn as_rank_1<T>(local_rank: usize, act: impl FnOnce() -> T) -> T {
    if local_rank == 0 {
        // sleep: a worker that would never end of itself.
        std::thread::sleep(Duration::from_secs(600));
    }
    act()
}

macro_rules! failure_of {
    ($function:expr) => {{
        entrypoint!($function);
        alone(Entrypoint::function($function).by_rank(|rank| rank))
    }};
}

#[test]
fn an_error_is_recorded_with_its_sources() {
    fn fails(rank: usize) -> Result<(), TrainError> {
        as_rank_1(rank, || "x".parse::<u8>().map(drop).map_err(TrainError))
    }
    let failure = failure_of!(fails);
    assert_eq!((failure.exitcode, failure.message.as_str()), (1, "no number of epochs"));
    assert!(failure.traceback().unwrap().contains("caused by: invalid digit found in string"), "{failure:?}");
}

#[test]
fn a_boxed_error_and_a_text_are_errors_too() {
    fn boxed(rank: usize) -> Result<u8, Box<dyn Error>> {
        as_rank_1(rank, || Ok("x".parse::<u8>()?))
    }
    fn text(rank: usize) -> Result<u8, String> {
        as_rank_1(rank, || Err("as it stands".to_owned()))
    }
    assert_eq!(failure_of!(boxed).message, "invalid digit found in string");
    assert_eq!(failure_of!(rankrun::returns_result(text)).message, "as it stands");
}

#[test]
fn a_panic_is_recorded_with_its_place_and_backtrace() {
    fn panics(rank: usize) -> u8 {
        as_rank_1(rank, || panic!("loss is NaN at step {}", 17))
    }
    let failure = failure_of!(panics);
    assert_eq!(failure.exitcode, 101);
    assert!(failure.message.contains("functions.rs") && failure.message.ends_with("loss is NaN at step 17"));
    assert!(failure.traceback().unwrap().contains("panics"), "the backtrace names the function: {failure:?}");
}

#[test]
fn a_panic_in_another_thread_that_ends_the_worker_is_recorded() {
    fn joins(rank: usize) -> u8 {
        as_rank_1(rank, || std::thread::spawn(|| -> u8 { panic!("in the thread") }).join().unwrap())
    }
    fn gives_up(rank: usize) -> Result<u8, Box<dyn Error>> {
        let thread = || std::thread::spawn(|| -> u8 { panic!("in the thread") }).join();
        as_rank_1(rank, || thread().map_err(|_| "the thread is gone".into()))
    }
    let (joins, gives_up) = (failure_of!(joins), failure_of!(gives_up));
    assert!(joins.traceback().unwrap().contains("in the thread"), "{joins:?}");
    assert_eq!(gives_up.message, "the thread is gone");
    assert!(gives_up.traceback().unwrap().contains("in the thread"), "{gives_up:?}");
}

#[test]
fn an_exit_with_0_is_no_return() {
    fn exits(rank: usize) -> u8 {
        as_rank_1(rank, || std::process::exit(0))
    }
    fn exits_at_once(rank: usize) -> u8 {
        as_rank_1(rank, || end_without_a_word())
    }
    fn exits_elsewhere(rank: usize) -> u8 {
        as_rank_1(rank, || std::thread::spawn(|| std::process::exit(0)).join().unwrap())
    }
    for (failure, name) in [
        (failure_of!(exits), "exits"),
        (failure_of!(exits_at_once), "exits_at_once"),
        (failure_of!(exits_elsewhere), "exits_elsewhere"),
    ] {
        let text = &failure.message;
        assert_eq!(failure.exit, ExitKind::Code(0));
        assert!(text.starts_with("exited 0 without returning a value from `functions::"), "{text}");
        assert!(text.ends_with(&format!("::{name}`")), "{text}");
        let report = ChildFailedError::new("test", [(1, failure)].into()).unwrap().to_string();
        assert!(report.contains("exited 0 without returning a value"), "{report}");
    }
}

/// Ends as with _exit(2), for which there is no safe function: another program takes over, and nothing of ours runs.
fn end_without_a_word() -> ! {
    use std::os::unix::process::CommandExt;
    let error = std::process::Command::new("true").exec();
    panic!("there is no `true`: {error}")
}

#[test]
fn an_exit_code_is_the_exit_code() {
    fn exits(rank: usize) -> u8 {
        as_rank_1(rank, || std::process::exit(7))
    }
    let failure = failure_of!(exits);
    assert_eq!((failure.exitcode, failure.message.as_str()), (7, "exited with code 7"));
}

#[test]
fn the_report_of_a_function_says_nothing_of_programs() {
    fn exits(rank: usize) -> u8 {
        as_rank_1(rank, || std::process::exit(7))
    }
    fn says_nothing(rank: usize) -> Result<(), String> {
        as_rank_1(rank, || Err(String::new()))
    }
    let report = |failure| ChildFailedError::new("test", [(1, failure)].into()).unwrap().to_string();
    let text = report(failure_of!(exits));
    assert!(text.contains("\n    An error that `functions::") && !text.contains("--tee"), "{text}");
    let text = report(failure_of!(rankrun::returns_result(says_nothing)));
    assert!(text.contains("the error that it recorded has an empty message"), "{text}");
    assert!(!text.contains("no error file"), "{text}");
}

#[test]
fn a_file_that_has_the_number_of_a_workers_own_is_left_alone() {
    fn closes((rank, path): (usize, PathBuf)) -> Result<u64, std::io::Error> {
        as_rank_1(rank, || {
            // Whatever a launcher may have left open, as daemons do it.
            (3..16).for_each(|fd| {
                let _ = nix::unistd::close(fd);
            });
            let files: Vec<_> = (3..16).map(|_| std::fs::File::create(&path)).collect::<Result<_, _>>()?;
            std::fs::write(&path, "mine")?;
            files.into_iter().for_each(std::mem::forget);
            Ok(7)
        })
    }
    fn only_closes(rank: usize) -> u64 {
        as_rank_1(rank, || {
            (3..16).for_each(|fd| {
                let _ = nix::unistd::close(fd);
            })
        });
        7
    }
    entrypoint!(closes);
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_owned();
    let failure = alone(Entrypoint::function(closes).by_rank(move |rank| (rank, path.clone())));
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "mine");
    for failure in [failure, failure_of!(only_closes)] {
        assert_eq!(failure.exit, ExitKind::Code(1));
        assert!(failure.message.contains("is not returned: descriptor 4, which"), "{}", failure.message);
    }
}

#[test]
fn an_abort_is_a_signal() {
    fn aborts(rank: usize) -> u8 {
        as_rank_1(rank, || std::process::abort())
    }
    let failure = failure_of!(aborts);
    assert_eq!(failure.exit.signal(), Some(Signal::ABRT));
    assert!(!failure.message.contains("return value"), "{}", failure.message);
}

/// A value that does something while it is written or read.
#[derive(Debug, Default)]
struct Odd {
    write: Option<String>,
    read: Option<String>,
}

impl Serialize for Odd {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let pid = nix::unistd::Pid::this();
        match self.write.as_deref() {
            Some("kill") => nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap(),
            Some("exit") => std::process::exit(0),
            Some(why) => return Err(serde::ser::Error::custom(why)),
            None => {}
        }
        self.read.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Odd {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Option::<String>::deserialize(deserializer)? {
            Some(why) => Err(serde::de::Error::custom(why)),
            None => Ok(Self::default()),
        }
    }
}

fn odd(write: &str, read: &str) -> Odd {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Odd { write: text(write), read: text(read) }
}

#[test]
fn a_worker_that_is_killed_while_it_writes_its_value_is_told_from_one_that_has_none() {
    fn killed(rank: usize) -> Odd {
        as_rank_1(rank, || odd("kill", ""))
    }
    fn exits(rank: usize) -> Odd {
        as_rank_1(rank, || odd("exit", ""))
    }
    let failure = failure_of!(killed);
    assert_eq!(failure.exit.signal(), Some(Signal::KILL));
    assert!(failure.message.contains("SIGKILL"), "{}", failure.message);
    assert!(failure.message.contains(" while it wrote the return value of `functions::"), "{}", failure.message);
    let failure = failure_of!(exits);
    assert!(failure.message.starts_with("exited 0 while it wrote the return value of `"), "{}", failure.message);
}

#[test]
fn a_value_that_cannot_be_encoded_or_decoded_says_so() {
    fn encodes(rank: usize) -> Odd {
        as_rank_1(rank, || odd("a lock is held", ""))
    }
    fn decodes(rank: usize) -> Odd {
        as_rank_1(rank, || odd("", "it is of next year"))
    }
    let (encodes, decodes) = (failure_of!(encodes), failure_of!(decodes));
    assert!(encodes.message.starts_with("the return value of `functions::"), "{}", encodes.message);
    assert!(encodes.message.ends_with("cannot be encoded: a lock is held"), "{}", encodes.message);
    assert!(decodes.message.contains("cannot be decoded as `functions::Odd`"), "{}", decodes.message);
    assert!(decodes.message.ends_with("it is of next year"), "{}", decodes.message);
}

#[test]
fn arguments_that_cannot_be_decoded_are_the_workers_failure_and_say_so() {
    fn takes((_, rank): (Odd, usize)) {
        as_rank_1(rank, || ());
    }
    entrypoint!(takes);
    let read = |rank| if rank == 1 { "it is of next year" } else { "" };
    let result = run(Entrypoint::function(takes).by_rank(move |rank| (odd("", read(rank)), rank)), 2);
    let text = &failure(&result, 1).message;
    assert!(text.starts_with("the arguments of `functions::") && text.contains("cannot be decoded as `("), "{text}");
    assert!(text.ends_with("it is of next year"), "{text}");
}

#[test]
fn arguments_that_cannot_be_encoded_start_no_worker_and_name_the_rank() {
    fn takes(_: Odd) {}
    entrypoint!(takes);
    let write = |rank| if rank == 2 { "a lock is held" } else { "" };
    let call = Entrypoint::function(takes).by_rank(move |rank| odd(write(rank), ""));
    let error = start_processes(WorkerGroup::new("test", call, 4)).unwrap_err();
    assert!(matches!(&error, StartProcessesError::Start(StartError::Function { .. })), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with("group `test`: local rank 2: the arguments of `functions::"), "{text}");
    assert!(text.ends_with("cannot be encoded: a lock is held"), "{text}");
}

#[test]
fn a_function_that_is_not_registered_starts_no_worker() {
    fn forgotten(_: u8) {}
    let error = start_processes(WorkerGroup::new("test", Entrypoint::function(forgotten).with(1), 1)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("add `entrypoint!(forgotten);` beside it; registered: `functions::"), "{text}");
}

#[test]
fn a_worker_can_start_a_group_of_functions_itself() {
    fn outer(n: u64) -> Result<Vec<u64>, Box<dyn Error>> {
        let group = WorkerGroup::new("inner", Entrypoint::function(number).by_rank(move |rank| n + rank as u64), 2);
        let result = start_processes(group)?.wait(None)?.ok_or("no result")?;
        Ok(result.return_values_of(number)?.into_values().into_iter().flatten().collect())
    }
    entrypoint!(outer);
    let result = run(Entrypoint::function(outer).by_rank(|local_rank| 10 * local_rank as u64), 2);
    assert_eq!(result.return_values_of(outer).unwrap().into_values(), [Some(vec![0, 1]), Some(vec![100, 121])]);
}

#[test]
fn a_failure_in_an_inner_group_is_the_root_cause_of_the_outer_one() {
    fn inner(_: ()) -> Result<(), TrainError> {
        "x".parse::<u8>().map(drop).map_err(TrainError)
    }
    entrypoint!(inner);
    fn outer(_: ()) -> Result<(), Box<dyn Error>> {
        let group = WorkerGroup::new("inner", Entrypoint::function(inner).with(()), 1);
        let result = start_processes(group)?.wait(None)?.ok_or("no result")?;
        Err(ChildFailedError::new("inner", result.failures.clone())?.into())
    }
    entrypoint!(outer);
    let result = run(Entrypoint::function(outer).with(()), 1);
    assert_eq!(failure(&result, 0).message, "no number of epochs");
}

#[test]
fn a_stop_reaches_functions_as_it_reaches_programs() {
    fn sleeps(rank: usize) {
        as_rank_1(rank, || ());
    }
    entrypoint!(sleeps);
    let context = start_processes(WorkerGroup::new("test", Entrypoint::function(sleeps).with(0), 2)).unwrap();
    let result = context.close(None, SOON).unwrap();
    assert_eq!(result.state, RunState::Stopped);
    assert!(result.return_values.values().iter().all(Option::is_none) && result.failures.is_empty());
    assert_no_process_with_cookie(context.cookie());
}
