//! [`Algorithm`]: the supported signature algorithms, and signature verification.

use std::fmt;

use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};

/// An asymmetric JWS signature algorithm. HMAC and `none` are not supported.
///
/// # Examples
///
/// ```
/// use bowline_auth::server::Algorithm;
///
/// assert_eq!(Algorithm::from_name("Ed25519"), Some(Algorithm::Ed25519));
/// assert_eq!(Algorithm::from_name("EdDSA"), Some(Algorithm::Ed25519));
/// assert_eq!(Algorithm::from_name("HS256"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Algorithm {
    /// ECDSA on the curve P-256.
    Es256,
    /// ECDSA on the curve P-384.
    Es384,
    /// Ed25519, under this name (RFC 9864) or its older one, `EdDSA`.
    Ed25519,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// RSASSA-PSS with SHA-384.
    Ps384,
    /// RSASSA-PSS with SHA-512.
    Ps512,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
}

impl Algorithm {
    /// Returns the algorithm with this JOSE name, if it is supported.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let mut known = NAMES.iter();
        let found = known.find(|(own, _)| *own == name)?;
        Some(found.1)
    }

    /// Returns whether the signature is valid for this key.
    pub(super) fn verifies(self, key: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
        match (key, self) {
            (PublicKey::Rsa { n, e }, _) => {
                let Some(parameters) = self.rsa() else {
                    return false;
                };
                let key = RsaPublicKeyComponents { n, e };
                key.verify(parameters, message, signature).is_ok()
            }
            (PublicKey::P256(key), Self::Es256) => {
                is_signed(&signature::ECDSA_P256_SHA256_FIXED, key, message, signature)
            }
            (PublicKey::P384(key), Self::Es384) => {
                is_signed(&signature::ECDSA_P384_SHA384_FIXED, key, message, signature)
            }
            (PublicKey::Ed25519(key), Self::Ed25519) => {
                is_signed(&signature::ED25519, key, message, signature)
            }
            _ => false,
        }
    }

    fn rsa(self) -> Option<&'static signature::RsaParameters> {
        Some(match self {
            Self::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Self::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            Self::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            Self::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
            Self::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
            Self::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
            Self::Es256 | Self::Es384 | Self::Ed25519 => return None,
        })
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut known = NAMES.iter();
        let found = known.find(|(_, own)| own == self);
        f.write_str(found.map_or("", |(name, _)| name))
    }
}

fn is_signed(
    algorithm: &'static dyn VerificationAlgorithm,
    key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> bool {
    let key = UnparsedPublicKey::new(algorithm, key);
    key.verify(message, signature).is_ok()
}

/// A public key in the encoding that `ring` expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PublicKey {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// An uncompressed point.
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// The JOSE names of the algorithms.
pub(super) const NAMES: &[(&str, Algorithm)] = &[
    ("ES256", Algorithm::Es256),
    ("ES384", Algorithm::Es384),
    ("Ed25519", Algorithm::Ed25519),
    ("EdDSA", Algorithm::Ed25519),
    ("PS256", Algorithm::Ps256),
    ("PS384", Algorithm::Ps384),
    ("PS512", Algorithm::Ps512),
    ("RS256", Algorithm::Rs256),
    ("RS384", Algorithm::Rs384),
    ("RS512", Algorithm::Rs512),
];

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
        Ed25519KeyPair, KeyPair as _,
    };

    use super::*;

    #[test]
    fn a_signature_verifies_only_with_its_algorithm_and_key() {
        let random = SystemRandom::new();
        let ecdsa = |algorithm| {
            let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
            let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
            let signature = pair.sign(&random, b"text").unwrap().as_ref().to_vec();
            (pair.public_key().as_ref().to_vec(), signature)
        };
        let (p256, es256) = ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING);
        let (p384, es384) = ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING);
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
        let ed25519 = pair.public_key().as_ref().to_vec();
        let eddsa = pair.sign(b"text").as_ref().to_vec();
        let all = [
            (PublicKey::P256(p256), Algorithm::Es256, es256),
            (PublicKey::P384(p384), Algorithm::Es384, es384),
            (PublicKey::Ed25519(ed25519), Algorithm::Ed25519, eddsa),
        ];

        for (key, own, signature) in &all {
            for (_, algorithm) in NAMES {
                let verifies = algorithm.verifies(key, b"text", signature);
                assert_eq!(verifies, algorithm == own, "{own} as {algorithm}");
            }
            assert!(!own.verifies(key, b"other", signature));
            assert!(!own.verifies(key, b"text", &signature[1..]));
            assert!(!own.verifies(key, b"text", b""));
        }
    }
}
