//! The raw server over HTTP, with hyper.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};

use crate::responder::{Action, RawResponder};

pub(crate) async fn serve(port: u16, responder: RawResponder) {
    let listener = TcpListener::bind(("127.0.0.1", port)).await;
    let listener = listener.expect("failed to bind");
    bench_fixture::print_address(listener.local_addr().expect("a bound socket"));
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let _ = stream.set_nodelay(true);
        tokio::spawn(connection(stream, responder.clone()));
    }
}

/// Serves HTTP/1.1 or HTTP/2, detected by the first bytes of the client.
async fn connection(stream: TcpStream, responder: RawResponder) {
    let service = service_fn(move |request| {
        let responder = responder.clone();
        async move { Ok::<_, Infallible>(respond(request, responder).await) }
    });
    let mut first = [0; 3];
    let is_http2 = matches!(stream.peek(&mut first).await, Ok(3)) && first == *b"PRI";
    let io = TokioIo::new(stream);
    let _ = if is_http2 {
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder.serve_connection(io, service).await
    } else {
        let builder = hyper::server::conn::http1::Builder::new();
        builder.serve_connection(io, service).await
    };
}

type Stream = Pin<Box<dyn http_body::Body<Data = Bytes, Error = Infallible> + Send>>;
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

async fn respond(
    request: Request<Incoming>,
    responder: RawResponder,
) -> Response<Either<Full<Bytes>, Stream>> {
    let has_session = request.headers().contains_key("mcp-session-id");
    let body = request.into_body().collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    if body.is_empty() {
        let mut response = Response::new(Either::Left(Full::default()));
        *response.status_mut() = http::StatusCode::METHOD_NOT_ALLOWED;
        return response;
    }
    match responder.handle(&body) {
        Action::Ignore => {
            let mut response = Response::new(Either::Left(Full::default()));
            *response.status_mut() = http::StatusCode::ACCEPTED;
            response
        }
        Action::Respond(text) => json(text, has_session),
        Action::RespondLater {
            after,
            notifications,
            response,
        } if notifications.is_empty() => {
            let running = responder.counters().begin();
            tokio::time::sleep(after).await;
            running.finish();
            json(response, has_session)
        }
        Action::RespondLater {
            after,
            notifications,
            response,
        } => {
            let (sender, body) = events();
            let running = responder.counters().begin();
            // The body owns the work, so that dropping the response cancels it.
            let work = async move {
                for notification in &notifications {
                    sender.push(notification.as_bytes());
                }
                if !after.is_zero() {
                    tokio::time::sleep(after).await;
                }
                running.finish();
                sender.push(&response);
            };
            stream(body.into_body(work))
        }
        Action::Listen { first, each } => {
            let (sender, body) = events();
            let mut changes = responder.changes.subscribe();
            let work = async move {
                sender.push(first.as_bytes());
                while changes.recv().await.is_ok() {
                    sender.push(each.as_bytes());
                }
            };
            stream(body.into_body(work))
        }
    }
}

fn json(text: Vec<u8>, has_session: bool) -> Response<Either<Full<Bytes>, Stream>> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(text))));
    let headers = response.headers_mut();
    let json = http::HeaderValue::from_static("application/json");
    headers.insert(http::header::CONTENT_TYPE, json);
    // The response to `initialize` has a session id, which is not stored.
    if !has_session {
        let session = http::HeaderValue::from_static("raw");
        headers.insert("mcp-session-id", session);
    }
    response
}

fn stream(body: Stream) -> Response<Either<Full<Bytes>, Stream>> {
    let mut response = Response::new(Either::Right(body));
    let events = http::HeaderValue::from_static("text/event-stream");
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, events);
    response
}

/// Encoded events that hyper has not read yet.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<u8>>>);

impl Events {
    fn push(&self, message: &[u8]) {
        let mut bytes = self.lock();
        bytes.extend_from_slice(b"data: ");
        bytes.extend_from_slice(message);
        bytes.extend_from_slice(b"\n\n");
    }

    fn into_body(self, work: impl Future<Output = ()> + Send + 'static) -> Stream {
        Box::pin(WorkBody {
            events: self,
            work: Some(Box::pin(work)),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0
            .lock()
            .expect("no thread panics while it holds the lock")
    }
}

fn events() -> (Events, Events) {
    let events = Events::default();
    (events.clone(), events)
}

/// A body that polls its work when it is polled.
struct WorkBody {
    events: Events,
    work: Option<Work>,
}

impl http_body::Body for WorkBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        use std::task::Poll;
        if let Some(work) = &mut self.work
            && work.as_mut().poll(cx).is_ready()
        {
            self.work = None;
        }
        let bytes = std::mem::take(&mut *self.events.lock());
        match (bytes.is_empty(), &self.work) {
            (false, _) => Poll::Ready(Some(Ok(Frame::data(bytes.into())))),
            (true, Some(_)) => Poll::Pending,
            (true, None) => Poll::Ready(None),
        }
    }
}
