//! The library from outside: start, poll, wait, close, drop, with real processes. Each test proves that none is left.

#![expect(clippy::unwrap_used, reason = "clippy knows test functions, not their helpers")]

use std::io::Read;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rankrun::{
    Cause, ChildFailedError, Consoles, Entrypoint, ExitKind, PContext, RunProcsResult, RunState, Signal, StartError,
    StartProcessesError, Std, WaitError, WorkerGroup, start_processes,
};
use rankrun_testkit::{
    assert_no_process_with_cookie, eventually, process_state, processes_with_cookie, processes_with_env, unique_id,
};

const SOON: Duration = Duration::from_secs(20);

fn shell(n: usize, script: &str) -> WorkerGroup {
    WorkerGroup::new("test", Entrypoint::binary("sh"), n).args(["-c", script])
}

fn result(context: &PContext) -> Arc<RunProcsResult> {
    context.wait(Some(SOON)).unwrap().expect("a result within 20 s")
}

/// A group whose workers have all come as far as writing to their standard output.
fn ready(n: usize, script: &str) -> (PContext, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let context = start_processes(shell(n, script).redirects(Std::OUT).log_dir(dir.path())).unwrap();
    eventually("each worker has written", SOON, || {
        let mut logs = Vec::new();
        find(dir.path(), "stdout.log", &mut logs);
        logs.len() == n && logs.iter().all(|log| !std::fs::read(log).unwrap().is_empty())
    });
    (context, dir)
}

fn find(dir: &std::path::Path, name: &str, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        match entry.path() {
            // Not through `latest`, which is a link to one of them.
            path if entry.file_type().unwrap().is_dir() => find(&path, name, found),
            path if path.ends_with(name) => found.push(path),
            _ => {}
        }
    }
}

#[test]
fn workers_that_exit_0_make_a_success_with_times_and_resources() {
    let context = start_processes(shell(3, "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done")).unwrap();
    let result = result(&context);
    assert_eq!(result.state, RunState::Succeeded);
    assert!(!result.is_failed() && result.failures.is_empty() && result.drained);
    for (local_rank, worker) in result.workers.iter() {
        assert_eq!((worker.exit, worker.cause), (Some(ExitKind::Code(0)), Cause::Succeeded));
        assert_eq!(worker.pid, Some(context.pids().unwrap()[local_rank]));
        assert!(worker.started.unwrap() < worker.ended.unwrap());
        assert!(worker.user_time + worker.system_time > Duration::ZERO && worker.peak_memory > 100_000, "{worker:?}");
        assert_eq!(result.return_values[local_rank], None);
    }
    assert_eq!(context.poll().unwrap(), result, "the result stays the same");
    assert_no_process_with_cookie(context.cookie());
}

#[test]
fn the_first_failure_ends_the_others_which_are_collateral() {
    let context = start_processes(shell(3, "test $LOCAL_RANK = 1 && exit 7; exec sleep 600")).unwrap();
    let start = Instant::now();
    let result = result(&context);
    assert!(start.elapsed() < Duration::from_secs(5), "well before the grace of 30 s");
    assert_eq!(result.state, RunState::Failed);
    assert_eq!(result.failures.keys().collect::<Vec<_>>(), [&1]);
    assert_eq!(result.failures[&1].exitcode, 7);
    let causes: Vec<Cause> = result.workers.values().iter().map(|worker| worker.cause).collect();
    assert_eq!(causes, [Cause::Collateral, Cause::Failed, Cause::Collateral]);
    let killed = ExitKind::Signal { signal: Signal::TERM, core_dumped: false };
    assert_eq!(result.workers[0].exit, Some(killed));
    assert_no_process_with_cookie(context.cookie());
}

#[test]
fn an_error_file_becomes_the_failures_message_and_the_last_words_are_kept() {
    let script = r#"echo '{"message": "loss is NaN"}' > "$TORCHELASTIC_ERROR_FILE"; echo last words >&2; exit 1"#;
    let dir = tempfile::tempdir().unwrap();
    let context = start_processes(shell(1, script).redirects(Std::ERR).log_dir(dir.path())).unwrap();
    let result = result(&context);
    let failure = &result.failures[&0];
    assert_eq!(failure.message, "loss is NaN");
    assert_eq!(failure.stderr_tail, ["last words"]);
    let report = ChildFailedError::new("test", result.failures.clone()).unwrap().to_string();
    assert!(report.contains("loss is NaN"), "{report}");
}

#[test]
fn a_worker_that_failed_before_the_stop_reached_it_is_a_failure_however_it_ended() {
    // Rank 1 records its error, then waits to be stopped; rank 0 fails after that.
    let script = r#"
        if [ $LOCAL_RANK = 1 ]; then
            echo '{"message": "the real cause"}' > "$TORCHELASTIC_ERROR_FILE"; touch "$FLAG"; exec sleep 600
        fi
        while [ ! -e "$FLAG" ]; do :; done; sleep 0.1; exit 3"#;
    let dir = tempfile::tempdir().unwrap();
    let context = start_processes(shell(2, script).env("FLAG", dir.path().join("flag"))).unwrap();
    let result = result(&context);
    assert_eq!(result.workers[1].cause, Cause::Failed);
    let error = ChildFailedError::new("test", result.failures.clone()).unwrap();
    assert_eq!(error.get_first_failure().0, 1);
    assert_eq!(error.get_first_failure().1.message, "the real cause");
}

#[test]
fn a_program_that_is_missing_at_rank_2_leaves_no_worker_and_is_named() {
    let mark = unique_id("missing");
    // By a directory that only rank 2's PATH lacks.
    let path = std::env::var("PATH").unwrap();
    let group = WorkerGroup::new("test", Entrypoint::binary("sleep"), 4)
        .args(["600"])
        .env("TEST_MARK", &mark)
        .envs_by_rank(|rank| [("PATH", if rank == 2 { "/nowhere".to_owned() } else { path.clone() })]);
    let error = start_processes(group).unwrap_err();
    assert!(processes_with_env("TEST_MARK", &mark).is_empty(), "gone before the error is returned");
    assert_eq!(error.to_string(), "local rank 2: cannot start `sleep`: exec: No such file or directory (os error 2)");
}

#[test]
fn an_environment_too_large_names_the_rank_and_the_largest_variables() {
    let group = shell(2, "exit 0").envs_by_rank(|rank| [("HUGE", "x".repeat(if rank == 1 { 3 << 20 } else { 1 }))]);
    let error = start_processes(group).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("local rank 1: ") && text.contains("HUGE (3145734 bytes)"),
        "{}",
        &text[..text.len().min(300)]
    );
    assert!(matches!(error, StartProcessesError::Start(StartError::Worker { local_rank: 1, .. })));
}

#[test]
fn poll_never_blocks_and_a_wait_with_timeout_comes_back_empty() {
    let context = start_processes(shell(2, "exec sleep 600")).unwrap();
    assert!(context.poll().is_none());
    let start = Instant::now();
    assert!(context.wait(Some(Duration::from_millis(50))).unwrap().is_none());
    assert!(start.elapsed() >= Duration::from_millis(50));
    let result = context.close(None, SOON).unwrap();
    assert_eq!(result.state, RunState::Stopped);
    assert!(!result.is_failed());
    assert_no_process_with_cookie(context.cookie());
}

#[test]
fn the_descriptor_is_readable_once_the_result_is_there() {
    let context = start_processes(shell(1, "exec sleep 600")).unwrap();
    let readable = || {
        let mut fds = [nix::poll::PollFd::new(context.as_fd(), nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut fds, nix::poll::PollTimeout::ZERO).unwrap() == 1
    };
    assert!(!readable());
    context.request_stop(Signal::TERM, SOON);
    eventually("the context is readable", SOON, readable);
    assert!(context.poll().is_some());
    assert!(readable(), "and stays so");
}

#[test]
fn who_ignores_the_death_signal_is_killed_when_the_grace_is_over() {
    let (context, _dir) = ready(3, "trap '' TERM; echo ready; while :; do sleep 600; done");
    let start = Instant::now();
    let result = context.close(None, Duration::from_millis(200)).unwrap();
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_millis(200) && elapsed < Duration::from_secs(5), "{elapsed:?}");
    let killed = ExitKind::Signal { signal: Signal::KILL, core_dumped: false };
    assert!(result.workers.values().iter().all(|worker| worker.exit == Some(killed)));
    assert_no_process_with_cookie(context.cookie());
}

#[test]
fn a_second_stop_request_kills_at_once() {
    let (context, _dir) = ready(2, "trap '' TERM; echo ready; while :; do sleep 600; done");
    context.request_stop(Signal::TERM, Duration::from_secs(600));
    context.request_stop(Signal::TERM, Duration::from_secs(600));
    assert_eq!(result(&context).state, RunState::Stopped);
    assert_no_process_with_cookie(context.cookie());
}

#[test]
fn a_stopped_worker_costs_no_grace() {
    let context = start_processes(shell(1, "kill -STOP $$; exit 5")).unwrap();
    let pid = i32::try_from(context.pids().unwrap()[0]).unwrap();
    eventually("the worker is stopped", SOON, || process_state(pid) == Some('T'));
    let start = Instant::now();
    context.close(None, Duration::from_secs(600)).unwrap();
    assert!(start.elapsed() < SOON);
}

#[test]
fn processes_that_a_worker_leaves_in_its_group_end_with_the_group() {
    // The child that ignores SIGTERM is there before its leader exits 0.
    let script = "(trap '' TERM; echo up > \"$FLAG\"; while :; do sleep 600; done) & while [ ! -s \"$FLAG\" ]; do :; done; exit 0";
    let dir = tempfile::tempdir().unwrap();
    let group = shell(1, script).env("FLAG", dir.path().join("flag")).grace(Duration::from_millis(200));
    let context = start_processes(group).unwrap();
    let result = result(&context);
    assert_eq!(result.state, RunState::Succeeded);
    assert_no_process_with_cookie(context.cookie());
}

#[test]
fn a_context_that_is_dropped_leaves_nothing() {
    let context = start_processes(shell(2, "exec sleep 600")).unwrap();
    let cookie = context.cookie().to_owned();
    assert_eq!(processes_with_cookie(&cookie).len(), 2);
    drop(context);
    assert!(processes_with_cookie(&cookie).is_empty(), "gone when drop returns");
}

#[test]
fn a_context_that_was_not_started_says_so_and_one_starts_only_once() {
    let mut context = PContext::new(shell(1, "exit 0").into_spec().unwrap()).unwrap();
    assert!(context.poll().is_none() && context.pids().is_none());
    assert!(matches!(context.wait(None), Err(WaitError::NotStarted { .. })));
    assert!(context.close(None, SOON).is_none());
    context.start().unwrap();
    assert!(matches!(context.start(), Err(StartError::AlreadyStarted { .. })));
    assert!(!result(&context).is_failed());
}

#[test]
fn teed_lines_arrive_whole_with_their_prefix_and_the_files_are_exact() {
    let dir = tempfile::tempdir().unwrap();
    let (mut out, out_end) = std::io::pipe().unwrap();
    let (mut err, err_end) = std::io::pipe().unwrap();
    let group = shell(2, "printf 'a\\nb'; printf 'e\\n' >&2")
        .tee(Std::ALL)
        .log_dir(dir.path())
        .consoles(Consoles { stdout: out_end.into(), stderr: err_end.into() });
    let context = start_processes(group).unwrap();
    let result = result(&context);
    drop(context);
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[test0]:a", "[test0]:b", "[test1]:a", "[test1]:b"]);
    assert_eq!(std::fs::read(result.stdouts[1].as_ref().unwrap()).unwrap(), b"a\nb");
    let mut text = String::new();
    err.read_to_string(&mut text).unwrap();
    assert_eq!(text.lines().count(), 2);
}

#[test]
fn a_console_that_nobody_reads_holds_up_neither_workers_nor_the_result() {
    let dir = tempfile::tempdir().unwrap();
    let (_unread, end) = std::io::pipe().unwrap();
    let policy = rankrun::StopPolicy { drain: Duration::from_millis(200), ..rankrun::StopPolicy::default() };
    let group = shell(2, "head -c 300000 /dev/zero | tr '\\0' '\\n'; test $LOCAL_RANK = 1 && exit 9; exec sleep 600")
        .tee(Std::OUT)
        .log_dir(dir.path())
        .stop_policy(policy)
        .consoles(Consoles { stdout: end.try_clone().unwrap().into(), stderr: end.into() });
    let context = start_processes(group).unwrap();
    let result = result(&context);
    assert_eq!(result.failures[&1].exitcode, 9);
    assert!(!result.drained);
    assert_eq!(std::fs::metadata(result.stdouts[1].as_ref().unwrap()).unwrap().len(), 300_000);
    assert_no_process_with_cookie(context.cookie());
}

#[test]
fn a_forwarded_signal_reaches_the_workers_and_the_group_goes_on() {
    let (context, dir) = ready(2, "trap 'echo got >&2; exit 0' USR1; echo ready; while :; do sleep 0.05; done");
    context.forward_signal(Signal::USR1);
    assert_eq!(result(&context).state, RunState::Succeeded);
    drop(dir);
}
