//! [`ServerState`]: the settings and the state of the server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};

use crate::expiring_map::ExpiringMap;
use crate::keys::SigningKeys;
use crate::register::ClientRecord;

pub(crate) struct ServerState {
    pub(crate) issuer: String,
    /// The resources that tokens can be issued for, with their scopes.
    pub(crate) resources: BTreeMap<String, BTreeSet<String>>,
    pub(crate) introspection_credentials: Option<(String, String)>,
    pub(crate) token_lifetime: Duration,
    pub(crate) clock: Box<dyn Fn() -> SystemTime + Send + Sync>,
    keys: Mutex<SigningKeys>,
    issued: Mutex<IssuedState>,
}

/// The clients, codes and tokens that were issued.
pub(crate) struct IssuedState {
    pub(crate) clients: ExpiringMap<ClientRecord>,
    /// Authorization requests that wait for the user's decision.
    pub(crate) consents: ExpiringMap<PendingConsent>,
    pub(crate) codes: ExpiringMap<AuthorizationCode>,
    pub(crate) access: ExpiringMap<AccessGrant>,
    pub(crate) refresh: ExpiringMap<RefreshToken>,
    pub(crate) proofs: ExpiringMap<()>,
}

/// The access that a user granted to a client.
#[derive(Clone, Debug)]
pub(crate) struct AccessGrant {
    pub(crate) client_id: String,
    pub(crate) user: String,
    pub(crate) resource: String,
    pub(crate) scopes: BTreeSet<String>,
    /// The thumbprint of the key that its tokens are bound to.
    pub(crate) key: Option<String>,
    /// Shared by all tokens from one code, which are revoked together.
    pub(crate) family: String,
}

/// An authorization request that waits for the user's decision.
#[derive(Clone, Debug)]
pub(crate) struct PendingConsent {
    pub(crate) client_id: String,
    pub(crate) redirect_uri: String,
    pub(crate) state: Option<String>,
    pub(crate) challenge: String,
    pub(crate) resource: String,
    pub(crate) scopes: BTreeSet<String>,
    /// The thumbprint of the DPoP key that the client announced.
    pub(crate) key: Option<String>,
}

/// An authorization code. It is kept after its use, to detect reuse.
#[derive(Clone, Debug)]
pub(crate) struct AuthorizationCode {
    pub(crate) grant: AccessGrant,
    pub(crate) redirect_uri: String,
    pub(crate) challenge: String,
    pub(crate) is_used: bool,
}

/// A refresh token. It is kept after its use, to detect reuse.
#[derive(Clone, Debug)]
pub(crate) struct RefreshToken {
    pub(crate) grant: AccessGrant,
    pub(crate) is_used: bool,
}

impl ServerState {
    pub(crate) fn new(issuer: String) -> Self {
        Self {
            issuer,
            resources: BTreeMap::new(),
            introspection_credentials: None,
            token_lifetime: Duration::from_secs(5 * 60),
            clock: Box::new(SystemTime::now),
            keys: Mutex::new(SigningKeys::new()),
            issued: Mutex::new(IssuedState {
                clients: ExpiringMap::new(1_000),
                consents: ExpiringMap::new(1_000),
                codes: ExpiringMap::new(1_000),
                access: ExpiringMap::new(10_000),
                refresh: ExpiringMap::new(10_000),
                proofs: ExpiringMap::new(10_000),
            }),
        }
    }

    pub(crate) fn keys(&self) -> MutexGuard<'_, SigningKeys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn issued(&self) -> MutexGuard<'_, IssuedState> {
        self.issued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time in seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        let now = (self.clock)().duration_since(UNIX_EPOCH);
        now.map_or(0, |since| since.as_secs())
    }
}

impl IssuedState {
    /// Revokes all tokens from one code.
    pub(crate) fn revoke_family(&mut self, family: &str) {
        self.access.retain(|grant| grant.family != family);
        self.refresh
            .retain(|refresh| refresh.grant.family != family);
    }
}

/// Returns 32 random bytes in base64url.
pub(crate) fn random() -> String {
    let mut bytes = [0; 32];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.expect("the operating system has randomness");
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}
