//! Validation of the `Host` and `Origin` headers.
//!
//! A web page can make a browser post to a server on the user's machine and, by DNS rebinding, read the response. It
//! cannot forge these two headers.

use core::net::Ipv6Addr;
use std::collections::BTreeSet;

use ::http::header::{HOST, HeaderMap, ORIGIN};
use ::http::uri::{Authority, Uri};

/// The hosts and web origins that a server accepts.
///
/// # Examples
///
/// ```
/// use bowline_core::http::source_policy::SourcePolicy;
/// use http::{HeaderMap, Uri, header::{HOST, ORIGIN}};
///
/// let policy = SourcePolicy::loopback().allow_origin("https://app.example");
/// let mut headers = HeaderMap::new();
/// headers.insert(HOST, "127.0.0.1:8000".parse()?);
/// headers.insert(ORIGIN, "https://app.example".parse()?);
/// assert!(policy.check(&Uri::from_static("/mcp"), &headers).is_ok());
/// headers.insert(ORIGIN, "https://evil.example".parse()?);
/// assert!(policy.check(&Uri::from_static("/mcp"), &headers).is_err());
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a policy has no effect until requests are checked against it"]
pub struct SourcePolicy {
    hosts: AllowedHosts,
    origins: AllowedOrigins,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum AllowedHosts {
    Any,
    /// Loopback names, and these.
    LoopbackAnd(BTreeSet<String>),
    Only(BTreeSet<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum AllowedOrigins {
    Any,
    Only(BTreeSet<String>),
}

impl SourcePolicy {
    /// Accepts loopback hosts and loopback origins; for a server that listens on this machine only.
    pub fn loopback() -> Self {
        Self {
            hosts: AllowedHosts::LoopbackAnd(BTreeSet::new()),
            origins: AllowedOrigins::Only(BTreeSet::new()),
        }
    }

    /// Accepts any host, and no origin until it is [allowed](Self::allow_origin); for a server that others can reach.
    pub fn public() -> Self {
        Self::loopback().allow_any_host()
    }

    /// Accepts this host at any port. A public policy then accepts only the allowed hosts.
    pub fn allow_host(mut self, host: impl AsRef<str>) -> Self {
        let host = host.as_ref().to_ascii_lowercase();
        match &mut self.hosts {
            AllowedHosts::LoopbackAnd(hosts) | AllowedHosts::Only(hosts) => {
                hosts.insert(host);
            }
            AllowedHosts::Any => self.hosts = AllowedHosts::Only([host].into()),
        }
        self
    }

    /// Accepts every host. Loopback origins are then accepted only if they are [allowed](Self::allow_origin).
    pub fn allow_any_host(mut self) -> Self {
        self.hosts = AllowedHosts::Any;
        self
    }

    /// Accepts requests from web pages of this origin, such as `https://app.example:8443`.
    pub fn allow_origin(mut self, origin: impl AsRef<str>) -> Self {
        if let AllowedOrigins::Only(origins) = &mut self.origins {
            origins.insert(origin.as_ref().to_ascii_lowercase());
        }
        self
    }

    /// Accepts every host and every origin.
    ///
    /// Only for servers with other protection, such as an authorization layer.
    pub fn dangerous_allow_all() -> Self {
        Self {
            hosts: AllowedHosts::Any,
            origins: AllowedOrigins::Any,
        }
    }

    /// Checks the `Host` and `Origin` of a request.
    ///
    /// # Errors
    ///
    /// If the host is not allowed, or there is an origin and it is not allowed.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ForbiddenSource> {
        if !self.hosts.allow(uri, headers) {
            return Err(ForbiddenSource::Host);
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        match (origins.next(), origins.next()) {
            // Not a browser: browsers send `Origin` with every POST.
            (None, _) => Ok(()),
            (Some(origin), None) if self.allows_origin(origin.to_str().unwrap_or_default()) => {
                Ok(())
            }
            _ => Err(ForbiddenSource::Origin),
        }
    }

    fn allows_origin(&self, origin: &str) -> bool {
        let AllowedOrigins::Only(allowed) = &self.origins else {
            return true;
        };
        allowed.contains(&origin.to_ascii_lowercase())
            || (matches!(self.hosts, AllowedHosts::LoopbackAnd(_)) && is_loopback_origin(origin))
    }
}

/// The header because of which a request is rejected with status 403.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForbiddenSource {
    /// The host is not allowed.
    #[error(
        "the host is not allowed; add it to the allowed hosts of the server (`--allow-host` of `bowline bridge`)"
    )]
    Host,
    /// The origin is not allowed.
    #[error(
        "the origin is not allowed; add it to the allowed origins of the server (`--cors` of `bowline bridge`)"
    )]
    Origin,
}

/// Parses a host for [`SourcePolicy::allow_host`]: a name or an address, without a port.
///
/// # Errors
///
/// If no request can have such a host.
///
/// # Examples
///
/// ```
/// use bowline_core::http::source_policy::parse_host;
///
/// assert_eq!(parse_host("tools.example").unwrap(), "tools.example");
/// assert_eq!(parse_host("::1").unwrap(), "[::1]");
/// assert!(parse_host("https://tools.example").is_err());
/// ```
pub fn parse_host(text: &str) -> Result<String, InvalidSource> {
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok(format!("[{text}]"));
    }
    match text.parse::<Authority>() {
        Ok(authority) if authority.host() == text && text != "*" => Ok(text.to_owned()),
        _ => Err(InvalidSource::Host(text.to_owned())),
    }
}

/// Parses an origin for [`SourcePolicy::allow_origin`], and removes the default port, which browsers do not send.
///
/// # Errors
///
/// If no request can have such an origin.
///
/// # Examples
///
/// ```
/// use bowline_core::http::source_policy::parse_origin;
///
/// assert_eq!(parse_origin("https://app.example:443").unwrap(), "https://app.example");
/// assert!(parse_origin("app.example").is_err());
/// ```
pub fn parse_origin(text: &str) -> Result<String, InvalidSource> {
    let parsed = text.split_once("://").and_then(|(scheme, authority)| {
        let is_scheme = |it: u8| it.is_ascii_alphanumeric() || b"+-.".contains(&it);
        let is_valid = !scheme.is_empty() && scheme.bytes().all(is_scheme);
        let authority = authority.parse::<Authority>().ok();
        let authority = authority.filter(|it| is_valid && !it.as_str().contains('@'))?;
        let port = match (scheme, authority.port_u16()) {
            (_, None) | ("http", Some(80)) | ("https", Some(443)) => String::new(),
            (_, Some(port)) => format!(":{port}"),
        };
        Some(format!("{scheme}://{}{port}", authority.host()))
    });
    parsed.ok_or_else(|| InvalidSource::Origin(text.to_owned()))
}

/// A text that is no host or no origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSource {
    /// Not a host.
    #[error("expected a host such as `tools.example`, without scheme, port and path, got `{0}`")]
    Host(String),
    /// Not an origin.
    #[error("expected an origin such as `https://app.example:8443`, without a path, got `{0}`")]
    Origin(String),
}

impl AllowedHosts {
    fn allow(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let (allowed, loopback) = match self {
            Self::Any => return true,
            Self::LoopbackAnd(hosts) => (hosts, true),
            Self::Only(hosts) => (hosts, false),
        };
        if loopback && has_loopback_host(headers) {
            return true;
        }
        let Some(host) = requested_host(uri, headers) else {
            return false;
        };
        allowed.contains(&host) || (loopback && is_loopback(&host))
    }
}

/// Returns the requested host in lower case. HTTP/2 has it in the URI (`:authority`).
fn requested_host(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(HOST).iter();
    let authority = match (values.next(), values.next()) {
        (None, _) => uri.authority()?.clone(),
        (Some(value), None) => Authority::try_from(value.as_bytes()).ok()?,
        (Some(_), Some(_)) => return None,
    };
    Some(authority.host().to_ascii_lowercase())
}

/// Fast path: returns whether the only `Host` is a loopback name in lower case, without parsing an `Authority`.
fn has_loopback_host(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(HOST).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return false;
    };
    let value = value.as_bytes();
    let (host, port) = match value.iter().rposition(|byte| *byte == b':') {
        Some(colon) if value.last() != Some(&b']') => value.split_at(colon),
        _ => (value, &[][..]),
    };
    std::str::from_utf8(host).is_ok_and(is_loopback) && port.iter().skip(1).all(u8::is_ascii_digit)
}

fn is_loopback_origin(origin: &str) -> bool {
    let authority = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    authority
        .and_then(|authority| authority.parse::<Authority>().ok())
        .is_some_and(|authority| is_loopback(&authority.host().to_ascii_lowercase()))
}

fn is_loopback(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        policy: &SourcePolicy,
        host: &str,
        origin: Option<&str>,
    ) -> Result<(), ForbiddenSource> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        policy.check(&Uri::from_static("/mcp"), &headers)
    }

    #[test]
    fn a_loopback_policy_accepts_loopback_hosts_and_allowed_ones() {
        let policy = SourcePolicy::loopback().allow_host("Box.local");

        for host in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:9",
            "[::1]",
            "[::1]:80",
            "box.LOCAL:1",
        ] {
            assert_eq!(check(&policy, host, None), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "evil.example:127",
            "localhost@evil.example",
            "127.0.0.2",
            "",
        ] {
            assert_eq!(
                check(&policy, host, None),
                Err(ForbiddenSource::Host),
                "{host}"
            );
        }
    }

    #[test]
    fn usual_loopback_hosts_are_recognized_without_parsing() {
        let is_recognized = |host: &'static str| {
            let host = http::HeaderValue::from_static(host);
            has_loopback_host(&HeaderMap::from_iter([(HOST, host)]))
        };

        for host in [
            "localhost",
            "localhost:80",
            "127.0.0.1:9",
            "[::1]",
            "[::1]:80",
        ] {
            assert!(is_recognized(host), "{host}");
        }
        // These are left to the parser.
        for host in [
            "LOCALHOST",
            "localhost:x",
            "a@localhost:80",
            "::1",
            "[::1]x:80",
        ] {
            assert!(!is_recognized(host), "{host}");
        }
    }

    #[test]
    fn a_loopback_policy_accepts_loopback_origins_and_allowed_ones() {
        let policy = SourcePolicy::loopback().allow_origin("https://App.example");

        for origin in [
            "http://localhost:3000",
            "https://127.0.0.1",
            "http://[::1]:1",
            "https://app.example",
        ] {
            assert_eq!(
                check(&policy, "localhost", Some(origin)),
                Ok(()),
                "{origin}"
            );
        }
        for origin in [
            "http://evil.example",
            "http://localhost.evil.example",
            "http://localhost@evil.example",
            "https://app.example:8443",
            "http://app.example",
            "file://localhost",
            "null",
            "",
            "localhost",
        ] {
            let checked = check(&policy, "localhost", Some(origin));
            assert_eq!(checked, Err(ForbiddenSource::Origin), "{origin}");
        }
    }

    #[test]
    fn a_host_has_the_form_of_the_header_without_a_port() {
        for (text, host) in [
            ("tools.example", "tools.example"),
            ("10.0.0.7", "10.0.0.7"),
            ("[2001:db8::7]", "[2001:db8::7]"),
            ("2001:db8::7", "[2001:db8::7]"),
        ] {
            let parsed = parse_host(text).unwrap();
            assert_eq!(parsed, host);
            let policy = SourcePolicy::public().allow_host(parsed);
            assert_eq!(check(&policy, &format!("{host}:80"), None), Ok(()));
        }
        for wrong in [
            "",
            "*",
            "https://a.example",
            "a.example:80",
            "a.example/mcp",
            "a b",
            "me@a.example",
        ] {
            assert!(parse_host(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_origin_has_the_form_of_the_header() {
        for (text, origin) in [
            ("https://app.example", "https://app.example"),
            ("https://app.example:443", "https://app.example"),
            ("http://app.example:8080", "http://app.example:8080"),
            ("http://[::1]:80", "http://[::1]"),
            ("chrome-extension://abcdef", "chrome-extension://abcdef"),
        ] {
            assert_eq!(parse_origin(text).unwrap(), origin);
        }
        for wrong in [
            "",
            "*",
            "null",
            "app.example",
            "https://",
            "https://a.example/",
            "https://me@a.example",
            "://a",
        ] {
            assert!(parse_origin(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_page_that_uses_dns_rebinding_is_rejected() {
        let policy = SourcePolicy::loopback();

        let checked = check(&policy, "evil.example", Some("http://evil.example"));

        assert_eq!(checked, Err(ForbiddenSource::Host));
    }

    #[test]
    fn a_public_policy_accepts_no_origin_unless_allowed() {
        let policy = SourcePolicy::public().allow_origin("https://app.example");

        assert_eq!(check(&policy, "mcp.example", None), Ok(()));
        assert_eq!(
            check(&policy, "mcp.example", Some("https://app.example")),
            Ok(())
        );
        for origin in ["https://mcp.example", "http://localhost"] {
            let checked = check(&policy, "mcp.example", Some(origin));
            assert_eq!(checked, Err(ForbiddenSource::Origin), "{origin}");
        }
    }

    #[test]
    fn a_public_policy_with_hosts_accepts_only_those() {
        let policy = SourcePolicy::public().allow_host("mcp.example");

        assert_eq!(check(&policy, "mcp.example:443", None), Ok(()));
        assert_eq!(
            check(&policy, "localhost", None),
            Err(ForbiddenSource::Host)
        );
    }

    #[test]
    fn the_host_may_be_in_the_uri_and_must_not_be_missing_or_repeated() {
        let policy = SourcePolicy::loopback();
        let mut repeated = HeaderMap::new();
        repeated.append(HOST, "localhost".parse().unwrap());
        repeated.append(HOST, "evil.example".parse().unwrap());

        let in_uri = Uri::from_static("http://localhost:80/mcp");
        assert_eq!(policy.check(&in_uri, &HeaderMap::new()), Ok(()));
        let path = Uri::from_static("/mcp");
        assert_eq!(
            policy.check(&path, &HeaderMap::new()),
            Err(ForbiddenSource::Host)
        );
        assert_eq!(policy.check(&path, &repeated), Err(ForbiddenSource::Host));
    }

    #[test]
    fn dangerous_allow_all_accepts_every_host_and_origin() {
        let policy = SourcePolicy::dangerous_allow_all();

        assert_eq!(
            check(&policy, "a.example", Some("http://b.example")),
            Ok(())
        );
    }
}
