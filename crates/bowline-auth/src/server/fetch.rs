//! Requests to the authorization server, within limits: few bytes, little time, no way into our own network.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{self, Poll};
use std::time::Duration;

use bowline::http::client::{HttpSend, HyperSend, RequestBody};
use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderValue, Request, StatusCode, Uri};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower_service::Service;

/// Sends requests to places that others may have named.
#[derive(Clone)]
pub(super) struct Fetch {
    /// Made when it is first needed: the system's certificates are not read for nothing.
    send: Arc<OnceLock<Arc<dyn HttpSend>>>,
    reach: Reach,
}

/// Which addresses may be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Public ones, by `https`.
    Public,
    /// Those of our own network too, also by `http`.
    Anywhere,
}

impl Default for Fetch {
    fn default() -> Self {
        Self {
            send: Arc::default(),
            reach: Reach::Public,
        }
    }
}

impl Fetch {
    /// Reaches addresses of our own network too.
    pub(super) fn within_private_network(&mut self) {
        *self = Self {
            send: Arc::default(),
            reach: Reach::Anywhere,
        };
    }

    /// Sends requests by `send`.
    pub(super) fn send_by(&mut self, send: impl HttpSend) {
        self.send = Arc::new(OnceLock::from(Arc::new(send) as Arc<dyn HttpSend>));
    }

    /// The document at `uri`.
    pub(super) async fn document(&self, uri: &Uri) -> Result<Bytes, String> {
        let mut request = Request::new(RequestBody::from(Bytes::new()));
        *request.uri_mut() = uri.clone();
        self.json(request).await
    }

    /// The body of the response to a request, if it is a good one.
    pub(super) async fn json(&self, mut request: Request<RequestBody>) -> Result<Bytes, String> {
        let uri = request.uri().clone();
        self.check(&uri)?;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(ACCEPT, json);
        let send = self.sender()?;
        let answer = async {
            let response = send.send(request).await.map_err(|error| chain(&error))?;
            // Redirects are not followed: they could lead anywhere.
            if response.status() != StatusCode::OK {
                return Err(format!("{uri} answers with status {}", response.status()));
            }
            let body = response.into_body().collect(MOST_BYTES).await;
            body.map_err(|error| chain(&error))
        };
        match tokio::time::timeout(WITHIN, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("{uri} does not answer within {WITHIN:?}")),
        }
    }

    /// Checks that a place may be reached, as far as its name tells.
    pub(super) fn check(&self, uri: &Uri) -> Result<(), String> {
        let authority = uri
            .authority()
            .ok_or_else(|| format!("`{uri}` is no URL"))?;
        if authority.as_str().contains('@') {
            return Err(format!("`{uri}` has a name and a password in it"));
        }
        match (uri.scheme_str(), self.reach) {
            (Some("https"), _) | (Some("http"), Reach::Anywhere) => {}
            _ => return Err(format!("`{uri}` is not an https:// URL")),
        }
        let host = authority.host().trim_matches(['[', ']']);
        match host.parse() {
            Ok(address) if self.reach == Reach::Public && !is_public(address) => {
                Err(format!("`{uri}` is not a public address"))
            }
            _ => Ok(()),
        }
    }

    fn sender(&self) -> Result<Arc<dyn HttpSend>, String> {
        if let Some(send) = self.send.get() {
            return Ok(send.clone());
        }
        let made = made(self.reach)?;
        Ok(self.send.get_or_init(|| made).clone())
    }
}

impl std::fmt::Debug for Fetch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetch")
            .field("reach", &self.reach)
            .finish_non_exhaustive()
    }
}

fn made(reach: Reach) -> Result<Arc<dyn HttpSend>, String> {
    let tls = HttpsConnectorBuilder::new()
        .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
        .map_err(|error| format!("the system's certificates cannot be read: {error}"))?;
    let mut tcp = HttpConnector::new_with_resolver(Resolver {
        inner: GaiResolver::new(),
        reach,
    });
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(WITHIN));
    let connector = match reach {
        Reach::Public => tls.https_only(),
        Reach::Anywhere => tls.https_or_http(),
    };
    let connector = connector.enable_http1().wrap_connector(tcp);
    Ok(Arc::new(HyperSend::over(connector)))
}

/// Finds the addresses of a name, and forgets those that may not be reached: what a name means can change
/// between the moment that it is checked and the one that it is used.
#[derive(Clone)]
struct Resolver {
    inner: GaiResolver,
    reach: Reach,
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (found, reach) = (self.inner.call(name), self.reach);
        Box::pin(async move {
            let may_reach =
                |address: &SocketAddr| reach == Reach::Anywhere || is_public(address.ip());
            let public: Vec<_> = found.await?.filter(may_reach).collect();
            if public.is_empty() {
                return Err(std::io::Error::other("the name has no public address"));
            }
            Ok(public.into_iter())
        })
    }
}

/// Whether an address is one that anybody on the internet could reach.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_shared = a == 100 && (64..128).contains(&b);
    let is_for_benchmarks = a == 198 && (18..20).contains(&b);
    let is_for_protocols = [a, b, c] == [192, 0, 0];
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || a == 0
        || a >= 224
        || is_shared
        || is_for_benchmarks
        || is_for_protocols)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    // Addresses that stand for one of the older kind lead where that leads.
    match parts {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => return is_public_v4(v4(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => return is_public_v4(v4(high, low)),
        [0x2002, high, low, ..] => return is_public_v4(v4(high, low)),
        _ => {}
    }
    // Of what is assigned so far, only this block is public; local use and multicast lie beyond it.
    let is_global = parts[0] & 0xe000 == 0x2000;
    let is_documentation = parts[0] == 0x2001 && parts[1] == 0xdb8;
    is_global && !is_documentation
}

/// An error with what is underneath, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Key sets and metadata are a few kilobytes.
const MOST_BYTES: usize = 256 * 1024;
const WITHIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_public() {
        for (address, public) in [
            ("93.184.216.34", true),
            ("127.0.0.1", false),
            ("10.1.2.3", false),
            ("172.16.0.1", false),
            ("192.168.1.1", false),
            ("169.254.169.254", false),
            ("100.64.0.1", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("2606:2800:220:1::1", true),
            ("::1", false),
            ("::", false),
            ("fe80::1", false),
            ("fd00::1", false),
            ("ff02::1", false),
            ("::ffff:169.254.169.254", false),
            ("::ffff:93.184.216.34", true),
            ("64:ff9b::a9fe:a9fe", false),
            ("2002:7f00:1::", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_public(address.parse().unwrap()), public, "{address}");
        }
    }

    #[test]
    fn places_in_our_own_network_are_reached_only_when_that_is_wanted() {
        let mut fetch = Fetch::default();
        let inside = [
            "http://id.example/jwks",
            "https://169.254.169.254/latest",
            "https://[::1]/jwks",
            "https://127.0.0.1:8080/jwks",
        ];
        for uri in inside {
            assert!(fetch.check(&uri.parse().unwrap()).is_err(), "{uri}");
        }
        assert!(
            fetch
                .check(&"https://id.example/jwks".parse().unwrap())
                .is_ok()
        );

        fetch.within_private_network();

        for uri in inside {
            assert!(fetch.check(&uri.parse().unwrap()).is_ok(), "{uri}");
        }
        for uri in ["https://ada:secret@id.example/", "/jwks", "id.example:443"] {
            assert!(fetch.check(&uri.parse().unwrap()).is_err(), "{uri}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_into_our_own_network_is_not_followed() {
        let found = Resolver {
            inner: GaiResolver::new(),
            reach: Reach::Public,
        }
        .call("localhost".parse().unwrap())
        .await;

        assert!(found.is_err());
    }
}
