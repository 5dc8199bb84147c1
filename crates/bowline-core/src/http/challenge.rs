//! What a server asks for when it refuses a request: the challenges of `WWW-Authenticate`.

use std::fmt;

/// One challenge: a scheme, and what it asks for.
///
/// # Examples
///
/// ```
/// use bowline_core::http::challenge::Challenge;
///
/// let said = r#"Bearer error="insufficient_scope", scope="files:read files:write""#;
/// let challenges = Challenge::parse_all([said]);
///
/// assert!(challenges[0].is("bearer"));
/// assert_eq!(challenges[0].scope(), Some("files:read files:write"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Challenge {
    /// The scheme, as it was written.
    pub scheme: String,
    /// Names, in lower case, and values, in the order in which they came. A name comes once, and of more than
    /// [`MAX_CHALLENGE_PARAMS`] the first count.
    pub params: Vec<(String, String)>,
}

impl Challenge {
    /// Reads the challenges of all `WWW-Authenticate` headers of a response, and skips what is none.
    pub fn parse_all<'a>(headers: impl IntoIterator<Item = &'a str>) -> Vec<Self> {
        let mut challenges = Vec::new();
        headers
            .into_iter()
            .for_each(|header| Reader(header).read_into(&mut challenges));
        challenges
    }

    /// Whether this is its scheme, in upper or lower case.
    #[must_use]
    pub fn is(&self, scheme: &str) -> bool {
        self.scheme.eq_ignore_ascii_case(scheme)
    }

    /// A parameter, by its name in lower case.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<&str> {
        let mut params = self.params.iter();
        let found = params.find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }

    /// What is wrong with the token, such as `invalid_token` or `insufficient_scope`.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.param("error")
    }

    /// The scopes that are needed, with a space between them.
    #[must_use]
    pub fn scope(&self) -> Option<&str> {
        self.param("scope")
    }

    /// Where the server says who issues its tokens.
    #[must_use]
    pub fn resource_metadata(&self) -> Option<&str> {
        self.param("resource_metadata")
    }
}

impl fmt::Display for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.scheme)?;
        for (at, (name, value)) in self.params.iter().enumerate() {
            f.write_str(if at == 0 { " " } else { ", " })?;
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            write!(f, "{name}=\"{value}\"")?;
        }
        Ok(())
    }
}

/// What is left to read of a header.
struct Reader<'a>(&'a str);

impl Reader<'_> {
    /// A comma may stand before the next parameter or before the next challenge: a word that is followed by
    /// `=` is a parameter, any other is a scheme.
    fn read_into(&mut self, challenges: &mut Vec<Challenge>) {
        let first = challenges.len();
        loop {
            self.skip(|byte| byte == ' ' || byte == '\t' || byte == ',');
            let word = self.word().to_owned();
            if word.is_empty() {
                return; // the end, or something that has no place here
            }
            let after_word = self.0;
            self.skip(is_blank);
            if self.0.starts_with('=') && challenges.len() > first {
                self.0 = &self.0[1..];
                self.skip(is_blank);
                let Some(value) = self.value() else { return };
                let name = word.to_ascii_lowercase();
                // Few enough to look through them for each.
                if let Some(challenge) = challenges.last_mut()
                    && challenge.params.len() < MAX_CHALLENGE_PARAMS
                    && challenge.param(&name).is_none()
                {
                    challenge.params.push((name, value));
                }
            } else {
                self.0 = after_word;
                challenges.push(Challenge {
                    scheme: word,
                    params: Vec::new(),
                });
                self.skip_token68();
            }
        }
    }

    fn word(&mut self) -> &str {
        let end = self.0.find(|c| !is_token(c)).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        word
    }

    /// A word, or text between quotes; `None` if the quotes do not end.
    fn value(&mut self) -> Option<String> {
        let Some(quoted) = self.0.strip_prefix('"') else {
            return Some(self.word().to_owned());
        };
        let mut value = String::new();
        let mut chars = quoted.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.0 = &quoted[at + 1..];
                    return Some(value);
                }
                '\\' => value.push(chars.next()?.1),
                other => value.push(other),
            }
        }
        None
    }

    /// Skips what some schemes have in place of parameters: one word that may end in `=`.
    fn skip_token68(&mut self) {
        let rest = self.0.trim_start_matches(is_blank);
        let end = rest.find([',', ' ', '\t']).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let body = word.trim_end_matches('=');
        let is_token68 = !body.is_empty()
            && body
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-._~+/".contains(c));
        let is_last = after.trim_start_matches(is_blank);
        if is_token68 && (is_last.is_empty() || is_last.starts_with(',')) {
            self.0 = after;
        }
    }

    fn skip(&mut self, what: impl Fn(char) -> bool) {
        self.0 = self.0.trim_start_matches(what);
    }
}

/// How many parameters of one challenge are read: 64.
pub const MAX_CHALLENGE_PARAMS: usize = 64;

fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Challenges as text: the scheme, and `name=value` for each parameter.
    fn read(headers: &[&str]) -> Vec<String> {
        let challenges = Challenge::parse_all(headers.iter().copied());
        let texts = challenges.iter().map(|challenge| {
            let params = challenge.params.iter();
            let params = params.map(|(name, value)| format!(" {name}={value}"));
            format!("{}{}", challenge.scheme, params.collect::<String>())
        });
        texts.collect()
    }

    #[test]
    fn challenges_are_read_whatever_way_they_are_written() {
        let cases: &[(&[&str], &[&str])] = &[
            (&["Bearer"], &["Bearer"]),
            (&[""], &[]),
            (&["Bearer scope=\"a b\""], &["Bearer scope=a b"]),
            (&["Bearer SCOPE=a"], &["Bearer scope=a"]),
            (&["Bearer a = \"1\" , b=\"2\""], &["Bearer a=1 b=2"]),
            (
                &["Bearer a=\"1, DPoP b=2\", c=3"],
                &["Bearer a=1, DPoP b=2 c=3"],
            ),
            (
                &["Bearer a=1, DPoP algs=\"ES256\""],
                &["Bearer a=1", "DPoP algs=ES256"],
            ),
            (&["Bearer a=1", "DPoP b=2"], &["Bearer a=1", "DPoP b=2"]),
            (
                &["Negotiate YWJj==, Bearer a=1"],
                &["Negotiate", "Bearer a=1"],
            ),
            (&["Basic, Bearer a=1"], &["Basic", "Bearer a=1"]),
            (&[r#"Bearer a="x\"y\\z""#], &[r#"Bearer a=x"y\z"#]),
        ];

        for (headers, expected) in cases {
            assert_eq!(&read(headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn what_is_broken_ends_the_header_and_not_the_program() {
        let cases: &[(&str, &[&str])] = &[
            ("Bearer a=\"open", &["Bearer"]),
            ("Bearer a=\"open\\", &["Bearer"]),
            ("=\"x\"", &[]),
            ("a=1", &["a"]),
            ("Bearer é=1", &["Bearer"]),
            (",,, Bearer ,,a=1", &["Bearer a=1"]),
        ];

        for (header, expected) in cases {
            assert_eq!(&read(&[header]), expected, "{header:?}");
        }
    }

    #[test]
    fn the_first_of_two_values_counts() {
        assert_eq!(read(&["Bearer scope=a, scope=b"]), ["Bearer scope=a"]);
    }

    /// Takes minutes where each is compared with all before it.
    #[test]
    fn of_very_many_parameters_the_first_count() {
        let params: Vec<_> = (0..200_000).map(|at| format!("p{at}={at}")).collect();
        let header = format!("Bearer {}, DPoP a=1", params.join(", "));

        let challenges = Challenge::parse_all([header.as_str()]);

        assert_eq!(challenges.len(), 2);
        assert_eq!(challenges[0].params.len(), MAX_CHALLENGE_PARAMS);
        assert_eq!(challenges[0].param("p63"), Some("63"));
        assert_eq!(challenges[1].param("a"), Some("1"));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let said = r#"Bearer scope="a \"b\" \\c", error="x""#;

        let challenges = Challenge::parse_all([said]);

        assert_eq!(challenges[0].to_string(), said);
    }
}
