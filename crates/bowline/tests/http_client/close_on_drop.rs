//! A dropped request closes its connection immediately, not when the runtime next polls the connection task.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bowline::http::client::{HttpClient as _, HyperClient, RequestBody};
use bowline::testing::PipeConnector;
use bytes::Bytes;
use http::Request;
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf};
use tokio::sync::mpsc;

/// A sender, and the server ends of its connections.
fn connections() -> (HyperClient, mpsc::UnboundedReceiver<DuplexStream>) {
    let (accepted, accept) = mpsc::unbounded_channel();
    let connector = PipeConnector::with(move |far| accepted.send(far).unwrap());
    (HyperClient::with_connector(connector), accept)
}

fn request() -> Request<RequestBody> {
    let body = RequestBody::from(Bytes::from_static(b"{}"));
    Request::post("http://tools.example/").body(body).unwrap()
}

async fn read_request(far: &mut DuplexStream) {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n{}") {
        read.push(far.read_u8().await.unwrap());
    }
}

/// Whether the client end is closed, checked without polling any task.
fn is_closed(far: &mut DuplexStream) -> bool {
    let mut byte = [0];
    let mut buffer = ReadBuf::new(&mut byte);
    let mut cx = Context::from_waker(Waker::noop());
    let read = Pin::new(far).poll_read(&mut cx, &mut buffer);
    matches!(read, Poll::Ready(Ok(()))) && buffer.filled().is_empty()
}

#[tokio::test]
async fn a_request_dropped_before_its_response_closes_its_connection_before_any_task_is_polled() {
    let (send, mut accept) = connections();
    let mut sending = send.send(request());
    let mut far = tokio::select! {
        biased;
        _ = &mut sending => panic!("no response was sent"),
        far = async {
            let mut far = accept.recv().await.unwrap();
            read_request(&mut far).await;
            far
        } => far,
    };
    assert!(!is_closed(&mut far));

    drop(sending);

    assert!(is_closed(&mut far));
}

#[tokio::test]
async fn a_body_dropped_while_it_is_awaited_closes_its_connection_before_any_task_is_polled() {
    let (send, mut accept) = connections();
    let serve = async {
        let mut far = accept.recv().await.unwrap();
        read_request(&mut far).await;
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        far.write_all(head).await.unwrap();
        far
    };
    let (response, mut far) = tokio::join!(send.send(request()), serve);
    let mut reading = Box::pin(response.unwrap().into_body().collect(1_000));
    tokio::select! {
        biased;
        _ = &mut reading => panic!("the body never ends"),
        () = tokio::task::yield_now() => {}
    }
    assert!(!is_closed(&mut far));

    drop(reading);

    assert!(is_closed(&mut far));
}

#[tokio::test]
async fn a_completed_request_leaves_its_connection_open_for_the_next() {
    let (send, mut accept) = connections();
    let mut far = None;
    for _ in 0..3 {
        let serve = async {
            let mut far = match far.take() {
                Some(far) => far,
                None => accept.recv().await.unwrap(),
            };
            read_request(&mut far).await;
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nword";
            far.write_all(answer).await.unwrap();
            far
        };
        let (response, served) = tokio::join!(send.send(request()), serve);
        response.unwrap().into_body().collect(1_000).await.unwrap();
        far = Some(served);
    }

    assert!(!is_closed(&mut far.unwrap()));
    assert!(accept.try_recv().is_err(), "no second connection");
}
