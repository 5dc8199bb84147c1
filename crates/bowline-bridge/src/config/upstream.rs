//! [`UpstreamConfig`]: one server behind the bridge.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bowline::client::ServerConfig;
use bowline::exchange::Dialects;
use bowline::types::ProtocolVersion;
use serde_json::{Map, Value};

use super::access::AccessRules;
use super::credentials::UpstreamCredentials;
use super::error::ConfigError;
use super::pattern::NamePattern;
use super::reader::{MemberReader, expected_one_of, nearest};

/// One server of a [`BridgeConfig`](super::BridgeConfig): how hosts describe it, and our settings for it.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamConfig {
    server: ServerConfig,
    settings: UpstreamSettings,
}

/// The member `bridge` of a server. The table of [`BridgeConfig`](super::BridgeConfig) explains the members.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct UpstreamSettings {
    /// What the names of its tools and prompts begin with. `None`: the name of the server, or nothing if it is the only
    /// server.
    pub prefix: Option<String>,
    /// URIs of resources that are read from this server, listed or not.
    pub uris: Vec<NamePattern>,
    /// Which tools, prompts and resources which principals see.
    pub access: AccessRules,
    /// Where the definitions of its tools are pinned, if they are.
    pub pin: Option<PinSettings>,
    /// Whether a stdio server is stateless, so that all clients may share its connections.
    pub shared: bool,
    /// How many connections are opened in all; each may be a process.
    pub max_connections: NonZeroUsize,
    /// How many connections are opened for one principal with the same capabilities. With more than one, calls that run
    /// at the same time do not share the state of a server.
    pub max_connections_each: NonZeroUsize,
    /// How many connections are opened for one authenticated principal, with any capabilities.
    pub max_principal_connections: NonZeroUsize,
    /// After what time an unused connection is closed; `None` for never.
    pub idle_timeout: Option<Duration>,
    /// What lists contain while the server cannot be reached.
    pub stale: StalePolicy,
    /// How requests are authorized.
    pub credentials: UpstreamCredentials,
    /// How long a request may stay without an answer and without a notification; `None` for any time.
    pub timeout: Option<Duration>,
    /// How long a merged list waits for this server.
    pub list_timeout: Duration,
    /// How long connecting may take, the start of a process included.
    pub connect_timeout: Duration,
    /// The protocol version to use, and no other; `None` for the best that the server has.
    pub protocol_version: Option<ProtocolVersion>,
}

/// The member `pin` of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinSettings {
    /// The file. A relative path is relative to the directory of the configuration file.
    pub file: PathBuf,
    /// What happens to a tool that is not pinned, of a server that is.
    pub new_tools: NewToolPolicy,
}

/// What happens to a tool that appears after the first tools of its server were pinned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NewToolPolicy {
    /// It is pinned as it is.
    #[default]
    Pin,
    /// It is quarantined until it is accepted.
    Quarantine,
}

/// What lists contain of a server that cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StalePolicy {
    /// What it offered last.
    #[default]
    Show,
    /// Nothing.
    Omit,
}

impl UpstreamConfig {
    /// Creates the configuration of a server with default settings.
    #[must_use]
    pub fn new(server: ServerConfig) -> Self {
        Self {
            server,
            settings: UpstreamSettings::default(),
        }
    }

    /// Replaces the settings.
    #[must_use]
    pub fn with_settings(mut self, settings: UpstreamSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Returns the name of the server in the file.
    #[must_use]
    pub fn name(&self) -> &str {
        self.server.name()
    }

    /// Returns how hosts describe the server.
    #[must_use]
    pub fn server(&self) -> &ServerConfig {
        &self.server
    }

    /// Returns our settings.
    #[must_use]
    pub fn settings(&self) -> &UpstreamSettings {
        &self.settings
    }

    /// Returns a copy in which variables are replaced, by the value that `variable` returns for a name.
    ///
    /// # Errors
    ///
    /// If a variable has neither a value nor a default.
    pub fn expanded_with(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let server = (self.server.expanded_with(&variable))
            .map_err(|error| ConfigError::new(error.to_string()))?;
        let mut settings = self.settings.clone();
        let expanded = settings.credentials.expand(&variable);
        expanded.map_err(|error| error.in_server(self.name()))?;
        Ok(Self { server, settings })
    }

    /// Reads our settings of a server that was read as hosts do.
    pub(super) fn read(
        server: &ServerConfig,
        value: &Value,
        directory: Option<&Path>,
    ) -> Result<Self, ConfigError> {
        let Value::Object(members) = value else {
            return Ok(Self::new(server.clone()));
        };
        check_misplaced(members)?;
        let settings = match members.get("bridge") {
            None | Some(Value::Null) => UpstreamSettings::default(),
            Some(ours) => {
                let reader = MemberReader::new(ours, "bridge")?;
                UpstreamSettings::read(reader, server, directory)?
            }
        };
        Ok(Self::new(server.clone()).with_settings(settings))
    }
}

impl UpstreamSettings {
    fn read(
        mut reader: MemberReader<'_>,
        server: &ServerConfig,
        directory: Option<&Path>,
    ) -> Result<Self, ConfigError> {
        let default = Self::default();
        let settings = Self {
            prefix: reader.text("prefix")?,
            uris: reader.patterns("uris")?.unwrap_or_default(),
            access: AccessRules::read(&mut reader)?,
            pin: reader.read("pin", |value| PinSettings::read(value, directory))?,
            shared: reader.flag("shared")?.unwrap_or(default.shared),
            max_connections: (reader.count("maxConnections")?).unwrap_or(default.max_connections),
            max_connections_each: (reader.count("maxConnectionsEach")?)
                .unwrap_or(default.max_connections_each),
            max_principal_connections: (reader.count("maxPrincipalConnections")?)
                .unwrap_or(default.max_principal_connections),
            idle_timeout: (reader.duration_or_never("idleTimeout")?)
                .unwrap_or(default.idle_timeout),
            stale: reader.read("stale", StalePolicy::read)?.unwrap_or_default(),
            credentials: UpstreamCredentials::read(&mut reader, server)?,
            timeout: reader
                .duration_or_never("timeout")?
                .unwrap_or(default.timeout),
            list_timeout: reader
                .duration("listTimeout")?
                .unwrap_or(default.list_timeout),
            connect_timeout: (reader.duration("connectTimeout")?)
                .unwrap_or(default.connect_timeout),
            protocol_version: reader.read("protocolVersion", read_version)?,
        };
        reader.finish()?;
        Ok(settings)
    }
}

impl Default for UpstreamSettings {
    fn default() -> Self {
        Self {
            prefix: None,
            uris: Vec::new(),
            access: AccessRules::default(),
            pin: None,
            shared: false,
            max_connections: DEFAULT_CONNECTIONS,
            max_connections_each: DEFAULT_CONNECTIONS_EACH,
            max_principal_connections: DEFAULT_PRINCIPAL_CONNECTIONS,
            idle_timeout: Some(Duration::from_secs(5 * 60)),
            stale: StalePolicy::Show,
            credentials: UpstreamCredentials::Headers,
            timeout: Some(Duration::from_secs(60 * 60)),
            list_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(30),
            protocol_version: None,
        }
    }
}

fn read_version(value: &Value) -> Result<ProtocolVersion, ConfigError> {
    let version = value.as_str().unwrap_or_default();
    let known: Vec<_> = Dialects::all()
        .iter()
        .map(|dialect| dialect.version)
        .collect();
    match known.contains(&version) {
        true => Ok(ProtocolVersion::from(version)),
        false => Err(expected_one_of(&known, version)),
    }
}

impl PinSettings {
    /// Reads the path of a file, or an object.
    fn read(value: &Value, directory: Option<&Path>) -> Result<Self, ConfigError> {
        let (file, new_tools) = match value {
            Value::String(file) => (file.clone(), NewToolPolicy::Pin),
            value => {
                let mut reader = MemberReader::new(value, "bridge.pin")?;
                let file = reader.text("file")?.ok_or_else(|| {
                    ConfigError::new("expected a path, got nothing").in_member("bridge.pin.file")
                })?;
                let new_tools = reader.read("newTools", NewToolPolicy::read)?;
                reader.finish()?;
                (file, new_tools.unwrap_or_default())
            }
        };
        if file.is_empty() {
            return Err(ConfigError::new("expected a path, got an empty string"));
        }
        let file =
            directory.map_or_else(|| PathBuf::from(&file), |directory| directory.join(&file));
        Ok(Self { file, new_tools })
    }
}

impl NewToolPolicy {
    fn read(value: &Value) -> Result<Self, ConfigError> {
        match value.as_str().unwrap_or_default() {
            "pin" => Ok(Self::Pin),
            "quarantine" => Ok(Self::Quarantine),
            other => Err(expected_one_of(&["pin", "quarantine"], other)),
        }
    }
}

impl StalePolicy {
    fn read(value: &Value) -> Result<Self, ConfigError> {
        match value.as_str().unwrap_or_default() {
            "show" => Ok(Self::Show),
            "omit" => Ok(Self::Omit),
            other => Err(expected_one_of(&["show", "omit"], other)),
        }
    }
}

/// Rejects members of ours that were written among those of the hosts. They would be ignored, and what they deny would
/// be allowed.
fn check_misplaced(members: &Map<String, Value>) -> Result<(), ConfigError> {
    for (member, value) in members {
        let is_ours = match member.as_str() {
            // Some hosts have lists of tools that are arrays, and `timeout` and `oauth` in forms of their own.
            "tools" | "resources" | "prompts" => value.is_object(),
            member => NOT_OF_HOSTS.contains(&member),
        };
        let problem = match nearest(member, &["bridge"]) {
            _ if is_ours => format!("belongs in `bridge`: {{\"bridge\": {{\"{member}\": …}}}}"),
            Some(_) if member != "bridge" => "unknown member; did you mean `bridge`?".to_owned(),
            _ => continue,
        };
        return Err(ConfigError::new(problem).in_member(member));
    }
    Ok(())
}

/// Members of ours that no host has.
const NOT_OF_HOSTS: [&str; 13] = [
    "prefix",
    "protocolVersion",
    "uris",
    "rules",
    "pin",
    "shared",
    "maxConnections",
    "maxConnectionsEach",
    "maxPrincipalConnections",
    "idleTimeout",
    "stale",
    "passThrough",
    "tokenExchange",
];

const DEFAULT_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(100).expect("100 is not 0");
const DEFAULT_CONNECTIONS_EACH: NonZeroUsize = NonZeroUsize::MIN;
const DEFAULT_PRINCIPAL_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(50).expect("50 is not 0");
