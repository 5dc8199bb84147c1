//! The layer: who comes in, and who is sent away with directions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bowline::Result;
use bowline::exchange::{BoxFuture, InsufficientScope, Principal};
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{Method, Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::challenge::{Challenges, Denied};
use super::claims::{Binding, Claims, Expected};
use super::credential::{Credential, Scheme};
use super::dpop::{self, DPOP, Subject};
use super::metadata::{About, Resource};
use super::replay::{Unused, UsedProofs};
use super::{Refused, TokenVerifier};

/// A layer that lets in whoever brings a token for this server. Cheap to clone; clones share what they know.
///
/// Each token is verified, must come from one of the issuers, be meant for this server and still be good; if
/// it is bound to a key, the request must prove that it has the key. Inside, its bearer is the request's
/// [`Principal`], and the token is gone: it is not for anybody else.
///
/// Whoever is sent away is told by `WWW-Authenticate` where to get a token and what it must allow; also when it
/// is a tool that needs more than the token allows. The document that says so is served by the layer, without a
/// token, at its well-known path.
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
    /// What every token must allow.
    scopes: BTreeSet<String>,
    /// What else a scope allows.
    implied: BTreeMap<String, BTreeSet<String>>,
    leeway: Duration,
    used_proofs: Arc<UsedProofs>,
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
            scopes: BTreeSet::new(),
            implied: BTreeMap::new(),
            leeway: LEEWAY,
            used_proofs: Arc::new(UsedProofs::new(MOST_PROOFS)),
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
        self.check_binding(head, &credential, &claims)?;
        let scopes = self.expanded(&claims.scopes);
        if !self.scopes.is_subset(&scopes) {
            return Err(Denied::TooLittle(scheme, self.scopes.clone()));
        }
        let principal = claims.principal(scopes);
        let principal: Principal = principal.map_err(|refused| denied(scheme, refused))?;
        head.extensions.insert(principal);
        // The token is for this server; a handler that passed it on would let others use it here.
        head.headers.remove(AUTHORIZATION);
        head.headers.remove(DPOP);
        Ok(scheme)
    }

    /// Checks that whoever brings a token that is bound to a key has the key.
    fn check_binding(
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
        // A client knows us by one of these; what a router made of the path does not matter.
        let own = self.resource.as_str().to_owned();
        let urls = [own, self.resource.sibling(head.uri.path())];
        let subject = Subject {
            method: &head.method,
            urls: &urls,
            token: &credential.token,
            thumbprint,
            now,
        };
        let proven = dpop::check(&head.headers, subject).map_err(Denied::BadProof)?;
        let used = self
            .used_proofs
            .use_up(proven.digest, now, dpop::USABLE_FOR);
        used.map_err(|why| match why {
            Unused::Replayed => Denied::BadProof("the proof was used before".to_owned()),
            Unused::Full => Denied::Unavailable("too many proofs are remembered".to_owned()),
        })
    }

    /// Tells whoever may not do something what to ask for.
    fn challenge<R>(&self, scheme: Scheme, response: &mut Response<R>) {
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
            issuers: &self.about.issuers,
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
/// How many proofs are remembered: some 10 MB.
const MOST_PROOFS: usize = 100_000;
