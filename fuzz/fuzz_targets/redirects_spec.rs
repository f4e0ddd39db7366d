//! The redirect spec parser on any text: no panic, errors on a character boundary, and what was read reads back as it
//! shows. Not here: whether an answer is right (the conformance table).
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use rankrun_redirects::{Redirects, Std, StdMap, StdSpec};

/// A map that names nothing has no text of its own; it shows as one whose default is NONE.
fn as_shown(spec: StdSpec) -> StdSpec {
    if spec == StdMap::default().into() {
        return StdMap { ranks: BTreeMap::new(), default: Some(Std::NONE) }.into();
    }
    spec
}

fuzz_target!(|text: &str| {
    for parsed in [Std::from_str(text), StdSpec::parse_mapping(text)] {
        match parsed {
            Ok(spec) => {
                let shown = spec.to_string();
                assert_eq!(StdSpec::parse_mapping(&shown), Ok(as_shown(spec)), "shown as {shown}");
            }
            Err(error) => {
                assert!(text.is_char_boundary(error.position()));
                assert!(!error.to_string().contains(char::is_control));
            }
        }
    }
    for parsed in [Redirects::from_str(text), Redirects::parse_mapping(text)] {
        match parsed {
            Ok(Redirects { stdouts, stderrs }) => {
                let shown = Redirects::new(&stdouts, &stderrs).to_string();
                let expected = Redirects::new(as_shown(stdouts), as_shown(stderrs));
                assert_eq!(Redirects::parse_mapping(&shown), Ok(expected), "shown as {shown}");
            }
            Err(error) => assert!(text.is_char_boundary(error.position())),
        }
    }
});
