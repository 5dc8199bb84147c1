//! What the compiler says to someone who writes a handler wrongly.

#[test]
fn mistakes_are_explained() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
