//! Compact JWS parsing and signature verification, for access tokens and DPoP proofs.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::VerifyError;
use super::algorithm::Algorithm;
use super::jwk::{Jwk, VerifyingKey};

/// A parsed JWS whose signature is not verified yet.
pub(super) struct UnverifiedJws<'a> {
    pub(super) header: JoseHeader,
    pub(super) algorithm: Algorithm,
    payload: Vec<u8>,
    signed: &'a str,
    signature: &'a str,
}

/// The JOSE header. It is chosen by the sender.
#[derive(Debug, Deserialize)]
pub(super) struct JoseHeader {
    alg: String,
    pub(super) typ: Option<String>,
    pub(super) kid: Option<String>,
    pub(super) jwk: Option<Jwk>,
    crit: Option<serde::de::IgnoredAny>,
}

impl<'a> UnverifiedJws<'a> {
    /// Parses a compact JWS.
    pub(super) fn parse(token: &'a str) -> Result<Self, VerifyError> {
        let malformed = || VerifyError::invalid("not a signed JWT");
        let (signed, signature) = token.rsplit_once('.').ok_or_else(malformed)?;
        let (header, payload) = signed.split_once('.').ok_or_else(malformed)?;
        let decode = |part| BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed());
        let (header, payload) = (decode(header)?, decode(payload)?);
        let header: JoseHeader = serde_json::from_slice(&header).map_err(|_| malformed())?;
        if header.crit.is_some() {
            // RFC 7515, section 4.1.11: unsupported critical extensions make the JWS invalid.
            return Err(VerifyError::invalid(
                "unsupported critical header parameters",
            ));
        }
        let Some(algorithm) = Algorithm::from_name(&header.alg) else {
            return Err(VerifyError::invalid("unsupported signature algorithm"));
        };
        Ok(Self {
            algorithm,
            header,
            payload,
            signed,
            signature,
        })
    }

    /// Returns the unverified payload.
    pub(super) fn unverified_payload(&self) -> &[u8] {
        &self.payload
    }

    /// Returns the payload, if this key has signed it.
    pub(super) fn verify_signature(self, key: &VerifyingKey) -> Result<Vec<u8>, VerifyError> {
        let signature = BASE64_URL_SAFE_NO_PAD.decode(self.signature);
        let signature = signature.unwrap_or_default();
        let message = self.signed.as_bytes();
        let is_valid =
            key.fits(self.algorithm) && self.algorithm.verifies(&key.public, message, &signature);
        if is_valid {
            Ok(self.payload)
        } else {
            Err(VerifyError::invalid("invalid signature"))
        }
    }

    /// Returns whether `typ` is one of these, ignoring case and an `application/` prefix.
    pub(super) fn is_of_type(&self, types: &[&str]) -> bool {
        let Some(typ) = &self.header.typ else {
            return false;
        };
        let typ = typ.to_ascii_lowercase();
        let typ = typ.strip_prefix("application/").unwrap_or(&typ);
        types.contains(&typ)
    }
}
