//! The bytes of connections, however they arrive.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Passes the bytes of a client through a socket in pieces of this size, then closes the connection.
async fn record_pieces(bytes: &[u8], size: usize, answer: impl AsRef<[u8]>) -> Vec<RecordedEvent> {
    let record = WireRecord::default();
    let (mut near, far) = tokio::io::duplex(1024);
    let mut far = RecordingSocket::new(far, &record);
    for piece in bytes.chunks(size) {
        near.write_all(piece).await.unwrap();
        far.read_buf(&mut Vec::new()).await.unwrap();
    }
    far.write_all(answer.as_ref()).await.unwrap();
    drop(near);
    while far.read_buf(&mut Vec::new()).await.unwrap() > 0 {}
    record.events()
}

fn received(text: &str) -> RecordedFrame {
    RecordedFrame::new(Direction::Received, text.as_bytes())
}

#[tokio::test]
async fn http1_messages_are_found_however_the_bytes_arrive() {
    let all = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nabGET / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\ncontent-length:1\r\n\r\nc";
    for size in [1, 3, all.len()] {
        let events = record_pieces(all, size, "").await;

        let expected = [
            RecordedEvent::Frame(received("ab")),
            RecordedEvent::EmptyRequest("GET".to_owned()),
            RecordedEvent::Frame(received("c")),
            RecordedEvent::Closed(received("c")),
        ];
        assert_eq!(events, expected, "in pieces of {size}");
    }
}

#[tokio::test]
async fn http2_messages_and_resets_are_found_however_the_bytes_arrive() {
    let mut all = PREFACE.to_vec();
    all.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    for stream in [1, 3] {
        all.extend([0, 0, 1, 1, 4, 0, 0, 0, stream, 0x83]);
        all.extend([0, 0, 2, 0, 1, 0, 0, 0, stream, b'a', b'0' + stream]);
    }
    all.extend([0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8]);

    for size in [1, 3, all.len()] {
        let events = record_pieces(&all, size, "").await;

        let expected = [
            RecordedEvent::Frame(received("a1")),
            RecordedEvent::Frame(received("a3")),
            RecordedEvent::Reset(received("a1")),
            RecordedEvent::Closed(received("a3")),
        ];
        assert_eq!(events, expected, "in pieces of {size}");
    }
}

#[tokio::test]
async fn padding_and_priority_of_http2_frames_are_not_part_of_a_message() {
    let mut all = PREFACE.to_vec();
    // HEADERS with two bytes of padding and a priority, then DATA with one byte of padding.
    all.extend([0, 0, 9, 1, 0x2c, 0, 0, 0, 1]);
    all.extend([2, 0, 0, 0, 0, 15, 0x83, 0, 0]);
    all.extend([0, 0, 4, 0, 9, 0, 0, 0, 1, 1, b'a', b'1', 0]);
    // A GET whose padding is its first byte.
    all.extend([0, 0, 3, 1, 0x0d, 0, 0, 0, 3, 1, 0x82, 0]);

    let events = record_pieces(&all, all.len(), "").await;

    let expected = [
        RecordedEvent::Frame(received("a1")),
        RecordedEvent::EmptyRequest("GET".to_owned()),
        RecordedEvent::Closed(received("a1")),
    ];
    assert_eq!(events, expected);
}

/// A server refuses a request with END_STREAM before it has received its body.
#[tokio::test]
async fn an_http2_request_that_is_refused_early_is_recorded_when_it_is_complete() {
    let record = WireRecord::default();
    let (mut near, far) = tokio::io::duplex(1024);
    let mut far = RecordingSocket::new(far, &record);
    let mut begin = PREFACE.to_vec();
    for stream in [1, 3] {
        begin.extend([0, 0, 1, 1, 4, 0, 0, 0, stream, 0x83]);
        begin.extend([0, 0, 1, 0, 0, 0, 0, 0, stream, b'a']);
    }
    near.write_all(&begin).await.unwrap();
    far.read_buf(&mut Vec::new()).await.unwrap();
    for stream in [1, 3] {
        let refusal = [0, 0, 1, 1, 5, 0, 0, 0, stream, 0x8d];
        far.write_all(&refusal).await.unwrap();
    }

    // The client completes the first request and resets the second one.
    near.write_all(&[0, 0, 1, 0, 1, 0, 0, 0, 1, b'1'])
        .await
        .unwrap();
    near.write_all(&[0, 0, 4, 3, 0, 0, 0, 0, 3, 0, 0, 0, 8])
        .await
        .unwrap();
    drop(near);
    while far.read_buf(&mut Vec::new()).await.unwrap() > 0 {}

    assert_eq!(record.events(), [RecordedEvent::Frame(received("a1"))]);
}

#[tokio::test]
async fn an_event_beyond_the_default_limit_of_a_decoder_is_recorded() {
    let text = format!("\"{}\"", "x".repeat(DecoderLimits::default().event));
    let mut body = RecordedBody::default();
    let record = WireRecord::default();

    body.push(
        &record,
        format!("data: {text}\n\ndata: {{}}\n\n").as_bytes(),
    );

    let texts = record.frames().into_iter().map(|frame| frame.text);
    assert!(texts.eq([text, "{}".to_owned()]));
}

#[tokio::test]
async fn only_a_close_in_the_middle_of_a_response_is_recorded() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let whole = format!("{chunked}9\r\ndata: {{}}\n\r\n1\r\n\n\r\n0\r\n\r\n");
    for (answer, is_complete) in [
        ("", false),
        (chunked, false),
        ("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", true),
        (&whole, true),
    ] {
        let request = b"POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\nc";

        let events = record_pieces(request, request.len(), answer).await;

        let closed = events.contains(&RecordedEvent::Closed(received("c")));
        assert_eq!(closed, !is_complete, "{answer}");
        let sent = RecordedFrame::new(Direction::Sent, b"{}");
        let is_sent = events.contains(&RecordedEvent::Frame(sent));
        assert_eq!(is_sent, answer == whole, "{answer}");
    }
}
