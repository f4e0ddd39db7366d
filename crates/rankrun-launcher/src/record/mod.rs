//! What is written down of a run for other programs: `result.json` in its directory ([`Recorder`], [`RunRecord`], of all nodes
//! [`JobRecord`]) and a line for each thing that happens ([`EventLog`]). Not here: log files and `run.json` (`rankrun-logs`), reports for people.

mod event_line;
mod event_log;
mod file;
mod job;
mod job_report;
mod peer;
mod recorder;
mod run_record;
mod starts;
mod time;

pub use event_log::{EventFeed, EventLog, EventLogError, EventTarget};
pub use file::{RESULT_FILE, RecordError};
pub use job::{JobFailure, JobPart, JobRecord, JobRecordError};
pub use recorder::{Recorder, RunDescription, RunEnd};
pub use run_record::{
    AttemptRecord, CauseClass, ExitRecord, ProcessRecord, RecordState, RunRecord, SCHEMA_VERSION, StallRecord,
    StalledProcessRecord, WorkerRecord,
};

/// The JSON Schema of `result.json`.
pub const RESULT_SCHEMA: &str = include_str!("../../schemas/result.schema.json");

/// The JSON Schema of a [`JobRecord`]; its `results` are as [`RESULT_SCHEMA`] says.
pub const JOB_SCHEMA: &str = include_str!("../../schemas/job.schema.json");

/// The JSON Schema of a line of the event log.
pub const EVENT_SCHEMA: &str = include_str!("../../schemas/event.schema.json");
