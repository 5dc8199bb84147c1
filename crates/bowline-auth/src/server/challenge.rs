//! What whoever is turned away is told: a status, and how to come back.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::algorithm::NAMES;
use super::credential::Scheme;
use super::dpop::DPOP_NONCE;

/// Why a request is turned away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// It brings no token.
    NoToken,
    /// It brings something that cannot be read.
    Malformed(String),
    /// Its token is no good.
    BadToken(Scheme, String),
    /// It does not prove that it has the token's key.
    BadProof(String),
    /// Its proof does not contain a word of ours, such as this one.
    NoNonce(String),
    /// Its token allows too little.
    TooLittle(Scheme, BTreeSet<String>),
    /// It comes too often.
    TooMany(String),
    /// Nobody can tell at the moment.
    Unavailable(String),
}

/// What every challenge says.
#[derive(Clone, Debug)]
pub(super) struct Challenges<'a> {
    /// Where the metadata of this server are.
    pub(super) metadata: &'a str,
    /// What a token must allow at least.
    pub(super) scopes: &'a BTreeSet<String>,
    /// How tokens are to be brought.
    pub(super) scheme: Scheme,
}

impl Denied {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::NoToken | Self::BadToken(..) | Self::BadProof(_) | Self::NoNonce(_) => {
                StatusCode::UNAUTHORIZED
            }
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::TooLittle(..) => StatusCode::FORBIDDEN,
            Self::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The error that OAuth has for it.
    fn error(&self) -> Option<&'static str> {
        match self {
            // Whoever brought nothing did nothing wrong: RFC 6750, section 3.1.
            Self::NoToken | Self::TooMany(_) | Self::Unavailable(_) => None,
            Self::Malformed(_) => Some("invalid_request"),
            Self::BadToken(..) => Some("invalid_token"),
            Self::BadProof(_) => Some("invalid_dpop_proof"),
            Self::NoNonce(_) => Some("use_dpop_nonce"),
            Self::TooLittle(..) => Some("insufficient_scope"),
        }
    }

    fn description(&self) -> &str {
        match self {
            Self::NoToken => "a token is needed",
            Self::Malformed(why)
            | Self::BadToken(_, why)
            | Self::BadProof(why)
            | Self::TooMany(why)
            | Self::Unavailable(why) => why,
            Self::NoNonce(_) => "the proof must contain the nonce that is given here",
            Self::TooLittle(..) => "the token allows too little",
        }
    }
}

impl Challenges<'_> {
    /// The response to a request that is turned away.
    pub(super) fn response(&self, denied: &Denied) -> Response<Bytes> {
        let body = serde_json::json!({
            "error": denied.error().unwrap_or("unauthorized"),
            "error_description": denied.description(),
        });
        let mut response = Response::new(Bytes::from(body.to_string()));
        *response.status_mut() = denied.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Denied::Unavailable(_) | Denied::TooMany(_) = denied {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("10"));
        } else {
            self.challenge(denied, headers);
        }
        response
    }

    /// Adds how to come back to the headers of a response.
    pub(super) fn challenge(&self, denied: &Denied, headers: &mut HeaderMap) {
        let brought = match denied {
            Denied::BadToken(scheme, _) | Denied::TooLittle(scheme, _) => *scheme,
            Denied::BadProof(_) | Denied::NoNonce(_) => Scheme::Dpop,
            Denied::NoToken
            | Denied::Malformed(_)
            | Denied::TooMany(_)
            | Denied::Unavailable(_) => self.scheme,
        };
        if let Denied::NoNonce(nonce) = denied {
            let nonce = HeaderValue::try_from(nonce).expect("base64 is visible ASCII");
            headers.insert(DPOP_NONCE, nonce);
        }
        let mut params = Vec::new();
        if let Some(error) = denied.error() {
            params.push(("error", error.to_owned()));
            params.push(("error_description", quotable(denied.description())));
        }
        let scopes = match denied {
            Denied::TooLittle(_, scopes) => scopes,
            _ => self.scopes,
        };
        if !scopes.is_empty() {
            let scopes: Vec<_> = scopes.iter().map(String::as_str).collect();
            params.push(("scope", quotable(&scopes.join(" "))));
        }
        params.push(("resource_metadata", quotable(self.metadata)));
        let scheme = match brought.stricter_of(self.scheme) {
            Scheme::Bearer => "Bearer",
            Scheme::Dpop => {
                let trusted: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
                params.push(("algs", trusted.join(" ")));
                "DPoP"
            }
        };
        let params = params
            .iter()
            .map(|(name, value)| format!("{name}=\"{value}\""));
        let value = format!("{scheme} {}", params.collect::<Vec<_>>().join(", "));
        let value = HeaderValue::try_from(value).expect("what is quotable is visible ASCII");
        headers.insert(WWW_AUTHENTICATE, value);
    }
}

impl Scheme {
    /// The stricter of two.
    fn stricter_of(self, other: Self) -> Self {
        match (self, other) {
            (Self::Bearer, Self::Bearer) => Self::Bearer,
            _ => Self::Dpop,
        }
    }
}

/// What may stand between quotes in a challenge; the rest is left out.
fn quotable(text: &str) -> String {
    let is_fine = |letter: &char| matches!(letter, ' '..='~') && !matches!(letter, '"' | '\\');
    text.chars().filter(is_fine).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn challenge(denied: &Denied) -> (StatusCode, Option<String>) {
        let scopes = BTreeSet::from(["files:read".to_owned()]);
        let challenges = Challenges {
            metadata: "https://h/.well-known/oauth-protected-resource/mcp",
            scopes: &scopes,
            scheme: Scheme::Bearer,
        };
        let response = challenges.response(denied);
        let header = response.headers().get(WWW_AUTHENTICATE);
        let header = header.map(|value| value.to_str().unwrap().to_owned());
        (response.status(), header)
    }

    #[test]
    fn each_refusal_has_its_status_and_says_how_to_come_back() {
        let more = BTreeSet::from(["files:read".to_owned(), "files:write".to_owned()]);
        let place = r#"resource_metadata="https://h/.well-known/oauth-protected-resource/mcp""#;
        for (denied, status, expected) in [
            (
                Denied::NoToken,
                401,
                format!(r#"Bearer scope="files:read", {place}"#),
            ),
            (
                Denied::BadToken(Scheme::Bearer, "the token has expired".into()),
                401,
                format!(
                    r#"Bearer error="invalid_token", error_description="the token has expired", scope="files:read", {place}"#
                ),
            ),
            (
                Denied::Malformed("no \"token\"\n".into()),
                400,
                format!(
                    r#"Bearer error="invalid_request", error_description="no token", scope="files:read", {place}"#
                ),
            ),
            (
                Denied::TooLittle(Scheme::Bearer, more),
                403,
                format!(
                    r#"Bearer error="insufficient_scope", error_description="the token allows too little", scope="files:read files:write", {place}"#
                ),
            ),
            (
                Denied::BadProof("it is a replay".into()),
                401,
                format!(
                    r#"DPoP error="invalid_dpop_proof", error_description="it is a replay", scope="files:read", {place}, algs="ES256 ES384 Ed25519 EdDSA PS256 PS384 PS512 RS256 RS384 RS512""#
                ),
            ),
        ] {
            assert_eq!(
                challenge(&denied),
                (StatusCode::from_u16(status).unwrap(), Some(expected))
            );
        }
    }

    #[test]
    fn nobody_is_sent_for_a_token_when_the_fault_is_ours() {
        let unavailable = challenge(&Denied::Unavailable("no keys".into()));

        assert_eq!(unavailable, (StatusCode::SERVICE_UNAVAILABLE, None));
    }
}
