//! A scripted HTTP/2 server built on `h2`, on in-memory pipes or real sockets.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline::testing::PipeConnector;
use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{Request, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

/// The server's end of a connection.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

type Serve = dyn Fn(usize, Box<dyn Io>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

/// A server that counts the connections it accepts.
#[derive(Clone)]
pub(crate) struct Http2Server {
    serve: Arc<Serve>,
    accepted_count: Arc<AtomicUsize>,
}

impl Http2Server {
    /// Serves each connection with `serve`, which gets the number of the connection, starting at 1.
    pub(crate) fn new<F>(serve: impl Fn(usize, Box<dyn Io>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self {
            serve: Arc::new(move |number, io| Box::pin(serve(number, io))),
            accepted_count: Arc::default(),
        }
    }

    fn accept(&self, io: impl Io + 'static) {
        let number = self.accepted_count.fetch_add(1, Ordering::SeqCst) + 1;
        tokio::spawn((self.serve)(number, Box::new(io)));
    }

    pub(crate) fn accepted_count(&self) -> usize {
        self.accepted_count.load(Ordering::SeqCst)
    }

    pub(crate) fn connector(&self) -> PipeConnector {
        let server = self.clone();
        PipeConnector::with(move |far| server.accept(far))
    }

    /// Listens on a free port and returns the URL.
    pub(crate) async fn listen(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let server = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                server.accept(stream);
            }
        });
        url
    }
}

/// Serves one connection and answers each request in its own task.
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

/// Reads the JSON-RPC message in the body of a request.
pub(crate) async fn message(request: Request<RecvStream>) -> Value {
    let mut body = request.into_body();
    let mut bytes = Vec::new();
    while let Some(Ok(chunk)) = body.data().await {
        let _ = body.flow_control().release_capacity(chunk.len());
        bytes.extend_from_slice(&chunk);
    }
    serde_json::from_slice(&bytes).unwrap()
}

/// A tool result with the text `done`.
pub(crate) fn done(id: &Value) -> Value {
    let text = json!([{"type": "text", "text": "done"}]);
    json!({"jsonrpc": "2.0", "id": id, "result": {"resultType": "complete", "content": text}})
}

/// The head of a response of this media type.
pub(crate) fn head(media: &str) -> Response<()> {
    let response = Response::builder().header("content-type", media);
    response.body(()).unwrap()
}

/// Answers a tool call with JSON.
pub(crate) async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let message = message(request).await;
    let json = done(&message["id"]).to_string();
    if let Ok(mut body) = respond.send_response(head("application/json"), false) {
        let _ = body.send_data(json.into(), true);
    }
}
