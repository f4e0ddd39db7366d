//! Text from workers made short where it must be. Not here: making it harmless (`rankrun-types`), what is shown (`report`).

pub use rankrun_types::{escape_block as block, escape_line as line};

/// The first line of the text, escaped, at most `max` characters and then `...`.
pub(crate) fn first_line(text: &str, max: usize) -> String {
    let text = text.trim();
    let first = text.lines().next().unwrap_or("");
    let mut short: String = first.chars().take(max).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    line(&short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_line_says_when_there_is_more() {
        assert_eq!(first_line("one\ntwo", 80), "one...");
        assert_eq!(first_line("\nabcdef\n", 3), "abc...");
        assert_eq!(first_line("abc\n", 3), "abc");
        assert_eq!(first_line("", 3), "");
    }
}
