//! An HTTP/2 server made of `h2`, on pipes in memory or on real sockets, whose connections follow a script.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline::testing::Pipes;
use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{Request, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

/// The bytes of one connection, as the server has them.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

type Serve = dyn Fn(usize, Box<dyn Io>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

/// A server, and how many connections it has accepted.
#[derive(Clone)]
pub(crate) struct Http2Peer {
    serve: Arc<Serve>,
    accepted: Arc<AtomicUsize>,
}

impl Http2Peer {
    /// Serves each connection by `serve`, which gets its number: 1 for the first.
    pub(crate) fn new<F>(serve: impl Fn(usize, Box<dyn Io>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self {
            serve: Arc::new(move |number, io| Box::pin(serve(number, io))),
            accepted: Arc::default(),
        }
    }

    fn accept(&self, io: impl Io + 'static) {
        let number = self.accepted.fetch_add(1, Ordering::SeqCst) + 1;
        tokio::spawn((self.serve)(number, Box::new(io)));
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    pub(crate) fn pipes(&self) -> Pipes {
        let peer = self.clone();
        Pipes::with(move |far| peer.accept(far))
    }

    /// Listens on a port of its own; the URL.
    pub(crate) async fn listen(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let peer = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                peer.accept(stream);
            }
        });
        url
    }
}

/// Serves one connection: each request is answered in a task of its own.
pub(crate) async fn serve<F>(
    io: impl Io,
    builder: &h2::server::Builder,
    answer: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let Ok(mut connection) = builder.handshake::<_, Bytes>(io).await else {
        return;
    };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(answer(request, respond));
    }
}

/// The JSON-RPC message that a request carries.
pub(crate) async fn message(request: Request<RecvStream>) -> Value {
    let mut body = request.into_body();
    let mut bytes = Vec::new();
    while let Some(Ok(chunk)) = body.data().await {
        let _ = body.flow_control().release_capacity(chunk.len());
        bytes.extend_from_slice(&chunk);
    }
    serde_json::from_slice(&bytes).unwrap()
}

/// The result of a tool.
pub(crate) fn done(id: &Value) -> Value {
    let text = json!([{"type": "text", "text": "done"}]);
    json!({"jsonrpc": "2.0", "id": id, "result": {"resultType": "complete", "content": text}})
}

/// The head of a response of this media type.
pub(crate) fn head(media: &str) -> Response<()> {
    let response = Response::builder().header("content-type", media);
    response.body(()).unwrap()
}

/// Answers a call of a tool with JSON.
pub(crate) async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let message = message(request).await;
    let json = done(&message["id"]).to_string();
    if let Ok(mut body) = respond.send_response(head("application/json"), false) {
        let _ = body.send_data(json.into(), true);
    }
}
