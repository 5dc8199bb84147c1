//! [`Error`], the error type of clients and servers.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use bowline_core::drain;
use bowline_core::http::challenge::Challenge;
use bowline_core::shortened;
use bowline_types::RpcError;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of a call, a connection or a server.
///
/// The variant identifies the side at fault, because that decides whether to change the request, report a bug, retry,
/// wait longer or fix the program. `Display` prints this level only; the cause is in `source()`. `Debug` prints the
/// causes too, so that `main() -> bowline::Result<()>` ends with a readable message.
///
/// # Examples
///
/// ```
/// use bowline::{Error, ErrorCode, RpcError};
///
/// let error = Error::from(RpcError::new(ErrorCode::INVALID_PARAMS, "unknown tool `ad`"));
/// assert!(matches!(&error, Error::Rpc(error) if error.code == ErrorCode::INVALID_PARAMS));
/// assert_eq!(error.to_string(), "unknown tool `ad` (-32602)");
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer returned a JSON-RPC error.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The peer violated the protocol.
    #[error("peer violated the protocol: {what}")]
    Protocol {
        /// The violation.
        what: String,
        /// The cause, such as a decoding error.
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The transport failed.
    #[error("{what}")]
    Transport {
        /// What failed, for example `failed to connect to https://…`.
        what: String,
        /// The cause.
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The timeout or the idle timeout of the call elapsed. Its request was cancelled, unless the call opted out.
    #[error("timed out after {after:?}")]
    Timeout {
        /// The timeout.
        after: Duration,
    },
    /// The call was cancelled before it completed.
    #[error("call cancelled: {reason}")]
    Cancelled {
        /// The reason.
        reason: String,
    },
    /// The notification queue of a subscription overflowed. The subscription was cancelled.
    #[error("subscription lagged; notifications were lost")]
    Lagged,
    /// The connection is closed.
    #[error("connection closed")]
    Closed,
    /// The server requires authorization.
    #[error("the server requires authorization{}", reason(challenges))]
    Unauthorized {
        /// The challenges of the `WWW-Authenticate` header.
        challenges: Vec<Challenge>,
        /// Why authorization failed, if it was attempted.
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The output of a tool does not have the type that the program requested.
    #[error("expected structured output of type `{expected}`, got {got}")]
    UnexpectedType {
        /// The requested Rust type.
        expected: &'static str,
        /// The output, shortened, or what there is instead of structured output.
        got: String,
        /// The decoding error, if there is structured output.
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The API was misused.
    #[error("{what}")]
    Misuse {
        /// The mistake, and what to do instead.
        what: String,
    },
}

impl Error {
    /// Returns after how long the request can be sent again, if the server refused it because it drains: it was not
    /// executed. Over HTTP a client sends it again by itself
    /// ([`retry_unavailable`](crate::client::ClientBuilder::retry_unavailable)); a server at the other end of a wire goes
    /// away, so connect to another one.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use bowline::server::ListKind;
    /// use bowline::{Client, Server};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> bowline::Result<()> {
    /// let server = Server::new("calculator", "1.0.0").advertise(ListKind::Tools);
    /// let client = Client::in_process(&server).await?;
    /// server.shut_down(Duration::from_secs(10));
    ///
    /// let refused = client.list_tools().await.unwrap_err();
    /// assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Rpc(error) => drain::retry_after(error),
            _ => None,
        }
    }

    pub(crate) fn protocol(what: impl Into<String>) -> Self {
        Self::Protocol {
            what: what.into(),
            source: None,
        }
    }

    pub(crate) fn undecodable(what: impl Into<String>, source: serde_json::Error) -> Self {
        Self::Protocol {
            what: what.into(),
            source: Some(source.into()),
        }
    }

    pub(crate) fn misuse(what: impl Into<String>) -> Self {
        Self::Misuse { what: what.into() }
    }
}

/// Returns why the server refused the credentials, if a challenge says so.
fn reason(challenges: &[Challenge]) -> String {
    let mut descriptions = challenges
        .iter()
        .filter_map(|challenge| challenge.param("error_description"));
    match descriptions.next() {
        Some(description) => format!(": {}", shortened(description)),
        None => String::new(),
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printed = self.to_string();
        f.write_str(&printed)?;
        let mut cause = self.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Some errors of other crates repeat their cause in their own text.
            if !printed.contains(&text) {
                write!(f, "\n  caused by: {text}")?;
            }
            printed = text;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_displayed_with_the_description_of_its_challenge() {
        let header = r#"Bearer error="insufficient_scope", error_description="the token lacks the scope `a`""#;
        let unauthorized = |headers: &[&str]| Error::Unauthorized {
            challenges: Challenge::parse_all(headers.iter().copied()),
            source: None,
        };

        assert_eq!(
            unauthorized(&[header]).to_string(),
            "the server requires authorization: the token lacks the scope `a`"
        );
        let without = unauthorized(&["Bearer"]).to_string();
        assert_eq!(without, "the server requires authorization");
    }

    #[test]
    fn debug_prints_each_cause_once() {
        let refused = std::io::Error::other("connection refused");
        let repeating = Error::Transport {
            what: "handshake failed: connection refused".into(),
            source: Some(refused.into()),
        };
        let error = Error::Transport {
            what: "failed to connect to http://localhost".into(),
            source: Some(repeating.into()),
        };

        let text = format!("{error:?}");

        assert_eq!(
            text,
            "failed to connect to http://localhost\n  caused by: handshake failed: connection refused"
        );
    }
}
