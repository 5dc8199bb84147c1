//! Signed tokens, taken apart.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::Refused;
use super::algorithm::Algorithm;
use super::jwk::{Jwk, Key};

/// A signed token that nobody has checked yet.
pub(super) struct Unchecked<'a> {
    pub(super) header: Header,
    pub(super) algorithm: Algorithm,
    payload: Vec<u8>,
    signed: &'a str,
    signature: &'a str,
}

/// What a token says of its own signature. Whoever made the token wrote it.
#[derive(Debug, Deserialize)]
pub(super) struct Header {
    alg: String,
    pub(super) typ: Option<String>,
    pub(super) kid: Option<String>,
    pub(super) jwk: Option<Jwk>,
    crit: Option<serde::de::IgnoredAny>,
}

impl<'a> Unchecked<'a> {
    /// Takes a token apart.
    pub(super) fn parse(token: &'a str) -> Result<Self, Refused> {
        let malformed = || Refused::invalid("it is no signed JWT");
        let (signed, signature) = token.rsplit_once('.').ok_or_else(malformed)?;
        let (header, payload) = signed.split_once('.').ok_or_else(malformed)?;
        let decode = |part| BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed());
        let (header, payload) = (decode(header)?, decode(payload)?);
        let header: Header = serde_json::from_slice(&header).map_err(|_| malformed())?;
        if header.crit.is_some() {
            // RFC 7515: what is marked critical and not understood makes the token invalid.
            return Err(Refused::invalid(
                "its header has extensions that nobody here knows",
            ));
        }
        let Some(algorithm) = Algorithm::named(&header.alg) else {
            return Err(Refused::invalid(
                "it is not signed in a way that is trusted here",
            ));
        };
        Ok(Self {
            algorithm,
            header,
            payload,
            signed,
            signature,
        })
    }

    /// What the token says, which anybody may have written.
    pub(super) fn unchecked_payload(&self) -> &[u8] {
        &self.payload
    }

    /// What the token says, if this key has signed it.
    pub(super) fn signed_by(self, key: &Key) -> Result<Vec<u8>, Refused> {
        let signature = BASE64_URL_SAFE_NO_PAD.decode(self.signature);
        let signature = signature.unwrap_or_default();
        let message = self.signed.as_bytes();
        let is_theirs =
            key.fits(self.algorithm) && self.algorithm.verifies(&key.public, message, &signature);
        if is_theirs {
            Ok(self.payload)
        } else {
            Err(Refused::invalid("its signature is not that of the key"))
        }
    }

    /// Whether it is a token of one of these types; letters in either case, with or without `application/`.
    pub(super) fn is_of_type(&self, types: &[&str]) -> bool {
        let Some(typ) = &self.header.typ else {
            return false;
        };
        let typ = typ.to_ascii_lowercase();
        let typ = typ.strip_prefix("application/").unwrap_or(&typ);
        types.contains(&typ)
    }
}
