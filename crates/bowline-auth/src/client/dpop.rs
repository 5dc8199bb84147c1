//! DPoP proofs of the client (RFC 9449): sender-constrained tokens, bound to a key that each request proves to have.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::Method;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use url::Url;
use zeroize::Zeroizing;

use super::jwt::SigningKey;
use super::time_and_randomness::TimeAndRandomness;
use super::{Error, Result, Secret};

/// The private key that DPoP tokens are bound to.
#[derive(Debug)]
pub(crate) struct ProofKey {
    key: SigningKey,
    x: String,
    y: String,
}

/// The request that a proof is for.
pub(crate) struct ProofTarget<'a> {
    pub(crate) method: &'a Method,
    pub(crate) url: &'a Url,
    /// The access token of the request; `None` at the token endpoint.
    pub(crate) token: Option<&'a Secret>,
    /// The last `DPoP-Nonce` of the server.
    pub(crate) nonce: Option<&'a str>,
}

impl ProofKey {
    /// Generates a key, encoded for the store.
    pub(crate) fn generate() -> Result<Secret> {
        let der = Zeroizing::new(SigningKey::generate()?);
        Ok(Secret::new(STANDARD.encode(&*der)))
    }

    /// Decodes a stored key.
    pub(crate) fn read(stored: &Secret) -> Result<Self> {
        let der = STANDARD
            .decode(stored.expose())
            .map(Zeroizing::new)
            .map_err(|_| Error::misuse("the stored DPoP key is not valid base64"))?;
        let key = SigningKey::from_pkcs8(&der)?;
        let Some((x, y)) = key.coordinates() else {
            return Err(Error::misuse("the stored DPoP key is not a P-256 key"));
        };
        Ok(Self { key, x, y })
    }

    /// Creates a proof for one request.
    pub(crate) fn prove(
        &self,
        target: &ProofTarget<'_>,
        fresh: &TimeAndRandomness,
    ) -> Result<String> {
        let mut htu = target.url.clone();
        htu.set_query(None);
        htu.set_fragment(None);
        let header = json!({
            "typ": "dpop+jwt",
            "jwk": {"kty": "EC", "crv": "P-256", "x": self.x, "y": self.y},
        });
        let mut claims = json!({
            "jti": fresh.random_token(),
            "htm": target.method.as_str(),
            "htu": htu.as_str(),
            "iat": fresh.seconds(),
        });
        if let Some(token) = target.token {
            claims["ath"] = json!(digest(token.expose()));
        }
        if let Some(nonce) = target.nonce {
            claims["nonce"] = json!(nonce);
        }
        self.key.sign(header, &claims)
    }

    /// Returns the JWK thumbprint of the public key (RFC 7638).
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
    fn a_proof_names_its_request_and_is_signed_by_its_jwk() {
        let key = ProofKey::read(&ProofKey::generate().unwrap()).unwrap();
        let token = Secret::new("token");
        let target = ProofTarget {
            method: &Method::POST,
            url: &Url::parse("https://example.com/mcp?x=1").unwrap(),
            token: Some(&token),
            nonce: Some("n"),
        };

        let proof = key
            .prove(&target, &TimeAndRandomness::new(1000, [[1; 32], [2; 32]]))
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
    fn each_proof_has_its_own_jti() {
        let key = ProofKey::read(&ProofKey::generate().unwrap()).unwrap();
        let target = ProofTarget {
            method: &Method::GET,
            url: &Url::parse("https://example.com/").unwrap(),
            token: None,
            nonce: None,
        };
        let jti = |random| {
            let fresh = TimeAndRandomness::new(1, [[random; 32], [0; 32]]);
            let proof = key.prove(&target, &fresh).unwrap();
            part(proof.split('.').nth(1).unwrap())["jti"].clone()
        };

        assert_ne!(jti(1), jti(2));
    }
}
