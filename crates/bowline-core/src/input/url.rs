//! Validation of URLs for URL-mode elicitation.

/// The reason a URL must not be used for URL-mode elicitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidElicitationUrl {
    /// The scheme is neither `https` nor `http`.
    #[error("the URL scheme must be https or http")]
    Scheme,
    /// There is no host, or there is a user name or password before it.
    #[error("the URL must have a host and no user name or password")]
    Host,
    /// It contains white space, a control character or a backslash.
    #[error("the URL must not contain white space, control characters or backslashes")]
    Character,
}

/// Validates the URL of a URL-mode elicitation. Schemes such as `javascript:` can execute code in the application, and
/// a user name before the host can disguise the host.
///
/// # Errors
///
/// If the URL must not be used.
///
/// # Examples
///
/// ```
/// use bowline_core::input::check_url;
///
/// assert!(check_url("https://example.com/pay?order=7").is_ok());
/// assert!(check_url("javascript:alert(1)").is_err());
/// assert!(check_url("https://bank.example@evil.example/").is_err());
/// ```
pub fn check_url(url: &str) -> Result<(), InvalidElicitationUrl> {
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || c == '\\';
    if url.contains(is_odd) {
        return Err(InvalidElicitationUrl::Character);
    }
    let (scheme, rest) = url.split_once("://").ok_or(InvalidElicitationUrl::Scheme)?;
    if !["https", "http"]
        .iter()
        .any(|it| scheme.eq_ignore_ascii_case(it))
    {
        return Err(InvalidElicitationUrl::Scheme);
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority
        .rsplit_once(':')
        .map_or(authority, |(host, port)| {
            // An IPv6 address has colons within its brackets.
            if port.ends_with(']') { authority } else { host }
        });
    match host.is_empty() || authority.contains('@') {
        true => Err(InvalidElicitationUrl::Host),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_urls_with_a_plain_host_are_valid() {
        for fine in [
            "https://example.com",
            "HTTPS://example.com/a?b#c",
            "http://localhost:8080/",
            "http://[::1]:80/",
            "https://[::1]",
            "https://exämple.org/@ada",
        ] {
            assert_eq!(check_url(fine), Ok(()), "{fine}");
        }
        for (url, why) in [
            ("", InvalidElicitationUrl::Scheme),
            ("example.com", InvalidElicitationUrl::Scheme),
            ("javascript:alert(1)", InvalidElicitationUrl::Scheme),
            (
                "javascript://example.com/%0Aalert(1)",
                InvalidElicitationUrl::Scheme,
            ),
            ("file:///etc/passwd", InvalidElicitationUrl::Scheme),
            ("data:text/html,x", InvalidElicitationUrl::Scheme),
            ("https:///path", InvalidElicitationUrl::Host),
            ("https://:80/", InvalidElicitationUrl::Host),
            (
                "https://bank.example@evil.example/",
                InvalidElicitationUrl::Host,
            ),
            (
                "https://bank.example\\@evil.example/",
                InvalidElicitationUrl::Character,
            ),
            ("https://a b/", InvalidElicitationUrl::Character),
            ("https://a/\n", InvalidElicitationUrl::Character),
        ] {
            assert_eq!(check_url(url), Err(why), "{url:?}");
        }
    }
}
