//! Workers with terminals (`--pty`): what they see, what is in their files, and that neither a console, a disk nor a
//! process left behind holds anything up.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use rankrun::Signal;
use rankrun_testkit::{Launcher, Output, binary, eventually};
use rankrun_tests::terminal::pair;
use rankrun_tests::{Group, LIMIT, Mounted, Pidfds, Script, Terminal, has, has_python, kept_runs};

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}

/// Runs workers with terminals and without what this test's own environment says about them.
fn run(log_dir: &Path, args: &[&str], command: &[&str]) -> Output {
    let launcher = Launcher::rankrun().env_remove("COLUMNS").env_remove("LINES").env("TERM", "xterm");
    launcher.args(["--pty", "--log-dir", text(log_dir)]).args(args).args(command).run_with_timeout(LIMIT)
}

fn log(log_dir: &Path, name: &str) -> PathBuf {
    let runs = kept_runs(log_dir);
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs[0].join("attempt_0").join(name)
}

#[test]
fn each_captured_stream_is_a_terminal_of_its_own_and_other_streams_are_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let script = "for fd in 0 1 2; do test -t $fd && echo $fd; done; echo error >&2; exec 3>&1; stty -a <&3 | grep -o '[-]*opost\\|[-]*echo '";
    for (args, expected) in [
        (&["-t", "3"][..], "[default0]:1\n[default0]:2\n[default0]:-opost\n[default0]:-echo \n"),
        (&["-t", "1"], "[default0]:1\n[default0]:-opost\n[default0]:-echo \n"),
    ] {
        let output = run(dir.path(), args, &["sh", "-c", script]);
        assert_eq!((output.code, output.stdout_text().as_str()), (Some(0), expected), "{output}");
        assert!(output.stderr_text().ends_with("error\n"), "{output}");
    }
    let output = run(&dir.path().join("r"), &["-r", "3"], &["sh", "-c", script]);
    assert_eq!((output.code, output.stdout_text().as_str(), output.stderr_text().as_str()), (Some(0), "", ""));
    let read = |name: &str| fs::read_to_string(log(&dir.path().join("r"), name)).unwrap();
    assert_eq!((read("0/stdout.log").as_str(), read("0/stderr.log").as_str()), ("1\n2\n-opost\n-echo \n", "error\n"));
}

#[test]
fn programs_show_colours_and_find_a_size_less_the_prefix() {
    let dir = tempfile::tempdir().unwrap();
    let script = "echo red | grep --color=auto red; stty size <&1; echo $TERM $COLUMNS";
    let output = Launcher::rankrun()
        .env("COLUMNS", "100")
        .env("LINES", "30")
        .env_remove("TERM")
        .env_remove("GREP_COLORS")
        .args(["--pty", "-t", "1", "--log-dir", text(dir.path()), "sh", "-c", script])
        .run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(0), "{output}");
    let red = "\x1b[01;31m\x1b[Kred\x1b[m\x1b[K\n";
    // `[default0]:` is 11 columns wide, and the last column stays free.
    assert_eq!(fs::read_to_string(log(dir.path(), "0/stdout.log")).unwrap(), format!("{red}30 88\nxterm-256color\n"));
    assert!(output.stdout_text().starts_with(&format!("[default0]:{red}")), "{output}");
}

#[test]
fn python_writes_line_by_line_and_its_progress_bar_lives() {
    if !has_python("a worker in Python on a terminal") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = "import os, sys, time
assert 'PYTHONUNBUFFERED' not in os.environ
def wait(name):
    while not os.path.exists(os.path.join(os.environ['DIR'], name)): time.sleep(0.01)
print('a line')
wait('a')
sys.stdout.write('\\r' + ' 10%'.rjust(os.get_terminal_size(1).columns)); sys.stdout.flush()
wait('b')
print('\\r100%')";
    let (terminal, slave) = Terminal::new();
    let launcher = Launcher::rankrun().env("TERM", "xterm").env("DIR", dir.path()).env_remove("PYTHONUNBUFFERED");
    let launcher = launcher.stdout(slave).args(["--pty", "-t", "1", "--color", "never", "python3", "-c", script]);
    let mut running = launcher.spawn();
    terminal.wait_for("[default0]:a line\n");
    fs::write(dir.path().join("a"), "").unwrap();
    // Of 80 columns the prefix takes 11 and the last stays free: the whole bar is there.
    terminal.wait_for(&format!("\x1b[K[default0]:{:>68}\r", "10%"));
    fs::write(dir.path().join("b"), "").unwrap();
    let output = running.wait_timeout(LIMIT);
    assert_eq!(output.code, Some(0), "{output}");
    assert!(terminal.end().ends_with("[default0]:100%\n"));
}

#[test]
fn the_size_of_the_console_is_followed() {
    let (master, slave) = pair();
    let mut reader = fs::File::from(master.try_clone().unwrap());
    let reading = std::thread::spawn(move || {
        let mut shown = Vec::new();
        // EIO once nobody has the other end.
        let _ = std::io::Read::read_to_end(&mut reader, &mut shown);
        String::from_utf8_lossy(&shown).replace("\r\n", "\n")
    });
    let script =
        "trap 'stty size <&1; touch {changed}' WINCH; touch {up}; until [ -e {changed} ]; do sleep 0.02; done; exit 0";
    let launcher = Pidfds::Used.rankrun().stdout(slave);
    let mut group = Group::start_as(launcher, 1, &["--pty", "-t", "1", "--color", "never"], Script::Shell(script));
    group.wait_for_files(&["up"]);
    let columns = Command::new("stty").args(["columns", "132"]).stdin(master.try_clone().unwrap()).status();
    assert!(columns.unwrap().success());
    // As the kernel does where the terminal is the controlling one.
    group.signal(Signal::WINCH);
    assert_eq!(group.end().code, Some(0));
    drop(master);
    assert_eq!(reading.join().unwrap(), "[default0]:24 120\n");
}

#[test]
fn fifty_megabytes_of_any_bytes_are_in_the_file_as_they_were_written() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    // Every byte there is, in no order that repeats soon.
    let mut state = 1_u32;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(50_000_000)
    .collect();
    fs::write(&data, &bytes).unwrap();
    let logs = dir.path().join("logs");
    let output = run(&logs, &["-n", "1", "-r", "1"], &["cat", text(&data)]);
    assert_eq!(output.code, Some(0), "{output}");
    assert!(fs::read(log(&logs, "0/stdout.log")).unwrap() == bytes);
}

#[test]
fn lines_of_many_workers_are_whole_once_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let script = "i=0; while [ $i -lt 300 ]; do echo rank $RANK line $i; i=$((i+1)); done";
    let output = run(dir.path(), &["-n", "32", "-t", "1", "-r", "2"], &["sh", "-c", script]);
    assert_eq!((output.code, output.stderr_text().as_str()), (Some(0), ""), "{output}");
    let shown = output.stdout_text();
    for rank in 0..32 {
        let prefix = format!("[default{rank}]:");
        let got: Vec<&str> = shown.lines().filter(|line| line.starts_with(&prefix)).collect();
        let expected: Vec<String> = (0..300).map(|i| format!("{prefix}rank {rank} line {i}")).collect();
        assert_eq!(got, expected);
    }
}

#[test]
fn the_last_words_of_a_worker_that_fails_are_in_file_and_report() {
    let dir = tempfile::tempdir().unwrap();
    let script = "i=0; while [ $i -lt 2000 ]; do echo reason $i >&2; i=$((i+1)); done; exit 3";
    let output = run(dir.path(), &["-r", "3"], &["sh", "-c", script]);
    assert_eq!(output.code, Some(3), "{output}");
    assert!(output.stderr_text().contains("reason 1999"), "{output}");
    let whole: String = (0..2000).map(|i| format!("reason {i}\n")).collect();
    assert!(fs::read_to_string(log(dir.path(), "0/stderr.log")).unwrap() == whole);
}

#[test]
fn a_process_that_keeps_the_terminal_open_does_not_hold_up_the_result() {
    let dir = tempfile::tempdir().unwrap();
    let script = "(trap '' HUP; while :; do echo chatter; done) & echo mine; exit 4";
    for args in [&["-r", "3"][..], &["-t", "3"]] {
        let output = run(&dir.path().join(args[0]), args, &["sh", "-c", script]);
        assert_eq!(output.code, Some(4), "{output}");
        let file = fs::read_to_string(log(&dir.path().join(args[0]), "0/stdout.log")).unwrap();
        assert!(file.lines().any(|line| line == "mine"));
    }
}

#[test]
fn a_console_that_nobody_reads_delays_neither_workers_nor_the_result() {
    let dir = tempfile::tempdir().unwrap();
    let (master, slave) = pair();
    let launcher =
        Launcher::rankrun().stdout(slave).args(["--pty", "-n", "2", "-t", "1", "--log-dir", text(dir.path())]);
    let script = "yes 0123456789 | head -c 1000000; exit 7";
    let output = launcher.args(["sh", "-c", script]).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(7), "{output}");
    assert_eq!(fs::metadata(log(dir.path(), "0/stdout.log")).unwrap().len() % 11, 1_000_000 % 11);
    drop(master);
}

#[test]
fn nothing_is_left_when_the_launcher_is_killed() {
    let script = "sleep 1000 & touch {up}; while :; do echo chatter; done";
    let mut group = Group::start(Pidfds::Used, 1, &["--pty", "-r", "3"], Script::Shell(script));
    group.wait_for_files(&["up"]);
    group.signal(Signal::KILL);
    group.running().wait_timeout(LIMIT);
    eventually("workers and what they started are gone", LIMIT, || group.left().is_empty());
}

#[test]
fn a_size_limit_holds_with_terminals_too() {
    let dir = tempfile::tempdir().unwrap();
    let script = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done";
    let output = run(dir.path(), &["-t", "1", "--log-max-size", "16k"], &["sh", "-c", script]);
    assert_eq!((output.code, output.stderr_text().as_str()), (Some(0), ""), "{output}");
    let file = fs::read_to_string(log(dir.path(), "0/stdout.log")).unwrap();
    assert!(file.starts_with("[rankrun: ") && file.ends_with("line 19999\n") && file.len() <= 16 << 10);
    let shown: String = (0..20_000).map(|i| format!("[default0]:line {i}\n")).collect();
    assert!(output.stdout_text() == shown);
}

#[test]
fn a_full_disk_keeps_no_worker_and_is_one_warning() {
    let Some(disk) = Mounted::tmpfs() else { return };
    // Every write of the worker succeeds.
    let script = "head -c 3000000 /dev/zero | tr '\\0' '\\n' && echo end";
    let output = run(disk.path(), &["-r", "1"], &["sh", "-c", script]);
    assert_eq!(output.code, Some(0), "{output}");
    let warnings = output.stderr_text();
    assert_eq!(warnings.lines().count(), 1, "{warnings}");
    assert!(warnings.contains("No space left on device"), "{warnings}");
}

/// Fills a disk to its last byte.
fn fill(disk: &Mounted) -> PathBuf {
    let file = disk.path().join("fill");
    fs::write(&file, vec![b'x'; 2 << 20]).expect_err("it is as small as that");
    file
}

#[test]
fn on_a_full_disk_the_console_has_every_line() {
    let Some(disk) = Mounted::tmpfs() else { return };
    // Half as much again as the disk holds.
    let script = "i=0; while [ $i -lt 15000 ]; do echo line $i of rank $RANK ------------------------------; i=$((i+1)); done; echo end";
    let output = run(disk.path(), &["-n", "2", "-t", "1"], &["sh", "-c", script]);
    assert_eq!(output.code, Some(0), "{output}");
    let shown = output.stdout_text();
    for rank in 0..2 {
        let prefix = format!("[default{rank}]:");
        let mut lines = shown.lines().filter_map(|line| line.strip_prefix(&prefix));
        for i in 0..15_000 {
            assert_eq!(lines.next(), Some(&*format!("line {i} of rank {rank} ------------------------------")));
        }
        assert_eq!((lines.next(), lines.next()), (Some("end"), None));
    }
    assert_eq!(shown.lines().count(), 2 * 15_001);
    let warnings = output.stderr_text();
    assert_eq!(warnings.lines().count(), 1, "{warnings}");
}

#[test]
fn what_a_full_disk_did_not_take_is_on_the_console_in_its_place_and_counted_in_the_file_when_there_is_room() {
    let Some(disk) = Mounted::tmpfs() else { return };
    // Longer than what is left of a block.
    let script = "long() { head -c 5000 /dev/zero | tr '\\0' $1; echo; }; long a; touch {a}; {W} wait-for {full}; long b; \
                  long c; touch {lost}; {W} wait-for {room}; echo d; exit 0";
    let args = ["--pty", "-t", "1", "--duplicate-stdout-filters", "b,d", "--log-dir", text(disk.path())];
    let mut group = Group::start(Pidfds::Used, 1, &args, Script::Shell(script));
    group.wait_for_files(&["a"]);
    let file = log(disk.path(), "0/stdout.log");
    eventually("the first line is in the file", LIMIT, || fs::metadata(&file).unwrap().len() == 5001);
    let filling = fill(&disk);
    group.touch("full");
    group.wait_for_files(&["lost"]);
    eventually("it is said", LIMIT, || !group.running().stderr().is_empty());
    let long = |c: &str| format!("[default0]:{}\n", c.repeat(5000));
    let shown = [long("a"), long("b"), long("c")].concat();
    eventually("it is shown", LIMIT, || group.running().stdout() == shown.as_bytes());
    fs::remove_file(filling).unwrap();
    group.touch("room");
    let output = group.end();
    assert_eq!(output.code, Some(0), "{output}");
    assert!(output.stdout_text() == format!("{shown}[default0]:d\n"), "{output}");
    let text = fs::read_to_string(&file).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(&*"a".repeat(5000)));
    // What fitted into the last block.
    let begun = lines.next().unwrap();
    assert!(begun.starts_with('b') && begun.len() < 5000);
    assert_eq!(lines.next(), Some(&*format!("[rankrun: {} bytes dropped]", 2 * 5001 - begun.len())));
    assert_eq!((lines.next(), lines.next()), (Some("d"), None));
}

#[test]
fn the_end_of_what_a_full_disk_did_not_take_is_saved_when_there_is_room_at_the_end() {
    for limited in [false, true] {
        let Some(disk) = Mounted::tmpfs() else { return };
        // A console that takes nothing keeps the file's beginning from being freed, until the workers have ended.
        let (mut reader, writer) = std::io::pipe().unwrap();
        let size: &[&str] = if limited { &["--log-max-size", "64k"] } else { &[] };
        let args = [&["--pty", "-t", "1", "--log-dir", text(disk.path())], size].concat();
        let script = "i=0; while [ $i -lt 30000 ]; do echo line $i of rank $RANK ----------------------; i=$((i+1)); done; \
                      touch {wrote}; {W} wait-for {room}";
        let filling = disk.path().join("fill");
        // With a size the file's own beginning is what makes room.
        fs::write(&filling, vec![b'x'; if limited { 0 } else { 500_000 }]).unwrap();
        let mut group = Group::start_as(Pidfds::Used.rankrun().stdout(writer), 1, &args, Script::Shell(script));
        group.wait_for_files(&["wrote"]);
        eventually("it is said", LIMIT, || !group.running().stderr().is_empty());
        fs::remove_file(&filling).unwrap();
        group.touch("room");
        let mut shown = Vec::new();
        reader.read_to_end(&mut shown).unwrap();
        let output = group.end();
        assert_eq!((output.code, output.stderr_text().lines().count()), (Some(0), 1), "{output}");
        assert!(!output.stderr_text().contains("at the end"), "{output}");
        let file = fs::read_to_string(log(disk.path(), "0/stdout.log")).unwrap();
        assert!(file.ends_with("\nline 29999 of rank 0 ----------------------\n"), "limited: {limited}");
        assert!(file.contains("bytes dropped]\n") && !file.contains('\0'), "limited: {limited}");
        assert!(!limited || file.len() <= 64 << 10, "limited: {limited}");
    }
}

#[test]
fn on_a_full_disk_the_report_has_the_last_lines_or_does_not_say_that_there_were_none() {
    let Some(disk) = Mounted::tmpfs() else { return };
    fill(&disk);
    let script = "echo reason 41 >&2; exit 3";
    let output = run(disk.path(), &["-r", "3"], &["sh", "-c", script]);
    assert_eq!(output.code, Some(3), "{output}");
    assert!(output.stderr_text().contains("reason 41"), "{output}");
    // Without a terminal nobody has what the worker could not write.
    let args = ["-r", "3", "--log-dir", text(disk.path()), "sh", "-c", script];
    let output = Launcher::rankrun().args(args).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(3), "{output}");
    let report = output.stderr_text();
    assert!(!report.contains("nothing on stderr"), "{report}");
    assert!(report.contains("nothing in the log of its stderr, which may be incomplete"), "{report}");
}

#[test]
fn without_terminals_to_be_had_no_worker_starts_and_the_message_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let started = dir.path().join("started");
    let script = |setup: &str| format!("{setup} && exec \"$0\" --pty -n 8 -t 3 touch {}", text(&started));
    let rankrun = binary("rankrun-cli", "rankrun");
    let output = Launcher::new("sh").args(["-c", &script("ulimit -n 30")]).arg(&rankrun).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(125), "{output}");
    assert!(output.stderr_text().contains("Too many open files"), "{output}");
    // A /dev/pts with room for three.
    let devpts = "mount -t devpts -o ptmxmode=666,max=3 devpts /dev/pts && mount --bind /dev/pts/ptmx /dev/ptmx";
    if has("a full /dev/pts", "no mount namespace", &["unshare", "-m", "sh", "-c", devpts]) {
        let launcher = Launcher::new("unshare").args(["-m", "sh", "-c", &script(devpts)]).arg(&rankrun);
        let output = launcher.run_with_timeout(LIMIT);
        assert_eq!(output.code, Some(125), "{output}");
        let said = output.stderr_text();
        assert!(said.contains("pseudo-terminal for") && said.contains("1/stderr.log"), "{said}");
        assert!(said.contains("/proc/sys/kernel/pty/max"), "{said}");
    }
    assert!(!started.exists());
}

#[test]
fn terminals_without_captured_output_are_said_to_be_idle() {
    let output = Launcher::rankrun().args(["--pty", "true"]).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(0));
    assert!(output.stderr_text().contains("--pty has no effect"), "{output}");
}
