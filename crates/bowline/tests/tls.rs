//! Clients of `https` servers, with real certificates: what is spoken, over how many connections, and what letting go
//! of a call does there.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says by panicking what it saw"
)]

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
async fn calls_share_one_connection_where_the_server_offers_http2() {
    if let Some(url) = url_of_the_parent() {
        return call_and_let_go(&url).await;
    }
    let (mut stage, server) = Stage::new();
    let site = Site::open(server, &[b"h2", b"http/1.1"]).await;

    let output = site
        .visit("calls_share_one_connection_where_the_server_offers_http2")
        .await;

    assert!(output.status.success(), "{output:?}");
    stage.dropped().await;
    stage.all_are(Version::HTTP_2);
    assert_eq!(site.connections(), 1);
}

#[tokio::test]
async fn each_call_at_once_has_a_connection_where_the_server_offers_http1_only() {
    if let Some(url) = url_of_the_parent() {
        return call_and_let_go(&url).await;
    }
    let (mut stage, server) = Stage::new();
    let site = Site::open(server, &[b"http/1.1"]).await;

    let output = site
        .visit("each_call_at_once_has_a_connection_where_the_server_offers_http1_only")
        .await;

    assert!(output.status.success(), "{output:?}");
    stage.dropped().await;
    stage.all_are(Version::HTTP_11);
    assert_eq!(site.connections(), 3);
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_told_by_its_certificate() {
    let (_, server) = Stage::new();
    let site = Site::open(server, &[b"h2"]).await;

    let refused = Client::connect(&site.url).await.unwrap_err();

    let told = format!("{:?}", bowline_chain(&refused));
    assert!(
        told.contains("no connection to https://localhost"),
        "{told}"
    );
    assert!(told.contains("certificate"), "{told}");
}

fn bowline_chain(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect()
}

/// What the client does, in a process of its own: which certificates are trusted is said by its environment.
async fn call_and_let_go(url: &str) {
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
    // The server has to see that the call was let go of, and not that its client is gone.
    client.call_tool("dropped", ()).await.unwrap();
}

fn url_of_the_parent() -> Option<String> {
    std::env::var("BOWLINE_TEST_URL").ok()
}

/// What is seen of calls on the server's side.
struct Stage {
    dropped: watch::Receiver<bool>,
    versions: Arc<Mutex<Vec<Version>>>,
}

/// Tells that it was dropped.
struct Told(watch::Sender<bool>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl Stage {
    fn new() -> (Self, Server) {
        let schema = json!({"type": "object"});
        let (tell, dropped) = watch::channel(false);
        let echo = Tool::raw("echo", schema.clone(), async |_, _| {
            Ok(CallToolResult::text("echo"))
        });
        let wait = Tool::raw("wait", schema.clone(), move |_, cx: bowline::Context| {
            let told = Told(tell.clone());
            async move {
                let _told = told;
                cx.progress(1.0);
                std::future::pending().await
            }
        });
        let seen = dropped.clone();
        let has_dropped = Tool::raw("dropped", schema, move |_, _| {
            let mut seen = seen.clone();
            async move {
                seen.wait_for(|dropped| *dropped).await.unwrap();
                Ok(CallToolResult::text("it was"))
            }
        });
        let versions = Arc::new(Mutex::new(Vec::new()));
        let noted = versions.clone();
        let note = move |request, next: Next| {
            let head = next.context().extensions().find::<http::request::Parts>();
            noted.lock().unwrap().extend(head.map(|head| head.version));
            next.run(request)
        };
        let server = Server::new("tls", "1.0.0").layer(note);
        let server = server.tool(echo).tool(wait).tool(has_dropped);
        (Self { dropped, versions }, server)
    }

    async fn dropped(&mut self) {
        self.dropped.wait_for(|dropped| *dropped).await.unwrap();
    }

    fn all_are(&self, version: Version) {
        let versions = self.versions.lock().unwrap();
        assert!(versions.len() >= 6, "{versions:?}");
        assert!(versions.iter().all(|seen| *seen == version), "{versions:?}");
    }
}

/// A server behind TLS, with a certificate of its own making.
struct Site {
    url: String,
    certificate: PathBuf,
    connections: Arc<Mutex<usize>>,
}

impl Site {
    async fn open(server: Server, offers: &[&[u8]]) -> Self {
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

    /// Runs the test of this name as the client.
    async fn visit(&self, test: &str) -> Output {
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

impl Drop for Site {
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
