//! Signing: what a client asserts about itself, and what it proves.

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

/// A private key that signs.
pub struct SigningKey {
    pair: Pair,
    /// Its name, where the other side has several.
    id: Option<String>,
}

enum Pair {
    Es256(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
    Rs256(Box<RsaKeyPair>),
}

impl SigningKey {
    /// Reads a private key in PEM (PKCS#8): on the curve P-256, Ed25519 or RSA.
    ///
    /// # Errors
    ///
    /// If it is none of these.
    pub fn from_pem(pem: &str) -> Result<Self> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| Error::misuse("the private key is not in PEM, as PKCS#8"))?;
        Self::from_pkcs8(der.secret_pkcs8_der())
    }

    /// Reads a private key in PKCS#8: on the curve P-256, Ed25519 or RSA.
    ///
    /// # Errors
    ///
    /// If it is none of these.
    pub fn from_pkcs8(der: &[u8]) -> Result<Self> {
        let pair = if let Ok(pair) =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &SystemRandom::new())
        {
            Pair::Es256(pair)
        } else if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
            Pair::EdDsa(pair)
        } else if let Ok(pair) = RsaKeyPair::from_pkcs8(der) {
            Pair::Rs256(Box::new(pair))
        } else {
            return Err(Error::misuse(
                "the private key is neither on the curve P-256, nor Ed25519, nor RSA",
            ));
        };
        Ok(Self { pair, id: None })
    }

    /// Names the key in what it signs, as `kid`.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// A new key on the curve P-256, in PKCS#8.
    pub(crate) fn generate() -> Result<Vec<u8>> {
        let made =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        let document =
            made.map_err(|_| Error::misuse("there is no randomness to make a key of"))?;
        Ok(document.as_ref().to_vec())
    }

    /// The public half of a key on the curve P-256: its two coordinates.
    pub(crate) fn coordinates(&self) -> Option<(String, String)> {
        let Pair::Es256(pair) = &self.pair else {
            return None;
        };
        let point = pair.public_key().as_ref().strip_prefix(&[4])?;
        let (x, y) = point.split_at_checked(32)?;
        Some((URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y)))
    }

    /// Signs claims. `header` needs no `alg`.
    pub(crate) fn sign(&self, mut header: Value, claims: &Value) -> Result<String> {
        header["alg"] = json!(self.algorithm());
        if let Some(id) = &self.id {
            header["kid"] = json!(id);
        }
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let mut token = format!("{}.{}", part(&header), part(claims));
        let signature = self.signature(token.as_bytes());
        let signature = signature.map_err(|_| Error::misuse("the private key does not sign"))?;
        token.push('.');
        token.push_str(&URL_SAFE_NO_PAD.encode(signature));
        Ok(token)
    }

    fn algorithm(&self) -> &'static str {
        match self.pair {
            Pair::Es256(_) => "ES256",
            Pair::EdDsa(_) => "EdDSA",
            Pair::Rs256(_) => "RS256",
        }
    }

    fn signature(&self, message: &[u8]) -> Result<Vec<u8>, ring::error::Unspecified> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Es256(pair) => Ok(pair.sign(&random, message)?.as_ref().to_vec()),
            Pair::EdDsa(pair) => Ok(pair.sign(message).as_ref().to_vec()),
            Pair::Rs256(pair) => {
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
