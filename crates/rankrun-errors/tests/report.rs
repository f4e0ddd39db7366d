//! The report as people see it, for one, three, four and 512 failed workers.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use expect_test::{Expect, expect};
use rankrun_errors::{
    ChildFailedError, ErrorFileReading, FailureKind, MemoryKills, ObservedExit, ProcessFailure, UnusableErrorFile,
    parse_error_file,
};
use rankrun_types::{ExitKind, Signal};

/// 2026-11-30 22:12:24 UTC.
const T: u64 = 1_796_076_744;

/// A clock face of the seconds after [`T`], the same in each time zone.
fn time(unix_ns: i64) -> String {
    format!("T+{:.3}s", (unix_ns - T as i64 * 1_000_000_000) as f64 / 1e9)
}

fn failure(local_rank: usize, exit: ExitKind, at_ms: u64, reading: ErrorFileReading) -> ProcessFailure {
    let ended_at = UNIX_EPOCH + Duration::from_secs(T) + Duration::from_millis(at_ms);
    let observed = ObservedExit {
        local_rank,
        pid: 4241 + local_rank as u32,
        exit,
        started_at: None,
        start_ticks: None,
        stopped_at: None,
        ended_at,
    };
    ProcessFailure::from_parts(observed, Some(format!("/run/{local_rank}/error.json").into()), reading)
}

fn without_file(local_rank: usize, exit: ExitKind, at_ms: u64) -> ProcessFailure {
    failure(local_rank, exit, at_ms, ErrorFileReading::Absent)
}

fn record(text: &str) -> ErrorFileReading {
    ErrorFileReading::Record(Box::new(parse_error_file(text.as_bytes()).unwrap()))
}

fn signal(signal: Signal) -> ExitKind {
    ExitKind::Signal { signal, core_dumped: false }
}

fn check(error: &ChildFailedError, expected: &Expect) {
    expected.assert_eq(&error.report().with_time_format(time).to_string());
}

fn trainer(failures: impl IntoIterator<Item = ProcessFailure>) -> ChildFailedError {
    let failures: BTreeMap<_, _> = failures.into_iter().map(|failure| (failure.local_rank, failure)).collect();
    ChildFailedError::new("trainer", failures).unwrap().with_host("node-3")
}

#[test]
fn what_the_launcher_found_itself_is_the_message() {
    let mut failure = without_file(1, ExitKind::Code(0), 250);
    failure.set_note("exited 0 without returning a value");
    assert_eq!(failure.message, "exited 0 without returning a value");
    let report = trainer([failure]).to_string();
    let headline =
        "trainer FAILED: rank 1 (local rank 1, pid 4242) on node-3: exit code 0: exited 0 without returning a value";
    assert_eq!(report.lines().next(), Some(headline));
    assert!(report.ends_with("message:\n    exited 0 without returning a value"), "{report}");
}

#[test]
fn one_failure_with_nothing_known_but_its_exit_code_has_a_hint() {
    check(
        &trainer([without_file(1, ExitKind::Code(7), 250)]),
        &expect![[r#"
            trainer FAILED: rank 1 (local rank 1, pid 4242) on node-3: exit code 7

            Root cause (first observed failure):
              time:       T+0.250s
              host:       node-3
              rank:       1 (local rank 1, role trainer)
              exit code:  7, pid 4242
              error file: none
              hint:
                no error file and no captured stderr, so the reason is not known.
                To get it next time, run the worker's main function under `record` (in Rust
                rankrun's, in Python that of torch.distributed.elastic.multiprocessing.errors),
                or keep its stderr with --tee 3 or --redirects 3."#]],
    );
}

#[test]
fn a_worker_that_captured_nothing_is_not_told_to_capture_stderr() {
    let mut failed = without_file(0, ExitKind::Code(3), 0);
    failed.stderr_captured = true;
    check(
        &trainer([failed]),
        &expect![[r#"
        trainer FAILED: rank 0 (local rank 0, pid 4241) on node-3: exit code 3

        Root cause (first observed failure):
          time:       T+0.000s
          host:       node-3
          rank:       0 (local rank 0, role trainer)
          exit code:  3, pid 4241
          error file: none
          hint:
            no error file, and nothing on stderr, so the reason is not known.
            To get it next time, run the worker's main function under `record` (in Rust
            rankrun's, in Python that of torch.distributed.elastic.multiprocessing.errors)."#]],
    );
}

#[test]
fn a_worker_that_was_stopped_after_it_had_failed_is_not_said_to_have_died_of_a_signal() {
    let mut failed = without_file(0, ExitKind::Signal { signal: Signal::TERM, core_dumped: false }, 0);
    failed.stopped = true;
    check(
        &trainer([failed]),
        &expect![[r#"
        trainer FAILED: rank 0 (local rank 0, pid 4241) on node-3: failed, and was then stopped by the launcher

        Root cause (first observed failure):
          time:       T+0.000s
          host:       node-3
          rank:       0 (local rank 0, role trainer)
          exit code:  -15 (SIGTERM), pid 4241
          meaning:    the launcher ended it, after it had recorded its error
          error file: none
          hint:
            no error file and no captured stderr, so the reason is not known.
            To get it next time, run the worker's main function under `record` (in Rust
            rankrun's, in Python that of torch.distributed.elastic.multiprocessing.errors),
            or keep its stderr with --tee 3 or --redirects 3."#]],
    );
}

#[test]
fn all_that_is_known_of_a_kill_is_told_and_who_was_stopped_is_in_one_line() {
    let mut failed = without_file(1, signal(Signal::KILL), 250);
    failed.ran = Some(Duration::from_millis(3_725_040));
    failed.memory_kills = MemoryKills::InGroup { count: 1, limit: Some(20 << 20) };
    failed.log_files = vec!["/run/1/stdout.log".into(), "/run/1/stderr.log".into()];
    (failed.stderr_captured, failed.stderr_tail) = (true, vec!["loading the model".to_owned()]);
    check(
        &trainer([failed]).with_stopped([0, 7, 2, 3, 4, 5, 6]),
        &expect![[r#"
        trainer FAILED: rank 1 (local rank 1, pid 4242) on node-3: signal 9 (SIGKILL): probably out of memory

        Root cause (first observed failure):
          time:       T+0.250s, after 1 h 2 min of running
          host:       node-3
          rank:       1 (local rank 1, role trainer)
          exit code:  -9 (SIGKILL), pid 4242
          meaning:    probably out of memory: the kernel killed 1 process of this control group meanwhile (memory limit 20 MiB)
          error file: none
          logs:       /run/1/stdout.log, stderr.log
          last lines of stderr:
            loading the model

        ranks 0,2-7: stopped by rankrun"#]],
    );
}

#[test]
fn what_a_nested_launcher_passed_on_is_told_as_that() {
    let text = r#"{"message": {"message": "loss is NaN", "extraInfo": {"pid": 77}, "errorCode": -11}}"#;
    check(
        &trainer([failure(0, ExitKind::Code(139), 0, record(text))]),
        &expect![[r#"
        trainer FAILED: rank 0 (local rank 0, pid 4241) on node-3: exit code 139: loss is NaN

        Root cause (first observed failure):
          time:       T+0.000s
          host:       node-3
          rank:       0 (local rank 0, role trainer)
          exit code:  139, pid 4241
          meaning:    a shell's code for: ended by signal 11 (SIGSEGV), invalid memory reference, often a fault in native code or a stack overflow
          inside it:  a worker of its own failed first, exit code -11
          error file: /run/0/error.json
          message:
            loss is NaN"#]],
    );
}

#[test]
fn a_record_of_another_process_is_marked_and_one_that_does_not_count_has_its_reason() {
    let text = r#"{"message": {"message": "no GPU", "extraInfo": {"pid": 77}}}"#;
    let mut ignored = failure(1, signal(Signal::SEGV), 50, ErrorFileReading::Absent);
    ignored.error_file = Some("/run/1/error.json".into());
    ignored.error_file_problem = Some("is older than the worker; it says: no\nGPU".to_owned());
    ignored.core_dump = Some("/data/core.4242".to_owned());
    check(
        &trainer([failure(0, ExitKind::Code(1), 70, record(text)), ignored]),
        &expect![[r#"
        trainer FAILED: rank 1 (local rank 1, pid 4242) on node-3: signal 11 (SIGSEGV)

        Root cause (first observed failure):
          time:       T+0.050s
          host:       node-3
          rank:       1 (local rank 1, role trainer)
          exit code:  -11 (SIGSEGV), pid 4242
          meaning:    invalid memory reference, often a fault in native code or a stack overflow
          core dump:  /data/core.4242
          error file: /run/1/error.json (not used: it is older than the worker; it says: no\nGPU)
          hint:
            no usable error file and no captured stderr, so the reason is not known.
            To get it next time, run the worker's main function under `record` (in Rust
            rankrun's, in Python that of torch.distributed.elastic.multiprocessing.errors),
            or keep its stderr with --tee 3 or --redirects 3.

        Other failures (1):
          rank 0 (local rank 0, pid 4241): exit code 1: no GPU
            at T+0.070s, error file: /run/0/error.json (by process 77, of which the worker ended)"#]],
    );
}

#[test]
fn on_a_terminal_the_headline_and_the_headings_stand_out() {
    let error = trainer([without_file(0, ExitKind::Code(3), 0), without_file(1, ExitKind::Code(4), 1)]);
    let text = error.report().with_color(true).to_string();
    let plain = error.to_string();
    assert_eq!(text.matches("\x1b[0m").count(), 3, "{text:?}");
    assert!(text.starts_with("\x1b[1;31mtrainer FAILED: rank 0"), "{text:?}");
    let without = ["\x1b[1;31m", "\x1b[1m", "\x1b[0m"].iter().fold(text, |text, code| text.replace(code, ""));
    assert_eq!(without, plain);
}

#[test]
fn of_a_worker_whose_log_may_be_incomplete_it_is_not_said_that_it_wrote_nothing() {
    let mut failed = without_file(0, ExitKind::Code(3), 0);
    (failed.stderr_captured, failed.stderr_incomplete) = (true, true);
    let text = trainer([failed]).to_string();
    assert!(!text.contains("nothing on stderr"), "{text}");
    assert!(text.contains("nothing in the log of its stderr, which may be incomplete, so the reason"), "{text}");
}

#[test]
fn one_failure_with_captured_stderr_shows_its_last_lines() {
    let mut failed = without_file(0, ExitKind::Signal { signal: Signal::ABRT, core_dumped: true }, 0);
    failed.stderr_tail = vec!["loading\u{1b}[2K".to_owned(), String::new(), "assertion failed: x > 0".to_owned()];
    check(
        &trainer([failed]),
        &expect![[r#"
            trainer FAILED: rank 0 (local rank 0, pid 4241) on node-3: signal 6 (SIGABRT), core dumped

            Root cause (first observed failure):
              time:       T+0.000s
              host:       node-3
              rank:       0 (local rank 0, role trainer)
              exit code:  -6 (SIGABRT, core dumped), pid 4241
              meaning:    the program aborted itself, often a failed assertion or an uncaught C++ exception
              error file: none
              last lines of stderr:
                loading\x1b[2K

                assertion failed: x > 0"#]],
    );
}

#[test]
fn without_stderr_the_last_lines_of_stdout_are_shown_as_such() {
    let mut failed = without_file(0, ExitKind::Code(3), 0);
    failed.stdout_tail = vec!["step 7".to_owned(), "no GPU".to_owned()];
    check(
        &trainer([failed.clone()]),
        &expect![[r#"
            trainer FAILED: rank 0 (local rank 0, pid 4241) on node-3: exit code 3, last on stdout: no GPU

            Root cause (first observed failure):
              time:       T+0.000s
              host:       node-3
              rank:       0 (local rank 0, role trainer)
              exit code:  3, pid 4241
              error file: none
              last lines of stdout:
                step 7
                no GPU
              hint:
                no error file and no captured stderr, so the reason is not known.
                To get it next time, run the worker's main function under `record` (in Rust
                rankrun's, in Python that of torch.distributed.elastic.multiprocessing.errors),
                or keep its stderr with --tee 3 or --redirects 3."#]],
    );
    (failed.stderr_captured, failed.stderr_tail) = (true, vec![String::new()]);
    assert!(trainer([failed.clone()]).to_string().contains("last on stdout: no GPU\n"), "nothing but a blank line");
    failed.stderr_tail = vec!["no disk".to_owned()];
    let text = trainer([failed]).to_string();
    assert!(text.contains("last on stderr: no disk\n") && !text.contains("no GPU"), "{text}");
}

#[test]
fn what_a_runtime_says_before_a_stack_is_in_the_headline_whatever_ended_the_worker() {
    let lines = ["thread 'main' (9) panicked at a.rs:3:5:", "no GPU", "note: run with `RUST_BACKTRACE=1` to see"];
    for (exit, how) in [(ExitKind::Code(101), "exit code 101"), (signal(Signal::ABRT), "signal 6 (SIGABRT)")] {
        let mut failed = without_file(0, exit, 0);
        failed.stderr_tail = lines.map(str::to_owned).to_vec();
        let report = trainer([failed]).to_string();
        let first = report.lines().next().unwrap();
        assert!(first.ends_with(&format!(": {how}, last on stderr: panicked at a.rs:3:5: no GPU")), "{report}");
        assert!(report.ends_with(&lines.join("\n    ")), "{report}");
    }
}

#[test]
fn the_facts_of_the_report_of_torch_are_all_there() {
    let text = include_str!("error_files/torch_exception.json");
    let mut stopped = without_file(0, signal(Signal::TERM), 6000);
    stopped.kind = FailureKind::Collateral;
    check(
        &trainer([
            stopped,
            failure(1, signal(Signal::SEGV), 10, record(text)),
            without_file(2, ExitKind::Code(3), 6000),
        ]),
        &expect![[r#"
            trainer FAILED: rank 1 (local rank 1, pid 4242) on node-3: signal 11 (SIGSEGV): ValueError: loss is NaN at step 17 — lr=0.1

            Root cause (first observed failure):
              time:       T+0.010s
              host:       node-3
              rank:       1 (local rank 1, role trainer)
              exit code:  -11 (SIGSEGV), pid 4242
              meaning:    invalid memory reference, often a fault in native code or a stack overflow
              error file: /run/1/error.json (it does not say which process wrote it)
              traceback:
                Traceback (most recent call last):
                  File "/usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 384, in wrapper
                    result = f(*args, **kwargs)
                             ^^^^^^^^^^^^^^^^^^
                  File "/home/user/w_torch.py", line 5, in main
                    raise ValueError("loss is NaN at step 17 \u2014 lr=%s" % data["lr"])
                ValueError: loss is NaN at step 17 — lr=0.1

            Other failures (1):
              rank 2 (local rank 2, pid 4243): exit code 3
                at T+6.000s

            rank 0: stopped by rankrun"#]],
    );
}

#[test]
fn of_a_record_that_may_be_of_another_process_that_is_said_and_the_workers_own_words_are_shown() {
    let torch = || record(include_str!("error_files/torch_exception.json"));
    for (exit, doubted) in [(ExitKind::Code(6), true), (signal(Signal::SEGV), true), (ExitKind::Code(1), false)] {
        let mut failure = failure(0, exit, 10, torch());
        (failure.stderr_captured, failure.stderr_tail) = (true, vec!["cannot open /dev/gpu1".to_owned()]);
        let report = trainer([failure]).to_string();
        assert!(report.contains("ValueError: loss is NaN"), "{report}");
        assert_eq!(report.contains("does not say which process wrote it"), doubted, "{report}");
        assert_eq!(report.contains("cannot open /dev/gpu1"), doubted, "{report}");
    }
}

#[test]
fn four_failures_of_four_kinds() {
    let peer = record(r#"{"message": {"message": "RuntimeError: peer closed\nconnection", "extraInfo": {}}}"#);
    let broken = ErrorFileReading::Unusable { why: UnusableErrorFile::Truncated { bytes: 44 } };
    let harmful = record(include_str!("error_files/control_characters.json"));
    check(
        &trainer([
            failure(0, ExitKind::Code(1), 300, peer),
            failure(1, ExitKind::Code(1), 100, harmful),
            failure(2, signal(Signal::KILL), 400, broken),
            without_file(3, ExitKind::Lost, 50),
        ]),
        &expect![[r#"
            trainer FAILED: rank 1 (local rank 1, pid 4242) on node-3: exit code 1: has \x1b[31mcolour\x1b[0m and \x07 bell

            Root cause (first observed failure):
              time:       T+0.100s
              host:       node-3
              rank:       1 (local rank 1, role trainer)
              exit code:  1, pid 4242
              error file: /run/1/error.json
              message:
                has \x1b[31mcolour\x1b[0m and \x07 bell
              traceback:
                line1
                line2 \x1b]0;title\x07

            Other failures (3):
              rank 0 (local rank 0, pid 4241): exit code 1: RuntimeError: peer closed...
                at T+0.300s, error file: /run/0/error.json
              rank 2 (local rank 2, pid 4243): signal 9 (SIGKILL)
                at T+0.400s, error file: /run/2/error.json (not used: it is cut off after 44 bytes, in the middle of its JSON text)
              rank 3 (local rank 3, pid 4244): exit status lost (taken by another part of the program)
                at T+0.050s"#]],
    );
}

#[test]
fn of_512_failures_equal_ones_are_shown_once() {
    let peer = || record(r#"{"message": {"message": "RuntimeError: peer closed connection"}}"#);
    let failures = (0..512).map(|rank| match rank {
        300 => failure(rank, ExitKind::Code(1), 5, record(r#"{"message": "CUDA error: device lost"}"#)),
        _ if rank % 8 == 0 => without_file(rank, signal(Signal::PIPE), 2000 + rank as u64),
        _ if rank < 256 => failure(rank, ExitKind::Code(1), 1000 + rank as u64, peer()),
        _ => {
            let mut stopped = without_file(rank, signal(Signal::TERM), 3000);
            stopped.kind = FailureKind::Collateral;
            stopped
        }
    });
    check(
        &trainer(failures),
        &expect![[r#"
            trainer FAILED: rank 300 (local rank 300, pid 4541) on node-3: exit code 1: CUDA error: device lost

            Root cause (first observed failure):
              time:       T+0.005s
              host:       node-3
              rank:       300 (local rank 300, role trainer)
              exit code:  1, pid 4541
              error file: /run/300/error.json
              message:
                CUDA error: device lost

            Other failures (288):
              ranks 1-7,9-15,17-23,25-31,33-39,41-47,49-55,57-63,65-71,73-79,81-87,89-95,97-103,105-111,113-119,121-127 and 112 more (224 workers): exit code 1: RuntimeError: peer closed connection
                first at T+1.001s, error file of rank 1: /run/1/error.json
              ranks 0,8,16,24,32,40,48,56,64,72,80,88,96,104,112,120 and 48 more (64 workers): signal 13 (SIGPIPE)
                first at T+2.000s

            ranks 257-263,265-271,273-279,281-287,289-295,297-299,301-303,305-311,313-319,321-327,329-335,337-343,345-351,353-359,361-367,369-375 and 119 more: stopped by rankrun"#]],
    );
}

#[test]
fn of_512_different_failures_the_earliest_are_shown_and_the_rest_counted() {
    let failures = (0..512).map(|rank| {
        let text = format!(r#"{{"message": "KeyError: 'sample-{rank}'"}}"#);
        failure(rank, ExitKind::Code(1), 1000 - rank as u64, record(&text))
    });
    let report = trainer(failures).to_string();
    let lines: Vec<_> = report.lines().collect();
    assert!(lines[0].starts_with("trainer FAILED: rank 511 "), "{}", lines[0]);
    assert!(lines.len() < 60, "{}", lines.len());
    assert_eq!(lines.last(), Some(&"  and 491 more, later ones: ranks 0-490"));
}

#[test]
fn failures_of_several_roles_name_their_roles() {
    let pairs = vec![
        ("trainer".to_owned(), without_file(0, ExitKind::Code(1), 20)),
        ("reader\u{7}".to_owned(), without_file(0, ExitKind::Code(127), 10)),
    ];
    check(
        &ChildFailedError::from_pairs(pairs).unwrap(),
        &expect![[r#"
            reader\x07 FAILED: rank 0 (local rank 0, pid 4241): exit code 127

            Root cause (first observed failure):
              time:       T+0.010s
              rank:       0 (local rank 0, role reader\x07)
              exit code:  127, pid 4241
              meaning:    a shell's code for: program not found
              error file: none
              hint:
                no error file and no captured stderr, so the reason is not known.
                To get it next time, run the worker's main function under `record` (in Rust
                rankrun's, in Python that of torch.distributed.elastic.multiprocessing.errors),
                or keep its stderr with --tee 3 or --redirects 3.

            Other failures (1):
              trainer rank 0 (local rank 0, pid 4241): exit code 1
                at T+0.020s"#]],
    );
}

#[test]
fn a_long_traceback_loses_its_middle_and_no_line_is_endless() {
    let stack: Vec<_> = (0..1000).map(|line| format!("  frame {line}, {}", "x".repeat(line / 999 * 9000))).collect();
    let text = rankrun_errors::ErrorRecord::new("RecursionError").with_callstack(stack.join("\n")).to_json();
    let report = trainer([failure(0, ExitKind::Code(1), 0, record(&text))]).to_string();
    assert!(report.contains("\n    ... 900 lines left out ...\n      frame 920,"));
    assert!(report.contains("frame 19,") && !report.contains("frame 20,") && report.contains("frame 999, x"));
    assert!(report.lines().all(|line| line.chars().count() < 2100));
}
