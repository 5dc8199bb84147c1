//! [`Credential`]: the token in the `Authorization` header.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};

use super::AccessToken;

/// An access token and its authentication scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Credential {
    pub(super) scheme: Scheme,
    pub(super) token: AccessToken,
}

/// An HTTP authentication scheme for access tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// RFC 6750.
    Bearer,
    /// RFC 9449: the request also has a DPoP proof.
    Dpop,
}

impl Credential {
    /// Parses the `Authorization` header. Tokens elsewhere, such as in the URL, and other schemes are ignored.
    pub(super) fn read(headers: &HeaderMap) -> Result<Option<Self>, &'static str> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            return Err("expected one `Authorization` header, got several");
        }
        let value = value
            .to_str()
            .map_err(|_| "the `Authorization` header is not ASCII")?;
        let (scheme, token) = value.split_once(' ').unwrap_or((value, ""));
        let scheme = if scheme.eq_ignore_ascii_case("Bearer") {
            Scheme::Bearer
        } else if scheme.eq_ignore_ascii_case("DPoP") {
            Scheme::Dpop
        } else {
            return Ok(None);
        };
        let token = token.trim_start_matches(' ');
        if !Self::is_token(token) {
            return Err("the `Authorization` header has an invalid token");
        }
        let token = AccessToken::new(token);
        Ok(Some(Self { scheme, token }))
    }

    /// Returns whether this is a `token68` (RFC 9110) of an acceptable length.
    pub(super) fn is_token(text: &str) -> bool {
        let body = text.trim_end_matches('=');
        let is_token68 = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
        !body.is_empty() && text.len() <= MAX_TOKEN_BYTES && body.bytes().all(is_token68)
    }
}

/// The SHA-256 digest of a token, for places that keep many tokens or compare them.
pub(super) type TokenDigest = [u8; 32];

pub(super) fn token_digest(token: &str) -> TokenDigest {
    Sha256::digest(token).into()
}

const MAX_TOKEN_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[&str]) -> Result<Option<Credential>, &'static str> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, value.parse().unwrap());
        }
        Credential::read(&headers)
    }

    #[test]
    fn bearer_and_dpop_tokens_are_parsed() {
        for (value, scheme) in [
            ("Bearer abc.def-_~+/==", Scheme::Bearer),
            ("bearer  abc.def-_~+/==", Scheme::Bearer),
            ("DPoP abc.def-_~+/==", Scheme::Dpop),
        ] {
            let credential = read(&[value]).unwrap().unwrap();

            assert_eq!(credential.scheme, scheme, "{value}");
            assert_eq!(credential.token.as_str(), "abc.def-_~+/==", "{value}");
        }
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["Basic YTpi"]), Ok(None));
    }

    #[test]
    fn malformed_tokens_are_refused() {
        let long = format!("Bearer {}", "a".repeat(MAX_TOKEN_BYTES + 1));
        for values in [
            &["Bearer"][..],
            &["Bearer "],
            &["Bearer a b"],
            &["Bearer a,b"],
            &["Bearer \"a\""],
            &["Bearer =="],
            &["Bearer a=b"],
            &[&long],
            &["Bearer a", "Bearer b"],
        ] {
            assert!(read(values).is_err(), "{values:?}");
        }
    }
}
