//! `BoundServer::tls` and the certificates of a client, with real handshakes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::client::ClientBuilder;
use bowline::http::HttpService;
use bowline::http::server::TlsConfig;
use bowline::layer::Next;
use bowline::{CallToolResult, Client, Error, Limit, Limits, Server, Tool};
use http::Version;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An authority that issues certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its private key, in PEM.
struct Issued {
    certificate: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn issue(&self, name: &str) -> Issued {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    fn server(&self) -> TlsConfig {
        let Issued { certificate, key } = self.issue("localhost");
        TlsConfig::from_pem(certificate, key).unwrap()
    }
}

fn echo_server() -> Server {
    let schema = json!({"type": "object"});
    let echo = Tool::raw("echo", schema, async |_, _| {
        Ok(CallToolResult::text("echo"))
    });
    Server::new("tls", "1.0.0").tool(echo)
}

async fn serve(service: HttpService, tls: TlsConfig) -> SocketAddr {
    let bound = service.bind("127.0.0.1:0").await.unwrap().tls(tls);
    let addr = bound.local_addr();
    tokio::spawn(bound.serve());
    addr
}

fn connect(addr: SocketAddr) -> ClientBuilder {
    Client::connect(&format!("https://localhost:{}/mcp", addr.port()))
}

async fn connect_error(connecting: ClientBuilder) -> String {
    format!("{:?}", connecting.await.unwrap_err())
}

#[tokio::test]
async fn a_client_with_the_authority_of_the_server_calls_it_over_http2() {
    let authority = Authority::new("one");
    let versions = Arc::new(Mutex::new(Vec::new()));
    let recorded = versions.clone();
    let server = echo_server().layer(move |request, next: Next| {
        let head = next.context().extensions().get::<http::request::Parts>();
        recorded.lock().unwrap().extend(head.map(|it| it.version));
        next.run(request)
    });
    let addr = serve(server.http(), authority.server()).await;

    let client = connect(addr).add_root_certificate(authority.pem()).await;
    let client = client.unwrap();

    assert_eq!(client.call_tool("echo", ()).await.unwrap().text(), "echo");
    let versions = versions.lock().unwrap();
    assert!(versions.contains(&Version::HTTP_2), "{versions:?}");
    assert!(versions.iter().all(|it| *it == Version::HTTP_2));
}

#[tokio::test]
async fn a_server_of_another_authority_is_refused_with_what_to_do() {
    let addr = serve(echo_server().http(), Authority::new("one").server()).await;

    // The second has another key, but the same name.
    for name in ["other", "one"] {
        let other = Authority::new(name).pem();
        let refused = connect_error(connect(addr).add_root_certificate(other)).await;

        assert!(refused.contains("add_root_certificate"), "{refused}");
        assert!(refused.contains("https://localhost"), "{refused}");
    }
}

#[tokio::test]
async fn a_required_client_certificate_is_checked() {
    let (authority, clients) = (Authority::new("servers"), Authority::new("clients"));
    let tls = authority.server();
    let tls = tls.require_client_certificate(clients.pem()).unwrap();
    let addr = serve(echo_server().http(), tls).await;
    let connect = || connect(addr).add_root_certificate(authority.pem());
    let with = |issued: Issued| connect().client_certificate(issued.certificate, issued.key);

    let client = with(clients.issue("ada")).await.unwrap();
    assert_eq!(client.call_tool("echo", ()).await.unwrap().text(), "echo");

    let missing = connect_error(connect()).await;
    assert!(missing.contains("CertificateRequired"), "{missing}");
    let foreign = connect_error(with(Authority::new("other").issue("eve"))).await;
    assert!(foreign.contains("UnknownCA"), "{foreign}");
}

#[tokio::test]
async fn malformed_certificates_and_keys_are_named() {
    let authority = Authority::new("one");
    let (one, other) = (authority.issue("localhost"), authority.issue("localhost"));
    let server = |certificate: &str, key: &str| match TlsConfig::from_pem(certificate, key) {
        Err(Error::Misuse { what }) => what,
        unexpected => panic!("{unexpected:?}"),
    };

    for (error, text) in [
        (server("", &one.key), "the certificate chain contains no"),
        (server(&one.certificate, ""), "the private key contains no"),
        (server(&one.key, &one.certificate), "swapped"),
        (server(&one.certificate, &other.key), "cannot be used"),
    ] {
        assert!(error.contains(text), "{error}");
    }
    let client = || Client::connect("https://localhost/mcp");
    for (connecting, text) in [
        (
            client().add_root_certificate("no PEM"),
            "the root certificate contains no",
        ),
        (
            client().client_certificate(&one.certificate, "no PEM"),
            "the private key of the client certificate contains no",
        ),
        (
            client().client_certificate(&one.certificate, &other.key),
            "the client certificate and its private key cannot be used",
        ),
    ] {
        let error = connect_error(connecting).await;
        assert!(error.contains(text), "{error}");
    }
}

#[tokio::test]
async fn keys_are_not_shown() {
    let tls = Authority::new("one").server();
    let bound = echo_server().http().bind("127.0.0.1:0").await.unwrap();

    let shown = format!("{:?}", bound.tls(tls.clone()));

    assert_eq!(format!("{tls:?}"), "TlsConfig { .. }");
    assert!(shown.contains("TlsConfig { .. }"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_without_a_handshake_is_disconnected_at_the_deadline() {
    let addr = serve(echo_server().http(), Authority::new("one").server()).await;
    let before = tokio::time::Instant::now();
    let mut silent = TcpStream::connect(addr).await.unwrap();

    let read = silent.read(&mut [0; 1]).await;

    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    let waited = before.elapsed();
    assert!(waited >= Duration::from_secs(10), "{waited:?}");
    assert!(waited < Duration::from_secs(11), "{waited:?}");
}

#[tokio::test]
async fn a_peer_without_a_handshake_takes_one_connection_and_delays_no_other() {
    let authority = Authority::new("one");
    let limits = Limits {
        connections: 2,
        ..Limits::default()
    };
    let server = echo_server().limits(limits);
    let addr = serve(server.http(), authority.server()).await;
    let _silent = TcpStream::connect(addr).await.unwrap();

    let client = connect(addr).add_root_certificate(authority.pem()).await;
    let called = client.unwrap().call_tool("echo", ()).await;

    assert_eq!(called.unwrap().text(), "echo");
    assert_eq!(server.usage().connections, 2);
}

#[tokio::test]
async fn half_handshakes_on_more_connections_than_the_limit_delay_no_other() {
    let authority = Authority::new("one");
    let limits = Limits {
        connections: 16,
        ..Limits::default()
    };
    let server = echo_server().limits(limits);
    let addr = serve(server.http(), authority.server()).await;
    // Nothing, the first byte of a TLS record, and the beginning of a hello.
    let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    let mut held = Vec::new();
    for first in [&hello[..0], &hello[..1], &hello] {
        for _ in 0..20 {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            stream.write_all(first).await.unwrap();
            held.push(stream);
        }

        let client = connect(addr).add_root_certificate(authority.pem()).await;
        let called = client.unwrap().call_tool("echo", ()).await;
        assert_eq!(called.unwrap().text(), "echo");
    }

    assert!(server.usage().connections <= 4 + 3);
    assert!(server.usage().refused(Limit::Connections) >= 50);
}

#[tokio::test]
async fn plain_http_is_refused_by_a_tls_server() {
    let addr = serve(echo_server().http(), Authority::new("one").server()).await;

    let refused = connect_error(Client::connect(&format!("http://{addr}/mcp"))).await;

    assert!(refused.contains(&format!("http://{addr}/mcp")), "{refused}");
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_handshakes() {
    let server = echo_server();
    let bound = server.http().bind("127.0.0.1:0").await.unwrap();
    let addr = bound.local_addr();
    let serving = tokio::spawn(bound.tls(Authority::new("one").server()).serve());
    let mut silent = TcpStream::connect(addr).await.unwrap();
    // Otherwise the connection might not be accepted yet.
    while server.usage().connections == 0 {
        tokio::task::yield_now().await;
    }

    server.shut_down(Duration::ZERO);

    let ended = tokio::time::timeout(Duration::from_secs(9), serving).await;
    ended
        .expect("it ends before the handshake deadline")
        .unwrap()
        .unwrap();
    assert!(matches!(silent.read(&mut [0; 1]).await, Ok(0) | Err(_)));
}
