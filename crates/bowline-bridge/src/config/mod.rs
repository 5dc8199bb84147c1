//! [`BridgeConfig`]: the `mcpServers` JSON as hosts write it, with our settings.

mod access;
pub use access::{AccessRules, ItemKind};

mod credentials;
pub use credentials::{OAuthSettings, TokenExchangeSettings, UpstreamCredentials};

mod duration;

mod error;
pub use error::ConfigError;
pub(crate) use error::shortened;

#[cfg(test)]
mod fuzz_tests;

mod parked;
pub use parked::{ParkedCallForm, StateKey};

mod pattern;
pub use pattern::NamePattern;

mod reader;

mod settings;
pub use settings::{BridgeSettings, FrontAuth};
pub(crate) use settings::{DEFAULT_INCOMING_BYTES, DEFAULT_LEGACY_TIMEOUT};

#[cfg(test)]
mod tests;

mod upstream;
pub use upstream::{NewToolPolicy, PinSettings, StalePolicy, UpstreamConfig, UpstreamSettings};

use std::collections::BTreeMap;
use std::path::Path;

use bowline::client::ServersConfig;
use serde_json::Value;

use self::reader::MemberReader;
use crate::many::Names;

/// The configuration of a bridge: the servers behind it, as MCP hosts write them, and our settings.
///
/// The file of a host is a valid configuration: see [`ServersConfig`] for what is read of it. Members of hosts that are
/// unknown are ignored. All that is ours is in members called `bridge`, one of the file and one of each server, which
/// hosts ignore in turn. Unknown members in there are errors.
///
/// ```json
/// {
///   "bridge": {"http": "127.0.0.1:8000", "heartbeat": "20s"},
///   "mcpServers": {
///     "files": {
///       "command": "npx", "args": ["-y", "files-server"],
///       "bridge": {"prefix": "fs", "tools": {"deny": ["delete_*"]}, "pin": "pins.json"}
///     },
///     "search": {
///       "url": "https://search.example/mcp", "headers": {"X-Key": "${SEARCH_KEY}"},
///       "bridge": {"maxConnectionsEach": 8, "stale": "omit"}
///     }
///   }
/// }
/// ```
///
/// Durations are texts with a unit: `"500ms"`, `"30s"`, `"5m"`, `"1h30m"`, `"2d"`. Patterns are names in which `*`
/// stands for any characters ([`NamePattern`]).
///
/// # `bridge` of a server
///
/// | member | value | default | meaning |
/// |---|---|---|---|
/// | `prefix` | text | name of the server; `""` if it is the only one | what names of tools and prompts begin with, see [`Names`] |
/// | `uris` | patterns | | URIs of resources that this server is asked for, see [`UriRoutes`](crate::many::UriRoutes) |
/// | `tools`, `prompts`, `resources` | `{"allow": patterns, "deny": patterns}`, or the patterns to allow | all | what the bridge offers, by the names of the server, see [`AccessRules`] |
/// | `rules` | array of `{"principals", "subjects", "scopes", "anonymous", "tools", "prompts", "resources"}` | | what the bridge offers to whom; `principals` and `subjects` are patterns, all `scopes` are required |
/// | `pin` | path, or `{"file": path, "newTools": "pin"` or `"quarantine"}` | | pins the definitions of tools, see [`Pins`](crate::pins::Pins) |
/// | `shared` | boolean | `false` | a stdio server is stateless: clients share its process |
/// | `maxConnections` | count | 100 | connections in all; each may be a process |
/// | `maxConnectionsEach` | count | 1 | connections for each principal with the same capabilities |
/// | `maxPrincipalConnections` | count | 50 | connections for each authenticated principal, with any capabilities |
/// | `idleTimeout` | duration or `"never"` | `"5m"` | closes connections that are not used |
/// | `stale` | `"show"`, `"omit"` | `"show"` | what lists contain while the server cannot be reached: what it offered last, or nothing |
/// | `passThrough` | boolean | `false` | sends the client's access token to this server |
/// | `oauth` | `true`, or `{"clientId", "clientSecret", "clientKey", "issuer", "clientMetadataUrl", "scopes", "clientCredentials", "withoutMetadata"}` | | the bridge obtains tokens by OAuth |
/// | `tokenExchange` | `{"tokenEndpoint", "clientId", "clientSecret", "audience", "resource", "scopes"}` | | the bridge exchanges the client's token (RFC 8693) |
/// | `timeout` | duration or `"never"` | `"1h"` | ends a request without an answer or notification in that time |
/// | `listTimeout` | duration | `"5s"` | how long a merged list waits for this server to connect, and then for its answer |
/// | `connectTimeout` | duration | `"30s"` | how long connecting may take |
/// | `protocolVersion` | version | the best that the server has | the protocol version to use, and no other |
///
/// At most one of `passThrough`, `oauth`, `tokenExchange` and `headers.Authorization` is given. In `clientSecret` and `clientKey`,
/// variables are replaced as in `headers`.
///
/// # `bridge` of the file
///
/// | member | value | default | meaning |
/// |---|---|---|---|
/// | `http` | address | | serves HTTP at this address |
/// | `path` | path | `"/mcp"` | the path of the endpoint |
/// | `stdio` | boolean | `false` | serves standard input and output |
/// | `allowedHosts`, `allowedOrigins` | texts | | accepted `Host` and `Origin` headers, besides those of the address |
/// | `auth` | `{"issuers", "resource", "scopes"}` | | requires access tokens |
/// | `name` | text | | the name of the bridge in the handshake |
/// | `instructions` | text | | precedes the instructions of the servers |
/// | `separator` | text | `"__"` | between prefix and name, see [`Names`] |
/// | `heartbeat` | duration or `"never"` | `"20s"` | after this silence of a call a legacy client gets a progress notification |
/// | `heartbeatLimit` | duration or `"never"` | `"1h"` | how long a call gets them |
/// | `parkTimeout` | duration | `"5m"` | how long a call waits for the answer to a question |
/// | `parkLimit` | duration | `"1h"` | how long it waits for all answers together |
/// | `maxParked` | count | 1000 | how many calls may wait at a time |
/// | `legacyTimeout` | duration or `"never"` | `"30m"` | how long a legacy client over HTTP may be silent before its connections to servers are closed |
/// | `maxIncomingBytes` | count | 134217728 | how many bytes of unfinished messages of servers the bridge holds; of one server, three quarters of it |
/// | `parkedCalls` | `"retry"`, `"task"` | `"retry"` | how a modern client gets a call back that a legacy server asks about, see [`ParkedCallForm`] |
/// | `stateKey` | text | random | seals what clients keep of such calls; with a key that outlives the process, a client is told that its call was lost, see [`StateKey`] |
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline_bridge::BridgeConfig;
///
/// let config = BridgeConfig::from_json(
///     r#"{"mcpServers": {"files": {"command": "files-server", "bridge": {"idleTimeout": "90s"}}}}"#,
/// )?;
/// let files = config.get("files").unwrap();
/// assert_eq!(files.settings().idle_timeout, Some(Duration::from_secs(90)));
/// assert_eq!(config.settings().path, "/mcp");
/// # Ok::<(), bowline_bridge::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct BridgeConfig {
    settings: BridgeSettings,
    upstreams: BTreeMap<String, UpstreamConfig>,
    names: Names,
}

/// How a configuration differs from the one before it; made by [`BridgeConfig::changes_from`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigChanges {
    /// The servers that are new, or no longer disabled.
    pub added: Vec<String>,
    /// The servers that are gone, or disabled now.
    pub removed: Vec<String>,
    /// The servers whose connections must be opened anew: how they are reached or authorized has changed, or how many
    /// they are in all.
    pub reconnected: Vec<String>,
    /// The servers with other settings that apply to open connections.
    pub adjusted: Vec<String>,
}

impl BridgeConfig {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or as for [`BridgeConfig::from_json`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::new(format!("failed to read the file: {error}")));
        let config = text.and_then(|text| Self::read(&text, path.parent()));
        config.map_err(|error| error.in_file(path))
    }

    /// Parses the text of a configuration file. Variables are not replaced yet.
    ///
    /// # Errors
    ///
    /// An error that names the server and the member.
    pub fn from_json(text: &str) -> Result<Self, ConfigError> {
        Self::read(text, None)
    }

    /// Creates a configuration from its parts.
    ///
    /// # Errors
    ///
    /// If two servers have the same name, or prefixes that cannot be told apart.
    pub fn new(
        settings: BridgeSettings,
        upstreams: impl IntoIterator<Item = UpstreamConfig>,
    ) -> Result<Self, ConfigError> {
        let mut by_name = BTreeMap::new();
        for upstream in upstreams {
            let name = upstream.name().to_owned();
            if by_name.insert(name.clone(), upstream).is_some() {
                return Err(ConfigError::new("duplicate server").in_server(&name));
            }
        }
        let enabled = by_name.values().filter(|it| !it.server().is_disabled());
        let prefixes = enabled.map(|it| (it.name(), it.settings().prefix.as_deref()));
        let names = Names::new(&settings.separator, prefixes).map_err(|error| {
            let problem = ConfigError::new(error.to_string()).in_member("bridge.prefix");
            problem.in_server(error.server())
        })?;
        Ok(Self {
            settings,
            upstreams: by_name,
            names,
        })
    }

    /// Returns the settings of the bridge.
    #[must_use]
    pub fn settings(&self) -> &BridgeSettings {
        &self.settings
    }

    /// Returns the servers that are not disabled, ordered by name.
    pub fn upstreams(&self) -> impl Iterator<Item = &UpstreamConfig> {
        let all = self.upstreams.values();
        all.filter(|upstream| !upstream.server().is_disabled())
    }

    /// Returns the server with this name, disabled or not.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&UpstreamConfig> {
        self.upstreams.get(name)
    }

    /// Returns the prefixes of the servers that are not disabled.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Compares with the configuration before this one, so that a reload touches only what has changed.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_bridge::BridgeConfig;
    ///
    /// let old = BridgeConfig::from_json(r#"{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}}"#)?;
    /// let new = BridgeConfig::from_json(
    ///     r#"{"mcpServers": {"a": {"command": "a", "bridge": {"stale": "omit"}}, "b": {"command": "c"}}}"#,
    /// )?;
    /// let changes = new.changes_from(&old);
    /// assert_eq!((changes.adjusted, changes.reconnected), (vec!["a".to_owned()], vec!["b".to_owned()]));
    /// # Ok::<(), bowline_bridge::config::ConfigError>(())
    /// ```
    #[must_use]
    pub fn changes_from(&self, old: &Self) -> ConfigChanges {
        let enabled = |config: &Self, name: &str| {
            let upstream = config.get(name);
            upstream.is_some_and(|upstream| !upstream.server().is_disabled())
        };
        let mut changes = ConfigChanges::default();
        for old in old.upstreams().filter(|old| !enabled(self, old.name())) {
            changes.removed.push(old.name().to_owned());
        }
        for new in self.upstreams() {
            let name = new.name();
            let list = match old.get(name).filter(|_| enabled(old, name)) {
                None => &mut changes.added,
                Some(old) if !connects_alike(old, new) => &mut changes.reconnected,
                Some(old) if old != new => &mut changes.adjusted,
                Some(_) => continue,
            };
            list.push(name.to_owned());
        }
        changes
    }

    fn read(text: &str, directory: Option<&Path>) -> Result<Self, ConfigError> {
        let invalid = |error: &dyn std::fmt::Display| ConfigError::new(error.to_string());
        let file: Value = serde_json::from_str(text)
            .map_err(|error| ConfigError::new(format!("expected JSON: {error}")))?;
        let servers = ServersConfig::from_json(text).map_err(|error| invalid(&error))?;
        let settings = match file.get("bridge") {
            None | Some(Value::Null) => BridgeSettings::default(),
            Some(ours) => MemberReader::new(ours, "bridge").and_then(BridgeSettings::read)?,
        };
        let members = file.get("mcpServers").or_else(|| file.get("servers"));
        let read = |server: &bowline::client::ServerConfig| {
            let value = members.and_then(|members| members.get(server.name()));
            let value = value.unwrap_or(&Value::Null);
            UpstreamConfig::read(server, value, directory)
                .map_err(|error| error.in_server(server.name()))
        };
        let upstreams = servers.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        Self::new(settings, upstreams)
    }
}

/// Returns whether the connections of one configuration can be used with the other.
fn connects_alike(old: &UpstreamConfig, new: &UpstreamConfig) -> bool {
    let (a, b) = (old.settings(), new.settings());
    let is_same_server = old.server() == new.server();
    // The connections are counted against the limit that they were opened with.
    let has_same_limit = a.max_connections == b.max_connections;
    let has_same_version = a.protocol_version == b.protocol_version;
    let connects_alike = is_same_server && has_same_limit && has_same_version;
    connects_alike && a.credentials == b.credentials && a.shared == b.shared
}
