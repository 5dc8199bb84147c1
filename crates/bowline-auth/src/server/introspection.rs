//! Tokens that only their issuer can read.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use bowline::exchange::BoxFuture;
use bowline::http::client::HttpSend;
use bowline::{Error, Result};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Uri};
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::answers::Answers;
use super::fetch::Fetch;
use super::{AccessToken, Claims, Refused, TokenVerifier};
use crate::client::{Secret, SigningKey};

/// Verifies tokens by asking their issuer, as RFC 7662 has it: one request to it for each request here, unless
/// answers are [kept for a while](Self::cache_for). Requests that bring the same token at the same time share one.
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
    asker: Asker,
    answers: Arc<Answers>,
}

/// Everything that a question needs.
#[derive(Clone)]
struct Asker {
    issuer: String,
    endpoint: Uri,
    client: Client,
    fetch: Fetch,
    room: Arc<Semaphore>,
}

/// How the issuer knows who is asking.
#[derive(Clone)]
enum Client {
    Anybody,
    Header(HeaderValue),
    Body { id: String, secret: Secret },
    Key { id: String, key: Arc<SigningKey> },
}

impl Introspection {
    /// Asks `issuer` at this URL.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if that is no URL.
    pub fn new(issuer: impl Into<String>, endpoint: &str) -> Result<Self> {
        let place = endpoint.parse().map_err(|_| Error::Misuse {
            what: format!("`{endpoint}` is not where tokens can be asked for: it is no URL"),
        })?;
        Ok(Self {
            asker: Asker {
                issuer: issuer.into(),
                endpoint: place,
                client: Client::Anybody,
                fetch: Fetch::for_issuer_at(endpoint),
                room: Arc::new(Semaphore::new(MAX_CONCURRENT)),
            },
            answers: Arc::new(Answers::new(Duration::ZERO, DEFAULT_CACHED)),
        })
    }

    /// Authenticates by HTTP Basic (`client_secret_basic`).
    pub fn credentials(mut self, client_id: &str, secret: &str) -> Self {
        let pair = format!("{}:{}", form_encoded(client_id), form_encoded(secret));
        let value = format!("Basic {}", BASE64_STANDARD.encode(pair));
        self.asker.client = Client::Header(sensitive(&value));
        self
    }

    /// Authenticates by an id and a secret in the body (`client_secret_post`).
    pub fn credentials_in_body(mut self, client_id: &str, secret: &str) -> Self {
        self.asker.client = Client::Body {
            id: client_id.to_owned(),
            secret: Secret::new(secret),
        };
        self
    }

    /// Authenticates by a bearer token of this server's own.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if the token does not fit into a header.
    pub fn bearer_token(mut self, token: &str) -> Result<Self> {
        let value = HeaderValue::try_from(format!("Bearer {token}"));
        let mut value = value.map_err(|_| Error::Misuse {
            what: "the bearer token for introspection does not fit into a header".into(),
        })?;
        value.set_sensitive(true);
        self.asker.client = Client::Header(value);
        Ok(self)
    }

    /// Authenticates by a signature (`private_key_jwt`), whose audience is the issuer.
    pub fn signing_key(mut self, client_id: &str, key: SigningKey) -> Self {
        self.asker.client = Client::Key {
            id: client_id.to_owned(),
            key: Arc::new(key),
        };
        self
    }

    /// Keeps what the issuer answers for so long, and uses it for further requests with the same token. A token that
    /// was revoked is then accepted for so long at most. Nothing is kept by default.
    pub fn cache_for(mut self, lifetime: Duration) -> Self {
        self.answers = Arc::new(Answers::new(lifetime, self.answers.max()));
        self
    }

    /// Sets how many answers are kept; 10,000 by default. The oldest is dropped for a new one.
    pub fn max_cached(mut self, max: usize) -> Self {
        self.answers = Arc::new(Answers::new(self.answers.lifetime(), max));
        self
    }

    /// Asks at private addresses too. Otherwise the endpoint has a public one or is on this machine; it is
    /// asked by `https` unless it is this machine.
    pub fn within_private_network(mut self) -> Self {
        self.asker.fetch.within_private_network();
        self
    }

    /// Asks by `send`, which then decides what the names in URLs mean.
    pub fn send_by(mut self, send: impl HttpSend) -> Self {
        self.asker.fetch.send_by(send);
        self
    }
}

impl Asker {
    async fn ask(self, token: AccessToken) -> Result<Claims, Refused> {
        // Anybody can make us ask, so there is an end to it. Whoever finds no room waits for some: a slow issuer
        // delays its own tokens rather than having them refused.
        let room = tokio::time::timeout(WAIT_FOR_ROOM, self.room.acquire()).await;
        let Ok(Ok(_room)) = room else {
            return Err(Refused::unavailable("too many tokens are asked about"));
        };
        let question = self.question(&token)?;
        let answer = self.fetch.json(question).await.map_err(|why| {
            tracing::warn!(why, "failed to ask the issuer about a token");
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
    }

    fn question(&self, token: &AccessToken) -> Result<Request<Bytes>, Refused> {
        let token = form_encoded(token.as_str());
        let mut body = format!("token={token}&token_type_hint=access_token");
        let mut request = Request::new(Bytes::new());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.endpoint.clone();
        let headers = request.headers_mut();
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, form);
        let mut add = |name: &str, value: &str| {
            body.push_str(&format!("&{name}={}", form_encoded(value)));
        };
        match &self.client {
            Client::Anybody => {}
            Client::Header(value) => drop(headers.insert(AUTHORIZATION, value.clone())),
            Client::Body { id, secret } => {
                add("client_id", id);
                add("client_secret", secret.expose());
            }
            Client::Key { id, key } => {
                add("client_id", id);
                let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
                add("client_assertion_type", kind);
                add("client_assertion", &self.assertion(id, key)?);
            }
        }
        *request.body_mut() = body.into();
        Ok(request)
    }

    fn assertion(&self, id: &str, key: &SigningKey) -> Result<String, Refused> {
        let failed = |_| Refused::unavailable("failed to sign the question about the token");
        let mut random = [0; 16];
        getrandom::fill(&mut random)
            .map_err(|_| Refused::unavailable("failed to read randomness"))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_secs());
        let claims = serde_json::json!({
            "iss": id, "sub": id, "aud": self.issuer,
            "jti": BASE64_URL_SAFE_NO_PAD.encode(random),
            "iat": now, "exp": now + 120,
        });
        key.sign(serde_json::json!({"typ": "JWT"}), &claims)
            .map_err(failed)
    }
}

impl TokenVerifier for Introspection {
    fn verify<'a>(&'a self, token: &'a AccessToken) -> BoxFuture<'a, Result<Claims, Refused>> {
        let ask = || self.asker.clone().ask(token.clone());
        Box::pin(self.answers.get(token, ask))
    }
}

impl std::fmt::Debug for Introspection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Introspection")
            .field("issuer", &self.asker.issuer)
            .field("endpoint", &self.asker.endpoint)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Active {
    active: bool,
}

fn sensitive(text: &str) -> HeaderValue {
    let mut value = HeaderValue::try_from(text).expect("base64 is ASCII");
    value.set_sensitive(true);
    value
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

/// How many questions are under way at a time.
const MAX_CONCURRENT: usize = 256;
/// How long a question waits until others are answered.
const WAIT_FOR_ROOM: Duration = Duration::from_secs(10);
const DEFAULT_CACHED: usize = 10_000;

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
