//! [`Issuers`]: dispatches tokens to one verifier per issuer, including tenants.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bowline::exchange::BoxFuture;
use serde::Deserialize;

use super::jws::UnverifiedJws;
use super::{AccessToken, Claims, TokenVerifier, VerifyError};
use crate::sync::Mutex;

/// Verifies tokens of several issuers, each with its own verifier: an issuer cannot sign tokens for another, and a slow
/// or unavailable issuer affects only its own tokens.
///
/// The `iss` of an unverified JWT only selects the verifier.
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
/// let guard = ResourceServer::new("https://files.example/mcp", staff, verifier)?.additional_issuer(partners);
/// # drop(guard);
/// # Ok(()) }
/// ```
#[derive(Default)]
#[must_use = "pass it to a `ResourceServer`"]
pub struct Issuers {
    known: BTreeMap<String, Arc<dyn TokenVerifier>>,
    opaque: Option<Arc<dyn TokenVerifier>>,
    resolve: Option<Box<ResolveTenant>>,
    tenants: Mutex<TenantCache>,
}

type ResolveTenant = dyn Fn(&str) -> Option<Arc<dyn TokenVerifier>> + Send + Sync;

/// The verifiers of recently resolved tenants.
#[derive(Default)]
struct TenantCache {
    known: BTreeMap<String, Arc<dyn TokenVerifier>>,
    order: VecDeque<String>,
}

impl Issuers {
    /// Creates a verifier without issuers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Verifies the JWTs of `issuer` with `verifier`.
    pub fn issuer(mut self, issuer: impl Into<String>, verifier: impl TokenVerifier) -> Self {
        self.known.insert(issuer.into(), Arc::new(verifier));
        self
    }

    /// Verifies tokens that are not JWTs with `verifier`.
    pub fn opaque(mut self, verifier: impl TokenVerifier) -> Self {
        self.opaque = Some(Arc::new(verifier));
        self
    }

    /// Resolves the verifiers of other issuers, such as tenants. The last 1,000 are cached, with the keys that they
    /// fetched.
    ///
    /// `resolve` receives an unverified issuer, which can be chosen by an attacker. It must compare the whole string
    /// with the trusted issuers and return `None` for others, because the returned verifier fetches keys from it. The
    /// server must [accept the issuers of its verifier](super::ResourceServer::trust_verifier_issuers).
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
        if let Some(verifier) = self.tenants.lock().known.get(issuer) {
            return Some(verifier.clone());
        }
        // User code, so the lock is not held.
        let resolved = resolve(issuer)?;
        let mut tenants = self.tenants.lock();
        if let Some(verifier) = tenants.known.get(issuer) {
            return Some(verifier.clone()); // resolved concurrently; it may have keys already
        }
        if tenants.order.len() >= MAX_TENANTS
            && let Some(oldest) = tenants.order.pop_front()
        {
            tenants.known.remove(&oldest);
        }
        tenants.order.push_back(issuer.to_owned());
        tenants.known.insert(issuer.to_owned(), resolved.clone());
        Some(resolved)
    }
}

impl TokenVerifier for Issuers {
    fn verify<'a>(&'a self, token: &'a AccessToken) -> BoxFuture<'a, Result<Claims, VerifyError>> {
        Box::pin(async move {
            let Some(issuer) = claimed_issuer(token) else {
                let unknown = || VerifyError::invalid("opaque tokens are not accepted");
                return self
                    .opaque
                    .as_ref()
                    .ok_or_else(unknown)?
                    .verify(token)
                    .await;
            };
            let foreign = || VerifyError::invalid("the token is from another issuer");
            let verifier = self.find(&issuer).ok_or_else(foreign)?;
            let claims = verifier.verify(token).await?;
            // Defends against a verifier that accepts several issuers.
            match claims.issuer.as_ref() == Some(&issuer) {
                true => Ok(claims),
                false => Err(foreign()),
            }
        })
    }
}

/// Returns the unverified `iss` of a JWT.
fn claimed_issuer(token: &AccessToken) -> Option<String> {
    #[derive(Deserialize)]
    struct IssuerClaim {
        iss: String,
    }

    let token = UnverifiedJws::parse(token.as_str()).ok()?;
    let claimed: IssuerClaim = serde_json::from_slice(token.unverified_payload()).ok()?;
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
