//! Tokens of several issuers, and of issuers with many tenants.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bowline::exchange::BoxFuture;
use serde::Deserialize;

use super::jws::Unchecked;
use super::{AccessToken, Claims, Refused, TokenVerifier};

/// Verifies tokens of several issuers, each by a verifier of its own: an issuer never vouches for the tokens of
/// another, and one that is slow or down costs only its own tokens.
///
/// Which issuer a JWT is from is read from the token before it is verified, and only decides who verifies it.
///
/// # Examples
///
/// ```
/// use bowline_auth::server::{Introspection, Issuers, JwtVerifier, ResourceServer};
///
/// # fn example() -> bowline::Result<()> {
/// let (staff, partners) = ("https://id.example", "https://login.partner.example");
/// let verifier = Issuers::new()
///     .issuer(staff, JwtVerifier::discover(staff)?)
///     .issuer(partners, JwtVerifier::discover(partners)?);
/// let guard = ResourceServer::new("https://files.example/mcp", staff, verifier)?.also_issued_by(partners);
/// # drop(guard);
/// # Ok(()) }
/// ```
#[derive(Default)]
#[must_use = "it is given to a `ResourceServer`"]
pub struct Issuers {
    known: BTreeMap<String, Arc<dyn TokenVerifier>>,
    opaque: Option<Arc<dyn TokenVerifier>>,
    resolve: Option<Box<Resolve>>,
    tenants: Mutex<Tenants>,
}

type Resolve = dyn Fn(&str) -> Option<Arc<dyn TokenVerifier>> + Send + Sync;

/// The verifiers of tenants that were used lately.
#[derive(Default)]
struct Tenants {
    known: BTreeMap<String, Arc<dyn TokenVerifier>>,
    order: VecDeque<String>,
}

impl Issuers {
    /// Creates a verifier that knows no issuer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Verifies the JWTs of `issuer` by `verifier`.
    pub fn issuer(mut self, issuer: impl Into<String>, verifier: impl TokenVerifier) -> Self {
        self.known.insert(issuer.into(), Arc::new(verifier));
        self
    }

    /// Verifies tokens that are no JWTs by `verifier`.
    pub fn opaque(mut self, verifier: impl TokenVerifier) -> Self {
        self.opaque = Some(Arc::new(verifier));
        self
    }

    /// Asks `resolve` for a verifier of an issuer that is not known, such as one of many tenants. The last 1,000 that it
    /// returned are kept, with the keys that they fetched.
    ///
    /// `resolve` is given an issuer that anybody may have written into a token. It compares all of it with what it
    /// trusts, and returns `None` otherwise: keys are fetched from wherever the verifier that it returns says. The
    /// server has to [accept the issuers of its verifier](super::ResourceServer::any_issuer_of_verifier).
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_auth::server::{Issuers, JwtVerifier};
    ///
    /// let tenants = ["contoso", "fabrikam"];
    /// let verifier = Issuers::new().tenants(move |issuer| {
    ///     let tenant = issuer.strip_prefix("https://id.example/")?.strip_suffix("/v2.0")?;
    ///     tenants.contains(&tenant).then(|| JwtVerifier::discover(issuer).ok())?
    /// });
    /// ```
    pub fn tenants<V: TokenVerifier>(
        mut self,
        resolve: impl Fn(&str) -> Option<V> + Send + Sync + 'static,
    ) -> Self {
        self.resolve = Some(Box::new(move |issuer| {
            let verifier: Arc<dyn TokenVerifier> = Arc::new(resolve(issuer)?);
            Some(verifier)
        }));
        self
    }

    fn find(&self, issuer: &str) -> Option<Arc<dyn TokenVerifier>> {
        if let Some(verifier) = self.known.get(issuer) {
            return Some(verifier.clone());
        }
        let resolve = self.resolve.as_ref()?;
        let lock = || self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(verifier) = lock().known.get(issuer) {
            return Some(verifier.clone());
        }
        // Somebody else's code does not run under the lock.
        let made = resolve(issuer)?;
        let mut tenants = lock();
        if let Some(verifier) = tenants.known.get(issuer) {
            return Some(verifier.clone()); // made by another meanwhile; it may have keys already
        }
        if tenants.order.len() >= MAX_TENANTS
            && let Some(oldest) = tenants.order.pop_front()
        {
            tenants.known.remove(&oldest);
        }
        tenants.order.push_back(issuer.to_owned());
        tenants.known.insert(issuer.to_owned(), made.clone());
        Some(made)
    }
}

impl TokenVerifier for Issuers {
    fn verify<'a>(&'a self, token: &'a AccessToken) -> BoxFuture<'a, Result<Claims, Refused>> {
        Box::pin(async move {
            let Some(issuer) = claimed_issuer(token) else {
                let unknown = || Refused::invalid("the token is none that is known here");
                return self
                    .opaque
                    .as_ref()
                    .ok_or_else(unknown)?
                    .verify(token)
                    .await;
            };
            let foreign = || Refused::invalid("the token is from another issuer");
            let verifier = self.find(&issuer).ok_or_else(foreign)?;
            let claims = verifier.verify(token).await?;
            // A verifier that knows several issuers must not be reached by the name of another.
            match claims.issuer.as_ref() == Some(&issuer) {
                true => Ok(claims),
                false => Err(foreign()),
            }
        })
    }
}

/// The issuer that a JWT names. Nobody has checked it.
fn claimed_issuer(token: &AccessToken) -> Option<String> {
    #[derive(Deserialize)]
    struct Claimed {
        iss: String,
    }

    let token = Unchecked::parse(token.as_str()).ok()?;
    let claimed: Claimed = serde_json::from_slice(token.unchecked_payload()).ok()?;
    Some(claimed.iss)
}

impl std::fmt::Debug for Issuers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issuers")
            .field("known", &self.known.keys())
            .finish_non_exhaustive()
    }
}

const MAX_TENANTS: usize = 1000;
