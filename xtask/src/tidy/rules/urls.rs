//! URLs in texts: shown without the secrets that they may contain.
//!
//! Clippy cannot forbid to format one type, so this rule looks for the names that URLs have.

use std::ops::Range;

use super::super::source::Source;
use super::{Project, Violation, has_word};

/// A URL may have a key in its query or user info. In an error or a log it is a `RedactedUrl`.
pub(super) fn shown_urls_are_redacted(project: &Project<'_>) -> Vec<Violation> {
    let advice =
        "a URL may contain secrets: show `RedactedUrl::new(…)`, or bind that to the name above";
    let mut found = Vec::new();
    for source in project.crate_sources() {
        let text = Text::new(source);
        for range in text.formatting_macros() {
            let names = text.shown_names(range.clone());
            let line = &source.lines[text.line_at(range.start)];
            let is_shown =
                |name: &&str| is_url_name(name) && !text.is_redacted(name, range.clone());
            if !line.in_test && names.iter().copied().any(|name| is_shown(&name)) {
                found.push(source.violation("urls", line, advice));
            }
        }
    }
    found
}

/// A file as one text of code, and one of its strings, with the same positions.
struct Text {
    code: String,
    strings: String,
    line_starts: Vec<usize>,
}

impl Text {
    fn new(source: &Source<'_>) -> Self {
        let (mut code, mut strings) = (String::new(), String::new());
        let mut line_starts = Vec::new();
        for line in &source.lines {
            line_starts.push(code.len());
            code.push_str(&line.code);
            code.push('\n');
            strings.push_str(&line.strings);
            strings.push('\n');
        }
        Self {
            code,
            strings,
            line_starts,
        }
    }

    fn line_at(&self, at: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= at) - 1
    }

    /// Returns the arguments of the macros that format text.
    fn formatting_macros(&self) -> Vec<Range<usize>> {
        let openings = MACROS.iter().flat_map(|name| {
            let calls = self.code.match_indices(name);
            calls.map(|(at, name)| (at, at + name.len()))
        });
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let whole = openings.filter(|(at, _)| !self.code[..*at].ends_with(is_word));
        whole
            .map(|(at, start)| {
                let range = start..closing(&self.code, start);
                match self.code[at..].starts_with("write") {
                    true => after_first_argument(&self.code, range),
                    false => range,
                }
            })
            .collect()
    }

    /// Returns the names of the variables and members that a macro shows.
    fn shown_names(&self, range: Range<usize>) -> Vec<&str> {
        let mut names = Vec::new();
        let strings = &self.strings[range.clone()];
        let is_escaped = |at: usize| strings[..at].ends_with('{');
        let openings = strings
            .match_indices('{')
            .filter(|(at, _)| !is_escaped(*at));
        for (at, _) in openings {
            let inside = &strings[at + 1..];
            let end = inside.find(['}', ':']).unwrap_or(0);
            names.push(&inside[..end]);
        }
        let arguments = split_arguments(&self.code[range]);
        names.extend(arguments.into_iter().filter_map(last_name));
        names
    }

    /// Returns whether a variable was bound to a `RedactedUrl` shortly before.
    fn is_redacted(&self, name: &str, range: Range<usize>) -> bool {
        let line = self.line_at(range.start);
        let start = self.line_starts[line.saturating_sub(LINES_BEFORE)];
        let end = self.line_starts.get(line + 1).copied();
        let before = &self.code[start..end.unwrap_or(self.code.len())];
        before
            .lines()
            .filter_map(|line| line.split_once("RedactedUrl"))
            .any(|(bound, _)| has_word(bound, name))
    }
}

/// Returns where the parenthesis that was opened before `start` is closed.
fn closing(code: &str, start: usize) -> usize {
    let mut depth = 1;
    for (at, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    code.len()
}

/// Leaves out what is written to.
fn after_first_argument(code: &str, range: Range<usize>) -> Range<usize> {
    let arguments = split_arguments(&code[range.clone()]);
    let first = arguments.first().map_or(0, |first| first.len());
    (range.start + first).min(range.end)..range.end
}

/// Splits at the commas that are in no parentheses.
fn split_arguments(code: &str) -> Vec<&str> {
    let (mut depth, mut start) = (0, 0);
    let mut arguments = Vec::new();
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                arguments.push(&code[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    arguments.push(&code[start..]);
    arguments
}

/// Returns `url` of `url`, `&self.url`, `%request.url()` and `a.url.as_str()`; `None` for any other expression.
fn last_name(argument: &str) -> Option<&str> {
    let value = argument.rsplit('=').next().unwrap_or(argument).trim();
    let mut path = value.trim_start_matches(['&', '%', '?', '*']);
    for call in CONVERSIONS {
        path = path.strip_suffix(call).unwrap_or(path);
    }
    let path = path.strip_suffix("()").unwrap_or(path);
    let is_path = path
        .chars()
        .all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '(' | ')'));
    path.rsplit('.').next().filter(|_| is_path)
}

fn is_url_name(name: &str) -> bool {
    NAMES.contains(&name) || name.ends_with("_url") || name.ends_with("_uri")
}

const NAMES: &[&str] = &["url", "uri", "endpoint", "issuer", "location"];

const MACROS: &[&str] = &[
    "format!(",
    "format_args!(",
    "print!(",
    "println!(",
    "eprint!(",
    "eprintln!(",
    "write!(",
    "writeln!(",
    "panic!(",
    "trace!(",
    "debug!(",
    "info!(",
    "warn!(",
    "error!(",
    "event!(",
    "span!(",
    "error_span!(",
    "warn_span!(",
    "info_span!(",
    "debug_span!(",
    "trace_span!(",
];

const CONVERSIONS: &[&str] = &[
    ".to_owned()",
    ".to_string()",
    ".as_str()",
    ".clone()",
    ".as_ref()",
    ".display()",
];

/// How far above its use a name may be bound to a `RedactedUrl`.
const LINES_BEFORE: usize = 30;

#[cfg(test)]
mod tests {
    use super::super::tests::lines;
    use super::*;

    fn found(code: &str) -> bool {
        let text = format!("fn a() {{\n{code}\n}}\n");
        !lines(shown_urls_are_redacted, "crates/bowline/src/a.rs", &text).is_empty()
    }

    #[test]
    fn a_url_in_a_text_is_found() {
        for leak in [
            r#"format!("failed to connect to {uri}")"#,
            r#"format!("failed to connect to {url:?}")"#,
            r#"format!("failed to connect to {}", self.uri)"#,
            r#"format!("failed to connect to {}: {why}", request.uri())"#,
            "format!(\n    \"failed to connect to {}\",\n    server.issuer.as_str(),\n)",
            r#"tracing::warn!(%error, %url, "failed to connect")"#,
            r#"tracing::debug!(url = ?self.endpoint, "connecting")"#,
            r#"eprintln!("open {}", &server_url)"#,
            r#"write!(f, "{} {}", 1, target.url.to_string())"#,
            "print(RedactedUrl::new(&uri));\nformat!(\"failed to connect to {uri}\")",
        ] {
            assert!(found(leak), "{leak}");
        }
    }

    #[test]
    fn redacted_urls_and_other_texts_are_not_found() {
        for fine in [
            r#"format!("failed to connect to {}", RedactedUrl::new(&uri))"#,
            "let url = RedactedUrl::new(url);\nformat!(\"failed to connect to {url}\")",
            "let (url, uri) = (RedactedUrl::new(a), RedactedUrl::new(b));\nformat!(\"{url} {uri}\")",
            r#"format!("the `url` of {name}")"#,
            r#"format!("{{url}} {}", self.url.len())"#,
            "connect(&url); // format!(\"{url}\")",
            r#"write!(url, "/{name}")"#,
        ] {
            assert!(!found(fine), "{fine}");
        }
    }

    #[test]
    fn tests_may_print_urls() {
        let text = "#[cfg(test)]\nmod tests {\n    fn a() { println!(\"{url}\") }\n}\n";

        assert_eq!(
            lines(shown_urls_are_redacted, "crates/bowline/src/a.rs", text),
            [0; 0]
        );
    }
}
