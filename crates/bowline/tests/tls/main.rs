//! Clients of `https` servers with real certificates: the HTTP version, the number of connections, and dropped calls.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod server;

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::http::HttpService;
use bowline::layer::Next;
use bowline::{CallToolResult, Client, Server, Tool};
use http::Version;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

#[tokio::test]
async fn calls_share_one_connection_if_the_server_negotiates_http2() {
    if let Some(url) = url_from_parent() {
        return call_and_drop(&url).await;
    }
    let (mut observer, server) = CallObserver::new();
    let tls_server = TlsServer::start(server, &[b"h2", b"http/1.1"]).await;

    let output = tls_server
        .run_client("calls_share_one_connection_if_the_server_negotiates_http2")
        .await;

    assert!(output.status.success(), "{output:?}");
    observer.wait_for_drop().await;
    observer.assert_version(Version::HTTP_2);
    assert_eq!(tls_server.connections(), 1);
}

#[tokio::test]
async fn concurrent_calls_use_one_connection_each_if_the_server_offers_only_http1() {
    if let Some(url) = url_from_parent() {
        return call_and_drop(&url).await;
    }
    let (mut observer, server) = CallObserver::new();
    let tls_server = TlsServer::start(server, &[b"http/1.1"]).await;

    let output = tls_server
        .run_client("concurrent_calls_use_one_connection_each_if_the_server_offers_only_http1")
        .await;

    assert!(output.status.success(), "{output:?}");
    observer.wait_for_drop().await;
    observer.assert_version(Version::HTTP_11);
    assert_eq!(tls_server.connections(), 3);
}

#[tokio::test]
async fn an_untrusted_certificate_is_named_in_the_connect_error() {
    let (_, server) = CallObserver::new();
    let tls_server = TlsServer::start(server, &[b"h2"]).await;

    let refused = Client::connect(&tls_server.url).await.unwrap_err();

    let chain = format!("{:?}", error_chain(&refused));
    assert!(
        chain.contains("failed to connect to https://localhost"),
        "{chain}"
    );
    assert!(chain.contains("certificate"), "{chain}");
}

fn error_chain(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect()
}

/// The client, in its own process: environment variables select the trusted certificates.
async fn call_and_drop(url: &str) {
    let client = Client::connect(url).await.unwrap();
    let echo = || client.call_tool("echo", ());

    let (a, b, c) = tokio::join!(echo(), echo(), echo());
    let texts = [a, b, c].map(|reply| reply.unwrap().text());
    assert_eq!(texts, ["echo"; 3]);

    let (begun, mut has_begun) = mpsc::unbounded_channel();
    let wait = client.call_tool("wait", ());
    let mut wait = wait.on_progress(move |_| begun.send(()).unwrap()).start();
    tokio::select! {
        biased;
        outcome = &mut wait => panic!("the call ended: {outcome:?}"),
        begun = has_begun.recv() => begun.unwrap(),
    }
    drop(wait);
    assert_eq!(echo().await.unwrap().text(), "echo");
    // The server must observe the dropped call, not the exit of the client.
    client.call_tool("dropped", ()).await.unwrap();
}

fn url_from_parent() -> Option<String> {
    std::env::var("BOWLINE_TEST_URL").ok()
}

/// What the server observes of calls.
struct CallObserver {
    dropped: watch::Receiver<bool>,
    versions: Arc<Mutex<Vec<Version>>>,
}

struct SetOnDrop(watch::Sender<bool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl CallObserver {
    fn new() -> (Self, Server) {
        let schema = json!({"type": "object"});
        let (sender, dropped) = watch::channel(false);
        let echo = Tool::raw("echo", schema.clone(), async |_, _| {
            Ok(CallToolResult::text("echo"))
        });
        let wait = Tool::raw("wait", schema.clone(), move |_, cx: bowline::Context| {
            let flag = SetOnDrop(sender.clone());
            async move {
                let _flag = flag;
                cx.progress(1.0);
                std::future::pending().await
            }
        });
        let seen = dropped.clone();
        let has_dropped = Tool::raw("dropped", schema, move |_, _| {
            let mut seen = seen.clone();
            async move {
                seen.wait_for(|dropped| *dropped).await.unwrap();
                Ok(CallToolResult::text("yes"))
            }
        });
        let versions = Arc::new(Mutex::new(Vec::new()));
        let recorded = versions.clone();
        let record = move |request, next: Next| {
            let head = next.context().extensions().get::<http::request::Parts>();
            recorded
                .lock()
                .unwrap()
                .extend(head.map(|head| head.version));
            next.run(request)
        };
        let server = Server::new("tls", "1.0.0").layer(record);
        let server = server.tool(echo).tool(wait).tool(has_dropped);
        (Self { dropped, versions }, server)
    }

    async fn wait_for_drop(&mut self) {
        self.dropped.wait_for(|dropped| *dropped).await.unwrap();
    }

    fn assert_version(&self, version: Version) {
        let versions = self.versions.lock().unwrap();
        assert!(versions.len() >= 6, "{versions:?}");
        assert!(versions.iter().all(|seen| *seen == version), "{versions:?}");
    }
}

/// A TLS server with a self-signed certificate.
struct TlsServer {
    url: String,
    certificate: PathBuf,
    connections: Arc<Mutex<usize>>,
}

impl TlsServer {
    async fn start(server: Server, offers: &[&[u8]]) -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(ring);
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth();
        let mut config = config
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = offers.iter().map(|offer| offer.to_vec()).collect();

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let certificate = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{port}.pem"));
        std::fs::write(&certificate, cert.pem()).unwrap();
        let connections = Arc::new(Mutex::new(0));
        let accepted = connections.clone();
        tokio::spawn(accept(listener, config, server.http(), accepted));
        Self {
            url: format!("https://localhost:{port}/mcp"),
            certificate,
            connections,
        }
    }

    /// Runs the test of this name as the client, in a child process.
    async fn run_client(&self, test: &str) -> Output {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", test, "--nocapture"])
            .env_clear()
            .env("BOWLINE_TEST_URL", &self.url)
            .env("SSL_CERT_FILE", &self.certificate)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(Duration::from_secs(60), child.output());
        output.await.unwrap().unwrap()
    }

    fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.certificate);
    }
}

async fn accept(
    listener: TcpListener,
    config: ServerConfig,
    service: HttpService,
    accepted: Arc<Mutex<usize>>,
) {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (acceptor, service, accepted) = (acceptor.clone(), service.clone(), accepted.clone());
        tokio::spawn(async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                *accepted.lock().unwrap() += 1;
                service.serve_connection(stream).await;
            }
        });
    }
}
