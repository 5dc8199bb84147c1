//! [`Sealer`]: encrypts with one key, decrypts with several.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};

use super::Purpose;
use crate::random;

/// The keys that seal and open texts (XChaCha20-Poly1305).
///
/// A text that is sealed for the lifetime `t` opens until `t` has passed, in whole seconds. Clones share the key.
///
/// To rotate a key that replicas share, first add the new key to all replicas with
/// [`also_decrypt`](Self::also_decrypt), then encrypt with it, and remove the old key when every text that was sealed
/// with it has expired.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline::seal::{Purpose, SealError, Sealer};
///
/// # let (today, yesterday) = ([1; 32], [2; 32]);
/// let sealer = Sealer::new(today).also_decrypt(yesterday);
/// let text = sealer.seal(Purpose::Cursor, b"ada", b"page 2", Duration::from_secs(60))?;
///
/// assert_eq!(sealer.open(Purpose::Cursor, b"ada", &text)?, b"page 2");
/// assert_eq!(sealer.open(Purpose::Cursor, b"bob", &text), Err(SealError::Foreign));
/// # Ok::<(), SealError>(())
/// ```
#[derive(Clone)]
#[must_use = "a sealer does nothing until it seals or opens a text"]
pub struct Sealer {
    /// Empty until the random key is first needed.
    encryption_key: Arc<OnceLock<XChaCha20Poly1305>>,
    decryption_keys: Vec<XChaCha20Poly1305>,
    clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

/// Why a text cannot be sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The text was not sealed with these keys for this purpose and these bound bytes. Which of them differs cannot be
    /// known.
    #[error("the sealed text was not issued here for this use")]
    Foreign,
    /// The lifetime of the text is over.
    #[error("the sealed text has expired")]
    Expired,
    /// The text could not be sealed.
    #[error("{0}")]
    Failed(&'static str),
}

impl Sealer {
    /// Creates a sealer with one random key, which is generated when it is first needed.
    pub fn random() -> Self {
        Self {
            encryption_key: Arc::default(),
            decryption_keys: Vec::new(),
            clock: Arc::new(SystemTime::now),
        }
    }

    /// Creates a sealer that encrypts and decrypts with this key, which should be random.
    pub fn new(key: [u8; 32]) -> Self {
        let sealer = Self::random();
        // Never fails: the cell is new, and thus empty.
        let _ = sealer.encryption_key.set(cipher(key));
        sealer
    }

    /// Adds a key for decryption only.
    pub fn also_decrypt(mut self, key: [u8; 32]) -> Self {
        self.decryption_keys.push(cipher(key));
        self
    }

    /// Sets the clock. Defaults to [`SystemTime::now`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use bowline::seal::Sealer;
    ///
    /// let offset = Duration::from_secs(7_200);
    /// let sealer = Sealer::new([7; 32]).clock(move || SystemTime::now() + offset);
    /// ```
    pub fn clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Seals `content` as a text of ASCII letters, digits, `-` and `_`, bound to `bound`. Make `bound` with
    /// [`Binding`](super::Binding) if it has several parts.
    ///
    /// # Errors
    ///
    /// [`SealError::Failed`] if the operating system provides no randomness, or `content` is too long.
    pub fn seal(
        &self,
        purpose: Purpose,
        bound: impl AsRef<[u8]>,
        content: &[u8],
        lifetime: Duration,
    ) -> Result<String, SealError> {
        let sealed = self.seal_bytes(purpose, bound, content, lifetime)?;
        Ok(BASE64_URL_SAFE_NO_PAD.encode(sealed))
    }

    /// As [`seal`](Self::seal), without the encoding as text: for a message that may have any bytes.
    ///
    /// # Errors
    ///
    /// As [`seal`](Self::seal).
    pub fn seal_bytes(
        &self,
        purpose: Purpose,
        bound: impl AsRef<[u8]>,
        content: &[u8],
        lifetime: Duration,
    ) -> Result<Vec<u8>, SealError> {
        let nonce: [u8; NONCE] = random::bytes().map_err(SealError::Failed)?;
        let expiry = self.now().saturating_add(lifetime.as_secs());
        let plaintext = [&expiry.to_be_bytes(), content].concat();
        let payload = Payload {
            msg: &plaintext,
            aad: &associated_data(purpose, bound.as_ref()),
        };
        let ciphertext = self
            .encryption_key()?
            .encrypt(XNonce::from_slice(&nonce), payload)
            .map_err(|_| SealError::Failed("failed to encrypt the content of a sealed text"))?;
        Ok([&[VERSION], &nonce[..], &ciphertext].concat())
    }

    /// Returns the content of `text`.
    ///
    /// # Errors
    ///
    /// [`SealError::Foreign`] if it was not sealed with these keys, for this purpose and these bound bytes;
    /// [`SealError::Expired`] if it was, and its lifetime is over.
    pub fn open(
        &self,
        purpose: Purpose,
        bound: impl AsRef<[u8]>,
        text: &str,
    ) -> Result<Vec<u8>, SealError> {
        let sealed = BASE64_URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| SealError::Foreign)?;
        self.open_bytes(purpose, bound, &sealed)
    }

    /// As [`open`](Self::open), for what [`seal_bytes`](Self::seal_bytes) returned.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_bytes(
        &self,
        purpose: Purpose,
        bound: impl AsRef<[u8]>,
        sealed: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        let Some((&[VERSION], sealed)) = sealed.split_first_chunk() else {
            return Err(SealError::Foreign);
        };
        let (nonce, ciphertext) = sealed
            .split_first_chunk::<NONCE>()
            .ok_or(SealError::Foreign)?;
        let aad = associated_data(purpose, bound.as_ref());
        let keys = self.encryption_key.get().into_iter();
        let plaintext = keys
            .chain(&self.decryption_keys)
            .find_map(|key| {
                let payload = Payload {
                    msg: ciphertext,
                    aad: &aad,
                };
                key.decrypt(XNonce::from_slice(nonce), payload).ok()
            })
            .ok_or(SealError::Foreign)?;
        let (expiry, content) = plaintext.split_first_chunk().ok_or(SealError::Foreign)?;
        if self.now() >= u64::from_be_bytes(*expiry) {
            return Err(SealError::Expired);
        }
        Ok(content.to_vec())
    }

    /// Returns the length of the text for a content with this many bytes, rounded up. A longer text need not be opened.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::seal::Sealer;
    ///
    /// assert_eq!(Sealer::max_text_len(20), 92);
    /// ```
    #[must_use]
    pub const fn max_text_len(content: usize) -> usize {
        // Version, nonce, expiry and tag; base64 has four characters for three bytes.
        content
            .saturating_add(1 + NONCE + 8 + 16)
            .div_ceil(3)
            .saturating_mul(4)
    }

    fn encryption_key(&self) -> Result<&XChaCha20Poly1305, SealError> {
        if let Some(key) = self.encryption_key.get() {
            return Ok(key);
        }
        // Concurrent first calls may each generate a key; all of them use the one that the cell keeps.
        let key = cipher(random::bytes().map_err(SealError::Failed)?);
        Ok(self.encryption_key.get_or_init(|| key))
    }

    fn now(&self) -> u64 {
        let now = (self.clock)().duration_since(UNIX_EPOCH);
        now.map_or(0, |since| since.as_secs())
    }
}

impl From<[u8; 32]> for Sealer {
    fn from(key: [u8; 32]) -> Self {
        Self::new(key)
    }
}

/// Prints no key.
impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").finish_non_exhaustive()
    }
}

fn associated_data(purpose: Purpose, bound: &[u8]) -> Vec<u8> {
    // Two bytes of fixed length, then the rest: no two pairs of purpose and bound bytes have the same data.
    [&[VERSION, purpose.code()], bound].concat()
}

fn cipher(key: [u8; 32]) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(&key.into())
}

/// Version 1 had no purpose in its associated data.
const VERSION: u8 = 2;
const NONCE: usize = 24;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const PURPOSES: [Purpose; 5] = [
        Purpose::RequestState,
        Purpose::ParkedCall,
        Purpose::SessionId,
        Purpose::OwnerMessage,
        Purpose::Cursor,
    ];

    #[test]
    fn a_text_opens_with_its_content_and_is_not_readable() {
        let sealer = Sealer::random();

        let text = sealer
            .seal(Purpose::Cursor, b"ada", b"the secret", HOUR)
            .unwrap();

        let content = sealer.open(Purpose::Cursor, b"ada", &text);
        assert_eq!(content.unwrap(), b"the secret");
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&text).unwrap();
        assert!(!bytes.windows(6).any(|part| part == b"secret"));
        assert!(!bytes.windows(3).any(|part| part == b"ada"));
        let again = sealer.seal(Purpose::Cursor, b"ada", b"the secret", HOUR);
        assert_ne!(again.unwrap(), text);
        assert!(text.len() <= Sealer::max_text_len(b"the secret".len()));
    }

    #[test]
    fn a_text_does_not_open_for_another_purpose() {
        let sealer = Sealer::new([1; 32]);
        for sealed_for in PURPOSES {
            let text = sealer.seal(sealed_for, b"ada", b"content", HOUR).unwrap();

            for purpose in PURPOSES {
                let opened = sealer.open(purpose, b"ada", &text);
                let expected = (purpose == sealed_for)
                    .then(|| b"content".to_vec())
                    .ok_or(SealError::Foreign);
                assert_eq!(opened, expected, "{sealed_for:?} as {purpose:?}");
            }
        }
    }

    #[test]
    fn a_text_does_not_open_with_other_bound_bytes() {
        let sealer = Sealer::new([1; 32]);
        let text = sealer.seal(Purpose::Cursor, b"ada", b"", HOUR).unwrap();

        for other in [&b"bob"[..], b"", b"ad", b"ada\0"] {
            let opened = sealer.open(Purpose::Cursor, other, &text);
            assert_eq!(opened, Err(SealError::Foreign));
        }
        assert!(sealer.open(Purpose::Cursor, b"ada", &text).is_ok());
    }

    #[test]
    fn every_changed_byte_and_every_truncation_is_rejected() {
        let sealer = Sealer::new([1; 32]);
        let text = sealer.seal(Purpose::Cursor, b"", b"x", HOUR).unwrap();
        let sealed = BASE64_URL_SAFE_NO_PAD.decode(text).unwrap();
        let open = |text: &str| sealer.open(Purpose::Cursor, b"", text);

        for offset in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[offset] ^= 1;
            let changed = BASE64_URL_SAFE_NO_PAD.encode(changed);
            let cut = BASE64_URL_SAFE_NO_PAD.encode(&sealed[..offset]);

            assert_eq!(open(&changed), Err(SealError::Foreign));
            assert_eq!(open(&cut), Err(SealError::Foreign));
        }
        assert_eq!(open("no base64!"), Err(SealError::Foreign));
    }

    #[test]
    fn a_retired_key_decrypts_and_no_longer_encrypts() {
        let old = Sealer::new([1; 32]);
        let rotated = Sealer::new([2; 32]).also_decrypt([1; 32]);

        let before = old.seal(Purpose::Cursor, b"", b"a", HOUR).unwrap();
        let after = rotated.seal(Purpose::Cursor, b"", b"b", HOUR).unwrap();

        assert_eq!(rotated.open(Purpose::Cursor, b"", &before).unwrap(), b"a");
        assert_eq!(rotated.open(Purpose::Cursor, b"", &after).unwrap(), b"b");
        let opened = old.open(Purpose::Cursor, b"", &after);
        assert_eq!(opened, Err(SealError::Foreign));
    }

    #[test]
    fn each_text_expires_after_its_own_lifetime() {
        let seconds = Arc::new(AtomicU64::new(1000));
        let now = seconds.clone();
        let sealer = Sealer::new([1; 32])
            .clock(move || UNIX_EPOCH + Duration::from_secs(now.load(Ordering::Relaxed)));
        let minute = Duration::from_secs(60);
        let short = sealer.seal(Purpose::Cursor, b"", b"", minute).unwrap();
        let long = sealer.seal(Purpose::Cursor, b"", b"", HOUR).unwrap();
        let endless = sealer
            .seal(Purpose::Cursor, b"", b"", Duration::MAX)
            .unwrap();
        let open = |text: &str| sealer.open(Purpose::Cursor, b"", text);

        seconds.store(1059, Ordering::Relaxed);
        assert!(open(&short).is_ok());
        seconds.store(1060, Ordering::Relaxed);
        assert_eq!(open(&short), Err(SealError::Expired));
        assert!(open(&long).is_ok());
        seconds.store(u64::from(u32::MAX), Ordering::Relaxed);
        assert!(open(&endless).is_ok());
    }

    #[test]
    fn keys_are_not_in_the_debug_output() {
        let shown = format!("{:?}", Sealer::new([77; 32]));

        assert!(!shown.contains("77"), "{shown}");
    }
}
