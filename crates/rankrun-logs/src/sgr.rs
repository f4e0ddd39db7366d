//! Terminal attributes in a line: whether it leaves any set. Not here: other escape sequences.
//!
//! SGR sequences are `ESC [ n;n;... m`, ECMA-48 8.3.117.

use memchr::memchr;

pub(crate) const ESC: u8 = 0x1b;

/// Ends all attributes.
pub(crate) const RESET: &[u8] = b"\x1b[0m";

/// Each bit is an attribute that has an end of its own.
mod bit {
    pub(super) const FOREGROUND: u16 = 1;
    pub(super) const BACKGROUND: u16 = 1 << 1;
    pub(super) const WEIGHT: u16 = 1 << 2;
    pub(super) const ITALIC: u16 = 1 << 3;
    pub(super) const UNDERLINE: u16 = 1 << 4;
    pub(super) const BLINK: u16 = 1 << 5;
    pub(super) const INVERSE: u16 = 1 << 6;
    pub(super) const HIDDEN: u16 = 1 << 7;
    pub(super) const STRUCK: u16 = 1 << 8;
    pub(super) const OTHER: u16 = 1 << 9;
}

/// Whether an attribute is still set where the line ends.
pub(crate) fn leaves_attributes(line: &[u8]) -> bool {
    let mut set = 0;
    let mut rest = line;
    while let Some(at) = memchr(ESC, rest) {
        rest = &rest[at + 1..];
        if let Some(parameters) = parameters(rest) {
            set = apply(set, parameters);
        }
    }
    set != 0
}

/// The parameters of the SGR sequence that `rest` is the rest of, after its ESC.
fn parameters(rest: &[u8]) -> Option<&[u8]> {
    let rest = rest.strip_prefix(b"[")?;
    let end = rest.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b';' | b':'))?;
    (rest[end] == b'm').then_some(&rest[..end])
}

/// How long the sequence at the start of `bytes` is, and whether it is an SGR; `None` where there is none.
pub(crate) fn sequence(bytes: &[u8]) -> Option<(usize, bool)> {
    let rest = bytes.strip_prefix(&[ESC])?;
    if let Some(parameters) = parameters(rest) {
        return Some((parameters.len() + 3, true));
    }
    let length = match rest.first() {
        // CSI: parameters and intermediates, then one final byte.
        Some(b'[') => rest[1..].iter().position(|byte| (0x40..=0x7e).contains(byte)).map_or(rest.len(), |at| at + 2),
        // OSC: to BEL or ESC \.
        Some(b']') => {
            let end = rest.iter().position(|byte| matches!(*byte, 0x07 | ESC));
            end.map_or(rest.len(), |at| if rest[at] == ESC { (at + 2).min(rest.len()) } else { at + 1 })
        }
        Some(_) => 1,
        None => 0,
    };
    Some((length + 1, false))
}

fn apply(mut set: u16, parameters: &[u8]) -> u16 {
    let mut numbers = parameters.split(|byte| *byte == b';');
    while let Some(number) = numbers.next() {
        // 38:5:1 is one number with parts; its first says what it is.
        let (first, has_parts) = match memchr(b':', number) {
            Some(at) => (&number[..at], true),
            None => (number, false),
        };
        let number = std::str::from_utf8(first).ok().and_then(|text| text.parse::<u16>().ok()).unwrap_or(0);
        match number {
            0 => set = 0,
            1 | 2 => set |= bit::WEIGHT,
            22 => set &= !bit::WEIGHT,
            3 => set |= bit::ITALIC,
            23 => set &= !bit::ITALIC,
            4 | 21 => set |= bit::UNDERLINE,
            24 => set &= !bit::UNDERLINE,
            5 | 6 => set |= bit::BLINK,
            25 => set &= !bit::BLINK,
            7 => set |= bit::INVERSE,
            27 => set &= !bit::INVERSE,
            8 => set |= bit::HIDDEN,
            28 => set &= !bit::HIDDEN,
            9 => set |= bit::STRUCK,
            29 => set &= !bit::STRUCK,
            30..=37 | 90..=97 => set |= bit::FOREGROUND,
            39 => set &= !bit::FOREGROUND,
            40..=47 | 100..=107 => set |= bit::BACKGROUND,
            49 => set &= !bit::BACKGROUND,
            38 | 48 | 58 => {
                set |= match number {
                    38 => bit::FOREGROUND,
                    48 => bit::BACKGROUND,
                    _ => bit::OTHER,
                };
                if !has_parts {
                    // 5;n, or 2;r;g;b: not attributes of their own.
                    let more = match numbers.next() {
                        Some(b"5") => 1,
                        Some(b"2") => 3,
                        _ => 0,
                    };
                    numbers.by_ref().take(more).for_each(drop);
                }
            }
            _ => set |= bit::OTHER,
        }
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_leaves_what_it_set_and_did_not_end() {
        for (line, leaves) in [
            (&b"plain"[..], false),
            (b"\x1b[31mred", true),
            (b"\x1b[31mred\x1b[0m", false),
            (b"\x1b[31mred\x1b[m", false),
            (b"\x1b[1;31mred\x1b[39m", true),
            (b"\x1b[1;31mred\x1b[39;22m", false),
            (b"\x1b[38;5;1mred\x1b[39m", false),
            (b"\x1b[38;2;0;0;0mblack\x1b[39m", false),
            (b"\x1b[38:2::9:9:9mgrey", true),
            (b"\x1b[0;4mline\x1b[24m", false),
            (b"\x1b[0mx\x1b[7m", true),
            (b"\x1b[2Kerased", false),
            (b"\x1b[31", false),
            (b"\x1b", false),
        ] {
            assert_eq!(leaves_attributes(line), leaves, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn the_length_of_a_sequence_is_known() {
        for (bytes, expected) in [
            (&b"\x1b[31mred"[..], Some((5, true))),
            (b"\x1b[2Kx", Some((4, false))),
            (b"\x1b]0;title\x07x", Some((10, false))),
            (b"\x1b]0;title\x1b\\x", Some((11, false))),
            (b"\x1b7x", Some((2, false))),
            (b"\x1b[12", Some((4, false))),
            (b"\x1b", Some((1, false))),
            (b"x", None),
        ] {
            assert_eq!(sequence(bytes), expected, "{}", bytes.escape_ascii());
        }
    }
}
