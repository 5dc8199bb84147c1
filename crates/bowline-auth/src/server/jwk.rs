//! JSON Web Keys (RFC 7517) and their thumbprints (RFC 7638).

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::algorithm::{Algorithm, PublicKey};

/// A public key in JWK format.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Jwk {
    kty: String,
    pub(super) kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    used_for: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    /// The private part; such a key is refused.
    d: Option<serde::de::IgnoredAny>,
}

/// A key that verifies signatures.
#[derive(Clone)]
pub(super) struct VerifyingKey {
    pub(super) kid: Option<String>,
    algorithms: Vec<Algorithm>,
    pub(super) public: PublicKey,
}

impl VerifyingKey {
    /// Returns whether this key may verify this algorithm.
    pub(super) fn fits(&self, algorithm: Algorithm) -> bool {
        self.algorithms.contains(&algorithm)
    }
}

impl Jwk {
    /// Returns the key, if it is a public signature key of a supported type.
    pub(super) fn to_key(&self) -> Option<VerifyingKey> {
        if self.used_for.as_deref().is_some_and(|used| used != "sig") || self.d.is_some() {
            return None;
        }
        let decode = |part: &Option<String>| {
            let part = part.as_ref()?;
            BASE64_URL_SAFE_NO_PAD.decode(part).ok()
        };
        let point = |size: usize| {
            let (x, y) = (decode(&self.x)?, decode(&self.y)?);
            let has_size = x.len() == size && y.len() == size;
            has_size.then(|| [&[4], &x[..], &y[..]].concat())
        };
        let (algorithms, public) = match (&*self.kty, self.crv.as_deref()) {
            ("RSA", _) => {
                let n = without_zeros(&decode(&self.n)?);
                let e = without_zeros(&decode(&self.e)?);
                (RSA, PublicKey::Rsa { n, e })
            }
            ("EC", Some("P-256")) => (&[Algorithm::Es256][..], PublicKey::P256(point(32)?)),
            ("EC", Some("P-384")) => (&[Algorithm::Es384][..], PublicKey::P384(point(48)?)),
            ("OKP", Some("Ed25519")) => {
                let x = decode(&self.x).filter(|x| x.len() == 32)?;
                (&[Algorithm::Ed25519][..], PublicKey::Ed25519(x))
            }
            // Including `oct`: a published shared secret must never verify a token.
            _ => return None,
        };
        let is_named = |algorithm: &&Algorithm| match &self.alg {
            Some(name) => Algorithm::from_name(name) == Some(**algorithm),
            None => true,
        };
        Some(VerifyingKey {
            kid: self.kid.clone(),
            algorithms: algorithms.iter().filter(is_named).copied().collect(),
            public,
        })
    }

    /// Returns the SHA-256 thumbprint (RFC 7638).
    pub(super) fn thumbprint(&self) -> Option<String> {
        // The required members only; `serde_json::Map` sorts them by name, as the RFC requires.
        let members = match &*self.kty {
            "RSA" => vec![("e", &self.e), ("n", &self.n)],
            "EC" => vec![("crv", &self.crv), ("x", &self.x), ("y", &self.y)],
            "OKP" => vec![("crv", &self.crv), ("x", &self.x)],
            _ => return None,
        };
        let mut canonical = serde_json::Map::new();
        canonical.insert("kty".to_owned(), self.kty.clone().into());
        for (name, value) in members {
            canonical.insert(name.to_owned(), value.clone()?.into());
        }
        let canonical = serde_json::Value::Object(canonical).to_string();
        Some(BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(canonical)))
    }
}

const RSA: &[Algorithm] = &[
    Algorithm::Rs256,
    Algorithm::Rs384,
    Algorithm::Rs512,
    Algorithm::Ps256,
    Algorithm::Ps384,
    Algorithm::Ps512,
];

/// Strips leading zeros, which some issuers send and `ring` rejects.
fn without_zeros(number: &[u8]) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number[zeros..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jwk(json: serde_json::Value) -> Jwk {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn the_thumbprint_matches_the_example_of_rfc_7638() {
        // RFC 7638, section 3.1.
        let key = jwk(serde_json::json!({
            "kty": "RSA",
            "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",
            "e": "AQAB", "alg": "RS256", "kid": "2011-04-29"}));

        assert_eq!(
            key.thumbprint().unwrap(),
            "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"
        );
        let key = key.to_key().unwrap();
        assert!(key.fits(Algorithm::Rs256) && !key.fits(Algorithm::Rs512));
    }

    #[test]
    fn unsupported_keys_are_skipped() {
        let (x, y) = ("A".repeat(43), "A".repeat(43));
        let ec = serde_json::json!({"kty": "EC", "crv": "P-256", "x": x, "y": y});
        assert!(jwk(ec.clone()).to_key().is_some());

        for (member, value) in [
            ("kty", "oct"),
            ("kty", "unknown"),
            ("crv", "P-521"),
            ("use", "enc"),
            ("d", "secret"),
            ("x", "not base64!"),
            ("x", "AAAA"),
        ] {
            let mut changed = ec.clone();
            changed[member] = value.into();

            assert!(jwk(changed).to_key().is_none(), "{member} = {value}");
        }
    }
}
