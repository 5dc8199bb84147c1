//! Compile errors of typical mistakes. Each case starts with what it is, and with the part of the message that says what
//! to do (`Says:`), or that the guide explains (`Guide:`), where the message is the compiler's own.

use std::fs;
use std::io;
use std::path::PathBuf;

#[test]
fn mistakes_fail_to_compile_with_an_explanation() {
    trybuild::TestCases::new().compile_fail("tests/cases/*.rs");
}

#[test]
fn each_message_says_what_to_do() {
    let guide = include_str!("../../docs/troubleshooting.md").replace("\n  ", " ");
    let cases = cases().unwrap();

    for case in &cases {
        let name = case.display();
        let source = fs::read_to_string(case).unwrap();
        let message = fs::read_to_string(case.with_extension("stderr")).unwrap();
        let header = source.lines().nth(1).unwrap_or_default();
        if let Some(advice) = header.strip_prefix("//! Says: ") {
            assert!(message.contains(advice), "{name}: {advice}");
        } else if let Some(part) = header.strip_prefix("//! Guide: ") {
            assert!(message.contains(part), "{name}: {part}");
            assert!(guide.contains(part), "the guide does not explain: {part}");
        } else {
            panic!("{name}: the second line is neither `//! Says: …` nor `//! Guide: …`");
        }
    }

    assert!(cases.len() >= 40, "{} mistakes", cases.len());
}

fn cases() -> io::Result<Vec<PathBuf>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");
    let mut cases = Vec::new();
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            cases.push(path);
        }
    }
    Ok(cases)
}
