//! [`SigningKey`]: signs client assertions and DPoP proofs.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use super::{Error, Result};

/// A private key for signing JWTs.
pub struct SigningKey {
    pair: SigningKeyPair,
    /// The `kid`.
    id: Option<String>,
}

enum SigningKeyPair {
    Es256(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
    Rs256(Box<RsaKeyPair>),
}

impl SigningKey {
    /// Parses a private key in PEM (PKCS#8): P-256, Ed25519 or RSA.
    ///
    /// # Errors
    ///
    /// If the PEM is malformed or holds another kind of key.
    pub fn from_pem(pem: &str) -> Result<Self> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| Error::misuse("expected a private key in PEM, as PKCS#8"))?;
        Self::from_pkcs8(der.secret_pkcs8_der())
    }

    /// Parses a private key in PKCS#8: P-256, Ed25519 or RSA.
    ///
    /// # Errors
    ///
    /// If it is malformed or another kind of key.
    pub fn from_pkcs8(der: &[u8]) -> Result<Self> {
        let pair = if let Ok(pair) =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &SystemRandom::new())
        {
            SigningKeyPair::Es256(pair)
        } else if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
            SigningKeyPair::EdDsa(pair)
        } else if let Ok(pair) = RsaKeyPair::from_pkcs8(der) {
            SigningKeyPair::Rs256(Box::new(pair))
        } else {
            return Err(Error::misuse(
                "expected a P-256, Ed25519 or RSA private key",
            ));
        };
        Ok(Self { pair, id: None })
    }

    /// Sets the `kid` header of signed JWTs.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Generates a P-256 key, in PKCS#8.
    pub(crate) fn generate() -> Result<Vec<u8>> {
        let generated =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        let document = generated
            .map_err(|_| Error::misuse("failed to read randomness from the operating system"))?;
        Ok(document.as_ref().to_vec())
    }

    /// Returns the coordinates of the public key, if it is on P-256.
    pub(crate) fn coordinates(&self) -> Option<(String, String)> {
        let SigningKeyPair::Es256(pair) = &self.pair else {
            return None;
        };
        let point = pair.public_key().as_ref().strip_prefix(&[4])?;
        let (x, y) = point.split_at_checked(32)?;
        Some((URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y)))
    }

    /// Signs claims as a compact JWS. Adds `alg` and `kid` to `header`.
    pub(crate) fn sign(&self, mut header: Value, claims: &Value) -> Result<String> {
        header["alg"] = json!(self.algorithm());
        if let Some(id) = &self.id {
            header["kid"] = json!(id);
        }
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let mut token = format!("{}.{}", part(&header), part(claims));
        let signature = self.signature(token.as_bytes());
        let signature = signature.map_err(|_| Error::misuse("failed to sign with the key"))?;
        token.push('.');
        token.push_str(&URL_SAFE_NO_PAD.encode(signature));
        Ok(token)
    }

    fn algorithm(&self) -> &'static str {
        match self.pair {
            SigningKeyPair::Es256(_) => "ES256",
            SigningKeyPair::EdDsa(_) => "EdDSA",
            SigningKeyPair::Rs256(_) => "RS256",
        }
    }

    fn signature(&self, message: &[u8]) -> Result<Vec<u8>, ring::error::Unspecified> {
        let random = SystemRandom::new();
        match &self.pair {
            SigningKeyPair::Es256(pair) => Ok(pair.sign(&random, message)?.as_ref().to_vec()),
            SigningKeyPair::EdDsa(pair) => Ok(pair.sign(message).as_ref().to_vec()),
            SigningKeyPair::Rs256(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)?;
                Ok(signature)
            }
        }
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey")
            .field("algorithm", &self.algorithm())
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
