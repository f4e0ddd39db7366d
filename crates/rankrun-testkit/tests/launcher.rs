//! The launcher helper itself: what it captures, and that a hanging program or a process left behind fails the test.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rankrun_testkit::{Launcher, MARK, process_state, processes_with_env, scripted_worker};
use rankrun_types::Signal;

const LONG: Duration = Duration::from_secs(20);

fn worker(script: &str) -> Launcher {
    Launcher::new(scripted_worker()).args(script.split_whitespace())
}

/// The message of the panic that `f` must end with.
fn panic_of(f: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).expect_err("it must panic");
    panic.downcast_ref::<String>().expect("the message is formatted").clone()
}

#[test]
fn a_program_that_hangs_is_killed_and_its_output_shown() {
    let launcher = worker("out working err soon spawn [ hang ] hang");
    let mark = launcher.mark().to_owned();
    let message = panic_of(|| drop(launcher.run_with_timeout(Duration::from_millis(500))));
    assert!(message.starts_with("still runs after 500ms\n--- stdout\nworking\n--- stderr\nsoon\n"), "{message}");
    assert_eq!(processes_with_env(MARK, &mark), [], "what the program had started is gone as well");
}

#[test]
fn a_process_left_behind_fails_the_run_and_is_killed() {
    let launcher = worker("daemon [ hang ]");
    let mark = launcher.mark().to_owned();
    let message = panic_of(|| drop(launcher.run_with_timeout(LONG)));
    assert!(message.starts_with(&format!("1 left behind with {MARK}={mark}:\n")), "{message}");
    assert_eq!(processes_with_env(MARK, &mark), []);
}

#[test]
fn a_process_left_behind_fails_the_drop_and_is_killed() {
    let mut running = worker("spawn [ hang ] exit 0").spawn();
    let mark = running.mark().to_owned();
    assert_eq!(running.wait_timeout(LONG).code, Some(0));
    let message = panic_of(|| drop(running));
    assert!(message.contains("1 left behind"), "{message}");
    assert_eq!(processes_with_env(MARK, &mark), []);
}

#[test]
fn dropping_a_running_program_ends_it() {
    let running = worker("hang").spawn();
    let pid = running.pid();
    drop(running);
    assert_eq!(process_state(pid), None);
}

#[test]
fn the_end_is_the_same_however_often_it_is_asked_for() {
    let mut running = worker("out ready hang").spawn();
    running.wait_for_stdout("ready", LONG);
    assert!(!running.has_ended());
    assert_eq!(running.processes().len(), 1);
    running.signal(Signal::HUP);
    let first = running.wait_timeout(LONG);
    let second = running.wait_timeout(LONG);
    assert_eq!((first.signal, first.code), (Some(Signal::HUP), None), "{first}");
    assert_eq!((second.signal, second.elapsed), (first.signal, first.elapsed));
    running.signal(Signal::TERM);
}

#[test]
fn output_can_be_read_while_the_program_writes() {
    let mut running = worker("out one wait-for /dev/null out two exit 0").spawn();
    running.wait_for_stdout("one", LONG);
    let output = running.wait_timeout(LONG);
    assert_eq!(output.sorted_stdout_lines(), ["one", "two"]);
}

#[test]
fn output_sent_elsewhere_is_not_captured() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let output = worker("out there err here").stdout(writer).run_with_timeout(LONG);
    assert_eq!((output.stdout_text(), output.stderr_text()), (String::new(), "here\n".to_owned()));
    let mut piped = String::new();
    std::io::Read::read_to_string(&mut reader, &mut piped).unwrap();
    assert_eq!(piped, "there\n");
}
