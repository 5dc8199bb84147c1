//! The tap on HTTP: a reverse proxy that passes requests and responses through, chunk by chunk.
//!
//! ```text
//! client ── request ──▶ TapService ── request ──▶ upstream       headers but those of one connection are passed on
//!        ◀─ TappedBody ──────────────◀ response ──               each chunk is recorded, then passed on
//! ```
//!
//! A client that disconnects drops the response body, or the future that waits for the response. Both close the request
//! to the upstream, so a modern cancel arrives there at once.

mod headers;

mod message_tee;

mod tapped_body;

mod upstream;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bowline::http::RedactedUrl;
use bowline::http::server::SourcePolicy;
use bowline_recording::{EndedBy, EventKind, HttpHeader, Recorder, Side};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::interrupted;
use crate::suggestion::Suggestion;
use crate::values::NamedValue;

use message_tee::{MessageTee, TeeBudget};
use tapped_body::{ExchangeEnd, TappedBody};
use upstream::Upstream;

/// Where clients reach the proxy.
pub(super) struct Front {
    pub(super) address: String,
    pub(super) allow_hosts: Vec<String>,
    pub(super) allow_origins: Vec<String>,
}

/// Serves until a signal.
///
/// # Cancel safety
///
/// Dropping it closes all connections, and with them the requests to the upstream.
pub(super) async fn run(
    url: &str,
    headers: Vec<NamedValue>,
    front: &Front,
    recorder: &Recorder,
) -> Result<(), Failure> {
    let upstream = Upstream::new(url, headers)?;
    let listener = TcpListener::bind(&front.address).await.map_err(|error| {
        let message = format!("failed to listen on {}", front.address);
        let failure = Failure::other(message).caused_by(error);
        failure.suggest(Suggestion::FreeAddress)
    })?;
    let address = listener
        .local_addr()
        .map_err(|error| Failure::other("failed to listen").caused_by(error))?;
    eprintln!("bowline: listening on http://{address}{}", upstream.path());
    let state = Arc::new(ProxyState {
        source: source_policy(front, address.ip()),
        upstream,
        recorder: recorder.clone(),
        exchanges: AtomicU64::new(0),
        budget: TeeBudget::default(),
        is_stopping: Arc::default(),
    });
    let mut connections = JoinSet::new();
    tokio::select! {
        biased; // a signal counts even if clients keep connecting
        () = interrupted() => {}
        () = accept(&listener, &state, &mut connections) => {}
    }
    // What clients did before the signal may have arrived with it, and is theirs. In turns: if this program did not run
    // for a while, one long wait would be over at once.
    for _ in 0..LAST_EVENTS_TURNS {
        tokio::time::sleep(LAST_EVENTS_TURN).await;
    }
    // Dropping the connections ends their exchanges: not because a client has cancelled them.
    state.is_stopping.store(true, Ordering::Relaxed);
    connections.shutdown().await;
    Ok(())
}

/// Accepts what our server accepts, so that a web page cannot reach the upstream through the proxy by DNS rebinding.
fn source_policy(front: &Front, ip: IpAddr) -> SourcePolicy {
    let policy = match ip.is_loopback() {
        true => SourcePolicy::loopback(),
        false => SourcePolicy::public(),
    };
    let policy = front
        .allow_hosts
        .iter()
        .fold(policy, SourcePolicy::allow_host);
    front
        .allow_origins
        .iter()
        .fold(policy, SourcePolicy::allow_origin)
}

/// What all connections share.
struct ProxyState {
    source: SourcePolicy,
    upstream: Upstream,
    recorder: Recorder,
    /// The number of the last HTTP request.
    exchanges: AtomicU64,
    budget: TeeBudget,
    is_stopping: Arc<AtomicBool>,
}

async fn accept(listener: &TcpListener, state: &Arc<ProxyState>, connections: &mut JoinSet<()>) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut number = 0;
    loop {
        while connections.try_join_next().is_some() {}
        // Never closed.
        let Ok(permit) = permits.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                number += 1;
                let (state, number) = (state.clone(), number);
                connections.spawn(async move {
                    serve_connection(stream, number, state).await;
                    drop(permit);
                });
            }
            // Too many open files, or a connection that was reset before it was accepted.
            Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
        }
    }
}

async fn serve_connection(stream: TcpStream, connection: u64, state: Arc<ProxyState>) {
    let _ = stream.set_nodelay(true);
    // The version of HTTP is detected by the first bytes, for which hyper waits without a limit.
    let first = tokio::time::timeout(HEAD_TIMEOUT, stream.readable()).await;
    if !matches!(first, Ok(Ok(()))) {
        return;
    }
    state.recorder.record(connection, None, EventKind::Open);
    let open = OpenConnection {
        recorder: state.recorder.clone(),
        connection,
        by: EndedBy::Tap,
    };
    let service = hyper::service::service_fn(move |request| {
        let state = state.clone();
        async move { Ok::<_, Infallible>(state.handle(connection, request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        // A client that closes its side is gone: the modern cancel.
        .half_close(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        // As our server: with hyper's default of 20, clients that drop many calls at once would lose all others.
        .max_pending_accept_reset_streams(MAX_RESETS);
    // An error is a client that is gone or breaks HTTP; its exchanges have ended.
    let _ = builder
        .serve_connection(TokioIo::new(stream), service)
        .await;
    open.closed_by(EndedBy::Client);
}

/// Records the end of a connection, also if its task is aborted.
struct OpenConnection {
    recorder: Recorder,
    connection: u64,
    by: EndedBy,
}

impl OpenConnection {
    fn closed_by(mut self, by: EndedBy) {
        self.by = by;
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let (by, exit) = (self.by, None);
        self.recorder
            .record(self.connection, None, EventKind::Close { by, exit });
    }
}

type ProxyBody = http_body_util::combinators::BoxBody<Bytes, hyper::Error>;

impl ProxyState {
    /// Passes a request on, and its response back.
    async fn handle(&self, connection: u64, request: Request<Incoming>) -> Response<ProxyBody> {
        if let Err(why) = self.source.check(request.uri(), request.headers()) {
            return text_response(StatusCode::FORBIDDEN, format!("{why}\n"));
        }
        let exchange = self.exchanges.fetch_add(1, Ordering::Relaxed) + 1;
        let (head, body) = request.into_parts();
        self.recorder.record(
            connection,
            Some(exchange),
            EventKind::Request {
                method: head.method.to_string(),
                path: head
                    .uri
                    .path_and_query()
                    .map_or("/", |it| it.as_str())
                    .to_owned(),
                headers: recorded(&head.headers),
            },
        );
        // Ends the exchange when it is dropped: by the client, unless something else was seen.
        let is_stopping = self.is_stopping.clone();
        let end = ExchangeEnd::new(self.recorder.clone(), connection, exchange, is_stopping);
        let tee = |from, is_message| {
            let place = message_tee::Place {
                connection,
                exchange,
                from,
            };
            MessageTee::new(
                self.recorder.clone(),
                place,
                is_message,
                self.budget.clone(),
            )
        };
        let is_endpoint = head.uri.path() == self.upstream.path();
        let is_post = head.method == http::Method::POST;
        let kind = message_tee::request_kind(&head.headers, is_post, is_endpoint);
        let body = TappedBody::request(body, tee(Side::Client, kind), &head.headers);
        match self.upstream.send(head, body).await {
            Ok(response) => {
                let (mut head, body) = response.into_parts();
                self.recorder.record(
                    connection,
                    Some(exchange),
                    EventKind::Response {
                        status: head.status.as_u16(),
                        headers: recorded(&head.headers),
                    },
                );
                headers::remove_hop_by_hop(&mut head.headers);
                let kind = message_tee::response_kind(&head.headers, is_post, is_endpoint);
                let tee = tee(Side::Server, kind);
                let body = TappedBody::response(body, tee, &head.headers, end);
                Response::from_parts(head, body.boxed())
            }
            Err(error) => {
                let status = StatusCode::BAD_GATEWAY;
                self.recorder.record(
                    connection,
                    Some(exchange),
                    EventKind::Response {
                        status: status.as_u16(),
                        headers: Vec::new(),
                    },
                );
                end.set(EndedBy::Tap, false);
                text_response(status, format!("bowline tap: {error}\n"))
            }
        }
    }
}

/// Returns headers as they are recorded.
fn recorded(headers: &HeaderMap) -> Vec<HttpHeader> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let headers = headers.iter();
    headers
        .map(|(name, value)| HttpHeader(name.as_str().to_owned(), text(value.as_bytes())))
        .collect()
}

fn text_response(status: StatusCode, text: String) -> Response<ProxyBody> {
    let body = Full::new(Bytes::from(text))
        .map_err(|never| match never {})
        .boxed();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

/// The error of a URL that cannot be an upstream.
fn invalid_url(url: &str) -> Failure {
    Failure::new(
        Exit::Usage,
        format!("invalid URL `{}`", RedactedUrl::new(url)),
    )
}

const MAX_CONNECTIONS: usize = 1024;
/// Maximum number of streams of one HTTP/2 connection that the client reset before they were accepted.
const MAX_RESETS: usize = 4096;
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// For how long events of clients are still recorded after the signal that ends the tap.
const LAST_EVENTS_TURN: Duration = Duration::from_millis(10);
const LAST_EVENTS_TURNS: usize = 5;
