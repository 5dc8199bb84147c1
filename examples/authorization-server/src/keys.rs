//! The keys that sign tokens, and what the world may know of them.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

use crate::shared::random;

/// The key that signs, and those that did.
pub(crate) struct Keys {
    signing: Key,
    retired: Vec<Value>,
}

struct Key {
    pair: EcdsaKeyPair,
    /// The public part, as it is published.
    jwk: Value,
}

impl Keys {
    pub(crate) fn new() -> Self {
        Self {
            signing: Key::new(),
            retired: Vec::new(),
        }
    }

    pub(crate) fn rotate(&mut self) {
        let old = std::mem::replace(&mut self.signing, Key::new());
        self.retired.push(old.jwk);
    }

    pub(crate) fn retire(&mut self) {
        self.retired.clear();
    }

    /// The set that others verify with.
    pub(crate) fn published(&self) -> Value {
        let keys: Vec<_> = std::iter::once(&self.signing.jwk)
            .chain(&self.retired)
            .collect();
        json!({"keys": keys})
    }

    /// An access token with these claims.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": "ES256", "typ": "at+jwt", "kid": self.signing.jwk["kid"]});
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(&header), part(claims));
        let pair = &self.signing.pair;
        let signature = pair.sign(&SystemRandom::new(), message.as_bytes());
        let signature = signature.expect("the operating system has randomness");
        format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }
}

impl Key {
    fn new() -> Self {
        let (random_source, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let made = EcdsaKeyPair::generate_pkcs8(algorithm, &random_source);
        let pkcs8 = made.expect("the operating system has randomness");
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random_source);
        let pair = pair.expect("ring reads what it wrote");
        // An uncompressed point: a byte that says so, then both coordinates.
        let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
        let text = |coordinate: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(coordinate);
        let jwk = json!({"kty": "EC", "crv": "P-256", "x": text(x), "y": text(y),
            "kid": random(), "alg": "ES256", "use": "sig"});
        Self { pair, jwk }
    }
}
