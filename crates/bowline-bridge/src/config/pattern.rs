//! [`NamePattern`]: a name with `*` for any characters.

/// A pattern for names and URIs, in which `*` stands for any characters, also for none.
///
/// All other characters stand for themselves. There is no other special character, because names and URIs contain those
/// that are special elsewhere (`?`, `[`, `{`). Upper and lower case differ.
///
/// # Examples
///
/// ```
/// use bowline_bridge::config::NamePattern;
///
/// let pattern = NamePattern::new("read_*");
/// assert!(pattern.matches("read_file") && !pattern.matches("write_file"));
/// assert!(NamePattern::new("file:///project/*.md").matches("file:///project/a/notes.md"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamePattern(String);

impl NamePattern {
    /// Creates a pattern.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text of the pattern.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the pattern matches all of a name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let Some((start, rest)) = self.0.split_once('*') else {
            return self.0 == name;
        };
        let Some(mut name) = name.strip_prefix(start) else {
            return false;
        };
        // Each part is looked for at the first place possible, which leaves most for those after it. Only the last must
        // be at the end. This takes time in proportion to the name for each part, without going back.
        let mut parts = rest.split('*');
        let last = parts.next_back().unwrap_or_default();
        for part in parts {
            let Some(at) = name.find(part) else {
                return false;
            };
            name = &name[at + part.len()..];
        }
        name.ends_with(last)
    }

    /// Returns the number of characters that stand for themselves: the larger, the more precise is the pattern.
    pub(crate) fn precision(&self) -> usize {
        self.0.bytes().filter(|byte| *byte != b'*').count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_random::SplitMix64;

    #[test]
    fn a_star_stands_for_any_characters() {
        let matches = |pattern: &str, name: &str| NamePattern::new(pattern).matches(name);

        assert!(matches("*", "") && matches("*", "a") && matches("a*", "a") && matches("", ""));
        assert!(matches("a*b*c", "aXbYbZc") && matches("a*ab", "aab") && matches("**a", "ba"));
        assert!(!matches("a*a", "a") && !matches("ab*b", "ab") && !matches("a*b*c", "acb"));
        assert!(!matches("", "a") && !matches("a", "A") && !matches("a?", "ab"));
    }

    #[test]
    fn a_pattern_matches_as_a_plain_search_does() {
        fn search(pattern: &[u8], name: &[u8]) -> bool {
            match pattern.split_first() {
                None => name.is_empty(),
                Some((b'*', rest)) => (0..=name.len()).any(|skip| search(rest, &name[skip..])),
                Some((byte, rest)) => name.first() == Some(byte) && search(rest, &name[1..]),
            }
        }
        let mut random = SplitMix64::new(7);
        for _ in 0..20_000 {
            let pattern = random.text("ab*", 7);
            let name = random.text("ab", 9);
            assert_eq!(
                NamePattern::new(&*pattern).matches(&name),
                search(pattern.as_bytes(), name.as_bytes()),
                "{pattern} {name}"
            );
        }
    }
}
