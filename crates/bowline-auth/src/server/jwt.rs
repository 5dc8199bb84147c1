//! Tokens that are signed JWTs, and the issuer whose keys sign them.

use std::sync::Arc;
use std::time::Duration;

use bowline::exchange::BoxFuture;
use bowline::http::client::HttpSend;
use bowline::{Error, Result};
use http::Uri;

use super::fetch::Fetch;
use super::jwks::{KeySet, Place};
use super::jws::Unchecked;
use super::{AccessToken, Claims, Refused, TokenVerifier};

/// Verifies tokens that are JWTs, with the keys that their issuer publishes.
///
/// Keys are fetched when they are first needed, looked at again every ten minutes and when a token names one
/// that is not there, though at most every ten seconds. The algorithms are those with public keys; a token
/// that is signed with a shared secret, or not at all, is refused.
///
/// # Examples
///
/// ```
/// use bowline_auth::server::JwtVerifier;
///
/// let verifier = JwtVerifier::new("https://id.example", "https://id.example/keys.json")?;
/// let verifier = JwtVerifier::discover("https://id.example")?;
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "it is given to a `ResourceServer`"]
pub struct JwtVerifier {
    issuer: String,
    keys: Arc<KeySet>,
    fetch: Fetch,
}

impl JwtVerifier {
    /// Tokens of `issuer`, whose keys are at this URL.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if that is no URL.
    pub fn new(issuer: impl Into<String>, keys: &str) -> Result<Self> {
        let keys = keys.parse().map_err(|_| Error::Misuse {
            what: format!("`{keys}` is not where keys can be: it is no URL"),
        })?;
        Ok(Self::of(issuer.into(), Place::At(keys)))
    }

    /// Tokens of `issuer`, whose keys are where its metadata say.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if the issuer is no URL.
    pub fn discover(issuer: impl Into<String>) -> Result<Self> {
        let issuer = issuer.into();
        match issuer.parse::<Uri>() {
            Ok(uri) if uri.authority().is_some() => {}
            _ => {
                let what = format!("the issuer `{issuer}` is no URL, and its keys cannot be found");
                return Err(Error::Misuse { what });
            }
        }
        Ok(Self::of(issuer.clone(), Place::OfIssuer(issuer)))
    }

    fn of(issuer: String, place: Place) -> Self {
        Self {
            issuer,
            keys: Arc::new(KeySet::new(place)),
            fetch: Fetch::default(),
        }
    }

    /// Fetches keys again no sooner than this after the last time, whatever tokens name; 10 s unless told
    /// otherwise.
    pub fn fetch_again_after(mut self, again_after: Duration) -> Self {
        self.keys = Arc::new(self.keys.with_again_after(again_after));
        self
    }

    /// Fetches keys from our own network too, and by `http`. Otherwise they come from public addresses,
    /// by `https`.
    pub fn within_private_network(mut self) -> Self {
        self.fetch.within_private_network();
        self
    }

    /// Fetches keys by `send`, which then decides what the names in URLs mean.
    pub fn send_by(mut self, send: impl HttpSend) -> Self {
        self.fetch.send_by(send);
        self
    }
}

impl TokenVerifier for JwtVerifier {
    fn verify<'a>(&'a self, token: &'a AccessToken) -> BoxFuture<'a, Result<Claims, Refused>> {
        Box::pin(async move {
            let token = Unchecked::parse(token.as_str())?;
            // Other tokens of the same issuer are signed with the same keys.
            if token.header.typ.is_some() && !token.is_of_type(&["jwt", "at+jwt"]) {
                return Err(Refused::invalid("it is a token of another kind"));
            }
            let kid = token.header.kid.as_deref();
            let key = self.keys.find(&self.fetch, kid, token.algorithm).await?;
            let claims = Claims::read(&token.signed_by(&key)?)?;
            if claims.issuer.as_ref() != Some(&self.issuer) {
                return Err(Refused::invalid("the token is from another issuer"));
            }
            if claims.expires_at.is_none() {
                return Err(Refused::invalid("the token does not say when it ends"));
            }
            Ok(claims)
        })
    }
}

impl std::fmt::Debug for JwtVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JwtVerifier")
            .field("issuer", &self.issuer)
            .field("keys", self.keys.place())
            .finish_non_exhaustive()
    }
}
