//! Where a request may come from: its `Host` and its `Origin`.
//!
//! A web page can make a browser post to a server on the user's own machine, and by rebinding a DNS name
//! even read the answer. The browser cannot be made to lie in these two headers.

use std::collections::BTreeSet;

use ::http::header::{HOST, HeaderMap, ORIGIN};
use ::http::uri::{Authority, Uri};

/// Which hosts a server answers to, and which web pages may talk to it.
///
/// # Examples
///
/// ```
/// use bowline_core::http::source::SourcePolicy;
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
#[must_use = "a policy protects only where it is checked"]
pub struct SourcePolicy {
    hosts: Hosts,
    origins: Origins,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    Any,
    /// Names of this machine, and these.
    LoopbackAnd(BTreeSet<String>),
    Only(BTreeSet<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Origins {
    Any,
    Only(BTreeSet<String>),
}

impl SourcePolicy {
    /// For a server that listens on this machine only: it is called by a name of this machine, and so are
    /// the pages that may talk to it.
    pub fn loopback() -> Self {
        Self {
            hosts: Hosts::LoopbackAnd(BTreeSet::new()),
            origins: Origins::Only(BTreeSet::new()),
        }
    }

    /// For a server that others can reach: it may be called by any name, and no page may talk to it until
    /// its origin is allowed.
    pub fn public() -> Self {
        Self {
            hosts: Hosts::Any,
            origins: Origins::Only(BTreeSet::new()),
        }
    }

    /// Also answers to this name, at any port; a public server then answers to allowed names only.
    pub fn allow_host(mut self, host: impl AsRef<str>) -> Self {
        let host = host.as_ref().to_ascii_lowercase();
        match &mut self.hosts {
            Hosts::LoopbackAnd(hosts) | Hosts::Only(hosts) => {
                hosts.insert(host);
            }
            Hosts::Any => self.hosts = Hosts::Only([host].into()),
        }
        self
    }

    /// Lets pages of this origin, such as `https://app.example:8443`, talk to the server.
    pub fn allow_origin(mut self, origin: impl AsRef<str>) -> Self {
        if let Origins::Only(origins) = &mut self.origins {
            origins.insert(origin.as_ref().to_ascii_lowercase());
        }
        self
    }

    /// Lets every web page talk to the server, and answers to every name.
    ///
    /// Only for servers that something else protects, such as an authorization layer.
    pub fn dangerous_allow_all() -> Self {
        Self {
            hosts: Hosts::Any,
            origins: Origins::Any,
        }
    }

    /// Checks where a request comes from.
    ///
    /// # Errors
    ///
    /// If the host is not one that this server answers to, or there is an origin and it is not allowed.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Forbidden> {
        if !self.hosts.allow(uri, headers) {
            return Err(Forbidden::Host);
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        match (origins.next(), origins.next()) {
            (None, _) => Ok(()),
            (Some(origin), None) if self.allows_origin(origin.to_str().unwrap_or_default()) => {
                Ok(())
            }
            _ => Err(Forbidden::Origin),
        }
    }

    fn allows_origin(&self, origin: &str) -> bool {
        let Origins::Only(allowed) = &self.origins else {
            return true;
        };
        allowed.contains(&origin.to_ascii_lowercase())
            || (matches!(self.hosts, Hosts::LoopbackAnd(_)) && is_loopback_origin(origin))
    }
}

/// Which header forbids a request. It is answered with 403 whatever it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Forbidden {
    /// The server does not answer to this name.
    #[error(
        "the host is not one that this server answers to; `allow_host` of its `SourcePolicy` adds it"
    )]
    Host,
    /// Pages of this origin may not talk to the server.
    #[error("the origin is not allowed; `allow_origin` of the server's `SourcePolicy` adds it")]
    Origin,
}

impl Hosts {
    fn allow(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let (allowed, loopback) = match self {
            Self::Any => return true,
            Self::LoopbackAnd(hosts) => (hosts, true),
            Self::Only(hosts) => (hosts, false),
        };
        if loopback && names_loopback(headers) {
            return true;
        }
        let Some(host) = host_of(uri, headers) else {
            return false;
        };
        allowed.contains(&host) || (loopback && is_loopback(&host))
    }
}

/// The name the server was called by, in lower case. HTTP/2 puts it into the URI.
fn host_of(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(HOST).iter();
    let authority = match (values.next(), values.next()) {
        (None, _) => uri.authority()?.clone(),
        (Some(value), None) => Authority::try_from(value.as_bytes()).ok()?,
        (Some(_), Some(_)) => return None,
    };
    Some(authority.host().to_ascii_lowercase())
}

/// Whether the one `Host` is this machine, written as clients write it. Others are looked at more closely.
fn names_loopback(headers: &HeaderMap) -> bool {
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

    fn check(policy: &SourcePolicy, host: &str, origin: Option<&str>) -> Result<(), Forbidden> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        policy.check(&Uri::from_static("/mcp"), &headers)
    }

    #[test]
    fn a_loopback_server_answers_to_this_machine_only() {
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
            assert_eq!(check(&policy, host, None), Err(Forbidden::Host), "{host}");
        }
    }

    #[test]
    fn a_loopback_server_talks_to_pages_of_this_machine_and_allowed_ones() {
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
            assert_eq!(checked, Err(Forbidden::Origin), "{origin}");
        }
    }

    #[test]
    fn a_page_that_rebinds_its_own_name_is_refused() {
        let policy = SourcePolicy::loopback();

        let checked = check(&policy, "evil.example", Some("http://evil.example"));

        assert_eq!(checked, Err(Forbidden::Host));
    }

    #[test]
    fn a_public_server_talks_to_no_page_unless_allowed() {
        let policy = SourcePolicy::public().allow_origin("https://app.example");

        assert_eq!(check(&policy, "mcp.example", None), Ok(()));
        assert_eq!(
            check(&policy, "mcp.example", Some("https://app.example")),
            Ok(())
        );
        for origin in ["https://mcp.example", "http://localhost"] {
            let checked = check(&policy, "mcp.example", Some(origin));
            assert_eq!(checked, Err(Forbidden::Origin), "{origin}");
        }
    }

    #[test]
    fn a_public_server_with_names_answers_to_them_only() {
        let policy = SourcePolicy::public().allow_host("mcp.example");

        assert_eq!(check(&policy, "mcp.example:443", None), Ok(()));
        assert_eq!(check(&policy, "localhost", None), Err(Forbidden::Host));
    }

    #[test]
    fn the_host_may_stand_in_the_uri_and_must_not_be_missing_or_repeated() {
        let policy = SourcePolicy::loopback();
        let mut repeated = HeaderMap::new();
        repeated.append(HOST, "localhost".parse().unwrap());
        repeated.append(HOST, "evil.example".parse().unwrap());

        let in_uri = Uri::from_static("http://localhost:80/mcp");
        assert_eq!(policy.check(&in_uri, &HeaderMap::new()), Ok(()));
        let path = Uri::from_static("/mcp");
        assert_eq!(policy.check(&path, &HeaderMap::new()), Err(Forbidden::Host));
        assert_eq!(policy.check(&path, &repeated), Err(Forbidden::Host));
    }

    #[test]
    fn everything_is_allowed_only_by_a_dangerous_name() {
        let policy = SourcePolicy::dangerous_allow_all();

        assert_eq!(
            check(&policy, "a.example", Some("http://b.example")),
            Ok(())
        );
    }
}
