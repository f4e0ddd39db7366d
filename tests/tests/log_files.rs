//! Log files in bad times: kept at a size, on a full disk, in a directory that goes, cut by somebody else.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rankrun_testkit::{Launcher, eventually};
use rankrun_tests::{Group, LIMIT, Mounted, Pidfds, Script, kept_runs};

/// The one run in a log directory.
#[track_caller]
fn the_run(log_dir: &Path) -> PathBuf {
    let runs = kept_runs(log_dir);
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs[0].clone()
}

fn path(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}

#[test]
fn files_are_kept_at_their_size_with_their_end_and_one_line_about_the_rest() {
    let logs = tempfile::tempdir().unwrap();
    let script = "i=0; while [ $i -lt 20000 ]; do echo line $i of rank $RANK; i=$((i+1)); done; echo short >&2";
    let args = ["-n", "2", "-r", "0:3", "-t", "1:3", "--log-max-size", "16k", "--log-dir", path(logs.path())];
    let output = Launcher::rankrun().args(args).args(["sh", "-c", script]).run_with_timeout(LIMIT);
    assert_eq!((output.code, output.stderr_text().as_str()), (Some(0), "[default1]:short\n"));
    let run = the_run(logs.path());
    for rank in 0..2 {
        let read = |name: &str| fs::read_to_string(run.join(format!("attempt_0/{rank}/{name}"))).unwrap();
        let whole: String = (0..20_000).map(|i| format!("line {i} of rank {rank}\n")).collect();
        let text = read("stdout.log");
        let (first, rest) = text.split_once('\n').unwrap();
        assert_eq!(first, format!("[rankrun: {} bytes dropped]", whole.len() - rest.len()));
        assert!(whole.ends_with(rest) && rest.starts_with("line ") && text.len() <= 16 << 10 && text.len() > 15 << 10);
        assert_eq!(read("stderr.log"), "short\n");
    }
    // The console has had every line.
    let shown: String = (0..20_000).map(|i| format!("[default1]:line {i} of rank 1\n")).collect();
    assert!(output.stdout_text() == shown);
}

#[test]
fn a_file_of_chosen_lines_is_kept_at_its_size_too() {
    let logs = tempfile::tempdir().unwrap();
    let script = "i=0; while [ $i -lt 5000 ]; do echo loss $i; echo other; i=$((i+1)); done";
    let args =
        ["-t", "1", "--duplicate-stdout-filters", "loss", "--log-max-size", "16k", "--log-dir", path(logs.path())];
    let output = Launcher::rankrun().args(args).args(["sh", "-c", script]).run_with_timeout(LIMIT);
    assert_eq!((output.code, output.stderr_text().as_str()), (Some(0), ""));
    let text = fs::read_to_string(the_run(logs.path()).join("attempt_0/filtered_stdout.log")).unwrap();
    assert!(text.len() <= 16 << 10 && text.len() > 15 << 10, "{} bytes", text.len());
    let (first, rest) = text.split_once('\n').unwrap();
    let whole: String = (0..5000).map(|i| format!("[default0]:loss {i}\n")).collect();
    assert_eq!(first, format!("[rankrun: {} bytes dropped]", whole.len() - rest.len()));
    assert!(whole.ends_with(rest));
}

#[test]
fn while_a_worker_writes_without_end_its_file_takes_little_disk() {
    let logs = tempfile::tempdir().unwrap();
    let args = ["-r", "1", "--log-max-size", "64k", "--log-dir", path(logs.path())];
    let mut group = Group::start(
        Pidfds::Used,
        1,
        &args,
        Script::Shell("head -c 8000000 /dev/zero | tr '\\0' '\\n'; echo end; touch {wrote}; {W} wait-for {go}; exit 7"),
    );
    group.wait_for_files(&["wrote"]);
    let file = the_run(logs.path()).join("attempt_0/0/stdout.log");
    assert_eq!(fs::metadata(&file).unwrap().len(), 8_000_004);
    eventually("the beginning is freed", LIMIT, || fs::metadata(&file).unwrap().blocks() * 512 < 100_000);
    group.touch("go");
    let output = group.end();
    assert_eq!(output.code, Some(7), "{output}");
    assert!(fs::read_to_string(&file).unwrap().ends_with("\nend\n"));
    assert!(fs::metadata(&file).unwrap().len() <= 64 << 10);
}

#[test]
fn the_report_has_the_last_lines_of_a_file_that_was_cut_to_its_size() {
    let script = "i=0; while [ $i -lt 2000 ]; do echo reason $i >&2; i=$((i+1)); done; exit 3";
    let args = ["-r", "3", "--log-max-size", "4k", "sh", "-c", script];
    let output = Launcher::rankrun().args(args).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(3));
    let report = output.stderr_text();
    assert!(report.contains("reason 1999") && !report.contains('\0'), "{report}");
}

#[test]
fn a_size_that_is_none_is_refused_with_what_is_accepted() {
    let output = Launcher::rankrun().args(["--log-max-size", "10Q", "true"]).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(2));
    let text = output.stderr_text();
    assert!(text.contains("--log-max-size") && text.contains("`10Q`") && text.contains("k, M, G or T"), "{text}");
}

#[test]
fn a_full_disk_is_one_warning_when_it_happens_and_all_else_goes_on() {
    // Rank 0 fills the disk and fails of it, as any program would; the other's lines come here.
    let script = "if [ $RANK = 0 ]; then head -c 3000000 /dev/zero | tr '\\0' '\\n' 2>/dev/null; touch {full}; \
                  else {W} wait-for {full}; echo alive; fi; {W} wait-for {said}; exit 0";
    for spec in [&["-r", "0:3"][..], &["-r", "0:3", "--pty"], &["-t", "0:1", "-r", "0:3", "--local-ranks-filter", "0"]]
    {
        let Some(disk) = Mounted::tmpfs() else { return };
        let args = [spec, &["--log-dir", path(disk.path())]].concat();
        let launcher = Pidfds::Used.rankrun().stdout(Stdio::null());
        let mut group = Group::start_as(launcher, 2, &args, Script::Shell(script));
        group.wait_for_files(&["full"]);
        eventually("it is said while the run goes on", LIMIT, || !group.running().stderr().is_empty());
        assert!(!group.running().has_ended());
        group.touch("said");
        let output = group.end();
        assert_eq!(output.code, Some(0), "{output}");
        let said = output.stderr_text();
        assert_eq!(said.lines().count(), 1, "{said}");
        if spec.contains(&"--pty") {
            assert!(said.contains("No space left on device") && said.contains("is dropped"), "{said}");
        } else {
            let run = the_run(disk.path());
            let expected =
                format!("the file system of {} is full: log and error files may be incomplete", run.display());
            assert_eq!(said, format!("rankrun: warning: {expected}\n"));
        }
    }
}

#[test]
fn a_full_disk_is_one_warning_with_chosen_lines_too_and_the_console_is_complete() {
    for pty in [false, true] {
        let Some(disk) = Mounted::tmpfs() else { return };
        let args = ["-t", "1", "--duplicate-stdout-filters", "loss", "--log-dir", path(disk.path())];
        let args = [&args[..], if pty { &["--pty"] } else { &[] }].concat();
        // More than the disk has room for, and not more than waits for a console.
        let script = "yes the loss of it 2>/dev/null | head -c 1200000 2>/dev/null; exit 0";
        let output = Launcher::rankrun().args(args).args(["sh", "-c", script]).run_with_timeout(LIMIT);
        assert_eq!(output.code, Some(0), "{}", output.stderr_text());
        let said = output.stderr_text();
        assert_eq!(said.lines().count(), 1, "{said}");
        let file = fs::read_to_string(the_run(disk.path()).join("attempt_0/0/stdout.log")).unwrap();
        let written = if pty { "the loss of it\n".repeat(80_000) } else { file.clone() };
        let shown: String = written.lines().map(|line| format!("[default0]:{line}\n")).collect();
        assert!(file.len() <= 1 << 20, "{} bytes", file.len());
        assert!(output.stdout_text() == shown, "{} of {} bytes", output.stdout.len(), shown.len());
    }
}

#[test]
fn a_disk_that_is_full_from_the_start_does_not_keep_a_run_from_starting() {
    let Some(disk) = Mounted::tmpfs() else { return };
    fs::write(disk.path().join("fill"), vec![b'x'; 2 << 20]).unwrap_err();
    let args = ["-n", "2", "-t", "1:1", "--log-dir", path(disk.path()), "sh", "-c", "echo $RANK || exit 0"];
    let output = Launcher::rankrun().args(args).run_with_timeout(LIMIT);
    assert_eq!((output.code, output.stdout_text().as_str()), (Some(0), "0\n"), "{output}");
    let warned = output.stderr_text();
    assert_eq!(warned.matches("is full").count(), 1, "{warned}");
}

#[test]
fn with_a_size_a_small_disk_is_enough() {
    let Some(disk) = Mounted::tmpfs() else { return };
    // Three times the disk, as fast as the beginning is freed.
    let script = "f=${TORCHELASTIC_ERROR_FILE%/*}/stdout.log; i=0; while [ $i -lt 12 ]; do \
                  head -c 250000 /dev/zero | tr '\\0' '\\n' || exit 9; i=$((i+1)); \
                  while [ $(stat -c %b $f) -gt 512 ]; do sleep 0.01; done; done; echo end";
    let args = ["-t", "1", "--log-max-size", "128k", "--log-dir", path(disk.path()), "sh", "-c", script];
    let output = Launcher::rankrun().stdout(Stdio::null()).args(args).run_with_timeout(LIMIT);
    assert_eq!((output.code, output.stderr_text().as_str()), (Some(0), ""));
    let text = fs::read_to_string(the_run(disk.path()).join("attempt_0/0/stdout.log")).unwrap();
    assert!(text.starts_with("[rankrun: ") && text.ends_with("\nend\n") && text.len() <= 128 << 10);
}

#[test]
fn where_a_beginning_cannot_be_freed_that_is_said_once_and_the_end_is_kept() {
    let Some(disk) = Mounted::mount("ramfs", "mode=700") else { return };
    let args = ["-r", "1", "--log-max-size", "16k", "--log-dir", path(disk.path())];
    let script = "head -c 200000 /dev/zero | tr '\\0' '\\n'; echo end; {W} wait-for {go}";
    let mut group = Group::start(Pidfds::Used, 2, &args, Script::Shell(script));
    eventually("it is said", LIMIT, || !group.running().stderr().is_empty());
    group.touch("go");
    let output = group.end();
    let said = output.stderr_text();
    assert_eq!((output.code, said.lines().count()), (Some(0), 1), "{output}");
    assert!(said.contains("only when the workers have ended"), "{said}");
    for rank in 0..2 {
        let text = fs::read_to_string(the_run(disk.path()).join(format!("attempt_0/{rank}/stdout.log"))).unwrap();
        assert!(text.starts_with("[rankrun: ") && text.ends_with("\nend\n") && text.len() <= 16 << 10);
    }
}

#[test]
fn a_log_directory_that_vanishes_is_one_warning_when_it_happens_and_console_and_result_go_on() {
    for teed in [true, false] {
        let root = tempfile::tempdir().unwrap();
        let logs = root.path().join("logs");
        let args = ["-t", if teed { "1" } else { "0" }, "-r", "2", "--log-dir", path(&logs)];
        let script = "echo before; if [ $RANK = 0 ]; then touch {up0}; else touch {up1}; fi; {W} wait-for {go}; \
                      echo after; echo lost >&2; if [ $RANK = 0 ]; then touch {done}; exit 0; fi; {W} wait-for {done}; exit 5";
        let mut group = Group::start(Pidfds::Used, 2, &args, Script::Shell(script));
        group.wait_for_each("up", 2);
        let run = the_run(&logs);
        fs::remove_dir_all(&logs).unwrap();
        // Nobody writes now.
        eventually("it is said while the run goes on", LIMIT, || !group.running().stderr().is_empty());
        assert!(!group.running().has_ended());
        group.touch("go");
        let output = group.end();
        assert_eq!(output.code, Some(5), "{output}");
        let mut shown = output.sorted_stdout_lines();
        shown.retain(|line| line.ends_with("after"));
        assert_eq!(shown, if teed { ["[default0]:after", "[default1]:after"] } else { ["after"; 2] });
        let warning =
            format!("rankrun: warning: log directory {} is gone, and the log and error files with it", run.display());
        let errors = output.stderr_text();
        assert_eq!(errors.matches("rankrun: warning: ").count(), 1, "{errors}");
        assert!(errors.starts_with(&warning) && errors.contains("rank 1"), "{errors}");
    }
}

#[test]
fn a_log_file_or_a_ranks_directory_that_is_deleted_is_one_warning_when_it_happens() {
    for (teed, gone) in [(true, "1/stdout.log"), (false, "1/stdout.log"), (true, "1"), (false, "1")] {
        let logs = tempfile::tempdir().unwrap();
        let args = [if teed { "-t" } else { "-r" }, "3", "--log-dir", path(logs.path())];
        let script = "echo before; if [ $RANK = 0 ]; then touch {up0}; else touch {up1}; fi; {W} wait-for {go}; echo after; exit 5";
        let mut group = Group::start(Pidfds::Used, 2, &args, Script::Shell(script));
        group.wait_for_each("up", 2);
        let gone = the_run(logs.path()).join("attempt_0").join(gone);
        // Nobody writes now.
        let expected = if gone.is_dir() {
            fs::remove_dir_all(&gone).unwrap();
            format!("log directory {} is gone, and the log and error files with it", gone.display())
        } else {
            fs::remove_file(&gone).unwrap();
            format!("log file {} is gone: what workers write to it is lost", gone.display())
        };
        let warning = format!("rankrun: warning: {expected}\n");
        eventually("it is said while the run goes on", LIMIT, || group.running().stderr() == warning.as_bytes());
        group.touch("go");
        let output = group.end();
        assert_eq!(output.code, Some(5), "{output}");
        let said = output.stderr_text();
        assert_eq!(said.matches("warning: ").count(), 1, "{said}");
        // Only the warning names it.
        assert_eq!(said.matches(path(&gone)).count(), 1, "{said}");
        let shown: &[&str] = if teed { &["after", "after", "before", "before"] } else { &[] };
        let mut lines = output.sorted_stdout_lines();
        lines.iter_mut().for_each(|line| *line = line.split_off(11));
        lines.sort_unstable();
        assert_eq!(lines, shown);
    }
}

#[test]
fn what_a_process_writes_after_its_worker_and_the_launcher_have_ended_is_in_the_file() {
    let logs = tempfile::tempdir().unwrap();
    let args = ["--keep-descendants", "-t", "1", "--log-dir", path(logs.path())];
    let script = "(until [ -e {stop} ]; do echo more; done; echo the last) & echo mine; exit 0";
    let mut group = Group::start(Pidfds::Used, 1, &args, Script::Shell(script));
    // It writes all the time, and holds up nothing.
    let output = group.running().wait_timeout(LIMIT);
    assert_eq!(output.code, Some(0), "{output}");
    assert!(output.stdout_text().lines().all(|line| line == "[default0]:mine" || line == "[default0]:more"));
    group.touch("stop");
    eventually("the process has ended", LIMIT, || group.left().is_empty());
    let text = fs::read_to_string(the_run(logs.path()).join("attempt_0/0/stdout.log")).unwrap();
    assert!(text.ends_with("\nmore\nthe last\n") && text.contains("mine\n"));
}

#[test]
fn a_file_that_a_rotator_cuts_is_followed_and_has_no_hole() {
    let logs = tempfile::tempdir().unwrap();
    let args = ["-t", "1", "--log-dir", path(logs.path())];
    let script =
        "i=0; while [ $i -lt 300 ]; do echo first $i; i=$((i+1)); done; touch {wrote}; {W} wait-for {cut}; echo second";
    let (mut reader, writer) = std::io::pipe().unwrap();
    let launcher = Pidfds::Used.rankrun().stdout(writer);
    let mut group = Group::start_as(launcher, 1, &args, Script::Shell(script));
    group.wait_for_files(&["wrote"]);
    // What was shown may be cut: as copytruncate does, when it has its copy.
    let first: String = (0..300).map(|i| format!("[default0]:first {i}\n")).collect();
    let mut shown = vec![0; first.len()];
    std::io::Read::read_exact(&mut reader, &mut shown).unwrap();
    assert_eq!(String::from_utf8(shown).unwrap(), first);
    let file = the_run(logs.path()).join("attempt_0/0/stdout.log");
    File::options().write(true).open(&file).unwrap().set_len(0).unwrap();
    group.touch("cut");
    let output = group.end();
    assert_eq!(output.code, Some(0), "{output}");
    assert_eq!(std::io::read_to_string(reader).unwrap(), "[default0]:second\n");
    assert_eq!(fs::read_to_string(&file).unwrap(), "second\n");
    let warned = output.stderr_text();
    assert_eq!(warned.matches("was cut from").count(), 1, "{warned}");
}

#[test]
fn what_a_worker_writes_to_its_stderr_opened_anew_is_shown_whole_and_its_file_is_said_to_be_cut_once() {
    let logs = tempfile::tempdir().unwrap();
    let args = ["-t", "3", "--duplicate-stderr-filters", "line", "--log-dir", path(logs.path())];
    // Each `>` cuts the file; the line that is written then is longer than all that was read.
    let script = "echo first line >&2; touch {a}; {W} wait-for {b}; echo the second line >/dev/stderr; touch {c}; \
                  {W} wait-for {d}; echo and a third one, a long line >/dev/stderr; echo out; exit 0";
    let (mut reader, writer) = std::io::pipe().unwrap();
    let launcher = Pidfds::Used.rankrun().stderr(writer);
    let mut group = Group::start_as(launcher, 1, &args, Script::Shell(script));
    let chosen = || {
        let file = the_run(logs.path()).join("attempt_0/filtered_stderr.log");
        fs::read_to_string(file).unwrap()
    };
    let mut shown = String::new();
    let mut expect = |line: &str| {
        while !shown.ends_with(line) {
            let mut byte = [0];
            std::io::Read::read_exact(&mut reader, &mut byte).unwrap();
            shown.push(byte[0] as char);
        }
        eventually("it is in the file of chosen lines too", LIMIT, || chosen().ends_with(line));
    };
    group.wait_for_files(&["a"]);
    expect("[default0]:first line\n");
    group.touch("b");
    group.wait_for_files(&["c"]);
    expect("[default0]:the second line\n");
    group.touch("d");
    assert_eq!(group.end().code, Some(0));
    let rest = std::io::read_to_string(reader).unwrap();
    assert!(rest.ends_with("[default0]:and a third one, a long line\n"), "{shown}{rest}");
    shown.push_str(&rest);
    let lines: Vec<&str> = shown.lines().filter(|line| line.starts_with("[default0]:")).collect();
    let expected = ["[default0]:first line", "[default0]:the second line", "[default0]:and a third one, a long line"];
    assert_eq!(lines, expected, "{shown}");
    assert_eq!((shown.lines().count(), shown.matches("was cut").count()), (4, 1), "{shown}");
    assert_eq!(chosen().lines().collect::<Vec<_>>(), expected);
}

#[test]
fn of_a_run_whose_directory_is_gone_no_path_is_given_but_in_the_warning() {
    let script = "echo out; rm -r ${TORCHELASTIC_ERROR_FILE%/attempt_*}; exit 3";
    let output = Launcher::rankrun().args(["-r", "3", "sh", "-c", script]).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(3), "{output}");
    let said = output.stderr_text();
    let with_path: Vec<&str> = said.lines().filter(|line| line.contains("/rankrun_")).collect();
    assert_eq!(with_path.len(), 1, "{said}");
    assert!(with_path[0].contains("is gone, and the log and error files with it"), "{said}");
    assert!(!said.contains("nothing on stderr"), "{said}");
}

#[test]
fn the_report_has_the_last_lines_of_teed_logs_also_when_they_are_moved_or_removed() {
    for away in ["rm -r", "mv -t {moved}"] {
        let root = tempfile::tempdir().unwrap();
        let logs = root.path().join("logs");
        fs::create_dir(root.path().join("moved")).unwrap();
        let away = away.replace("{moved}", path(&root.path().join("moved")));
        let script = format!("echo before >&2; {away} {}; echo the reason >&2; exit 3", path(&logs));
        let args = ["-t", "3", "--log-dir", path(&logs), "sh", "-c", &script];
        let output = Launcher::rankrun().args(args).run_with_timeout(LIMIT);
        assert_eq!(output.code, Some(3), "{output}");
        let said = output.stderr_text();
        let report = &said[said.find("FAILED").unwrap()..];
        assert!(report.contains("before") && report.contains("the reason"), "{said}");
        assert!(!report.contains("not known") && !report.contains(path(&logs)), "{said}");
    }
}
