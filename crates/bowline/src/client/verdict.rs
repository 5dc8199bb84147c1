//! What was found out about a server, to be remembered for the next time.

use bowline_core::era::{Dialect, Dialects};
use bowline_types::DiscoverResult;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// What was found out about a server while connecting.
///
/// Write it down, and hand it to [`Connect::remembered`](super::Connect::remembered) the next time.
///
/// # Examples
///
/// ```
/// # async fn example(client: bowline::Client, server: bowline::Server) -> bowline::Result<()> {
/// use bowline::{Client, client::Verdict};
///
/// let note = serde_json::to_string(&client.verdict()).expect("a verdict has a JSON form");
///
/// let verdict: Verdict = serde_json::from_str(&note).expect("it was written by us");
/// let again = Client::to(&server).remembered(verdict).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server: Option<DiscoverResult>,
}

impl Verdict {
    pub(super) fn new(dialect: &'static Dialect, server: Option<DiscoverResult>) -> Self {
        let version = dialect.version.to_owned();
        Self { version, server }
    }

    /// The protocol version that the server speaks.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What the server said of itself, if it was asked.
    #[must_use]
    pub fn server(&self) -> Option<&DiscoverResult> {
        self.server.as_ref()
    }

    /// The dialect to speak, if this client is willing to.
    pub(super) fn dialect_of(&self, speaking: &Dialects) -> Result<&'static Dialect> {
        speaking.of(&self.version).ok_or_else(|| {
            let version = &self.version;
            Error::misuse(format!(
                "the server is remembered to speak `{version}`, and this client is not to"
            ))
        })
    }
}
