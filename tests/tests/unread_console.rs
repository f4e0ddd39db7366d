//! A console that nobody reads does not keep rankrun from ending, nor from saying by its code how.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal as NixSignal;
use rankrun::Signal;
use rankrun_testkit::{Launcher, eventually, try_eventually};
use rankrun_tests::{Group, LIMIT, Script, signal_to};

/// A pipe without room, and the end that keeps it open.
fn full_pipe() -> (std::io::PipeReader, OwnedFd) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let writer = OwnedFd::from(writer);
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("a pipe can be told not to wait");
    let mut file = File::from(writer);
    while std::io::Write::write(&mut file, &[b'x'; 4096]).is_ok() {}
    fcntl(&file, FcntlArg::F_SETFL(OFlag::empty())).expect("a pipe can be told to wait");
    (reader, file.into())
}

fn start(args: &[&str], script: &str) -> (Group, std::io::PipeReader) {
    let (reader, writer) = full_pipe();
    let launcher = Launcher::rankrun().stderr(writer.try_clone().expect("a descriptor")).stdout(writer);
    (Group::start_as(launcher, 2, args, Script::Shell(script)), reader)
}

#[test]
fn all_messages_together_wait_a_second_for_room() {
    // A report, and where the run directory is.
    let (mut group, _reader) = start(&[], "exit 3");
    let output = group.end();
    assert_eq!(output.code, Some(3));
    // A second for each, or more, would be beyond that also on a slow machine.
    assert!(output.elapsed < Duration::from_millis(1900), "{:?}", output.elapsed);
}

#[test]
fn a_stop_signal_during_the_report_ends_it_by_code() {
    let (mut group, _reader) = start(&[], "touch {ready}; exit 3");
    group.wait_for_files(&["ready"]);
    let pid = group.pid();
    eventually("the workers are gone", LIMIT, || rankrun_testkit::children_of(pid).is_empty());
    signal_to(pid, NixSignal::SIGTERM);
    assert_eq!(group.end().code, Some(143));
}

#[test]
fn a_second_stop_signal_cuts_the_last_look_at_the_logs_short() {
    let (mut group, _reader) = start(&["-t", "3"], "echo line; touch {ready}; exec sleep 600");
    group.wait_for_files(&["ready"]);
    group.signal(Signal::TERM);
    eventually("the workers are gone", LIMIT, || group.workers().is_empty());
    // One that comes before the look at the logs has begun kills what is left, which is nothing.
    while try_eventually(Duration::from_millis(300), || group.running().has_ended()).is_none() {
        group.signal(Signal::TERM);
    }
    let output = group.end();
    assert_eq!(output.code, Some(143));
    // The console has five seconds unless told otherwise.
    assert!(output.elapsed < Duration::from_secs(4), "{:?}", output.elapsed);
}
