//! [`AddressPolicy`]: decides which URLs from servers may be requested, against server-side request forgery.
//!
//! Without it, a server could make its clients send requests into networks that the server itself cannot reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bowline::http::RedactedUrl;
use url::{Host, Url};

use super::{Error, Result};

/// The set of addresses that may be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressPolicy {
    /// Public addresses, over TLS.
    Public,
    /// Also this machine, without TLS: the MCP server runs here too.
    ThisMachine,
    /// Also private networks, over TLS, and this machine.
    Private,
}

impl AddressPolicy {
    /// Returns the default policy for a server at this URL.
    pub(crate) fn for_server(server: &Url) -> Self {
        match server.host() {
            Some(host) if is_this_machine(&host) => Self::ThisMachine,
            _ => Self::Public,
        }
    }

    /// Parses a URL from a server, if it may be requested. `what` names it in the error.
    pub(crate) fn admit(self, what: &str, address: &str) -> Result<Url> {
        let refused = |why: &str| {
            let address = RedactedUrl::new(address);
            Error::untrusted(format!("{what} `{address}` {why}"))
        };
        let url = Url::parse(address).map_err(|_| refused("is not a URL"))?;
        let Some(host) = url.host() else {
            return Err(refused("has no host"));
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused("contains credentials"));
        }
        let is_here = is_this_machine(&host);
        match url.scheme() {
            "https" => {}
            "http" if is_here && self != Self::Public => {}
            _ => return Err(refused("is not an https:// URL")),
        }
        let is_admitted = match host {
            Host::Domain(_) => !is_here || self != Self::Public,
            Host::Ipv4(address) => self.admits(address.into()),
            Host::Ipv6(address) => self.admits(address.into()),
        };
        if is_admitted {
            Ok(url)
        } else {
            Err(refused("is not a public address"))
        }
    }

    /// Returns whether this address may be requested.
    pub(crate) fn admits(self, address: IpAddr) -> bool {
        match address_kind(address) {
            AddressKind::Public => true,
            AddressKind::ThisMachine => self != Self::Public,
            AddressKind::Private => self == Self::Private,
            AddressKind::Forbidden => false,
        }
    }
}

enum AddressKind {
    Public,
    Private,
    ThisMachine,
    /// Reserved or link-local. Cloud metadata services, which hold credentials, are link-local.
    Forbidden,
}

fn address_kind(address: IpAddr) -> AddressKind {
    match address {
        IpAddr::V4(v4) => kind_of_v4(v4),
        IpAddr::V6(v6) => kind_of_v6(v6),
    }
}

fn kind_of_v4(address: Ipv4Addr) -> AddressKind {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        (127, ..) => AddressKind::ThisMachine,
        (10, ..) | (192, 168, _) | (100, 64..=127, _) | (172, 16..=31, _) => AddressKind::Private,
        (0 | 224.., ..) | (169, 254, _) => AddressKind::Forbidden,
        (192, 0, 0 | 2) | (198, 18..=19, _) | (198, 51, 100) | (203, 0, 113) => {
            AddressKind::Forbidden
        }
        _ => AddressKind::Public,
    }
}

fn kind_of_v6(address: Ipv6Addr) -> AddressKind {
    if address.is_loopback() {
        return AddressKind::ThisMachine;
    }
    let [a, b, c, d, .., x, y] = address.segments();
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        kind_of_v4(Ipv4Addr::new(a, b, c, d))
    };
    match a {
        0 if (b, c, d) == (0, 0, 0) => match address.to_ipv4_mapped() {
            Some(v4) => kind_of_v4(v4),
            None => AddressKind::Forbidden,
        },
        // NAT64 with its well-known prefix. `64:ff9b:1::/48` is for local use, where the target is unknown.
        0x64 if b == 0xff9b && (c, d) == (0, 0) => embedded(x, y),
        0x64 => AddressKind::Forbidden,
        0x2002 => embedded(b, c),
        // Teredo and other tunnels, whose target the tunnel's operator chooses.
        0x2001 if b < 0x200 => AddressKind::Forbidden,
        0x2001 if b == 0xdb8 => AddressKind::Forbidden,
        0x3fff if b < 0x1000 => AddressKind::Forbidden,
        0xfc00..=0xfdff => AddressKind::Private,
        0x2000..=0x3fff => AddressKind::Public,
        _ => AddressKind::Forbidden,
    }
}

fn is_this_machine(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => {
            let name = name.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost")
        }
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_within_the_policy_are_admitted() {
        let (public, here, private) = (
            AddressPolicy::Public,
            AddressPolicy::ThisMachine,
            AddressPolicy::Private,
        );
        // A URL, and the policies that admit it.
        let cases: &[(&str, &[AddressPolicy])] = &[
            ("https://as.example/meta", &[public, here, private]),
            ("https://8.8.8.8/", &[public, here, private]),
            ("https://[2606:4700::1111]/", &[public, here, private]),
            ("http://as.example/meta", &[]),
            ("http://localhost:3000/", &[here, private]),
            ("https://localhost/", &[here, private]),
            ("https://evil.localhost/", &[here, private]),
            ("https://localhost./", &[here, private]),
            ("http://127.0.0.1/", &[here, private]),
            ("http://[::1]:80/", &[here, private]),
            // Other spellings of 127.0.0.1.
            ("http://2130706433/", &[here, private]),
            ("http://0x7f.1/", &[here, private]),
            ("https://[::ffff:127.0.0.1]/", &[here, private]),
            ("https://10.0.0.1/", &[private]),
            ("https://172.31.255.255/", &[private]),
            ("https://192.168.1.1/", &[private]),
            ("https://100.64.0.1/", &[private]),
            ("https://[fd00::1]/", &[private]),
            ("https://[64:ff9b::10.0.0.1]/", &[private]),
            ("http://10.0.0.1/", &[]),
            // Cloud metadata services.
            ("https://169.254.169.254/latest/meta-data/", &[]),
            ("http://169.254.169.254/latest/meta-data/", &[]),
            ("https://[fe80::1]/", &[]),
            ("https://[::ffff:169.254.169.254]/", &[]),
            ("https://[2002:a9fe:a9fe::1]/", &[]),
            ("https://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/", &[]),
            ("https://[64:ff9b:1::a9fe:a9fe]/", &[]),
            ("https://[64:ff9b:1:fffe::808:808]/", &[]),
            ("https://[64:ff9b::a9fe:a9fe]/", &[]),
            ("https://[64:ff9b::808:808]/", &[public, here, private]),
            ("https://[2001:db8::1]/", &[]),
            ("https://[2001:4860:4860::8888]/", &[public, here, private]),
            ("https://[fd00:ec2::254]/", &[private]),
            ("https://0.0.0.0/", &[]),
            ("https://[::]/", &[]),
            ("https://224.0.0.1/", &[]),
            ("https://255.255.255.255/", &[]),
            ("javascript:alert(1)", &[]),
            ("data:text/html,hello", &[]),
            ("file:///etc/passwd", &[]),
            ("ftp://as.example/", &[]),
            ("https://user:word@as.example/", &[]),
            ("/relative", &[]),
            ("", &[]),
        ];

        for (address, admitting) in cases {
            for policy in [public, here, private] {
                let admitted = policy.admit("the address", address).is_ok();
                assert_eq!(
                    admitted,
                    admitting.contains(&policy),
                    "{policy:?} {address}"
                );
            }
        }
    }

    #[test]
    fn a_server_on_this_machine_may_name_loopback_urls() {
        let policy_for = |server| AddressPolicy::for_server(&Url::parse(server).unwrap());

        assert_eq!(
            policy_for("http://localhost:3000/mcp"),
            AddressPolicy::ThisMachine
        );
        assert_eq!(
            policy_for("http://127.0.0.1/mcp"),
            AddressPolicy::ThisMachine
        );
        assert_eq!(policy_for("https://example.com/mcp"), AddressPolicy::Public);
        assert_eq!(policy_for("http://10.0.0.1/mcp"), AddressPolicy::Public);
    }
}
