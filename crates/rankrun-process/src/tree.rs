//! What a group's workers started and left: [`Tree`]. Not here: when to look and what to send (`rankrun-context`).
//!
//! A process belongs to the tree if it is in the group's control group, if it carries the group's cookie in its
//! environment and runs in no other batch job, if its session is that of a worker, or if its parent belongs to the tree. Where this program exists for one group only, and orphans come to it,
//! every child that it did not start itself belongs to the tree as well. Nothing else is ever touched.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};

use rankrun_types::{Signal, env};

use crate::ControlGroup;
use crate::sys::{self, Whom};
use crate::table::{self, Entry, Epoch};

/// Slurm's number for a job, which all that runs in it has.
pub(crate) const JOB: &str = "SLURM_JOB_ID";

/// Which orphans come to this program, and which of them are a group's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Orphans {
    /// None: they go to init, where only the control group or the cookie in their environment tells whose they are.
    #[default]
    Leave,
    /// All of its descendants'; those in the group's control group, with the cookie, a worker's session or a parent in the
    /// tree are the group's.
    Adopt,
    /// All of its descendants'; each is the group's, because this program starts nothing else.
    Own,
}

/// Makes this program the one that orphans among its descendants come to. Affects the whole process, and stays.
///
/// Mirrors `PR_SET_CHILD_SUBREAPER` of prctl(2). Idempotent.
///
/// # Errors
/// The errno of prctl(2), as an [`io::Error`].
pub fn become_subreaper() -> io::Result<()> {
    // SAFETY: takes integers.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A process of the tree, held so that no signal can reach another one.
#[derive(Debug)]
pub struct Member {
    entry: Entry,
    /// `None` where there are no pidfds: then the start time is compared before each signal.
    pidfd: Option<OwnedFd>,
}

impl Member {
    /// Takes hold of the process that `entry` describes, if it is still that one.
    fn hold(entry: Entry) -> Option<Self> {
        let pidfd = if sys::has_pidfd() { Some(sys::pidfd_open(entry.pid).ok()?) } else { None };
        let member = Self { entry, pidfd };
        // Read again now that the pidfd holds it: the pid may have got a new owner in between.
        member.is_same().then_some(member)
    }

    /// Takes hold of a process of the control group where /proc tells nothing about it.
    fn hold_listed(pid: u32, group: &ControlGroup) -> Option<Self> {
        if !sys::has_pidfd() {
            return None;
        }
        let pidfd = Some(sys::pidfd_open(pid).ok()?);
        // Whoever has the number now is in the group. If that is not the one that is held, the one that is held has ended.
        let unknown = || Entry {
            pid,
            name: "name unknown".to_owned(),
            state: '?',
            parent: 0,
            group: 0,
            session: 0,
            start_time: 0,
        };
        group.pids().contains(&pid).then(|| Self { entry: unknown(), pidfd })
    }

    fn is_same(&self) -> bool {
        Entry::of(self.entry.pid).is_some_and(|now| now.start_time == self.entry.start_time)
    }

    /// Its process id, for showing.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.entry.pid
    }

    /// Its name, as ps(1) shows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// What tells it from any other process since the boot: its pid and start time.
    #[must_use]
    pub fn identity(&self) -> (u32, u64) {
        (self.entry.pid, self.entry.start_time)
    }

    /// Sends it a signal; `false` if that failed, because it has ended or is not ours to signal.
    pub fn signal(&self, signal: Signal) -> bool {
        match &self.pidfd {
            Some(pidfd) => sys::pidfd_signal(pidfd.as_fd(), signal.as_raw()).is_ok(),
            None => self.is_same() && sys::kill(self.entry.pid, signal.as_raw()).is_ok(),
        }
    }

    /// Reaps it if it has ended and is this program's child; `false` while it has to be kept for that. Never blocks.
    ///
    /// Never reaps another process.
    #[must_use]
    pub fn reap(&self) -> bool {
        let whom = match &self.pidfd {
            Some(pidfd) => Whom::Pidfd(pidfd.as_fd()),
            None if self.is_same() => Whom::Pid(self.entry.pid),
            None => return true,
        };
        match sys::waitid(whom, libc::WNOHANG) {
            Ok(ended) => ended.is_some(),
            // Not our child: not any more, or not yet.
            Err(_) => !self.is_same(),
        }
    }
}

/// The children that this program had before it started any for a group: a shell that had them became this program by exec.
///
/// They are never reaped, so that their numbers stay theirs.
fn earlier_children() -> &'static BTreeSet<u32> {
    static CHILDREN: OnceLock<BTreeSet<u32>> = OnceLock::new();
    CHILDREN.get_or_init(|| table::own_children().unwrap_or_default().into_iter().collect())
}

/// The tree of one group.
#[derive(Debug, Clone)]
pub struct Tree {
    cookie: String,
    orphans: Orphans,
    /// The sessions that its workers lead; a number stays taken while the session has a member.
    sessions: BTreeSet<u32>,
    /// Children of this program that are not the group's.
    strangers: BTreeSet<u32>,
    /// The session of this program.
    own_session: Option<u32>,
    /// Holds its processes together, where there is one.
    control_group: Option<Arc<ControlGroup>>,
    /// The batch job that this program runs in, where it does.
    job: Option<OsString>,
    /// When the tree began; `None` where that does not help to find what is newer.
    epoch: Option<Epoch>,
}

impl Tree {
    /// The tree of the group whose processes carry this cookie in `RANKRUN_GROUP`. None of them has been started yet.
    #[must_use]
    pub fn new(cookie: impl Into<String>, orphans: Orphans) -> Self {
        Self::since(Epoch::now(), cookie.into(), orphans)
    }

    /// The tree of another program's group, which began at what that one's [`epoch_text`](Self::epoch_text) says.
    pub(crate) fn of_another(cookie: impl Into<String>, epoch: &str) -> Self {
        Self::since(Epoch::parse(epoch), cookie.into(), Orphans::Leave)
    }

    pub(crate) fn cookie(&self) -> &str {
        &self.cookie
    }

    pub(crate) fn epoch_text(&self) -> String {
        self.epoch.map_or(String::new(), Epoch::to_text)
    }

    pub(crate) fn sessions(&self) -> impl Iterator<Item = u32> {
        self.sessions.iter().copied()
    }

    pub(crate) fn control_group(&self) -> Option<&ControlGroup> {
        self.control_group.as_deref()
    }

    fn since(epoch: Option<Epoch>, cookie: String, orphans: Orphans) -> Self {
        let strangers = if orphans == Orphans::Own { earlier_children().clone() } else { BTreeSet::new() };
        let own_session = nix::unistd::getsid(None).ok().map(|session| session.as_raw().cast_unsigned());
        let job = std::env::var_os(JOB);
        Self { cookie, orphans, sessions: BTreeSet::new(), strangers, own_session, control_group: None, job, epoch }
    }

    /// Whether this process cannot be the group's: a worker leads a session, and nobody can come back into this program's.
    fn is_of_own_session(&self, entry: &Entry) -> bool {
        self.own_session == Some(entry.session)
    }

    /// Names the control group of which all members are the tree's.
    pub fn set_control_group(&mut self, group: Arc<ControlGroup>) {
        self.control_group = Some(group);
    }

    /// Adds a worker, which leads a session.
    pub fn add_worker(&mut self, pid: u32) {
        self.sessions.insert(pid);
    }

    /// Takes a worker out that was reaped and whose session is empty, so that its number can become another's.
    pub fn remove_session(&mut self, pid: u32) {
        self.sessions.remove(&pid);
    }

    /// Names a child of this program that is none of the group's, such as its guardian.
    pub fn add_stranger(&mut self, pid: u32) {
        self.strangers.insert(pid);
    }

    /// Takes back what [`add_stranger`](Self::add_stranger) said: that child has been reaped.
    pub fn remove_stranger(&mut self, pid: u32) {
        self.strangers.remove(&pid);
    }

    /// Whether anything of the tree is left, found out for certain by one look at the control group and this program's own
    /// children.
    ///
    /// `None` where that says nothing: where orphans do not come to this program, or it has children that may be
    /// somebody else's, or the kernel does not list children. To be asked when all workers have been reaped.
    #[must_use]
    pub fn is_left(&self) -> Option<bool> {
        if self.control_group.as_ref().is_some_and(|group| group.is_populated()) {
            return Some(true);
        }
        let children = table::own_children().filter(|_| self.orphans != Orphans::Leave)?;
        let is_stranger = |pid: &u32| {
            self.strangers.contains(pid) || Entry::of(*pid).is_some_and(|entry| self.is_of_own_session(&entry))
        };
        match children.iter().all(is_stranger) {
            true => Some(false),
            false => (self.orphans == Orphans::Own).then_some(true),
        }
    }

    /// The live processes of the tree at this moment, but not this program and not `except`.
    ///
    /// Reads the environment of every process that is newer than the tree and that this user may read; about twenty
    /// microseconds each. What is started meanwhile by a member may be missing: look again after signalling.
    ///
    /// Where /proc is another PID namespace's, those that the control group lists.
    ///
    /// # Errors
    /// As reading /proc; it is another PID namespace's, and there is no control group.
    pub fn members(&self, except: &[u32]) -> io::Result<Vec<Member>> {
        let own = std::process::id();
        if let (false, Some(group)) = (table::has_our_pids(), &self.control_group) {
            let is_found = |pid: &u32| *pid != own && !self.strangers.contains(pid) && !except.contains(pid);
            return Ok(group
                .pids()
                .into_iter()
                .filter(is_found)
                .filter_map(|pid| Member::hold_listed(pid, group))
                .collect());
        }
        let mut buffer = Vec::new();
        let (mut found, mut others) = (BTreeMap::new(), Vec::new());
        // Each is judged when it is read: later it may be gone, and what it started not yet there to be read.
        let mut judge = |entry: Entry| {
            let is_stranger = self.strangers.contains(&entry.pid) || self.is_of_own_session(&entry);
            if !entry.is_live() || entry.pid == own || is_stranger {
                return;
            }
            let ours = self.sessions.contains(&entry.session)
                || (self.orphans == Orphans::Own && entry.parent == own)
                || self.has_cookie(entry.pid, &mut buffer);
            if ours {
                found.insert(entry.pid, entry);
            } else {
                others.push(entry);
            }
        };
        if self.epoch.as_ref().and_then(|epoch| epoch.visit(&mut judge)).is_none() {
            table::entries()?.for_each(judge);
        }
        if let Some(group) = &self.control_group {
            // Those that have left all else behind, and processes that the search of what is newer may not have come to.
            let listed: BTreeSet<u32> = group.pids().into_iter().filter(|pid| !found.contains_key(pid)).collect();
            let is_candidate = |entry: &Entry| {
                // A number of the list may be another process's by now; what is held must be this very entry.
                entry.is_live() && entry.pid != own && !self.strangers.contains(&entry.pid) && group.contains(entry.pid)
            };
            let entries = listed.into_iter().filter_map(Entry::of).filter(is_candidate);
            found.extend(entries.map(|entry| (entry.pid, entry)));
        }
        // Children of members, however deep: a pass finds at least one or is the last.
        loop {
            let (more, rest): (Vec<Entry>, Vec<Entry>) =
                others.into_iter().partition(|entry| found.contains_key(&entry.parent));
            others = rest;
            if more.is_empty() {
                break;
            }
            found.extend(more.into_iter().map(|entry| (entry.pid, entry)));
        }
        Ok(found.into_values().filter(|entry| !except.contains(&entry.pid)).filter_map(Member::hold).collect())
    }

    fn has_cookie(&self, pid: u32, buffer: &mut Vec<u8>) -> bool {
        let value = table::variable(pid, env::RANKRUN_GROUP, buffer);
        let ours =
            value.is_some_and(|value| value.split(|byte| *byte == b':').any(|cookie| cookie == self.cookie.as_bytes()));
        ours && !self.is_of_another_job(buffer)
    }

    /// Whether an environment is of another batch job: one that a worker submitted has the worker's, but is Slurm's.
    fn is_of_another_job(&self, environment: &[u8]) -> bool {
        let job = table::value_in(environment, JOB);
        job.is_some_and(|job| self.job.as_deref().map(OsStrExt::as_bytes) != Some(job))
    }

    /// Sends SIGKILL to all members of the control group at once, if there is one and the kernel can (Linux 5.14).
    pub fn kill_control_group(&self) {
        if let Some(group) = &self.control_group {
            group.kill();
        }
    }

    /// Reaps adopted children that have ended. Never blocks.
    ///
    /// With [`Orphans::Own`] all that are not `known` (workers, which others wait for) or strangers. With
    /// [`Orphans::Adopt`] those of them that are in the control group or a worker's session; [`Member::reap`] is for those
    /// that were seen alive. With [`Orphans::Leave`] none: no orphan comes to this program.
    pub fn reap_orphans(&self, known: impl Fn(u32) -> bool) {
        // One call says whether there is anything to do, which mostly there is not.
        if self.orphans == Orphans::Leave || sys::any_ended_child().is_none() {
            return;
        }
        let children = table::own_children().unwrap_or_default().into_iter();
        for pid in children.filter(|pid| !known(*pid) && !self.strangers.contains(pid)) {
            // Whose it is, is asked of the process that is reaped, not of one that got the number afterwards.
            let pidfd = if sys::has_pidfd() { sys::pidfd_open(pid).ok() } else { None };
            if self.orphans == Orphans::Own || self.is_ours_for_certain(pid) {
                let whom = pidfd.as_ref().map_or(Whom::Pid(pid), |pidfd| Whom::Pidfd(pidfd.as_fd()));
                let _ = sys::waitid(whom, libc::WNOHANG);
            }
        }
    }

    /// Whether a zombie, which has no environment any more, is the group's.
    fn is_ours_for_certain(&self, pid: u32) -> bool {
        Entry::of(pid).is_some_and(|entry| !entry.is_live() && self.sessions.contains(&entry.session))
            || self.control_group.as_ref().is_some_and(|group| group.contains(pid))
    }
}
