//! [`Redactor`]: removes secrets from what is recorded.
//!
//! A secret is replaced by `redacted-1`, `redacted-2` and so on: the same secret by the same number, so that the requests
//! of one session or with one token are still recognizable as such.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};

use bowline_types::Json;

use crate::{Event, EventKind, HttpHeader};

/// Removes secrets from events: the values of headers, query parameters, JSON members and words that are known to be
/// secret by their names.
///
/// # Examples
///
/// ```
/// use bowline_recording::Redactor;
///
/// let mut redactor = Redactor::new();
/// assert_eq!(redactor.header("authorization", "Bearer abc"), "Bearer redacted-1");
/// assert_eq!(redactor.path("/mcp?token=abc&page=2"), "/mcp?token=redacted-1&page=2");
/// assert_eq!(redactor.header("accept", "*/*"), "*/*");
/// ```
#[derive(Debug, Default)]
pub struct Redactor {
    hashing: RandomState,
    /// Numbers of secrets by their hashes: the secrets themselves are not kept.
    numbers: BTreeMap<u64, usize>,
}

impl Redactor {
    /// Creates a redactor that has seen no secret.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Redacts an event in place.
    pub fn event(&mut self, event: &mut Event) {
        match &mut event.kind {
            EventKind::Request { path, headers, .. } => {
                *path = self.path(path);
                self.headers(headers);
            }
            EventKind::Response { headers, .. } => self.headers(headers),
            EventKind::Message { message, .. } => {
                if let Some(redacted) = self.json_text(message.as_str()) {
                    // Only the content of strings was replaced, by letters and digits: it is JSON as before.
                    *message = Json::from_valid(redacted.into());
                }
            }
            EventKind::Malformed { text, .. } | EventKind::Stderr { text } => {
                *text = self.text(text);
            }
            _ => {}
        }
    }

    fn headers(&mut self, headers: &mut [HttpHeader]) {
        for HttpHeader(name, value) in headers {
            *value = self.header(name, value);
        }
    }

    /// Redacts the value of a header.
    #[must_use]
    pub fn header(&mut self, name: &str, value: &str) -> String {
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            "authorization" | "proxy-authorization" => match value.split_once(' ') {
                Some((scheme, secret)) => format!("{scheme} {}", self.number(secret)),
                None => self.number(value),
            },
            // The names of cookies show which ones there are.
            "cookie" => {
                let cookies = value.split(';').map(|cookie| self.pair(cookie.trim()));
                cookies.collect::<Vec<_>>().join("; ")
            }
            "set-cookie" => match value.split_once(';') {
                Some((cookie, attributes)) => format!("{};{attributes}", self.pair(cookie)),
                None => self.pair(value),
            },
            "mcp-session-id" => self.number(value),
            // An address may have a token in its query.
            "location" | "content-location" | "referer" | "link" => self.text(value),
            name if is_secret_name(name) => self.number(value),
            _ => value.to_owned(),
        }
    }

    fn pair(&mut self, pair: &str) -> String {
        match pair.split_once('=') {
            Some((name, value)) => format!("{name}={}", self.number(value)),
            None => self.number(pair),
        }
    }

    /// Redacts the query parameters of a path or URL, and the credentials in front of a host.
    #[must_use]
    pub fn path(&mut self, path: &str) -> String {
        let path = self.userinfo(path);
        let Some((before, query)) = path.split_once('?') else {
            return path;
        };
        let (query, fragment) = match query.split_once('#') {
            Some((query, fragment)) => (query, Some(fragment)),
            None => (query, None),
        };
        let redacted = query.split('&').map(|pair| match pair.split_once('=') {
            Some((name, value)) if is_secret_parameter(name) => {
                format!("{name}={}", self.number(value))
            }
            _ => pair.to_owned(),
        });
        let query = redacted.collect::<Vec<_>>().join("&");
        match fragment {
            Some(fragment) => format!("{before}?{query}#{fragment}"),
            None => format!("{before}?{query}"),
        }
    }

    /// Redacts `user:password@` of a URL.
    fn userinfo(&mut self, url: &str) -> String {
        let Some((scheme, rest)) = url.split_once("://") else {
            return url.to_owned();
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        match authority.rsplit_once('@') {
            Some((user, host)) => format!("{scheme}://{}@{host}{path}", self.number(user)),
            None => url.to_owned(),
        }
    }

    /// Redacts the words of a command line: values of options that are known to be secret, and the queries of URLs.
    #[must_use]
    pub fn command(&mut self, words: &[String]) -> String {
        let mut redacted: Vec<String> = Vec::with_capacity(words.len());
        let mut is_value_of_secret = false;
        for word in words {
            let is_option = word.starts_with('-');
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word.as_str(), None),
            };
            let is_secret = is_secret_name(name.trim_start_matches('-'));
            redacted.push(match value {
                _ if is_value_of_secret && !is_option => self.number(word),
                Some(value) if is_secret => format!("{name}={}", self.number(value)),
                _ => self.text(word),
            });
            is_value_of_secret = is_option && is_secret && value.is_none();
        }
        redacted.join(" ")
    }

    /// Redacts text that is not a message: JSON members, `name=value`, `Bearer …`, and URLs.
    #[must_use]
    pub fn text(&mut self, text: &str) -> String {
        let text = self.json_text(text).unwrap_or_else(|| text.to_owned());
        let mut out = String::with_capacity(text.len());
        let mut after_scheme = false;
        for word in text.split_inclusive(|c: char| {
            c.is_whitespace() || matches!(c, '&' | ',' | '"' | '\'' | '<' | '>')
        }) {
            let end = word
                .trim_end_matches(|c: char| {
                    c.is_whitespace() || matches!(c, '&' | ',' | '"' | '\'' | '<' | '>')
                })
                .len();
            let (content, separator) = word.split_at(end);
            let is_scheme =
                content.eq_ignore_ascii_case("bearer") || content.eq_ignore_ascii_case("basic");
            let replaced = if after_scheme && content.len() >= MIN_TOKEN {
                self.number(content)
            } else if content.contains("://") {
                self.path(content)
            } else {
                match content.split_once('=') {
                    Some((name, value))
                        if !value.is_empty() && is_secret_parameter(last_name(name)) =>
                    {
                        format!("{name}={}", self.number(value))
                    }
                    _ => content.to_owned(),
                }
            };
            out.push_str(&replaced);
            out.push_str(separator);
            after_scheme = is_scheme;
        }
        out
    }

    /// Replaces the strings of members with secret names. `None` if there are none.
    ///
    /// The text need not be valid JSON.
    fn json_text(&mut self, text: &str) -> Option<String> {
        let mut out: Option<String> = None;
        let mut copied = 0;
        let mut strings = Strings { text, at: 0 };
        while let Some(name) = strings.next_string() {
            let Some(value) = strings.value_string() else {
                continue;
            };
            let (name, range) = (&text[name], value.clone());
            let value = &text[value];
            if value.is_empty() || !is_secret_member(name) || is_redacted(value) {
                continue;
            }
            let out = out.get_or_insert_with(String::new);
            out.push_str(&text[copied..range.start]);
            out.push_str(&self.number(value));
            copied = range.end;
        }
        let mut out = out?;
        out.push_str(&text[copied..]);
        Some(out)
    }

    /// Returns the replacement of a secret.
    fn number(&mut self, secret: &str) -> String {
        if secret.is_empty() || is_redacted(secret) {
            return secret.to_owned();
        }
        let hash = self.hashing.hash_one(secret);
        let next = self.numbers.len() + 1;
        match self.numbers.get(&hash) {
            Some(number) => format!("{PREFIX}{number}"),
            None if next > MAX_NUMBERED => "redacted".to_owned(),
            None => {
                self.numbers.insert(hash, next);
                format!("{PREFIX}{next}")
            }
        }
    }
}

/// Returns whether a value was redacted before.
fn is_redacted(value: &str) -> bool {
    let number = value.strip_prefix(PREFIX);
    value == "redacted" || number.is_some_and(|it| it.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Finds strings and the strings that follow them as values.
struct Strings<'a> {
    text: &'a str,
    at: usize,
}

impl Strings<'_> {
    /// Returns the range of the next string, without its quotes.
    fn next_string(&mut self) -> Option<std::ops::Range<usize>> {
        let start = self.at + self.text.get(self.at..)?.find('"')? + 1;
        let end = self.end_of_string(start)?;
        self.at = end + 1;
        Some(start..end)
    }

    /// Returns the range of the string after a colon, if the last string is followed by that.
    fn value_string(&mut self) -> Option<std::ops::Range<usize>> {
        let rest = self.text.get(self.at..)?;
        let rest = rest.trim_start().strip_prefix(':')?;
        let rest = rest.trim_start().strip_prefix('"')?;
        let start = self.text.len() - rest.len();
        let end = self.end_of_string(start)?;
        self.at = end + 1;
        Some(start..end)
    }

    fn end_of_string(&self, start: usize) -> Option<usize> {
        let bytes = self.text.as_bytes();
        let mut at = start;
        loop {
            match bytes.get(at)? {
                b'"' => return Some(at),
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
    }
}

/// Returns the name at the end of a word such as `?code` or `{"x":1}&token`.
fn last_name(word: &str) -> &str {
    let is_separator = |c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
    word.rsplit(is_separator).next().unwrap_or(word)
}

/// Returns whether the value of a header, an option or a variable with this name is a secret.
fn is_secret_name(name: &str) -> bool {
    let name = normalized(name);
    SECRET_PARTS.iter().any(|part| name.contains(part))
}

fn is_secret_parameter(name: &str) -> bool {
    let name = normalized(name);
    SECRET_PARAMETERS.contains(&name.as_str()) || SECRET_PARTS.iter().any(|it| name.contains(it))
}

/// Returns whether the string of a JSON member with this name is a secret. `progressToken` and its like are not.
fn is_secret_member(name: &str) -> bool {
    SECRET_MEMBERS.contains(&normalized(name).as_str())
}

/// Returns the name in lower case, without hyphens and underscores.
fn normalized(name: &str) -> String {
    let letters = name.chars().filter(|c| !matches!(c, '-' | '_'));
    letters.map(|c| c.to_ascii_lowercase()).collect()
}

const SECRET_PARTS: &[&str] = &[
    "apikey",
    "accesskey",
    "secret",
    "token",
    "password",
    "passwd",
    "credential",
    "privatekey",
    "signature",
];

/// Query parameters and form fields that are secret in whole.
const SECRET_PARAMETERS: &[&str] = &[
    "key",
    "auth",
    "authorization",
    "code",
    "codeverifier",
    "sig",
    "pwd",
    "pass",
    "session",
    "sessionid",
    "assertion",
    "clientassertion",
    "state",
];

const SECRET_MEMBERS: &[&str] = &[
    "accesstoken",
    "refreshtoken",
    "idtoken",
    "authtoken",
    "bearertoken",
    "sessiontoken",
    "token",
    "apikey",
    "apitoken",
    "secret",
    "clientsecret",
    "secretkey",
    "secretaccesskey",
    "accesskey",
    "privatekey",
    "password",
    "passwd",
    "passphrase",
    "authorization",
    "proxyauthorization",
    "cookie",
    "setcookie",
    "credentials",
    "codeverifier",
    "clientassertion",
];

const PREFIX: &str = "redacted-";

/// The number of secrets that get a number; more of them are replaced by `redacted`.
const MAX_NUMBERED: usize = 100_000;

/// After the word `Bearer`, shorter words are not tokens.
const MIN_TOKEN: usize = 6;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Side;

    #[test]
    fn secret_headers_are_replaced_and_the_same_secret_by_the_same_number() {
        let mut redactor = Redactor::new();
        for (name, value, expected) in [
            ("Authorization", "Bearer one", "Bearer redacted-1"),
            ("Mcp-Session-Id", "two", "redacted-2"),
            ("X-Api-Key", "one", "redacted-1"),
            ("Cookie", "a=two; b=three", "a=redacted-2; b=redacted-3"),
            ("Set-Cookie", "a=two; Path=/", "a=redacted-2; Path=/"),
            ("X-Auth-Token", "four", "redacted-4"),
            (
                "Location",
                "https://h/cb?code=five&x=1",
                "https://h/cb?code=redacted-5&x=1",
            ),
            ("Content-Type", "application/json", "application/json"),
            ("Mcp-Name", "token-counter", "token-counter"),
        ] {
            assert_eq!(redactor.header(name, value), expected, "{name}");
        }
    }

    #[test]
    fn query_parameters_and_user_names_are_replaced() {
        let mut redactor = Redactor::new();
        for (path, expected) in [
            ("/mcp", "/mcp"),
            ("/mcp?page=2", "/mcp?page=2"),
            (
                "/mcp?api_key=a&page=2#x",
                "/mcp?api_key=redacted-1&page=2#x",
            ),
            (
                "https://me:pw@h:1/mcp?key=a",
                "https://redacted-2@h:1/mcp?key=redacted-1",
            ),
            ("https://h/a@b", "https://h/a@b"),
        ] {
            assert_eq!(redactor.path(path), expected);
        }
    }

    #[test]
    fn words_of_a_command_that_name_a_secret_are_replaced() {
        let words = [
            "server",
            "--api-key",
            "a",
            "--token=b",
            "--port",
            "80",
            "https://u:p@h",
        ];
        let words = words.map(str::to_owned);

        let redacted = Redactor::new().command(&words);

        let expected =
            "server --api-key redacted-1 --token=redacted-2 --port 80 https://redacted-3@h";
        assert_eq!(redacted, expected);
    }

    #[test]
    fn strings_of_secret_members_are_replaced_and_nothing_else_of_a_message() {
        let text = r#"{"jsonrpc":"2.0","id":1,"params":{"progressToken":"p","arguments":{"api_key" : "a\"b","password":7,"note":"password"},"_meta":{"token":""}}}"#;
        let message = Json::parse(text).unwrap();
        let kind = EventKind::Message {
            from: Side::Client,
            message,
        };
        let mut event = Event::new(Duration::ZERO, 1, kind);

        Redactor::new().event(&mut event);

        let EventKind::Message { message, .. } = event.kind else {
            unreachable!("a message stays a message")
        };
        assert_eq!(message.as_str(), text.replace(r#"a\"b"#, "redacted-1"));
        assert!(Json::parse(message.into_bytes()).is_ok());
    }

    #[test]
    fn forms_and_log_lines_are_redacted() {
        let mut redactor = Redactor::new();
        for (text, expected) in [
            (
                "grant_type=refresh_token&refresh_token=abc&scope=a",
                "grant_type=refresh_token&refresh_token=redacted-1&scope=a",
            ),
            (
                "curl -H 'Authorization: Bearer abcdef'",
                "curl -H 'Authorization: Bearer redacted-2'",
            ),
            (
                r#"{"access_token": "abc""#,
                r#"{"access_token": "redacted-1""#,
            ),
            (
                "GET https://h/?token=abc done",
                "GET https://h/?token=redacted-1 done",
            ),
            ("API_KEY=abc started", "API_KEY=redacted-1 started"),
            ("two words", "two words"),
            ("\"", "\""),
            ("\"token\":\"a\\", "\"token\":\"a\\"),
        ] {
            assert_eq!(redactor.text(text), expected);
        }
    }

    #[test]
    fn redacting_twice_changes_nothing() {
        let mut redactor = Redactor::new();
        for text in [
            "token=abc",
            "Bearer abcdef",
            r#"{"token":"abc"}"#,
            "https://u:p@h/?key=1",
        ] {
            let once = redactor.text(text);
            assert_ne!(once, text);
            assert_eq!(redactor.text(&once), once);
        }
    }
}
