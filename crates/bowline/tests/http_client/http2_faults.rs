//! Faults of a shared HTTP/2 connection: a stream error fails only its call, a connection error fails the calls in
//! flight, and the next call succeeds.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bowline::http::client::HyperClient;
use bowline::testing::PipeConnector;
use bowline::{Client, Error, Reply, Result};
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::scripted_server::{ScriptedReply, ScriptedServer};

/// An HTTP/2 server; the name of the called tool selects the fault.
struct FaultyServer {
    connector: PipeConnector,
    connections: Arc<AtomicUsize>,
    ends: watch::Sender<ConnectionEnd>,
    /// The response streams of `hold` calls.
    held: mpsc::UnboundedReceiver<mpsc::UnboundedSender<io::Result<String>>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ConnectionEnd {
    Open,
    Abrupt,
    Graceful,
}

impl FaultyServer {
    fn new() -> Self {
        let (ends, ending) = watch::channel(ConnectionEnd::Open);
        let (hold, held) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let connector = PipeConnector::with(move |far| {
            counted.fetch_add(1, Ordering::SeqCst);
            let (hold, mut ending) = (hold.clone(), ending.clone());
            ending.mark_unchanged();
            let service = service_fn(move |request| answer(request, hold.clone()));
            tokio::spawn(async move {
                let builder = http2::Builder::new(TokioExecutor::new());
                let mut serving =
                    std::pin::pin!(builder.serve_connection(TokioIo::new(far), service));
                tokio::select! {
                    _ = &mut serving => return,
                    _ = ending.changed() => {}
                }
                if *ending.borrow() == ConnectionEnd::Graceful {
                    serving.as_mut().graceful_shutdown();
                    drop(serving.await);
                }
            });
        });
        Self {
            connector,
            connections,
            ends,
            held,
        }
    }

    async fn client(&self) -> Client {
        let send = HyperClient::with_http2_connector(self.connector.clone());
        let connect = Client::connect("http://localhost/mcp").http_client(send);
        connect.protocol_version("2026-07-28").await.unwrap()
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Starts a call whose response the test sends.
    async fn hold(&mut self, client: &Client) -> HeldCall {
        let call = tokio::spawn(client.call_tool("hold", ()).id(7).start());
        let stream = self.held.recv().await.unwrap();
        HeldCall { call, stream }
    }
}

struct HeldCall {
    call: tokio::task::JoinHandle<Result<Reply>>,
    stream: mpsc::UnboundedSender<io::Result<String>>,
}

impl HeldCall {
    async fn answered(self) -> Result<Reply> {
        let answer = format!("data: {}\n\n", done(&json!(7)));
        self.stream.send(Ok(answer)).unwrap();
        self.call.await.unwrap()
    }
}

fn done(id: &Value) -> Value {
    let text = json!([{"type": "text", "text": "done"}]);
    json!({"jsonrpc": "2.0", "id": id, "result": {"resultType": "complete", "content": text}})
}

/// A response body fed by a channel; an error resets the stream.
struct ChannelBody(mpsc::UnboundedReceiver<io::Result<String>>);

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let next = self.0.poll_recv(cx);
        next.map(|next| next.map(|chunk| chunk.map(|text| Frame::data(text.into()))))
    }
}

async fn answer(
    request: Request<Incoming>,
    hold: mpsc::UnboundedSender<mpsc::UnboundedSender<io::Result<String>>>,
) -> io::Result<Response<ChannelBody>> {
    let body = request
        .into_body()
        .collect()
        .await
        .map_err(io::Error::other)?;
    let body: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
    let (chunks, receiver) = mpsc::unbounded_channel();
    let mut response = Response::new(ChannelBody(receiver));
    let kind = "text/event-stream".parse().unwrap();
    response.headers_mut().insert("content-type", kind);
    match body["params"]["name"].as_str() {
        Some("refuse") => return Err(io::ErrorKind::ConnectionRefused.into()),
        Some("break") => {
            chunks.send(Ok("data: {\"jsonrpc\"".into())).unwrap();
            chunks.send(Err(io::ErrorKind::BrokenPipe.into())).unwrap();
        }
        Some("hold") => hold.send(chunks).unwrap(),
        _ => chunks
            .send(Ok(format!("data: {}\n\n", done(&body["id"]))))
            .unwrap(),
    }
    Ok(response)
}

#[tokio::test(start_paused = true)]
async fn a_stream_error_fails_only_its_own_call() {
    for fault in ["refuse", "break"] {
        let mut server = FaultyServer::new();
        let client = server.client().await;
        let held = server.hold(&client).await;

        let faulty = client.call_tool(fault, ()).await;
        let next = client.call_tool("quick", ()).await;

        assert!(
            matches!(faulty, Err(Error::Transport { .. })),
            "{fault}: {faulty:?}"
        );
        assert_eq!(next.unwrap().text(), "done");
        assert_eq!(held.answered().await.unwrap().text(), "done");
        assert_eq!(server.connections(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_fails_calls_in_flight_and_the_next_call_reconnects() {
    let mut server = FaultyServer::new();
    let client = server.client().await;
    let held = server.hold(&client).await;

    server.ends.send(ConnectionEnd::Abrupt).unwrap();
    let lost = held.call.await.unwrap();
    let next = client.call_tool("quick", ()).await;

    assert!(matches!(lost, Err(Error::Transport { .. })), "{lost:?}");
    assert_eq!(next.unwrap().text(), "done");
    assert_eq!(server.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_graceful_shutdown_still_answers_calls_in_flight() {
    let mut server = FaultyServer::new();
    let client = server.client().await;
    let held = server.hold(&client).await;

    server.ends.send(ConnectionEnd::Graceful).unwrap();
    tokio::task::yield_now().await;
    let next = client.call_tool("quick", ()).await;

    assert_eq!(next.unwrap().text(), "done");
    assert_eq!(held.answered().await.unwrap().text(), "done");
}

#[tokio::test(start_paused = true)]
async fn a_server_without_http2_support_causes_a_transport_error() {
    let (_server, connector) = ScriptedServer::in_memory(|_| {
        ScriptedReply::Bytes("HTTP/1.1 400 Bad Request\r\n\r\n".into())
    });
    let send = HyperClient::with_http2_connector(connector);
    let connect = Client::connect("http://localhost/mcp").http_client(send);
    let client = connect.protocol_version("2026-07-28").await.unwrap();

    let outcome = client.call_tool("x", ()).await;

    assert!(
        matches!(outcome, Err(Error::Transport { .. })),
        "{outcome:?}"
    );
}
