//! What stands before a worker's line on the console: [`PrefixTemplate`], [`LinePrefix`]. Not here: which lines.

use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use rankrun_types::escape_line;

use crate::sgr::RESET;
use crate::utc;

/// The colours of ranks, in turn; red is left to errors.
const COLORS: [&[u8]; 10] = [
    b"\x1b[36m",
    b"\x1b[33m",
    b"\x1b[32m",
    b"\x1b[35m",
    b"\x1b[34m",
    b"\x1b[96m",
    b"\x1b[93m",
    b"\x1b[92m",
    b"\x1b[95m",
    b"\x1b[94m",
];

/// The prefix of a worker's lines: `[role0]:`, as torchrun has it.
///
/// Control characters in the role are replaced by `?`, so that a prefix never breaks a line.
///
/// ```
/// assert_eq!(rankrun_logs::line_prefix("trainer", 3), "[trainer3]:");
/// ```
#[must_use]
pub fn line_prefix(role: &str, local_rank: usize) -> String {
    format!("[{}{local_rank}]:", without_controls(role))
}

fn without_controls(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// What a prefix can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Macro {
    RoleName,
    LocalRank,
    Rank,
    Hostname,
    Pid,
    Time,
    Stream,
}

const MACROS: [(&str, Macro); 7] = [
    ("role_name", Macro::RoleName),
    ("local_rank", Macro::LocalRank),
    ("rank", Macro::Rank),
    ("hostname", Macro::Hostname),
    ("pid", Macro::Pid),
    ("time", Macro::Time),
    ("stream", Macro::Stream),
];

/// A template for the prefix of lines, as torchrun's `--log-line-prefix-template`.
///
/// `${role_name}`, `${local_rank}`, `${rank}`, `${hostname}`, `${pid}`, `${stream}` (`stdout` or `stderr`) and
/// `${time}` (when the line was read, in UTC: `2026-12-01T10:15:00.123Z`) are replaced; so are they without braces
/// where no letter follows. `$$` is a `$`, and so is one before anything that is no name.
///
/// ```
/// use rankrun_logs::PrefixTemplate;
///
/// let template: PrefixTemplate = "[${role_name}-${rank}]: ".parse()?;
/// assert_eq!(PrefixTemplate::default(), "[${role_name}${local_rank}]:".parse()?);
/// let error = "[${node}]".parse::<PrefixTemplate>().unwrap_err();
/// assert!(error.to_string().starts_with("unknown macro `${node}` at byte 1: expected ${role_name}"));
/// # drop(template);
/// # Ok::<(), rankrun_logs::ParsePrefixError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixTemplate(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Macro(Macro),
}

/// What a template's macros stand for in the lines of one stream of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixValues<'a> {
    /// The role, the group's name.
    pub role_name: &'a str,
    /// The rank on this host.
    pub local_rank: usize,
    /// The rank in the world, as text: it may come from outside.
    pub rank: &'a str,
    /// This host's name.
    pub hostname: &'a str,
    /// `stdout` or `stderr`.
    pub stream: &'a str,
}

/// A template cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParsePrefixError {
    /// There is no such macro.
    #[error("unknown macro `${{{}}}` at byte {at}: expected {}", escape_line(name), accepted())]
    UnknownMacro {
        /// Its name.
        name: String,
        /// Where its `$` is.
        at: usize,
    },
    /// A `${` has no `}`.
    #[error("`${{` at byte {at} is not closed: expected `}}`")]
    Unclosed {
        /// Where.
        at: usize,
    },
    /// A control character would break the line or the terminal.
    #[error("control character {} at byte {at}: expected text", escape_line(&character.to_string()))]
    ControlCharacter {
        /// Which.
        character: char,
        /// Where.
        at: usize,
    },
}

/// All macros as they are written.
fn accepted() -> String {
    let names: Vec<String> = MACROS.iter().map(|(name, _)| format!("${{{name}}}")).collect();
    names.join(" ")
}

impl Default for PrefixTemplate {
    /// `[${role_name}${local_rank}]:`.
    fn default() -> Self {
        let text = |text: &str| Piece::Text(text.to_owned());
        Self(vec![text("["), Piece::Macro(Macro::RoleName), Piece::Macro(Macro::LocalRank), text("]:")])
    }
}

impl FromStr for PrefixTemplate {
    type Err = ParsePrefixError;

    fn from_str(template: &str) -> Result<Self, ParsePrefixError> {
        if let Some((at, character)) = template.char_indices().find(|(_, c)| c.is_control() && *c != '\t') {
            return Err(ParsePrefixError::ControlCharacter { character, at });
        }
        let mut pieces = Vec::new();
        let mut text = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('$') {
            text.push_str(before);
            let at = template.len() - after.len() - 1;
            let (name, end) = if let Some(inner) = after.strip_prefix('{') {
                let end = inner.find('}').ok_or(ParsePrefixError::Unclosed { at })?;
                (&inner[..end], end + 2)
            } else {
                let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
                if end == 0 || !after.starts_with(is_first) {
                    text.push('$');
                    rest = after.strip_prefix('$').unwrap_or(after);
                    continue;
                }
                (&after[..end], end)
            };
            let known = MACROS.iter().find(|(known, _)| *known == name);
            let (_, known) = known.ok_or_else(|| ParsePrefixError::UnknownMacro { name: name.to_owned(), at })?;
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            pieces.push(Piece::Macro(*known));
            rest = &after[end..];
        }
        text.push_str(rest);
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        Ok(Self(pieces))
    }
}

impl fmt::Display for PrefixTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => f.write_str(&text.replace('$', "$$"))?,
                Piece::Macro(which) => {
                    let name = MACROS.iter().find(|(_, known)| known == which).map_or("", |(name, _)| *name);
                    write!(f, "${{{name}}}")?;
                }
            }
        }
        Ok(())
    }
}

impl PrefixTemplate {
    /// The prefix for one stream of one worker, in the colour of its local rank where there are colours.
    ///
    /// Control characters in values are replaced by `?`.
    #[must_use]
    pub fn prefix(&self, values: PrefixValues<'_>) -> LinePrefix {
        let mut prefix = LinePrefix { segments: Vec::new(), color: Some(values.local_rank) };
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => prefix.push_text(text),
                Piece::Macro(Macro::RoleName) => prefix.push_text(&without_controls(values.role_name)),
                Piece::Macro(Macro::LocalRank) => prefix.push_text(&values.local_rank.to_string()),
                Piece::Macro(Macro::Rank) => prefix.push_text(&without_controls(values.rank)),
                Piece::Macro(Macro::Hostname) => prefix.push_text(&without_controls(values.hostname)),
                Piece::Macro(Macro::Stream) => prefix.push_text(&without_controls(values.stream)),
                Piece::Macro(Macro::Pid) => prefix.segments.push(Segment::Pid),
                Piece::Macro(Macro::Time) => prefix.segments.push(Segment::Time),
            }
        }
        prefix
    }
}

/// What stands before each line of one source, with what is known only later: its process id, the time of a line.
///
/// From a text or bytes it is just that, without a colour.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinePrefix {
    segments: Vec<Segment>,
    color: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Text(Vec<u8>),
    Pid,
    Time,
}

impl LinePrefix {
    /// Sets which of the colours it has on a console with colours: any number, such as the local rank.
    #[must_use]
    pub fn color(mut self, number: usize) -> Self {
        self.color = Some(number);
        self
    }

    /// Whether it names the process id, which [`Tail::set_pid`](crate::Tail::set_pid) must tell.
    #[must_use]
    pub fn needs_pid(&self) -> bool {
        self.segments.contains(&Segment::Pid)
    }

    /// Puts the process id in; `?` where there is none.
    pub(crate) fn set_pid(&mut self, pid: Option<u32>) {
        let text = pid.map_or("?".to_owned(), |pid| pid.to_string()).into_bytes();
        for segment in &mut self.segments {
            if *segment == Segment::Pid {
                *segment = Segment::Text(text.clone());
            }
        }
    }

    pub(crate) fn is_timed(&self) -> bool {
        self.segments.contains(&Segment::Time)
    }

    /// How many columns it takes on a terminal, a process id that is not known not counted.
    #[must_use]
    pub fn width(&self) -> usize {
        let width = |segment: &Segment| match segment {
            Segment::Text(text) => String::from_utf8_lossy(text).chars().count(),
            Segment::Pid => 0,
            Segment::Time => utc::WIDTH,
        };
        self.segments.iter().map(width).sum()
    }

    /// It as bytes, with its colour if `colored`, and with blanks to so many `columns`; the time is that of the call.
    ///
    /// ```
    /// use rankrun_logs::LinePrefix;
    ///
    /// let prefix = LinePrefix::from("[0]:").color(0);
    /// assert_eq!(prefix.to_bytes(true, 6), b"\x1b[36m[0]:\x1b[0m  ");
    /// assert_eq!(prefix.to_bytes(false, 0), b"[0]:");
    /// ```
    #[must_use]
    pub fn to_bytes(&self, colored: bool, columns: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.append(SystemTime::now(), colored, columns.saturating_sub(self.width()), &mut bytes);
        bytes
    }

    /// Appends it for a line of this time, with its colour if `colored`, and with `pad` blanks.
    pub(crate) fn append(&self, now: SystemTime, colored: bool, pad: usize, out: &mut Vec<u8>) {
        let color = self.color.filter(|_| colored && !self.segments.is_empty());
        if let Some(number) = color {
            out.extend_from_slice(COLORS[number % COLORS.len()]);
        }
        for segment in &self.segments {
            match segment {
                Segment::Text(text) => out.extend_from_slice(text),
                Segment::Pid => out.push(b'?'),
                Segment::Time => utc::append(now, out),
            }
        }
        if color.is_some() {
            out.extend_from_slice(RESET);
        }
        out.resize(out.len() + pad, b' ');
    }

    fn push_text(&mut self, text: &str) {
        match self.segments.last_mut() {
            Some(Segment::Text(last)) => last.extend_from_slice(text.as_bytes()),
            _ => self.segments.push(Segment::Text(text.as_bytes().to_vec())),
        }
    }
}

impl fmt::Display for LinePrefix {
    /// As it stands before lines of a time and a process that are not known: `?` for each of the two, without colours.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.segments.iter().try_for_each(|segment| match segment {
            Segment::Text(text) => f.write_str(&String::from_utf8_lossy(text)),
            Segment::Pid | Segment::Time => f.write_str("?"),
        })
    }
}

impl From<Vec<u8>> for LinePrefix {
    fn from(bytes: Vec<u8>) -> Self {
        Self { segments: vec![Segment::Text(bytes)], color: None }
    }
}

impl From<String> for LinePrefix {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl From<&str> for LinePrefix {
    fn from(text: &str) -> Self {
        text.as_bytes().to_vec().into()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    const VALUES: PrefixValues<'_> =
        PrefixValues { role_name: "a\nb", local_rank: 1, rank: "9", hostname: "node", stream: "stderr" };

    fn shown(template: &str) -> String {
        let mut prefix = template.parse::<PrefixTemplate>().unwrap().prefix(VALUES);
        prefix.set_pid(Some(42));
        let mut out = Vec::new();
        prefix.append(UNIX_EPOCH + Duration::from_millis(1), false, 0, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_role_with_a_newline_does_not_break_the_line() {
        assert_eq!(line_prefix("a\nb", 0), "[a?b0]:");
    }

    #[test]
    fn macros_are_replaced_in_both_forms_and_dollars_stay() {
        for (template, expected) in [
            ("[${role_name}${local_rank}]:", "[a?b1]:"),
            ("${rank}@${hostname}/${pid} ${stream} ${time}|", "9@node/42 stderr 1970-01-01T00:00:00.001Z|"),
            ("$rank-$local_rank:", "9-1:"),
            ("$$rank $ $9 ${rank}$", "$rank $ $9 9$"),
            ("\u{e4}\t", "\u{e4}\t"),
            ("", ""),
        ] {
            assert_eq!(shown(template), expected, "{template}");
            let again = template.parse::<PrefixTemplate>().unwrap().to_string();
            assert_eq!(shown(&again), expected, "{template} shown as {again}");
        }
        assert_eq!(PrefixTemplate::default().to_string(), "[${role_name}${local_rank}]:");
    }

    #[test]
    fn afterwards_process_and_time_are_not_known() {
        let template: PrefixTemplate = "${time} ${role_name}/${stream} ${pid}:".parse().unwrap();
        assert_eq!(template.prefix(VALUES).to_string(), "? a?b/stderr ?:");
    }

    #[test]
    fn a_wrong_template_is_refused_with_the_place_and_what_is_accepted() {
        for (template, expected) in [
            (
                "a${node}",
                "unknown macro `${node}` at byte 1: expected ${role_name} ${local_rank} ${rank} ${hostname} ${pid} \
                 ${time} ${stream}",
            ),
            (
                "$ranks",
                "unknown macro `${ranks}` at byte 0: expected ${role_name} ${local_rank} ${rank} ${hostname} ${pid} \
                 ${time} ${stream}",
            ),
            ("ab${rank", "`${` at byte 2 is not closed: expected `}`"),
            ("a\n", "control character \\n at byte 1: expected text"),
            ("\u{1b}[31m", "control character \\x1b at byte 0: expected text"),
        ] {
            assert_eq!(template.parse::<PrefixTemplate>().unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_colour_is_ended_before_the_line_and_the_padding() {
        let mut out = Vec::new();
        PrefixTemplate::default().prefix(VALUES).append(UNIX_EPOCH, true, 2, &mut out);
        assert_eq!(out, b"\x1b[33m[a?b1]:\x1b[0m  ");
        out.clear();
        LinePrefix::from("p:").append(UNIX_EPOCH, true, 0, &mut out);
        assert_eq!(out, b"p:");
    }
}
