//! `rankrun logs`: the files of a run, read while it goes on or afterwards, and where it finds them.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rankrun::Signal;
use rankrun_testkit::{Launcher, Output, eventually, try_eventually};
use rankrun_tests::{Group, LIMIT, Pidfds, Script, kept_runs};

fn path(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}

fn logs(args: &[&str]) -> Output {
    Launcher::rankrun().arg("logs").args(args).run_with_timeout(LIMIT)
}

#[track_caller]
fn shown(args: &[&str]) -> String {
    let output = logs(args);
    assert_eq!((output.code, output.stderr_text().as_str()), (Some(0), ""), "{output}");
    output.stdout_text()
}

/// A run of three workers whose output is in files, in this log directory.
fn run_three(log_dir: &Path, args: &[&str]) -> Output {
    let script = "echo out $RANK; echo err $RANK >&2";
    let launcher = Launcher::rankrun().args(["-n", "3", "-r", "3", "--role", "trainer", "--log-dir", path(log_dir)]);
    launcher.args(args).args(["sh", "-c", script]).run_with_timeout(LIMIT)
}

#[test]
fn the_files_of_a_run_are_shown_by_rank_with_the_prefixes_of_the_run() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run_three(dir.path(), &[]).code, Some(0));
    let all: String = (0..3).map(|r| format!("[trainer{r}]:out {r}\n[trainer{r}]:err {r}\n")).collect();
    let run = kept_runs(dir.path()).remove(0);
    for place in [dir.path(), &run, &dir.path().join("latest")] {
        assert_eq!(shown(&[path(place)]), all);
        // The run is over: nothing to wait for.
        assert_eq!(shown(&[path(place), "--follow"]), all);
    }
    assert_eq!(shown(&[path(&run), "--rank", "2,0", "--stream", "err"]), "[trainer0]:err 0\n[trainer2]:err 2\n");
    assert_eq!(shown(&["--since", "1h", path(&run), "--rank=1"]), "[trainer1]:out 1\n[trainer1]:err 1\n");

    let old = fs::File::options().append(true).open(run.join("attempt_0/1/stdout.log")).unwrap();
    old.set_modified(SystemTime::now() - Duration::from_secs(7200)).unwrap();
    assert_eq!(shown(&["--since", "1h", path(&run), "--rank=1"]), "[trainer1]:err 1\n");
}

#[test]
fn a_runs_own_prefixes_are_shown_again() {
    let dir = tempfile::tempdir().unwrap();
    let template = "${role_name}:${rank}/${stream} ${pid} ${time}| ";
    assert_eq!(run_three(dir.path(), &["--log-line-prefix-template", template]).code, Some(0));
    let args = [path(dir.path()), "--rank", "2"];
    assert_eq!(shown(&args), "trainer:2/stdout ? ?| out 2\ntrainer:2/stderr ? ?| err 2\n");
}

#[test]
fn a_second_run_has_a_directory_of_its_own_and_is_the_latest() {
    let dir = tempfile::tempdir().unwrap();
    run_three(dir.path(), &["--run-id", "job-7"]);
    let first = kept_runs(dir.path()).remove(0);
    assert!(first.file_name().unwrap().to_str().unwrap().starts_with("job-7_"), "{first:?}");
    let read = |run: &Path| fs::read(run.join("attempt_0/0/stdout.log")).unwrap();
    let info = fs::read_to_string(first.join("run.json")).unwrap();
    for part in [r#""run_id":"job-7""#, r#""role":"trainer""#, r#""local_world_size":3"#, r#""started_ns":"#] {
        assert!(info.contains(part), "{info}");
    }
    let before = (read(&first), fs::metadata(first.join("run.json")).unwrap().modified().unwrap());
    run_three(dir.path(), &["--run-id", "job-7"]);
    let mut runs = kept_runs(dir.path());
    runs.retain(|run| *run != first);
    assert_eq!(runs.len(), 1);
    assert_eq!(fs::canonicalize(dir.path().join("latest")).unwrap(), fs::canonicalize(&runs[0]).unwrap());
    assert_eq!((read(&first), fs::metadata(first.join("run.json")).unwrap().modified().unwrap()), before);
}

#[test]
fn a_file_named_latest_is_left_alone_and_said() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("latest"), "mine").unwrap();
    let output = run_three(dir.path(), &[]);
    assert_eq!(output.code, Some(0));
    assert!(output.stderr_text().contains("latest does not point to this run"), "{output}");
    assert_eq!(fs::read_to_string(dir.path().join("latest")).unwrap(), "mine");
}

#[test]
fn a_start_that_fails_is_the_latest_run_whose_result_says_why() {
    let dir = tempfile::tempdir().unwrap();
    run_three(dir.path(), &[]);
    let args = ["-r", "3", "--log-dir", path(dir.path()), "no-such-program"];
    assert_eq!(Launcher::rankrun().args(args).run_with_timeout(LIMIT).code, Some(127));
    assert_eq!(kept_runs(dir.path()).len(), 2);
    let result = fs::read_to_string(dir.path().join("latest/result.json")).unwrap();
    assert!(result.contains("no-such-program"), "the result of the run before would be taken for this one's: {result}");
    let output = logs(&[path(dir.path())]);
    assert_eq!((output.code, output.stdout_text().as_str()), (Some(0), ""), "{output}");
}

/// A run whose workers write `first`, wait for `go`, and write `last`.
fn run_that_goes_on(log_dir: &Path) -> Group {
    let script = "echo first $RANK; touch {up$RANK}; {W} wait-for {go}; echo last $RANK";
    // The group's files are known by a name without a `$`.
    let script = script.replace("touch {up$RANK}", "if [ $RANK = 0 ]; then touch {up0}; else touch {up1}; fi");
    let mut group = Group::start(Pidfds::Used, 2, &["-r", "1", "--log-dir", path(log_dir)], Script::Shell(&script));
    group.wait_for_each("up", 2);
    group
}

#[test]
fn a_run_that_goes_on_is_followed_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut group = run_that_goes_on(dir.path());
    let mut before: Vec<String> = shown(&[path(dir.path())]).lines().map(str::to_owned).collect();
    before.sort();
    assert_eq!(before, ["[default0]:first 0", "[default1]:first 1"]);

    let (reader, writer) = std::io::pipe().unwrap();
    let mut following = Launcher::rankrun().args(["logs", "-f", path(dir.path())]).stdout(writer).spawn();
    let mut reader = BufReader::new(reader);
    let mut lines = || {
        let mut two = [String::new(), String::new()];
        two.iter_mut().for_each(|line| assert!(reader.read_line(line).unwrap() > 0));
        two.sort();
        two.concat()
    };
    assert_eq!(lines(), "[default0]:first 0\n[default1]:first 1\n");
    assert!(!following.has_ended(), "the run goes on");
    group.touch("go");
    assert_eq!(lines(), "[default0]:last 0\n[default1]:last 1\n");
    assert_eq!(following.wait_timeout(LIMIT).code, Some(0));
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    assert_eq!(group.end().code, Some(0));
}

#[test]
fn a_run_is_followed_over_its_attempts_and_goes_on_between_them() {
    let dir = tempfile::tempdir().unwrap();
    let script =
        "n=$TORCHELASTIC_RESTART_COUNT; echo attempt $n of $RANK; [ $n = 1 ] || { {W} wait-for {go}; exit 3; }";
    let args = ["-t", "1", "--max-restarts", "1", "--restart-backoff", "1", "--log-dir", path(dir.path())];
    let mut group = Group::start(Pidfds::Used, 2, &args, Script::Shell(script));
    let (reader, writer) = std::io::pipe().unwrap();
    let latest = dir.path().join("latest");
    eventually("the run can be found", LIMIT, || latest.exists());
    let mut following = Launcher::rankrun().args(["logs", "-f", path(dir.path())]).stdout(writer).spawn();
    let mut reader = BufReader::new(reader);
    let mut text = String::new();
    (0..2).for_each(|_| assert!(reader.read_line(&mut text).unwrap() > 0));
    group.touch("go");
    let failed = || String::from_utf8_lossy(&group.running().stderr()).contains("restart 1 of 1");
    eventually("the first attempt has failed", LIMIT, failed);
    let status = |command| Launcher::rankrun().arg(command).arg(dir.path()).run_with_timeout(LIMIT).stdout_text();
    let between = status("status");
    assert!(between.contains("(RUNNING, between two attempts)") && between.contains("exit code 3"), "{between}");
    assert!(!status("result").contains("killed"), "{}", status("result"));
    // One that begins in between, or later.
    let late = shown(&["-f", path(dir.path())]);
    reader.read_to_string(&mut text).unwrap();
    for text in [text, late] {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        let expected = [0, 1].map(|rank| [0, 1].map(|attempt| format!("[default{rank}]:attempt {attempt} of {rank}")));
        assert_eq!(lines, expected.concat());
    }
    assert_eq!(following.wait_timeout(LIMIT).code, Some(0));
    assert_eq!(group.end().code, Some(0));
}

#[test]
fn a_run_that_is_just_being_started_is_followed_whole() {
    for _ in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let args = ["-n", "60", "-r", "1", "--log-dir", path(dir.path()), "sh", "-c", "echo one; sleep 0.2; echo two"];
        let mut running = Launcher::rankrun().args(args).spawn();
        let latest = dir.path().join("latest");
        eventually("the run can be found", LIMIT, || latest.exists());
        let text = shown(&["-f", path(dir.path())]);
        assert_eq!(running.wait_timeout(LIMIT).code, Some(0));
        assert_eq!((text.matches("one\n").count(), text.matches("two\n").count()), (60, 60), "{text}");
        running.assert_nothing_left();
    }
}

#[test]
fn following_many_files_raises_the_soft_limit_of_open_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut group = run_that_goes_on(dir.path());
    let (reader, writer) = std::io::pipe().unwrap();
    let follow = r#"ulimit -Sn 7; exec "$0" logs -f "$1""#;
    let binary = rankrun_testkit::binary("rankrun-cli", "rankrun");
    let mut following = Launcher::new("sh").args(["-c", follow]).arg(binary).arg(dir.path()).stdout(writer).spawn();
    let mut reader = BufReader::new(reader);
    let mut line = String::new();
    assert!(reader.read_line(&mut line).unwrap() > 0, "{}", following.wait_timeout(LIMIT));
    group.touch("go");
    assert_eq!(following.wait_timeout(LIMIT).code, Some(0));
    assert_eq!(group.end().code, Some(0));
}

#[test]
fn following_ends_when_its_reader_goes_away_or_it_is_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let mut group = run_that_goes_on(dir.path());
    for interrupted in [false, true] {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut following = Launcher::rankrun().args(["logs", "-f", path(dir.path())]).stdout(writer).spawn();
        let mut reader = BufReader::new(reader);
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0);
        if interrupted {
            following.signal(Signal::INT);
            assert_eq!(following.wait_timeout(LIMIT).signal, Some(Signal::INT));
        } else {
            drop(reader);
            assert_eq!(following.wait_timeout(LIMIT).code, Some(0));
        }
    }
    group.touch("go");
    assert_eq!(group.end().code, Some(0));
}

#[test]
fn a_killed_launcher_ends_the_following_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut group = run_that_goes_on(dir.path());
    let mut following = Launcher::rankrun().args(["logs", "-f", path(dir.path())]).spawn();
    group.signal(Signal::KILL);
    assert_eq!(following.wait_timeout(LIMIT).code, Some(0));
    group.running().wait_timeout(LIMIT);
    eventually("the workers are gone", LIMIT, || group.left().is_empty());
}

#[test]
fn what_is_no_run_or_no_rank_is_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |args: &[&str], words: &[&str]| {
        let output = logs(args);
        assert_eq!(output.code, Some(2), "{output}");
        let text = output.stderr_text();
        assert!(text.lines().count() == 1 && words.iter().all(|word| text.contains(word)), "{text}");
    };
    refused(&[path(dir.path())], &["neither a run's directory"]);
    refused(
        &[path(&dir.path().join("none"))],
        &["/none", "no such directory", "'<DIR>'", "expected the directory of a run"],
    );
    // Whatever is in a path, it is one line.
    refused(&[path(&dir.path().join("a\nb\x1b"))], &["/a\\nb\\x1b'", "no such directory"]);
    refused(&[], &["DIR", "rankrun logs --help"]);
    run_three(dir.path(), &[]);
    refused(&[path(dir.path()), "--rank", "7"], &["no rank 7", "0 to 2"]);
    refused(&[path(dir.path()), "--since", "whenever"], &["--since", "10m"]);
}

#[test]
fn a_run_without_captured_output_shows_nothing_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--log-dir", path(dir.path()), "true"];
    assert_eq!(Launcher::rankrun().args(args).run_with_timeout(LIMIT).code, Some(0));
    let output = logs(&[path(dir.path())]);
    assert_eq!((output.code, output.stdout_text().as_str()), (Some(0), ""));
    assert!(output.stderr_text().contains("no output was captured"), "{output}");
}

/// Checks that these are lines of `seq 1 last`, each whole and in order, and that what is missing is counted.
#[track_caller]
fn assert_numbers(text: &str, last: usize) {
    let mut expected: Box<dyn Iterator<Item = String>> = Box::new((1..=last).map(|number| format!("{number}\n")));
    let mut marks = 0;
    for line in text.split_inclusive('\n') {
        let line = line.strip_prefix("[default0]:").unwrap_or_else(|| panic!("no prefix: {line}"));
        let missing = line.strip_prefix("[rankrun: ").and_then(|rest| rest.strip_suffix(" bytes dropped]\n"));
        if let Some(missing) = missing {
            marks += 1;
            let mut missing: usize = missing.parse().expect("a number of bytes");
            while missing > 0 {
                let line = expected.next().unwrap_or_else(|| panic!("{missing} bytes too many are said to be missing"));
                missing = missing.checked_sub(line.len()).unwrap_or_else(|| panic!("cut within {line}"));
            }
        } else {
            assert_eq!(expected.next().as_deref(), Some(line), "after {marks} marks");
        }
    }
    assert_eq!(expected.next(), None, "the end is shown");
    assert!(marks > 0, "of so much some was dropped");
}

#[test]
fn a_run_with_small_files_is_shown_and_followed_in_whole_lines_with_what_is_missing_counted() {
    let dir = tempfile::tempdir().unwrap();
    let script = "seq 1 100000; touch {up0}; {W} wait-for {go}; seq 100001 300000";
    let args = ["-r", "1", "--log-max-size", "16k", "--log-dir", path(dir.path())];
    let mut group = Group::start(Pidfds::Used, 1, &args, Script::Shell(script));
    group.wait_for_each("up", 1);
    let file = kept_runs(dir.path()).remove(0).join("attempt_0/0/stdout.log");
    let freed = || fs::metadata(&file).is_ok_and(|file| file.blocks() * 512 < file.len() / 2);
    if try_eventually(Duration::from_secs(5), freed).is_none() {
        println!("skipped: no holes in files on this file system");
        return;
    }
    assert_numbers(&shown(&[path(dir.path())]), 100_000);

    let (reader, writer) = std::io::pipe().unwrap();
    let mut following = Launcher::rankrun().args(["logs", "-f", path(dir.path())]).stdout(writer).spawn();
    let mut reader = BufReader::new(reader);
    let mut text = String::new();
    reader.read_line(&mut text).unwrap();
    group.touch("go");
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(following.wait_timeout(LIMIT).code, Some(0));
    assert_eq!(group.end().code, Some(0));
    assert_numbers(&text, 300_000);
}

#[test]
fn colours_are_chosen_as_for_a_run() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run_three(dir.path(), &[]).code, Some(0));
    let args = |color| ["--rank", "0", "--stream", "out", "--color", color, path(dir.path())];
    let colored = shown(&args("always"));
    assert!(colored.starts_with("\x1b[") && colored.ends_with("\x1b[0mout 0\n"), "{colored:?}");
    for color in ["auto", "never"] {
        assert_eq!(shown(&args(color)), "[trainer0]:out 0\n");
    }
}

#[test]
fn a_stream_that_was_not_captured_is_said_with_the_one_that_was() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["-r", "1", "--log-dir", path(dir.path()), "echo", "out"];
    assert_eq!(Launcher::rankrun().args(args).run_with_timeout(LIMIT).code, Some(0));
    let output = logs(&["--stream", "err", path(dir.path())]);
    assert_eq!((output.code, output.stdout_text().as_str()), (Some(0), ""), "{output}");
    let said = output.stderr_text();
    assert!(said.contains("no stderr was captured") && said.contains("only stdout"), "{output}");
}

#[test]
fn a_program_called_logs_can_still_be_started() {
    let dir = tempfile::tempdir().unwrap();
    let program: PathBuf = dir.path().join("logs");
    fs::write(&program, "#!/bin/sh\necho the program $1\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let paths = std::env::join_paths(
        std::iter::once(dir.path().to_owned()).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let paths = paths.unwrap();
    for line in [&["--", "logs", "x"][..], &["./logs", "x"], &["-n", "1", "logs", "x"]] {
        let launcher = Launcher::rankrun().env("PATH", &paths).current_dir(dir.path()).args(line);
        let output = launcher.run_with_timeout(LIMIT);
        assert_eq!((output.code, output.stdout_text().as_str()), (Some(0), "the program x\n"), "{output}");
    }
}
