//! The state of a request, sealed for its way through the client's hands and back.
//!
//! ```text
//! text      = base64url( version ‖ nonce ‖ ciphertext )
//! plaintext = expiry in seconds ‖ state
//! bound, though not part of it: version, principal, digest of the request
//! ```
//!
//! Whoever changes it, brings it for another request or as somebody else, or made it with another key,
//! cannot be told apart, and all are told the same.

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

/// The keys that seal what a server must know when a request comes back.
///
/// By default each server has a random key of its own, so a restart forgets the requests that wait for an
/// answer. Replicas that take up each other's requests share a key. To change it without refusing anybody,
/// first let all replicas open the new key, then seal with it, and an hour later forget the old one.
///
/// # Examples
///
/// ```
/// use bowline::Server;
/// use bowline::server::StateKeys;
///
/// # let (today, yesterday) = ([1; 32], [2; 32]);
/// let keys = StateKeys::new(today).also_open(yesterday);
/// let server = Server::new("booking", "1.0.0").input_keys(keys);
/// ```
#[derive(Clone)]
#[must_use = "keys are used by `Server::input_keys`"]
pub struct StateKeys {
    /// Empty until a random key is needed.
    sealing: Arc<OnceLock<XChaCha20Poly1305>>,
    opening: Vec<XChaCha20Poly1305>,
    lifetime: Duration,
    clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

/// What a state belongs to. It is opened for nothing else.
#[derive(Clone, Copy)]
pub(super) struct Bound<'a> {
    pub(super) request: Digest,
    pub(super) principal: &'a Principal,
}

/// Why a state was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unopened {
    #[error("the request state is not one that this server made for this request")]
    Foreign,
    #[error("the request state has expired; start again without it")]
    Expired,
}

impl StateKeys {
    /// A key that nobody else has, made when it is first needed.
    pub fn random() -> Self {
        Self {
            sealing: Arc::default(),
            opening: Vec::new(),
            lifetime: DEFAULT_LIFETIME,
            clock: Arc::new(SystemTime::now),
        }
    }

    /// Seals with this key, which should be random, and opens what it has sealed.
    pub fn new(key: [u8; 32]) -> Self {
        let keys = Self::random();
        // The cell was made a line ago, so it is empty.
        let _ = keys.sealing.set(cipher(key));
        keys
    }

    /// Opens, too, what was sealed with this key.
    pub fn also_open(mut self, key: [u8; 32]) -> Self {
        self.opening.push(cipher(key));
        self
    }

    /// How long a state may be away. 1 h by default.
    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// Reads the time from `clock` rather than from the system.
    pub fn clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    pub(super) fn seal(&self, state: &[u8], bound: Bound<'_>) -> Result<String, &'static str> {
        let nonce: [u8; NONCE] = random::bytes()?;
        let expiry = self.now().saturating_add(self.lifetime.as_secs());
        let plaintext = [&expiry.to_be_bytes(), state].concat();
        let payload = Payload {
            msg: &plaintext,
            aad: &bound.to_bytes(),
        };
        let sealed = self
            .sealing_key()?
            .encrypt(XNonce::from_slice(&nonce), payload)
            .map_err(|_| "the state is too long to be sealed")?;
        Ok(BASE64_URL_SAFE_NO_PAD.encode([&[VERSION], &nonce[..], &sealed].concat()))
    }

    pub(super) fn open(&self, text: &str, bound: Bound<'_>) -> Result<Vec<u8>, Unopened> {
        let sealed = BASE64_URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| Unopened::Foreign)?;
        let Some((&[VERSION], sealed)) = sealed.split_first_chunk() else {
            return Err(Unopened::Foreign);
        };
        let (nonce, ciphertext) = sealed
            .split_first_chunk::<NONCE>()
            .ok_or(Unopened::Foreign)?;
        let bound = bound.to_bytes();
        let plaintext = self.sealing.get().into_iter().chain(&self.opening);
        let plaintext = plaintext
            .filter_map(|key| {
                let payload = Payload {
                    msg: ciphertext,
                    aad: &bound,
                };
                key.decrypt(XNonce::from_slice(nonce), payload).ok()
            })
            .next()
            .ok_or(Unopened::Foreign)?;
        let (expiry, state) = plaintext.split_first_chunk().ok_or(Unopened::Foreign)?;
        if self.now() >= u64::from_be_bytes(*expiry) {
            return Err(Unopened::Expired);
        }
        Ok(state.to_vec())
    }

    /// Returns the lifetime of a sealed state.
    pub(super) fn state_lifetime(&self) -> Duration {
        self.lifetime
    }

    fn sealing_key(&self) -> Result<&XChaCha20Poly1305, &'static str> {
        if let Some(key) = self.sealing.get() {
            return Ok(key);
        }
        let key = cipher(random::bytes()?);
        Ok(self.sealing.get_or_init(|| key))
    }

    fn now(&self) -> u64 {
        let now = (self.clock)().duration_since(UNIX_EPOCH);
        now.map_or(0, |since| since.as_secs())
    }
}

impl From<[u8; 32]> for StateKeys {
    fn from(key: [u8; 32]) -> Self {
        Self::new(key)
    }
}

impl fmt::Debug for StateKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateKeys")
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}

impl Bound<'_> {
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(self.request.as_bytes());
        if let Some(name) = self.principal.name() {
            bytes.push(1);
            bytes.extend_from_slice(name.as_bytes());
        }
        bytes
    }
}

impl From<Unopened> for RpcError {
    fn from(unopened: Unopened) -> Self {
        Self::new(ErrorCode::INVALID_PARAMS, unopened.to_string())
    }
}

/// How long the text of a sealed state is, at most, if the state itself has this length.
pub(super) fn longest_text(state: usize) -> usize {
    // Version, nonce, expiry and tag; then four characters for three bytes.
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

    fn bound<'a>(params: &str, principal: &'a Principal) -> Bound<'a> {
        let params = Json::parse(params.to_owned()).unwrap();
        Bound {
            request: request_digest("tools/call", Some(&params)),
            principal,
        }
    }

    #[test]
    fn a_state_comes_back_as_it_left_and_cannot_be_read_on_the_way() {
        let (keys, nobody) = (StateKeys::random(), Principal::anonymous());
        let bound = bound("{}", &nobody);

        let text = keys.seal(b"the secret", bound).unwrap();

        assert_eq!(keys.open(&text, bound).unwrap(), b"the secret");
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&text).unwrap();
        assert!(!bytes.windows(6).any(|part| part == b"secret"));
        assert_ne!(text, keys.seal(b"the secret", bound).unwrap());
        assert!(text.len() <= longest_text(b"the secret".len()));
    }

    #[test]
    fn a_state_is_opened_for_the_same_request_of_the_same_principal_only() {
        let (ada, bob) = (Principal::named("ada"), Principal::named("bob"));
        let nobody = Principal::anonymous();
        let keys = StateKeys::new([1; 32]);
        let text = keys.seal(b"state", bound(r#"{"name":"t"}"#, &ada)).unwrap();

        for other in [
            bound(r#"{"name":"u"}"#, &ada),
            bound(r#"{"name":"t"}"#, &bob),
            bound(r#"{"name":"t"}"#, &nobody),
        ] {
            assert_eq!(keys.open(&text, other), Err(Unopened::Foreign));
        }

        assert!(keys.open(&text, bound(r#"{"name":"t"}"#, &ada)).is_ok());
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let (keys, nobody) = (StateKeys::new([1; 32]), Principal::anonymous());
        let bound = bound("{}", &nobody);
        let sealed = keys.seal(b"state", bound).unwrap();
        let sealed = BASE64_URL_SAFE_NO_PAD.decode(sealed).unwrap();

        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            let changed = BASE64_URL_SAFE_NO_PAD.encode(changed);
            let cut = BASE64_URL_SAFE_NO_PAD.encode(&sealed[..place]);

            assert_eq!(keys.open(&changed, bound), Err(Unopened::Foreign));
            assert_eq!(keys.open(&cut, bound), Err(Unopened::Foreign));
        }
        assert_eq!(keys.open("no base64!", bound), Err(Unopened::Foreign));
    }

    #[test]
    fn a_retired_key_still_opens_and_no_longer_seals() {
        let nobody = Principal::anonymous();
        let bound = bound("{}", &nobody);
        let old = StateKeys::new([1; 32]);
        let rotated = StateKeys::new([2; 32]).also_open([1; 32]);

        let (before, after) = (
            old.seal(b"a", bound).unwrap(),
            rotated.seal(b"b", bound).unwrap(),
        );

        assert_eq!(rotated.open(&before, bound).unwrap(), b"a");
        assert_eq!(rotated.open(&after, bound).unwrap(), b"b");
        assert_eq!(old.open(&after, bound), Err(Unopened::Foreign));
    }

    #[test]
    fn a_state_expires_after_its_lifetime() {
        let seconds = Arc::new(AtomicU64::new(1000));
        let now = seconds.clone();
        let keys = StateKeys::new([1; 32])
            .lifetime(Duration::from_secs(60))
            .clock(move || UNIX_EPOCH + Duration::from_secs(now.load(Ordering::Relaxed)));
        let nobody = Principal::anonymous();
        let bound = bound("{}", &nobody);
        let text = keys.seal(b"state", bound).unwrap();

        seconds.store(1059, Ordering::Relaxed);
        assert!(keys.open(&text, bound).is_ok());
        seconds.store(1060, Ordering::Relaxed);
        assert_eq!(keys.open(&text, bound), Err(Unopened::Expired));
    }

    #[test]
    fn keys_are_not_shown() {
        let shown = format!("{:?}", StateKeys::new([77; 32]));

        assert!(!shown.contains("77"), "{shown}");
    }
}
