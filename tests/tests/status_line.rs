//! The status line on a terminal: below the lines, beside progress bars, gone at the end, and nowhere else.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rankrun_testkit::{Launcher, Running, eventually, wakeups};
use rankrun_tests::{LIMIT, Terminal};

/// What erases the rest of a row.
const ERASE: &str = "\x1b[K";

/// Waits until a file of this name is there.
const WAIT: &str = r#"wait_for() { until [ -e "$DIR/$1" ]; do sleep 0.05; done; }"#;

/// Starts rankrun with stdout and stderr on a terminal.
fn start(dir: &Path, args: &[&str], script: &str) -> (Running, Terminal) {
    let (terminal, slave) = Terminal::new();
    let launcher = Launcher::rankrun().env("TERM", "xterm").env("NO_COLOR", "1").env("DIR", dir);
    let launcher = launcher.stdout(slave.try_clone().expect("a descriptor")).stderr(slave);
    (launcher.args(args).args(["sh", "-c", &format!("{WAIT}; {script}")]).spawn(), terminal)
}

fn touch(dir: &Path, name: &str) {
    File::create(dir.join(name)).expect("a file");
}

#[test]
fn it_stands_below_the_lines_and_is_gone_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"wait_for a; [ $RANK = 0 ] || exit 0; echo a line; wait_for b; echo the end"#;
    let (mut running, terminal) = start(dir.path(), &["-n", "2", "-t", "3"], script);
    terminal.wait_for(&format!("{ERASE}rankrun: 2 of 2 workers running, 0 failed, 0:01\r"));
    touch(dir.path(), "a");
    // The line takes its place; it is drawn again below, later with the worker that has ended.
    terminal.wait_for(&format!("{ERASE}[default0]:a line\n{ERASE}rankrun: "));
    terminal.wait_for("rankrun: 1 of 2 workers running, 0 failed, 0:0");
    touch(dir.path(), "b");
    assert_eq!(running.wait_timeout(LIMIT).code, Some(0));
    let text = terminal.end();
    let end = text.rfind("the end\n").map(|at| &text[at + "the end\n".len()..]).unwrap();
    // Nothing of it is left but for rankrun's own message.
    assert!(!end.contains("workers running") || end.contains(&format!("\r{ERASE}")), "{text:?}");
    let row = end.rsplit('\n').next().unwrap();
    assert!(row.is_empty() || row.ends_with(ERASE), "{text:?}");
}

#[test]
fn it_shares_its_row_with_a_progress_bar() {
    let dir = tempfile::tempdir().unwrap();
    let (mut running, terminal) = start(dir.path(), &["-t", "3"], r"printf '\r 10%%'; wait_for a; printf '\r100%%\n'");
    terminal.wait_for(&format!("{ERASE}rankrun: 1 of 1 workers running, 0 failed, 0:01  [default0]: 10%\r"));
    touch(dir.path(), "a");
    assert_eq!(running.wait_timeout(LIMIT).code, Some(0));
    assert!(terminal.end().contains(&format!("{ERASE}[default0]:100%\n")));
}

#[test]
fn it_says_which_attempt_runs_and_messages_stand_clear_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"wait_for a$TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ]"#;
    let (mut running, terminal) = start(dir.path(), &["-r", "3", "--max-restarts", "1"], script);
    terminal.wait_for("0 failed, 0:01, attempt 1 of 2\r");
    touch(dir.path(), "a0");
    terminal.wait_for(&format!("{ERASE}rankrun: default FAILED"));
    terminal.wait_for("0 failed, 0:01, attempt 2 of 2\r");
    touch(dir.path(), "a1");
    assert_eq!(running.wait_timeout(LIMIT).code, Some(0));
    let _ = terminal.end();
}

#[test]
fn it_is_off_where_workers_write_to_the_terminal_themselves_or_it_was_not_wanted() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&["-t", "1"][..], &["-t", "3", "--status", "never"], &[]] {
        // sleep: what must not come has its time at one second.
        let (mut running, terminal) = start(dir.path(), args, "sleep 1.3; echo hi");
        assert_eq!(running.wait_timeout(LIMIT).code, Some(0));
        assert!(!terminal.end().contains("workers running"), "{args:?}");
    }
    let (mut running, terminal) = start(dir.path(), &["--status", "always"], "wait_for c");
    terminal.wait_for("1 of 1 workers running");
    touch(dir.path(), "c");
    assert_eq!(running.wait_timeout(LIMIT).code, Some(0));
    let _ = terminal.end();
}

#[test]
fn it_never_goes_into_a_pipe_and_wakes_nobody_there() {
    let mut running =
        Launcher::rankrun().env("TERM", "xterm").args(["-t", "3", "--status", "always", "sleep", "600"]).spawn();
    let pid = running.pid();
    eventually("nothing wakes it for longer than a status would need", LIMIT, || {
        let before = wakeups(pid);
        // sleep: nothing is to happen in this time.
        std::thread::sleep(Duration::from_millis(1300));
        (wakeups(pid) == before && running.processes().len() >= 2).then_some(())
    });
    running.signal(rankrun::Signal::TERM);
    let output = running.wait_timeout(LIMIT);
    assert!(!output.stdout_text().contains("running") && !output.stderr_text().contains("running"), "{output}");
}
