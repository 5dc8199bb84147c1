//! [`TokenExchange`]: exchanges the tokens of users for tokens that another server accepts (RFC 8693).

mod authorizer;
pub use authorizer::TokenExchangeAuthorizer;

mod cache;

#[cfg(test)]
mod tests;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline::http::RedactedUrl;
use bowline::http::client::HttpClient;
use bytes::Bytes;
use http::{Request, Response};
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use super::address_policy::AddressPolicy;
use super::application::RegisteredClient;
use super::fetch::Fetch;
use super::time_and_randomness::TimeAndRandomness;
use super::token_endpoint::{AuthenticatedClient, TokenResponse, parse_error_response, post_form};
use super::user_agent::AppError;
use super::{Error, Result, Secret};
use crate::sync::Mutex;
use cache::{ExchangeCache, ExchangedToken};

/// Exchanges access tokens of users for access tokens for another server (RFC 8693), for a server that calls others on
/// behalf of its users.
///
/// The tokens are cached until shortly before they expire, each for one principal and one subject token: it is never
/// used for another. Requests with the same subject token share one exchange.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use bowline_auth::client::{RegisteredClient, Secret, SubjectToken, TokenExchange};
///
/// # fn example(token_of_the_request: String) -> bowline::Result<()> {
/// let client = RegisteredClient::new("https://id.example", "gateway").secret("from the vault");
/// let exchange = TokenExchange::new("https://id.example/token").client(client).resource("https://files.example/mcp");
///
/// // A client that calls the server on behalf of Ada.
/// let subject = SubjectToken::new("ada", Secret::new(token_of_the_request));
/// let authorizer = Arc::new(exchange).authorizer("https://files.example/mcp", move || Ok(subject.clone()))?;
/// let client = bowline::Client::connect("https://files.example/mcp").authorizer(authorizer);
/// # drop(client);
/// # Ok(()) }
/// ```
#[must_use = "create authorizers with it"]
pub struct TokenExchange {
    token_endpoint: String,
    client: Option<RegisteredClient>,
    audience: Option<String>,
    resource: Option<String>,
    scopes: Vec<String>,
    allows_plain_http: bool,
    http_client: Option<Arc<dyn HttpClient>>,
    fetch: OnceLock<Fetch>,
    cache: Mutex<ExchangeCache>,
}

/// The access token of a user, which is exchanged for another. `Debug` hides the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectToken {
    principal: Arc<str>,
    token: Secret,
}

impl SubjectToken {
    /// Creates a subject token. `principal` identifies its user among all users of the exchange.
    pub fn new(principal: impl Into<Arc<str>>, token: Secret) -> Self {
        Self {
            principal: principal.into(),
            token,
        }
    }
}

/// Returns the subject token for the next request.
type SubjectFn = dyn Fn() -> Result<SubjectToken, AppError> + Send + Sync;

impl TokenExchange {
    /// Creates an exchange at this token endpoint.
    pub fn new(token_endpoint: impl Into<String>) -> Self {
        Self {
            token_endpoint: token_endpoint.into(),
            client: None,
            audience: None,
            resource: None,
            scopes: Vec::new(),
            allows_plain_http: false,
            http_client: None,
            fetch: OnceLock::new(),
            cache: Mutex::new(ExchangeCache::new(DEFAULT_CACHED)),
        }
    }

    /// Sets the client that authenticates at the token endpoint. By default requests to it are not authenticated.
    ///
    /// The issuer of the client is the `aud` of its assertions, or else the token endpoint.
    pub fn client(mut self, client: RegisteredClient) -> Self {
        self.client = Some(client);
        self
    }

    /// Sets the `audience`: the logical name of the server that the tokens are for.
    pub fn audience(mut self, audience: impl Into<String>) -> Self {
        self.audience = Some(audience.into());
        self
    }

    /// Sets the `resource`: the URL of the server that the tokens are for.
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// Sets the scopes to request. By default the authorization server decides.
    pub fn scopes<S: Into<String>>(mut self, scopes: impl IntoIterator<Item = S>) -> Self {
        self.scopes = scopes.into_iter().map(Into::into).collect();
        self
    }

    /// Sets how many tokens are cached. 1,000 by default; then the least recently used is dropped.
    pub fn max_cached(mut self, max: NonZeroUsize) -> Self {
        self.cache = Mutex::new(ExchangeCache::new(max));
        self
    }

    /// Allows sending tokens over plain `http://` to other machines, where every hop can read them. Use it only on a
    /// network that is protected by other means.
    pub fn allow_plain_http(mut self) -> Self {
        self.allows_plain_http = true;
        self
    }

    /// Sends the requests through `client`, for example to use the system's proxies.
    pub fn http_client(mut self, client: impl HttpClient) -> Self {
        self.http_client = Some(Arc::new(client));
        self
    }

    /// Returns an authorizer for the requests of one principal to the MCP server at this URL. It is called for the
    /// subject token before each request, so that it can return a newer one.
    ///
    /// Tokens are sent to the origin of the server only.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`](bowline::Error::Misuse) if the URL is not valid, or tokens would be sent unencrypted, unless
    /// [`allow_plain_http`](Self::allow_plain_http) was called.
    pub fn authorizer(
        self: &Arc<Self>,
        server: &str,
        subject: impl Fn() -> Result<SubjectToken, AppError> + Send + Sync + 'static,
    ) -> bowline::Result<TokenExchangeAuthorizer> {
        self.check_endpoint().map_err(|error| misuse(&error))?;
        let url = Url::parse(server).ok().filter(Url::has_host);
        let Some(url) = url.filter(|url| matches!(url.scheme(), "http" | "https")) else {
            let server = RedactedUrl::new(server);
            let what = format!("`{server}` is not an http:// or https:// URL");
            return Err(bowline::Error::Misuse { what });
        };
        let is_here = AddressPolicy::for_server(&url) == AddressPolicy::ThisMachine;
        if url.scheme() == "http" && !is_here && !self.allows_plain_http {
            let server = RedactedUrl::new(server).to_string();
            return Err(misuse(&Error::Unencrypted { server }));
        }
        Ok(TokenExchangeAuthorizer::new(
            self.clone(),
            url,
            Arc::new(subject),
        ))
    }

    /// Returns an access token for this subject token: a cached one, or a new one.
    ///
    /// # Errors
    ///
    /// If the token endpoint cannot be reached or refuses.
    ///
    /// # Cancel safety
    ///
    /// Abandons the exchange. Another call with the same subject token that waits for it starts one of its own.
    pub async fn exchange(&self, subject: &SubjectToken) -> Result<Secret> {
        let slot = self.cache.lock().slot(subject);
        let mut cached = slot.lock().await;
        let now = Instant::now();
        if let Some(token) = cached.as_ref().filter(|token| now < token.renew_at) {
            return Ok(token.access.clone());
        }
        match self.request_token(subject).await {
            Ok(token) => Ok(cached.insert(token).access.clone()),
            Err(error) => {
                // The old token is still good for a few seconds.
                let old = cached.as_ref().filter(|old| now < old.expires_at);
                old.filter(|_| error.is_transient())
                    .map_or(Err(error), |old| Ok(old.access.clone()))
            }
        }
    }

    /// Removes the token that a server refused from the cache, if it is still the cached one.
    async fn forget(&self, subject: &SubjectToken, refused: &str) {
        let slot = self.cache.lock().slot(subject);
        let mut cached = slot.lock().await;
        if (cached.as_ref()).is_some_and(|cached| cached.access.expose() == refused) {
            *cached = None;
        }
    }

    async fn request_token(&self, subject: &SubjectToken) -> Result<ExchangedToken> {
        let request = self.token_request(subject)?;
        let requested_at = Instant::now();
        let response = self.fetch().send(request).await?;
        if !response.status().is_success() {
            return Err(parse_error_response(
                "token request",
                &self.redacted(response, subject),
            ));
        }
        let parsed = TokenResponse::read(&response)?;
        if !parsed.token_type.eq_ignore_ascii_case("bearer") {
            let what = format!("expected a Bearer token, got `{}`", parsed.token_type);
            return Err(Error::unsupported(what));
        }
        let issued = parsed.issued_token_type.as_deref();
        if let Some(other) = issued.filter(|issued| ![ACCESS_TOKEN, JWT].contains(issued)) {
            let what = format!("expected an access token, got a token of type `{other}`");
            return Err(Error::unsupported(what));
        }
        let lifetime = parsed
            .lifetime()
            .map_or(DEFAULT_LIFETIME, Duration::from_secs)
            .min(MAX_LIFETIME);
        Ok(ExchangedToken {
            access: parsed.access_token,
            renew_at: requested_at + (lifetime - (lifetime / 10).min(MAX_HEAD_START)),
            expires_at: requested_at + lifetime,
        })
    }

    fn token_request(&self, subject: &SubjectToken) -> Result<Request<Bytes>> {
        let endpoint = self.check_endpoint()?;
        let mut form = vec![
            ("grant_type", GRANT_TYPE.to_owned()),
            ("subject_token", subject.token.expose().to_owned()),
            ("subject_token_type", ACCESS_TOKEN.to_owned()),
            ("requested_token_type", ACCESS_TOKEN.to_owned()),
        ];
        let scopes = Some(self.scopes.join(" ")).filter(|scopes| !scopes.is_empty());
        let optional = [
            ("audience", self.audience.clone()),
            ("resource", self.resource.clone()),
            ("scope", scopes),
        ];
        form.extend(
            optional
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        let Some(client) = &self.client else {
            return post_form(&endpoint, Request::post(endpoint.as_str()), form);
        };
        let fresh = TimeAndRandomness::now().map_err(|source| Error::Application {
            what: "failed to read randomness from the operating system",
            source: source.into(),
        })?;
        let authenticated = AuthenticatedClient {
            client: &client.registration(),
            key: client.signing_key(),
            audience: client.issuer.as_deref().unwrap_or(&self.token_endpoint),
        };
        authenticated.form_request(&endpoint, form, None, &fresh)
    }

    /// Checks the URL of the token endpoint. The application configured it, so it may be in a private network.
    fn check_endpoint(&self) -> Result<Url> {
        let address = &self.token_endpoint;
        let checked = match address.strip_prefix("http://") {
            Some(rest) if self.allows_plain_http => &format!("https://{rest}"),
            _ => address,
        };
        AddressPolicy::Private.admit("the token endpoint", checked)?;
        Url::parse(address).map_err(|_| {
            let address = RedactedUrl::new(address);
            Error::misuse(format!("the token endpoint `{address}` is not a URL"))
        })
    }

    fn fetch(&self) -> &Fetch {
        self.fetch.get_or_init(|| match &self.http_client {
            Some(client) => Fetch::new(client.clone()),
            None => Fetch::with_policy(AddressPolicy::Private),
        })
    }

    /// Removes the secrets of the request from an error response that quotes them.
    fn redacted(&self, response: Response<Bytes>, subject: &SubjectToken) -> Response<Bytes> {
        let client = self.client.as_ref().map(RegisteredClient::registration);
        let secret = client.and_then(|client| client.secret);
        let secrets = [Some(&subject.token), secret.as_ref()];
        response.map(|body| {
            let Ok(Value::Object(mut members)) = serde_json::from_slice(&body) else {
                return body;
            };
            for member in ["error", "error_description"] {
                if let Some(Value::String(text)) = members.get_mut(member) {
                    for secret in secrets.into_iter().flatten() {
                        *text = text.replace(secret.expose(), "…");
                    }
                }
            }
            Value::Object(members).to_string().into()
        })
    }
}

fn misuse(error: &Error) -> bowline::Error {
    bowline::Error::Misuse {
        what: error.to_string(),
    }
}

impl fmt::Debug for TokenExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenExchange")
            .field("token_endpoint", &self.token_endpoint)
            .field("client", &self.client)
            .field("audience", &self.audience)
            .field("resource", &self.resource)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";
const DEFAULT_CACHED: NonZeroUsize = NonZeroUsize::new(1000).expect("1000 is not 0");
/// The lifetime of a token whose response does not contain it.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(60);
/// After this time a token is exchanged again, so that a user who is deactivated loses access.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// The maximum time between the renewal and the expiry of a token.
const MAX_HEAD_START: Duration = Duration::from_secs(30);
