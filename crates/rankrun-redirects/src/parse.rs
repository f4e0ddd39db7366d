//! The one tokenizer and parser of both grammars; the crate's docs have them as EBNF. Not here: what an error says
//! (`error`), how a spec shows (`spec`).
//!
//! Recursive descent without recursion: a grammar has no nesting, so the parser is a loop over items. Every failure is
//! made from the token that is wrong, so a position is always that of a token or of the text's end.

use std::borrow::Cow;
use std::ops::Range;

use rankrun_types::MAX_LOCAL_RANK;

use crate::error::ParseStdError;
use crate::mode::Std;
use crate::redirects::Redirects;
use crate::spec::{StdMap, StdSpec};

const MODE: &str = "a mode (0-3, none, out, err or all)";
const SLOT: &str = "a mode (0-3, none, out, err or all) or default";
const RANKS: &str = "ranks (0-65535, a range a-b, default or *)";
const MODE_OR_RANKS: &str = "a mode (0-3, none, out, err or all) or ranks (0-65535, a range a-b, default or *)";

/// Which of the two grammars a spec is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grammar {
    Mapping,
    Reference,
}

/// Reads a text that is one spec.
pub(crate) fn one_spec(text: &str, grammar: Grammar) -> Result<StdSpec, ParseStdError> {
    Parser { text, at: 0, arrow_ends: false }.spec(grammar)
}

/// Reads `OUTS->ERRS`, or one spec for both.
pub(crate) fn redirects(text: &str, grammar: Grammar) -> Result<Redirects, ParseStdError> {
    let mut parser = Parser { text, at: 0, arrow_ends: true };
    let stdouts = parser.spec(grammar)?;
    if parser.next().kind == Kind::End {
        return Ok(Redirects { stderrs: stdouts.clone(), stdouts });
    }
    parser.arrow_ends = false;
    let stderrs = parser.spec(grammar)?;
    Ok(Redirects { stdouts, stderrs })
}

/// Reads a text that is RANKS and nothing more.
pub(crate) fn ranks(text: &str) -> Result<Ranks, ParseStdError> {
    let mut parser = Parser { text, at: 0, arrow_ends: false };
    let named = parser.ranks()?;
    let token = parser.next();
    match token.kind {
        Kind::End => Ok(named.ranks),
        _ if named.may_go_on => Err(parser.error(token, "`-` or the end of the text")),
        _ => Err(parser.error(token, "the end of the text")),
    }
}

/// The ranks that one item of a mapping names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ranks {
    /// Every rank not named elsewhere.
    Default,
    /// From `first` to `last`, both included.
    Span { first: usize, last: usize },
}

impl Ranks {
    /// One rank, or `None` if there cannot be such a rank.
    pub(crate) fn one(rank: u64) -> Option<Self> {
        let rank = usize::try_from(rank).ok().filter(|rank| *rank <= MAX_LOCAL_RANK)?;
        Some(Self::Span { first: rank, last: rank })
    }

    /// Whether `map` has none of them yet; the error is what was expected.
    pub(crate) fn check_new(self, map: &StdMap) -> Result<(), Cow<'static, str>> {
        match self {
            Self::Default if map.default.is_some() => Err("no second `default` or `*`".into()),
            Self::Default => Ok(()),
            Self::Span { first, last } => match map.ranks.range(first..=last).next() {
                None => Ok(()),
                Some(_) if first == last => Err("a rank that is not given yet".into()),
                Some((rank, _)) => Err(format!("ranks that are not given yet (rank {rank} is)").into()),
            },
        }
    }

    pub(crate) fn insert(self, map: &mut StdMap, mode: Std) {
        match self {
            Self::Default => map.default = Some(mode),
            Self::Span { first, last } => map.ranks.extend((first..=last).map(|rank| (rank, mode))),
        }
    }
}

/// Ranks and where the text names them.
struct NamedRanks {
    ranks: Ranks,
    span: Range<usize>,
    /// It is a single rank, which `-` would make a range.
    may_go_on: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A number, a name, or anything else without white space and marks.
    Word,
    Colon,
    Comma,
    Dash,
    Star,
    Arrow,
    End,
}

#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    kind: Kind,
    at: usize,
    text: &'a str,
}

impl Token<'_> {
    fn is_default(self) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case("default")
    }

    /// The mode it says, if it says one.
    fn mode(self) -> Option<Std> {
        if self.kind == Kind::Word { Std::from_token(self.text) } else { None }
    }

    /// The rank it says, or what was expected.
    fn rank(self) -> Result<usize, &'static str> {
        let digits = self.text.as_bytes();
        if self.kind != Kind::Word || !digits.iter().all(u8::is_ascii_digit) {
            return Err(RANKS);
        }
        if digits.len() > 1 && digits[0] == b'0' {
            return Err("a rank without leading zeros");
        }
        // All digits, so the one way to fail is to be too large.
        let rank = self.text.parse().ok().filter(|rank| *rank <= MAX_LOCAL_RANK);
        rank.ok_or("a rank from 0 to 65535")
    }
}

#[derive(Clone, Copy)]
struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// `->` ends the spec as the end of the text does.
    arrow_ends: bool,
}

impl<'a> Parser<'a> {
    /// Takes the next token; at the end of the text, the end again and again.
    fn next(&mut self) -> Token<'a> {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(|byte| is_space(*byte)) {
            self.at += 1;
        }
        let at = self.at;
        let (kind, length) = match &bytes[at..] {
            [] => (Kind::End, 0),
            [b'-', b'>', ..] => (Kind::Arrow, 2),
            [b'-', ..] => (Kind::Dash, 1),
            [b':', ..] => (Kind::Colon, 1),
            [b',', ..] => (Kind::Comma, 1),
            [b'*', ..] => (Kind::Star, 1),
            // It ends before an ASCII byte, so at a character boundary.
            rest => {
                let ends = |byte: &u8| is_space(*byte) || b"-:,*".contains(byte);
                (Kind::Word, rest.iter().position(ends).unwrap_or(rest.len()))
            }
        };
        self.at += length;
        Token { kind, at, text: &self.text[at..self.at] }
    }

    fn peek(self) -> Token<'a> {
        let mut ahead = self;
        ahead.next()
    }

    /// Whether the token ends a spec.
    fn ends(self, token: Token<'_>) -> bool {
        token.kind == Kind::End || (self.arrow_ends && token.kind == Kind::Arrow)
    }

    fn error(self, token: Token<'_>, expected: impl Into<Cow<'static, str>>) -> ParseStdError {
        let found = (token.kind != Kind::End).then_some(token.text);
        ParseStdError::new(self.text, token.at, expected.into(), found)
    }

    /// The error for a token where the spec may end, or go on with `or_else`.
    fn error_not_end(self, token: Token<'_>, or_else: &str) -> ParseStdError {
        let arrow = if self.arrow_ends { "`->` or " } else { "" };
        self.error(token, format!("{or_else}{arrow}the end of the text"))
    }

    /// Reads one spec up to its end, which stays.
    fn spec(&mut self, grammar: Grammar) -> Result<StdSpec, ParseStdError> {
        let mut text = &self.text[self.at..];
        if self.arrow_ends {
            text = text.split_once("->").map_or(text, |(spec, _)| spec);
        }
        if grammar == Grammar::Reference && text.contains(':') && !text.contains(',') {
            self.positional()
        } else {
            self.mode_or_items()
        }
    }

    /// `slot : slot [: slot]`, the modes of ranks 0, 1 and 2.
    fn positional(&mut self) -> Result<StdSpec, ParseStdError> {
        let slots = [self.slot()?, self.slot_after_colon()?];
        let third = if self.ends(self.peek()) { slots[1] } else { self.slot_after_colon()? };
        let token = self.peek();
        if !self.ends(token) {
            return Err(self.error_not_end(token, ""));
        }
        let modes = slots.into_iter().chain([third]).enumerate();
        let ranks = modes.filter_map(|(rank, mode)| Some((rank, mode?))).collect();
        Ok(StdMap { ranks, default: None }.into())
    }

    fn slot_after_colon(&mut self) -> Result<Option<Std>, ParseStdError> {
        self.colon("`:`")?;
        self.slot()
    }

    fn slot(&mut self) -> Result<Option<Std>, ParseStdError> {
        let token = self.next();
        if token.is_default() {
            return Ok(None);
        }
        token.mode().map(Some).ok_or_else(|| self.error(token, SLOT))
    }

    /// `mode`, or `ranks : mode` once or more.
    fn mode_or_items(&mut self) -> Result<StdSpec, ParseStdError> {
        let mut ahead = *self;
        let (first, second) = (ahead.next(), ahead.next());
        match first.kind {
            Kind::Word if first.is_default() => self.items(),
            Kind::Word if self.ends(second) => {
                let mode = first.mode().ok_or_else(|| self.error(first, MODE))?;
                self.next();
                Ok(mode.into())
            }
            // A name of a mode is never a rank, so it is what follows that is wrong (but with a colon, the name).
            Kind::Word if first.mode().is_some() && first.rank().is_err() && second.kind != Kind::Colon => {
                Err(self.error_not_end(second, ""))
            }
            Kind::Word | Kind::Star => self.items(),
            _ => Err(self.error(first, MODE_OR_RANKS)),
        }
    }

    fn items(&mut self) -> Result<StdSpec, ParseStdError> {
        let mut map = StdMap::default();
        loop {
            let named = self.ranks()?;
            if let Err(expected) = named.ranks.check_new(&map) {
                let found = &self.text[named.span.clone()];
                return Err(ParseStdError::new(self.text, named.span.start, expected, Some(found)));
            }
            self.colon(if named.may_go_on { "`:` or `-`" } else { "`:`" })?;
            let token = self.next();
            let mode = token.mode().ok_or_else(|| self.error(token, MODE))?;
            named.ranks.insert(&mut map, mode);
            let token = self.peek();
            if self.ends(token) {
                return Ok(map.into());
            }
            if token.kind != Kind::Comma {
                return Err(self.error_not_end(token, "`,` or "));
            }
            self.next();
        }
    }

    fn colon(&mut self, expected: &'static str) -> Result<(), ParseStdError> {
        let token = self.next();
        if token.kind == Kind::Colon { Ok(()) } else { Err(self.error(token, expected)) }
    }

    /// `rank [- rank]`, `default` or `*`.
    fn ranks(&mut self) -> Result<NamedRanks, ParseStdError> {
        let token = self.next();
        if token.kind == Kind::Star || token.is_default() {
            return Ok(NamedRanks { ranks: Ranks::Default, span: token.at..self.at, may_go_on: false });
        }
        let first = token.rank().map_err(|expected| self.error(token, expected))?;
        if self.peek().kind != Kind::Dash {
            let ranks = Ranks::Span { first, last: first };
            return Ok(NamedRanks { ranks, span: token.at..self.at, may_go_on: true });
        }
        self.next();
        let end = self.next();
        let wrong = |parser: &Self| parser.error(end, format!("a rank from {first} to {MAX_LOCAL_RANK}"));
        let last = end.rank().map_err(|_| wrong(self))?;
        if last < first {
            return Err(wrong(self));
        }
        Ok(NamedRanks { ranks: Ranks::Span { first, last }, span: token.at..self.at, may_go_on: false })
    }
}

/// The white space of C's `isspace`, all of it ASCII.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str, grammar: Grammar) -> (usize, String, String) {
        let error = one_spec(text, grammar).unwrap_err();
        (error.position(), error.expected().to_owned(), error.found().to_owned())
    }

    #[track_caller]
    fn refused(text: &str, position: usize, expected: &str, found: &str) {
        assert_eq!(refusal(text, Grammar::Mapping), (position, expected.to_owned(), found.to_owned()));
    }

    const END: &str = "the end of the text";

    #[test]
    fn a_wrong_mode_is_named_where_it_stands() {
        refused("4", 0, MODE, "`4`");
        refused("01", 0, MODE, "`01`");
        refused("0:1,1:\u{661}", 6, MODE, "`\u{661}`");
        refused("0:,1:1", 2, MODE, "`,`");
        refused("0:", 2, MODE, END);
        refused("OUT|ERR", 0, MODE, "`OUT|ERR`");
    }

    #[test]
    fn wrong_ranks_are_named_where_they_stand() {
        refused("-1:2,0:1", 0, MODE_OR_RANKS, "`-`");
        refused("0:1,-1:2", 4, RANKS, "`-`");
        refused("0:1,65536:1", 4, "a rank from 0 to 65535", "`65536`");
        refused("99999999999999999999:1", 0, "a rank from 0 to 65535", "`99999999999999999999`");
        refused("012:1", 0, "a rank without leading zeros", "`012`");
        refused("3-0:1", 2, "a rank from 3 to 65535", "`0`");
        refused("2-:2", 2, "a rank from 2 to 65535", "`:`");
        refused("out:1", 0, RANKS, "`out`");
        refused("\u{e9}:1,0:1", 0, RANKS, "`\u{e9}`");
        refused("1-2-3:1", 3, "`:`", "`-`");
    }

    #[test]
    fn empty_items_are_named_where_they_would_stand() {
        refused("", 0, MODE_OR_RANKS, END);
        refused(" \t", 2, MODE_OR_RANKS, END);
        refused("0:1,", 4, RANKS, END);
        refused("0:1,,1:2", 4, RANKS, "`,`");
        refused(",0:1", 0, MODE_OR_RANKS, "`,`");
    }

    #[test]
    fn ranks_given_twice_are_named_where_they_are_given_again() {
        refused("0:1, 0:1", 5, "a rank that is not given yet", "`0`");
        refused("2:2,0 - 3:1", 4, "ranks that are not given yet (rank 2 is)", "`0 - 3`");
        refused("*:1,default:2", 4, "no second `default` or `*`", "`default`");
    }

    #[test]
    fn what_follows_a_whole_spec_is_named() {
        refused("0:1:2", 3, "`,` or the end of the text", "`:`");
        refused("out,0:1", 3, END, "`,`");
        refused("1,0:1", 1, "`:` or `-`", "`,`");
        refused("*", 1, "`:`", END);
        refused("default", 7, "`:`", END);
        refused("0:1->1", 3, "`,` or the end of the text", "`->`");
    }

    #[test]
    fn the_positional_form_says_what_a_slot_is() {
        let refusal = |text| refusal(text, Grammar::Reference);
        assert_eq!(refusal("4:0"), (0, SLOT.to_owned(), "`4`".to_owned()));
        assert_eq!(refusal("*:1"), (0, SLOT.to_owned(), "`*`".to_owned()));
        assert_eq!(refusal("0-3:1"), (1, "`:`".to_owned(), "`-`".to_owned()));
        assert_eq!(refusal("0:1:"), (4, SLOT.to_owned(), END.to_owned()));
        assert_eq!(refusal("0:1:2:3"), (5, END.to_owned(), "`:`".to_owned()));
        assert_eq!(refusal("0:1 2"), (4, "`:`".to_owned(), "`2`".to_owned()));
    }

    #[test]
    fn a_wrong_end_before_an_arrow_offers_the_arrow() {
        let error = redirects("0:1;->1", Grammar::Mapping).unwrap_err();
        assert_eq!(error.found(), "`1;`");
        let error = redirects("0:1:1->1", Grammar::Mapping).unwrap_err();
        assert_eq!(error.expected(), "`,` or `->` or the end of the text");
    }

    #[test]
    fn white_space_may_stand_around_every_token() {
        let spread = one_spec("\u{b}0 - 3\t:\r\n1\u{c},\n* : 2 ", Grammar::Mapping);
        assert_eq!(spread, one_spec("0-3:1,*:2", Grammar::Mapping));
        refused("0:1\u{a0}", 2, MODE, r"`1\u{a0}`");
    }

    #[test]
    fn the_whole_range_of_ranks_is_one_item_and_a_second_is_refused_at_once() {
        let Ok(StdSpec::PerRank(map)) = one_spec("0-65535:1", Grammar::Mapping) else { panic!("not a map") };
        assert_eq!(map.ranks.len(), 65_536);
        let hostile = "0-65535:1,".repeat(100_000);
        assert_eq!(one_spec(&hostile, Grammar::Mapping).unwrap_err().position(), 10);
    }

    #[test]
    fn an_error_is_one_short_line_whatever_the_text_is() {
        for text in ["0:\u{1b}[2J\n\0,1:1".to_owned(), "x".repeat(1 << 20), "\u{1f600}\n".repeat(1000)] {
            let shown = one_spec(&text, Grammar::Mapping).unwrap_err().to_string();
            assert!(!shown.contains(char::is_control) && shown.len() < 1200, "{shown}");
        }
    }
}
