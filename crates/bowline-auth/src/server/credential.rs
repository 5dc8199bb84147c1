//! The token that a request brings, if it brings one.

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::AccessToken;

/// A token, and how it was brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Credential {
    pub(super) scheme: Scheme,
    pub(super) token: AccessToken,
}

/// How a token is brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// By whoever has it.
    Bearer,
    /// By whoever has its key too, and proves it.
    Dpop,
}

impl Credential {
    /// Reads the `Authorization` header. A token anywhere else, in the URL for instance, does not count; nor
    /// does a credential of another kind.
    pub(super) fn read(headers: &HeaderMap) -> Result<Option<Self>, &'static str> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            return Err("there are several `Authorization` headers");
        }
        let value = value
            .to_str()
            .map_err(|_| "the `Authorization` header is no text")?;
        let (scheme, token) = value.split_once(' ').unwrap_or((value, ""));
        let scheme = if scheme.eq_ignore_ascii_case("Bearer") {
            Scheme::Bearer
        } else if scheme.eq_ignore_ascii_case("DPoP") {
            Scheme::Dpop
        } else {
            return Ok(None);
        };
        let token = token.trim_start_matches(' ');
        if !is_token(token) {
            return Err("the `Authorization` header holds no token");
        }
        let token = AccessToken::new(token);
        Ok(Some(Self { scheme, token }))
    }
}

/// Whether this is a `token68` of RFC 9110, of a length that a token may have.
fn is_token(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    !body.is_empty() && text.len() <= LONGEST && body.bytes().all(is_fine)
}

const LONGEST: usize = 16 * 1024;

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
    fn a_token_is_brought_in_one_of_two_ways() {
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
    fn what_is_no_token_is_malformed() {
        let long = format!("Bearer {}", "a".repeat(LONGEST + 1));
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
