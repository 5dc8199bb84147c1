//! Encryption of `requestState`, which a client stores between the rounds of a multi round-trip request.
//!
//! ```text
//! text            = base64url( version ‖ nonce ‖ ciphertext )
//! plaintext       = expiry in seconds ‖ state
//! associated data = version ‖ digest of the request ‖ principal
//! ```
//!
//! A modified text, another request, another principal and another key all fail the authentication of the ciphertext,
//! with the same error.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline_core::input::Digest;
use bowline_types::{ErrorCode, RpcError};
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};

use crate::exchange::Principal;
use crate::random;

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
    /// Empty until the random key is first needed.
    encryption_key: Arc<OnceLock<XChaCha20Poly1305>>,
    decryption_keys: Vec<XChaCha20Poly1305>,
    lifetime: Duration,
    clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
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
        Self {
            encryption_key: Arc::default(),
            decryption_keys: Vec::new(),
            lifetime: DEFAULT_LIFETIME,
            clock: Arc::new(SystemTime::now),
        }
    }

    /// Creates keys that encrypt and decrypt with this key, which should be random.
    pub fn new(key: [u8; 32]) -> Self {
        let keys = Self::random();
        // Never fails: the cell is new, and thus empty.
        let _ = keys.encryption_key.set(cipher(key));
        keys
    }

    /// Adds a key for decryption only.
    pub fn also_decrypt(mut self, key: [u8; 32]) -> Self {
        self.decryption_keys.push(cipher(key));
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
        self.clock = Arc::new(clock);
        self
    }

    pub(super) fn seal(
        &self,
        state: &[u8],
        binding: StateBinding<'_>,
    ) -> Result<String, &'static str> {
        let nonce: [u8; NONCE] = random::bytes()?;
        let expiry = self.now().saturating_add(self.lifetime.as_secs());
        let plaintext = [&expiry.to_be_bytes(), state].concat();
        let payload = Payload {
            msg: &plaintext,
            aad: &binding.to_bytes(),
        };
        let sealed = self
            .encryption_key()?
            .encrypt(XNonce::from_slice(&nonce), payload)
            .map_err(|_| "failed to encrypt the request state")?;
        Ok(BASE64_URL_SAFE_NO_PAD.encode([&[VERSION], &nonce[..], &sealed].concat()))
    }

    pub(super) fn open(
        &self,
        text: &str,
        binding: StateBinding<'_>,
    ) -> Result<Vec<u8>, StateError> {
        let sealed = BASE64_URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| StateError::Foreign)?;
        let Some((&[VERSION], sealed)) = sealed.split_first_chunk() else {
            return Err(StateError::Foreign);
        };
        let (nonce, ciphertext) = sealed
            .split_first_chunk::<NONCE>()
            .ok_or(StateError::Foreign)?;
        let binding = binding.to_bytes();
        let plaintext = self
            .encryption_key
            .get()
            .into_iter()
            .chain(&self.decryption_keys);
        let plaintext = plaintext
            .filter_map(|key| {
                let payload = Payload {
                    msg: ciphertext,
                    aad: &binding,
                };
                key.decrypt(XNonce::from_slice(nonce), payload).ok()
            })
            .next()
            .ok_or(StateError::Foreign)?;
        let (expiry, state) = plaintext.split_first_chunk().ok_or(StateError::Foreign)?;
        if self.now() >= u64::from_be_bytes(*expiry) {
            return Err(StateError::Expired);
        }
        Ok(state.to_vec())
    }

    /// Returns the lifetime of an encrypted state.
    pub(super) fn state_lifetime(&self) -> Duration {
        self.lifetime
    }

    fn encryption_key(&self) -> Result<&XChaCha20Poly1305, &'static str> {
        if let Some(key) = self.encryption_key.get() {
            return Ok(key);
        }
        // Concurrent first calls may each generate a key; all of them use the one that the cell keeps.
        let key = cipher(random::bytes()?);
        Ok(self.encryption_key.get_or_init(|| key))
    }

    fn now(&self) -> u64 {
        let now = (self.clock)().duration_since(UNIX_EPOCH);
        now.map_or(0, |since| since.as_secs())
    }
}

impl From<[u8; 32]> for RequestStateKeys {
    fn from(key: [u8; 32]) -> Self {
        Self::new(key)
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
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(self.request.as_bytes());
        if let Some(name) = self.principal.name() {
            bytes.push(1); // a named principal, even if the name is empty
            bytes.extend_from_slice(name.as_bytes());
        }
        bytes
    }
}

impl From<StateError> for RpcError {
    fn from(error: StateError) -> Self {
        Self::new(ErrorCode::INVALID_PARAMS, error.to_string())
    }
}

/// Returns the length of the text of a state with this many bytes, rounded up.
pub(super) fn max_text_len(state: usize) -> usize {
    // Version, nonce, expiry and tag; base64 has four characters for three bytes.
    (state + 1 + NONCE + 8 + 16).div_ceil(3) * 4
}

fn cipher(key: [u8; 32]) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(&key.into())
}

const VERSION: u8 = 1;
const NONCE: usize = 24;
const DEFAULT_LIFETIME: Duration = Duration::from_secs(60 * 60);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

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
    fn a_state_is_decrypted_unchanged_and_its_text_is_not_readable() {
        let (keys, anonymous) = (RequestStateKeys::random(), Principal::anonymous());
        let binding = binding("{}", &anonymous);

        let text = keys.seal(b"the secret", binding).unwrap();

        assert_eq!(keys.open(&text, binding).unwrap(), b"the secret");
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&text).unwrap();
        assert!(!bytes.windows(6).any(|part| part == b"secret"));
        assert_ne!(text, keys.seal(b"the secret", binding).unwrap());
        assert!(text.len() <= max_text_len(b"the secret".len()));
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
    fn every_changed_byte_and_every_truncation_is_rejected() {
        let (keys, anonymous) = (RequestStateKeys::new([1; 32]), Principal::anonymous());
        let binding = binding("{}", &anonymous);
        let sealed = keys.seal(b"state", binding).unwrap();
        let sealed = BASE64_URL_SAFE_NO_PAD.decode(sealed).unwrap();

        for offset in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[offset] ^= 1;
            let changed = BASE64_URL_SAFE_NO_PAD.encode(changed);
            let cut = BASE64_URL_SAFE_NO_PAD.encode(&sealed[..offset]);

            assert_eq!(keys.open(&changed, binding), Err(StateError::Foreign));
            assert_eq!(keys.open(&cut, binding), Err(StateError::Foreign));
        }
        assert_eq!(keys.open("no base64!", binding), Err(StateError::Foreign));
    }

    #[test]
    fn a_retired_key_decrypts_and_no_longer_encrypts() {
        let anonymous = Principal::anonymous();
        let binding = binding("{}", &anonymous);
        let old = RequestStateKeys::new([1; 32]);
        let rotated = RequestStateKeys::new([2; 32]).also_decrypt([1; 32]);

        let (before, after) = (
            old.seal(b"a", binding).unwrap(),
            rotated.seal(b"b", binding).unwrap(),
        );

        assert_eq!(rotated.open(&before, binding).unwrap(), b"a");
        assert_eq!(rotated.open(&after, binding).unwrap(), b"b");
        assert_eq!(old.open(&after, binding), Err(StateError::Foreign));
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
