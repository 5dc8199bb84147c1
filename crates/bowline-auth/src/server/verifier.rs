//! What makes sure that a token is real.

use std::fmt;

use bowline::exchange::BoxFuture;
use zeroize::Zeroizing;

use super::Claims;

/// Makes sure that a token is real, and tells what it says.
///
/// It answers for where the token comes from and nothing else. Whether the token is meant for this server,
/// is still good, and comes with a proof of its key is checked by [`ResourceServer`](super::ResourceServer), of
/// every token and whoever verified it.
///
/// # Cancel safety
///
/// The future is dropped when the client gives up. It must be fine with that at every `.await`.
///
/// # Examples
///
/// Tokens that a table knows:
///
/// ```
/// use std::collections::BTreeMap;
/// use bowline::exchange::BoxFuture;
/// use bowline_auth::server::{AccessToken, Claims, Refused, TokenVerifier};
///
/// struct Table(BTreeMap<String, Claims>);
///
/// impl TokenVerifier for Table {
///     fn verify<'a>(&'a self, token: &'a AccessToken) -> BoxFuture<'a, Result<Claims, Refused>> {
///         let claims = self.0.get(token.as_str()).cloned();
///         Box::pin(async move { claims.ok_or_else(|| Refused::invalid("the token is unknown")) })
///     }
/// }
/// ```
pub trait TokenVerifier: Send + Sync + 'static {
    /// What the token says, if it is real.
    fn verify<'a>(&'a self, token: &'a AccessToken) -> BoxFuture<'a, Result<Claims, Refused>>;
}

/// A token as it came. It is not shown by `Debug`, and its memory is overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessToken(Zeroizing<String>);

impl AccessToken {
    pub(super) fn new(text: &str) -> Self {
        Self(Zeroizing::new(text.to_owned()))
    }

    /// Its text, which is a secret.
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

/// Why a token does not open the door.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The token's doing: another one may do better. Its bearer is told why.
    #[error("{0}")]
    Invalid(String),
    /// Not the token's doing: nobody can tell at the moment.
    #[error("{0}")]
    Unavailable(String),
}

impl Refused {
    /// The token is no good.
    pub fn invalid(why: impl Into<String>) -> Self {
        Self::Invalid(why.into())
    }

    /// Nobody can tell whether the token is good.
    pub fn unavailable(why: impl Into<String>) -> Self {
        Self::Unavailable(why.into())
    }
}
