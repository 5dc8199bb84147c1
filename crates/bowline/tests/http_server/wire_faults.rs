//! Clients that break off, dawdle or talk nonsense: each costs the server a while at most, and nobody else anything.

use std::time::Duration;

use bowline::http::HttpService;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::support::*;

/// A raw connection to the service, and what serves it.
fn dial(service: &HttpService) -> (DuplexStream, JoinHandle<()>) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let service = service.clone();
    (
        near,
        tokio::spawn(async move { service.serve_connection(far).await }),
    )
}

/// What comes back until the server closes the connection.
async fn rest(near: &mut DuplexStream) -> String {
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(600), near.read_to_end(&mut answer));
    // A connection that is reset has nothing more to say either.
    let _ = read.await.expect("the server closes it");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Writes a byte a second until it is cut off, and returns what came back.
async fn drip(mut near: DuplexStream, bytes: Vec<u8>) -> String {
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    for byte in bytes {
        seconds.tick().await;
        if near.write_all(&[byte]).await.is_err() {
            break;
        }
    }
    rest(&mut near).await
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_cut_at_any_byte_starts_no_handler_and_leaves_nothing() {
    let mut stage = Stage::new();
    let service = stage.server.http();
    let whole = raw(call(1, "wait", "a")).await;
    let begun = Instant::now();

    for cut in 0..whole.len() {
        let (mut near, serving) = dial(&service);
        near.write_all(&whole[..cut]).await.unwrap();
        drop(near);
        serving.await.unwrap();

        assert_eq!(service.in_flight(), 0, "cut at byte {cut}");
        assert!(stage.happened.try_recv().is_err(), "cut at byte {cut}");
    }

    assert_eq!(begun.elapsed(), Duration::ZERO, "nothing was waited for");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_say_what_it_wants_is_cut_off() {
    let stage = Stage::new();
    let service = stage.server.http();
    for said in [
        "",
        "P",
        "PRI * HTTP/2.0\r\n\r\nSM",
        "POST /mcp HTTP/1.1",
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\n",
    ] {
        let begun = Instant::now();
        let (mut near, serving) = dial(&service);
        near.write_all(said.as_bytes()).await.unwrap();

        rest(&mut near).await;
        serving.await.unwrap();

        assert_eq!(begun.elapsed().as_secs(), 30, "{said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_comes_byte_by_byte_is_not_waited_for() {
    let stage = Stage::new();
    let service = stage.server.http();
    let begun = Instant::now();
    let (near, serving) = dial(&service);

    let answer = drip(near, raw(call(1, "echo", "a")).await).await;
    serving.await.unwrap();

    assert!(!answer.contains("200 OK"), "{answer}");
    assert!(begun.elapsed().as_secs() <= 35, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_comes_byte_by_byte_is_not_waited_for() {
    let stage = Stage::new();
    let service = stage.server.http();
    let whole = raw(call(1, "echo", "a")).await;
    let body = whole.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    let begun = Instant::now();
    let (mut near, serving) = dial(&service);

    near.write_all(&whole[..body]).await.unwrap();
    let answer = drip(near, whole[body..].to_vec()).await;
    serving.await.unwrap();

    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(begun.elapsed().as_secs() <= 35, "{:?}", begun.elapsed());
    assert_eq!(service.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_head_without_end_is_refused() {
    let stage = Stage::new();
    let (mut near, serving) = dial(&stage.server.http());
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
async fn nonsense_is_refused_and_the_connection_closed() {
    let stage = Stage::new();
    let service = stage.server.http();
    let chunked = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                   transfer-encoding: chunked\r\n\r\n";
    for said in [
        "\0\0\0\0\r\n\r\n".to_owned(),
        "GET\r\n\r\n".to_owned(),
        format!("{chunked}zz\r\n{{}}\r\n"),
        format!("{chunked}ffffffffffffffffff\r\n"),
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnonsense that is no frame".to_owned(),
    ] {
        let begun = Instant::now();
        let (mut near, serving) = dial(&service);
        near.write_all(said.as_bytes()).await.unwrap();

        let answer = rest(&mut near).await;
        serving.await.unwrap();

        assert!(!answer.contains("200 OK"), "{said:?} gave {answer}");
        assert_eq!(begun.elapsed().as_secs(), 0, "{said:?}");
        assert_eq!(service.in_flight(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_keeps_its_connection_for_nothing_is_cut_off() {
    let stage = Stage::new();
    let (mut near, serving) = dial(&stage.server.http());
    near.write_all(&raw(call(1, "echo", "a")).await)
        .await
        .unwrap();
    let begun = Instant::now();

    let answer = rest(&mut near).await;
    serving.await.unwrap();

    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(begun.elapsed().as_secs() <= 60, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_does_not_keep_others_waiting() {
    let stage = Stage::new();
    let service = stage.server.http();
    let mut slow = Vec::new();
    for _ in 0..100 {
        let (mut near, serving) = dial(&service);
        near.write_all(b"POST /mcp HTTP/1.1\r\n").await.unwrap();
        slow.push((near, serving));
    }
    let begun = Instant::now();

    let reply = Link::to(&service).await.send(call(1, "echo", "a")).await;

    assert_eq!(reply.json().await["id"], 1);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_let_go_of_at_once_do_not_end_their_http2_connection() {
    let service = Stage::new().server.http();
    let (mut near, _serving) = dial(&service);
    let mut said = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    said.extend(http2_frame(SETTINGS, 0, &[]));
    for nth in 0..200 {
        let stream = nth * 2 + 1;
        // POST, http and / as the protocol numbers them; the host in full.
        let head = b"\x83\x86\x84\x41\x09localhost";
        said.extend(http2_frame(HEADERS, stream, head));
        said.extend(http2_frame(RST_STREAM, stream, &8_u32.to_be_bytes()));
    }

    // All of it at once, so that the server reads of each request and of its end together.
    near.write_all(&said).await.unwrap();
    near.write_all(&http2_frame(PING, 0, b"are you?"))
        .await
        .unwrap();

    loop {
        let (kind, payload) = read_http2_frame(&mut near).await;
        assert_ne!(kind, GOAWAY, "the connection was ended: {payload:?}");
        if kind == PING && payload == b"are you?" {
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_http2_connection_that_only_pings_is_ended() {
    let service = Stage::new().server.http();
    let (mut near, _serving) = dial(&service);
    near.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    near.write_all(&http2_frame(SETTINGS, 0, &[]))
        .await
        .unwrap();
    let begun = Instant::now();

    let (mut reading, mut writing) = tokio::io::split(near);
    let (acknowledge, mut acknowledged) = tokio::sync::mpsc::unbounded_channel::<Vec<u8>>();
    let pinging = tokio::spawn(async move {
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        loop {
            let said = tokio::select! {
                Some(answer) = acknowledged.recv() => answer,
                _ = seconds.tick() => http2_frame(PING, 0, b"are you?"),
            };
            if writing.write_all(&said).await.is_err() {
                break;
            }
        }
    });
    let mut answers = 0;
    let goes_on = async {
        loop {
            let (kind, payload) = read_http2_frame(&mut reading).await;
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
    let ended = tokio::time::timeout(limit, goes_on).await;
    pinging.abort();

    assert!(ended.is_ok(), "it was never ended");
    assert!(answers > 10, "it was alive");
    assert!(begun.elapsed() >= Duration::from_secs(60), "not at once");
}

#[tokio::test(start_paused = true)]
async fn an_http2_connection_with_a_stream_is_not_ended_however_silent() {
    let stage = Stage::new();
    let service = stage.server.http();
    let mut link = Link::http2_to(&service).await;
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let mut reply = link
        .send(modern("L1", "subscriptions/listen", filter))
        .await;
    reply.chunk().await.unwrap();

    let until = Instant::now() + Duration::from_secs(10 * 60);
    while let Ok(chunk) = tokio::time::timeout_at(until, reply.chunk()).await {
        assert!(chunk.is_some(), "the stream has ended");
    }
    let again = link.send(call(2, "echo", "a")).await;

    assert_eq!(again.json().await["id"], 2);
}

/// One frame of HTTP/2; the head of a request ends with its frame.
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
