//! Faults of one HTTP/2 connection, which many calls share: a stream's fault costs its call, the connection's costs
//! those under way, and what comes next works.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bowline::http::client::HyperSend;
use bowline::testing::Pipes;
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

use crate::scripted::{self, Say};

/// A peer that speaks HTTP/2 and does what the name of the called tool says.
struct Peer {
    pipes: Pipes,
    connections: Arc<AtomicUsize>,
    /// Ends every connection: at once, or when its streams are done.
    ends: watch::Sender<Ending>,
    /// Calls that are being held.
    held: mpsc::UnboundedReceiver<mpsc::UnboundedSender<io::Result<String>>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    NotYet,
    AtOnce,
    InGoodOrder,
}

impl Peer {
    fn new() -> Self {
        let (ends, ending) = watch::channel(Ending::NotYet);
        let (hold, held) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let pipes = Pipes::with(move |far| {
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
                if *ending.borrow() == Ending::InGoodOrder {
                    serving.as_mut().graceful_shutdown();
                    drop(serving.await);
                }
            });
        });
        Self {
            pipes,
            connections,
            ends,
            held,
        }
    }

    async fn client(&self) -> Client {
        let send = HyperSend::over_http2(self.pipes.clone());
        let connect = Client::connect("http://localhost/mcp").http(send);
        connect.speaking("2026-07-28").await.unwrap()
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Starts a call that is answered when the test says so.
    async fn hold(&mut self, client: &Client) -> Held {
        let call = tokio::spawn(client.call_tool("hold", ()).id(7).start());
        let stream = self.held.recv().await.unwrap();
        Held { call, stream }
    }
}

struct Held {
    call: tokio::task::JoinHandle<Result<Reply>>,
    stream: mpsc::UnboundedSender<io::Result<String>>,
}

impl Held {
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

/// What is said on a stream, or the fault that ends it.
struct Said(mpsc::UnboundedReceiver<io::Result<String>>);

impl Body for Said {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let next = self.0.poll_recv(cx);
        next.map(|said| said.map(|said| said.map(|text| Frame::data(text.into()))))
    }
}

async fn answer(
    request: Request<Incoming>,
    hold: mpsc::UnboundedSender<mpsc::UnboundedSender<io::Result<String>>>,
) -> io::Result<Response<Said>> {
    let body = request
        .into_body()
        .collect()
        .await
        .map_err(io::Error::other)?;
    let body: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
    let (say, said) = mpsc::unbounded_channel();
    let mut response = Response::new(Said(said));
    let kind = "text/event-stream".parse().unwrap();
    response.headers_mut().insert("content-type", kind);
    match body["params"]["name"].as_str() {
        Some("refuse") => return Err(io::ErrorKind::ConnectionRefused.into()),
        Some("break") => {
            say.send(Ok("data: {\"jsonrpc\"".into())).unwrap();
            say.send(Err(io::ErrorKind::BrokenPipe.into())).unwrap();
        }
        Some("hold") => hold.send(say).unwrap(),
        _ => say
            .send(Ok(format!("data: {}\n\n", done(&body["id"]))))
            .unwrap(),
    }
    Ok(response)
}

#[tokio::test(start_paused = true)]
async fn a_fault_of_one_stream_costs_its_call_and_no_other() {
    for fault in ["refuse", "break"] {
        let mut peer = Peer::new();
        let client = peer.client().await;
        let held = peer.hold(&client).await;

        let faulty = client.call_tool(fault, ()).await;
        let next = client.call_tool("quick", ()).await;

        assert!(
            matches!(faulty, Err(Error::Transport { .. })),
            "{fault}: {faulty:?}"
        );
        assert_eq!(next.unwrap().text(), "done");
        assert_eq!(held.answered().await.unwrap().text(), "done");
        assert_eq!(peer.connections(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_fails_what_is_under_way_and_the_next_call_makes_another() {
    let mut peer = Peer::new();
    let client = peer.client().await;
    let held = peer.hold(&client).await;

    peer.ends.send(Ending::AtOnce).unwrap();
    let lost = held.call.await.unwrap();
    let next = client.call_tool("quick", ()).await;

    assert!(matches!(lost, Err(Error::Transport { .. })), "{lost:?}");
    assert_eq!(next.unwrap().text(), "done");
    assert_eq!(peer.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_goodbye_still_answers_what_is_under_way() {
    let mut peer = Peer::new();
    let client = peer.client().await;
    let held = peer.hold(&client).await;

    peer.ends.send(Ending::InGoodOrder).unwrap();
    tokio::task::yield_now().await;
    let next = client.call_tool("quick", ()).await;

    assert_eq!(next.unwrap().text(), "done");
    assert_eq!(held.answered().await.unwrap().text(), "done");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_speaks_no_http2_is_a_failed_wire() {
    let (_peer, pipes) =
        scripted::Peer::in_memory(|_| Say::Bytes("HTTP/1.1 400 Bad Request\r\n\r\n".into()));
    let send = HyperSend::over_http2(pipes);
    let connect = Client::connect("http://localhost/mcp").http(send);
    let client = connect.speaking("2026-07-28").await.unwrap();

    let outcome = client.call_tool("x", ()).await;

    assert!(
        matches!(outcome, Err(Error::Transport { .. })),
        "{outcome:?}"
    );
}
