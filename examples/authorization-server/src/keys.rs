//! The signing key, and the published JWK set.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

use crate::state::random;

/// The current signing key, and the public keys of its predecessors.
pub(crate) struct SigningKeys {
    current: CurrentKey,
    old: Vec<Value>,
}

struct CurrentKey {
    pair: EcdsaKeyPair,
    /// The public key in JWK format.
    jwk: Value,
}

impl SigningKeys {
    pub(crate) fn new() -> Self {
        Self {
            current: CurrentKey::new(),
            old: Vec::new(),
        }
    }

    pub(crate) fn rotate(&mut self) {
        let previous = std::mem::replace(&mut self.current, CurrentKey::new());
        self.old.push(previous.jwk);
    }

    pub(crate) fn remove_old(&mut self) {
        self.old.clear();
    }

    /// Returns the JWK set.
    pub(crate) fn jwk_set(&self) -> Value {
        let keys: Vec<_> = std::iter::once(&self.current.jwk)
            .chain(&self.old)
            .collect();
        json!({"keys": keys})
    }

    /// Signs an access token with these claims.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": "ES256", "typ": "at+jwt", "kid": self.current.jwk["kid"]});
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(&header), part(claims));
        let pair = &self.current.pair;
        let signature = pair.sign(&SystemRandom::new(), message.as_bytes());
        let signature = signature.expect("the operating system has randomness");
        format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }
}

impl CurrentKey {
    fn new() -> Self {
        let (random_source, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let generated = EcdsaKeyPair::generate_pkcs8(algorithm, &random_source);
        let pkcs8 = generated.expect("the operating system has randomness");
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random_source);
        let pair = pair.expect("ring reads what it wrote");
        // An uncompressed point: the byte 4, then both coordinates.
        let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
        let text = |coordinate: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(coordinate);
        let jwk = json!({"kty": "EC", "crv": "P-256", "x": text(x), "y": text(y),
            "kid": random(), "alg": "ES256", "use": "sig"});
        Self { pair, jwk }
    }
}
