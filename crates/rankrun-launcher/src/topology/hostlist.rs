//! Slurm's short form of a list of hosts: [`expand`] and [`compress`]. Not here: which variable has one (`slurm`).

use std::fmt::Write;

use rankrun::crates::types::escape_line;

use super::error::shortened;

/// The most hosts that a list may have; Slurm's own limit.
pub const MAX_HOSTS: usize = 65_536;

/// The most bytes of a host's name; those of the domain name system.
const MAX_NAME: usize = 255;

/// The most digits of a number in brackets.
const MAX_DIGITS: usize = 18;

/// A text is no list of hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostlistError {
    /// A host has no name.
    #[error("a host at byte {at} has no name")]
    EmptyHost {
        /// Where, from 0.
        at: usize,
    },
    /// A bracket is not closed, not opened, or in another.
    #[error("the bracket at byte {at} has no partner, or is in another")]
    Bracket {
        /// Where, from 0.
        at: usize,
    },
    /// What is in brackets is no number and no range.
    #[error("`{}` in brackets is no number and no range of numbers", escape_line(&shortened(.text)))]
    Range {
        /// What is there.
        text: String,
    },
    /// There are too many hosts, or a name is too long.
    #[error("more than {MAX_HOSTS} hosts, or a host's name of more than {MAX_NAME} bytes")]
    TooMany,
    /// A character that no host's name has.
    #[error("a host's name has the character {character:?}")]
    Character {
        /// The character.
        character: char,
    },
}

/// Lists the hosts of a text such as `login,n[1-3,07,10-12]-ib`, in its order, without a look at anything else.
///
/// A name may have several brackets: the last one counts fastest, as `scontrol show hostnames` has it. Numbers keep the
/// width that they are written with (`[08-11]` is `08 09 10 11`). An empty text is no host.
///
/// # Errors
/// [`HostlistError`]; a list of more than [`MAX_HOSTS`] is refused before it is made.
///
/// ```
/// let hosts = rankrun_launcher::expand("n[1-2,07]-ib,r[0-1]n[0-1]")?;
/// assert_eq!(hosts, ["n1-ib", "n2-ib", "n07-ib", "r0n0", "r0n1", "r1n0", "r1n1"]);
/// # Ok::<(), rankrun_launcher::HostlistError>(())
/// ```
pub fn expand(text: &str) -> Result<Vec<String>, HostlistError> {
    let mut hosts = Vec::new();
    if text.trim().is_empty() {
        return Ok(hosts);
    }
    let mut start = 0;
    for part in split(text)? {
        let at = start;
        start += part.len() + 1;
        let part = part.trim();
        if part.is_empty() {
            return Err(HostlistError::EmptyHost { at });
        }
        expand_one(part, &mut hosts)?;
    }
    Ok(hosts)
}

/// The parts between the commas that are outside of brackets.
fn split(text: &str) -> Result<Vec<&str>, HostlistError> {
    let (mut parts, mut start, mut open) = (Vec::new(), 0, None);
    for (at, character) in text.char_indices() {
        match (character, open) {
            ('[', None) => open = Some(at),
            (']', Some(_)) => open = None,
            ('[', Some(_)) | (']', None) => return Err(HostlistError::Bracket { at }),
            (',', None) => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if let Some(at) = open {
        return Err(HostlistError::Bracket { at });
    }
    parts.push(&text[start..]);
    Ok(parts)
}

fn expand_one(part: &str, hosts: &mut Vec<String>) -> Result<(), HostlistError> {
    let mut names = vec![String::new()];
    let mut rest = part;
    loop {
        let (before, bracket) = match rest.split_once('[') {
            Some((before, after)) => {
                // `split` has seen to it that there is one.
                let (inside, after) = after.split_once(']').unwrap_or((after, ""));
                rest = after;
                (before, Some(inside))
            }
            None => (rest, None),
        };
        if let Some(character) = before.chars().find(|c| c.is_whitespace() || c.is_control()) {
            return Err(HostlistError::Character { character });
        }
        if names[0].len() + before.len() > MAX_NAME {
            return Err(HostlistError::TooMany);
        }
        for name in &mut names {
            name.push_str(before);
        }
        let Some(inside) = bracket else { break };
        let numbers = numbers(inside)?;
        if hosts.len() + names.len().saturating_mul(numbers.len()) > MAX_HOSTS {
            return Err(HostlistError::TooMany);
        }
        names = names.iter().flat_map(|name| numbers.iter().map(move |number| format!("{name}{number}"))).collect();
    }
    if hosts.len() + names.len() > MAX_HOSTS || names.iter().any(|name| name.len() > MAX_NAME) {
        return Err(HostlistError::TooMany);
    }
    hosts.append(&mut names);
    Ok(())
}

/// The numbers of a bracket as they are written in names.
fn numbers(inside: &str) -> Result<Vec<String>, HostlistError> {
    let mut numbers = Vec::new();
    for text in inside.split(',') {
        let wrong = || HostlistError::Range { text: text.to_owned() };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |digits: &str| {
            let good = digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.len() <= MAX_DIGITS;
            if good { digits.parse::<u64>().map_err(|_| wrong()) } else { Err(wrong()) }
        };
        let (from, to) = (number(first)?, number(last)?);
        let count = to.checked_sub(from).ok_or_else(wrong)?;
        if count >= MAX_HOSTS as u64 || numbers.len() + count as usize >= MAX_HOSTS {
            return Err(HostlistError::TooMany);
        }
        let width = first.len();
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

/// Writes hosts in the short form, in their order: the inverse of [`expand`].
///
/// Hosts that follow each other and differ in their last number share brackets.
///
/// ```
/// let hosts = ["n1", "n2", "n3", "n07", "login"].map(str::to_owned);
/// assert_eq!(rankrun_launcher::compress(&hosts), "n[1-3,07],login");
/// ```
#[must_use]
pub fn compress(hosts: &[String]) -> String {
    let mut text = String::new();
    let split: Vec<(&str, &str, &str)> = hosts.iter().map(|host| last_number(host)).collect();
    let same =
        |a: &(&str, &str, &str), b: &(&str, &str, &str)| (a.0, a.2) == (b.0, b.2) && !a.1.is_empty() && !b.1.is_empty();
    for group in split.chunk_by(same) {
        if !text.is_empty() {
            text.push(',');
        }
        let (before, number, after) = group[0];
        text.push_str(before);
        if group.len() == 1 {
            text.push_str(number);
        } else {
            let runs: Vec<String> = group.chunk_by(|a, b| follows(a.1, b.1)).map(run).collect();
            // Writing to a String does not fail.
            let _ = write!(text, "[{}]", runs.join(","));
        }
        text.push_str(after);
    }
    text
}

fn run(run: &[(&str, &str, &str)]) -> String {
    match run {
        [one] => one.1.to_owned(),
        [first, .., last] => format!("{}-{}", first.1, last.1),
        [] => String::new(),
    }
}

/// Whether `b` is what comes after `a` in a range that begins with as many digits.
fn follows(a: &str, b: &str) -> bool {
    let next = a.parse::<u64>().ok().and_then(|a| a.checked_add(1));
    // A first number of fewer digits than a later one has no zeros before it, so widths may grow only then.
    let grows = a.len() == b.len() || (!a.starts_with('0') && !b.starts_with('0') && b.len() == a.len() + 1);
    grows && next.is_some_and(|next| next.to_string() == b.trim_start_matches('0') && b.parse() == Ok(next))
}

/// A name before, in and after its last number; a number that is too long is none.
fn last_number(host: &str) -> (&str, &str, &str) {
    let Some(end) = host.rfind(|c: char| c.is_ascii_digit()).map(|at| at + 1) else { return (host, "", "") };
    let start = host[..end]
        .rfind(|c: char| !c.is_ascii_digit())
        .map_or(0, |at| at + host[at..].chars().next().map_or(1, char::len_utf8));
    if end - start > MAX_DIGITS {
        return (host, "", "");
    }
    (&host[..start], &host[start..end], &host[end..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_as_slurm_writes_them_are_expanded() {
        for (text, expected) in [
            ("", ""),
            ("localhost", "localhost"),
            ("a,b.example.com", "a b.example.com"),
            ("n[1-3]", "n1 n2 n3"),
            ("n[1-3,07,10-12]-ib", "n1-ib n2-ib n3-ib n07-ib n10-ib n11-ib n12-ib"),
            ("n[08-11]", "n08 n09 n10 n11"),
            ("n[8-11]", "n8 n9 n10 n11"),
            ("n[098-101]", "n098 n099 n100 n101"),
            ("r[0-1]n[1,3],x", "r0n1 r0n3 r1n1 r1n3 x"),
            ("r[0-1]-n[1-2]-ib[0]", "r0-n1-ib0 r0-n2-ib0 r1-n1-ib0 r1-n2-ib0"),
            ("n[5]", "n5"),
            ("[1-2]", "1 2"),
            ("n1, n2", "n1 n2"),
        ] {
            assert_eq!(expand(text).unwrap().join(" "), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused_and_says_where() {
        for (text, expected) in [
            ("n[1-3", "byte 1"),
            ("n1-3]", "byte 4"),
            ("n[1-[2]]", "byte 4"),
            ("n[]", "``"),
            ("n[a]", "`a`"),
            ("n[3-1]", "`3-1`"),
            ("n[1-2-3]", "`1-2-3`"),
            ("n[-1]", "`-1`"),
            ("n[1,]", "``"),
            ("a,,b", "byte 2"),
            (",a", "byte 0"),
            ("a b", "' '"),
            ("n[1-99999999999999999999]", "99999999999999999999"),
        ] {
            let error = expand(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_list_without_end_is_refused_before_it_is_made() {
        for text in [
            "n[0-65536]",
            "n[1-999999999999999999]",
            "n[0-60000],m[0-60000]",
            "a[0-999]b[0-999]c[0-999]d[0-999]",
            &"n[0-9]".repeat(200),
            &"n".repeat(256),
        ] {
            assert_eq!(expand(text), Err(HostlistError::TooMany), "{text:.40}");
        }
        assert_eq!(expand("n[0-65535]").unwrap().len(), MAX_HOSTS);
    }

    #[test]
    fn widths_are_kept_in_ranges() {
        let hosts = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(compress(&hosts("n8 n9 n10")), "n[8-10]");
        assert_eq!(compress(&hosts("n08 n09 n10 n9")), "n[08-10,9]");
        assert_eq!(compress(&hosts("n9 n010")), "n[9,010]");
        assert_eq!(compress(&hosts("41 042")), "[41,042]");
        assert_eq!(compress(&hosts("n00 n01")), "n[00-01]");
        assert_eq!(compress(&hosts("ü1 ü2 3ü")), "ü[1-2],3ü");
    }

    fn host() -> impl Strategy<Value = String> {
        ("[a-z.-]{0,6}", 0_u32..130, 1_usize..4, "(-ib|\\.x|)")
            .prop_map(|(before, number, width, after)| format!("{before}{number:0width$}{after}"))
    }

    proptest! {
        #[test]
        fn what_was_compressed_expands_to_itself(hosts in prop::collection::vec(host(), 0..60)) {
            prop_assert_eq!(expand(&compress(&hosts)).unwrap(), hosts);
        }

        #[test]
        fn runs_of_hosts_are_compressed_to_one_range(first in 0_u64..1000, count in 2_u64..500, width in 1_usize..6) {
            let hosts: Vec<String> = (first..first + count).map(|number| format!("n{number:0width$}")).collect();
            let text = compress(&hosts);
            prop_assert!(text.len() < 16, "{}", text);
            prop_assert_eq!(expand(&text).unwrap(), hosts);
        }

        #[test]
        fn no_text_makes_too_much_or_ends_in_a_panic(text in "[n0-9,\\[\\] ü-]{0,40}") {
            if let Ok(hosts) = expand(&text) {
                prop_assert!(hosts.len() <= MAX_HOSTS);
                prop_assert_eq!(expand(&compress(&hosts)).unwrap(), hosts);
            }
        }
    }
}
