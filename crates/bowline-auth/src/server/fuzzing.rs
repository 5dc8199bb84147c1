//! A server's part of what must hold for every input.

use http::{HeaderMap, HeaderValue, Method};

use super::AccessToken;
use super::algorithm::NAMES;
use super::claims::Claims;
use super::dpop::{self, DPOP, Subject};
use super::jwk::Jwk;
use super::jwks;
use super::jws::Unchecked;

/// Reads a token. Nobody who makes up inputs has the private half of the key that it is checked with.
pub(crate) fn verify(token: &str) {
    let jwk: Jwk = serde_json::from_str(KEY).expect("it is a key");
    let (key, thumbprint) = (jwk.to_key(), jwk.thumbprint());
    let (key, thumbprint) = (key.expect("it is good"), thumbprint.expect("it is good"));
    if let Ok(token) = Unchecked::parse(token) {
        let _ = Claims::read(token.unchecked_payload());
        assert!(token.signed_by(&key).is_err(), "nobody signed it");
    }
    let mut headers = HeaderMap::new();
    let Ok(value) = HeaderValue::from_str(token) else {
        return;
    };
    headers.insert(DPOP, value);
    let subject = Subject {
        method: &Method::POST,
        urls: &["https://mcp.example/mcp".to_owned()],
        token: &AccessToken::new("token"),
        thumbprint: &thumbprint,
        now: 1_900_000_000,
    };
    assert!(dpop::check(&headers, subject).is_err(), "nobody signed it");
}

/// Reads a set of keys. None of them verifies what nobody has signed.
pub(crate) fn read_keys(document: &[u8]) {
    let Ok(keys) = jwks::read(document) else {
        return;
    };
    assert!(keys.len() <= 100);
    for key in keys {
        for (_, algorithm) in NAMES {
            for signature in [&[][..], &[0; 64], &[0xff; 64], &[1; 256]] {
                let is_signed = algorithm.verifies(&key.public, b"text", signature);
                assert!(!is_signed, "by {algorithm}");
            }
        }
    }
}

/// The key of RFC 7517, appendix A.1. Its private half is in appendix A.2, so that seeds must not be signed with it.
const KEY: &str = r#"{"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
    "y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}"#;
