//! The bytes of connections, however they arrive.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Passes the bytes of a client through a socket in pieces of this size, then closes the connection.
async fn record_pieces(bytes: &[u8], size: usize, answer: &str) -> Vec<RecordedEvent> {
    let record = WireRecord::default();
    let (mut near, far) = tokio::io::duplex(1024);
    let mut far = RecordingSocket::new(far, &record);
    for piece in bytes.chunks(size) {
        near.write_all(piece).await.unwrap();
        far.read_buf(&mut Vec::new()).await.unwrap();
    }
    far.write_all(answer.as_bytes()).await.unwrap();
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
