//! `Proxies`, the proxy settings of a client, and `TcpConnector`, which opens TCP connections through them.
//!
//! ```text
//! http   ── to the proxy, with the absolute URL in the request line ──▶ server
//! https  ── a tunnel through the proxy (CONNECT), with TLS to the server inside ──▶ server
//! ```

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use http::{HeaderValue, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::dns::GaiResolver;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::exchange::BoxFuture;
use crate::http::RedactedUrl;

/// The proxies through which a client connects.
///
/// Defaults to the environment variables: `HTTP_PROXY` for `http`, `HTTPS_PROXY` for `https`, `ALL_PROXY` for both, and
/// `NO_PROXY` for the hosts that are reached directly; lower case works too. They are ignored in CGI programs, where an
/// HTTP client could set `HTTP_PROXY` with a header.
///
/// Only `http://` proxies are supported. User name and password in the URL are sent as `Proxy-Authorization`.
///
/// # Examples
///
/// ```
/// use bowline::http::client::Proxies;
///
/// let proxies = Proxies::all("http://user:password@proxy.example:3128").except("localhost, 10.0.0.0/8");
/// let connect = bowline::Client::connect("https://tools.example/mcp").proxies(proxies);
/// ```
#[derive(Clone)]
#[must_use = "pass it to `ClientBuilder::proxies`"]
pub struct Proxies {
    rules: ProxyRules,
}

#[derive(Clone)]
enum ProxyRules {
    Environment,
    Direct,
    All { proxy: String, except: String },
}

impl Proxies {
    /// Uses the environment variables.
    pub fn from_env() -> Self {
        let rules = ProxyRules::Environment;
        Self { rules }
    }

    /// Uses no proxy and ignores the environment.
    pub fn none() -> Self {
        let rules = ProxyRules::Direct;
        Self { rules }
    }

    /// Uses this proxy for every server and ignores the environment.
    pub fn all(proxy: impl Into<String>) -> Self {
        let (proxy, except) = (proxy.into(), String::new());
        let rules = ProxyRules::All { proxy, except };
        Self { rules }
    }

    /// Connects directly to these hosts, in the syntax of `NO_PROXY`. Has an effect only after [`all`](Self::all).
    pub fn except(mut self, hosts: impl Into<String>) -> Self {
        if let ProxyRules::All { except, .. } = &mut self.rules {
            *except = hosts.into();
        }
        self
    }

    /// Builds the matcher; `None` without proxies, so that most clients skip the check for every request.
    pub(super) fn matcher(&self) -> Option<Arc<Matcher>> {
        let matcher = match &self.rules {
            ProxyRules::Environment if has_wildcard(&no_proxy()) => return None,
            ProxyRules::Environment
                if PROXY_VARIABLES
                    .iter()
                    .all(|name| std::env::var_os(name).is_none()) =>
            {
                return None;
            }
            ProxyRules::Environment => Matcher::from_env(),
            ProxyRules::Direct => return None,
            ProxyRules::All { except, .. } if has_wildcard(except) => return None,
            ProxyRules::All { proxy, except } => {
                let matcher = Matcher::builder().all(proxy.as_str());
                matcher.no(except.as_str()).build()
            }
        };
        Some(Arc::new(matcher))
    }
}

/// Returns whether a `NO_PROXY` list contains `*`. The matcher applies `*` to names but not to IP addresses.
fn has_wildcard(hosts: &str) -> bool {
    hosts.split(',').any(|host| host.trim() == "*")
}

fn no_proxy() -> String {
    let spellings = ["NO_PROXY", "no_proxy"].into_iter();
    let first = spellings.map(std::env::var).find_map(Result::ok);
    first.unwrap_or_default()
}

impl std::fmt::Debug for Proxies {
    /// Omits the proxy URL, which may contain a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.rules {
            ProxyRules::Environment => "Proxies::from_env()",
            ProxyRules::Direct => "Proxies::none()",
            ProxyRules::All { .. } => "Proxies::all(…)",
        })
    }
}

/// Returns the `Proxy-Authorization` header for a plain `http` request. For `https` the CONNECT request of the tunnel
/// contains it.
pub(super) fn authorization(proxies: &Matcher, uri: &Uri) -> Option<HeaderValue> {
    let is_plain_http = uri.scheme() == Some(&http::uri::Scheme::HTTP);
    let proxy = is_plain_http.then(|| proxies.intercept(uri))??;
    proxy.basic_auth().cloned()
}

/// Opens TCP connections, directly or through a proxy.
#[derive(Clone, Debug)]
pub(super) struct TcpConnector {
    tcp: HttpConnector,
    proxies: Option<Arc<Matcher>>,
}

impl TcpConnector {
    /// Creates a connector with this connect timeout.
    pub(super) fn new(proxies: Option<Arc<Matcher>>, connect_timeout: Duration) -> Self {
        let tcp = tcp(GaiResolver::new(), connect_timeout);
        Self { tcp, proxies }
    }
}

/// Creates a connector for the addresses that `resolver` returns.
fn tcp<R>(resolver: R, connect_timeout: Duration) -> HttpConnector<R> {
    let mut tcp = HttpConnector::new_with_resolver(resolver);
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    // hyper-util divides this time among the addresses of one family, so that an unreachable one leaves time for the
    // next. The other family is tried in parallel after 300 ms, hyper-util's default.
    tcp.set_connect_timeout(Some(connect_timeout));
    // Detects a dead path while a response is awaited, and keeps NAT entries of idle connections alive.
    tcp.set_keepalive(Some(KEEP_ALIVE));
    tcp.set_keepalive_interval(Some(KEEP_ALIVE));
    tcp.set_keepalive_retries(Some(3));
    tcp
}

impl Service<Uri> for TcpConnector {
    type Response = TcpConnection;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<TcpConnection, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let proxies = self.proxies.as_ref();
        let Some(proxy) = proxies.and_then(|proxies| proxies.intercept(&target)) else {
            let connecting = self.tcp.call(target);
            return Box::pin(async { Ok(TcpConnection::to_server(connecting.await?)) });
        };
        let tcp = self.tcp.clone();
        Box::pin(async move {
            let connected = connect_through(tcp, &proxy, target).await;
            connected.map_err(|source| ProxyFailed::new(&proxy, source).into())
        })
    }
}

async fn connect_through(
    mut tcp: HttpConnector,
    proxy: &Intercept,
    target: Uri,
) -> Result<TcpConnection, Box<dyn std::error::Error + Send + Sync>> {
    if proxy.uri().scheme() != Some(&http::uri::Scheme::HTTP) {
        return Err("unsupported proxy scheme; only http:// proxies are supported".into());
    }
    if target.scheme() == Some(&http::uri::Scheme::HTTP) {
        let stream = tcp.call(proxy.uri().clone()).await?;
        return Ok(TcpConnection::to_proxy(stream));
    }
    let mut tunnel = Tunnel::new(proxy.uri().clone(), tcp);
    if let Some(authorization) = proxy.basic_auth() {
        tunnel = tunnel.with_auth(authorization.clone());
    }
    Ok(TcpConnection::to_server(tunnel.call(target).await?))
}

/// A connection through a proxy failed.
#[derive(Debug, thiserror::Error)]
#[error("failed to connect through the proxy {proxy}")]
struct ProxyFailed {
    proxy: RedactedUrl,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl ProxyFailed {
    fn new(proxy: &Intercept, source: Box<dyn std::error::Error + Send + Sync>) -> Self {
        let proxy = RedactedUrl::new(proxy.uri());
        Self { proxy, source }
    }
}

/// A TCP connection.
#[derive(Debug)]
pub(super) struct TcpConnection {
    stream: TokioIo<TcpStream>,
    /// Whether requests go to a proxy, which needs the absolute URL in the request line.
    is_to_proxy: bool,
}

impl TcpConnection {
    fn to_server(stream: TokioIo<TcpStream>) -> Self {
        let is_to_proxy = false;
        Self {
            stream,
            is_to_proxy,
        }
    }

    fn to_proxy(stream: TokioIo<TcpStream>) -> Self {
        let is_to_proxy = true;
        Self {
            stream,
            is_to_proxy,
        }
    }
}

impl Connection for TcpConnection {
    fn connected(&self) -> Connected {
        self.stream.connected().proxy(self.is_to_proxy)
    }
}

impl Read for TcpConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl Write for TcpConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }
}

const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The environment variables that set proxies.
const PROXY_VARIABLES: [&str; 6] = [
    "ALL_PROXY",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "all_proxy",
    "http_proxy",
    "https_proxy",
];

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use hyper_util::client::legacy::connect::dns::Name;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Starts a proxy that responds to CONNECT with `answer`, then echoes. Returns its address and the request head.
    async fn proxy(answer: &'static str) -> (String, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                asked.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            let (mut read, mut write) = stream.split();
            let _ = tokio::io::copy(&mut read, &mut write).await;
            String::from_utf8(asked).unwrap()
        });
        (address, asked)
    }

    /// Resolves every name to these addresses.
    #[derive(Clone)]
    struct FixedResolver(Vec<SocketAddr>);

    impl Service<Name> for FixedResolver {
        type Response = std::vec::IntoIter<SocketAddr>;
        type Error = std::convert::Infallible;
        type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

        fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Name) -> Self::Future {
            std::future::ready(Ok(self.0.clone().into_iter()))
        }
    }

    /// Returns an address that ignores further connections: its accept queue is full.
    async fn black_hole() -> (SocketAddr, Vec<TcpStream>, TcpListener) {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) =
            tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await
        {
            waiting.push(stream.unwrap());
        }
        (address, waiting, listener)
    }

    #[tokio::test]
    async fn connections_have_no_delay() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();

        let mut connector = TcpConnector::new(None, Duration::from_secs(60));
        let connected = connector.call(format!("http://{address}/").parse().unwrap());

        // Otherwise a cancel that follows its request waits until the peer acknowledges the request, up to 40 ms.
        let stream = connected.await.unwrap().stream;
        assert!(stream.inner().nodelay().unwrap());
    }

    #[cfg(target_os = "linux")] // where a full accept queue ignores SYNs
    #[tokio::test]
    async fn an_address_that_never_answers_leaves_time_for_the_next() {
        let (silent, _waiting, _listener) = black_hole().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let live = listener.local_addr().unwrap();

        let mut tcp = tcp(FixedResolver(vec![silent, live]), Duration::from_secs(2));
        let connected = tcp.call(Uri::from_static("http://tools.invalid/")).await;

        let connected = connected.unwrap();
        assert_eq!(connected.inner().peer_addr().unwrap(), live);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn connections_enable_tcp_keep_alive() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/", listener.local_addr().unwrap());

        let mut connector = TcpConnector::new(None, Duration::from_secs(10));
        let connected = connector.call(uri.parse().unwrap()).await.unwrap();

        let is_enabled = rustix::net::sockopt::socket_keepalive(connected.stream.inner());
        assert!(is_enabled.unwrap());
    }

    #[tokio::test]
    async fn https_goes_through_a_tunnel_that_the_proxy_does_not_read() {
        let (address, asked) = proxy("HTTP/1.1 200 OK\r\n\r\n").await;
        let proxies = Proxies::all(format!("http://me:secret@{address}"));
        let target = Uri::from_static("https://tools.invalid/mcp");

        let tunnel =
            TcpConnector::new(proxies.matcher(), Duration::from_secs(10)).call(target.clone());
        let mut tunnel = tunnel.await.unwrap();
        let is_to_proxy = tunnel.is_to_proxy;
        let stream = tunnel.stream.inner_mut();
        stream.write_all(b"hello").await.unwrap();
        let mut back = [0; 5];
        stream.read_exact(&mut back).await.unwrap();
        drop(tunnel);

        assert_eq!(&back, b"hello");
        assert!(!is_to_proxy, "requests in the tunnel go to the server");
        let asked = asked.await.unwrap();
        assert!(
            asked.starts_with("CONNECT tools.invalid:443 HTTP/1.1\r\n"),
            "{asked}"
        );
        let credentials = "proxy-authorization: basic bwu6c2vjcmv0";
        assert!(asked.to_lowercase().contains(credentials), "{asked}");
        assert_eq!(authorization(&proxies.matcher().unwrap(), &target), None);
    }

    #[tokio::test]
    async fn a_proxy_that_refuses_is_named_without_its_password() {
        let (address, _) = proxy("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").await;
        let proxies = Proxies::all(format!("http://me:secret@{address}"));

        let target = Uri::from_static("https://tools.invalid/mcp");
        let refused = TcpConnector::new(proxies.matcher(), Duration::from_secs(10))
            .call(target)
            .await;

        let message = refused.unwrap_err().to_string();
        assert!(message.contains(&format!("http://{address}/")), "{message}");
        assert!(
            !message.contains("secret") && !format!("{proxies:?}").contains("secret"),
            "{message}"
        );
    }
}
