//! Properties that hold for every input from clients and issuers; each function panics on a violation.
//!
//! Here and not in `fuzz/`, because they use private types: the public ones fetch their keys.

use http::{HeaderMap, HeaderValue, Method};

use super::AccessToken;
use super::algorithm::NAMES;
use super::claims::Claims;
use super::dpop::{self, DPOP, ProofExpectation};
use super::jwk::Jwk;
use super::jwks::parse_jwk_set;
use super::jws::UnverifiedJws;

/// Parses the input as an access token and as a DPoP proof: neither is accepted, because the seeds are not signed with
/// the key.
pub fn jws(input: &[u8]) {
    let token = &*String::from_utf8_lossy(input);
    let jwk: Jwk = serde_json::from_str(KEY).expect("`KEY` is a JWK");
    let (key, thumbprint) = (jwk.to_key(), jwk.thumbprint());
    let (key, thumbprint) = (key.expect("`KEY` works"), thumbprint.expect("`KEY` works"));
    if let Ok(token) = UnverifiedJws::parse(token) {
        let _ = Claims::read(token.unverified_payload());
        assert!(
            token.verify_signature(&key).is_err(),
            "an unsigned token passed"
        );
    }
    let mut headers = HeaderMap::new();
    let Ok(value) = HeaderValue::from_str(token) else {
        return;
    };
    headers.insert(DPOP, value);
    let expected = ProofExpectation {
        method: &Method::POST,
        urls: &["https://mcp.example/mcp".to_owned()],
        token: &AccessToken::new("token"),
        thumbprint: &thumbprint,
        now: 1_900_000_000,
    };
    assert!(
        dpop::verify_proof(&headers, expected).is_err(),
        "an unsigned proof passed"
    );
}

/// Parses the input as a JWK set: the number of keys is bounded, and none of them verifies a constant signature.
pub fn jwks(input: &[u8]) {
    let Ok(keys) = parse_jwk_set(input) else {
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

/// The key of RFC 7517, appendix A.1. Its private half is in appendix A.2: seeds must not be signed with it.
const KEY: &str = r#"{"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
    "y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}"#;

#[cfg(test)]
mod tests {
    use bowline_fuzz::check_seeds;

    #[test]
    fn every_unsigned_token_is_refused() {
        check_seeds("jws", super::jws);
    }

    #[test]
    fn every_parsed_key_is_usable() {
        check_seeds("jwks", super::jwks);
    }
}
