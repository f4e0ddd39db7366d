//! The scripted worker does what its arguments say. Not here: how they are read (unit tests of `script`).

use std::time::Duration;

use rankrun_testkit::{
    EXIT_FAILED, EXIT_USAGE, Launcher, Output, children_of, eventually, numbered_line, process_state, scripted_worker,
};
use rankrun_types::{Signal, env};

const LONG: Duration = Duration::from_secs(20);

fn worker(script: &str) -> Launcher {
    Launcher::new(scripted_worker()).args(script.split_whitespace())
}

fn run(script: &str) -> Output {
    worker(script).run_with_timeout(LONG)
}

#[test]
fn output_and_exit_code_are_as_scripted() {
    let output = run(r"out one err two out-raw a\rb\x00c\n err-raw end exit 7");
    assert_eq!(output.code, Some(7), "{output}");
    assert_eq!(output.stdout, b"one\na\rb\0c\n");
    assert_eq!(output.stderr, b"two\nend");
    assert_eq!(run("").code, Some(0));
}

#[test]
fn lines_are_numbered_and_of_the_length_asked_for() {
    let output = run("lines 1200 40");
    let expected: Vec<String> = (0..1200).map(|number| numbered_line(number, 40)).collect();
    assert!(expected.iter().all(|line| line.len() == 40));
    assert_eq!(output.stdout_text().lines().collect::<Vec<_>>(), expected);
}

#[test]
fn an_unknown_word_is_refused_before_anything_is_done() {
    let output = run("out early frobnicate");
    assert_eq!(output.code, Some(EXIT_USAGE), "{output}");
    assert!(output.stdout.is_empty(), "{output}");
    assert_eq!(output.stderr_text(), "scripted-worker: unknown instruction `frobnicate`\n");
}

#[test]
fn each_raised_signal_ends_the_worker_with_its_default_action() {
    for name in ["ABRT", "SEGV", "TERM", "KILL", "PIPE", "BUS", "USR1", "RTMIN+3", "RTMAX"] {
        let output = run(&format!("raise {name} exit 9"));
        assert_eq!(output.signal, Some(name.parse().unwrap()), "{name}: {output}");
    }
    assert_eq!(run("abort").signal, Some(Signal::ABRT));
    assert_eq!(run("segv").signal, Some(Signal::SEGV));
    assert_eq!(run("ignore TERM raise USR2").signal, Some(Signal::USR2));
}

#[test]
fn an_ignored_signal_does_not_end_the_worker() {
    let mut running = worker("ignore TERM out ready hang").spawn();
    running.wait_for_stdout("ready", LONG);
    running.signal(Signal::TERM);
    running.signal(Signal::INT);
    assert_eq!(running.wait_timeout(LONG).signal, Some(Signal::INT));
}

#[test]
fn a_handler_does_its_script_at_the_signal() {
    let mut running = worker("on TERM [ out stopping exit 3 ] on USR1 out again out ready hang").spawn();
    running.wait_for_stdout("ready", LONG);
    running.signal(Signal::USR1);
    running.wait_for_stdout("again", LONG);
    running.signal(Signal::TERM);
    let output = running.wait_timeout(LONG);
    assert_eq!(output.code, Some(3), "{output}");
    assert_eq!(output.stdout_text(), "ready\nagain\nstopping\n");
}

#[test]
fn a_stopped_worker_goes_on_at_sigcont() {
    let mut running = worker("stop exit 4").spawn();
    let pid = running.pid();
    eventually("it is stopped", LONG, || process_state(pid) == Some('T'));
    running.signal(Signal::CONT);
    assert_eq!(running.wait_timeout(LONG).code, Some(4));
}

#[test]
fn a_spawned_child_shares_the_process_group_and_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go").display().to_string();
    let mut running = worker(&format!("spawn [ wait-for {go} out child exit 1 ] out ready wait out after")).spawn();
    running.wait_for_stdout("ready", LONG);
    let own = running.processes().into_iter().find(|process| process.pid == running.pid()).unwrap();
    let children = children_of(running.pid());
    assert_eq!(children.iter().map(|child| child.pgid).collect::<Vec<_>>(), [own.pgid]);
    std::fs::write(&go, "").unwrap();
    let output = running.wait_timeout(LONG);
    assert_eq!((output.code, output.stdout_text()), (Some(0), "ready\nchild\nafter\n".to_owned()));
}

#[test]
fn a_daemon_lives_in_a_session_of_its_own_and_outlives_the_worker() {
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go").display().to_string();
    let mut running = worker(&format!("daemon [ wait-for {go} ] exit 5")).spawn();
    assert_eq!(running.wait_timeout(LONG).code, Some(5));
    let left = running.processes();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_ne!(left[0].ppid, running.pid());
    assert_ne!(left[0].sid, nix::unistd::getsid(None).unwrap().as_raw());
    std::fs::write(&go, "").unwrap();
}

#[test]
fn surroundings_are_printed() {
    let directory = tempfile::tempdir().unwrap();
    let output = worker("env HERE env NOT_HERE cwd fds pids mask")
        .env("HERE", "value of it")
        .current_dir(directory.path())
        .run_with_timeout(LONG);
    let text = output.stdout_text();
    let lines: Vec<&str> = text.lines().collect();
    let cwd = directory.path().canonicalize().unwrap();
    assert_eq!(lines[..3], ["value of it", "<unset>", cwd.to_str().unwrap()], "{output}");
    // What starts the tests may have left more open.
    assert!(lines[3] == "0 1 2" || lines[3].starts_with("0 1 2 "), "{output}");
    let pids: Vec<i32> = lines[4].split(' ').map(|word| word.parse().unwrap()).collect();
    assert_eq!(
        pids[1..],
        [nix::unistd::getpid(), nix::unistd::getpgrp(), nix::unistd::getsid(None).unwrap()].map(|pid| pid.as_raw())
    );
    assert_eq!(lines[5], "SigBlk:\t0000000000000000", "{output}");
    assert_eq!(lines.len(), 8, "{output}");
}

#[test]
fn only_the_named_rank_does_its_script() {
    let output = worker("if-rank 1 exit 7 if-rank 10 [ out ten ]").env(env::LOCAL_RANK, "10").run_with_timeout(LONG);
    assert_eq!((output.code, output.stdout_text()), (Some(0), "ten\n".to_owned()));
}

#[test]
fn the_error_file_is_written_where_the_launcher_says() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("error.json");
    let output = worker("error-file {}").env(env::TORCHELASTIC_ERROR_FILE, &path).run_with_timeout(LONG);
    assert_eq!(output.code, Some(0), "{output}");
    assert_eq!(std::fs::read(&path).unwrap(), b"{}");
    let output = worker("error-file {}").env_remove(env::TORCHELASTIC_ERROR_FILE).run_with_timeout(LONG);
    assert_eq!(output.code, Some(EXIT_FAILED), "{output}");
}

#[test]
fn memory_is_held_and_time_is_spent() {
    let mut running = worker("memory 24 repeat 3 [ spin 20 ] out ready hang").spawn();
    running.wait_for_stdout("ready", LONG);
    assert!(rankrun_testkit::private_memory_kib(running.pid()).unwrap() >= 24 * 1024);
    running.signal(Signal::KILL);
    let output = running.wait_timeout(LONG);
    assert!(output.elapsed >= Duration::from_millis(60), "{output}");
}
