//! What stands before a worker's line on the console. Not here: templates and colours.

/// The prefix of a worker's lines: `[role0]:`, as torchrun has it.
///
/// Control characters in the role are replaced by `?`, so that a prefix never breaks a line.
///
/// ```
/// assert_eq!(rankrun_logs::line_prefix("trainer", 3), "[trainer3]:");
/// ```
#[must_use]
pub fn line_prefix(role: &str, local_rank: usize) -> String {
    let role: String = role.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    format!("[{role}{local_rank}]:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_with_a_newline_does_not_break_the_line() {
        assert_eq!(line_prefix("a\nb", 0), "[a?b0]:");
    }
}
