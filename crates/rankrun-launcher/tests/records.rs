//! The records of a run with a restart: `result.json` and the event log tell of both attempts. That they are as their
//! schemas say is tested on the command.

use std::time::Duration;

use rankrun::PerRank;
use rankrun_launcher::{
    Attempt, CauseClass, Decision, EVENT_SCHEMA, EventLog, EventTarget, Launch, Observer, RESULT_SCHEMA, RecordState,
    Recorder, RunDescription, RunEnd, RunRecord, Started, Surroundings, Topology,
};
use rankrun_testkit::schema_violations;
use serde_json::Value;

struct Both(Recorder, EventLog);

impl Observer for Both {
    fn started(&mut self, started: &Started<'_>) {
        self.0.started(started);
    }

    fn ended(&mut self, attempt: &Attempt, next: &Decision) {
        self.0.ended(attempt, next);
        self.1.ended(attempt, next);
    }
}

#[test]
fn both_attempts_of_a_run_that_was_started_again_are_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("events.jsonl");
    let run = RunDescription {
        run_id: "job".into(),
        role: "trainer".into(),
        command: vec!["sh".into()],
        ranks: PerRank::from_fn(2, |local_rank| local_rank + 8),
        nodes: 5,
        node_rank: 4,
        restart_count: 0,
    };
    let events = EventLog::open(&EventTarget::File(log.clone()), &run, 0).unwrap();
    let feed = events.feed();
    let plan = Launch::new("trainer", "sh", Topology::one_node(2))
        .args(["-c", "test $TORCHELASTIC_RESTART_COUNT = 1"])
        .log_dir(dir.path().join("logs"))
        .max_restarts(3)
        .plan(&Surroundings::of_this_process())
        .unwrap()
        .shape(move |group| group.events(feed.next_attempt()).settle_time(Duration::from_secs(60)));
    let mut both = Both(Recorder::new(run), events);
    let outcome = plan.run(&mut both).unwrap();
    let run_dir = outcome.last().run_dir.clone().unwrap();
    assert_eq!(RunRecord::read(&run_dir).unwrap().state, RecordState::Running, "the end is not said yet");
    let Both(mut recorder, events) = both;
    let end = RunEnd { exit_code: Some(0), ..RunEnd::default() };
    recorder.end(end.clone());
    events.finish(recorder.record().state, &end, Duration::from_secs(60));
    recorder.finish(None);

    let text = std::fs::read_to_string(run_dir.join("result.json")).unwrap();
    let (schema, value): (Value, Value) =
        (serde_json::from_str(RESULT_SCHEMA).unwrap(), serde_json::from_str(&text).unwrap());
    assert_eq!(schema_violations(&schema, &value), [""; 0], "{text}");
    let record = RunRecord::read(&run_dir).unwrap();
    let states: Vec<_> = record.attempts.iter().map(|attempt| (attempt.attempt, attempt.state)).collect();
    assert_eq!(states, [(0, RecordState::Failed), (1, RecordState::Succeeded)]);
    assert_eq!(record.state, RecordState::Succeeded);
    assert_eq!(record.attempts[1].workers[1].rank, 9);
    let roots = record.attempts[0].workers.iter().filter(|worker| worker.cause == CauseClass::Root);
    assert_eq!(roots.count(), 1, "two failed, one is the root: {record:?}");

    let schema: Value = serde_json::from_str(EVENT_SCHEMA).unwrap();
    let events: Vec<Value> =
        std::fs::read_to_string(&log).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.iter().all(|event| schema_violations(&schema, event).is_empty()), "{events:#?}");
    let told = |name: &str| -> Vec<&Value> { events.iter().filter(|event| event["event"] == name).collect() };
    let attempts: Vec<_> = told("started").iter().map(|event| event["attempt"].as_u64().unwrap()).collect();
    assert_eq!(attempts, [0, 0, 1, 1]);
    assert_eq!((told("restart").len(), &told("restart")[0]["attempt"]), (1, &1.into()));
    assert_eq!(events.last().unwrap()["event"], "result");
}
