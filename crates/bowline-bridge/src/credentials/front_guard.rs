//! [`guard`]: requires access tokens of the clients of a bridge.

use bowline::Result;
use bowline_auth::server::{Issuers, JwtVerifier, ResourceServer};

use super::needs_token;
use crate::{BridgeConfig, FrontToken};

/// Returns the layer that requires access tokens, as `auth` of a configuration says, or `None` without `auth`.
///
/// Tokens are JWTs of one of the issuers, for the bridge. They reach no upstream, unless one has `passThrough` or
/// `tokenExchange`: only then does the bridge see them at all.
///
/// # Errors
///
/// [`Error::Misuse`](bowline::Error::Misuse) if a URL is not valid.
///
/// # Examples
///
/// ```no_run
/// use bowline_bridge::credentials::guard;
/// use bowline_bridge::{Bridge, BridgeConfig};
///
/// # async fn example(bridge: Bridge, config: BridgeConfig) -> bowline::Result<()> {
/// let bound = bridge.http().bind("0.0.0.0:8000").await?;
/// match guard(&config)? {
///     Some(guard) => bound.layer(guard).serve_until_signal().await,
///     None => bound.serve_until_signal().await,
/// }
/// # }
/// ```
pub fn guard(config: &BridgeConfig) -> Result<Option<ResourceServer>> {
    let Some(auth) = &config.settings().auth else {
        return Ok(None);
    };
    let mut verifier = Issuers::new();
    for issuer in &auth.issuers {
        verifier = verifier.issuer(issuer, JwtVerifier::discover(issuer)?);
    }
    let mut issuers = auth.issuers.iter();
    // `FrontAuth::read` requires one.
    let first = issuers.next().map_or("", String::as_str);
    let mut guard = ResourceServer::new(&auth.resource, first, verifier)?.scopes(&auth.scopes);
    for issuer in issuers {
        guard = guard.additional_issuer(issuer);
    }
    if config.upstreams().any(needs_token) {
        guard = guard.keep_token(|token| FrontToken::new(token.as_str()));
    }
    Ok(Some(guard))
}
