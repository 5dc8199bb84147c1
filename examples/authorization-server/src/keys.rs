//! The keys that sign tokens, and what the world may know of them.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
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
    encoding: EncodingKey,
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
        let mut header = Header::new(Algorithm::ES256);
        header.typ = Some("at+jwt".to_owned());
        header.kid = self.signing.jwk["kid"].as_str().map(str::to_owned);
        let signed = jsonwebtoken::encode(&header, claims, &self.signing.encoding);
        signed.expect("a key that ring made signs JSON")
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
        Self {
            encoding: EncodingKey::from_ec_der(pkcs8.as_ref()),
            jwk,
        }
    }
}
