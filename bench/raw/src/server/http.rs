//! The ceiling over HTTP: hyper, and the answer.

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

use crate::answers::{Answer, Answers};

pub(crate) async fn serve(port: u16, answers: Answers) {
    let listener = TcpListener::bind(("127.0.0.1", port)).await;
    let listener = listener.expect("the port is free");
    bench_fixture::announce(listener.local_addr().expect("it is bound"));
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let _ = stream.set_nodelay(true);
        tokio::spawn(connection(stream, answers.clone()));
    }
}

/// HTTP/1.1 and HTTP/2 alike, found out by what the client says first.
async fn connection(stream: TcpStream, answers: Answers) {
    let service = service_fn(move |request| {
        let answers = answers.clone();
        async move { Ok::<_, Infallible>(respond(request, answers).await) }
    });
    let mut first = [0; 3];
    let second_version = matches!(stream.peek(&mut first).await, Ok(3)) && first == *b"PRI";
    let io = TokioIo::new(stream);
    let _ = if second_version {
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
    answers: Answers,
) -> Response<Either<Full<Bytes>, Stream>> {
    let known = request.headers().contains_key("mcp-session-id");
    let body = request.into_body().collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    if body.is_empty() {
        let mut response = Response::new(Either::Left(Full::default()));
        *response.status_mut() = http::StatusCode::METHOD_NOT_ALLOWED;
        return response;
    }
    match answers.answer(&body) {
        Answer::Nothing => {
            let mut response = Response::new(Either::Left(Full::default()));
            *response.status_mut() = http::StatusCode::ACCEPTED;
            response
        }
        Answer::Now(text) => json(text, known),
        Answer::Later {
            after,
            notices,
            response,
        } if notices.is_empty() => {
            let working = answers.counters().begin();
            tokio::time::sleep(after).await;
            working.finish();
            json(response, known)
        }
        Answer::Later {
            after,
            notices,
            response,
        } => {
            let (sender, body) = events();
            let working = answers.counters().begin();
            // The stream owns the work: whoever drops the response drops it.
            let work = async move {
                for notice in &notices {
                    sender.say(notice.as_bytes());
                }
                if !after.is_zero() {
                    tokio::time::sleep(after).await;
                }
                working.finish();
                sender.say(&response);
            };
            stream(body.with(work))
        }
        Answer::Listen { first, each } => {
            let (sender, body) = events();
            let mut changes = answers.changes.subscribe();
            let work = async move {
                sender.say(first.as_bytes());
                while changes.recv().await.is_ok() {
                    sender.say(each.as_bytes());
                }
            };
            stream(body.with(work))
        }
    }
}

fn json(text: Vec<u8>, known: bool) -> Response<Either<Full<Bytes>, Stream>> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(text))));
    let headers = response.headers_mut();
    let json = http::HeaderValue::from_static("application/json");
    headers.insert(http::header::CONTENT_TYPE, json);
    // The answer to `initialize` gives a session; nothing remembers it.
    if !known {
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

/// Events that were said and not yet written.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<u8>>>);

impl Events {
    fn say(&self, message: &[u8]) {
        let mut said = self.lock();
        said.extend_from_slice(b"data: ");
        said.extend_from_slice(message);
        said.extend_from_slice(b"\n\n");
    }

    fn with(self, work: impl Future<Output = ()> + Send + 'static) -> Stream {
        Box::pin(Working {
            events: self,
            work: Some(Box::pin(work)),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("nobody panics under a lock")
    }
}

fn events() -> (Events, Events) {
    let events = Events::default();
    (events.clone(), events)
}

/// A body whose work runs when it is read.
struct Working {
    events: Events,
    work: Option<Work>,
}

impl http_body::Body for Working {
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
        let said = std::mem::take(&mut *self.events.lock());
        match (said.is_empty(), &self.work) {
            (false, _) => Poll::Ready(Some(Ok(Frame::data(said.into())))),
            (true, Some(_)) => Poll::Pending,
            (true, None) => Poll::Ready(None),
        }
    }
}
