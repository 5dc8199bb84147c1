//! Where a user may be sent.

/// A user must not be sent there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnfitUrl {
    /// It is not one of the web.
    #[error("a user is sent to `https://` and `http://` URLs only")]
    Scheme,
    /// It has no host, or hides it.
    #[error("a URL for a user names its host, and no user or password before it")]
    Host,
    /// It contains what no URL contains.
    #[error("a URL has no spaces, control characters or backslashes")]
    Character,
}

/// Checks a URL that a user is to be sent to: other schemes than those of the web can make a host run something, and a name before
/// the host can make one host look like another.
///
/// # Errors
///
/// If the user must not be sent there.
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
            // The colons of an IPv6 address are within brackets.
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
    fn users_are_sent_to_hosts_of_the_web_only() {
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
