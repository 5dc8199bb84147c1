//! How requests to upstreams are authorized, and how requests to the bridge are.
//!
//! What a client presents to the bridge stays there, unless the configuration of a server says otherwise:
//!
//! | configuration | requests to the server have | connections are shared by |
//! |---|---|---|
//! | nothing, or `headers` | the headers of the configuration | all clients |
//! | `oauth` | a token that the bridge obtains for itself | all clients |
//! | `tokenExchange` | a token that the bridge gets in exchange for the client's (RFC 8693) | requests with the same principal, client and scopes |
//! | `passThrough` | the client's token | the same |
//!
//! The last two need the client's token, so they need a front that verifies it: [`guard`], or another layer that adds a
//! [`FrontToken`](crate::FrontToken) and a [`Principal`](bowline::exchange::Principal) to the request. Other requests to
//! such a server are refused, such as those of a client over stdio. Requests are signed with the token that the client
//! presented last: a legacy client over HTTP sends one with each of its requests, and what the bridge does on its behalf
//! in between is signed with the last one.
//!
//! `oauth` and `tokenExchange`, and [`guard`], need the feature `auth`.
//!
//! # Examples
//!
//! A bridge to one server with OAuth, for a user with a browser:
//!
//! ```no_run
//! # #[cfg(feature = "auth")] {
//! use std::sync::Arc;
//! use bowline::Client;
//! use bowline_auth::client::{Loopback, OAuth};
//! use bowline_bridge::{Bridge, Target};
//!
//! let url = "https://files.example/mcp";
//! let browser = Loopback::new(|url| Ok(eprintln!("Open {url} in your browser.")));
//! let oauth = Arc::new(OAuth::new(url).name("My bridge").user_agent(browser));
//! let target = Target::new(url, move |_| Ok(Client::connect(url).authorizer(oauth.clone()))).stateless();
//! let bridge = Bridge::new(target);
//! # }
//! ```

#[cfg(feature = "auth")]
mod front_guard;
#[cfg(feature = "auth")]
pub use front_guard::guard;

#[cfg(feature = "auth")]
mod oauth;
#[cfg(not(feature = "auth"))]
#[path = "oauth_disabled.rs"]
mod oauth;

mod pass_through;

use std::fmt;

use bowline::client::ServerConfig;
use bowline::http::RedactedUrl;
use bowline::{Error, Result};
use http::Uri;

use crate::client_token::{ClientToken, TokenCell};
use crate::config::{UpstreamConfig, UpstreamCredentials};
use crate::{BridgeConfig, Target};
use oauth::OAuthSetup;
use pass_through::PassThrough;

/// Creates the targets of a configuration, with the credentials that it names.
///
/// # Examples
///
/// ```
/// use bowline_bridge::BridgeConfig;
/// use bowline_bridge::credentials::Credentials;
///
/// let config = BridgeConfig::from_json(
///     r#"{"mcpServers": {"files": {"url": "https://files.example/mcp", "bridge": {"passThrough": true}}}}"#,
/// )?;
/// let target = Credentials::new().target(config.get("files").unwrap())?;
/// assert_eq!(target.name(), "files");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
#[must_use = "create targets with it"]
pub struct Credentials {
    oauth: OAuthSetup,
}

impl Credentials {
    /// Creates the default: servers with `oauth` must not need a user, and tokens are kept in memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns how to connect to a server, and to authorize requests. Variables in the configuration must have been
    /// [replaced](UpstreamConfig::expanded_with).
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] that names the server: if a URL or header is not valid, a client would send its tokens
    /// unencrypted, or the feature `auth` is missing.
    pub fn target(&self, config: &UpstreamConfig) -> Result<Target> {
        let server = config.server();
        drop(server.client()?); // reports an invalid header now, not at the first request
        let target = self.authorized(config).map_err(|error| {
            let what = format!("server `{}`: {error}", config.name());
            Error::Misuse { what }
        })?;
        let is_stateless = server.url().is_some() || config.settings().shared;
        Ok(match is_stateless {
            true => target.stateless(),
            false => target,
        })
    }

    fn authorized(&self, config: &UpstreamConfig) -> Result<Target> {
        let server = config.server().clone();
        match &config.settings().credentials {
            UpstreamCredentials::Headers => {
                Ok(Target::new(config.name(), move |_| server.client()))
            }
            UpstreamCredentials::PassThrough => {
                let origin = Origin::protected(url_of(&server)?)?;
                Ok(Target::with_token(config.name(), move |latest| {
                    let authorizer = PassThrough::new(origin.clone(), latest.clone());
                    Ok(server.client()?.authorizer(authorizer))
                }))
            }
            UpstreamCredentials::OAuth(settings) => self.oauth.target(server, settings),
            UpstreamCredentials::TokenExchange(settings) => oauth::exchange(server, settings),
        }
    }
}

/// Checks that a configuration has `auth` if one of its servers needs the token of the client, without which all
/// requests to that server are refused. Not for a front with a layer of the application's own.
///
/// # Errors
///
/// [`Error::Misuse`] that names the server.
///
/// # Examples
///
/// ```
/// use bowline_bridge::{BridgeConfig, credentials};
///
/// let config = BridgeConfig::from_json(
///     r#"{"mcpServers": {"files": {"url": "https://files.example/mcp", "bridge": {"passThrough": true}}}}"#,
/// )?;
/// let error = credentials::check_front(&config).unwrap_err();
/// assert!(error.to_string().starts_with("server `files`: `bridge.passThrough` needs the access tokens of clients"));
/// # Ok::<(), bowline_bridge::config::ConfigError>(())
/// ```
pub fn check_front(config: &BridgeConfig) -> Result<()> {
    if config.settings().auth.is_some() {
        return Ok(());
    }
    match first_with_token(config) {
        Some(what) => Err(Error::Misuse {
            what: format!("{what}: set `auth` in `bridge`"),
        }),
        None => Ok(()),
    }
}

/// Checks that a configuration can replace another one while the front goes on as it was started: its layer neither
/// appears nor changes with a [reload](crate::Bridge::reload), and [`guard`] keeps the tokens of clients only if a server
/// needs them. `started` is the configuration that the front was started with. Not for a front with a layer of the
/// application's own.
///
/// # Errors
///
/// [`Error::Misuse`] that names the member. The bridge must be started anew.
///
/// # Examples
///
/// ```
/// use bowline_bridge::{BridgeConfig, credentials};
///
/// let open = BridgeConfig::from_json(r#"{"mcpServers": {"files": {"url": "https://files.example/mcp"}}}"#)?;
/// let passing = BridgeConfig::from_json(
///     r#"{"mcpServers": {"files": {"url": "https://files.example/mcp", "bridge": {"passThrough": true}}}}"#,
/// )?;
/// assert!(credentials::check_reload(&open, &open).is_ok());
/// assert!(credentials::check_reload(&open, &passing).is_err());
/// # Ok::<(), bowline_bridge::config::ConfigError>(())
/// ```
pub fn check_reload(started: &BridgeConfig, config: &BridgeConfig) -> Result<()> {
    check_front(config)?;
    let restart = |what: String| {
        let what = format!("{what}: start the bridge anew");
        Err(Error::Misuse { what })
    };
    if started.settings().auth != config.settings().auth {
        return restart("`bridge.auth` has changed, and the front does not change".to_owned());
    }
    match first_with_token(config) {
        Some(what) if first_with_token(started).is_none() => {
            restart(format!("{what}, which the front has not kept so far"))
        }
        _ => Ok(()),
    }
}

/// Describes the first server that is called with the token of the client.
fn first_with_token(config: &BridgeConfig) -> Option<String> {
    let upstream = config.upstreams().find(|upstream| needs_token(upstream))?;
    let member = match upstream.settings().credentials {
        UpstreamCredentials::PassThrough => "passThrough",
        _ => "tokenExchange",
    };
    let name = upstream.name();
    Some(format!(
        "server `{name}`: `bridge.{member}` needs the access tokens of clients"
    ))
}

/// Returns whether a server is called with the token of the client, or with one in exchange for it.
fn needs_token(config: &UpstreamConfig) -> bool {
    let credentials = &config.settings().credentials;
    matches!(
        credentials,
        UpstreamCredentials::PassThrough | UpstreamCredentials::TokenExchange(_)
    )
}

fn url_of(server: &ServerConfig) -> Result<&str> {
    server.url().ok_or_else(|| Error::Misuse {
        what: "expected a server with a `url`".to_owned(),
    })
}

/// Returns the token to use now.
fn usable(latest: &TokenCell) -> Result<ClientToken> {
    let latest = latest.latest();
    if latest.is_expired() {
        return Err(refused("the client's token has expired"));
    }
    Ok(latest)
}

/// The error of a request that cannot be authorized.
fn refused(what: &'static str) -> Error {
    Error::Unauthorized {
        challenges: Vec::new(),
        source: Some(what.into()),
    }
}

/// The scheme, host and port of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin {
    is_https: bool,
    host: String,
    port: u16,
}

impl Origin {
    fn of(uri: &Uri) -> Option<Self> {
        let is_https = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        Some(Self {
            is_https,
            host: uri.host()?.to_ascii_lowercase(),
            port: uri.port_u16().unwrap_or(if is_https { 443 } else { 80 }),
        })
    }

    /// Returns the origin of a URL to which the token of a client may be sent.
    fn protected(url: &str) -> Result<Self> {
        let uri: Option<Uri> = url.parse().ok();
        let Some(origin) = uri.as_ref().and_then(Self::of) else {
            let url = RedactedUrl::new(url);
            let what = format!("`{url}` is not an http:// or https:// URL");
            return Err(Error::Misuse { what });
        };
        if !origin.is_https && !origin.is_this_machine() {
            let url = RedactedUrl::new(url);
            let what =
                format!("tokens of clients would be sent unencrypted to `{url}`: use https://");
            return Err(Error::Misuse { what });
        }
        Ok(origin)
    }

    fn is_this_machine(&self) -> bool {
        let host = self.host.trim_matches(['[', ']']);
        let address: Option<std::net::IpAddr> = host.parse().ok();
        host == "localhost"
            || host.ends_with(".localhost")
            || address.is_some_and(|address| address.is_loopback())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}
