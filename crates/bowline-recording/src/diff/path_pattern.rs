//! [`PathPattern`]: names parts of JSON values.

use std::fmt;
use std::str::FromStr;

/// A pattern of paths in JSON: `result.content[0].text`, with `*` for any member, `[*]` for any element and `..` for any
/// depth. A leading `$` or `$.` may be given. A name with other characters is quoted: `result['a.b']`.
///
/// # Examples
///
/// ```
/// use bowline_recording::PathPattern;
///
/// let pattern: PathPattern = "$.result..createdAt".parse()?;
/// assert_eq!(pattern.to_string(), "result..createdAt");
/// # Ok::<(), bowline_recording::ParsePathError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    steps: Vec<PatternStep>,
}

/// The text is not a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a path such as result.content[0].text, got {0:?}")]
#[non_exhaustive]
pub struct ParsePathError(String);

#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternStep {
    Name(String),
    Index(usize),
    AnyMember,
    AnyElement,
    AnyDepth,
}

/// A step from a JSON value to a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathStep {
    Name(String),
    Index(usize),
}

impl PathStep {
    pub(crate) fn join(path: &[Self]) -> String {
        let mut text = String::new();
        for step in path {
            match step {
                Self::Index(at) => text.push_str(&format!("[{at}]")),
                Self::Name(name) => push_name(&mut text, name),
            }
        }
        text
    }
}

fn push_name(text: &mut String, name: &str) {
    if !is_plain(name) {
        let quoted = name.replace('\\', "\\\\").replace('\'', "\\'");
        text.push_str(&format!("['{quoted}']"));
        return;
    }
    if !text.is_empty() && !text.ends_with('.') {
        text.push('.');
    }
    text.push_str(name);
}

fn is_plain(name: &str) -> bool {
    let is_special = |c: char| matches!(c, '.' | '[' | ']' | '\'' | '*' | '$') || c.is_control();
    !name.is_empty() && !name.contains(is_special)
}

impl PathPattern {
    /// Returns whether the pattern matches the path, or a part that the path is in.
    pub(crate) fn matches(&self, path: &[PathStep]) -> bool {
        matches(&self.steps, path)
    }
}

/// A pattern that is used up matches whatever follows.
fn matches(pattern: &[PatternStep], path: &[PathStep]) -> bool {
    let Some((first, rest)) = pattern.split_first() else {
        return true;
    };
    if *first == PatternStep::AnyDepth {
        return (0..=path.len()).any(|skipped| matches(rest, &path[skipped..]));
    }
    let Some((step, path)) = path.split_first() else {
        return false;
    };
    let is_match = match (first, step) {
        (PatternStep::Name(wanted), PathStep::Name(name)) => wanted == name,
        (PatternStep::Index(wanted), PathStep::Index(at)) => wanted == at,
        (PatternStep::AnyMember, PathStep::Name(_)) => true,
        (PatternStep::AnyElement, PathStep::Index(_)) => true,
        _ => false,
    };
    is_match && matches(rest, path)
}

impl FromStr for PathPattern {
    type Err = ParsePathError;

    fn from_str(text: &str) -> Result<Self, ParsePathError> {
        parse(text).ok_or_else(|| ParsePathError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<PathPattern> {
    let mut rest = text.strip_prefix('$').unwrap_or(text);
    let mut steps = Vec::new();
    let mut needs_name = !rest.starts_with(['.', '[']);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("..") {
            // Two of them would match in exponentially many ways.
            if steps.contains(&PatternStep::AnyDepth) {
                return None;
            }
            steps.push(PatternStep::AnyDepth);
            (rest, needs_name) = (after, true);
        } else if let Some(after) = rest.strip_prefix('.') {
            (rest, needs_name) = (after, true);
        } else if let Some(after) = rest.strip_prefix('[') {
            let (step, after) = bracket(after)?;
            steps.push(step);
            (rest, needs_name) = (after, false);
            continue;
        } else if !needs_name {
            return None;
        }
        if needs_name && !rest.starts_with('[') {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            steps.push(match name {
                "*" => PatternStep::AnyMember,
                name if is_plain(name) => PatternStep::Name(name.to_owned()),
                _ => return None,
            });
            (rest, needs_name) = (after, false);
        }
    }
    let is_complete = !steps.is_empty() && steps.last() != Some(&PatternStep::AnyDepth);
    is_complete.then_some(PathPattern { steps })
}

/// Reads what is between brackets.
fn bracket(text: &str) -> Option<(PatternStep, &str)> {
    if let Some(quoted) = text.strip_prefix('\'') {
        let mut name = String::new();
        let mut chars = quoted.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => name.push(chars.next()?.1),
                '\'' => {
                    let after = quoted[at + 1..].strip_prefix(']')?;
                    return Some((PatternStep::Name(name), after));
                }
                c => name.push(c),
            }
        }
        return None;
    }
    let (inside, after) = text.split_once(']')?;
    let step = match inside {
        "*" => PatternStep::AnyElement,
        number => PatternStep::Index(number.parse().ok()?),
    };
    Some((step, after))
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for step in &self.steps {
            match step {
                PatternStep::Name(name) => push_name(&mut text, name),
                PatternStep::Index(at) => text.push_str(&format!("[{at}]")),
                PatternStep::AnyMember if text.is_empty() || text.ends_with('.') => text.push('*'),
                PatternStep::AnyMember => text.push_str(".*"),
                PatternStep::AnyElement => text.push_str("[*]"),
                PatternStep::AnyDepth => text.push_str(".."),
            }
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<PathStep> {
        let pattern: PathPattern = text.parse().unwrap();
        let step = |step: PatternStep| match step {
            PatternStep::Name(name) => PathStep::Name(name),
            PatternStep::Index(at) => PathStep::Index(at),
            other => panic!("{other:?} is not a step"),
        };
        pattern.steps.into_iter().map(step).collect()
    }

    #[test]
    fn a_pattern_reads_as_it_is_printed() {
        for text in [
            "a",
            "a.b[0].c",
            "*",
            "a.*[*]",
            "a..b",
            "..b",
            "a['b.c']",
            "['']",
            "['it\\'s']",
        ] {
            let pattern: PathPattern = text.parse().unwrap();
            assert_eq!(pattern.to_string(), text);
            assert_eq!(format!("${text}").parse(), Ok(pattern));
        }
    }

    #[test]
    fn text_that_is_not_a_path_is_refused() {
        for text in [
            "", "$", "a..", "a[", "a[x]", "a]", "a['b]", "a..b..c", "a[0]b",
        ] {
            assert!(text.parse::<PathPattern>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_pattern_matches_a_path_and_what_is_below_it() {
        for (pattern, yes, no) in [
            ("a.b", vec!["a.b", "a.b.c", "a.b[0]"], vec!["a", "a.c", "b"]),
            ("a[*].b", vec!["a[0].b", "a[7].b.c"], vec!["a.x.b", "a[0]"]),
            ("a.*", vec!["a.b", "a.c.d"], vec!["a", "a[0]"]),
            ("..b", vec!["b", "a.b", "a[0].x.b.c"], vec!["a", "a.c"]),
            (
                "a..b[1]",
                vec!["a.b[1]", "a.x.b[1]"],
                vec!["b[1]", "a.b[0]"],
            ),
        ] {
            let pattern: PathPattern = pattern.parse().unwrap();
            for text in yes {
                assert!(pattern.matches(&path(text)), "{pattern} {text}");
            }
            for text in no {
                assert!(!pattern.matches(&path(text)), "{pattern} {text}");
            }
        }
    }
}
