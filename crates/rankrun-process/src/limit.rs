//! Resource limits by name: [`Resource`] and [`Limit`]. Not here: setting them for a worker (`placement`, `entry`).

use std::fmt;
use std::str::FromStr;

use rankrun_types::escape_line;

/// What a process can be limited in. Mirrors the `RLIMIT_` constants of getrlimit(2).
///
/// Its text is the constant's name without `RLIMIT_`, in any case: `nofile`, `RLIMIT_NOFILE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum Resource {
    /// Size of the address space, in bytes.
    As = 1,
    /// Size of a core file, in bytes; 0 for none.
    Core,
    /// CPU time, in seconds: SIGXCPU at the soft limit, SIGKILL at the hard one.
    Cpu,
    /// Size of the data segment, in bytes.
    Data,
    /// Size of a file that is written, in bytes: SIGXFSZ.
    Fsize,
    /// Locks that flock(2) and fcntl(2) take together; without effect since Linux 2.4.25.
    Locks,
    /// Memory locked into RAM, in bytes.
    Memlock,
    /// Size of the user's POSIX message queues, in bytes.
    Msgqueue,
    /// 20 minus the lowest nice value that may be taken.
    Nice,
    /// One more than the highest file descriptor.
    Nofile,
    /// Processes and threads of the user.
    Nproc,
    /// Resident memory, in bytes; without effect since Linux 2.4.30.
    Rss,
    /// Highest real-time priority.
    Rtprio,
    /// CPU time that a real-time thread may take without blocking, in microseconds.
    Rttime,
    /// Signals queued for the user.
    Sigpending,
    /// Size of the stack, in bytes; a quarter of it is the room for arguments and environment.
    Stack,
}

/// What a resource's limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimitUnit {
    /// Bytes.
    Bytes,
    /// Seconds of CPU time.
    Seconds,
    /// Microseconds of CPU time.
    Microseconds,
    /// Things, such as open files, or a level, such as the least nice value.
    Units,
}

/// A text is no resource's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown resource `{}`: expected one of {}", escape_line(text), names())]
#[non_exhaustive]
pub struct ParseResourceError {
    /// The text.
    pub text: String,
}

/// One of a resource's two bounds, in the resource's own unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Limit {
    /// This much.
    Value(u64),
    /// No limit.
    Infinity,
}

/// A text is no limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid limit `{}`: expected a whole number or `unlimited`", escape_line(text))]
#[non_exhaustive]
pub struct ParseLimitError {
    /// The text.
    pub text: String,
}

/// The kernel would not say what a limit is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read or raise the limit {resource}: {}", std::io::Error::from_raw_os_error(*errno))]
#[non_exhaustive]
pub struct LimitError {
    /// The limit.
    pub resource: Resource,
    /// The errno of prlimit(2).
    pub errno: i32,
}

impl Resource {
    /// All resources, in the order of their names.
    pub const ALL: [Self; 16] = [
        Self::As,
        Self::Core,
        Self::Cpu,
        Self::Data,
        Self::Fsize,
        Self::Locks,
        Self::Memlock,
        Self::Msgqueue,
        Self::Nice,
        Self::Nofile,
        Self::Nproc,
        Self::Rss,
        Self::Rtprio,
        Self::Rttime,
        Self::Sigpending,
        Self::Stack,
    ];

    /// The name: `nofile` for `RLIMIT_NOFILE`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::As => "as",
            Self::Core => "core",
            Self::Cpu => "cpu",
            Self::Data => "data",
            Self::Fsize => "fsize",
            Self::Locks => "locks",
            Self::Memlock => "memlock",
            Self::Msgqueue => "msgqueue",
            Self::Nice => "nice",
            Self::Nofile => "nofile",
            Self::Nproc => "nproc",
            Self::Rss => "rss",
            Self::Rtprio => "rtprio",
            Self::Rttime => "rttime",
            Self::Sigpending => "sigpending",
            Self::Stack => "stack",
        }
    }

    /// What its limits count, as getrlimit(2) has it.
    ///
    /// ```
    /// use rankrun_process::{LimitUnit, Resource};
    ///
    /// assert_eq!(Resource::Stack.unit(), LimitUnit::Bytes);
    /// assert_eq!(Resource::Nofile.unit(), LimitUnit::Units);
    /// ```
    #[must_use]
    pub const fn unit(self) -> LimitUnit {
        match self {
            Self::As
            | Self::Core
            | Self::Data
            | Self::Fsize
            | Self::Memlock
            | Self::Msgqueue
            | Self::Rss
            | Self::Stack => LimitUnit::Bytes,
            Self::Cpu => LimitUnit::Seconds,
            Self::Rttime => LimitUnit::Microseconds,
            Self::Locks | Self::Nice | Self::Nofile | Self::Nproc | Self::Rtprio | Self::Sigpending => LimitUnit::Units,
        }
    }

    /// This process's soft and hard limit, which a process that it starts inherits.
    ///
    /// # Errors
    /// [`LimitError`], if a filter forbids the system call.
    pub fn get(self) -> Result<(Limit, Limit), LimitError> {
        let mut both = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
        let (this, unchanged) = (0 as libc::c_long, std::ptr::null::<libc::rlimit64>());
        // SAFETY: process 0 is this one, a null third argument changes nothing, and the fourth points to a live structure
        // of the kernel's 64-bit layout.
        let result = unsafe { libc::syscall(libc::SYS_prlimit64, this, self.raw(), unchanged, &raw mut both) };
        if result < 0 {
            return Err(LimitError { resource: self, errno: crate::sys::errno() });
        }
        Ok((Limit::from_raw(both.rlim_cur), Limit::from_raw(both.rlim_max)))
    }

    /// The kernel's number, which is not the same on every architecture.
    #[allow(clippy::unnecessary_cast, reason = "the constants' type is not the same in every libc")]
    pub(crate) const fn raw(self) -> libc::c_long {
        (match self {
            Self::As => libc::RLIMIT_AS,
            Self::Core => libc::RLIMIT_CORE,
            Self::Cpu => libc::RLIMIT_CPU,
            Self::Data => libc::RLIMIT_DATA,
            Self::Fsize => libc::RLIMIT_FSIZE,
            Self::Locks => libc::RLIMIT_LOCKS,
            Self::Memlock => libc::RLIMIT_MEMLOCK,
            Self::Msgqueue => libc::RLIMIT_MSGQUEUE,
            Self::Nice => libc::RLIMIT_NICE,
            Self::Nofile => libc::RLIMIT_NOFILE,
            Self::Nproc => libc::RLIMIT_NPROC,
            Self::Rss => libc::RLIMIT_RSS,
            Self::Rtprio => libc::RLIMIT_RTPRIO,
            Self::Rttime => libc::RLIMIT_RTTIME,
            Self::Sigpending => libc::RLIMIT_SIGPENDING,
            Self::Stack => libc::RLIMIT_STACK,
        }) as libc::c_long
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Resource {
    type Err = ParseResourceError;

    fn from_str(text: &str) -> Result<Self, ParseResourceError> {
        let lower = text.trim().to_ascii_lowercase();
        let bare = lower.strip_prefix("rlimit_").unwrap_or(&lower);
        let known = Self::ALL.into_iter().find(|resource| resource.name() == bare);
        known.ok_or_else(|| ParseResourceError { text: text.to_owned() })
    }
}

fn names() -> String {
    Resource::ALL.map(Resource::name).join(", ")
}

impl Limit {
    /// `RLIM64_INFINITY`, which is the same for every architecture and is not in every libc.
    const INFINITY: u64 = u64::MAX;

    fn from_raw(raw: u64) -> Self {
        if raw == Self::INFINITY { Self::Infinity } else { Self::Value(raw) }
    }

    pub(crate) const fn raw(self) -> u64 {
        match self {
            Self::Value(value) => value,
            Self::Infinity => Self::INFINITY,
        }
    }
}

impl From<u64> for Limit {
    fn from(value: u64) -> Self {
        Self::Value(value)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => fmt::Display::fmt(value, f),
            Self::Infinity => f.pad("unlimited"),
        }
    }
}

impl FromStr for Limit {
    type Err = ParseLimitError;

    /// Takes a whole number or `unlimited` or `infinity`, as prlimit(1) and systemd say it, in any case.
    fn from_str(text: &str) -> Result<Self, ParseLimitError> {
        let bare = text.trim();
        if ["unlimited", "infinity"].iter().any(|word| word.eq_ignore_ascii_case(bare)) {
            return Ok(Self::Infinity);
        }
        // u64's own parser takes a plus sign too.
        let digits = Some(bare).filter(|bare| !bare.starts_with('+'));
        let value = digits.and_then(|digits| digits.parse().ok());
        value.map(Self::from_raw).ok_or_else(|| ParseLimitError { text: text.to_owned() })
    }
}

/// Raises this program's soft limit on open files to its hard limit, and returns both as they were.
///
/// For a program that starts more workers than the usual 1,024 descriptors allow; give the workers the old limits, since
/// some programs misbehave with a high one. Changes the whole process. Idempotent.
///
/// # Errors
/// [`LimitError`] if the kernel does not say or take a limit; nothing has changed then.
pub fn raise_open_files() -> Result<(Limit, Limit), LimitError> {
    let (soft, hard) = Resource::Nofile.get()?;
    let raised = libc::rlimit64 { rlim_cur: hard.raw(), rlim_max: hard.raw() };
    // SAFETY: reads one live rlimit64; a null old limit is not written.
    let done = unsafe { libc::prlimit64(0, libc::RLIMIT_NOFILE, &raised, std::ptr::null_mut()) };
    if soft != hard && done < 0 {
        return Err(LimitError { resource: Resource::Nofile, errno: crate::sys::errno() });
    }
    Ok((soft, hard))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_read_back_from_its_name() {
        for resource in Resource::ALL {
            assert_eq!(resource.to_string().parse(), Ok(resource));
            assert_eq!(format!("RLIMIT_{}", resource.name().to_uppercase()).parse(), Ok(resource));
        }
        let mut sorted = Resource::ALL;
        sorted.sort_by_key(|resource| resource.name());
        assert_eq!(sorted, Resource::ALL);
    }

    #[test]
    fn an_unknown_resource_is_refused_with_the_names_that_are_known() {
        let error = "files".parse::<Resource>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown resource `files`: expected one of as, core, cpu, data, fsize, locks, memlock, msgqueue, nice, \
             nofile, nproc, rss, rtprio, rttime, sigpending, stack"
        );
        assert!("".parse::<Resource>().is_err());
    }

    #[test]
    fn a_limit_is_a_number_or_unlimited() {
        for (text, limit) in [
            ("0", Limit::Value(0)),
            (" 1024\n", Limit::Value(1024)),
            ("unlimited", Limit::Infinity),
            ("Infinity", Limit::Infinity),
            ("18446744073709551615", Limit::Infinity),
        ] {
            assert_eq!(text.parse(), Ok(limit), "{text:?}");
            assert_eq!(limit.to_string().parse(), Ok(limit));
        }
        for text in ["", "-1", "+1", "1k", "18446744073709551616", "1.5"] {
            let error = text.parse::<Limit>().unwrap_err();
            assert_eq!(error.to_string(), format!("invalid limit `{text}`: expected a whole number or `unlimited`"));
        }
    }

    #[test]
    fn this_processs_limits_are_those_that_proc_shows() {
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        let shown: Vec<Limit> = line.split_whitespace().take(2).map(|text| text.parse().unwrap()).collect();
        let (soft, hard) = Resource::Nofile.get().unwrap();
        assert_eq!(shown, [soft, hard]);
    }

    #[test]
    fn the_kernel_knows_every_resource() {
        for resource in Resource::ALL {
            assert!(resource.get().is_ok(), "{resource}");
        }
    }
}
