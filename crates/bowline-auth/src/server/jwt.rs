//! [`JwtVerifier`]: verifies JWT access tokens with the JWK set of their issuer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bowline::exchange::BoxFuture;
use bowline::http::RedactedUrl;
use bowline::http::client::HttpClient;
use bowline::{Error, Result};
use http::Uri;

use super::fetch::IssuerFetch;
use super::jwks::{KeySet, KeySetLocation};
use super::jws::UnverifiedJws;
use super::{AccessToken, Algorithm, Claims, TokenVerifier, VerifyError};

/// Verifies JWT access tokens with the JWK set of their issuer.
///
/// Keys are fetched on first use, every five to ten minutes while tokens arrive, and when a token has an unknown `kid`;
/// at most every ten seconds, and less often while the issuer fails. Cached keys are used for an hour if the issuer
/// does not respond. Only asymmetric algorithms are accepted; HMAC and `none` are refused.
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
#[must_use = "pass it to a `ResourceServer`"]
pub struct JwtVerifier {
    issuer: String,
    keys: Arc<KeySet>,
    fetch: IssuerFetch,
    /// The accepted algorithms; `None` accepts all of [`Algorithm`].
    algorithms: Option<BTreeSet<Algorithm>>,
    requires_at_jwt: bool,
}

impl JwtVerifier {
    /// Creates a verifier for tokens of `issuer`, with the JWK set at the URL `keys`.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if `keys` is not a URL.
    pub fn new(issuer: impl Into<String>, keys: &str) -> Result<Self> {
        let uri = keys.parse().map_err(|_| Error::Misuse {
            what: format!("the JWK set URL `{}` is malformed", RedactedUrl::new(keys)),
        })?;
        Ok(Self {
            issuer: issuer.into(),
            keys: Arc::new(KeySet::new(KeySetLocation::At(uri))),
            fetch: IssuerFetch::for_issuer_at(keys),
            algorithms: None,
            requires_at_jwt: false,
        })
    }

    /// Creates a verifier for tokens of `issuer`, with the JWK set that its metadata name.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if the issuer is not a URL.
    pub fn discover(issuer: impl Into<String>) -> Result<Self> {
        let issuer = issuer.into();
        match issuer.parse::<Uri>() {
            Ok(uri) if uri.authority().is_some() => {}
            _ => {
                let issuer = RedactedUrl::new(issuer);
                let what = format!(
                    "the issuer `{issuer}` is not a URL, so its metadata cannot be fetched"
                );
                return Err(Error::Misuse { what });
            }
        }
        Ok(Self {
            keys: Arc::new(KeySet::new(KeySetLocation::FromMetadata(issuer.clone()))),
            fetch: IssuerFetch::for_issuer_at(&issuer),
            issuer,
            algorithms: None,
            requires_at_jwt: false,
        })
    }

    /// Accepts only tokens signed with one of these algorithms. Defaults to all of [`Algorithm`].
    pub fn algorithms(mut self, algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        self.algorithms = Some(algorithms.into_iter().collect());
        self
    }

    /// Accepts only tokens with the `typ` header `at+jwt` (RFC 9068).
    ///
    /// By default `JWT` and a missing `typ` are accepted too, because many issuers send them. An ID token for the same
    /// audience then passes as an access token: use this if the issuer supports it.
    pub fn require_at_jwt(mut self) -> Self {
        self.requires_at_jwt = true;
        self
    }

    /// Sets the minimum interval between fetches of the JWK set; defaults to 10 s.
    pub fn min_fetch_interval(mut self, interval: Duration) -> Self {
        self.keys = Arc::new(self.keys.with_min_fetch_interval(interval));
        self
    }

    /// Allows fetching from private addresses. By default only public addresses are allowed, over `https`, and loopback
    /// addresses if the issuer is on this machine.
    pub fn allow_private_addresses(mut self) -> Self {
        self.fetch.allow_private_addresses();
        self
    }

    /// Fetches through `client`, which then resolves host names: the addresses are no longer checked.
    pub fn http_client(mut self, client: impl HttpClient) -> Self {
        self.fetch.http_client(client);
        self
    }
}

impl TokenVerifier for JwtVerifier {
    fn verify<'a>(&'a self, token: &'a AccessToken) -> BoxFuture<'a, Result<Claims, VerifyError>> {
        Box::pin(async move {
            let token = UnverifiedJws::parse(token.as_str())?;
            // Issuers sign other kinds of token, such as ID tokens, with the same keys.
            let is_access_token = match self.requires_at_jwt {
                true => token.is_of_type(&["at+jwt"]),
                false => token.header.typ.is_none() || token.is_of_type(&["jwt", "at+jwt"]),
            };
            if !is_access_token {
                return Err(VerifyError::invalid(
                    "the `typ` is not that of an access token",
                ));
            }
            let accepted = self.algorithms.as_ref();
            if accepted.is_some_and(|accepted| !accepted.contains(&token.algorithm)) {
                return Err(VerifyError::invalid(
                    "the signature algorithm is not accepted",
                ));
            }
            let kid = token.header.kid.as_deref();
            let key = self.keys.find(&self.fetch, kid, token.algorithm).await?;
            let claims = Claims::read(&token.verify_signature(&key)?)?;
            if claims.issuer.as_ref() != Some(&self.issuer) {
                return Err(VerifyError::invalid("the token is from another issuer"));
            }
            if claims.expires_at.is_none() {
                return Err(VerifyError::invalid("the token has no `exp` claim"));
            }
            Ok(claims)
        })
    }
}

impl std::fmt::Debug for JwtVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JwtVerifier")
            .field("issuer", &self.issuer)
            .field("keys", self.keys.location())
            .finish_non_exhaustive()
    }
}
