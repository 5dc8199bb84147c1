//! DPoP nonces (RFC 9449, section 9), which prove that a proof was created recently.
//!
//! ```text
//! nonce = base64url( timestamp in seconds ‖ HMAC-SHA256 of that )
//! ```
//!
//! Nonces are stateless: the HMAC shows that the server issued them, the timestamp shows their age.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::hmac;

/// Issues and verifies nonces.
#[derive(Clone)]
pub(super) struct NonceIssuer {
    key: hmac::Key,
}

impl NonceIssuer {
    pub(super) fn new(key: [u8; 32]) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
        }
    }

    /// Issues a nonce.
    pub(super) fn issue(&self, now: u64) -> String {
        let timestamp = now.to_be_bytes();
        let tag = hmac::sign(&self.key, &timestamp);
        BASE64_URL_SAFE_NO_PAD.encode([&timestamp, tag.as_ref()].concat())
    }

    /// Returns whether a nonce was issued with this key and has not expired.
    pub(super) fn is_fresh(&self, nonce: &str, now: u64) -> bool {
        let decoded = BASE64_URL_SAFE_NO_PAD.decode(nonce).unwrap_or_default();
        let Some((timestamp, tag)) = decoded.split_first_chunk() else {
            return false;
        };
        let is_authentic = hmac::verify(&self.key, timestamp, tag).is_ok();
        is_authentic && now.saturating_sub(u64::from_be_bytes(*timestamp)) < NONCE_LIFETIME
    }
}

/// The lifetime of a nonce, in seconds.
const NONCE_LIFETIME: u64 = 5 * 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_valid_for_five_minutes_with_its_key() {
        let issuer = NonceIssuer::new([1; 32]);
        let nonce = issuer.issue(1000);

        assert!(issuer.is_fresh(&nonce, 1000));
        assert!(NonceIssuer::new([1; 32]).is_fresh(&nonce, 1299));
        assert!(!issuer.is_fresh(&nonce, 1300));
        assert!(!NonceIssuer::new([2; 32]).is_fresh(&nonce, 1000));
    }

    #[test]
    fn a_forged_nonce_is_refused() {
        let issuer = NonceIssuer::new([1; 32]);
        let nonce = issuer.issue(1000);

        for position in 0..nonce.len() {
            let mut changed = nonce.clone().into_bytes();
            changed[position] = if changed[position] == b'A' {
                b'B'
            } else {
                b'A'
            };
            let changed = String::from_utf8(changed).unwrap();

            assert!(!issuer.is_fresh(&changed, 1000), "{changed}");
            assert!(!issuer.is_fresh(&nonce[..position], 1000));
        }
    }
}
