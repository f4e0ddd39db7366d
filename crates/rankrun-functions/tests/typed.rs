//! What must not compile: functions with other arguments than they take, and values of other types than they return.
//!
//! The expected messages are those of the stable compiler; `TRYBUILD=overwrite` takes new ones over.

#[test]
fn arguments_and_values_of_other_types_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/typed/*.rs");
}
