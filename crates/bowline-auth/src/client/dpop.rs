//! DPoP: tokens that are of use only to whoever has a key, and the proofs of having it.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::Method;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use url::Url;
use zeroize::Zeroizing;

use super::jwt::SigningKey;
use super::moment::Moment;
use super::{Error, Result, Secret};

/// The key that tokens are bound to.
#[derive(Debug)]
pub(crate) struct ProofKey {
    key: SigningKey,
    x: String,
    y: String,
}

/// What a proof is about.
pub(crate) struct Proving<'a> {
    pub(crate) method: &'a Method,
    pub(crate) url: &'a Url,
    /// The token that the request carries, unless the request is for one.
    pub(crate) token: Option<&'a Secret>,
    /// What the server wants to see in the proof.
    pub(crate) nonce: Option<&'a str>,
}

impl ProofKey {
    /// A new key, as it is kept.
    pub(crate) fn generate() -> Result<Secret> {
        let der = Zeroizing::new(SigningKey::generate()?);
        Ok(Secret::new(STANDARD.encode(&*der)))
    }

    /// Reads a key that was kept.
    pub(crate) fn read(kept: &Secret) -> Result<Self> {
        let der = STANDARD
            .decode(kept.expose())
            .map(Zeroizing::new)
            .map_err(|_| Error::misuse("the key that was kept cannot be read"))?;
        let key = SigningKey::from_pkcs8(&der)?;
        let Some((x, y)) = key.coordinates() else {
            return Err(Error::misuse(
                "the key that was kept is not on the curve P-256",
            ));
        };
        Ok(Self { key, x, y })
    }

    /// A proof for one request.
    pub(crate) fn prove(&self, proving: &Proving<'_>, moment: &Moment) -> Result<String> {
        let mut target = proving.url.clone();
        target.set_query(None);
        target.set_fragment(None);
        let header = json!({
            "typ": "dpop+jwt",
            "jwk": {"kty": "EC", "crv": "P-256", "x": self.x, "y": self.y},
        });
        let mut claims = json!({
            "jti": moment.word(),
            "htm": proving.method.as_str(),
            "htu": target.as_str(),
            "iat": moment.seconds(),
        });
        if let Some(token) = proving.token {
            claims["ath"] = json!(digest(token.expose()));
        }
        if let Some(nonce) = proving.nonce {
            claims["nonce"] = json!(nonce);
        }
        self.key.sign(header, &claims)
    }

    /// What names the public key, in one word.
    pub(crate) fn thumbprint(&self) -> String {
        let (x, y) = (&self.x, &self.y);
        digest(&format!(
            r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#
        ))
    }
}

fn digest(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
    use serde_json::Value;

    use super::*;

    fn part(text: &str) -> Value {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap()
    }

    #[test]
    fn a_proof_says_what_it_is_for_and_is_signed_by_the_key_in_it() {
        let key = ProofKey::read(&ProofKey::generate().unwrap()).unwrap();
        let token = Secret::new("token");
        let proving = Proving {
            method: &Method::POST,
            url: &Url::parse("https://example.com/mcp?x=1").unwrap(),
            token: Some(&token),
            nonce: Some("n"),
        };

        let proof = key
            .prove(&proving, &Moment::new(1000, [[1; 32], [2; 32]]))
            .unwrap();

        let parts: Vec<&str> = proof.split('.').collect();
        let (header, claims) = (part(parts[0]), part(parts[1]));
        assert_eq!(header["typ"], "dpop+jwt");
        assert_eq!(header["alg"], "ES256");
        assert_eq!(claims["htm"], "POST");
        assert_eq!(claims["htu"], "https://example.com/mcp");
        assert_eq!(claims["iat"], 1000);
        assert_eq!(claims["nonce"], "n");
        assert_eq!(
            claims["ath"], "PEaenWxYddN6Q_NT1PiOYfz4EsZu7jRXRlpAsNpBU-A",
            "the digest of the token"
        );
        let coordinate = |name: &str| {
            let text = header["jwk"][name].as_str().unwrap();
            URL_SAFE_NO_PAD.decode(text).unwrap()
        };
        let point = [vec![4], coordinate("x"), coordinate("y")].concat();
        let signed = format!("{}.{}", parts[0], parts[1]);
        let signature = URL_SAFE_NO_PAD.decode(parts[2]).unwrap();
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
        assert!(public.verify(signed.as_bytes(), &signature).is_ok());
    }

    #[test]
    fn two_moments_make_two_proofs() {
        let key = ProofKey::read(&ProofKey::generate().unwrap()).unwrap();
        let proving = Proving {
            method: &Method::GET,
            url: &Url::parse("https://example.com/").unwrap(),
            token: None,
            nonce: None,
        };
        let jti = |random| {
            let moment = Moment::new(1, [[random; 32], [0; 32]]);
            let proof = key.prove(&proving, &moment).unwrap();
            part(proof.split('.').nth(1).unwrap())["jti"].clone()
        };

        assert_ne!(jti(1), jti(2));
    }
}
