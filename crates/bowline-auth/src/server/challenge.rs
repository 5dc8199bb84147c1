//! Responses to refused requests: the status, and the `WWW-Authenticate` challenge.

use std::borrow::Cow;
use std::collections::BTreeSet;

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, CACHE_CONTROL, CONTENT_TYPE,
    RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::algorithm::NAMES;
use super::credential::Scheme;
use super::dpop::DPOP_NONCE;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DenialReason {
    /// No token.
    NoToken,
    /// A malformed `Authorization` header.
    Malformed(String),
    /// An invalid token.
    InvalidToken(Scheme, String),
    /// A missing or invalid DPoP proof.
    InvalidProof(String),
    /// A DPoP proof without a valid nonce; contains the nonce to use.
    NonceRequired(String),
    /// Insufficient scope.
    ScopeMissing {
        scheme: Scheme,
        /// All required scopes, which a new token needs.
        required: BTreeSet<String>,
        /// Those that the token lacks.
        missing: Vec<String>,
    },
    /// Too many DPoP proofs.
    TooManyProofs(String),
    /// The token could not be verified now.
    Unavailable(String),
}

/// The parameters that all challenges share.
#[derive(Clone, Debug)]
pub(super) struct ChallengeParams<'a> {
    /// The URL of the protected resource metadata, if there are any.
    pub(super) metadata: Option<&'a str>,
    /// The scopes that every token must have.
    pub(super) scopes: &'a BTreeSet<String>,
    /// The scheme that clients should use.
    pub(super) scheme: Scheme,
}

impl DenialReason {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::NoToken
            | Self::InvalidToken(..)
            | Self::InvalidProof(_)
            | Self::NonceRequired(_) => StatusCode::UNAUTHORIZED,
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::ScopeMissing { .. } => StatusCode::FORBIDDEN,
            Self::TooManyProofs(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the OAuth error code.
    fn error(&self) -> Option<&'static str> {
        match self {
            // A request without a token gets no error code: RFC 6750, section 3.1.
            Self::NoToken | Self::TooManyProofs(_) | Self::Unavailable(_) => None,
            Self::Malformed(_) => Some("invalid_request"),
            Self::InvalidToken(..) => Some("invalid_token"),
            Self::InvalidProof(_) => Some("invalid_dpop_proof"),
            Self::NonceRequired(_) => Some("use_dpop_nonce"),
            Self::ScopeMissing { .. } => Some("insufficient_scope"),
        }
    }

    fn description(&self) -> Cow<'_, str> {
        match self {
            Self::NoToken => "an access token is required".into(),
            Self::Malformed(why)
            | Self::InvalidToken(_, why)
            | Self::InvalidProof(why)
            | Self::TooManyProofs(why)
            | Self::Unavailable(why) => why.into(),
            Self::NonceRequired(_) => {
                "the DPoP proof must contain the nonce of this response".into()
            }
            Self::ScopeMissing { missing, .. } => {
                let noun = match missing.len() {
                    1 => "scope",
                    _ => "scopes",
                };
                format!("the token lacks the {noun} `{}`", missing.join("`, `")).into()
            }
        }
    }
}

impl ChallengeParams<'_> {
    /// Returns the response to a refused request.
    pub(super) fn response(&self, reason: &DenialReason) -> Response<Bytes> {
        let body = serde_json::json!({
            "error": reason.error().unwrap_or("unauthorized"),
            "error_description": reason.description(),
        });
        let mut response = Response::new(Bytes::from(body.to_string()));
        *response.status_mut() = reason.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        // Clients in web pages must be able to read the challenge, which contains nothing private.
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        let exposed = HeaderValue::from_static("www-authenticate, retry-after, dpop-nonce");
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        if let DenialReason::Unavailable(_) | DenialReason::TooManyProofs(_) = reason {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("10"));
        } else {
            self.challenge(reason, headers);
        }
        response
    }

    /// Adds a challenge to the headers of a response.
    pub(super) fn challenge(&self, reason: &DenialReason, headers: &mut HeaderMap) {
        let used = match reason {
            DenialReason::InvalidToken(scheme, _) | DenialReason::ScopeMissing { scheme, .. } => {
                *scheme
            }
            DenialReason::InvalidProof(_) | DenialReason::NonceRequired(_) => Scheme::Dpop,
            DenialReason::NoToken
            | DenialReason::Malformed(_)
            | DenialReason::TooManyProofs(_)
            | DenialReason::Unavailable(_) => self.scheme,
        };
        if let DenialReason::NonceRequired(nonce) = reason {
            let nonce = HeaderValue::try_from(nonce).expect("base64 is visible ASCII");
            headers.insert(DPOP_NONCE, nonce);
        }
        let mut params = Vec::new();
        if let Some(error) = reason.error() {
            params.push(("error", error.to_owned()));
            params.push(("error_description", quotable(&reason.description())));
        }
        let scopes = match reason {
            DenialReason::ScopeMissing { required, .. } => required,
            _ => self.scopes,
        };
        if !scopes.is_empty() {
            let scopes: Vec<_> = scopes.iter().map(String::as_str).collect();
            params.push(("scope", quotable(&scopes.join(" "))));
        }
        if let Some(metadata) = self.metadata {
            params.push(("resource_metadata", quotable(metadata)));
        }
        let scheme = match used.stricter_of(self.scheme) {
            Scheme::Bearer => "Bearer",
            Scheme::Dpop => {
                let algorithms: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
                params.push(("algs", algorithms.join(" ")));
                "DPoP"
            }
        };
        let params = params
            .iter()
            .map(|(name, value)| format!("{name}=\"{value}\""));
        let value = format!("{scheme} {}", params.collect::<Vec<_>>().join(", "));
        let value = value.trim_end();
        let value = HeaderValue::try_from(value).expect("quotable text is visible ASCII");
        headers.insert(WWW_AUTHENTICATE, value);
    }
}

impl Scheme {
    /// Returns the stricter of two schemes.
    fn stricter_of(self, other: Self) -> Self {
        match (self, other) {
            (Self::Bearer, Self::Bearer) => Self::Bearer,
            _ => Self::Dpop,
        }
    }
}

/// Removes the characters that are not allowed in a quoted parameter.
fn quotable(text: &str) -> String {
    let is_quotable = |letter: &char| matches!(letter, ' '..='~') && !matches!(letter, '"' | '\\');
    text.chars().filter(is_quotable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn challenge(reason: &DenialReason) -> (StatusCode, Option<String>) {
        let scopes = BTreeSet::from(["files:read".to_owned()]);
        let params = ChallengeParams {
            metadata: Some("https://h/.well-known/oauth-protected-resource/mcp"),
            scopes: &scopes,
            scheme: Scheme::Bearer,
        };
        let response = params.response(reason);
        let header = response.headers().get(WWW_AUTHENTICATE);
        let header = header.map(|value| value.to_str().unwrap().to_owned());
        (response.status(), header)
    }

    #[test]
    fn each_denial_has_its_status_and_challenge() {
        let more = BTreeSet::from(["files:read".to_owned(), "files:write".to_owned()]);
        let metadata = r#"resource_metadata="https://h/.well-known/oauth-protected-resource/mcp""#;
        for (reason, status, expected) in [
            (
                DenialReason::NoToken,
                401,
                format!(r#"Bearer scope="files:read", {metadata}"#),
            ),
            (
                DenialReason::InvalidToken(Scheme::Bearer, "the token has expired".into()),
                401,
                format!(
                    r#"Bearer error="invalid_token", error_description="the token has expired", scope="files:read", {metadata}"#
                ),
            ),
            (
                DenialReason::Malformed("no \"token\"\n".into()),
                400,
                format!(
                    r#"Bearer error="invalid_request", error_description="no token", scope="files:read", {metadata}"#
                ),
            ),
            (
                DenialReason::ScopeMissing {
                    scheme: Scheme::Bearer,
                    required: more,
                    missing: vec!["files:write".to_owned()],
                },
                403,
                format!(
                    r#"Bearer error="insufficient_scope", error_description="the token lacks the scope `files:write`", scope="files:read files:write", {metadata}"#
                ),
            ),
            (
                DenialReason::InvalidProof("it is a replay".into()),
                401,
                format!(
                    r#"DPoP error="invalid_dpop_proof", error_description="it is a replay", scope="files:read", {metadata}, algs="ES256 ES384 Ed25519 EdDSA PS256 PS384 PS512 RS256 RS384 RS512""#
                ),
            ),
        ] {
            assert_eq!(
                challenge(&reason),
                (StatusCode::from_u16(status).unwrap(), Some(expected))
            );
        }
    }

    #[test]
    fn a_503_has_no_challenge() {
        let unavailable = challenge(&DenialReason::Unavailable("no keys".into()));

        assert_eq!(unavailable, (StatusCode::SERVICE_UNAVAILABLE, None));
    }
}
