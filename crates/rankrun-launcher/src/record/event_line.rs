//! A line of the event log: [`EventLine`]. Not here: writing it (`event_log`).

use std::time::SystemTime;

use rankrun::{GroupEvent, GroupEventKind, PerRank, SignalTarget};
use serde::Serialize;

use super::run_record::{CauseClass, ExitRecord, RecordState};
use super::time;

/// Something that happened, as a line of JSON. What does not apply to an event is left out.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct EventLine {
    #[serde(with = "time")]
    pub(crate) time: SystemTime,
    pub(crate) event: &'static str,
    pub(crate) run_id: String,
    pub(crate) role: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<u64>,
    #[serde(flatten)]
    pub(crate) details: Details,
}

/// What an event says beyond time, name and run.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Details {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) local_rank: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rank: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit: Option<ExitRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<CauseClass>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) quiet_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pause_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<RecordState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

impl Details {
    fn worker(local_rank: usize, pid: u32, ranks: &PerRank<usize>) -> Self {
        let rank = ranks.get(local_rank).copied();
        Self { local_rank: Some(local_rank), rank, pid: Some(pid), ..Self::default() }
    }
}

/// The name and the details of a group's event; `None` for one of a later version.
pub(crate) fn of_group(event: &GroupEvent, ranks: &PerRank<usize>) -> Option<(&'static str, Details)> {
    Some(match &event.kind {
        GroupEventKind::Started { local_rank, pid } => ("started", Details::worker(*local_rank, *pid, ranks)),
        GroupEventKind::Exited { local_rank, pid, exit, cause } => {
            let worker = Details::worker(*local_rank, *pid, ranks);
            ("exited", Details { exit: Some((*exit).into()), cause: Some((*cause).into()), ..worker })
        }
        GroupEventKind::StopBegan { reason } => {
            ("stop", Details { reason: Some(reason.to_string()), ..Details::default() })
        }
        GroupEventKind::Stalled { quiet } => {
            ("stalled", Details { quiet_seconds: Some(quiet.as_secs_f64()), ..Details::default() })
        }
        GroupEventKind::SignalSent { to, signal, reason } => {
            let (target, details) = match to {
                SignalTarget::Worker { local_rank, pid } => ("worker", Details::worker(*local_rank, *pid, ranks)),
                SignalTarget::Group { local_rank, pid } => ("group", Details::worker(*local_rank, *pid, ranks)),
                SignalTarget::Stray { pid } => ("stray", Details { pid: Some(*pid), ..Details::default() }),
                _ => return None,
            };
            let reason = reason.map(|reason| reason.to_string());
            ("signal", Details { target: Some(target), signal: Some(signal.name()), reason, ..details })
        }
        GroupEventKind::Ended { state } => {
            ("attempt_ended", Details { state: Some((*state).into()), ..Details::default() })
        }
        _ => return None,
    })
}
