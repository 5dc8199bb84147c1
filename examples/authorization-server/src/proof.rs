//! Proofs that a client has a key, to which its tokens are then bound: RFC 9449.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::HeaderMap;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::answer::Refusal;
use crate::shared::Shared;

#[derive(Deserialize)]
struct Claims {
    jti: String,
    htm: String,
    htu: String,
    iat: u64,
}

/// The thumbprint of the key that a request to the token endpoint proves to have, if it tries to.
pub(crate) fn key(shared: &Shared, headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let mut proofs = headers.get_all("dpop").iter();
    let Some(proof) = proofs.next() else {
        return Ok(None);
    };
    let invalid = |why: &str| Refusal::new("invalid_dpop_proof", why);
    let proof = proof
        .to_str()
        .map_err(|_| invalid("the proof is no text"))?;
    let header = jsonwebtoken::decode_header(proof).map_err(|_| invalid("it is no JWT"))?;
    let jwk = header.jwk.as_ref();
    let thumbprint = jwk.and_then(thumbprint);
    let (Some(jwk), Some(thumbprint)) = (jwk, thumbprint) else {
        return Err(invalid("its key is not on the curve P-256"));
    };
    if header.typ.as_deref() != Some("dpop+jwt") || proofs.next().is_some() {
        return Err(invalid("it is not one proof"));
    }
    let key = DecodingKey::from_jwk(jwk).map_err(|_| invalid("its key cannot be read"))?;
    // A proof has no end and no audience; its own claims say the same.
    let mut validation = Validation::new(Algorithm::ES256);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    let claims: Claims = jsonwebtoken::decode(proof, &key, &validation)
        .map_err(|_| invalid("it is not signed with its key"))?
        .claims;
    let now = shared.now();
    if claims.htm != "POST" || claims.htu != format!("{}/token", shared.issuer) {
        return Err(invalid("it is for another request"));
    }
    if claims.iat.abs_diff(now) > ONE_MINUTE {
        return Err(invalid("it is too old, or from the future"));
    }
    let id = format!("{thumbprint} {}", claims.jti);
    let mut memory = shared.memory();
    if memory.proofs.find(&id, now).is_some() {
        return Err(invalid("it was used before"));
    }
    if !memory.proofs.add(id, (), now, claims.iat + 2 * ONE_MINUTE) {
        return Err(Refusal::overloaded());
    }
    Ok(Some(thumbprint))
}

fn thumbprint(jwk: &Jwk) -> Option<String> {
    let AlgorithmParameters::EllipticCurve(point) = &jwk.algorithm else {
        return None;
    };
    let canonical = format!(
        r#"{{"crv":"P-256","kty":"EC","x":"{}","y":"{}"}}"#,
        point.x, point.y
    );
    let thumbprint = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(canonical));
    (point.curve == EllipticCurve::P256).then_some(thumbprint)
}

const ONE_MINUTE: u64 = 60;
