//! What fatal signals leave, and that they end a process as if nobody had looked: the processes are this test program, run
//! again.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use rankrun_process::{FATAL_SIGNALS, FatalPart, FatalSignals, FatalSignalsError};
use rankrun_types::Signal;

const SCENARIO: &str = "RANKRUN_PROCESS_TEST_SCENARIO";
const FILE: &str = "RANKRUN_PROCESS_TEST_FILE";

fn record(path: &Path) -> FatalSignals {
    let parts = |signal: Signal| {
        vec![
            FatalPart::Text(format!("{signal} ")),
            FatalPart::Seconds,
            FatalPart::Text(" ".to_owned()),
            FatalPart::Nanoseconds,
            FatalPart::Text(" ".to_owned()),
            FatalPart::Thread,
            FatalPart::Text(" end".to_owned()),
        ]
    };
    FatalSignals::record(path, parts).unwrap()
}

/// Reads memory that is not there.
fn fault() {
    // SAFETY: it is not sound, which is its purpose: the process ends here.
    unsafe { std::ptr::without_provenance::<u8>(8).read_volatile() };
}

/// Uses up the stack.
#[expect(unconditional_recursion, reason = "that is how a stack overflows")]
fn overflow(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 512]);
    overflow(depth + 1) + frame[(depth % 512) as usize]
}

fn raise(signal: Signal) {
    // SAFETY: takes a number.
    unsafe { libc::raise(signal.as_raw()) };
}

/// What a process does in each scenario.
#[test]
#[ignore = "the body of the processes that the other tests start"]
fn process() {
    let path = std::env::var_os(FILE).unwrap();
    // No core dumps of a test.
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads live memory.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    let guard = record(path.as_ref());
    match std::env::var(SCENARIO).unwrap().as_str() {
        "fault" => fault(),
        "fault-in-thread" => std::thread::spawn(fault).join().unwrap(),
        "overflow-in-thread" => drop(std::thread::spawn(|| overflow(0)).join()),
        "overflow" => drop(overflow(0)),
        "abort" => std::process::abort(),
        "two" => {
            let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(fault)).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
        "dropped" => {
            drop(guard);
            fault();
        }
        "again" => {
            drop(guard);
            let _second = record(path.as_ref());
            fault();
        }
        "forked" => {
            // SAFETY: the child only raises a signal.
            let child = unsafe { libc::fork() };
            if child == 0 {
                raise(Signal::SEGV);
            }
            let mut status = 0;
            // SAFETY: our own child, and live memory for its status.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
        }
        // The standard library's handler lets a SIGSEGV or SIGBUS that was sent pass once, here as without a guard.
        signal => (0..2).for_each(|_| raise(signal.parse().unwrap())),
    }
}

fn run(scenario: &str, path: &Path) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "process", "--ignored", "--nocapture"]).env(SCENARIO, scenario).env(FILE, path);
    command.output().unwrap()
}

/// Runs a scenario that ends by a signal, and gives that, the file and what was said on stderr.
fn crash(scenario: &str) -> (Option<i32>, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fatal");
    let output = run(scenario, &path);
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| name == "fatal"), "{scenario}: nothing else is left: {names:?}");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    (output.status.signal(), text, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn each_fatal_signal_leaves_its_file_and_ends_the_process_as_ever() {
    for signal in FATAL_SIGNALS {
        let (ended, text, _) = crash(&signal.name());
        assert_eq!(ended, Some(signal.as_raw()), "{signal}");
        let words: Vec<_> = text.split(' ').collect();
        assert_eq!((words[0], words[4], words.len()), (signal.name().as_str(), "end", 5), "{text}");
        let (seconds, ns): (u64, u64) = (words[1].parse().unwrap(), words[2].parse().unwrap());
        assert!(seconds > 1_700_000_000 && ns / 1_000_000_000 - seconds <= 1, "{text}");
        assert!(words[3].parse::<u32>().unwrap() > 0, "{text}");
    }
}

#[test]
fn faults_and_aborts_of_any_thread_are_recorded_once() {
    for (scenario, signal) in [
        ("fault", Signal::SEGV),
        ("fault-in-thread", Signal::SEGV),
        ("two", Signal::SEGV),
        ("again", Signal::SEGV),
        ("abort", Signal::ABRT),
    ] {
        let (ended, text, _) = crash(scenario);
        assert_eq!(ended, Some(signal.as_raw()), "{scenario}");
        assert!(text.starts_with(&format!("{signal} ")) && text.ends_with(" end"), "{scenario}: {text}");
    }
}

#[test]
fn a_stack_overflow_is_recorded_and_told_by_the_standard_library_as_ever() {
    for scenario in ["overflow", "overflow-in-thread"] {
        let (ended, text, stderr) = crash(scenario);
        assert_eq!(ended, Some(libc::SIGABRT), "{scenario}: {stderr}");
        assert!(text.starts_with("SIGSEGV "), "{scenario}: {text}");
        assert!(stderr.contains("has overflowed its stack"), "{scenario}: {stderr}");
    }
}

#[test]
fn a_child_of_fork_and_a_guard_that_is_gone_leave_nothing() {
    let (ended, text, stderr) = crash("forked");
    assert_eq!((ended, text.as_str()), (None, ""), "{stderr}");
    let (ended, text, _) = crash("dropped");
    assert_eq!((ended, text.as_str()), (Some(libc::SIGSEGV), ""));
}

#[test]
fn a_file_that_is_there_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fatal");
    std::fs::write(&path, "first").unwrap();
    assert_eq!(run("fault", &path).status.signal(), Some(libc::SIGSEGV));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "first");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn only_one_part_of_a_program_records_at_a_time() {
    let path = Path::new("/nonexistent/fatal");
    let guard = record(path);
    assert_eq!(FatalSignals::record(path, |_| Vec::new()).unwrap_err(), FatalSignalsError::InUse);
    drop(guard);
    assert_eq!(FatalSignals::record(Path::new("a\0b"), |_| Vec::new()).unwrap_err(), FatalSignalsError::Nul);
}
