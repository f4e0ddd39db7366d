//! What a group has beside its workers: [`Family`]. What they started, the control group that holds it together, and the
//! guardian that ends it if this program cannot. Not here: when to look for it and what to send (`machine`).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::sync::Arc;

use rankrun_process::{Child, Command, ControlGroup, Guardian, Member, Orphans, SpawnError, Spawner, Tree};
use rankrun_types::Signal;

/// How many guardians a group gets after the first one: whoever goes on killing them does not want any.
const MORE_GUARDIANS: u32 = 3;

/// The group's tree of processes, its control group and its guardian.
#[derive(Debug)]
pub(crate) struct Family {
    tree: Tree,
    control_group: Option<Arc<ControlGroup>>,
    guardian: Option<Guardian>,
    more_guardians: u32,
    /// What the last search of the tree found beside the workers.
    strays: Vec<Member>,
    /// Which signals they have had: pid, start time, signal.
    told: BTreeSet<(u32, u64, i32)>,
    /// Who was found and may become a zombie of this program that does not tell whose it is.
    to_reap: BTreeMap<(u32, u64), Member>,
    keeps_to_reap: bool,
}

impl Family {
    pub(crate) fn new(cookie: &str, orphans: Orphans) -> Self {
        Self {
            tree: Tree::new(cookie, orphans),
            control_group: None,
            guardian: None,
            more_guardians: MORE_GUARDIANS,
            strays: Vec::new(),
            told: BTreeSet::new(),
            to_reap: BTreeMap::new(),
            keeps_to_reap: orphans == Orphans::Adopt,
        }
    }

    /// Makes a control group for the workers to come. Where none can be had, all goes on without.
    pub(crate) fn enter_control_group(&mut self, cookie: &str) {
        self.control_group = ControlGroup::new(cookie).ok().map(Arc::new);
        if let Some(group) = &self.control_group {
            self.tree.set_control_group(Arc::clone(group));
        }
    }

    pub(crate) fn start_guardian(&mut self, spawner: &mut Spawner) -> Result<(), SpawnError> {
        let guardian = Guardian::start(spawner, &self.tree)?;
        self.tree.add_stranger(guardian.pid());
        self.guardian = Some(guardian);
        Ok(())
    }

    /// The guardian that was started last, if there is to be one.
    pub(crate) fn guardian(&self) -> Option<&Guardian> {
        self.guardian.as_ref()
    }

    /// Starts another guardian for one that has ended; says what there is to say if there is none any more.
    pub(crate) fn replace_guardian(&mut self, workers: &HashSet<u32>) -> Result<(), String> {
        let Some(ended) = self.guardian.take() else { return Ok(()) };
        let pid = ended.pid();
        // Reaps it.
        drop(ended);
        self.tree.remove_stranger(pid);
        self.reap(workers);
        let without = "what workers started will live on if this program is killed";
        if self.more_guardians == 0 {
            return Err(format!("the guardian (pid {pid}) has ended again and again: {without}"));
        }
        self.more_guardians -= 1;
        let started = Spawner::new().and_then(|mut spawner| self.start_guardian(&mut spawner));
        started.map_err(|error| format!("the guardian (pid {pid}) has ended and there is no other: {error}: {without}"))
    }

    /// Starts a worker.
    pub(crate) fn spawn(&mut self, spawner: &mut Spawner, command: Command) -> Result<Child, SpawnError> {
        let child = match &self.control_group {
            Some(group) => spawner.spawn_into(command, group)?,
            None => spawner.spawn(command)?,
        };
        self.tree.add_worker(child.pid());
        if let Some(guardian) = &mut self.guardian {
            guardian.add_worker(child.pid());
        }
        Ok(child)
    }

    /// Lets go of a worker that was reaped and whose process group is empty: from now on its number can be another's.
    pub(crate) fn let_go(&mut self, pid: u32, workers: &HashSet<u32>) {
        // The last moment at which its session tells whose a zombie is.
        self.reap(workers);
        self.tree.remove_session(pid);
        if let Some(guardian) = &mut self.guardian {
            guardian.remove_session(pid);
        }
    }

    /// Reaps what has come to this program and is the group's. `workers` are waited for elsewhere.
    pub(crate) fn reap(&mut self, workers: &HashSet<u32>) {
        self.tree.reap_orphans(|pid| workers.contains(&pid));
        self.to_reap.retain(|_, member| !member.reap());
    }

    /// Searches for what lives beside the workers that are `running`, and says whether anything does.
    pub(crate) fn find(&mut self, running: &[u32]) -> io::Result<bool> {
        self.remember_strays();
        let left = if running.is_empty() { self.tree.is_left() } else { None };
        self.strays = match left {
            Some(false) => Vec::new(),
            // Those whom nothing names are still ended with their control group.
            Some(true) => self.tree.members(running).unwrap_or_default(),
            None => self.tree.members(running)?,
        };
        // Where only a search can tell, one that finds nothing is done twice: a host that forks without end can hide a
        // process that is just being made.
        if left.is_none() && self.strays.is_empty() {
            self.strays = self.tree.members(running)?;
        }
        // What is in the control group, or a child of ours and no worker, is there even if it was not there to be found.
        Ok(left == Some(true) || !self.strays.is_empty())
    }

    /// Signals what the last search found, each process once, unless it is SIGKILL. Returns who got this signal for the first
    /// time.
    pub(crate) fn signal(&mut self, signal: Signal) -> Vec<u32> {
        if signal == Signal::KILL {
            self.tree.kill_control_group();
        }
        let mut told = Vec::new();
        for stray in &self.strays {
            let (pid, start_time) = stray.identity();
            let is_new = self.told.insert((pid, start_time, signal.as_raw()));
            if is_new || signal == Signal::KILL {
                stray.signal(signal);
            }
            if is_new {
                told.push(pid);
            }
        }
        told
    }

    /// Keeps hold of what the last search found for as long as it may become a zombie of ours.
    fn remember_strays(&mut self) {
        let strays = std::mem::take(&mut self.strays);
        if self.keeps_to_reap {
            self.to_reap.extend(strays.into_iter().map(|stray| (stray.identity(), stray)));
        }
    }

    /// What the last search found: pid and name.
    pub(crate) fn names(&self) -> Vec<(u32, String)> {
        self.strays.iter().map(|stray| (stray.pid(), stray.name().to_owned())).collect()
    }

    /// The last step, when nobody is looked for any more: the control group and the guardian go. With `keep`, what lives
    /// in the control group goes on outside of it.
    pub(crate) fn end(&mut self, keep: bool, workers: &HashSet<u32>) {
        self.reap(workers);
        if let Some(group) = &self.control_group {
            if keep {
                group.release();
            }
            group.remove();
        }
        // Only now: until here it would have removed the control group.
        self.guardian = None;
    }
}
