//! Why authorization failed, sorted by whose doing it is.

use std::error::Error as StdError;
use std::time::Duration;

use crate::text::readable;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a client did not come by a token. It is the `source` of
/// [`bowline::Error::Unauthorized`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something that a server said must not be believed, or an address that it named not be visited.
    #[error("not trusted: {what}")]
    Untrusted {
        /// What, and why.
        what: String,
    },
    /// The authorization server, or the person at it, said no.
    #[error("the authorization server says `{error}`{}", more(.description.as_deref()))]
    Denied {
        /// The code of the error, such as `access_denied`.
        error: String,
        /// What it says about it.
        description: Option<String>,
    },
    /// What this client needs, the servers do not offer.
    #[error("not offered: {what}")]
    NotOffered {
        /// What is needed.
        what: String,
    },
    /// A server answered in a way that makes no sense.
    #[error("a server broke the rules: {what}")]
    Broken {
        /// What it did.
        what: String,
    },
    /// A server could not be reached.
    #[error("the request to {uri} failed")]
    Unreachable {
        /// Where the request went.
        uri: String,
        /// Why.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// A server answered that it cannot answer now.
    #[error("{what} is not available at the moment: {status}")]
    Unavailable {
        /// What is not available.
        what: &'static str,
        /// The HTTP status.
        status: u16,
    },
    /// Calls had a person asked too often. [`OAuth::authorize`](super::OAuth::authorize) asks nevertheless.
    #[error("a person was asked {max} times within {within:?}, and is not asked again by itself")]
    TooManyPrompts {
        /// How often it was allowed.
        max: usize,
        /// Within what time.
        within: Duration,
    },
    /// The person did not come back in time.
    #[error("nobody came back from the authorization server within {after:?}")]
    NobodyCame {
        /// How long that was allowed to take.
        after: Duration,
    },
    /// All of the scopes that the server asks for were asked for already. To ask a person once more, begin
    /// anew with [`OAuth::forget`](super::OAuth::forget).
    #[error(
        "the server wants {}, and a new token would have no others",
        named(scopes)
    )]
    StillNotEnough {
        /// What the server wants.
        scopes: String,
    },
    /// The application's own part failed: its browser, its store, its source of assertions.
    #[error("{what}")]
    Application {
        /// Which part.
        what: &'static str,
        /// Why.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The program asked for something that cannot be.
    #[error("{what}")]
    Misuse {
        /// What cannot be, and what to do instead.
        what: String,
    },
}

impl Error {
    // What goes into these may contain what a server said, and people read it on terminals and in logs.

    pub(crate) fn untrusted(what: impl AsRef<str>) -> Self {
        let what = readable(what.as_ref(), LONGEST_TEXT);
        Self::Untrusted { what }
    }

    /// Takes what a server says about its refusal; people will read it, on terminals and in logs.
    pub(crate) fn denied(error: &str, description: Option<&str>) -> Self {
        Self::Denied {
            error: readable(error, LONGEST_QUOTE),
            description: description.map(|text| readable(text, LONGEST_QUOTE)),
        }
    }

    /// Whether the same request may succeed later, with no other change.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Unavailable { .. })
    }

    /// Whether a person, or the authorization server in their name, said no.
    pub(crate) fn is_denial(&self) -> bool {
        matches!(self, Self::Denied { error, .. } if error == "access_denied")
    }

    pub(crate) fn not_offered(what: impl AsRef<str>) -> Self {
        let what = readable(what.as_ref(), LONGEST_TEXT);
        Self::NotOffered { what }
    }

    pub(crate) fn broken(what: impl AsRef<str>) -> Self {
        let what = readable(what.as_ref(), LONGEST_TEXT);
        Self::Broken { what }
    }

    pub(crate) fn still_not_enough(scopes: &str) -> Self {
        let scopes = readable(scopes, LONGEST_QUOTE);
        Self::StillNotEnough { scopes }
    }

    pub(crate) fn unreachable(
        uri: &str,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self::Unreachable {
            uri: readable(uri, LONGEST_TEXT),
            source: source.into(),
        }
    }

    pub(crate) fn misuse(what: impl Into<String>) -> Self {
        Self::Misuse { what: what.into() }
    }
}

fn named(scopes: &str) -> String {
    match scopes {
        "" => "more scopes and does not say which".into(),
        scopes => format!("the scopes `{scopes}`, which were asked for"),
    }
}

fn more(description: Option<&str>) -> String {
    description.map_or_else(String::new, |text| format!(": {text}"))
}

const LONGEST_QUOTE: usize = 300;
const LONGEST_TEXT: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_cannot_play_with_a_terminal() {
        let long = "x".repeat(10_000);

        let short = Error::denied("access\u{1b}[2Jdenied", Some("no\r\nway"));
        let cut = Error::denied(&long, None);

        assert_eq!(
            short.to_string(),
            "the authorization server says `access[2Jdenied`: noway"
        );
        assert!(cut.to_string().len() < 400);
        for error in [
            Error::untrusted(format!("the issuer `{long}\u{1b}[2J` is no URL")),
            Error::broken(format!("\r\n{long}")),
            Error::not_offered(format!("\u{202e}{long}")),
            Error::still_not_enough(&format!("\u{7}{long}")),
            Error::unreachable(&format!("https://h/{long}\u{1b}"), "no"),
        ] {
            let shown = error.to_string();
            assert!(shown.chars().count() < 1100, "{}", shown.len());
            let is_command = |letter: char| letter.is_control() || letter == '\u{202e}';
            assert!(!shown.contains(is_command), "{shown:?}");
        }
    }
}
