//! Clients that disconnect, are slow or send malformed HTTP: the server closes each within a timeout, and other clients
//! are not affected.

use std::time::Duration;

use bowline::http::HttpService;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::support::*;

/// Opens a raw connection to the service, and returns it with the serving task.
fn open_raw_connection(service: &HttpService) -> (DuplexStream, JoinHandle<()>) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let service = service.clone();
    (
        near,
        tokio::spawn(async move { service.serve_connection(far).await }),
    )
}

/// Reads until the server closes the connection.
async fn read_to_close(near: &mut DuplexStream) -> String {
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(600), near.read_to_end(&mut answer));
    // A reset ends the connection too.
    let _ = read.await.expect("the server closes the connection");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Writes one byte per second until the server closes the connection, and returns the response.
async fn write_slowly(mut near: DuplexStream, bytes: Vec<u8>) -> String {
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    for byte in bytes {
        seconds.tick().await;
        if near.write_all(&[byte]).await.is_err() {
            break;
        }
    }
    read_to_close(&mut near).await
}

#[tokio::test(start_paused = true)]
async fn a_request_truncated_at_any_byte_starts_no_handler_and_leaves_no_state() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http();
    let whole = http1_bytes(call(1, "wait", "a")).await;
    let begun = Instant::now();

    for cut in 0..whole.len() {
        let (mut near, serving) = open_raw_connection(&service);
        near.write_all(&whole[..cut]).await.unwrap();
        drop(near);
        serving.await.unwrap();

        assert_eq!(service.in_flight(), 0, "cut at byte {cut}");
        assert!(fixture.events.try_recv().is_err(), "cut at byte {cut}");
    }

    assert_eq!(begun.elapsed(), Duration::ZERO, "no timeout was needed");
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_complete_head_is_closed_after_30_seconds() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http();
    for input in [
        "",
        "P",
        "PRI * HTTP/2.0\r\n\r\nSM",
        "POST /mcp HTTP/1.1",
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\n",
    ] {
        let begun = Instant::now();
        let (mut near, serving) = open_raw_connection(&service);
        near.write_all(input.as_bytes()).await.unwrap();

        read_to_close(&mut near).await;
        serving.await.unwrap();

        assert_eq!(begun.elapsed().as_secs(), 30, "{input:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_sent_byte_by_byte_times_out() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http();
    let begun = Instant::now();
    let (near, serving) = open_raw_connection(&service);

    let answer = write_slowly(near, http1_bytes(call(1, "echo", "a")).await).await;
    serving.await.unwrap();

    assert!(!answer.contains("200 OK"), "{answer}");
    assert!(begun.elapsed().as_secs() <= 35, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_body_sent_byte_by_byte_times_out() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http();
    let whole = http1_bytes(call(1, "echo", "a")).await;
    let body = whole.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    let begun = Instant::now();
    let (mut near, serving) = open_raw_connection(&service);

    near.write_all(&whole[..body]).await.unwrap();
    let answer = write_slowly(near, whole[body..].to_vec()).await;
    serving.await.unwrap();

    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(begun.elapsed().as_secs() <= 35, "{:?}", begun.elapsed());
    assert_eq!(service.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_endless_head_is_refused() {
    let fixture = ServerFixture::new();
    let (mut near, serving) = open_raw_connection(&fixture.server.http());
    let line = format!("x-endless: {}\r\n", "x".repeat(1000));

    near.write_all(b"POST /mcp HTTP/1.1\r\n").await.unwrap();
    let (mut reading, mut writing) = tokio::io::split(near);
    let endless = async { while writing.write_all(line.as_bytes()).await.is_ok() {} };
    let mut answer = Vec::new();
    let (_, read) = tokio::join!(endless, reading.read_to_end(&mut answer));
    serving.await.unwrap();

    assert!(read.is_ok());
    assert!(answer.starts_with(b"HTTP/1.1 431"), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn malformed_http_is_refused_and_the_connection_closed() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http();
    let chunked = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                   transfer-encoding: chunked\r\n\r\n";
    for input in [
        "\0\0\0\0\r\n\r\n".to_owned(),
        "GET\r\n\r\n".to_owned(),
        format!("{chunked}zz\r\n{{}}\r\n"),
        format!("{chunked}ffffffffffffffffff\r\n"),
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnonsense that is no frame".to_owned(),
    ] {
        let begun = Instant::now();
        let (mut near, serving) = open_raw_connection(&service);
        near.write_all(input.as_bytes()).await.unwrap();

        let answer = read_to_close(&mut near).await;
        serving.await.unwrap();

        assert!(
            !answer.contains("200 OK"),
            "{input:?} was answered with {answer}"
        );
        assert_eq!(begun.elapsed().as_secs(), 0, "{input:?}");
        assert_eq!(service.in_flight(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed() {
    let fixture = ServerFixture::new();
    let (mut near, serving) = open_raw_connection(&fixture.server.http());
    near.write_all(&http1_bytes(call(1, "echo", "a")).await)
        .await
        .unwrap();
    let begun = Instant::now();

    let answer = read_to_close(&mut near).await;
    serving.await.unwrap();

    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(begun.elapsed().as_secs() <= 60, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_does_not_delay_other_clients() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut slow = Vec::new();
    for _ in 0..100 {
        let (mut near, serving) = open_raw_connection(&service);
        near.write_all(b"POST /mcp HTTP/1.1\r\n").await.unwrap();
        slow.push((near, serving));
    }
    let begun = Instant::now();

    let response = PlainConnection::http1(&service)
        .await
        .send(call(1, "echo", "a"))
        .await;

    assert_eq!(response.json().await["id"], 1);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn requests_reset_immediately_do_not_close_their_http2_connection() {
    let service = ServerFixture::new().server.http();
    let (mut near, _serving) = open_raw_connection(&service);
    let mut input = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    input.extend(http2_frame(SETTINGS, 0, &[]));
    for nth in 0..200 {
        let stream = nth * 2 + 1;
        // POST, http and / by their index in the static HPACK table; the host as a literal.
        let head = b"\x83\x86\x84\x41\x09localhost";
        input.extend(http2_frame(HEADERS, stream, head));
        input.extend(http2_frame(RST_STREAM, stream, &8_u32.to_be_bytes()));
    }

    // One write, so that the server reads each HEADERS together with its RST_STREAM.
    near.write_all(&input).await.unwrap();
    near.write_all(&http2_frame(PING, 0, b"are you?"))
        .await
        .unwrap();

    loop {
        let (kind, payload) = read_http2_frame(&mut near).await;
        assert_ne!(kind, GOAWAY, "the connection was closed: {payload:?}");
        if kind == PING && payload == b"are you?" {
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_http2_connection_that_only_pings_is_closed() {
    let service = ServerFixture::new().server.http();
    let (mut near, _serving) = open_raw_connection(&service);
    near.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    near.write_all(&http2_frame(SETTINGS, 0, &[]))
        .await
        .unwrap();
    let begun = Instant::now();

    let (mut reader, mut writer) = tokio::io::split(near);
    let (acknowledge, mut acknowledged) = tokio::sync::mpsc::unbounded_channel::<Vec<u8>>();
    let pinging = tokio::spawn(async move {
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        loop {
            let frame = tokio::select! {
                Some(answer) = acknowledged.recv() => answer,
                _ = seconds.tick() => http2_frame(PING, 0, b"are you?"),
            };
            if writer.write_all(&frame).await.is_err() {
                break;
            }
        }
    });
    let mut answers = 0;
    let reading = async {
        loop {
            let (kind, payload) = read_http2_frame(&mut reader).await;
            match kind {
                PING if payload == b"are you?" => answers += 1,
                PING => {
                    let mut answer = http2_frame(PING, 0, &payload);
                    answer[4] = 1;
                    acknowledge.send(answer).unwrap();
                }
                GOAWAY => break,
                _ => {}
            }
        }
    };
    let limit = Duration::from_secs(30 * 60);
    let ended = tokio::time::timeout(limit, reading).await;
    pinging.abort();

    assert!(ended.is_ok(), "the connection was never closed");
    assert!(answers > 10, "the connection answered pings");
    assert!(
        begun.elapsed() >= Duration::from_secs(60),
        "closed too early"
    );
}

#[tokio::test(start_paused = true)]
async fn an_http2_connection_with_an_idle_stream_stays_open() {
    let fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut connection = PlainConnection::http2(&service).await;
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let mut response = connection
        .send(modern_request("L1", "subscriptions/listen", filter))
        .await;
    response.chunk().await.unwrap();

    let until = Instant::now() + Duration::from_secs(10 * 60);
    while let Ok(chunk) = tokio::time::timeout_at(until, response.chunk()).await {
        assert!(chunk.is_some(), "the stream ended");
    }
    let again = connection.send(call(2, "echo", "a")).await;

    assert_eq!(again.json().await["id"], 2);
}

/// An HTTP/2 frame. A HEADERS frame has END_HEADERS set.
fn http2_frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let flags = if kind == HEADERS { 0x04 } else { 0 };
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

async fn read_http2_frame(near: &mut (impl AsyncRead + Unpin)) -> (u8, Vec<u8>) {
    let mut head = [0; 9];
    near.read_exact(&mut head).await.unwrap();
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    near.read_exact(&mut payload).await.unwrap();
    (head[3], payload)
}

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
