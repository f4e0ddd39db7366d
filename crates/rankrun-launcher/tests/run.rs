//! Runs with restarts, real processes and signals. Each test proves that none is left.

#![expect(clippy::unwrap_used, reason = "clippy knows test functions, not their helpers")]

use std::path::Path;
use std::time::{Duration, Instant};

use rankrun::{RunState, StartProcessesError, Std};
use rankrun_launcher::{
    Attempt, Backoff, Decision, Launch, Observer, Outcome, RestartPolicy, Started, Surroundings, Topology, Verdict,
};
use rankrun_testkit::{assert_no_process_left, unique_id};

const MARK: &str = "RANKRUN_TEST_MARK";

/// A run of a shell script whose processes have a mark.
fn run(script: &str, mark: &str, change: impl FnOnce(Launch) -> Launch) -> Outcome {
    let mark = mark.to_owned();
    let launch = Launch::new("test", "sh", Topology::one_node(2)).args(["-c", script]);
    let plan = change(launch).plan(&Surroundings::of_this_process()).unwrap();
    let of_group = mark.clone();
    let outcome = plan.shape(move |group| group.env(MARK, &of_group)).run(&mut ()).unwrap();
    assert_no_process_left(MARK, &mark);
    outcome
}

fn policy(max_restarts: u32) -> RestartPolicy {
    RestartPolicy { max_restarts, ..RestartPolicy::default() }
}

fn states(outcome: &Outcome) -> Vec<(u64, RunState)> {
    outcome.attempts.iter().map(|attempt| (attempt.restart_count, attempt.result.state)).collect()
}

#[test]
fn a_group_is_started_again_as_a_whole_until_it_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    // Only rank 1 fails, and only twice; each attempt says who was there.
    let script = "echo $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS at $MASTER_PORT
                  test $RANK = 0 || test $TORCHELASTIC_RESTART_COUNT = 2 || exit 3";
    let outcome =
        run(script, &unique_id("again"), |launch| launch.max_restarts(5).log_dir(dir.path()).redirects(Std::OUT));
    assert_eq!(states(&outcome), [(0, RunState::Failed), (1, RunState::Failed), (2, RunState::Succeeded)]);
    assert_eq!((outcome.verdict, outcome.signal), (Verdict::Succeeded, None));
    let run_dir = outcome.last().run_dir.clone().unwrap();
    let mut ports = Vec::new();
    for attempt in 0..3 {
        let read = |rank: usize| {
            let log = run_dir.join(format!("attempt_{attempt}/{rank}/stdout.log"));
            std::fs::read_to_string(log).unwrap()
        };
        assert!(read(0).is_empty() || read(0) == read(1), "the ranks of an attempt meet at the same port");
        let line = read(1);
        let (count, port) = line.trim().split_once(" of 5 at ").unwrap();
        assert_eq!(count, attempt.to_string());
        ports.push(port.to_owned());
    }
    ports.dedup();
    assert!(ports.len() > 1, "later attempts look for another free port: {ports:?}");
}

#[test]
fn a_group_that_may_not_be_started_again_is_not_and_the_verdict_says_why() {
    let short = Duration::from_secs(3600);
    for (policy, code, attempts, verdict) in [
        (policy(0), 3, 1, Verdict::NoRestartsLeft { max_restarts: 0 }),
        (policy(2), 3, 3, Verdict::NoRestartsLeft { max_restarts: 2 }),
        (RestartPolicy { never_on: "2,64-78".parse().unwrap(), ..policy(2) }, 65, 1, Verdict::NeverOn { code: 65 }),
    ] {
        let outcome = run(&format!("exit {code}"), &unique_id("never"), |launch| launch.restart(policy));
        assert_eq!((outcome.attempts.len(), outcome.verdict), (attempts, verdict));
        assert_eq!(outcome.last().result.state, RunState::Failed);
    }
    let policy = RestartPolicy { min_uptime: short, ..policy(2) };
    let outcome = run("exit 1", &unique_id("short"), |launch| launch.restart(policy));
    assert!(matches!(outcome.verdict, Verdict::TooShort { min_uptime, .. } if min_uptime == short), "{outcome:?}");
    assert!(outcome.verdict.to_string().contains("sooner than the 3600 s"), "{}", outcome.verdict);
}

#[test]
fn the_uptime_is_that_to_the_first_failure_not_to_the_end_of_the_stop() {
    // Rank 0 takes its time to end, which rank 1 must not gain by.
    let script = "if [ $RANK = 0 ]; then trap 'sleep 2; exit 0' TERM; touch $FLAG; while :; do sleep 0.05; done; fi
                  while [ ! -e $FLAG ]; do sleep 0.02; done; exit 1";
    let dir = tempfile::tempdir().unwrap();
    let script = format!("FLAG={}\n{script}", dir.path().join("flag").display());
    let policy = RestartPolicy { min_uptime: Duration::from_millis(1900), ..policy(1) };
    let began = Instant::now();
    let outcome = run(&script, &unique_id("uptime"), |launch| launch.restart(policy));
    assert!(matches!(outcome.verdict, Verdict::TooShort { .. }), "{:?}", outcome.verdict);
    assert!(began.elapsed() > Duration::from_secs(2));
}

/// Writes down what it is told.
#[derive(Default)]
struct Diary(Vec<String>);

impl Observer for Diary {
    fn started(&mut self, started: &Started<'_>) {
        assert!(started.run_dir.is_some_and(|dir| dir.is_dir()));
        self.0.push(format!("{} started: {}", started.restart_count, started.pids.len()));
    }

    fn ended(&mut self, attempt: &Attempt, next: &Decision) {
        let next = match next {
            Decision::Restart { .. } => "again".to_owned(),
            Decision::End(verdict) => verdict.to_string(),
        };
        self.0.push(format!("{} {}: {next}", attempt.restart_count, attempt.result.state));
    }
}

#[test]
fn an_observer_is_told_of_each_attempt_and_pauses_are_kept() {
    let topology = Topology { restart_count: 7, ..Topology::one_node(1) };
    let backoff = Backoff { first: Duration::from_millis(300), most: Duration::from_secs(1) };
    let plan = Launch::new("test", "false", topology).restart(RestartPolicy { backoff, ..policy(1) });
    let mut diary = Diary::default();
    let began = Instant::now();
    let plan = plan.plan(&Surroundings::of_this_process()).unwrap();
    plan.run(&mut diary).unwrap();
    assert!(began.elapsed() >= backoff.first, "{:?}", began.elapsed());
    let expected = ["7 started: 1", "7 FAILED: again", "8 started: 1", "8 FAILED: the one restart is used up"];
    assert_eq!(diary.0, expected);
}

#[test]
fn an_attempt_that_cannot_start_is_not_tried_again_and_the_others_before_it_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("once");
    std::fs::write(&program, "#!/bin/sh\nrm \"$0\"\nexit 1\n").unwrap();
    make_executable(&program);
    let plan = Launch::new("test", &program, Topology::one_node(1)).max_restarts(3);
    let error = plan.plan(&Surroundings::of_this_process()).unwrap().run(&mut ()).unwrap_err();
    assert_eq!(error.attempts.len(), 1);
    assert!(matches!(*error.source, StartProcessesError::Start(_)), "{error}");
    assert!(error.to_string().contains("No such file"), "{error}");
}

fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
