//! [`RedactedUrl`]: a URL as errors, logs and people may see it.

use std::fmt;

/// A URL without its secrets, for errors, logs and terminals.
///
/// Many servers take their API key in the query, and some in the user info. A URL that is printed goes to logs, to the
/// clients of a bridge and to their models, so every text that names a URL uses this type. It hides the user info, the
/// values of the query, and the fragment. It keeps scheme, host, port, path and the names in the query. A secret in the
/// path cannot be told from the rest of it and is shown.
///
/// Accepts any text, because the text of an invalid URL is printed too. Such a text may lose more than its secrets.
///
/// # Examples
///
/// ```
/// use bowline_core::http::RedactedUrl;
///
/// let url = RedactedUrl::new("https://ada:pw@search.example/mcp?apiKey=s3cret");
/// assert_eq!(url.to_string(), "https://…@search.example/mcp?apiKey=…");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RedactedUrl(String);

impl RedactedUrl {
    /// Removes the secrets of a URL.
    #[must_use]
    pub fn new(url: impl fmt::Display) -> Self {
        Self(redact(&url.to_string()))
    }

    /// Returns the text without the secrets.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RedactedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for RedactedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

fn redact(url: &str) -> String {
    let (url, fragment) = match url.split_once('#') {
        Some((url, _)) => (url, "#…"),
        None => (url, ""),
    };
    let (before, query) = match url.split_once('?') {
        Some((before, query)) => (before, format!("?{}", redact_query(query))),
        None => (url, String::new()),
    };
    let (scheme, rest) = match before.split_once("://") {
        // Browsers and the URL parser skip further slashes before a host.
        Some((scheme, rest)) => before.split_at(before.len() - without_slashes(scheme, rest).len()),
        None => ("", before),
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    // In an invalid URL the host may be the start of a password with a slash or a question mark.
    if !scheme.is_empty() && !is_host_and_port(host) {
        return format!("{scheme}…");
    }
    let user = match host.len() < authority.len() {
        true => "…@",
        false => "",
    };
    format!("{scheme}{user}{host}{path}{query}{fragment}")
}

fn without_slashes<'a>(scheme: &str, rest: &'a str) -> &'a str {
    match scheme.to_ascii_lowercase().as_str() {
        "http" | "https" => rest.trim_start_matches(['/', '\\']),
        _ => rest,
    }
}

/// Returns whether the text has the form of a host, or of a host and a port.
fn is_host_and_port(text: &str) -> bool {
    let after_address = text.rsplit(']').next().unwrap_or_default();
    match after_address.split_once(':') {
        Some((_, port)) => port.bytes().all(|byte| byte.is_ascii_digit()),
        None => true,
    }
}

/// Keeps the names of a query. A text without a value may be the secret itself, also if it ends with the padding of
/// base64.
fn redact_query(query: &str) -> String {
    let redact = |pair: &str| match pair.split_once('=') {
        Some((name, value)) if !value.trim_matches('=').is_empty() => format!("{name}=…"),
        _ if pair.is_empty() => String::new(),
        _ => "…".to_owned(),
    };
    query.split('&').map(redact).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_keeps_its_place_and_loses_its_secrets() {
        for (url, shown) in [
            ("https://x.example/mcp", "https://x.example/mcp"),
            ("https://x.example", "https://x.example"),
            ("http://[::1]:80/mcp", "http://[::1]:80/mcp"),
            (
                "https://x.example:8/@a/b/mcp",
                "https://x.example:8/@a/b/mcp",
            ),
            ("file:///project", "file:///project"),
            ("https://KEY@x.example/", "https://…@x.example/"),
            ("https://u:KEY@x.example:8/mcp", "https://…@x.example:8/mcp"),
            ("https://u:K@EY@x.example", "https://…@x.example"),
            ("https://u:KEY@[::1]:8/", "https://…@[::1]:8/"),
            (
                "https://x.example/?a=KEY&b=KEY",
                "https://x.example/?a=…&b=…",
            ),
            ("https://x.example?a=KEY=KEY", "https://x.example?a=…"),
            ("https://x.example?KEY&a=KEY", "https://x.example?…&a=…"),
            ("https://x.example?KEY==", "https://x.example?…"),
            ("https://x.example?a=u://KEY@b", "https://x.example?a=…"),
            ("https://x.example/mcp#KEY", "https://x.example/mcp#…"),
            ("https://x.example/?a=KEY#b?KEY", "https://x.example/?a=…#…"),
            (
                "postgres://u:KEY@db/x?sslkey=KEY",
                "postgres://…@db/x?sslkey=…",
            ),
        ] {
            assert_eq!(RedactedUrl::new(url).to_string(), shown, "{url}");
        }
    }

    #[test]
    fn a_text_that_is_no_valid_url_loses_its_secrets_too() {
        for (url, shown) in [
            ("", ""),
            ("no url", "no url"),
            ("/mcp/?key=KEY", "/mcp/?key=…"),
            ("u:KEY@x.example/mcp?a=KEY", "…@x.example/mcp?a=…"),
            ("https:u:KEY@x.example/mcp", "…@x.example/mcp"),
            ("https:///u:KEY@x.example/mcp", "https:///…@x.example/mcp"),
            ("https://u:KE/Y@x.example/mcp", "https://…"),
            ("https://u:KE?Y@x.example/mcp", "https://…"),
            ("https://x.example:KEY/mcp", "https://…"),
        ] {
            assert_eq!(RedactedUrl::new(url).to_string(), shown, "{url}");
            assert!(!RedactedUrl::new(url).to_string().contains("KEY"));
        }
    }

    #[test]
    fn debug_output_and_uris_are_redacted_as_well() {
        let uri = http::Uri::from_static("http://u:KEY@x.example/mcp?key=KEY");
        let shown = RedactedUrl::new(&uri);

        assert_eq!(format!("{shown:?}"), r#""http://…@x.example/mcp?key=…""#);
        assert_eq!(shown.as_str(), "http://…@x.example/mcp?key=…");
        assert_eq!(format!("{:>4}", RedactedUrl::new("a")), "   a");
    }
}
