//! [`Introspection`]: verifies opaque tokens at the issuer's introspection endpoint (RFC 7662).

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use bowline::exchange::BoxFuture;
use bowline::http::RedactedUrl;
use bowline::http::client::HttpClient;
use bowline::{Error, Result};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Uri};
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::fetch::IssuerFetch;
use super::introspection_cache::IntrospectionCache;
use super::{AccessToken, Claims, TokenVerifier, VerifyError};
use crate::client::{Secret, SigningKey};

/// Verifies tokens at the introspection endpoint of their issuer (RFC 7662).
///
/// Sends one introspection request per incoming request. Concurrent requests with the same token share one;
/// [`cache_for`](Self::cache_for) also reuses finished ones.
///
/// Without a cache, a revoked token is refused immediately. The response must contain `aud`, or the token is refused
/// (checked by [`ResourceServer`](super::ResourceServer)).
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
#[must_use = "pass it to a `ResourceServer`"]
pub struct Introspection {
    client: IntrospectionClient,
    cache: Arc<IntrospectionCache>,
}

/// Sends introspection requests.
#[derive(Clone)]
struct IntrospectionClient {
    issuer: String,
    endpoint: Uri,
    authentication: ClientAuthentication,
    fetch: IssuerFetch,
    permits: Arc<Semaphore>,
}

/// How this server authenticates at the introspection endpoint.
#[derive(Clone)]
enum ClientAuthentication {
    None,
    Header(HeaderValue),
    Body { id: String, secret: Secret },
    Key { id: String, key: Arc<SigningKey> },
}

impl Introspection {
    /// Creates a verifier for tokens of `issuer`, with the introspection endpoint at this URL.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if `endpoint` is not a URL.
    pub fn new(issuer: impl Into<String>, endpoint: &str) -> Result<Self> {
        let uri = endpoint.parse().map_err(|_| Error::Misuse {
            what: format!(
                "the introspection endpoint `{}` is not a URL",
                RedactedUrl::new(endpoint)
            ),
        })?;
        Ok(Self {
            client: IntrospectionClient {
                issuer: issuer.into(),
                endpoint: uri,
                authentication: ClientAuthentication::None,
                fetch: IssuerFetch::for_issuer_at(endpoint),
                permits: Arc::new(Semaphore::new(MAX_CONCURRENT)),
            },
            cache: Arc::new(IntrospectionCache::new(Duration::ZERO, DEFAULT_CACHED)),
        })
    }

    /// Authenticates with HTTP Basic (`client_secret_basic`).
    pub fn credentials(mut self, client_id: &str, secret: &str) -> Self {
        let pair = format!("{}:{}", form_encoded(client_id), form_encoded(secret));
        let value = format!("Basic {}", BASE64_STANDARD.encode(pair));
        self.client.authentication = ClientAuthentication::Header(sensitive(&value));
        self
    }

    /// Authenticates with an id and a secret in the body (`client_secret_post`).
    pub fn credentials_in_body(mut self, client_id: &str, secret: &str) -> Self {
        self.client.authentication = ClientAuthentication::Body {
            id: client_id.to_owned(),
            secret: Secret::new(secret),
        };
        self
    }

    /// Authenticates with a bearer token of this server.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if the token contains characters that are invalid in a header.
    pub fn bearer_token(mut self, token: &str) -> Result<Self> {
        let value = HeaderValue::try_from(format!("Bearer {token}"));
        let mut value = value.map_err(|_| Error::Misuse {
            what: "the bearer token for introspection is not a valid header value".into(),
        })?;
        value.set_sensitive(true);
        self.client.authentication = ClientAuthentication::Header(value);
        Ok(self)
    }

    /// Authenticates with client assertions (`private_key_jwt`), whose `aud` is the issuer.
    pub fn signing_key(mut self, client_id: &str, key: SigningKey) -> Self {
        self.client.authentication = ClientAuthentication::Key {
            id: client_id.to_owned(),
            key: Arc::new(key),
        };
        self
    }

    /// Caches responses for this long, at most a day. A revoked token may be accepted until its entry expires. By
    /// default nothing is cached.
    pub fn cache_for(mut self, lifetime: Duration) -> Self {
        self.cache = Arc::new(IntrospectionCache::new(lifetime, self.cache.max()));
        self
    }

    /// Limits the number of cached responses; defaults to 10,000. The oldest is dropped first.
    pub fn max_cached(mut self, max: usize) -> Self {
        self.cache = Arc::new(IntrospectionCache::new(self.cache.lifetime(), max));
        self
    }

    /// Allows an endpoint with a private address.
    ///
    /// By default the endpoint must have a public address and use `https`. If the configured endpoint is on this
    /// machine (`localhost` or a loopback address), a loopback address and `http` are allowed too.
    pub fn allow_private_addresses(mut self) -> Self {
        self.client.fetch.allow_private_addresses();
        self
    }

    /// Sends requests through `client`, which then resolves host names: the addresses are no longer checked.
    pub fn http_client(mut self, client: impl HttpClient) -> Self {
        self.client.fetch.http_client(client);
        self
    }
}

impl IntrospectionClient {
    async fn introspect(self, token: AccessToken) -> Result<Claims, VerifyError> {
        // Bounded, because any client can cause introspections. Requests beyond the limit wait up to `MAX_QUEUE_TIME`,
        // then fail as unavailable.
        let permit = tokio::time::timeout(MAX_QUEUE_TIME, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(VerifyError::unavailable("too many introspection requests"));
        };
        let request = self.introspection_request(&token)?;
        let response = self.fetch.json(request).await.map_err(|why| {
            tracing::warn!(why, "failed to introspect a token");
            VerifyError::unavailable("failed to introspect the token")
        })?;
        let Ok(IntrospectionStatus { active: true }) = serde_json::from_slice(&response) else {
            return Err(VerifyError::invalid("the token is not active"));
        };
        let mut claims = Claims::read(&response)?;
        // `iss` is optional in the response; if present, it must be this issuer.
        if claims.issuer.get_or_insert_with(|| self.issuer.clone()) != &self.issuer {
            return Err(VerifyError::invalid("the token is from another issuer"));
        }
        Ok(claims)
    }

    fn introspection_request(&self, token: &AccessToken) -> Result<Request<Bytes>, VerifyError> {
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
        match &self.authentication {
            ClientAuthentication::None => {}
            ClientAuthentication::Header(value) => {
                drop(headers.insert(AUTHORIZATION, value.clone()))
            }
            ClientAuthentication::Body { id, secret } => {
                add("client_id", id);
                add("client_secret", secret.expose());
            }
            ClientAuthentication::Key { id, key } => {
                add("client_id", id);
                let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
                add("client_assertion_type", kind);
                add("client_assertion", &self.assertion(id, key)?);
            }
        }
        *request.body_mut() = body.into();
        Ok(request)
    }

    fn assertion(&self, id: &str, key: &SigningKey) -> Result<String, VerifyError> {
        let failed = |_| VerifyError::unavailable("failed to sign the client assertion");
        let mut random = [0; 16];
        getrandom::fill(&mut random)
            .map_err(|_| VerifyError::unavailable("failed to read randomness"))?;
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
    fn verify<'a>(&'a self, token: &'a AccessToken) -> BoxFuture<'a, Result<Claims, VerifyError>> {
        let introspect = || self.client.clone().introspect(token.clone());
        Box::pin(self.cache.get(token, introspect))
    }
}

impl std::fmt::Debug for Introspection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Introspection")
            .field("issuer", &self.client.issuer)
            .field("endpoint", &RedactedUrl::new(&self.client.endpoint))
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct IntrospectionStatus {
    active: bool,
}

fn sensitive(text: &str) -> HeaderValue {
    let mut value = HeaderValue::try_from(text).expect("base64 is ASCII");
    value.set_sensitive(true);
    value
}

/// Percent-encodes everything but unreserved characters.
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

/// The maximum number of concurrent introspection requests.
const MAX_CONCURRENT: usize = 256;
/// How long a request waits for a free slot.
const MAX_QUEUE_TIME: Duration = Duration::from_secs(10);
const DEFAULT_CACHED: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_characters_are_form_encoded() {
        assert_eq!(form_encoded("a-b_c.d~1"), "a-b_c.d~1");
        assert_eq!(form_encoded("a&b=c+d e/ü"), "a%26b%3Dc%2Bd%20e%2F%C3%BC");
    }

    #[test]
    fn debug_output_hides_the_secret() {
        let shown = Introspection::new("https://id.example", "https://id.example/introspect")
            .map(|it| it.credentials("files", "hush"));

        let shown = format!("{shown:?}");
        assert!(
            !shown.contains("hush") && !shown.contains("Basic"),
            "{shown}"
        );
    }
}
