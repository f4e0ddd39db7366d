//! Teed lines where no terminal is: prefixes, filters, progress bars, consoles of all kinds, and how soon a line is there.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use rankrun_testkit::{Launcher, Output};
use rankrun_tests::{LIMIT, has_python, kept_runs};

fn run(args: &[&str], script: &str) -> Output {
    Launcher::rankrun().args(args).args(["sh", "-c", script]).run_with_timeout(LIMIT)
}

#[test]
fn a_template_makes_the_prefix() {
    let template = "${role_name}.${local_rank}/${rank} ${stream} ${pid}|";
    let output = run(&["-n", "2", "-t", "3", "--log-line-prefix-template", template], "echo $$; echo $$ >&2");
    assert_eq!(output.code, Some(0), "{output}");
    for (text, stream) in [(output.stdout_text(), "stdout"), (output.stderr_text(), "stderr")] {
        let lines: Vec<&str> = text.lines().filter(|line| line.contains('|')).collect();
        assert_eq!(lines.len(), 2, "{output}");
        for line in lines {
            let (prefix, pid) = line.split_once('|').unwrap();
            let rank = &prefix["default.".len()..][..1];
            assert_eq!(prefix, format!("default.{rank}/{rank} {stream} {pid}"));
        }
    }
}

#[test]
fn torchruns_variable_for_the_template_is_honoured() {
    let launcher = Launcher::rankrun().env("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "<$rank>");
    let output = launcher.args(["-t", "1", "echo", "hello"]).run_with_timeout(LIMIT);
    assert_eq!(output.stdout_text(), "<0>hello\n");
}

#[test]
fn each_line_can_have_its_time() {
    let output = run(&["-t", "1", "--log-line-prefix-template", "${time} "], "echo hello");
    let text = output.stdout_text();
    let (time, line) = text.split_once(' ').unwrap();
    assert_eq!(line, "hello\n");
    assert!(time.starts_with("20") && time.len() == 24 && time.ends_with('Z'), "{time}");
}

#[test]
fn a_wrong_template_or_filter_starts_nothing() {
    for (args, words) in [
        (["--log-line-prefix-template", "${host}"], "`${host}`"),
        (["--local-ranks-filter", ""], "local ranks separated by commas"),
        (["--local-ranks-filter", "7"], "there is no rank 7"),
        (["--duplicate-stdout-filters", ""], "one or more texts"),
    ] {
        let output = run(&args, "echo started");
        assert_eq!((output.code, output.stdout_text().as_str()), (Some(2), ""), "{output}");
        assert!(output.stderr_text().contains(words), "{output}");
    }
}

#[test]
fn chosen_lines_of_all_teed_ranks_are_also_in_the_filtered_files() {
    let dir = tempfile::tempdir().unwrap();
    let filters = ["--duplicate-stdout-filters", "loss,error", "--duplicate-stderr-filters", "warn"];
    let args =
        [&["-n", "3", "-t", "0-1:3", "-r", "2:3", "--log-dir", dir.path().to_str().unwrap()][..], &filters].concat();
    let output = run(&args, "echo loss $RANK; echo step $RANK; echo error $RANK; echo warn $RANK >&2; echo loss >&2");
    assert_eq!(output.code, Some(0), "{output}");
    assert_eq!(output.stdout_text().lines().count(), 6, "the console has all lines: {output}");
    let attempt = kept_runs(dir.path())[0].join("attempt_0");
    let lines = |name: &str| {
        let text = std::fs::read_to_string(attempt.join(name)).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let expected = ["[default0]:error 0", "[default0]:loss 0", "[default1]:error 1", "[default1]:loss 1"];
    assert_eq!(lines("filtered_stdout.log"), expected);
    assert_eq!(lines("filtered_stderr.log"), ["[default0]:warn 0", "[default1]:warn 1"]);
}

#[test]
fn filtered_files_are_whole_though_nobody_reads_the_console() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let script = "i=0; while [ $i -lt 3000 ]; do echo loss $i; echo step $i; i=$((i+1)); done";
    let launcher = Launcher::rankrun().stdout(writer).args(["-t", "1", "--log-dir"]).arg(dir.path());
    let launcher = launcher.args(["--duplicate-stdout-filters", "loss", "sh", "-c", script]);
    assert_eq!(launcher.run_with_timeout(LIMIT).code, Some(0));
    let filtered = kept_runs(dir.path())[0].join("attempt_0/filtered_stdout.log");
    let expected: String = (0..3000).map(|i| format!("[default0]:loss {i}\n")).collect();
    assert!(std::fs::read_to_string(filtered).unwrap() == expected);
}

#[test]
fn a_rank_that_is_filtered_out_is_not_shown_and_its_files_are_complete() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["-n", "3", "-t", "0-1:1", "--local-ranks-filter", "1", "--log-dir", dir.path().to_str().unwrap()];
    let output = run(&args, "echo rank $RANK");
    assert_eq!((output.code, output.stdout_text().as_str()), (Some(0), "[default1]:rank 1\n"));
    let attempt = kept_runs(dir.path())[0].join("attempt_0");
    for rank in 0..2 {
        let file = attempt.join(format!("{rank}/stdout.log"));
        assert_eq!(std::fs::read_to_string(file).unwrap(), format!("rank {rank}\n"));
    }
    assert!(!attempt.join("2/stdout.log").exists());
}

#[test]
fn of_a_progress_bar_the_last_state_is_shown_and_the_file_has_all() {
    let script = r"printf '\r10%%\r50%%'; printf '\r100%%\n'; printf 'dos\r\n'; printf 'last\rno newline'";
    for (progress, expected) in [
        ("latest", "[default0]:100%\n[default0]:dos\r\n[default0]:no newline\n"),
        ("off", "[default0]:100%\n[default0]:dos\r\n[default0]:no newline\n"),
        ("raw", "[default0]:\r10%\r50%\r100%\n[default0]:dos\r\n[default0]:last\rno newline\n"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let output = run(&["-t", "1", "--progress", progress, "--log-dir", dir.path().to_str().unwrap()], script);
        assert_eq!(output.stdout_text(), expected, "{progress}");
        let file = kept_runs(dir.path())[0].join("attempt_0/0/stdout.log");
        assert_eq!(std::fs::read(file).unwrap(), b"\r10%\r50%\r100%\ndos\r\nlast\rno newline");
    }
}

#[test]
fn colours_can_be_asked_for_where_no_terminal_is() {
    let script = r"printf '\033[1mbold\nplain\n'";
    let output = run(&["-t", "1", "--color", "always"], script);
    let prefix = "\x1b[36m[default0]:\x1b[0m";
    assert_eq!(output.stdout_text(), format!("{prefix}\x1b[1mbold\x1b[0m\n{prefix}plain\n"));
    let output = run(&["-t", "1"], script);
    assert_eq!(output.stdout_text(), "[default0]:\x1b[1mbold\x1b[0m\n[default0]:plain\n");
}

#[test]
fn a_pipe_that_nobody_reads_delays_neither_workers_nor_a_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    // 4 MB, which no pipe holds; the worker that fails waits until the other one is through.
    let dir = tempfile::tempdir().unwrap();
    let script = r#"if [ $RANK = 0 ]; then yes 0123456789 | head -c 4000000; touch "$GO"; exec sleep 600; fi
        until [ -e "$GO" ]; do sleep 0.02; done; exit 7"#;
    let launcher = Launcher::rankrun().stdout(writer).env("GO", dir.path().join("go"));
    let output = launcher.args(["-n", "2", "-t", "1", "sh", "-c", script]).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(7), "{output}");
    drop(reader);
}

#[test]
fn a_non_blocking_pipe_gets_every_line() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    fcntl(writer.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let script = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done";
    let mut running = Launcher::rankrun().stdout(writer).args(["-t", "1", "sh", "-c", script]).spawn();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(running.wait_timeout(LIMIT).code, Some(0));
    let expected: String = (0..20_000).map(|i| format!("[default0]:line {i}\n")).collect();
    assert!(text == expected);
}

#[test]
fn through_cat_a_line_is_there_at_once() {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut cat = Command::new("cat").stdin(reader).stdout(Stdio::piped()).spawn().unwrap();
    let script = "i=0; while [ $i -lt 25 ]; do date +%s%N; sleep 0.04; i=$((i+1)); done";
    let mut running = Launcher::rankrun().stdout(writer).args(["-t", "1", "sh", "-c", script]).spawn();
    let mut delays = Vec::new();
    for line in BufReader::new(cat.stdout.take().unwrap()).lines() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let written: u64 = line.unwrap().strip_prefix("[default0]:").unwrap().parse().unwrap();
        delays.push(now.saturating_sub(Duration::from_nanos(written)));
    }
    assert_eq!(running.wait_timeout(LIMIT).code, Some(0));
    assert!(cat.wait().unwrap().success());
    delays.sort();
    assert_eq!(delays.len(), 25);
    // It takes less than a millisecond; the machine may be busy.
    assert!(delays[12] < Duration::from_millis(50), "{delays:?}");
}

#[test]
fn a_line_of_python_is_shown_before_the_program_ends() {
    if !has_python("a line of python at once") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    let program = "import os, time\nprint('hello')\nwhile not os.path.exists(os.environ['GO']): time.sleep(0.02)";
    let launcher = Launcher::rankrun().env("GO", &go).env_remove("PYTHONUNBUFFERED");
    let mut running = launcher.args(["-t", "1", "python3", "-c", program]).spawn();
    running.wait_for_stdout("[default0]:hello\n", LIMIT);
    std::fs::write(go, "").unwrap();
    assert_eq!(running.wait_timeout(LIMIT).code, Some(0));
}

#[test]
fn a_console_that_cannot_be_written_to_is_said_once() {
    let read_only = || std::fs::File::open("/dev/null").unwrap();
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    for (console, error) in [(read_only(), "Bad file descriptor"), (full(), "No space left on device")] {
        let args = ["-t", "1", "sh", "-c", "echo line; exit 0"];
        let output = Launcher::rankrun().stdout(console).args(args).run_with_timeout(LIMIT);
        assert_eq!(output.code, Some(0), "{output}");
        let said = output.stderr_text();
        assert_eq!((said.matches("warning: ").count(), said.matches(error).count()), (1, 1), "{said}");
    }
}
