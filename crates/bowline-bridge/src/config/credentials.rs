//! [`UpstreamCredentials`]: how requests to an upstream over HTTP are authorized.

use std::fmt;

use bowline::client::ServerConfig;
use serde_json::Value;

use super::error::ConfigError;
use super::reader::{MemberReader, expected};

/// How requests to an upstream are authorized, besides its static `headers`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpstreamCredentials {
    /// By the headers in the configuration alone.
    #[default]
    Headers,
    /// With the token that the client presented to the bridge (`"passThrough": true`).
    ///
    /// Only for an upstream that belongs to the same operator: it can use the token wherever the client can.
    PassThrough,
    /// With tokens that the bridge obtains by OAuth, for itself (`oauth`).
    OAuth(OAuthSettings),
    /// With tokens that the bridge exchanges the client's token for, by RFC 8693 (`tokenExchange`).
    TokenExchange(TokenExchangeSettings),
}

/// The member `oauth` of a server. `Debug` omits the secrets.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OAuthSettings {
    /// The client id, if the client is registered already.
    pub client_id: Option<String>,
    /// The client secret. `${NAME}` is replaced by an environment variable.
    pub client_secret: Option<String>,
    /// The private key of the client in PEM (PKCS#8), in place of a secret. `${NAME}` is replaced by an environment
    /// variable.
    pub client_key: Option<String>,
    /// The authorization server where the client is registered, which alone gets the secret. Default: the first that the
    /// server names, so that the server must be trusted.
    pub issuer: Option<String>,
    /// The URL of the client id metadata document.
    pub client_metadata_url: Option<String>,
    /// The scopes to request. If empty, those that the server names.
    pub scopes: Vec<String>,
    /// Whether the client authorizes itself, without a user.
    pub client_credentials: bool,
    /// Whether a server without metadata is its own authorization server, as in 2025-03-26. Such a server can make the
    /// bridge send its secrets to any path on the host.
    pub without_metadata: bool,
}

/// The member `tokenExchange` of a server. `Debug` omits the secret.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenExchangeSettings {
    /// The URL of the token endpoint.
    pub token_endpoint: String,
    /// The client id of the bridge at the token endpoint.
    pub client_id: Option<String>,
    /// The client secret. `${NAME}` is replaced by an environment variable.
    pub client_secret: Option<String>,
    /// The `audience` of the exchange.
    pub audience: Option<String>,
    /// The `resource` of the exchange. Default: the URL of the upstream.
    pub resource: Option<String>,
    /// The scopes to request.
    pub scopes: Vec<String>,
}

impl UpstreamCredentials {
    pub(super) fn read(
        reader: &mut MemberReader<'_>,
        server: &ServerConfig,
    ) -> Result<Self, ConfigError> {
        let path = reader.path_of("");
        let pass_through = reader.flag("passThrough")?.unwrap_or(false);
        let oauth = reader.value("oauth");
        let oauth = oauth.map(|value| OAuthSettings::read(value, format!("{path}oauth")));
        let exchange = reader.object("tokenExchange", TokenExchangeSettings::read)?;
        let ways = [
            pass_through.then_some(("passThrough", Self::PassThrough)),
            (oauth.transpose()?.flatten()).map(|oauth| ("oauth", Self::OAuth(oauth))),
            exchange.map(|exchange| ("tokenExchange", Self::TokenExchange(exchange))),
        ];
        let mut ways = ways.into_iter().flatten();
        let Some((member, credentials)) = ways.next() else {
            return Ok(Self::Headers);
        };
        let invalid =
            |problem: String| ConfigError::new(problem).in_member(format!("{path}{member}"));
        if let Some((other, _)) = ways.next() {
            let problem =
                format!("cannot be combined with `{other}`: a request has one credential");
            return Err(invalid(problem));
        }
        if server.url().is_none() {
            return Err(invalid("expected a server with a `url`".to_owned()));
        }
        let is_authorization = |(name, _): (&str, &str)| name.eq_ignore_ascii_case("authorization");
        if server.headers().any(is_authorization) {
            let problem =
                "cannot be combined with `headers.Authorization`: a request has one credential";
            return Err(invalid(problem.to_owned()));
        }
        Ok(credentials)
    }

    /// Replaces variables in secrets.
    pub(super) fn expand(
        &mut self,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), ConfigError> {
        let secrets = match self {
            Self::OAuth(oauth) => vec![
                ("bridge.oauth.clientSecret", &mut oauth.client_secret),
                ("bridge.oauth.clientKey", &mut oauth.client_key),
            ],
            Self::TokenExchange(exchange) => vec![(
                "bridge.tokenExchange.clientSecret",
                &mut exchange.client_secret,
            )],
            Self::Headers | Self::PassThrough => Vec::new(),
        };
        for (member, secret) in secrets {
            if let Some(text) = secret {
                let expanded = ServerConfig::expand(text, variable);
                *text = expanded
                    .map_err(|error| ConfigError::new(error.to_string()).in_member(member))?;
            }
        }
        Ok(())
    }
}

impl OAuthSettings {
    /// Reads an object, or `true` for one without members.
    fn read(value: &Value, path: String) -> Result<Option<Self>, ConfigError> {
        match value {
            Value::Bool(is_used) => return Ok(is_used.then(Self::default)),
            Value::Object(_) => {}
            _ => return Err(expected("true, false or an object", value).in_member(path)),
        }
        let mut reader = MemberReader::new(value, path)?;
        let settings = Self {
            client_id: reader.text("clientId")?,
            client_secret: reader.text("clientSecret")?,
            client_key: reader.text("clientKey")?,
            issuer: reader.text("issuer")?,
            client_metadata_url: reader.text("clientMetadataUrl")?,
            scopes: reader.texts("scopes")?,
            client_credentials: reader.flag("clientCredentials")?.unwrap_or(false),
            without_metadata: reader.flag("withoutMetadata")?.unwrap_or(false),
        };
        reader.finish()?;
        Ok(Some(settings))
    }
}

impl TokenExchangeSettings {
    fn read(mut reader: MemberReader<'_>) -> Result<Self, ConfigError> {
        let path = reader.path_of("tokenEndpoint");
        let missing = || ConfigError::new("expected a URL, got nothing").in_member(path);
        let settings = Self {
            token_endpoint: reader.text("tokenEndpoint")?.ok_or_else(missing)?,
            client_id: reader.text("clientId")?,
            client_secret: reader.text("clientSecret")?,
            audience: reader.text("audience")?,
            resource: reader.text("resource")?,
            scopes: reader.texts("scopes")?,
        };
        reader.finish()?;
        Ok(settings)
    }
}

impl fmt::Debug for OAuthSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthSettings")
            .field("client_id", &self.client_id)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for TokenExchangeSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenExchangeSettings")
            .field("token_endpoint", &self.token_endpoint)
            .field("client_id", &self.client_id)
            .field("audience", &self.audience)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}
