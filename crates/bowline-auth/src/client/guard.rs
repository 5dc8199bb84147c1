//! Where a client goes when a server names an address: to public hosts, over TLS.
//!
//! A server could otherwise make its clients send requests into networks that it does not reach itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

use super::{Error, Result};

/// Decides which addresses are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Public hosts, over TLS.
    Public,
    /// Also this machine, without TLS: the server is on it itself.
    ThisMachine,
    /// Also private networks, over TLS, and this machine.
    Private,
}

impl Guard {
    /// What a server at this address may name, unless the application says otherwise.
    pub(crate) fn of_server(server: &Url) -> Self {
        match server.host() {
            Some(host) if is_this_machine(&host) => Self::ThisMachine,
            _ => Self::Public,
        }
    }

    /// Reads an address that a server named, if it is one to go to. `what` says what the address is for.
    pub(crate) fn admit(self, what: &str, address: &str) -> Result<Url> {
        let refused = |why: &str| Error::untrusted(format!("{what} `{address}` {why}"));
        let url = Url::parse(address).map_err(|_| refused("is no URL"))?;
        let Some(host) = url.host() else {
            return Err(refused("names no host"));
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused("contains a password"));
        }
        let is_here = is_this_machine(&host);
        match url.scheme() {
            "https" => {}
            "http" if is_here && self != Self::Public => {}
            _ => return Err(refused("is not an https:// address")),
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

    /// Whether a host with this address is one to go to.
    pub(crate) fn admits(self, address: IpAddr) -> bool {
        match kind(address) {
            Kind::Public => true,
            Kind::ThisMachine => self != Self::Public,
            Kind::Private => self == Self::Private,
            Kind::Never => false,
        }
    }
}

enum Kind {
    Public,
    Private,
    ThisMachine,
    /// Nobody has a reason to go there; clouds keep their secrets at link-local addresses.
    Never,
}

fn kind(address: IpAddr) -> Kind {
    match address {
        IpAddr::V4(v4) => kind_of_v4(v4),
        IpAddr::V6(v6) => kind_of_v6(v6),
    }
}

fn kind_of_v4(address: Ipv4Addr) -> Kind {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        (127, ..) => Kind::ThisMachine,
        (10, ..) | (192, 168, _) | (100, 64..=127, _) | (172, 16..=31, _) => Kind::Private,
        (0 | 224.., ..) | (169, 254, _) => Kind::Never,
        (192, 0, 0 | 2) | (198, 18..=19, _) | (198, 51, 100) | (203, 0, 113) => Kind::Never,
        _ => Kind::Public,
    }
}

fn kind_of_v6(address: Ipv6Addr) -> Kind {
    if address.is_loopback() {
        return Kind::ThisMachine;
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
            None => Kind::Never,
        },
        // NAT64 by its well-known prefix. That for private use, `64:ff9b:1::/48`, leads into some network's own.
        0x64 if b == 0xff9b && (c, d) == (0, 0) => embedded(x, y),
        0x64 => Kind::Never,
        0x2002 => embedded(b, c),
        // Teredo and others that tunnel: where they lead is up to whoever runs the tunnel.
        0x2001 if b < 0x200 => Kind::Never,
        0x2001 if b == 0xdb8 => Kind::Never,
        0x3fff if b < 0x1000 => Kind::Never,
        0xfc00..=0xfdff => Kind::Private,
        0x2000..=0x3fff => Kind::Public,
        _ => Kind::Never,
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
    fn servers_do_not_lead_us_where_they_cannot_go_themselves() {
        let (public, here, private) = (Guard::Public, Guard::ThisMachine, Guard::Private);
        // The address, and who goes there.
        let cases: &[(&str, &[Guard])] = &[
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
            // Other ways to write 127.0.0.1.
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
            // Where clouds keep their secrets.
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

        for (address, goes) in cases {
            for guard in [public, here, private] {
                let admitted = guard.admit("the address", address).is_ok();
                assert_eq!(admitted, goes.contains(&guard), "{guard:?} {address}");
            }
        }
    }

    #[test]
    fn only_a_server_on_this_machine_may_name_this_machine() {
        let of = |server| Guard::of_server(&Url::parse(server).unwrap());

        assert_eq!(of("http://localhost:3000/mcp"), Guard::ThisMachine);
        assert_eq!(of("http://127.0.0.1/mcp"), Guard::ThisMachine);
        assert_eq!(of("https://example.com/mcp"), Guard::Public);
        assert_eq!(of("http://10.0.0.1/mcp"), Guard::Public);
    }
}
