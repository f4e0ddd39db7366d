//! What holds for every spec and every text. Not here: single cases (the modules' own tests, the conformance table).

#![expect(clippy::unwrap_used, reason = "what is not there fails the test, in a helper too")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use rankrun_redirects::{ParseStdError, Redirects, Std, StdMap, StdSpec, to_map, to_map_strict};

fn mode() -> impl Strategy<Value = Std> {
    (0u8..4).prop_map(|bits| Std::from_bits(bits).unwrap())
}

/// Maps with neighbours, gaps and large ranks.
fn map() -> impl Strategy<Value = StdMap> {
    let rank = prop_oneof![3 => 0usize..12, 1 => 0usize..=65_535, 1 => 65_530usize..=65_535];
    (prop::collection::btree_map(rank, mode(), 0..20), prop::option::of(mode()))
        .prop_map(|(ranks, default)| StdMap { ranks, default })
}

fn spec() -> impl Strategy<Value = StdSpec> {
    prop_oneof![1 => mode().prop_map(StdSpec::One), 4 => map().prop_map(StdSpec::PerRank)]
}

/// What a spec reads back as: itself, but for a map that names nothing.
fn as_shown(spec: &StdSpec) -> StdSpec {
    if *spec == StdMap::default().into() {
        return StdMap { ranks: BTreeMap::new(), default: Some(Std::NONE) }.into();
    }
    spec.clone()
}

/// Arbitrary texts, and texts that come close to a spec.
fn text() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        "0", "1", "3", "4", "01", "65535", "65536", "out", "ALL", "none", "default", "*", ":", ":", ":", ",", ",", "-",
        "->", " ", "\n", "é", "٣", "x", "\0", "😀",
    ]);
    prop_oneof![any::<String>(), prop::collection::vec(token, 0..12).prop_map(|tokens| tokens.concat())]
}

/// The error's position is a character boundary of the text and its line has no control character.
fn check_error(text: &str, error: &ParseStdError) -> Result<(), TestCaseError> {
    prop_assert!(text.is_char_boundary(error.position()), "{} in {:?}", error.position(), text);
    prop_assert_eq!(error.position() == text.len(), error.found() == "the end of the text");
    prop_assert!(!error.to_string().contains(char::is_control));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_spec_reads_back_as_it_shows(spec in spec()) {
        prop_assert_eq!(StdSpec::parse_mapping(&spec.to_string()), Ok(as_shown(&spec)));
    }

    #[test]
    fn a_spec_survives_json(spec in spec()) {
        let json = serde_json::to_string(&spec).unwrap();
        prop_assert_eq!(serde_json::from_str::<StdSpec>(&json).unwrap(), spec);
    }

    #[test]
    fn redirects_read_back_as_they_show(stdouts in spec(), stderrs in spec()) {
        let redirects = Redirects::new(&stdouts, &stderrs);
        let expected = Redirects::new(as_shown(&stdouts), as_shown(&stderrs));
        prop_assert_eq!(Redirects::parse_mapping(&redirects.to_string()), Ok(expected));
    }

    #[test]
    fn any_text_is_a_spec_that_reads_back_or_an_error_on_a_character_boundary(text in text()) {
        for parsed in [Std::from_str(&text), StdSpec::parse_mapping(&text)] {
            match parsed {
                Ok(spec) => prop_assert_eq!(StdSpec::parse_mapping(&spec.to_string()), Ok(as_shown(&spec))),
                Err(error) => check_error(&text, &error)?,
            }
        }
        for parsed in [Redirects::from_str(&text), Redirects::parse_mapping(&text)] {
            if let Err(error) = parsed {
                check_error(&text, &error)?;
            }
        }
    }

    #[test]
    fn the_grammars_agree_on_a_text_with_a_comma_or_without_a_colon(text in text()) {
        if text.contains(',') || !text.contains(':') {
            prop_assert_eq!(Std::from_str(&text), StdSpec::parse_mapping(&text));
        }
    }

    #[test]
    fn one_spec_is_the_redirects_of_both_streams(text in text()) {
        if let Ok(spec) = Std::from_str(&text) {
            prop_assert_eq!(Redirects::from_str(&text), Ok(Redirects::new(&spec, &spec)));
        }
        if let Ok(spec) = StdSpec::parse_mapping(&text) {
            prop_assert_eq!(Redirects::parse_mapping(&text), Ok(Redirects::new(&spec, &spec)));
        }
    }

    #[test]
    fn each_rank_of_a_full_map_has_its_own_mode_or_the_default_or_none(map in map(), n in 0usize..40) {
        let full = to_map(map.clone(), n);
        prop_assert_eq!(full.len(), n);
        for (rank, mode) in full.iter() {
            let named = map.ranks.get(&rank).copied();
            prop_assert_eq!(*mode, named.or(map.default).unwrap_or(Std::NONE));
        }
        let outside: Vec<usize> = map.ranks.keys().copied().filter(|rank| *rank >= n).collect();
        match to_map_strict(map, n) {
            Ok(strict) => {
                prop_assert_eq!(strict, full);
                prop_assert_eq!(outside, Vec::<usize>::new());
            }
            Err(error) => prop_assert_eq!((error.ranks, error.local_world_size), (outside, n)),
        }
    }

    #[test]
    fn redirects_take_out_from_the_one_and_err_from_the_other(stdouts in spec(), stderrs in spec(), n in 0usize..20) {
        let joined = Redirects::new(&stdouts, &stderrs).to_map(n);
        let (outs, errs) = (to_map(&stdouts, n), to_map(&stderrs, n));
        for (rank, mode) in joined.iter() {
            prop_assert_eq!(mode.contains(Std::OUT), outs[rank].contains(Std::OUT));
            prop_assert_eq!(mode.contains(Std::ERR), errs[rank].contains(Std::ERR));
        }
    }
}
