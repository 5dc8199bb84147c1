//! Encryption of `requestState`, which a client stores between the rounds of a multi round-trip request.
//!
//! The text is sealed ([`crate::seal`]) and bound to the digest of the request and to its principal.

use std::fmt;
use std::time::{Duration, SystemTime};

use bowline_core::input::Digest;
use bowline_types::{ErrorCode, RpcError};

use crate::exchange::Principal;
use crate::seal::{Binding, Purpose, SealError, Sealer};

/// The keys that encrypt the `requestState` of multi round-trip requests (XChaCha20-Poly1305).
///
/// By default each server has a random key, so a restarted server cannot continue earlier requests. Replicas that
/// continue each other's requests share a key. To rotate it, first add the new key to all replicas with
/// [`also_decrypt`](Self::also_decrypt), then encrypt with it, and remove the old key one
/// [`lifetime`](Self::lifetime) later.
///
/// # Examples
///
/// ```
/// use bowline::Server;
/// use bowline::server::RequestStateKeys;
///
/// # let (today, yesterday) = ([1; 32], [2; 32]);
/// let keys = RequestStateKeys::new(today).also_decrypt(yesterday);
/// let server = Server::new("booking", "1.0.0").request_state_keys(keys);
/// ```
#[derive(Clone)]
#[must_use = "keys do nothing until they are set with `Server::request_state_keys`"]
pub struct RequestStateKeys {
    sealer: Sealer,
    lifetime: Duration,
}

/// The request and principal that a state is bound to, as associated data of its encryption.
#[derive(Clone, Copy)]
pub(super) struct StateBinding<'a> {
    pub(super) request: Digest,
    pub(super) principal: &'a Principal,
}

/// Why a state cannot be decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StateError {
    #[error("`requestState` was not issued by this server for this request")]
    Foreign,
    #[error("`requestState` has expired; retry the request without it")]
    Expired,
}

impl RequestStateKeys {
    /// Creates a key set with one random key, which is generated when it is first needed.
    pub fn random() -> Self {
        Sealer::random().into()
    }

    /// Creates keys that encrypt and decrypt with this key, which should be random.
    pub fn new(key: [u8; 32]) -> Self {
        Sealer::new(key).into()
    }

    /// Adds a key for decryption only.
    pub fn also_decrypt(mut self, key: [u8; 32]) -> Self {
        self.sealer = self.sealer.also_decrypt(key);
        self
    }

    /// Sets how long a state is valid. Defaults to 1 h.
    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// Sets the clock. Defaults to [`SystemTime::now`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use bowline::server::RequestStateKeys;
    ///
    /// let offset = Duration::from_secs(7_200);
    /// let keys = RequestStateKeys::new([7; 32]).clock(move || SystemTime::now() + offset);
    /// ```
    pub fn clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.sealer = self.sealer.clock(clock);
        self
    }

    /// Replaces the keys, and keeps the lifetime.
    pub(super) fn set_sealer(&mut self, sealer: Sealer) {
        self.sealer = sealer;
    }

    pub(super) fn seal(
        &self,
        state: &[u8],
        binding: StateBinding<'_>,
    ) -> Result<String, SealError> {
        let bound = binding.to_bound();
        self.sealer
            .seal(Purpose::RequestState, bound, state, self.lifetime)
    }

    pub(super) fn open(
        &self,
        text: &str,
        binding: StateBinding<'_>,
    ) -> Result<Vec<u8>, StateError> {
        let bound = binding.to_bound();
        self.sealer
            .open(Purpose::RequestState, bound, text)
            .map_err(|error| match error {
                SealError::Expired => StateError::Expired,
                SealError::Foreign | SealError::Failed(_) => StateError::Foreign,
            })
    }

    /// Returns the lifetime of an encrypted state.
    pub(super) fn state_lifetime(&self) -> Duration {
        self.lifetime
    }
}

impl From<[u8; 32]> for RequestStateKeys {
    fn from(key: [u8; 32]) -> Self {
        Self::new(key)
    }
}

/// Seals request states with the keys of this sealer, which may have other uses, and its clock.
impl From<Sealer> for RequestStateKeys {
    fn from(sealer: Sealer) -> Self {
        Self {
            sealer,
            lifetime: DEFAULT_LIFETIME,
        }
    }
}

impl fmt::Debug for RequestStateKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestStateKeys")
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}

impl StateBinding<'_> {
    fn to_bound(self) -> Binding {
        Binding::new()
            .bytes(self.request.as_bytes())
            .principal(self.principal)
    }
}

impl From<StateError> for RpcError {
    fn from(error: StateError) -> Self {
        Self::new(ErrorCode::INVALID_PARAMS, error.to_string())
    }
}

const DEFAULT_LIFETIME: Duration = Duration::from_secs(60 * 60);

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::UNIX_EPOCH;

    use bowline_core::input::request_digest;
    use bowline_types::Json;

    use super::*;

    fn binding<'a>(params: &str, principal: &'a Principal) -> StateBinding<'a> {
        let params = Json::parse(params.to_owned()).unwrap();
        StateBinding {
            request: request_digest("tools/call", Some(&params)),
            principal,
        }
    }

    #[test]
    fn a_state_is_decrypted_unchanged() {
        let (keys, anonymous) = (RequestStateKeys::random(), Principal::anonymous());
        let binding = binding("{}", &anonymous);

        let text = keys.seal(b"the secret", binding).unwrap();

        assert_eq!(keys.open(&text, binding).unwrap(), b"the secret");
    }

    #[test]
    fn a_state_is_decrypted_only_for_the_same_request_and_principal() {
        let (ada, bob) = (Principal::named("ada"), Principal::named("bob"));
        let anonymous = Principal::anonymous();
        let keys = RequestStateKeys::new([1; 32]);
        let text = keys
            .seal(b"state", binding(r#"{"name":"t"}"#, &ada))
            .unwrap();

        for other in [
            binding(r#"{"name":"u"}"#, &ada),
            binding(r#"{"name":"t"}"#, &bob),
            binding(r#"{"name":"t"}"#, &anonymous),
        ] {
            assert_eq!(keys.open(&text, other), Err(StateError::Foreign));
        }

        assert!(keys.open(&text, binding(r#"{"name":"t"}"#, &ada)).is_ok());
    }

    #[test]
    fn a_state_expires_after_its_lifetime() {
        let seconds = Arc::new(AtomicU64::new(1000));
        let now = seconds.clone();
        let keys = RequestStateKeys::new([1; 32])
            .lifetime(Duration::from_secs(60))
            .clock(move || UNIX_EPOCH + Duration::from_secs(now.load(Ordering::Relaxed)));
        let anonymous = Principal::anonymous();
        let binding = binding("{}", &anonymous);
        let text = keys.seal(b"state", binding).unwrap();

        seconds.store(1059, Ordering::Relaxed);
        assert!(keys.open(&text, binding).is_ok());
        seconds.store(1060, Ordering::Relaxed);
        assert_eq!(keys.open(&text, binding), Err(StateError::Expired));
    }

    #[test]
    fn keys_are_not_in_the_debug_output() {
        let shown = format!("{:?}", RequestStateKeys::new([77; 32]));

        assert!(!shown.contains("77"), "{shown}");
    }
}
