//! What the system can tell of a worker's end beside its exit: whether memory ran out, where a core dump went. Not here:
//! what is made of it (`report`).

use std::fs;
use std::path::{Path, PathBuf};

use rankrun_errors::MemoryKills;
use rankrun_process::MemoryKillCounters;
use rankrun_types::ExitKind;

/// Names another root of the files that are read here, for tests.
const SYSTEM_ROOT: &str = "RANKRUN_SYSTEM_ROOT";

/// What was so when the group began.
#[derive(Debug)]
pub(crate) struct Evidence {
    root: PathBuf,
    counters: MemoryKillCounters,
    /// The clock ticks since the boot; no worker was started before.
    start_ticks: Option<u64>,
}

impl Evidence {
    /// Looks before the first worker is started.
    pub(crate) fn begin() -> Self {
        let root = std::env::var_os(SYSTEM_ROOT).filter(|root| !root.is_empty()).map_or("/".into(), PathBuf::from);
        Self {
            counters: MemoryKillCounters::read(&root),
            start_ticks: fs::read_to_string("/proc/uptime").ok().and_then(|text| ticks(&text)),
            root,
        }
    }

    /// A moment not after the start of any worker, in clock ticks since the boot.
    pub(crate) fn start_ticks(&self) -> Option<u64> {
        self.start_ticks
    }

    /// Whether the kernel has killed processes for want of memory since.
    pub(crate) fn memory_kills(&self) -> MemoryKills {
        memory_kills(&self.counters, &MemoryKillCounters::read(&self.root))
    }

    /// Where the core dump of a worker went that ended so and was started in this directory; `None` if it left none.
    pub(crate) fn core_dump(&self, pid: u32, exit: ExitKind, current_dir: Option<&Path>) -> Option<String> {
        let ExitKind::Signal { signal, core_dumped: true } = exit else { return None };
        let setting = |name| fs::read_to_string(self.root.join("proc/sys/kernel").join(name)).ok();
        let pattern = setting("core_pattern")?;
        let pattern = pattern.trim_end_matches('\n');
        if let Some(handler) = pattern.strip_prefix('|') {
            let program = handler.split(' ').next().unwrap_or_default();
            let how =
                if program.contains("systemd-coredump") { format!(": coredumpctl info {pid}") } else { String::new() };
            return Some(format!("given to {program}{how}"));
        }
        let uses_pid = setting("core_uses_pid").is_some_and(|text| text.trim() != "0");
        let name = file_name_pattern(pattern, uses_pid, pid, signal.as_raw());
        let directory = current_dir.map(Path::to_owned).or_else(|| std::env::current_dir().ok())?;
        let path = directory.join(&name);
        Some(match newest_match(&path) {
            Some(found) => found.display().to_string(),
            None => format!("not found as {} (see core_pattern)", path.display()),
        })
    }
}

/// The ticks of /proc/uptime, which has hundredths of a second, as USER_HZ has on all ports; one less, as it may round up.
fn ticks(uptime: &str) -> Option<u64> {
    let (seconds, hundredths) = uptime.split_ascii_whitespace().next()?.split_once('.')?;
    let ticks = seconds.parse::<u64>().ok()?.checked_mul(100)?.checked_add(hundredths.get(..2)?.parse().ok()?)?;
    Some(ticks.saturating_sub(1))
}

fn memory_kills(before: &MemoryKillCounters, after: &MemoryKillCounters) -> MemoryKills {
    let moved = |before: Option<u64>, after: Option<u64>| Some(after?.saturating_sub(before?));
    let (group, host) = (moved(before.group, after.group), moved(before.host, after.host));
    match (group, host) {
        (Some(count @ 1..), _) => MemoryKills::InGroup { count, limit: after.group_limit },
        (_, Some(count @ 1..)) => MemoryKills::OnHost { count },
        (None, None) => MemoryKills::NotKnown,
        _ => MemoryKills::None,
    }
}

/// The file name that core(5) makes of a pattern, with `*` for what is not known after the process's end.
fn file_name_pattern(pattern: &str, uses_pid: bool, pid: u32, signal: i32) -> String {
    let mut name = String::new();
    let mut has_pid = false;
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '%' => match chars.next() {
                Some('%') => name.push('%'),
                Some('p') => {
                    has_pid = true;
                    name.push_str(&pid.to_string());
                }
                Some('s') => name.push_str(&signal.to_string()),
                Some(_) => name.push('*'),
                None => {}
            },
            c => name.push(c),
        }
    }
    if uses_pid && !has_pid {
        name.push_str(&format!(".{pid}"));
    }
    name
}

/// The file in the pattern's directory whose name matches and that was written last.
fn newest_match(pattern: &Path) -> Option<PathBuf> {
    let name = pattern.file_name()?.to_str()?;
    let entries = fs::read_dir(pattern.parent()?).ok()?.flatten();
    let matching = entries.filter(|entry| entry.file_name().to_str().is_some_and(|file| matches(file, name)));
    let dated = matching.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())));
    dated.max().map(|(_, path)| path)
}

/// Whether a name is that of a pattern in which `*` is anything.
fn matches(name: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return name == pattern };
    let Some(name) = name.strip_prefix(start) else { return false };
    (0..=name.len()).any(|at| name.is_char_boundary(at) && matches(&name[at..], rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankrun_types::Signal;

    #[test]
    fn a_counter_that_moved_is_the_likely_reason() {
        let counters = |group, host| {
            let mut counters = MemoryKillCounters::default();
            (counters.group, counters.host, counters.group_limit) = (group, host, Some(1 << 20));
            counters
        };
        for (before, after, expected) in [
            ((None, None), (None, None), MemoryKills::NotKnown),
            ((Some(1), Some(1)), (None, None), MemoryKills::NotKnown),
            ((Some(1), Some(5)), (Some(1), Some(5)), MemoryKills::None),
            ((None, Some(5)), (None, Some(5)), MemoryKills::None),
            ((Some(1), Some(5)), (Some(3), Some(9)), MemoryKills::InGroup { count: 2, limit: Some(1 << 20) }),
            ((Some(1), Some(5)), (Some(1), Some(6)), MemoryKills::OnHost { count: 1 }),
            ((None, Some(5)), (None, Some(6)), MemoryKills::OnHost { count: 1 }),
        ] {
            let moved = memory_kills(&counters(before.0, before.1), &counters(after.0, after.1));
            assert_eq!(moved, expected, "{before:?} {after:?}");
        }
    }

    #[test]
    fn a_core_dump_is_found_by_the_pattern_of_the_kernel() {
        for (pattern, uses_pid, expected) in [
            ("core", false, "core"),
            ("core", true, "core.77"),
            ("/var/core/%e.%p.%t", true, "/var/core/*.77.*"),
            ("core-%s-%%-%h", false, "core-11-%-*"),
            ("core%", false, "core"),
        ] {
            assert_eq!(file_name_pattern(pattern, uses_pid, 77, 11), expected, "{pattern}");
        }
        assert!(matches("python3.77.1796", "*.77.*") && matches("core", "core") && matches("a", "*"));
        assert!(!matches("python3.78.1796", "*.77.*") && !matches("core.1", "core"));
    }

    #[test]
    fn where_a_core_dump_went_is_said_as_far_as_it_is_known() {
        let (root, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let settings = root.path().join("proc/sys/kernel");
        fs::create_dir_all(&settings).unwrap();
        let evidence =
            Evidence { root: root.path().to_owned(), counters: MemoryKillCounters::default(), start_ticks: None };
        let said = |pattern: &str, core_dumped| {
            fs::write(settings.join("core_pattern"), format!("{pattern}\n")).unwrap();
            evidence.core_dump(77, ExitKind::Signal { signal: Signal::SEGV, core_dumped }, Some(dir.path()))
        };
        assert_eq!(said("core.%p", false), None);
        let path = dir.path().join("core.77");
        assert_eq!(said("core.%p", true), Some(format!("not found as {} (see core_pattern)", path.display())));
        fs::write(&path, "").unwrap();
        assert_eq!(said("core.%p", true), Some(path.display().to_string()));
        assert_eq!(said("|/bin/apport %p", true).as_deref(), Some("given to /bin/apport"));
        let systemd = said("|/usr/lib/systemd/systemd-coredump %P %u", true);
        assert_eq!(systemd.as_deref(), Some("given to /usr/lib/systemd/systemd-coredump: coredumpctl info 77"));
    }

    #[test]
    fn the_uptime_is_told_in_ticks() {
        assert_eq!(ticks("12432.07 23456.11\n"), Some(1_243_206));
        assert_eq!((ticks("0.00 0.00"), ticks(""), ticks("x.yz")), (Some(0), None, None));
        assert!(Evidence::begin().start_ticks().is_some());
    }
}
