//! Words that a proof must contain, so that it cannot have been made long before: RFC 9449, section 9.
//!
//! ```text
//! nonce = base64url( the second in which it was given ‖ HMAC-SHA256 of that )
//! ```
//!
//! Nothing is remembered: whoever has the key knows which words are its own, and how old they are.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::hmac;

/// Gives out words, and knows its own.
#[derive(Clone)]
pub(super) struct Nonces {
    key: hmac::Key,
}

impl Nonces {
    pub(super) fn new(key: [u8; 32]) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
        }
    }

    /// A word for proofs that are made from now on.
    pub(super) fn give(&self, now: u64) -> String {
        let second = now.to_be_bytes();
        let tag = hmac::sign(&self.key, &second);
        BASE64_URL_SAFE_NO_PAD.encode([&second, tag.as_ref()].concat())
    }

    /// Whether a word was given out here, and not long ago.
    pub(super) fn is_fresh(&self, nonce: &str, now: u64) -> bool {
        let decoded = BASE64_URL_SAFE_NO_PAD.decode(nonce).unwrap_or_default();
        let Some((second, tag)) = decoded.split_first_chunk() else {
            return false;
        };
        let is_ours = hmac::verify(&self.key, second, tag).is_ok();
        is_ours && now.saturating_sub(u64::from_be_bytes(*second)) < FRESH_FOR
    }
}

/// For how many seconds proofs may contain the same word.
const FRESH_FOR: u64 = 5 * 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_good_for_five_minutes_with_whoever_has_the_key() {
        let nonces = Nonces::new([1; 32]);
        let nonce = nonces.give(1000);

        assert!(nonces.is_fresh(&nonce, 1000));
        assert!(Nonces::new([1; 32]).is_fresh(&nonce, 1299));
        assert!(!nonces.is_fresh(&nonce, 1300));
        assert!(!Nonces::new([2; 32]).is_fresh(&nonce, 1000));
    }

    #[test]
    fn words_of_others_are_not_ours() {
        let nonces = Nonces::new([1; 32]);
        let nonce = nonces.give(1000);

        for place in 0..nonce.len() {
            let mut changed = nonce.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();

            assert!(!nonces.is_fresh(&changed, 1000), "{changed}");
            assert!(!nonces.is_fresh(&nonce[..place], 1000));
        }
    }
}
