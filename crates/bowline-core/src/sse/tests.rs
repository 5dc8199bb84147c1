//! Tests of the SSE decoder, with every chunk size, and of the encoder.

use super::*;

/// Decodes `stream` in chunks of `size` bytes. Returns its events and the error it ends with.
fn read(
    stream: &[u8],
    size: usize,
    limits: DecoderLimits,
) -> (Vec<SseEvent>, Option<SseLimitExceeded>) {
    let mut decoder = Decoder::new(limits);
    let mut events = Vec::new();
    for chunk in stream.chunks(size) {
        decoder.push(Bytes::copy_from_slice(chunk));
        while let Some(event) = decoder.next() {
            match event {
                Ok(event) => events.push(event),
                Err(error) => {
                    assert_eq!(decoder.next(), None, "an error is final");
                    return (events, Some(error));
                }
            }
        }
    }
    (events, None)
}

/// Decodes `stream`, which must give the same events for every chunk size.
fn events(stream: &str) -> Vec<SseEvent> {
    let whole = read(stream.as_bytes(), usize::MAX, DecoderLimits::default());
    for size in 1..=stream.len().max(1) {
        assert_eq!(
            read(stream.as_bytes(), size, DecoderLimits::default()),
            whole
        );
    }
    whole.0
}

fn data(stream: &str) -> Vec<String> {
    let text = |event: SseEvent| String::from_utf8(event.data.to_vec()).unwrap();
    events(stream).into_iter().map(text).collect()
}

#[test]
fn every_line_end_ends_a_line() {
    for stream in [
        "data: a\n\ndata: b\n\n",
        "data: a\r\rdata: b\r\r",
        "data: a\r\n\r\ndata: b\r\n\r\n",
        "data: a\r\n\ndata: b\n\r\n",
        "data: a\n\rdata: b\r\n\r",
    ] {
        assert_eq!(data(stream), ["a", "b"], "{stream:?}");
    }
}

#[test]
fn a_cr_ends_its_event_without_waiting_for_the_lf() {
    let mut decoder = Decoder::new(DecoderLimits::default());

    decoder.push("data: a\r\n\r".into());

    assert_eq!(decoder.next(), Some(Ok(SseEvent::new("a"))));
    decoder.push("\ndata: b\n\n".into());
    assert_eq!(decoder.next(), Some(Ok(SseEvent::new("b"))));
}

#[test]
fn lines_of_data_are_joined() {
    assert_eq!(data("data: a\ndata: b\ndata\ndata:c\n\n"), ["a\nb\n\nc"]);
}

#[test]
fn one_space_after_the_colon_is_not_data() {
    assert_eq!(
        data("data:a\n\ndata: b\n\ndata:  c \n\n"),
        ["a", "b", " c "]
    );
}

#[test]
fn a_block_without_data_is_not_an_event_but_empty_data_is() {
    assert_eq!(data("event: x\nid: 1\n\n"), [""; 0]);
    assert_eq!(data("data\n\n"), [""]);
    assert_eq!(data("data:\n\n"), [""]);
    assert_eq!(data("\n\n\n"), [""; 0]);
}

#[test]
fn an_unfinished_event_is_not_returned() {
    assert_eq!(data("data: a\n\ndata: b\n"), ["a"]);
    assert_eq!(data("data: a\n\ndata: b"), ["a"]);
}

#[test]
fn comments_and_unknown_fields_are_ignored() {
    assert_eq!(
        data(": hello\n:\ndata: a\nfoo: b\nbar\n Data: c\n\n"),
        ["a"]
    );
}

#[test]
fn comments_are_counted() {
    let mut decoder = Decoder::new(DecoderLimits::default());
    decoder.push(Bytes::from_static(b": one\n:\ndata: a\n\n: three\n"));

    let events = std::iter::from_fn(|| decoder.next()).count();

    assert_eq!((events, decoder.comments()), (1, 3));
}

#[test]
fn an_event_without_a_name_or_named_message_is_a_message() {
    let events = events("data: a\n\nevent: message\ndata: b\n\nevent: endpoint\ndata: c\n\n");

    let are_messages: Vec<_> = events.iter().map(SseEvent::is_message).collect();
    assert_eq!(are_messages, [true, true, false]);
}

#[test]
fn a_byte_order_mark_counts_only_at_the_start() {
    assert_eq!(data("\u{FEFF}data: a\n\n"), ["a"]);
    assert_eq!(data("\u{FEFF}\u{FEFF}data: a\n\n"), [""; 0]);
    assert_eq!(data("data: a\n\n\u{FEFF}data: b\n\n"), ["a"]);
    assert_eq!(data("data: \u{FEFF}a\n\n"), ["\u{FEFF}a"]);
}

#[test]
fn an_event_has_a_name_an_id_and_a_retry() {
    let stream = "event: ping\nid: 7\nretry: 250\ndata: a\n\nevent:\ndata: b\n\n";

    let events = events(stream);

    let ping = SseEvent {
        name: Some("ping".to_owned()),
        id: Some("7".to_owned()),
        retry: Some(250),
        ..SseEvent::new("a")
    };
    assert_eq!(events, [ping, SseEvent::new("b")]);
}

#[test]
fn an_id_with_nul_is_ignored() {
    let events = events("id: 1\nid: 2\0\ndata: a\n\n");

    assert_eq!(events[0].id.as_deref(), Some("1"));
}

#[test]
fn retry_is_digits_only() {
    for value in [
        "",
        "x",
        "1x",
        "-1",
        "+1",
        "1.5",
        " 1",
        "99999999999999999999",
    ] {
        let stream = format!("retry: {value}\ndata: a\n\n");

        assert_eq!(events(&stream)[0].retry, None, "{value:?}");
    }
    assert_eq!(events("retry: 007\ndata: a\n\n")[0].retry, Some(7));
}

#[test]
fn the_last_event_id_stays_until_it_is_replaced_or_cleared() {
    let mut decoder = Decoder::new(DecoderLimits::default());
    decoder.push("id: 1\ndata: a\n\ndata: b\n\nid: 2\nretry: 9\n\nid\ndata: c\n\nid: 3\n".into());

    assert_eq!(decoder.last_event_id(), None);
    assert_eq!(
        decoder.next(),
        Some(Ok(SseEvent {
            id: Some("1".into()),
            ..SseEvent::new("a")
        }))
    );
    assert_eq!(decoder.last_event_id(), Some("1"));
    assert_eq!(decoder.next(), Some(Ok(SseEvent::new("b"))));
    assert_eq!(decoder.last_event_id(), Some("1"));
    assert_eq!(
        decoder.next(),
        Some(Ok(SseEvent {
            id: Some(String::new()),
            ..SseEvent::new("c")
        }))
    );
    assert_eq!(decoder.last_event_id(), None);
    assert_eq!(decoder.retry(), Some(9), "it stood in a block without data");
    assert_eq!(decoder.next(), None);
    assert_eq!(decoder.last_event_id(), None, "the block is not finished");
}

#[test]
fn a_line_over_the_limit_is_an_error_even_if_it_is_incomplete() {
    let limits = DecoderLimits {
        line: 10,
        event: 100,
    };

    for (stream, error) in [
        ("data: 6789\n\n", None),
        ("\u{FEFF}data: 6789\n\n", None),
        ("data: 67890\n\n", Some(SseLimitExceeded::Line(10))),
        ("data: 67890", Some(SseLimitExceeded::Line(10))),
        (":2345678901", Some(SseLimitExceeded::Line(10))),
    ] {
        for size in 1..=stream.len() {
            let (events, seen) = read(stream.as_bytes(), size, limits);
            assert_eq!(
                (events.len(), seen),
                (usize::from(error.is_none()), error),
                "{stream:?}"
            );
        }
    }
}

#[test]
fn an_event_over_the_limit_is_an_error_after_the_events_before_it() {
    let limits = DecoderLimits {
        line: 100,
        event: 4,
    };
    let stream = b"data: 1234\n\ndata: 1\ndata: 23\n\ndata: 1\ndata: 2\ndata\ndata\n\n";

    for size in 1..=stream.len() {
        let (events, error) = read(stream, size, limits);

        assert_eq!(events, [SseEvent::new("1234"), SseEvent::new("1\n23")]);
        assert_eq!(error, Some(SseLimitExceeded::Event(4)));
    }
}

#[test]
fn nothing_is_buffered_after_an_error() {
    let mut decoder = Decoder::new(DecoderLimits { line: 7, event: 4 });
    decoder.push("id:7\nretry:5\n:\ndata\n\n12345678\ndata\n\n".into());
    assert!(matches!(decoder.next(), Some(Ok(_))));
    assert_eq!(decoder.next(), Some(Err(SseLimitExceeded::Line(7))));

    decoder.push("\n\ndata\n\n".into());

    assert_eq!(decoder.next(), None);
    assert_eq!(
        decoder.last_event_id(),
        Some("7"),
        "a client resumes after what it has read"
    );
    assert_eq!((decoder.retry(), decoder.comments()), (Some(5), 1));
}

#[test]
fn a_line_within_a_chunk_is_not_copied() {
    let chunk = Bytes::from_static(b"data: {\"a\":1}\n\n");
    let mut decoder = Decoder::new(DecoderLimits::default());

    decoder.push(chunk.clone());

    let event = decoder.next().unwrap().unwrap();
    assert!(chunk.as_ptr_range().contains(&event.data.as_ptr()));
}

#[test]
fn what_is_encoded_decodes_to_the_same_event() {
    let full = SseEvent {
        name: Some("endpoint".to_owned()),
        id: Some("a b".to_owned()),
        retry: Some(0),
        ..SseEvent::new(" one\n\n two:\n")
    };
    for event in [
        full,
        SseEvent::new(""),
        SseEvent::new("{}"),
        SseEvent::new(": x"),
    ] {
        let mut stream = Vec::new();

        encode_comment("a\nb", &mut stream);
        encode(&event, &mut stream);
        stream.extend_from_slice(KEEP_ALIVE);

        assert_eq!(events(std::str::from_utf8(&stream).unwrap()), [event]);
    }
}

#[test]
fn the_content_of_an_event_cannot_end_it_early() {
    let event = SseEvent {
        name: Some("a\ndata: x\r\n".to_owned()),
        id: Some("1\r\n\r\n\0".to_owned()),
        ..SseEvent::new("a\r\n\r\ndata: b\r")
    };
    let mut stream = Vec::new();

    encode(&event, &mut stream);

    let events = events(std::str::from_utf8(&stream).unwrap());
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].name.as_deref(), Some("adata: x"));
    assert_eq!(events[0].id.as_deref(), Some("1"));
    assert_eq!(events[0].data, "a\n\ndata: b\n");
}

#[test]
fn a_message_is_one_line_of_data_however_its_params_are_written() {
    let params = bowline_types::Json::from_static("{\n\"a\":\r\n1}");
    let message = crate::Message::from(crate::Notification::new("a", Some(params)));
    let (mut stream, mut framed) = (Vec::new(), Vec::new());

    encode_message(&message, &mut stream);

    encode_frame(&message.to_frame(), &mut framed);
    assert_eq!(stream, framed);
    for encoded in [stream, framed] {
        assert_eq!(encoded.capacity(), encoded.len(), "allocated once");
    }
}

#[test]
fn a_frame_is_one_line_of_data_with_the_name_that_some_clients_require() {
    let mut stream = Vec::new();

    encode_frame(b"{}", &mut stream);

    assert_eq!(stream, b"event: message\ndata: {}\n\n");
    let mut event = Vec::new();
    encode(&SseEvent::message("{}"), &mut event);
    assert_eq!(stream, event);
}

#[test]
fn a_comment_is_no_event_on_any_of_its_lines() {
    let mut stream = Vec::new();

    encode_comment("one\ndata: two", &mut stream);

    assert_eq!(stream, b": one\n: data: two\n\n");
}
