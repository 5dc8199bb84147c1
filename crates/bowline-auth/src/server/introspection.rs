//! Tokens that only their issuer can read.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bowline::exchange::BoxFuture;
use bowline::http::client::{HttpSend, RequestBody};
use bowline::{Error, Result};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Uri};
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::fetch::Fetch;
use super::{AccessToken, Claims, Refused, TokenVerifier};

/// Verifies tokens by asking their issuer, as RFC 7662 has it: one request to it for each request here.
///
/// A token that was revoked is refused from then on. The issuer must say for whom the token is meant (`aud`),
/// or the token is refused.
///
/// # Examples
///
/// ```
/// use bowline_auth::server::Introspection;
///
/// let verifier = Introspection::new("https://id.example", "https://id.example/introspect")?
///     .credentials("files", "a secret");
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "it is given to a `ResourceServer`"]
pub struct Introspection {
    issuer: String,
    endpoint: Uri,
    authorization: Option<HeaderValue>,
    fetch: Fetch,
    room: Arc<Semaphore>,
}

impl Introspection {
    /// Asks `issuer` at this URL.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if that is no URL.
    pub fn new(issuer: impl Into<String>, endpoint: &str) -> Result<Self> {
        let endpoint = endpoint.parse().map_err(|_| Error::Misuse {
            what: format!("`{endpoint}` is not where tokens can be asked for: it is no URL"),
        })?;
        Ok(Self {
            issuer: issuer.into(),
            endpoint,
            authorization: None,
            fetch: Fetch::default(),
            room: Arc::new(Semaphore::new(MOST_AT_ONCE)),
        })
    }

    /// Says who is asking, by HTTP Basic.
    pub fn credentials(mut self, client_id: &str, secret: &str) -> Self {
        let pair = format!("{}:{}", form_encoded(client_id), form_encoded(secret));
        let value = format!("Basic {}", BASE64_STANDARD.encode(pair));
        let mut value = HeaderValue::try_from(value).expect("base64 is ASCII");
        value.set_sensitive(true);
        self.authorization = Some(value);
        self
    }

    /// Asks within our own network too, and by `http`. Otherwise the endpoint has a public address and is
    /// asked by `https`.
    pub fn within_private_network(mut self) -> Self {
        self.fetch.within_private_network();
        self
    }

    /// Asks by `send`, which then decides what the names in URLs mean.
    pub fn send_by(mut self, send: impl HttpSend) -> Self {
        self.fetch.send_by(send);
        self
    }

    fn question(&self, token: &AccessToken) -> Request<RequestBody> {
        let token = form_encoded(token.as_str());
        let body = format!("token={token}&token_type_hint=access_token");
        let mut request = Request::new(RequestBody::from(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.endpoint.clone();
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers_mut().insert(CONTENT_TYPE, form);
        let authorization = self.authorization.iter().cloned();
        let authorization = authorization.map(|value| (AUTHORIZATION, value));
        request.headers_mut().extend(authorization);
        request
    }
}

impl TokenVerifier for Introspection {
    fn verify<'a>(&'a self, token: &'a AccessToken) -> BoxFuture<'a, Result<Claims, Refused>> {
        Box::pin(async move {
            // Anybody can make us ask, so there is an end to it.
            let room = self.room.try_acquire();
            let _room =
                room.map_err(|_| Refused::unavailable("too many tokens are asked about"))?;
            let answer = self.fetch.json(self.question(token)).await.map_err(|why| {
                tracing::warn!(why, "a token could not be asked about");
                Refused::unavailable("the issuer cannot be asked about the token")
            })?;
            let Ok(Active { active: true }) = serde_json::from_slice(&answer) else {
                return Err(Refused::invalid("the token is not, or no longer, valid"));
            };
            let mut claims = Claims::read(&answer)?;
            // An issuer that answers speaks for itself, but it must not speak for another.
            if claims.issuer.get_or_insert_with(|| self.issuer.clone()) != &self.issuer {
                return Err(Refused::invalid("the token is from another issuer"));
            }
            Ok(claims)
        })
    }
}

impl std::fmt::Debug for Introspection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Introspection")
            .field("issuer", &self.issuer)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Active {
    active: bool,
}

/// A text as `application/x-www-form-urlencoded` has it, in its strictest form.
fn form_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

const MOST_AT_ONCE: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_meaning_in_a_form_is_encoded() {
        assert_eq!(form_encoded("a-b_c.d~1"), "a-b_c.d~1");
        assert_eq!(form_encoded("a&b=c+d e/ü"), "a%26b%3Dc%2Bd%20e%2F%C3%BC");
    }

    #[test]
    fn the_secret_is_not_shown() {
        let shown = Introspection::new("https://id.example", "https://id.example/introspect")
            .map(|it| it.credentials("files", "hush"));

        let shown = format!("{shown:?}");
        assert!(
            !shown.contains("hush") && !shown.contains("Basic"),
            "{shown}"
        );
    }
}
