//! Verification of DPoP proofs at the token endpoint (RFC 9449).

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::HeaderMap;
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::response::OAuthError;
use crate::state::ServerState;

#[derive(Deserialize)]
struct DpopHeader {
    alg: String,
    typ: Option<String>,
    jwk: Option<DpopJwk>,
}

/// A public key in JWK format.
#[derive(Deserialize)]
struct DpopJwk {
    kty: String,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

#[derive(Deserialize)]
struct DpopClaims {
    jti: String,
    htm: String,
    htu: String,
    iat: u64,
}

/// Returns the thumbprint of the key in the `DPoP` header, after verifying the proof; `None` without the header.
pub(crate) fn verify_proof(
    server: &ServerState,
    headers: &HeaderMap,
) -> Result<Option<String>, OAuthError> {
    let mut proofs = headers.get_all("dpop").iter();
    let Some(proof) = proofs.next() else {
        return Ok(None);
    };
    let invalid = |why: &str| OAuthError::new("invalid_dpop_proof", why);
    let proof = proof
        .to_str()
        .map_err(|_| invalid("the proof is not ASCII"))?;
    let parts: Vec<&str> = proof.split('.').collect();
    let [head, claims, signature] = parts[..] else {
        return Err(invalid("the proof is not a JWT"));
    };
    let header: DpopHeader = read(head).ok_or_else(|| invalid("the proof is not a JWT"))?;
    let jwk = header.jwk.as_ref();
    let (Some(point), Some(thumbprint)) = (jwk.and_then(point), jwk.and_then(thumbprint)) else {
        return Err(invalid("the `jwk` of the proof is not a P-256 key"));
    };
    let is_proof = header.alg == "ES256" && header.typ.as_deref() == Some("dpop+jwt");
    if !is_proof || proofs.next().is_some() {
        return Err(invalid("expected one ES256 proof of type `dpop+jwt`"));
    }
    let signed = &proof[..head.len() + 1 + claims.len()];
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
    let signature = decode(signature).unwrap_or_default();
    if key.verify(signed.as_bytes(), &signature).is_err() {
        return Err(invalid("the signature of the proof is invalid"));
    }
    let claims: DpopClaims = read(claims).ok_or_else(|| invalid("failed to parse the proof"))?;
    let now = server.now();
    if claims.htm != "POST" || claims.htu != format!("{}/token", server.issuer) {
        return Err(invalid("the proof is for another request"));
    }
    if claims.iat.abs_diff(now) > MAX_PROOF_AGE {
        return Err(invalid("the `iat` of the proof is out of range"));
    }
    let id = format!("{thumbprint} {}", claims.jti);
    let mut issued = server.issued();
    if issued.proofs.find(&id, now).is_some() {
        return Err(invalid("the proof was already used"));
    }
    if !issued
        .proofs
        .add(id, (), now, claims.iat + 2 * MAX_PROOF_AGE)
    {
        return Err(OAuthError::overloaded());
    }
    Ok(Some(thumbprint))
}

fn decode(part: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(part).ok()
}

fn read<T: DeserializeOwned>(part: &str) -> Option<T> {
    serde_json::from_slice(&decode(part)?).ok()
}

/// Returns the key as an uncompressed point, which starts with the byte 4.
fn point(jwk: &DpopJwk) -> Option<Vec<u8>> {
    let (x, y) = (decode(jwk.x.as_ref()?)?, decode(jwk.y.as_ref()?)?);
    let is_p256 = jwk.kty == "EC" && jwk.crv.as_deref() == Some("P-256");
    is_p256.then(|| [&[4], &x[..], &y[..]].concat())
}

fn thumbprint(jwk: &DpopJwk) -> Option<String> {
    let (x, y) = (jwk.x.as_ref()?, jwk.y.as_ref()?);
    let canonical = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
    Some(BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(canonical)))
}

const MAX_PROOF_AGE: u64 = 60;
