//! Validation of URLs for URL-mode elicitation.

/// A URL must not be used for URL-mode elicitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnfitUrl {
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

/// Validates a URL that a user is asked to visit. Schemes such as `javascript:` can execute code in the application, and a user name
/// before the host can disguise the host.
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
pub fn check_url(url: &str) -> Result<(), UnfitUrl> {
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || c == '\\';
    if url.contains(is_odd) {
        return Err(UnfitUrl::Character);
    }
    let (scheme, rest) = url.split_once("://").ok_or(UnfitUrl::Scheme)?;
    if !["https", "http"]
        .iter()
        .any(|it| scheme.eq_ignore_ascii_case(it))
    {
        return Err(UnfitUrl::Scheme);
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority
        .rsplit_once(':')
        .map_or(authority, |(host, port)| {
            // An IPv6 address has colons within its brackets.
            if port.ends_with(']') { authority } else { host }
        });
    match host.is_empty() || authority.contains('@') {
        true => Err(UnfitUrl::Host),
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
            ("", UnfitUrl::Scheme),
            ("example.com", UnfitUrl::Scheme),
            ("javascript:alert(1)", UnfitUrl::Scheme),
            ("javascript://example.com/%0Aalert(1)", UnfitUrl::Scheme),
            ("file:///etc/passwd", UnfitUrl::Scheme),
            ("data:text/html,x", UnfitUrl::Scheme),
            ("https:///path", UnfitUrl::Host),
            ("https://:80/", UnfitUrl::Host),
            ("https://bank.example@evil.example/", UnfitUrl::Host),
            ("https://bank.example\\@evil.example/", UnfitUrl::Character),
            ("https://a b/", UnfitUrl::Character),
            ("https://a/\n", UnfitUrl::Character),
        ] {
            assert_eq!(check_url(url), Err(why), "{url:?}");
        }
    }
}
