//! Errors of the OAuth client.

use std::error::Error as StdError;
use std::time::Duration;

use bowline::http::RedactedUrl;

use crate::sanitize::sanitize;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a client failed to obtain a token: the `source` of [`bowline::Error::Unauthorized`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A response or URL failed a security check, and was not used.
    #[error("not trusted: {what}")]
    Untrusted {
        /// The failed check.
        what: String,
    },
    /// The authorization server returned an OAuth error, such as when the user denies consent.
    #[error(
        "the {request} failed: the authorization server returned `{error}`{}",
        description_suffix(.description.as_deref())
    )]
    Denied {
        /// The refused request: the `authorization request`, `client registration`, `token request` or `revocation`.
        request: &'static str,
        /// The error code, such as `access_denied`.
        error: String,
        /// The `error_description`.
        description: Option<String>,
    },
    /// The servers do not support what this client needs.
    #[error("{what}")]
    Unsupported {
        /// The missing feature.
        what: String,
    },
    /// A server's response violates the protocol.
    #[error("protocol violation: {what}")]
    Protocol {
        /// The violation.
        what: String,
    },
    /// A request failed without a response.
    #[error("request to {uri} failed")]
    Unreachable {
        /// The URL of the request, without its secrets.
        uri: String,
        /// The cause.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// A server responded with a 5xx status.
    #[error("{what} is temporarily unavailable: status {status}")]
    Unavailable {
        /// The unavailable server or document.
        what: &'static str,
        /// The HTTP status.
        status: u16,
    },
    /// Calls prompted the user too often. [`OAuth::authorize`](super::OAuth::authorize) is exempt from the limit.
    #[error("the user was prompted {max} times within {within:?}, which is the limit")]
    TooManyPrompts {
        /// The limit.
        max: usize,
        /// The period that the limit applies to.
        within: Duration,
    },
    /// The authorization server did not redirect the user back in time.
    #[error("no redirect from the authorization server within {after:?}")]
    RedirectTimeout {
        /// The time limit.
        after: Duration,
    },
    /// A new token would not add the required scopes: all of them were already requested, or
    /// [`OAuth::max_scopes`](super::OAuth::max_scopes) excludes them. To prompt the user again, call
    /// [`OAuth::forget`](super::OAuth::forget) first.
    #[error(
        "insufficient scope: the server requires {}, already requested or excluded by the scopes that the application allows",
        scope_list(scopes)
    )]
    InsufficientScope {
        /// The required scopes, separated by spaces.
        scopes: String,
    },
    /// Tokens for this server would be sent over plain `http://` to another machine, where every hop can read them.
    /// [`OAuth::allow_plain_http`](super::OAuth::allow_plain_http) allows it.
    #[error("tokens for `{server}` would be sent unencrypted: use an https:// URL")]
    Unencrypted {
        /// The URL of the server.
        server: String,
    },
    /// Code of the application failed: its user agent, token store or assertion provider.
    #[error("{what}")]
    Application {
        /// What failed.
        what: &'static str,
        /// The cause.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The API was misused.
    #[error("{what}")]
    Misuse {
        /// The mistake, and how to fix it.
        what: String,
    },
}

impl Error {
    // The constructors sanitize: the texts can quote a server, and are printed to terminals and logs.

    pub(crate) fn untrusted(what: impl AsRef<str>) -> Self {
        let what = sanitize(what.as_ref(), MAX_TEXT_CHARS);
        Self::Untrusted { what }
    }

    /// Creates an error from an OAuth error response.
    pub(crate) fn denied(request: &'static str, error: &str, description: Option<&str>) -> Self {
        Self::Denied {
            request,
            error: sanitize(error, MAX_QUOTE_CHARS),
            description: description.map(|text| sanitize(text, MAX_QUOTE_CHARS)),
        }
    }

    /// Returns whether the same request can succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Unavailable { .. })
    }

    /// Returns whether the user, or the authorization server by policy, denied the request.
    pub(crate) fn is_denial(&self) -> bool {
        matches!(self, Self::Denied { error, .. } if error == "access_denied")
    }

    pub(crate) fn unsupported(what: impl AsRef<str>) -> Self {
        let what = sanitize(what.as_ref(), MAX_TEXT_CHARS);
        Self::Unsupported { what }
    }

    pub(crate) fn protocol(what: impl AsRef<str>) -> Self {
        let what = sanitize(what.as_ref(), MAX_TEXT_CHARS);
        Self::Protocol { what }
    }

    pub(crate) fn insufficient_scope(scopes: &str) -> Self {
        let scopes = sanitize(scopes, MAX_QUOTE_CHARS);
        Self::InsufficientScope { scopes }
    }

    pub(crate) fn unreachable(
        uri: &RedactedUrl,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self::Unreachable {
            uri: sanitize(uri.as_str(), MAX_TEXT_CHARS),
            source: source.into(),
        }
    }

    pub(crate) fn misuse(what: impl Into<String>) -> Self {
        Self::Misuse { what: what.into() }
    }
}

fn scope_list(scopes: &str) -> String {
    match scopes {
        "" => "further scopes, without naming them".into(),
        scopes => format!("`{scopes}`"),
    }
}

fn description_suffix(description: Option<&str>) -> String {
    description.map_or_else(String::new, |text| format!(": {text}"))
}

const MAX_QUOTE_CHARS: usize = 300;
const MAX_TEXT_CHARS: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_from_servers_are_sanitized_and_truncated() {
        let long = "x".repeat(10_000);

        let short = Error::denied("token request", "access\u{1b}[2Jdenied", Some("no\r\nway"));
        let cut = Error::denied("token request", &long, None);

        assert_eq!(
            short.to_string(),
            "the token request failed: the authorization server returned `access[2Jdenied`: noway"
        );
        assert!(cut.to_string().len() < 400);
        for error in [
            Error::untrusted(format!("the issuer `{long}\u{1b}[2J` is not a URL")),
            Error::protocol(format!("\r\n{long}")),
            Error::unsupported(format!("\u{202e}{long}")),
            Error::insufficient_scope(&format!("\u{7}{long}")),
            Error::unreachable(&RedactedUrl::new(format!("https://h/{long}\u{1b}")), "no"),
        ] {
            let shown = error.to_string();
            assert!(shown.chars().count() < 1100, "{}", shown.len());
            let is_unprintable = |letter: char| letter.is_control() || letter == '\u{202e}';
            assert!(!shown.contains(is_unprintable), "{shown:?}");
        }
    }
}
