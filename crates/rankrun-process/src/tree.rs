//! What a group's workers started and left: [`Tree`]. Not here: when to look and what to send (`rankrun-context`).
//!
//! A process belongs to the tree if it carries the group's cookie in its environment, if its session is that of a
//! worker, or if its parent belongs to the tree. Where this program exists for one group only, and orphans come to it,
//! every child that it did not start itself belongs to the tree as well. Nothing else is ever touched.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rankrun_types::{Signal, env};

use crate::sys::{self, Whom};
use crate::table::{self, Entry, Epoch};

/// Which orphans come to this program, and which of them are a group's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Orphans {
    /// None: they go to init, where only the cookie in their environment tells whose they are.
    #[default]
    Leave,
    /// All of its descendants'; those with the cookie, a worker's session or a parent in the tree are the group's.
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
    /// When the tree began; `None` where that does not help to find what is newer.
    epoch: Option<Epoch>,
}

impl Tree {
    /// The tree of the group whose processes carry this cookie in `RANKRUN_GROUP`. None of them has been started yet.
    #[must_use]
    pub fn new(cookie: impl Into<String>, orphans: Orphans) -> Self {
        Self::since(Epoch::now(), cookie.into(), orphans)
    }

    /// The tree of a group that was started after this process was.
    pub(crate) fn after_this_process(cookie: impl Into<String>, orphans: Orphans) -> Self {
        Self::since(Epoch::of_this_process(), cookie.into(), orphans)
    }

    fn since(epoch: Option<Epoch>, cookie: String, orphans: Orphans) -> Self {
        Self { cookie, orphans, sessions: BTreeSet::new(), strangers: BTreeSet::new(), epoch }
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

    /// Whether anything of the tree is left, found out for certain by one look at this program's own children.
    ///
    /// `None` where that says nothing: where orphans do not come to this program, or it has children that may be
    /// somebody else's, or the kernel does not list children. To be asked when all workers have been reaped.
    #[must_use]
    pub fn is_left(&self) -> Option<bool> {
        let children = table::own_children().filter(|_| self.orphans != Orphans::Leave)?;
        match children.iter().all(|pid| self.strangers.contains(pid)) {
            true => Some(false),
            false => (self.orphans == Orphans::Own).then_some(true),
        }
    }

    /// The live processes of the tree at this moment, but not this program and not `except`.
    ///
    /// Reads the environment of every process that is newer than the tree and that this user may read; about twenty
    /// microseconds each. What is started meanwhile by a member may be missing: look again after signalling.
    ///
    /// # Errors
    /// As reading /proc.
    pub fn members(&self, except: &[u32]) -> io::Result<Vec<Member>> {
        let own = std::process::id();
        let mut buffer = Vec::new();
        let (mut found, mut others) = (BTreeMap::new(), Vec::new());
        // Each is judged when it is read: later it may be gone, and what it started not yet there to be read.
        let mut judge = |entry: Entry| {
            if !entry.is_live() || entry.pid == own || self.strangers.contains(&entry.pid) {
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
        value.is_some_and(|value| value.split(|byte| *byte == b':').any(|cookie| cookie == self.cookie.as_bytes()))
    }

    /// Reaps adopted children that have ended. Never blocks.
    ///
    /// With [`Orphans::Own`] all that are not `known` (workers, which others wait for) or strangers. With
    /// [`Orphans::Adopt`] and [`Orphans::Leave`] none, because a zombie does not tell whose it was.
    pub fn reap_orphans(&self, known: impl Fn(u32) -> bool) {
        if self.orphans != Orphans::Own {
            return;
        }
        let ours = |pid: &u32| !known(*pid) && !self.strangers.contains(pid);
        // It is a child of ours, so its number cannot be another's.
        let reap = |pid| drop(sys::waitid(Whom::Pid(pid), libc::WNOHANG));
        // One call says whether there is anything to do, which mostly there is not.
        match sys::any_ended_child() {
            None => {}
            Some(first) if ours(&first) => {
                reap(first);
                self.reap_listed(ours, reap);
            }
            Some(_) => self.reap_listed(ours, reap),
        }
    }

    fn reap_listed(&self, ours: impl Fn(&u32) -> bool, reap: impl Fn(u32)) {
        table::own_children().unwrap_or_default().into_iter().filter(ours).for_each(reap);
    }
}
