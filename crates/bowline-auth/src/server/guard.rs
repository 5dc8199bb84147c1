//! The layer: who comes in, and who is sent away with directions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bowline::exchange::{BoxFuture, InsufficientScope, Principal};
use bowline::{Marked, Marks, MemoryMarks, Result};
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::challenge::{Challenges, Denied};
use super::claims::{Binding, Claims, Expected};
use super::credential::{Credential, Scheme};
use super::dpop::{self, DPOP, DPOP_NONCE, Subject};
use super::metadata::{About, Resource};
use super::nonce::Nonces;
use super::replay::ProofQuota;
use super::{Refused, TokenVerifier};

/// A layer that lets in whoever brings a token for this server. Cheap to clone; clones share what they know.
///
/// Each token is verified, must come from one of the issuers, be meant for this server and still be good; if
/// it is bound to a key, the request must prove that it has the key. Inside, its bearer is the request's
/// [`Principal`], and the token is gone: it is not for anybody else.
///
/// Whoever is sent away is told by `WWW-Authenticate` where to get a token and what it must allow; also when it
/// is a tool that needs more than the token allows. The document that says so is served by the layer, without a
/// token, at its well-known path. A layer that lets web pages in (CORS) stands outside of this one: what browsers
/// ask beforehand comes without a token.
///
/// # Examples
///
/// In axum, where the layer stands around all routes, its document included:
///
/// ```
/// # use bowline_auth::server::{JwtVerifier, ResourceServer};
/// # fn example() -> bowline::Result<()> {
/// let issuer = "https://id.example";
/// let guard = ResourceServer::new("https://files.example/mcp", issuer, JwtVerifier::discover(issuer)?)?
///     .name("Files")
///     .scopes(["files:read"])
///     .offered_scopes(["files:write"]);
/// // Router::new().route_service("/mcp", server.http()).layer(guard)
/// # drop(guard);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "it guards nothing until it is a layer around a service"]
pub struct ResourceServer {
    site: Arc<Site>,
}

#[derive(Clone)]
struct Site {
    resource: Resource,
    metadata_url: String,
    about: About,
    audiences: BTreeSet<String>,
    verifier: Arc<dyn TokenVerifier>,
    /// Whether the verifier knows better than the list of issuers whose tokens are good.
    trusts_verifier: bool,
    /// What every token must allow.
    scopes: BTreeSet<String>,
    /// What else a scope allows.
    implied: BTreeMap<String, BTreeSet<String>>,
    leeway: Duration,
    /// The proofs that were used.
    marks: Arc<dyn Marks>,
    proof_quota: Arc<ProofQuota>,
    /// What a router has removed from the path.
    path_prefix: String,
    nonces: Option<Nonces>,
    clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

impl ResourceServer {
    /// A server that clients reach at the URL `resource`, with tokens from `issuer` that `verifier` verifies.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`](bowline::Error::Misuse) if `resource` is no URL that can name a server.
    pub fn new(
        resource: &str,
        issuer: impl Into<String>,
        verifier: impl TokenVerifier,
    ) -> Result<Self> {
        let resource = Resource::parse(resource)?;
        let site = Site {
            metadata_url: resource.metadata_url(),
            about: About {
                issuers: vec![issuer.into()],
                ..About::default()
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
            clock: Arc::new(SystemTime::now),
            resource,
        };
        Ok(Self {
            site: Arc::new(site),
        })
    }

    /// Tokens may come from this issuer too; the verifier must know it.
    pub fn also_issued_by(self, issuer: impl Into<String>) -> Self {
        self.having(|site| site.about.issuers.push(issuer.into()))
    }

    /// Accepts tokens of every issuer that the verifier vouches for, and not only of those that are listed: for
    /// [`Issuers::tenants`](super::Issuers::tenants). The metadata document names those that are listed.
    pub fn any_issuer_of_verifier(self) -> Self {
        self.having(|site| site.trusts_verifier = true)
    }

    /// Tokens may be meant for this name too, for issuers that do not write the URL into `aud`. It must be
    /// a name that no other server has.
    pub fn also_named(self, audience: impl Into<String>) -> Self {
        self.having(|site| {
            site.audiences.insert(audience.into());
        })
    }

    /// Every token must allow all of these. What a tool needs besides is up to the tool.
    pub fn scopes<S: Into<String>>(self, scopes: impl IntoIterator<Item = S>) -> Self {
        let scopes: Vec<String> = scopes.into_iter().map(Into::into).collect();
        self.having(|site| {
            site.about.scopes.extend(scopes.iter().cloned());
            site.scopes.extend(scopes);
        })
    }

    /// Tells clients of scopes that some of what is offered here needs.
    pub fn offered_scopes<S: Into<String>>(self, scopes: impl IntoIterator<Item = S>) -> Self {
        self.having(|site| site.about.scopes.extend(scopes.into_iter().map(Into::into)))
    }

    /// A token that allows `scope` also allows all of these, and what they imply.
    pub fn implies<S: Into<String>>(
        self,
        scope: impl Into<String>,
        others: impl IntoIterator<Item = S>,
    ) -> Self {
        let others = others.into_iter().map(Into::into);
        self.having(|site| site.implied.entry(scope.into()).or_default().extend(others))
    }

    /// Names the server, for people who are asked whether a client may use it.
    pub fn name(self, name: impl Into<String>) -> Self {
        self.having(|site| site.about.name = Some(name.into()))
    }

    /// Says where to read more about using the server.
    pub fn documentation(self, url: impl Into<String>) -> Self {
        self.having(|site| site.about.documentation = Some(url.into()))
    }

    /// Takes only tokens that are bound to a key. Others are taken too, otherwise; but a token that is
    /// bound is never taken without its proof.
    pub fn require_dpop(self) -> Self {
        self.having(|site| site.about.requires_dpop = true)
    }

    /// Takes only proofs that contain a word which was given out here within the last five minutes, so that
    /// none can be made in advance. Clients get the word with a refusal, and the next one with each answer.
    ///
    /// The key, which should be random, is how words are known again; replicas share it.
    pub fn dpop_nonces(self, key: [u8; 32]) -> Self {
        self.having(|site| site.nonces = Some(Nonces::new(key)))
    }

    /// Remembers in `marks` which DPoP proofs were used, for about a minute and a half each. Replicas of one server share
    /// a store, or a proof counts once at each of them. [`MemoryMarks`] by default, with room for 100,000 proofs.
    ///
    /// If the store fails or is full, requests with proofs are refused with 503.
    pub fn marks(self, marks: impl Marks) -> Self {
        self.having(|site| site.marks = Arc::new(marks))
    }

    /// Sets how many DPoP proofs one key may use within three minutes; 10,000 by default. Further requests get 429, so
    /// that one client does not take the room of all.
    pub fn max_proofs_per_key(self, max: usize) -> Self {
        self.having(|site| site.proof_quota = Arc::new(ProofQuota::new(max)))
    }

    /// Says which part of the path a router has removed before the layer sees it, such as `/mcp` in axum's `nest`: DPoP
    /// proofs are for the whole path.
    pub fn path_prefix(self, prefix: impl Into<String>) -> Self {
        self.having(|site| site.path_prefix = prefix.into())
    }

    /// How far the clock of an issuer may be off; 30 s unless told otherwise.
    pub fn leeway(self, leeway: Duration) -> Self {
        self.having(|site| site.leeway = leeway)
    }

    /// Reads the time from `clock` rather than from the system.
    pub fn clock(self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.having(|site| site.clock = Arc::new(clock))
    }

    /// The path at which the layer serves the document: where to route to it what a router would not.
    #[must_use]
    pub fn metadata_path(&self) -> String {
        self.site.resource.metadata_path()
    }

    fn having(mut self, change: impl FnOnce(&mut Site)) -> Self {
        change(Arc::make_mut(&mut self.site));
        self
    }
}

impl<S> Layer<S> for ResourceServer {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded {
            inner,
            site: self.site.clone(),
        }
    }
}

/// A service with a [`ResourceServer`] around it.
///
/// # Cancel safety
///
/// Dropping the future of a call drops the check, or the call of the service inside.
#[derive(Clone)]
pub struct Guarded<S> {
    inner: S,
    site: Arc<Site>,
}

impl<S, B, R> Service<Request<B>> for Guarded<S>
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
        // The clone that was polled until it is ready is the one to call.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let site = self.site.clone();
        Box::pin(async move {
            let (mut head, body) = request.into_parts();
            if site.is_about_us(&head) {
                return Ok(site.resource.document(&site.about).map(R::from));
            }
            let scheme = match site.admit(&mut head).await {
                Ok(scheme) => scheme,
                Err(denied) => {
                    tracing::debug!(?denied, "a request was turned away");
                    return Ok(site.challenges().response(&denied).map(R::from));
                }
            };
            let mut response = inner.call(Request::from_parts(head, body)).await?;
            site.challenge(scheme, &mut response);
            Ok(response)
        })
    }
}

impl Site {
    fn is_about_us(&self, head: &Parts) -> bool {
        matches!(head.method, Method::GET | Method::HEAD)
            && self.resource.is_metadata_path(head.uri.path())
    }

    /// Lets a request in, on behalf of whoever its token says.
    async fn admit(&self, head: &mut Parts) -> Result<Scheme, Denied> {
        let read = Credential::read(&head.headers);
        let credential = read.map_err(|why| Denied::Malformed(why.to_owned()))?;
        let credential = credential.ok_or(Denied::NoToken)?;
        let scheme = credential.scheme;
        let claims = self.verifier.verify(&credential.token).await;
        let claims = claims.and_then(|claims| {
            claims.check(self.expected())?;
            Ok(claims)
        });
        let claims = claims.map_err(|refused| denied(scheme, refused))?;
        self.check_binding(head, &credential, &claims).await?;
        let scopes = self.expanded(&claims.scopes);
        if !self.scopes.is_subset(&scopes) {
            return Err(Denied::TooLittle(scheme, self.scopes.clone()));
        }
        let principal = claims.principal(scopes);
        let principal: Principal = principal.map_err(|refused| denied(scheme, refused))?;
        head.extensions.insert(self.with_expiry(principal, &claims));
        // The token is for this server; a handler that passed it on would let others use it here.
        head.headers.remove(AUTHORIZATION);
        head.headers.remove(DPOP);
        Ok(scheme)
    }

    /// Tells the server when the token ends, so that streams end with it.
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

    /// Checks that whoever brings a token that is bound to a key has the key.
    async fn check_binding(
        &self,
        head: &Parts,
        credential: &Credential,
        claims: &Claims,
    ) -> Result<(), Denied> {
        let bad = |why: &str| Denied::BadToken(credential.scheme, why.to_owned());
        let thumbprint = match (&claims.binding, credential.scheme) {
            (None, Scheme::Bearer) if !self.about.requires_dpop => return Ok(()),
            (None, _) => return Err(bad("the token is not bound to a key")),
            (Some(Binding::Other), _) => {
                return Err(bad(
                    "the token is bound to something that is not checked here",
                ));
            }
            (Some(Binding::Key(_)), Scheme::Bearer) => {
                return Err(bad("the token is bound to a key, and needs a proof of it"));
            }
            (Some(Binding::Key(thumbprint)), Scheme::Dpop) => thumbprint,
        };
        let now = self.now();
        let urls = self.resource.urls_of(&self.path_prefix, head.uri.path());
        let subject = Subject {
            method: &head.method,
            urls: &urls,
            token: &credential.token,
            thumbprint,
            now,
        };
        let proven = dpop::check(&head.headers, subject).map_err(Denied::BadProof)?;
        if let Some(nonces) = &self.nonces {
            let nonce = proven.nonce.as_deref().unwrap_or_default();
            if !nonces.is_fresh(nonce, now) {
                return Err(Denied::NoNonce(nonces.give(now)));
            }
        }
        if !self.proof_quota.count(thumbprint, now, dpop::USABLE_FOR) {
            return Err(Denied::TooMany("too many proofs with one key".to_owned()));
        }
        let lifetime = Duration::from_secs(dpop::USABLE_FOR);
        match self.marks.mark(&proven.mark, lifetime).await {
            Ok(Marked::First) => Ok(()),
            Ok(Marked::Again(_)) => Err(Denied::BadProof("the proof was used before".to_owned())),
            Err(error) => {
                tracing::warn!(%error, "failed to remember a proof");
                Err(Denied::Unavailable(
                    "proofs cannot be remembered".to_owned(),
                ))
            }
        }
    }

    /// Tells whoever may not do something what to ask for, and whoever must prove something with what word.
    fn challenge<R>(&self, scheme: Scheme, response: &mut Response<R>) {
        if let (Scheme::Dpop, Some(nonces)) = (scheme, &self.nonces) {
            let nonce = HeaderValue::try_from(nonces.give(self.now()));
            let nonce = nonce.expect("base64 is visible ASCII");
            response.headers_mut().insert(DPOP_NONCE, nonce);
        }
        let missing = response.extensions().get::<InsufficientScope>();
        let Some(missing) = missing.map(|missing| missing.required().iter().cloned()) else {
            return;
        };
        // All that a token for this needs, so that it is asked for once.
        let needed = missing.chain(self.scopes.iter().cloned()).collect();
        let denied = Denied::TooLittle(scheme, needed);
        self.challenges().challenge(&denied, response.headers_mut());
    }

    fn challenges(&self) -> Challenges<'_> {
        Challenges {
            metadata: &self.metadata_url,
            scopes: &self.scopes,
            scheme: match self.about.requires_dpop {
                true => Scheme::Dpop,
                false => Scheme::Bearer,
            },
        }
    }

    /// These scopes and all that they imply.
    fn expanded(&self, scopes: &[String]) -> BTreeSet<String> {
        let mut expanded = BTreeSet::new();
        let mut open: Vec<&String> = scopes.iter().collect();
        while let Some(scope) = open.pop() {
            if expanded.insert(scope.clone()) {
                open.extend(self.implied.get(scope).into_iter().flatten());
            }
        }
        expanded
    }

    fn expected(&self) -> Expected<'_> {
        Expected {
            audiences: &self.audiences,
            issuers: (!self.trusts_verifier).then_some(&*self.about.issuers),
            now: self.now(),
            leeway: self.leeway.as_secs(),
        }
    }

    fn now(&self) -> u64 {
        let now = (self.clock)().duration_since(UNIX_EPOCH);
        now.map_or(0, |since| since.as_secs())
    }
}

fn denied(scheme: Scheme, refused: Refused) -> Denied {
    match refused {
        Refused::Invalid(why) => Denied::BadToken(scheme, why),
        Refused::Unavailable(why) => Denied::Unavailable(why),
    }
}

impl std::fmt::Debug for ResourceServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResourceServer")
            .field("resource", &self.site.resource.as_str())
            .field("issuers", &self.site.about.issuers)
            .finish_non_exhaustive()
    }
}

impl<S> std::fmt::Debug for Guarded<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guarded").finish_non_exhaustive()
    }
}

const LEEWAY: Duration = Duration::from_secs(30);
/// How many proofs of one key are remembered, of 100,000 in all.
const MAX_PROOFS_PER_KEY: usize = 10_000;
