//! Compile errors of invalid handlers.

#[test]
fn invalid_handlers_fail_to_compile_with_an_explanation() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
