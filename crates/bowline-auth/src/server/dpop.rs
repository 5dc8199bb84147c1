//! Proofs that the bearer of a token has its key: RFC 9449.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderName, Method, Uri};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::AccessToken;
use super::jws::Unchecked;

/// What a proof must be about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub(super) method: &'a Method,
    /// The URLs under which the request may be known to its client.
    pub(super) urls: &'a [String],
    pub(super) token: &'a AccessToken,
    /// Of the key that the token is bound to.
    pub(super) thumbprint: &'a str,
    /// In seconds since 1970.
    pub(super) now: u64,
}

/// A proof that is good, if it was not used before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proven {
    /// Tells it from all other proofs.
    pub(super) mark: String,
    /// The word that it contains because a server wants it.
    pub(super) nonce: Option<String>,
}

/// Checks the proof in the headers of a request.
pub(super) fn check(headers: &HeaderMap, subject: Subject<'_>) -> Result<Proven, String> {
    let mut proofs = headers.get_all(DPOP).iter();
    let (Some(proof), None) = (proofs.next(), proofs.next()) else {
        return Err("there must be one `DPoP` header".to_owned());
    };
    let proof = proof.to_str().map_err(|_| "the proof is no text")?;
    let proof = Unchecked::parse(proof).map_err(|refused| format!("the proof: {refused}"))?;
    if !proof.is_of_type(&["dpop+jwt"]) {
        return Err("the proof is a token of another kind".to_owned());
    }
    let key = proof.header.jwk.as_ref();
    let thumbprint = key.and_then(|key| key.thumbprint());
    let key = key.and_then(|key| key.to_key());
    let (Some(key), Some(thumbprint)) = (key, thumbprint) else {
        return Err("the proof has no public key".to_owned());
    };
    if thumbprint != subject.thumbprint {
        return Err("the proof is made with another key than that of the token".to_owned());
    }
    let said = proof.signed_by(&key);
    let said = said.map_err(|refused| format!("the proof: {refused}"))?;
    let said: Said = serde_json::from_slice(&said).map_err(|_| "the proof cannot be read")?;
    said.check(subject)?;
    let mut digest = Sha256::new_with_prefix(thumbprint);
    digest.update([0]);
    digest.update(said.jti);
    Ok(Proven {
        mark: format!("dpop {}", BASE64_URL_SAFE_NO_PAD.encode(digest.finalize())),
        nonce: said.nonce,
    })
}

/// What a proof says.
#[derive(Deserialize)]
struct Said {
    jti: String,
    htm: String,
    htu: String,
    iat: f64,
    ath: String,
    nonce: Option<String>,
}

impl Said {
    fn check(&self, subject: Subject<'_>) -> Result<(), &'static str> {
        if self.htm != subject.method.as_str() {
            return Err("the proof is for another method");
        }
        let place = place(&self.htu).ok_or("the proof names no URL")?;
        let mut urls = subject.urls.iter();
        if !urls.any(|url| self::place(url).as_ref() == Some(&place)) {
            return Err("the proof is for another URL");
        }
        if self.ath != BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(subject.token.as_str())) {
            return Err("the proof is for another token");
        }
        #[allow(
            clippy::cast_precision_loss,
            reason = "seconds since 1970 have few digits"
        )]
        let age = subject.now as f64 - self.iat;
        // Written so that a NaN is refused too.
        let is_in_time = age <= OLDEST as f64 && age >= -(AHEAD as f64);
        if !is_in_time {
            return Err("the proof is too old, or from the future");
        }
        if self.jti.is_empty() {
            return Err("the proof has no id");
        }
        Ok(())
    }
}

/// What a URL names, apart from its query: scheme, host, port and path.
fn place(url: &str) -> Option<(String, String, u16, String)> {
    let uri: Uri = url.parse().ok()?;
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    let port = uri
        .port_u16()
        .unwrap_or(if scheme == "http" { 80 } else { 443 });
    let host = uri.host()?.to_ascii_lowercase();
    Some((scheme, host, port, uri.path().to_owned()))
}

/// Where a server says what word proofs must contain.
pub(super) const DPOP_NONCE: HeaderName = HeaderName::from_static("dpop-nonce");
pub(super) const DPOP: HeaderName = HeaderName::from_static("dpop");
/// How many seconds a proof is good for.
const OLDEST: u32 = 60;
/// How many seconds a client's clock may be ahead.
const AHEAD: u32 = 30;
/// For how many seconds a proof could be used again.
pub(super) const USABLE_FOR: u64 = OLDEST as u64 + AHEAD as u64 + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_compared_by_what_they_name() {
        for (one, other, same) in [
            ("https://h/mcp", "HTTPS://H:443/mcp?a=b", true),
            ("http://h:80/", "http://h", true),
            ("https://h/mcp", "http://h/mcp", false),
            ("https://h/mcp", "https://h/mcp/", false),
            ("https://h/mcp", "https://h:8443/mcp", false),
            ("https://h/mcp", "/mcp", false),
        ] {
            assert_eq!(place(one) == place(other), same, "{one} and {other}");
        }
    }
}
