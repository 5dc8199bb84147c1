//! Verification of DPoP proofs (RFC 9449).

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderName, Method, Uri};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::AccessToken;
use super::jws::UnverifiedJws;

/// The request and token that a proof must match.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProofExpectation<'a> {
    pub(super) method: &'a Method,
    /// The URLs that the client may have used.
    pub(super) urls: &'a [String],
    pub(super) token: &'a AccessToken,
    /// The thumbprint of the key that the token is bound to.
    pub(super) thumbprint: &'a str,
    /// In seconds since 1970.
    pub(super) now: u64,
}

/// A valid proof; the caller must still check that it was not used before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VerifiedProof {
    /// Identifies the proof, for replay detection.
    pub(super) mark: String,
    /// The `nonce` claim.
    pub(super) nonce: Option<String>,
}

/// Checks the `DPoP` header of a request.
pub(super) fn verify_proof(
    headers: &HeaderMap,
    expected: ProofExpectation<'_>,
) -> Result<VerifiedProof, String> {
    let mut proofs = headers.get_all(DPOP).iter();
    let (Some(proof), None) = (proofs.next(), proofs.next()) else {
        return Err("expected exactly one `DPoP` header".to_owned());
    };
    let proof = proof.to_str().map_err(|_| "the proof is not ASCII")?;
    let proof = UnverifiedJws::parse(proof).map_err(|error| format!("DPoP proof: {error}"))?;
    if !proof.is_of_type(&["dpop+jwt"]) {
        return Err("the `typ` of the proof is not `dpop+jwt`".to_owned());
    }
    let key = proof.header.jwk.as_ref();
    let thumbprint = key.and_then(|key| key.thumbprint());
    let key = key.and_then(|key| key.to_key());
    let (Some(key), Some(thumbprint)) = (key, thumbprint) else {
        return Err("the proof has no usable public `jwk`".to_owned());
    };
    if thumbprint != expected.thumbprint {
        return Err("the key of the proof is not that of the token".to_owned());
    }
    let payload = proof.verify_signature(&key);
    let payload = payload.map_err(|error| format!("DPoP proof: {error}"))?;
    let claims: ProofClaims =
        serde_json::from_slice(&payload).map_err(|_| "failed to parse the proof")?;
    claims.check(expected)?;
    let mut digest = Sha256::new_with_prefix(thumbprint);
    digest.update([0]);
    digest.update(claims.jti);
    Ok(VerifiedProof {
        mark: format!("dpop {}", BASE64_URL_SAFE_NO_PAD.encode(digest.finalize())),
        nonce: claims.nonce,
    })
}

/// The claims of a proof.
#[derive(Deserialize)]
struct ProofClaims {
    jti: String,
    htm: String,
    htu: String,
    iat: f64,
    ath: String,
    nonce: Option<String>,
}

impl ProofClaims {
    fn check(&self, expected: ProofExpectation<'_>) -> Result<(), &'static str> {
        if self.htm != expected.method.as_str() {
            return Err("the proof is for another method");
        }
        let htu = htu_parts(&self.htu).ok_or("the `htu` of the proof is not a URL")?;
        let mut urls = expected.urls.iter();
        if !urls.any(|url| htu_parts(url).as_ref() == Some(&htu)) {
            return Err("the proof is for another URL");
        }
        if self.ath != BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(expected.token.as_str())) {
            return Err("the proof is for another token");
        }
        #[allow(
            clippy::cast_precision_loss,
            reason = "seconds since 1970 fit into the mantissa"
        )]
        let age = expected.now as f64 - self.iat;
        // Both comparisons are false for NaN, so that it is refused.
        let is_in_time = age <= MAX_PROOF_AGE as f64 && age >= -(MAX_CLOCK_SKEW as f64);
        if !is_in_time {
            return Err("the `iat` of the proof is too old or in the future");
        }
        if self.jti.is_empty() {
            return Err("the `jti` of the proof is empty");
        }
        Ok(())
    }
}

/// Returns scheme, host, port and path of a URL: the parts of `htu` that count (RFC 9449, section 4.3).
fn htu_parts(url: &str) -> Option<(String, String, u16, String)> {
    let uri: Uri = url.parse().ok()?;
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    let port = uri
        .port_u16()
        .unwrap_or(if scheme == "http" { 80 } else { 443 });
    let host = uri.host()?.to_ascii_lowercase();
    Some((scheme, host, port, uri.path().to_owned()))
}

/// The response header with the nonce for the next proof.
pub(super) const DPOP_NONCE: HeaderName = HeaderName::from_static("dpop-nonce");
pub(super) const DPOP: HeaderName = HeaderName::from_static("dpop");
/// The maximum age of a proof, in seconds.
const MAX_PROOF_AGE: u32 = 60;
/// How far the clock of a client may be ahead, in seconds.
const MAX_CLOCK_SKEW: u32 = 30;
/// How long a used proof must be remembered, in seconds.
pub(super) const PROOF_LIFETIME: u64 = MAX_PROOF_AGE as u64 + MAX_CLOCK_SKEW as u64 + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_compared_without_query_and_default_port() {
        for (one, other, same) in [
            ("https://h/mcp", "HTTPS://H:443/mcp?a=b", true),
            ("http://h:80/", "http://h", true),
            ("https://h/mcp", "http://h/mcp", false),
            ("https://h/mcp", "https://h/mcp/", false),
            ("https://h/mcp", "https://h:8443/mcp", false),
            ("https://h/mcp", "/mcp", false),
        ] {
            assert_eq!(
                htu_parts(one) == htu_parts(other),
                same,
                "{one} and {other}"
            );
        }
    }
}
