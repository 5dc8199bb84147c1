//! [`TokenVerifier`]: verifies the origin of access tokens.

use std::fmt;

use bowline::exchange::BoxFuture;
use zeroize::Zeroizing;

use super::Claims;

/// Verifies that an access token is genuine, and returns its claims.
///
/// A verifier only answers for the origin of a token. Audience, issuer, expiry and DPoP proof are checked by
/// [`ResourceServer`](super::ResourceServer) for every token, independently of the verifier.
///
/// # Cancel safety
///
/// The future is dropped when the client disconnects, and must tolerate that at every `.await`.
///
/// # Examples
///
/// Tokens from a table:
///
/// ```
/// use std::collections::BTreeMap;
/// use bowline::exchange::BoxFuture;
/// use bowline_auth::server::{AccessToken, Claims, TokenVerifier, VerifyError};
///
/// struct TokenTable(BTreeMap<String, Claims>);
///
/// impl TokenVerifier for TokenTable {
///     fn verify<'a>(&'a self, token: &'a AccessToken) -> BoxFuture<'a, Result<Claims, VerifyError>> {
///         let claims = self.0.get(token.as_str()).cloned();
///         Box::pin(async move { claims.ok_or_else(|| VerifyError::invalid("the token is unknown")) })
///     }
/// }
/// ```
pub trait TokenVerifier: Send + Sync + 'static {
    /// Returns the claims of the token, if it is genuine.
    fn verify<'a>(&'a self, token: &'a AccessToken) -> BoxFuture<'a, Result<Claims, VerifyError>>;
}

/// An access token as received. `Debug` hides it, and its memory is zeroed when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessToken(Zeroizing<String>);

impl AccessToken {
    pub(super) fn new(text: &str) -> Self {
        Self(Zeroizing::new(text.to_owned()))
    }

    /// Returns the token, which is a secret.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken(…)")
    }
}

/// Why a token was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The token is invalid: `invalid_token`, with this description for the client.
    #[error("{0}")]
    Invalid(String),
    /// The token could not be verified now, for example because the issuer is unreachable: status 503.
    #[error("{0}")]
    Unavailable(String),
}

impl VerifyError {
    /// The token is invalid.
    pub fn invalid(why: impl Into<String>) -> Self {
        Self::Invalid(why.into())
    }

    /// The token could not be verified now.
    pub fn unavailable(why: impl Into<String>) -> Self {
        Self::Unavailable(why.into())
    }
}
