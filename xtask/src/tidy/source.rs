//! `Source`: a Rust file, separated into code, strings and tests.
//!
//! A small scanner, not a parser: it recognizes strings, characters, comments and matching braces, which is enough to
//! search for words in code only.

use std::ops::Range;

use super::Violation;

/// One Rust file, scanned once for all rules.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    pub(crate) path: &'a str,
    pub(crate) lines: Vec<Line<'a>>,
}

/// One line: as written, its code and its strings.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    /// Counted from 1.
    pub(crate) number: usize,
    pub(crate) raw: &'a str,
    /// With comments, strings and characters replaced by spaces.
    pub(crate) code: String,
    /// Only the content of strings.
    pub(crate) strings: String,
    /// Whether it is compiled only for tests.
    pub(crate) in_test: bool,
}

impl<'a> Source<'a> {
    /// Scans `text`; `all_test` means that the whole file is compiled only for tests.
    pub(crate) fn new(path: &'a str, text: &'a str, all_test: bool) -> Self {
        let kinds = scan(text);
        let only = |kind: ByteKind| -> String {
            text.bytes()
                .zip(&kinds)
                .map(|(byte, &byte_kind)| match byte {
                    b'\n' => '\n',
                    _ if byte_kind == kind && byte.is_ascii() => char::from(byte),
                    _ => ' ',
                })
                .collect()
        };
        let code = only(ByteKind::Code);
        let strings = only(ByteKind::Text);
        let tests = test_ranges(&code);
        let mut start = 0;
        let lines = text
            .lines()
            .zip(code.lines().zip(strings.lines()))
            .enumerate()
            .map(|(index, (raw, (code, strings)))| {
                let at = start;
                start += code.len() + 1;
                Line {
                    number: index + 1,
                    raw,
                    code: code.to_owned(),
                    strings: strings.to_owned(),
                    in_test: all_test || tests.iter().any(|range| range.contains(&at)),
                }
            })
            .collect();
        Self { path, lines }
    }

    /// Returns a violation on `line`.
    pub(crate) fn violation(&self, rule: &'static str, line: &Line<'_>, advice: &str) -> Violation {
        Violation::new(rule, self.path, line.number, line.raw, advice)
    }

    /// Returns the doc comments and attributes directly above the item that starts on line `number`.
    pub(crate) fn docs_above(&self, number: usize) -> String {
        let mut docs = Vec::new();
        for line in self.lines[..number - 1].iter().rev() {
            let text = line.raw.trim();
            let attribute = text.starts_with("#[") || text.ends_with(']') || text.ends_with("),");
            if !text.starts_with("///") && !text.starts_with("//") && !attribute {
                break;
            }
            docs.push(text);
        }
        docs.reverse();
        docs.join("\n")
    }

    /// Returns the names of the modules in other files that are compiled only for tests.
    pub(crate) fn test_modules(&self) -> Vec<String> {
        self.lines
            .iter()
            .filter(|line| line.in_test)
            .filter_map(|line| {
                let declaration = line.code.trim().strip_suffix(';')?;
                let (_, name) = declaration.rsplit_once("mod ")?;
                Some(name.trim().to_owned())
            })
            .collect()
    }
}

/// Returns the end of the item that starts at `start`: its closing brace or its semicolon.
fn item_end(code: &str, start: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut brackets = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'(' | b'[' => brackets += 1,
            b')' | b']' => brackets = brackets.saturating_sub(1),
            b'{' => depth += 1,
            b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 && brackets == 0 {
                    return Some(at);
                }
            }
            b';' if depth == 0 && brackets == 0 => return Some(at),
            _ => {}
        }
    }
    None
}

/// Returns the parts of `code` under `#[cfg(test)]`, alone or with further conditions such as `fuzzing`.
fn test_ranges(code: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    for opening in ["#[cfg(test)]", "#[cfg(all(test,", "#[cfg(any(test,"] {
        for (at, _) in code.match_indices(opening) {
            let line_start = code[..at].rfind('\n').map_or(0, |newline| newline + 1);
            let attribute_end = code[at..].find(']').map_or(code.len(), |end| at + end + 1);
            if let Some(end) = item_end(code, attribute_end) {
                ranges.push(line_start..end + 1);
            }
        }
    }
    ranges
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum ByteKind {
    Code,
    Text,
    /// Comments, quotes and character literals, which are searched neither as code nor as text.
    Other,
}

/// Returns the kind of each byte of `text`.
fn scan(text: &str) -> Vec<ByteKind> {
    let bytes = text.as_bytes();
    let mut kinds = vec![ByteKind::Code; bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text.as_bytes()[at..];
        let after_word = at > 0 && is_word(bytes[at - 1]);
        let (kind, length, quotes) = if rest.starts_with(b"//") {
            (ByteKind::Other, line_length(rest), 0)
        } else if rest.starts_with(b"/*") {
            (ByteKind::Other, block_comment_length(rest), 0)
        } else if let Some((length, quotes)) = raw_string(rest).filter(|_| !after_word) {
            (ByteKind::Text, length, quotes)
        } else if rest[0] == b'"' {
            (ByteKind::Text, string_length(rest), 1)
        } else if rest[0] == b'\'' && character_length(rest) > 0 {
            (ByteKind::Other, character_length(rest), 0)
        } else {
            (ByteKind::Code, 1, 0)
        };
        let end = (at + length).min(bytes.len());
        kinds[at..end].fill(kind);
        kinds[at..(at + quotes).min(end)].fill(ByteKind::Other);
        if kind == ByteKind::Text {
            kinds[end - 1] = ByteKind::Other;
        }
        at = end;
    }
    kinds
}

fn line_length(rest: &[u8]) -> usize {
    rest.iter()
        .position(|&byte| byte == b'\n')
        .unwrap_or(rest.len())
}

fn block_comment_length(rest: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// Returns the length of `r"…"` or `r#"…"#`, and of its opening quotes.
fn raw_string(rest: &[u8]) -> Option<(usize, usize)> {
    let prefix = usize::from(matches!(rest[0], b'b' | b'c'));
    let after = rest.get(prefix..)?.strip_prefix(b"r")?;
    let hashes = after.iter().take_while(|&&byte| byte == b'#').count();
    if after.get(hashes) != Some(&b'"') {
        return None;
    }
    let opening = prefix + 1 + hashes + 1;
    let closing: Vec<u8> = std::iter::once(b'"')
        .chain(std::iter::repeat_n(b'#', hashes))
        .collect();
    let body = rest[opening..]
        .windows(closing.len())
        .position(|window| window == closing)?;
    Some((opening + body + closing.len(), opening))
}

fn string_length(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Returns the length of a character literal, or zero if the quote starts a lifetime.
fn character_length(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        return rest[3..]
            .iter()
            .position(|&byte| byte == b'\'')
            .map_or(0, |end| end + 4);
    }
    // One character is at most four bytes long.
    (2..=5)
        .find(|&end| rest.get(end) == Some(&b'\''))
        .filter(|&end| {
            std::str::from_utf8(&rest[1..end]).is_ok_and(|inside| inside.chars().count() == 1)
        })
        .map_or(0, |end| end + 1)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source<'_> {
        Source::new("a.rs", text, false)
    }

    #[test]
    fn strings_and_code_are_separated() {
        let source = source("let a = \"one // two\"; // three \"four\"\n");
        let line = &source.lines[0];

        assert_eq!(line.code.trim(), "let a =             ;");
        assert_eq!(line.strings.trim(), "one // two");
    }

    #[test]
    fn quotes_inside_raw_strings_and_characters_are_skipped() {
        let text =
            "let a = r#\"x \" y\"#; let b = '\"'; let c: &'static str = b; let d = '\\''; code()";

        let line = &source(text).lines[0];

        assert!(line.code.contains("&'static str = b"), "{}", line.code);
        assert!(line.code.contains("code()"), "{}", line.code);
        assert!(line.strings.contains("x \" y"), "{}", line.strings);
    }

    #[test]
    fn nested_block_comments_end_at_the_matching_delimiter() {
        let source = source("/* a /* b */ c */ d");

        assert_eq!(source.lines[0].code.trim(), "d");
    }

    #[test]
    fn test_parts_are_marked_to_their_closing_brace() {
        let source =
            source("fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { '}'; }\n}\nfn c() {}\n");

        let marked: Vec<bool> = source.lines.iter().map(|line| line.in_test).collect();

        assert_eq!(marked, [false, true, true, true, true, false]);
    }

    #[test]
    fn test_modules_in_other_files_are_named() {
        assert_eq!(
            source("mod a;\n#[cfg(any(test, fuzzing))]\npub(crate) mod model;\n").test_modules(),
            ["model"]
        );
    }

    #[test]
    fn docs_are_found_above_attributes() {
        let source = source(
            "struct A;\n\n/// One.\n///\n/// # Cancel safety\n#[must_use]\npub async fn a() {}\n",
        );

        let docs = source.docs_above(7);

        assert_eq!(docs, "/// One.\n///\n/// # Cancel safety\n#[must_use]");
    }
}
