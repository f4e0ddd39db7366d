//! The process table: [`group_members`]. Not here: signalling what is found.

use std::fs;

/// The pids of the live (not zombie) processes whose process group is `pgid`, as /proc shows them at this moment.
pub(crate) fn group_members(pgid: u32) -> impl Iterator<Item = u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(move |pid| {
            // Gone meanwhile: not a member.
            let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
            live_group(&stat) == Some(pgid)
        })
}

/// The process group of a line of /proc/PID/stat; `None` for a zombie. See proc_pid_stat(5).
fn live_group(stat: &[u8]) -> Option<u32> {
    // The name, in parentheses, may itself hold spaces and parentheses: what counts is after the last one.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let (_ppid, pgrp) = (fields.next()?, fields.next()?);
    if matches!(state, "Z" | "X" | "x") { None } else { pgrp.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        assert_eq!(live_group(b"7 (a) R 9 (b) S 1 42 42 0 -1"), Some(42));
        assert_eq!(live_group(b"7 (sh) Z 1 42 42 0 -1"), None);
        assert_eq!(live_group(b""), None);
        assert_eq!(live_group(b"7 (sh) S"), None);
    }

    #[test]
    fn this_test_is_in_its_own_group() {
        let stat = fs::read("/proc/self/stat").unwrap();
        let group = live_group(&stat).unwrap();
        assert!(group_members(group).any(|pid| pid == std::process::id()));
    }
}
