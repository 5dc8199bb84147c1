//! [`ResourceServer`]: the tower layer that admits requests with a valid token and challenges the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bowline::Result;
use bowline::cluster::{Marks, MemoryMarks, Unavailable};
use bowline::exchange::{BoxFuture, InsufficientScope, Principal};
use bowline::http::server::is_preflight;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{Extensions, HeaderValue, Method, Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::challenge::{ChallengeParams, DenialReason};
use super::claims::{Binding, Claims, ExpectedClaims};
use super::credential::{Credential, Scheme};
use super::dpop::{self, DPOP, DPOP_NONCE, ProofExpectation};
use super::metadata::{self, ResourceIdentifier, ResourceInfo};
use super::nonce::NonceIssuer;
use super::proof_quota::ProofQuota;
use super::{AccessToken, TokenVerifier, VerifyError};

/// A tower layer that admits requests with a valid access token for this server. Cheap to clone; clones share state.
///
/// A token must pass the verifier, come from one of the issuers, name this server in `aud`, and be within its validity
/// period; if it is bound to a key, the request must have a DPoP proof. The layer then adds the token's [`Principal`]
/// to the request and removes the token, so that handlers cannot pass it on.
///
/// Refused requests get a `WWW-Authenticate` challenge with the URL of the protected resource metadata and the required
/// scopes, also if a tool refuses the call for insufficient scope. The layer serves the metadata at their well-known
/// path, without a token. CORS preflight requests, which have no token, pass it; the service inside answers them.
///
/// # Examples
///
/// In axum, around all routes, including that of the metadata:
///
/// ```
/// # use bowline_auth::server::{JwtVerifier, ResourceServer};
/// # fn example() -> bowline::Result<()> {
/// let issuer = "https://id.example";
/// let guard = ResourceServer::new("https://files.example/mcp", issuer, JwtVerifier::discover(issuer)?)?
///     .name("Files")
///     .scopes(["files:read"])
///     .optional_scopes(["files:write"]);
/// // Router::new().route_service("/mcp", server.http()).layer(guard)
/// # drop(guard);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "wrap a service in the layer"]
pub struct ResourceServer {
    state: Arc<ResourceServerState>,
}

#[derive(Clone)]
struct ResourceServerState {
    resource: ResourceIdentifier,
    metadata_url: String,
    info: ResourceInfo,
    audiences: BTreeSet<String>,
    verifier: Arc<dyn TokenVerifier>,
    /// Whether the verifier alone decides which issuers are accepted.
    trusts_verifier: bool,
    /// The scopes that every token must have.
    scopes: BTreeSet<String>,
    /// The scopes implied by a scope.
    implied: BTreeMap<String, BTreeSet<String>>,
    leeway: Duration,
    /// The DPoP proofs that were used.
    marks: Arc<dyn Marks>,
    proof_quota: Arc<ProofQuota>,
    /// The path prefix that an outer router removed.
    path_prefix: String,
    nonces: Option<NonceIssuer>,
    /// Adds the token of an admitted request to its extensions.
    keep_token: Option<Arc<KeepTokenFn>>,
    clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

type KeepTokenFn = dyn Fn(&AccessToken, &mut Extensions) + Send + Sync;

impl ResourceServer {
    /// Creates a layer for the server at the URL `resource`, with tokens from `issuer` that `verifier` verifies.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`](bowline::Error::Misuse) if `resource` is not a valid resource identifier.
    pub fn new(
        resource: &str,
        issuer: impl Into<String>,
        verifier: impl TokenVerifier,
    ) -> Result<Self> {
        let resource = ResourceIdentifier::parse(resource)?;
        let state = ResourceServerState {
            metadata_url: resource.metadata_url(),
            info: ResourceInfo {
                issuers: vec![issuer.into()],
                ..ResourceInfo::default()
            },
            audiences: resource.audiences(),
            verifier: Arc::new(verifier),
            trusts_verifier: false,
            scopes: BTreeSet::new(),
            implied: BTreeMap::new(),
            leeway: LEEWAY,
            marks: Arc::new(MemoryMarks::new()),
            proof_quota: Arc::new(ProofQuota::new(MAX_PROOFS_PER_KEY)),
            path_prefix: String::new(),
            nonces: None,
            keep_token: None,
            clock: Arc::new(SystemTime::now),
            resource,
        };
        Ok(Self {
            state: Arc::new(state),
        })
    }

    /// Accepts tokens from this issuer too; the verifier must support it.
    pub fn additional_issuer(self, issuer: impl Into<String>) -> Self {
        self.with_state(|state| state.info.issuers.push(issuer.into()))
    }

    /// Accepts tokens from every issuer that the verifier accepts, not only from those listed: for
    /// [`Issuers::tenants`](super::Issuers::tenants). The metadata contain only the listed issuers.
    pub fn trust_verifier_issuers(self) -> Self {
        self.with_state(|state| state.trusts_verifier = true)
    }

    /// Accepts this `aud` too, for issuers that do not use the URL of the resource. No other server may have the same
    /// audience.
    pub fn additional_audience(self, audience: impl Into<String>) -> Self {
        self.with_state(|state| {
            state.audiences.insert(audience.into());
        })
    }

    /// Sets the scopes that every token must have. Tools can require further scopes.
    pub fn scopes<S: Into<String>>(self, scopes: impl IntoIterator<Item = S>) -> Self {
        let scopes: Vec<String> = scopes.into_iter().map(Into::into).collect();
        self.with_state(|state| {
            state.info.scopes.extend(scopes.iter().cloned());
            state.scopes.extend(scopes);
        })
    }

    /// Adds scopes to `scopes_supported` of the metadata, such as those that only some tools require.
    pub fn optional_scopes<S: Into<String>>(self, scopes: impl IntoIterator<Item = S>) -> Self {
        self.with_state(|state| state.info.scopes.extend(scopes.into_iter().map(Into::into)))
    }

    /// Makes `scope` imply these scopes, transitively.
    pub fn implies<S: Into<String>>(
        self,
        scope: impl Into<String>,
        others: impl IntoIterator<Item = S>,
    ) -> Self {
        let others = others.into_iter().map(Into::into);
        self.with_state(|state| {
            state
                .implied
                .entry(scope.into())
                .or_default()
                .extend(others)
        })
    }

    /// Sets the `resource_name` of the metadata, for consent pages.
    pub fn name(self, name: impl Into<String>) -> Self {
        self.with_state(|state| state.info.name = Some(name.into()))
    }

    /// Sets the `resource_documentation` URL of the metadata.
    pub fn documentation(self, url: impl Into<String>) -> Self {
        self.with_state(|state| state.info.documentation = Some(url.into()))
    }

    /// Accepts only tokens that are bound to a key (DPoP). By default unbound tokens are accepted too; a bound token
    /// always needs its proof.
    pub fn require_dpop(self) -> Self {
        self.with_state(|state| state.info.requires_dpop = true)
    }

    /// Requires DPoP proofs to contain a nonce from this server, valid for five minutes, so that proofs cannot be
    /// created in advance. Clients get a nonce with the challenge, and the next one with each response.
    ///
    /// The key authenticates nonces. It must be random, and shared by replicas.
    pub fn dpop_nonces(self, key: [u8; 32]) -> Self {
        self.with_state(|state| state.nonces = Some(NonceIssuer::new(key)))
    }

    /// Sets the marks of used DPoP proofs, each kept for about a minute and a half. Replicas must share them, or a proof
    /// can be replayed once at each: pass [`Cluster::marks`](bowline::cluster::Cluster::marks). Defaults to
    /// [`MemoryMarks`], which holds 100,000 proofs.
    ///
    /// If the store fails or is full, requests with proofs are refused with 503.
    pub fn marks(self, marks: impl Marks) -> Self {
        self.with_state(|state| state.marks = Arc::new(marks))
    }

    /// Limits the DPoP proofs that one key may use within three minutes; defaults to 10,000. Further requests get 429,
    /// so that one client cannot fill the store.
    pub fn max_proofs_per_key(self, max: usize) -> Self {
        self.with_state(|state| state.proof_quota = Arc::new(ProofQuota::new(max)))
    }

    /// Sets the path prefix that an outer router removes, such as `/mcp` in axum's `nest`. The `htu` of DPoP proofs has
    /// the full path.
    pub fn path_prefix(self, prefix: impl Into<String>) -> Self {
        self.with_state(|state| state.path_prefix = prefix.into())
    }

    /// Sets the tolerated clock difference to issuers; defaults to 30 s.
    pub fn leeway(self, leeway: Duration) -> Self {
        self.with_state(|state| state.leeway = leeway)
    }

    /// Reads the time from `clock` instead of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use std::time::SystemTime;
    /// use bowline_auth::server::ResourceServer;
    ///
    /// fn with_test_clock(guard: ResourceServer, now: Arc<Mutex<SystemTime>>) -> ResourceServer {
    ///     guard.clock(move || *now.lock().expect("no panic while it was locked"))
    /// }
    /// ```
    pub fn clock(self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.with_state(|state| state.clock = Arc::new(clock))
    }

    /// Adds what `keep` returns for the token of an admitted request to the extensions of the HTTP request. By default
    /// no handler sees the token.
    ///
    /// For a server that exchanges the token for another ([`TokenExchange`](crate::client::TokenExchange)), to call
    /// other servers on behalf of the user. To send them the token itself would let them use it here.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_auth::client::Secret;
    /// use bowline_auth::server::ResourceServer;
    ///
    /// fn with_token(guard: ResourceServer) -> ResourceServer {
    ///     // In a handler: `cx.extensions().get::<http::request::Parts>()?.extensions.get::<Secret>()`
    ///     guard.keep_token(|token| Secret::new(token.as_str()))
    /// }
    /// ```
    pub fn keep_token<T: Clone + Send + Sync + 'static>(
        self,
        keep: impl Fn(&AccessToken) -> T + Send + Sync + 'static,
    ) -> Self {
        self.with_state(|state| {
            let keep = move |token: &AccessToken, extensions: &mut Extensions| {
                extensions.insert(keep(token));
            };
            state.keep_token = Some(Arc::new(keep));
        })
    }

    /// Returns the path of the protected resource metadata, for routers that must route it to the layer.
    #[must_use]
    pub fn metadata_path(&self) -> String {
        self.state.resource.metadata_path()
    }

    fn with_state(mut self, change: impl FnOnce(&mut ResourceServerState)) -> Self {
        change(Arc::make_mut(&mut self.state));
        self
    }
}

impl<S> Layer<S> for ResourceServer {
    type Service = ResourceServerService<S>;

    fn layer(&self, inner: S) -> ResourceServerService<S> {
        ResourceServerService {
            inner,
            state: self.state.clone(),
        }
    }
}

/// A service with a [`ResourceServer`] around it.
///
/// # Cancel safety
///
/// Dropping the future of a call drops the check, or the call of the service inside.
#[derive(Clone)]
pub struct ResourceServerService<S> {
    inner: S,
    state: Arc<ResourceServerState>,
}

impl<S, B, R> Service<Request<B>> for ResourceServerService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Send + 'static,
    R: From<Bytes>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<R>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // `poll_ready` was called on this instance, so it is the one to call; a fresh clone may not be ready.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let state = self.state.clone();
        Box::pin(async move {
            let (mut head, body) = request.into_parts();
            if state.resource.is_metadata_path(head.uri.path()) {
                match head.method {
                    Method::GET | Method::HEAD => {
                        return Ok(state.resource.document(&state.info).map(R::from));
                    }
                    _ if is_preflight(&head) => return Ok(metadata::preflight().map(R::from)),
                    _ => {}
                }
            }
            if is_preflight(&head) {
                return inner.call(Request::from_parts(head, body)).await;
            }
            let scheme = match state.admit(&mut head).await {
                Ok(scheme) => scheme,
                Err(reason) => {
                    tracing::debug!(denied = ?reason, "refused a request");
                    return Ok(state.challenge_params().response(&reason).map(R::from));
                }
            };
            let mut response = inner.call(Request::from_parts(head, body)).await?;
            state.challenge(scheme, &mut response);
            Ok(response)
        })
    }
}

impl ResourceServerState {
    /// Checks the token of a request, and replaces it by its principal.
    async fn admit(&self, head: &mut Parts) -> Result<Scheme, DenialReason> {
        let read = Credential::read(&head.headers);
        let credential = read.map_err(|why| DenialReason::Malformed(why.to_owned()))?;
        let credential = credential.ok_or(DenialReason::NoToken)?;
        let scheme = credential.scheme;
        let claims = self.verifier.verify(&credential.token).await;
        let claims = claims.and_then(|claims| {
            claims.check(self.expected_claims())?;
            Ok(claims)
        });
        let claims = claims.map_err(|error| denial_reason(scheme, error))?;
        self.check_binding(head, &credential, &claims).await?;
        let scopes = self.expand_scopes(&claims.scopes);
        if !self.scopes.is_subset(&scopes) {
            return Err(DenialReason::ScopeMissing {
                scheme,
                required: self.scopes.clone(),
                missing: self.scopes.difference(&scopes).cloned().collect(),
            });
        }
        let principal = claims.principal(scopes);
        let principal: Principal = principal.map_err(|error| denial_reason(scheme, error))?;
        head.extensions.insert(self.with_expiry(principal, &claims));
        if let Some(keep) = &self.keep_token {
            keep(&credential.token, &mut head.extensions);
        }
        // A handler that passed the token on would let others use it here.
        head.headers.remove(AUTHORIZATION);
        head.headers.remove(DPOP);
        Ok(scheme)
    }

    /// Sets the expiry of the principal, so that streams end with the token.
    fn with_expiry(&self, principal: Principal, claims: &Claims) -> Principal {
        let Some(expires_at) = claims.expires_at else {
            return principal;
        };
        let left = expires_at.saturating_sub(self.now());
        let left = Duration::from_secs(left).saturating_add(self.leeway);
        let now = tokio::time::Instant::now().into_std();
        match now.checked_add(left) {
            Some(at) => principal.with_expiry(at),
            None => principal,
        }
    }

    /// Checks the DPoP proof of a token that is bound to a key.
    async fn check_binding(
        &self,
        head: &Parts,
        credential: &Credential,
        claims: &Claims,
    ) -> Result<(), DenialReason> {
        let invalid = |why: &str| DenialReason::InvalidToken(credential.scheme, why.to_owned());
        let thumbprint = match (&claims.binding, credential.scheme) {
            (None, Scheme::Bearer) if !self.info.requires_dpop => return Ok(()),
            (None, _) => return Err(invalid("the token is not bound to a key")),
            (Some(Binding::Other), _) => {
                return Err(invalid(
                    "the token has a `cnf` confirmation method that is not supported",
                ));
            }
            (Some(Binding::Key(_)), Scheme::Bearer) => {
                return Err(invalid(
                    "the token is bound to a key and requires a DPoP proof",
                ));
            }
            (Some(Binding::Key(thumbprint)), Scheme::Dpop) => thumbprint,
        };
        let now = self.now();
        let urls = self.resource.urls_of(&self.path_prefix, head.uri.path());
        let expected = ProofExpectation {
            method: &head.method,
            urls: &urls,
            token: &credential.token,
            thumbprint,
            now,
        };
        let proof =
            dpop::verify_proof(&head.headers, expected).map_err(DenialReason::InvalidProof)?;
        if let Some(nonces) = &self.nonces {
            let nonce = proof.nonce.as_deref().unwrap_or_default();
            if !nonces.is_fresh(nonce, now) {
                return Err(DenialReason::NonceRequired(nonces.issue(now)));
            }
        }
        if !self
            .proof_quota
            .count(thumbprint, now, dpop::PROOF_LIFETIME)
        {
            return Err(DenialReason::TooManyProofs(
                "too many proofs with one key".to_owned(),
            ));
        }
        let lifetime = Duration::from_secs(dpop::PROOF_LIFETIME);
        let setting = self
            .marks
            .set_if_absent(proof.mark.as_bytes(), b"", lifetime);
        let set = tokio::time::timeout(MARKS_TIMEOUT, setting).await;
        let set =
            set.unwrap_or_else(|_| Err(Unavailable::timed_out("the marks", MARKS_TIMEOUT).into()));
        match set {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(DenialReason::InvalidProof(
                "the proof was already used".to_owned(),
            )),
            Err(error) => {
                tracing::warn!(%error, "failed to record a DPoP proof");
                Err(DenialReason::Unavailable(
                    "failed to record the DPoP proof".to_owned(),
                ))
            }
        }
    }

    /// Adds the next nonce to a response, and the challenge if it was refused for insufficient scope.
    fn challenge<R>(&self, scheme: Scheme, response: &mut Response<R>) {
        if let (Scheme::Dpop, Some(nonces)) = (scheme, &self.nonces) {
            let nonce = HeaderValue::try_from(nonces.issue(self.now()));
            let nonce = nonce.expect("base64 is visible ASCII");
            response.headers_mut().insert(DPOP_NONCE, nonce);
        }
        let Some(insufficient) = response.extensions().get::<InsufficientScope>() else {
            return;
        };
        // Include the base scopes: a token with only the missing ones would be refused.
        let required = insufficient.required().iter().chain(&self.scopes);
        let reason = DenialReason::ScopeMissing {
            scheme,
            required: required.cloned().collect(),
            missing: insufficient.missing().to_vec(),
        };
        self.challenge_params()
            .challenge(&reason, response.headers_mut());
    }

    fn challenge_params(&self) -> ChallengeParams<'_> {
        ChallengeParams {
            metadata: Some(&self.metadata_url),
            scopes: &self.scopes,
            scheme: match self.info.requires_dpop {
                true => Scheme::Dpop,
                false => Scheme::Bearer,
            },
        }
    }

    /// Returns these scopes and all that they imply.
    fn expand_scopes(&self, scopes: &[String]) -> BTreeSet<String> {
        let mut expanded = BTreeSet::new();
        let mut open: Vec<&String> = scopes.iter().collect();
        while let Some(scope) = open.pop() {
            if expanded.insert(scope.clone()) {
                open.extend(self.implied.get(scope).into_iter().flatten());
            }
        }
        expanded
    }

    fn expected_claims(&self) -> ExpectedClaims<'_> {
        ExpectedClaims {
            audiences: &self.audiences,
            issuers: (!self.trusts_verifier).then_some(&*self.info.issuers),
            now: self.now(),
            leeway: self.leeway.as_secs(),
        }
    }

    fn now(&self) -> u64 {
        let now = (self.clock)().duration_since(UNIX_EPOCH);
        now.map_or(0, |since| since.as_secs())
    }
}

fn denial_reason(scheme: Scheme, error: VerifyError) -> DenialReason {
    match error {
        VerifyError::Invalid(why) => DenialReason::InvalidToken(scheme, why),
        VerifyError::Unavailable(why) => DenialReason::Unavailable(why),
    }
}

impl std::fmt::Debug for ResourceServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResourceServer")
            .field("resource", &self.state.resource.as_str())
            .field("issuers", &self.state.info.issuers)
            .finish_non_exhaustive()
    }
}

impl<S> std::fmt::Debug for ResourceServerService<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResourceServerService")
            .finish_non_exhaustive()
    }
}

const LEEWAY: Duration = Duration::from_secs(30);
const MARKS_TIMEOUT: Duration = Duration::from_secs(10);
/// How many proofs one key may use; [`MemoryMarks`] holds 100,000.
const MAX_PROOFS_PER_KEY: usize = 10_000;
