//! How a worker is placed and limited: CPUs, nice value, resource limits, umask, as settings of a [`Command`].
//!
//! Not here: carrying it out in the child (`entry`), and which CPUs are near a GPU (`numa`).

use std::collections::BTreeMap;

use libc::{c_int, c_long, c_ulong, mode_t};

use crate::{Command, CpuSet, Limit, Resource, SpawnError};

/// What a [`Command`] says of placement.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    cpus: Option<CpuSet>,
    nice: Option<i32>,
    limits: BTreeMap<Resource, (Limit, Limit)>,
    umask: Option<u32>,
}

/// A [`Placement`] in the kernel's form. The child reads it and writes nothing to it.
#[derive(Debug)]
pub(crate) struct PreparedPlacement {
    pub(crate) cpus: Option<Vec<c_ulong>>,
    pub(crate) nice: Option<c_int>,
    pub(crate) limits: Vec<PreparedLimit>,
    pub(crate) umask: Option<mode_t>,
}

/// One limit in the kernel's form, and what to call it if it is refused.
#[derive(Debug)]
pub(crate) struct PreparedLimit {
    pub(crate) resource: Resource,
    pub(crate) number: c_long,
    pub(crate) bounds: libc::rlimit64,
}

impl Command {
    /// Binds the worker and all its threads to these CPUs; unless set, it gets those of the thread that spawns it.
    ///
    /// CPUs that do not exist or that this program's cpuset does not have are left out by the kernel; if none is left,
    /// also for the empty set, the start fails at [`SpawnStep::Affinity`](crate::SpawnStep::Affinity) with EINVAL. Mirrors
    /// sched_setaffinity(2).
    #[must_use]
    pub fn cpu_affinity(mut self, cpus: CpuSet) -> Self {
        self.placement.cpus = Some(cpus);
        self
    }

    /// Sets the worker's nice value: -20 (gets the most CPU time) to 19 (the least).
    ///
    /// Absolute, not added to ours. A value below ours needs CAP_SYS_NICE or the `nice` limit; without, the start fails at
    /// [`SpawnStep::Nice`](crate::SpawnStep::Nice) with EACCES. Out of range, it fails with [`SpawnError::OutOfRange`].
    /// Mirrors setpriority(2).
    #[must_use]
    pub fn nice(mut self, nice: i32) -> Self {
        self.placement.nice = Some(nice);
        self
    }

    /// Sets one of the worker's resource limits, in the unit that the [`Resource`] states; the last call for it counts.
    ///
    /// A soft limit above the hard one fails with [`SpawnError::OutOfRange`], and a hard limit above ours, which needs
    /// CAP_SYS_RESOURCE, at [`SpawnStep::Limit`](crate::SpawnStep::Limit) with EPERM. Mirrors setrlimit(2).
    ///
    /// ```
    /// use rankrun_process::{Command, Limit, Resource};
    ///
    /// // No core files, and at most 256 open files until the worker itself raises that.
    /// let (_, hard) = Resource::Nofile.get()?;
    /// let command = Command::new("true")
    ///     .limit(Resource::Core, Limit::Value(0), Limit::Value(0))
    ///     .limit(Resource::Nofile, Limit::Value(256), hard);
    /// # Ok::<(), rankrun_process::LimitError>(())
    /// ```
    #[must_use]
    pub fn limit(mut self, resource: Resource, soft: impl Into<Limit>, hard: impl Into<Limit>) -> Self {
        self.placement.limits.insert(resource, (soft.into(), hard.into()));
        self
    }

    /// Sets the permissions that files made by the worker lack: 0 to 0o777.
    ///
    /// Out of range, the start fails with [`SpawnError::OutOfRange`]. Mirrors umask(2).
    #[must_use]
    pub fn umask(mut self, mask: u32) -> Self {
        self.placement.umask = Some(mask);
        self
    }

    /// Checks ranges, which the kernel would silently clamp or cut, and allocates what the child needs.
    pub(crate) fn prepare_placement(&self) -> Result<PreparedPlacement, SpawnError> {
        let refuse = |what: &'static str, value: String, expected: String| SpawnError::OutOfRange {
            program: self.program.clone(),
            what,
            value,
            expected,
        };
        let Placement { cpus, nice, limits, umask } = &self.placement;
        if let Some(nice) = nice.filter(|nice| !(-20..=19).contains(nice)) {
            return Err(refuse("nice value", nice.to_string(), "-20 to 19".to_owned()));
        }
        if let Some(mask) = umask.filter(|mask| *mask > 0o777) {
            return Err(refuse("umask", format!("{mask:#o}"), "0 to 0o777".to_owned()));
        }
        if let Some((resource, (soft, hard))) = limits.iter().find(|(_, (soft, hard))| soft.raw() > hard.raw()) {
            return Err(refuse("soft limit", format!("{resource}={soft}"), format!("at most the hard limit {hard}")));
        }
        let prepared = |(resource, (soft, hard)): (&Resource, &(Limit, Limit))| PreparedLimit {
            resource: *resource,
            number: resource.raw(),
            bounds: libc::rlimit64 { rlim_cur: soft.raw(), rlim_max: hard.raw() },
        };
        Ok(PreparedPlacement {
            cpus: cpus.as_ref().map(CpuSet::to_mask),
            nice: *nice,
            limits: limits.iter().map(prepared).collect(),
            umask: umask.map(|mask| mask as mode_t),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(command: Command) -> String {
        command.prepare_placement().unwrap_err().to_string()
    }

    #[test]
    fn a_value_out_of_range_is_refused_with_the_range() {
        let command = || Command::new("sh");
        assert_eq!(refused(command().nice(20)), "cannot start `sh`: nice value 20: expected -20 to 19");
        assert_eq!(refused(command().nice(-21)), "cannot start `sh`: nice value -21: expected -20 to 19");
        assert_eq!(refused(command().umask(0o1000)), "cannot start `sh`: umask 0o1000: expected 0 to 0o777");
        assert_eq!(
            refused(command().limit(Resource::Nofile, Limit::Infinity, 10)),
            "cannot start `sh`: soft limit nofile=unlimited: expected at most the hard limit 10"
        );
        let edges = command().nice(-20).umask(0o777).limit(Resource::As, u64::MAX, Limit::Infinity);
        assert!(edges.prepare_placement().is_ok());
        assert!(command().nice(19).umask(0).prepare_placement().is_ok());
    }

    #[test]
    fn nothing_is_set_unless_asked_for() {
        let prepared = Command::new("sh").prepare_placement().unwrap();
        assert!(prepared.cpus.is_none() && prepared.nice.is_none() && prepared.umask.is_none());
        assert!(prepared.limits.is_empty());
    }
}
