//! What people start rankrun for: ranked workers, teed lines, the first failure reported.

use std::time::Duration;

use rankrun_testkit::{Launcher, MARK, assert_no_process_left, processes_with_env};
use rankrun_tests::{has_python, program};

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn four_workers_say_hello_in_whole_lines_with_their_prefix() {
    let script = "echo hello from rank $RANK of $WORLD_SIZE";
    let output = Launcher::rankrun().args(["-n", "4", "--tee", "3", "sh", "-c", script]).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(0), "{}", output.stderr_text());
    let expected: Vec<String> = (0..4).map(|rank| format!("[default{rank}]:hello from rank {rank} of 4")).collect();
    assert_eq!(output.sorted_stdout_lines(), expected);
}

#[test]
fn the_first_failure_ends_the_run_at_once_with_its_code_and_a_report() {
    let script = "test $RANK = 1 && exit 7; exec sleep 600";
    let launcher = Launcher::rankrun().args(["-n", "3", "sh", "-c", script]);
    let mark = launcher.mark().to_owned();
    let output = launcher.run_with_timeout(LIMIT);
    assert!(processes_with_env(MARK, &mark).is_empty(), "no process is left when rankrun ends");
    assert_eq!(output.code, Some(7));
    let report = output.stderr_text();
    let first = report.lines().next().unwrap();
    assert!(first.contains("rank 1") && first.contains("pid ") && first.contains("exit code 7"), "{report}");
    assert!(!report.contains("rank 0") && !report.contains("rank 2"), "who was stopped is not blamed: {report}");
}

#[test]
fn workers_get_the_whole_environment_of_torchrun() {
    let script = r#"echo $LOCAL_RANK $RANK $LOCAL_WORLD_SIZE $WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $ROLE_NAME \
        $ROLE_RANK $ROLE_WORLD_SIZE $MASTER_ADDR $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS
        test -n "$TORCHELASTIC_RUN_ID" && test "$MASTER_PORT" -gt 1023 && test -d "$(dirname $TORCHELASTIC_ERROR_FILE)""#;
    let launcher = Launcher::rankrun().env_remove("MASTER_ADDR").env_remove("MASTER_PORT");
    let output = launcher.args(["-n", "2", "--role", "trainer", "sh", "-c", script]).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(0), "{}", output.stderr_text());
    let expected: Vec<String> = (0..2).map(|r| format!("{r} {r} 2 2 0 1 trainer {r} 2 127.0.0.1 0 0")).collect();
    assert_eq!(output.sorted_stdout_lines(), expected);
}

#[test]
fn python_ranks_meet_at_the_master_and_sum_a_number() {
    if !has_python("ranks that meet at the master") {
        return;
    }
    let launcher = Launcher::rankrun().args(["-n", "4", "-t", "3", "python3"]).arg(program("sum.py"));
    let mark = launcher.mark().to_owned();
    let output = launcher.run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(0), "{}", output.stderr_text());
    let expected: Vec<String> = (0..4).map(|r| format!("[default{r}]:rank {r} of 4: the sum is 10")).collect();
    assert_eq!(output.sorted_stdout_lines(), expected);
    assert_no_process_left(MARK, &mark);
}

#[test]
fn many_ranks_writing_at_once_tear_no_line() {
    let script = "i=0; while [ $i -lt 500 ]; do echo \"line $i of rank $RANK is whole\"; i=$((i+1)); done";
    let output = Launcher::rankrun().args(["-n", "8", "-t", "1", "sh", "-c", script]).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(0), "{}", output.stderr_text());
    let text = output.stdout_text();
    let mut next = [0; 8];
    for line in text.lines() {
        let rank: usize = line.strip_prefix("[default").and_then(|rest| rest.get(..1)).unwrap().parse().unwrap();
        assert_eq!(line, format!("[default{rank}]:line {} of rank {rank} is whole", next[rank]));
        next[rank] += 1;
    }
    assert_eq!(next, [500; 8]);
}

#[test]
fn workers_without_redirect_write_where_rankrun_writes() {
    let output = Launcher::rankrun().args(["-n", "2", "sh", "-c", "echo out; echo err >&2"]).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(0));
    assert_eq!((output.stdout_text().as_str(), output.stderr_text().as_str()), ("out\nout\n", "err\nerr\n"));
}

#[test]
fn a_reader_that_goes_away_ends_the_tee_and_not_the_job() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let dir = tempfile::tempdir().unwrap();
    let script = "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; echo done > \"$OUT/$RANK\"";
    let launcher = Launcher::rankrun().args(["-n", "2", "-t", "1", "sh", "-c", script]).env("OUT", dir.path());
    let output = launcher.stdout(writer).run_with_timeout(LIMIT);
    assert_eq!(output.code, Some(0), "{}", output.stderr_text());
    assert!(dir.path().join("0").exists() && dir.path().join("1").exists(), "both workers ran to their end");
}
