//! The protocol version of a server, to be stored for the next connection.

use bowline_core::era::{Dialect, Dialects};
use bowline_types::{DiscoverResult, Json};
use serde::{Deserialize, Serialize};

use super::Connection;
use crate::{Error, Result};

/// The protocol version and the `server/discover` result of a server.
///
/// Store it, and pass it to [`ClientBuilder::known_server`](super::ClientBuilder::known_server) the next time to
/// connect without a probe.
///
/// # Examples
///
/// ```
/// # async fn example(client: bowline::Client, server: bowline::Server) -> Result<(), Box<dyn std::error::Error>> {
/// use bowline::{Client, client::KnownServer};
///
/// let text = serde_json::to_string(&client.known_server())?;
///
/// let known: KnownServer = serde_json::from_str(&text)?;
/// let again = Client::in_process(&server).known_server(known).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KnownServer {
    version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server: Option<DiscoverResult>,
    /// `server` as the server sent it, with members that its type does not have. It is not stored.
    #[serde(skip)]
    introduction: Option<Json>,
}

impl KnownServer {
    pub(super) fn of(connection: &Connection) -> Self {
        Self {
            version: connection.dialect().version.to_owned(),
            server: connection.server().cloned(),
            introduction: connection.introduction().cloned(),
        }
    }

    /// Returns the protocol version of the server.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the `server/discover` result, or its equivalent from `initialize`, if it was requested.
    #[must_use]
    pub fn server(&self) -> Option<&DiscoverResult> {
        self.server.as_ref()
    }

    /// Returns the `server/discover` result as JSON.
    pub(super) fn introduction(&self) -> Option<Json> {
        let encoded = || Json::encode(self.server.as_ref()?).ok();
        self.introduction.clone().or_else(encoded)
    }

    /// Returns the dialect, if it is among `versions`.
    pub(super) fn dialect_of(&self, versions: &Dialects) -> Result<&'static Dialect> {
        versions.of(&self.version).ok_or_else(|| {
            let version = &self.version;
            Error::misuse(format!(
                "the remembered protocol version `{version}` is not one that this client uses"
            ))
        })
    }
}

impl PartialEq for KnownServer {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version && self.server == other.server
    }
}
