//! Parsing and formatting of `WWW-Authenticate` challenges.

use std::fmt;

/// One challenge: a scheme and its parameters.
///
/// # Examples
///
/// ```
/// use bowline_core::http::challenge::Challenge;
///
/// let header = r#"Bearer error="insufficient_scope", scope="files:read files:write""#;
/// let challenges = Challenge::parse_all([header]);
///
/// assert!(challenges[0].has_scheme("bearer"));
/// assert_eq!(challenges[0].scope(), Some("files:read files:write"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Challenge {
    /// The scheme, as received.
    pub scheme: String,
    /// Names, in lower case, and values, in order. The first of duplicate names and the first [`MAX_CHALLENGE_PARAMS`]
    /// are kept.
    pub params: Vec<(String, String)>,
}

impl Challenge {
    /// Parses all `WWW-Authenticate` headers of a response. Skips the rest of a header after a syntax error.
    pub fn parse_all<'a>(headers: impl IntoIterator<Item = &'a str>) -> Vec<Self> {
        let mut challenges = Vec::new();
        headers
            .into_iter()
            .for_each(|header| ChallengeParser(header).parse_into(&mut challenges));
        challenges
    }

    /// Returns whether the scheme is `scheme`, ignoring case.
    #[must_use]
    pub fn has_scheme(&self, scheme: &str) -> bool {
        self.scheme.eq_ignore_ascii_case(scheme)
    }

    /// Returns a parameter by its name in lower case.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<&str> {
        let mut params = self.params.iter();
        let found = params.find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the `error` code, such as `invalid_token` or `insufficient_scope`.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.param("error")
    }

    /// Returns the required scopes, separated by spaces.
    #[must_use]
    pub fn scope(&self) -> Option<&str> {
        self.param("scope")
    }

    /// Returns the URL of the protected resource metadata, which names the authorization servers.
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

/// The unread rest of a header.
struct ChallengeParser<'a>(&'a str);

impl ChallengeParser<'_> {
    /// Appends the challenges of the header. Commas separate both parameters and challenges: a token before `=` is the
    /// name of a parameter, any other is a scheme.
    fn parse_into(&mut self, challenges: &mut Vec<Challenge>) {
        let first = challenges.len();
        loop {
            self.skip(|byte| byte == ' ' || byte == '\t' || byte == ',');
            let token = self.token().to_owned();
            if token.is_empty() {
                return; // the end, or a syntax error
            }
            let after_token = self.0;
            self.skip(is_blank);
            if self.0.starts_with('=') && challenges.len() > first {
                self.0 = &self.0[1..];
                self.skip(is_blank);
                let Some(value) = self.value() else { return };
                let name = token.to_ascii_lowercase();
                // A linear scan: `MAX_CHALLENGE_PARAMS` bounds it.
                if let Some(challenge) = challenges.last_mut()
                    && challenge.params.len() < MAX_CHALLENGE_PARAMS
                    && challenge.param(&name).is_none()
                {
                    challenge.params.push((name, value));
                }
            } else {
                self.0 = after_token;
                challenges.push(Challenge {
                    scheme: token,
                    params: Vec::new(),
                });
                self.skip_token68();
            }
        }
    }

    fn token(&mut self) -> &str {
        let end = self.0.find(|c| !is_token(c)).unwrap_or(self.0.len());
        let (token, rest) = self.0.split_at(end);
        self.0 = rest;
        token
    }

    /// Reads a token or a quoted string; `None` if the closing quote is missing.
    fn value(&mut self) -> Option<String> {
        let Some(quoted) = self.0.strip_prefix('"') else {
            return Some(self.token().to_owned());
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

    /// Skips a `token68`, which some schemes have in place of parameters: one token that may end in `=`.
    fn skip_token68(&mut self) {
        let rest = self.0.trim_start_matches(is_blank);
        let end = rest.find([',', ' ', '\t']).unwrap_or(rest.len());
        let (token, after) = rest.split_at(end);
        let body = token.trim_end_matches('=');
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

/// The maximum number of parameters kept per challenge: 64.
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

    /// Parses challenges into text: the scheme, and `name=value` for each parameter.
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
    fn challenges_are_parsed_in_every_valid_syntax() {
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
    fn a_syntax_error_ends_the_header_without_a_panic() {
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
    fn a_challenge_has_a_scheme_an_error_scopes_and_a_metadata_url() {
        let header =
            r#"bearer error="invalid_token", scope="a b", resource_metadata="https://r.example""#;

        let [challenge] = &Challenge::parse_all([header])[..] else {
            panic!("expected one challenge");
        };

        assert!(challenge.has_scheme("Bearer") && !challenge.has_scheme("DPoP"));
        assert_eq!(challenge.error(), Some("invalid_token"));
        assert_eq!(challenge.scope(), Some("a b"));
        assert_eq!(challenge.resource_metadata(), Some("https://r.example"));
        assert_eq!(Challenge::parse_all(["Bearer"])[0].error(), None);
    }

    #[test]
    fn the_first_of_two_values_counts() {
        assert_eq!(read(&["Bearer scope=a, scope=b"]), ["Bearer scope=a"]);
    }

    /// Regression test: takes minutes if each parameter is compared with all before it.
    #[test]
    fn of_very_many_parameters_the_first_are_kept() {
        let params: Vec<_> = (0..200_000).map(|at| format!("p{at}={at}")).collect();
        let header = format!("Bearer {}, DPoP a=1", params.join(", "));

        let challenges = Challenge::parse_all([header.as_str()]);

        assert_eq!(challenges.len(), 2);
        assert_eq!(challenges[0].params.len(), MAX_CHALLENGE_PARAMS);
        assert_eq!(challenges[0].param("p63"), Some("63"));
        assert_eq!(challenges[1].param("a"), Some("1"));
    }

    #[test]
    fn a_formatted_challenge_parses_to_the_same_text() {
        let header = r#"Bearer scope="a \"b\" \\c", error="x""#;

        let challenges = Challenge::parse_all([header]);

        assert_eq!(challenges[0].to_string(), header);
    }
}
