//! TCP connections, through a proxy where one is to be used.
//!
//! ```text
//! http   ── to the proxy, which is told the whole URL ──▶ server
//! https  ── a tunnel through the proxy (CONNECT), and TLS with the server inside ──▶ server
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

/// Which proxy to reach which server through.
///
/// By default a client does what the environment says, as other programs do: `HTTP_PROXY` is for `http`,
/// `HTTPS_PROXY` for `https`, `ALL_PROXY` for both, and `NO_PROXY` lists the hosts that are reached directly;
/// each may be spelled in lower case. In a CGI program, where a client could set `HTTP_PROXY` by a header, they
/// are not looked at.
///
/// A proxy is spoken to in plain HTTP. A name and a password in its URL are sent to it.
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
#[must_use = "it is given to `Connect::proxies`"]
pub struct Proxies {
    rules: Rules,
}

#[derive(Clone)]
enum Rules {
    Environment,
    Direct,
    All { proxy: String, except: String },
}

impl Proxies {
    /// As the environment says.
    pub fn from_env() -> Self {
        let rules = Rules::Environment;
        Self { rules }
    }

    /// None, whatever the environment says.
    pub fn none() -> Self {
        let rules = Rules::Direct;
        Self { rules }
    }

    /// This one for every server, whatever the environment says.
    pub fn all(proxy: impl Into<String>) -> Self {
        let (proxy, except) = (proxy.into(), String::new());
        let rules = Rules::All { proxy, except };
        Self { rules }
    }

    /// Except for these hosts, which are listed as in `NO_PROXY`. Only after [`all`](Self::all).
    pub fn except(mut self, hosts: impl Into<String>) -> Self {
        if let Rules::All { except, .. } = &mut self.rules {
            *except = hosts.into();
        }
        self
    }

    /// The rules, if there are any: most clients have none, and should not look for some with every request.
    pub(super) fn matcher(&self) -> Option<Arc<Matcher>> {
        let matcher = match &self.rules {
            Rules::Environment if is_everything(&no_proxy()) => return None,
            Rules::Environment if PROXIES.iter().all(|name| std::env::var_os(name).is_none()) => {
                return None;
            }
            Rules::Environment => Matcher::from_env(),
            Rules::Direct => return None,
            Rules::All { except, .. } if is_everything(except) => return None,
            Rules::All { proxy, except } => {
                let matcher = Matcher::builder().all(proxy.as_str());
                matcher.no(except.as_str()).build()
            }
        };
        Some(Arc::new(matcher))
    }
}

/// Whether a list of hosts names all of them. The matcher takes `*` for all names, and not for addresses.
fn is_everything(hosts: &str) -> bool {
    hosts.split(',').any(|host| host.trim() == "*")
}

fn no_proxy() -> String {
    let spellings = ["NO_PROXY", "no_proxy"].into_iter();
    let first = spellings.map(std::env::var).find_map(Result::ok);
    first.unwrap_or_default()
}

impl std::fmt::Debug for Proxies {
    /// Leaves out the proxy itself: a password may be in its URL.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.rules {
            Rules::Environment => "Proxies::from_env()",
            Rules::Direct => "Proxies::none()",
            Rules::All { .. } => "Proxies::all(…)",
        })
    }
}

/// The credentials that a proxy wants with a request that it reads. Where there is a tunnel, it wants them when
/// that is made.
pub(super) fn authorization(proxies: &Matcher, uri: &Uri) -> Option<HeaderValue> {
    let is_read = uri.scheme() == Some(&http::uri::Scheme::HTTP);
    let proxy = is_read.then(|| proxies.intercept(uri))??;
    proxy.basic_auth().cloned()
}

/// Makes TCP connections, through proxies where they are to be used.
#[derive(Clone, Debug)]
pub(super) struct TcpConnector {
    tcp: HttpConnector,
    proxies: Option<Arc<Matcher>>,
}

impl TcpConnector {
    /// Each connection must come about within `connect_timeout`.
    pub(super) fn new(proxies: Option<Arc<Matcher>>, connect_timeout: Duration) -> Self {
        let tcp = tcp(GaiResolver::new(), connect_timeout);
        Self { tcp, proxies }
    }
}

/// Makes TCP connections to the addresses that `resolver` finds.
fn tcp<R>(resolver: R, connect_timeout: Duration) -> HttpConnector<R> {
    let mut tcp = HttpConnector::new_with_resolver(resolver);
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    // The addresses of one family share this time, so that one which never answers leaves some for the next. Those of
    // the other family are tried beside them after 300 ms, which is the connector's default.
    tcp.set_connect_timeout(Some(connect_timeout));
    // For a path that dies while a response is awaited, and for routers that forget silent connections.
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
        return Err("it is not an http:// proxy, and no other kind is known here".into());
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

/// A proxy did not do what it is for.
#[derive(Debug, thiserror::Error)]
#[error("the proxy {proxy} failed: {source}")]
struct ProxyFailed {
    proxy: Uri,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl ProxyFailed {
    /// The URI of an intercept has no credentials any more.
    fn new(proxy: &Intercept, source: Box<dyn std::error::Error + Send + Sync>) -> Self {
        let proxy = proxy.uri().clone();
        Self { proxy, source }
    }
}

/// A TCP connection.
#[derive(Debug)]
pub(super) struct TcpConnection {
    stream: TokioIo<TcpStream>,
    /// Whether a proxy reads the requests, and so wants to know the whole URL.
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

/// Where the environment names proxies.
const PROXIES: [&str; 6] = [
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

    /// A proxy that answers CONNECT by `answer`, then sends back what it is sent; what it was asked.
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

    /// Finds these addresses, whatever the name.
    #[derive(Clone)]
    struct Fixed(Vec<SocketAddr>);

    impl Service<Name> for Fixed {
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

    /// An address that answers no further connection: those who wait to be accepted are too many already.
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

    #[cfg(target_os = "linux")] // where a full queue is silent
    #[tokio::test]
    async fn an_address_that_never_answers_leaves_time_for_the_next() {
        let (silent, _waiting, _listener) = black_hole().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let live = listener.local_addr().unwrap();

        let mut tcp = tcp(Fixed(vec![silent, live]), Duration::from_secs(2));
        let connected = tcp.call(Uri::from_static("http://tools.invalid/")).await;

        let connected = connected.unwrap();
        assert_eq!(connected.inner().peer_addr().unwrap(), live);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn connections_probe_a_silent_peer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/", listener.local_addr().unwrap());

        let mut connector = TcpConnector::new(None, Duration::from_secs(10));
        let connected = connector.call(uri.parse().unwrap()).await.unwrap();

        let is_probed = rustix::net::sockopt::socket_keepalive(connected.stream.inner());
        assert!(is_probed.unwrap());
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
        assert!(!is_to_proxy, "what goes through it is meant for the server");
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

        let told = refused.unwrap_err().to_string();
        assert!(told.contains(&format!("http://{address}/")), "{told}");
        assert!(
            !told.contains("secret") && !format!("{proxies:?}").contains("secret"),
            "{told}"
        );
    }
}
