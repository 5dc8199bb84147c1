//! Public keys as JSON: what they verify, and their thumbprints.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::algorithm::{Algorithm, PublicKey};

/// A key, as RFC 7517 writes it.
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
    /// The private part, which has no business here.
    d: Option<serde::de::IgnoredAny>,
}

/// A key that signatures are checked with.
#[derive(Clone)]
pub(super) struct Key {
    pub(super) kid: Option<String>,
    algorithms: Vec<Algorithm>,
    pub(super) public: PublicKey,
}

impl Key {
    /// Whether a signature of this kind may be this key's.
    pub(super) fn fits(&self, algorithm: Algorithm) -> bool {
        self.algorithms.contains(&algorithm)
    }
}

impl Jwk {
    /// The key, if it is a public one for signatures of a kind that we trust.
    pub(super) fn to_key(&self) -> Option<Key> {
        if self.used_for.as_deref().is_some_and(|used| used != "sig") || self.d.is_some() {
            return None;
        }
        let decode = |part: &Option<String>| {
            let part = part.as_ref()?;
            BASE64_URL_SAFE_NO_PAD.decode(part).ok()
        };
        let point = |size: usize| {
            let (x, y) = (decode(&self.x)?, decode(&self.y)?);
            let is_fine = x.len() == size && y.len() == size;
            is_fine.then(|| [&[4], &x[..], &y[..]].concat())
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
            // A shared secret in a public place is a mistake or a trap.
            _ => return None,
        };
        let named = |algorithm: &&Algorithm| match &self.alg {
            Some(name) => Algorithm::named(name) == Some(**algorithm),
            None => true,
        };
        Some(Key {
            kid: self.kid.clone(),
            algorithms: algorithms.iter().filter(named).copied().collect(),
            public,
        })
    }

    /// The SHA-256 thumbprint of the key, as RFC 7638 has it.
    pub(super) fn thumbprint(&self) -> Option<String> {
        // The members that make the key, in the order of their names, and nothing else.
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
        // The map is in the order of its keys.
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

/// Some write a number with zeros before it, and `ring` reads none like that.
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
    fn the_thumbprint_is_that_of_the_standards_own_example() {
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
    fn keys_that_verify_no_signature_we_trust_are_passed_over() {
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
