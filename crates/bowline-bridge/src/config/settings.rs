//! [`BridgeSettings`]: the member `bridge` of the file.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use bowline_core::http::RedactedUrl;
use bowline_core::http::source_policy::{InvalidSource, parse_host, parse_origin};

use super::error::{ConfigError, shortened};
use super::parked::{ParkedCallForm, StateKey};
use super::reader::{MemberReader, texts};

/// The member `bridge` of the file. The table of [`BridgeConfig`](super::BridgeConfig) explains the members.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BridgeSettings {
    /// The address to serve HTTP on.
    pub http: Option<SocketAddr>,
    /// The path of the HTTP endpoint.
    pub path: String,
    /// Whether to serve on standard input and output.
    pub stdio: bool,
    /// The `Host` headers that are accepted, besides those of the address.
    pub allowed_hosts: Vec<String>,
    /// The `Origin` headers that are accepted, besides those of the address.
    pub allowed_origins: Vec<String>,
    /// How requests to the bridge are authorized; `None` if they are not.
    pub auth: Option<FrontAuth>,
    /// The name of the bridge in the handshake.
    pub name: Option<String>,
    /// Instructions that precede those of the servers.
    pub instructions: Option<String>,
    /// What separates a prefix from a name.
    pub separator: String,
    /// After what silence of a call a legacy client gets a progress notification; `None` for never.
    pub heartbeat: Option<Duration>,
    /// How long a call gets such notifications; `None` for as long as it runs.
    pub heartbeat_limit: Option<Duration>,
    /// How long a call waits for the answer to a question.
    pub park_timeout: Duration,
    /// How long it waits for all answers together.
    pub park_limit: Duration,
    /// How many calls may wait at a time.
    pub max_parked: NonZeroUsize,
    /// How long a legacy client over HTTP may be silent before its connections to servers are closed; `None` for ever.
    pub legacy_timeout: Option<Duration>,
    /// How many bytes of unfinished messages of servers the bridge holds.
    pub max_incoming_bytes: NonZeroUsize,
    /// How a modern client gets such a call back.
    pub parked_calls: ParkedCallForm,
    /// The key that seals what clients keep of such calls; `None` for a random one.
    pub state_key: Option<StateKey>,
}

/// The member `auth` of `bridge`: whose access tokens the bridge accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrontAuth {
    /// The issuers that are trusted.
    pub issuers: Vec<String>,
    /// The URL of the bridge, which tokens must be issued for.
    pub resource: String,
    /// The scopes that every request needs.
    pub scopes: Vec<String>,
}

impl BridgeSettings {
    /// Returns the members that differ from those that a bridge was started with and that a
    /// [reload](crate::Bridge::reload) does not change.
    #[must_use]
    pub fn unapplied_changes(&self, started: &Self) -> Vec<&'static str> {
        let Self {
            http,
            path,
            stdio,
            allowed_hosts,
            allowed_origins,
            auth,
            name,
            instructions: _,
            separator: _,
            heartbeat,
            heartbeat_limit,
            park_timeout,
            park_limit,
            max_parked,
            legacy_timeout,
            max_incoming_bytes,
            parked_calls,
            state_key,
        } = self;
        let members = [
            ("http", *http == started.http),
            ("path", *path == started.path),
            ("stdio", *stdio == started.stdio),
            ("allowedHosts", *allowed_hosts == started.allowed_hosts),
            (
                "allowedOrigins",
                *allowed_origins == started.allowed_origins,
            ),
            ("auth", *auth == started.auth),
            ("name", *name == started.name),
            ("heartbeat", *heartbeat == started.heartbeat),
            (
                "heartbeatLimit",
                *heartbeat_limit == started.heartbeat_limit,
            ),
            ("parkTimeout", *park_timeout == started.park_timeout),
            ("parkLimit", *park_limit == started.park_limit),
            ("maxParked", *max_parked == started.max_parked),
            ("legacyTimeout", *legacy_timeout == started.legacy_timeout),
            (
                "maxIncomingBytes",
                *max_incoming_bytes == started.max_incoming_bytes,
            ),
            ("parkedCalls", *parked_calls == started.parked_calls),
            ("stateKey", *state_key == started.state_key),
        ];
        let changed = members.into_iter().filter(|(_, is_same)| !is_same);
        changed.map(|(member, _)| member).collect()
    }

    pub(super) fn read(mut reader: MemberReader<'_>) -> Result<Self, ConfigError> {
        let default = Self::default();
        let settings = Self {
            http: reader.address("http")?,
            path: reader.read("path", read_path)?.unwrap_or(default.path),
            stdio: reader.flag("stdio")?.unwrap_or(default.stdio),
            allowed_hosts: sources(&mut reader, "allowedHosts", parse_host)?,
            allowed_origins: sources(&mut reader, "allowedOrigins", parse_origin)?,
            auth: reader.object("auth", FrontAuth::read)?,
            name: reader.text("name")?,
            instructions: reader.text("instructions")?,
            separator: reader
                .read("separator", read_separator)?
                .unwrap_or(default.separator),
            heartbeat: reader
                .duration_or_never("heartbeat")?
                .unwrap_or(default.heartbeat),
            heartbeat_limit: (reader.duration_or_never("heartbeatLimit")?)
                .unwrap_or(default.heartbeat_limit),
            park_timeout: reader
                .duration("parkTimeout")?
                .unwrap_or(default.park_timeout),
            park_limit: reader.duration("parkLimit")?.unwrap_or(default.park_limit),
            max_parked: reader.count("maxParked")?.unwrap_or(default.max_parked),
            legacy_timeout: reader
                .duration_or_never("legacyTimeout")?
                .unwrap_or(default.legacy_timeout),
            max_incoming_bytes: (reader.count("maxIncomingBytes")?)
                .unwrap_or(default.max_incoming_bytes),
            parked_calls: (reader.read("parkedCalls", ParkedCallForm::read)?)
                .unwrap_or(default.parked_calls),
            state_key: reader.read("stateKey", StateKey::read)?,
        };
        let path_of_heartbeat = reader.path_of("heartbeat");
        reader.finish()?;
        if settings.heartbeat == Some(Duration::ZERO) {
            let problem = "expected a duration above zero, or \"never\"";
            return Err(ConfigError::new(problem).in_member(path_of_heartbeat));
        }
        Ok(settings)
    }
}

/// Reads hosts or origins.
fn sources(
    reader: &mut MemberReader<'_>,
    member: &'static str,
    parse: fn(&str) -> Result<String, InvalidSource>,
) -> Result<Vec<String>, ConfigError> {
    let sources = reader.read(member, |value| {
        let parse =
            |text: String| parse(&text).map_err(|error| ConfigError::new(error.to_string()));
        texts(value)?.into_iter().map(parse).collect()
    })?;
    Ok(sources.unwrap_or_default())
}

impl Default for BridgeSettings {
    fn default() -> Self {
        Self {
            http: None,
            path: "/mcp".to_owned(),
            stdio: false,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            auth: None,
            name: None,
            instructions: None,
            separator: "__".to_owned(),
            heartbeat: Some(Duration::from_secs(20)),
            heartbeat_limit: Some(Duration::from_secs(60 * 60)),
            park_timeout: Duration::from_secs(5 * 60),
            park_limit: Duration::from_secs(60 * 60),
            max_parked: DEFAULT_PARKED,
            legacy_timeout: Some(DEFAULT_LEGACY_TIMEOUT),
            max_incoming_bytes: DEFAULT_INCOMING_BYTES,
            parked_calls: ParkedCallForm::default(),
            state_key: None,
        }
    }
}

impl FrontAuth {
    fn read(mut reader: MemberReader<'_>) -> Result<Self, ConfigError> {
        let (issuers, resource) = (reader.path_of("issuers"), reader.path_of("resource"));
        let missing = |what, member| {
            ConfigError::new(format!("expected {what}, got nothing")).in_member(member)
        };
        let auth = Self {
            issuers: reader.texts("issuers")?,
            resource: (reader.text("resource")?)
                .ok_or_else(|| missing("the URL of the bridge", resource))?,
            scopes: reader.texts("scopes")?,
        };
        reader.finish()?;
        if auth.issuers.is_empty() {
            return Err(missing("the URL of an issuer", issuers));
        }
        let is_url = |it: &String| it.starts_with("https://") || it.starts_with("http://");
        if let Some(wrong) = auth.issuers.iter().find(|it| !is_url(it)) {
            let wrong = RedactedUrl::new(wrong);
            let wrong = shortened(wrong.as_str());
            let problem = format!("expected the URL of an issuer, got `{wrong}`");
            return Err(ConfigError::new(problem).in_member(issuers));
        }
        Ok(auth)
    }
}

fn read_path(value: &serde_json::Value) -> Result<String, ConfigError> {
    let path = super::reader::text(value)?;
    let is_path = path.starts_with('/') && !path.contains(['?', '#', ' ', '\r', '\n']);
    let wrong = || ConfigError::new("expected a path such as \"/mcp\"");
    is_path.then_some(path).ok_or_else(wrong)
}

fn read_separator(value: &serde_json::Value) -> Result<String, ConfigError> {
    let separator = super::reader::text(value)?;
    let is_valid = (1..=MAX_SEPARATOR).contains(&separator.len())
        && separator.bytes().all(crate::many::is_name_byte);
    let wrong = || {
        ConfigError::new("expected one to four of the characters `_`, `-`, `.`, letters, digits")
    };
    is_valid.then_some(separator).ok_or_else(wrong)
}

pub(crate) const DEFAULT_LEGACY_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// With the limits of the front, a bridge fits into a container of 512 MiB.
pub(crate) const DEFAULT_INCOMING_BYTES: NonZeroUsize =
    NonZeroUsize::new(128 * 1024 * 1024).expect("128 MiB is not 0");
const DEFAULT_PARKED: NonZeroUsize = NonZeroUsize::new(1000).expect("1000 is not 0");
const MAX_SEPARATOR: usize = 4;
