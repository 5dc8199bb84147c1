//! Tokens that are signed JWTs, and the issuer whose keys sign them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bowline::exchange::BoxFuture;
use bowline::http::client::HttpSend;
use bowline::{Error, Result};
use http::Uri;

use super::fetch::Fetch;
use super::jwks::{KeySet, Place};
use super::jws::Unchecked;
use super::{AccessToken, Algorithm, Claims, Refused, TokenVerifier};

/// Verifies tokens that are JWTs, with the keys that their issuer publishes.
///
/// Keys are fetched when they are first needed, looked at again within ten minutes and when a token names one
/// that is not there, though at most every ten seconds, and less often from an issuer that fails. While an issuer
/// does not answer, its keys are good for an hour. The algorithms are those with public keys; a token
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
    /// Those that are accepted, of those that are trusted.
    algorithms: Option<BTreeSet<Algorithm>>,
    requires_at_jwt: bool,
}

impl JwtVerifier {
    /// Tokens of `issuer`, whose keys are at this URL.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if that is no URL.
    pub fn new(issuer: impl Into<String>, keys: &str) -> Result<Self> {
        let place = keys.parse().map_err(|_| Error::Misuse {
            what: format!("`{keys}` is not where keys can be: it is no URL"),
        })?;
        Ok(Self {
            issuer: issuer.into(),
            keys: Arc::new(KeySet::new(Place::At(place))),
            fetch: Fetch::for_issuer_at(keys),
            algorithms: None,
            requires_at_jwt: false,
        })
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
        Ok(Self {
            keys: Arc::new(KeySet::new(Place::OfIssuer(issuer.clone()))),
            fetch: Fetch::for_issuer_at(&issuer),
            issuer,
            algorithms: None,
            requires_at_jwt: false,
        })
    }

    /// Accepts only tokens that are signed with one of these algorithms; all of [`Algorithm`] by default.
    pub fn algorithms(mut self, algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        self.algorithms = Some(algorithms.into_iter().collect());
        self
    }

    /// Accepts only tokens that say of themselves that they are access tokens, by the type `at+jwt` (RFC 9068).
    ///
    /// Without it `JWT` and no type at all are accepted too, because many issuers write that. An ID token for the same
    /// audience is then told from an access token by nothing: use this where the issuer supports it.
    pub fn require_at_jwt(mut self) -> Self {
        self.requires_at_jwt = true;
        self
    }

    /// Fetches keys again no sooner than this after the last time, whatever tokens name; 10 s unless told
    /// otherwise.
    pub fn fetch_again_after(mut self, again_after: Duration) -> Self {
        self.keys = Arc::new(self.keys.with_again_after(again_after));
        self
    }

    /// Fetches keys from private addresses too. Otherwise they come from public ones or, if the issuer is on
    /// this machine, from there; by `https` unless it is this machine.
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
            let is_access_token = match self.requires_at_jwt {
                true => token.is_of_type(&["at+jwt"]),
                false => token.header.typ.is_none() || token.is_of_type(&["jwt", "at+jwt"]),
            };
            if !is_access_token {
                return Err(Refused::invalid("it is a token of another kind"));
            }
            let accepted = self.algorithms.as_ref();
            if accepted.is_some_and(|accepted| !accepted.contains(&token.algorithm)) {
                return Err(Refused::invalid(
                    "it is not signed in a way that is accepted here",
                ));
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
