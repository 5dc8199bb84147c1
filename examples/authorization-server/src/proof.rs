//! Proofs that a client has a key, to which its tokens are then bound: RFC 9449.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::HeaderMap;
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::answer::Refusal;
use crate::shared::Shared;

#[derive(Deserialize)]
struct Header {
    alg: String,
    typ: Option<String>,
    jwk: Option<Jwk>,
}

/// A public key.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

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
    let parts: Vec<&str> = proof.split('.').collect();
    let [head, claims, signature] = parts[..] else {
        return Err(invalid("it is no JWT"));
    };
    let header: Header = read(head).ok_or_else(|| invalid("it is no JWT"))?;
    let jwk = header.jwk.as_ref();
    let (Some(point), Some(thumbprint)) = (jwk.and_then(point), jwk.and_then(thumbprint)) else {
        return Err(invalid("its key is not on the curve P-256"));
    };
    let is_proof = header.alg == "ES256" && header.typ.as_deref() == Some("dpop+jwt");
    if !is_proof || proofs.next().is_some() {
        return Err(invalid("it is not one proof"));
    }
    let signed = &proof[..head.len() + 1 + claims.len()];
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
    let signature = decode(signature).unwrap_or_default();
    if key.verify(signed.as_bytes(), &signature).is_err() {
        return Err(invalid("it is not signed with its key"));
    }
    let claims: Claims = read(claims).ok_or_else(|| invalid("its claims cannot be read"))?;
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

fn decode(part: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(part).ok()
}

fn read<T: DeserializeOwned>(part: &str) -> Option<T> {
    serde_json::from_slice(&decode(part)?).ok()
}

/// The key as ring reads it: a byte that says that both coordinates follow.
fn point(jwk: &Jwk) -> Option<Vec<u8>> {
    let (x, y) = (decode(jwk.x.as_ref()?)?, decode(jwk.y.as_ref()?)?);
    let is_fine = jwk.kty == "EC" && jwk.crv.as_deref() == Some("P-256");
    is_fine.then(|| [&[4], &x[..], &y[..]].concat())
}

fn thumbprint(jwk: &Jwk) -> Option<String> {
    let (x, y) = (jwk.x.as_ref()?, jwk.y.as_ref()?);
    let canonical = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
    Some(BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(canonical)))
}

const ONE_MINUTE: u64 = 60;
