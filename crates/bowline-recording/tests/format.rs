//! Recordings are read as they were written, whatever is cut off or unknown, within limits.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic, too")]

use std::time::Duration;

use bowline_recording::{
    ChildExit, EndedBy, Event, EventKind, Header, HttpHeader, ReadError, ReadLimits, Recording,
    RecordingWriter, Side, Timestamp, Transport,
};
use bowline_types::Json;

/// An event of every kind.
fn events() -> Vec<Event> {
    let header = |name: &str, value: &str| HttpHeader(name.into(), value.into());
    let kinds = vec![
        EventKind::Open,
        EventKind::Request {
            method: "POST".into(),
            path: "/mcp?a=b".into(),
            headers: vec![header("accept", "a"), header("accept", "b\u{7f}\"")],
        },
        EventKind::Message {
            from: Side::Client,
            message: Json::parse(r#"{"jsonrpc":"2.0", "id":1.0e3,"method":"\u0041"}"#).unwrap(),
        },
        EventKind::Response {
            status: 200,
            headers: vec![],
        },
        EventKind::Message {
            from: Side::Server,
            message: Json::parse(r#"[{"jsonrpc":"2.0","id":"ü\n","result":{"a":[]}}]"#).unwrap(),
        },
        EventKind::Malformed {
            from: Side::Server,
            text: "oops\n\u{0}".into(),
            why: "not JSON".into(),
        },
        EventKind::Stderr {
            text: "ready".into(),
        },
        EventKind::End {
            by: EndedBy::Client,
            complete: false,
        },
        EventKind::Lost {
            count: 7,
            why: "slow disk".into(),
        },
        EventKind::Close {
            by: EndedBy::Tap,
            exit: Some(ChildExit::Signal(9)),
        },
        EventKind::Close {
            by: EndedBy::Server,
            exit: Some(ChildExit::Code(-1)),
        },
    ];
    let event = |(at, kind)| {
        let mut event = Event::new(Duration::from_micros(at * 1001), 3, kind);
        event.exchange = (at > 0 && at < 5).then_some(at);
        event.line = usize::try_from(at).unwrap() + 2;
        event
    };
    (0_u64..).zip(kinds).map(event).collect()
}

fn header() -> Header {
    Header::new(Transport::Http)
        .started(Timestamp::from_unix(Duration::from_micros(
            1_785_240_000_123_456,
        )))
        .recorder("test 1.0")
        .target("http://localhost/mcp")
}

fn written(events: &[Event]) -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new(), &header()).unwrap();
    for event in events {
        writer.write(event).unwrap();
    }
    writer.into_inner()
}

#[test]
fn a_recording_is_read_as_it_was_written() {
    let recording = Recording::parse(&written(&events())).unwrap();

    assert_eq!(recording.header, header());
    assert_eq!(recording.events, events());
    assert_eq!(recording.problems, []);
    let again = written(&recording.events);
    assert_eq!(
        String::from_utf8(again),
        String::from_utf8(written(&events()))
    );
}

#[test]
fn a_recording_that_is_cut_off_anywhere_is_read_up_to_there() {
    let bytes = written(&events());
    let header_len = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    for length in 0..bytes.len() {
        let read = Recording::parse(&bytes[..length]);
        if length < header_len {
            assert!(matches!(read, Err(ReadError::NotARecording(_))), "{length}");
            continue;
        }
        let recording = read.unwrap();
        let cut = &bytes[..length];
        let complete = cut
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
            .saturating_sub(1);
        // Without its line break, a line may still be complete.
        let is_at_line_end = bytes.get(length) == Some(&b'\n') || cut.ends_with(b"\n");
        let expected =
            complete + usize::from(is_at_line_end && !cut.ends_with(b"\n") && length > header_len);
        assert_eq!(recording.events, events()[..expected], "{length}");
        assert_eq!(
            recording.problems.len(),
            usize::from(!is_at_line_end),
            "{length}"
        );
    }
}

#[test]
fn unknown_events_and_members_are_ignored_and_bad_lines_are_named() {
    let mut text = String::from_utf8(written(&events()[..1])).unwrap();
    text.push_str("{\"at\":1,\"connection\":1,\"event\":\"someday\",\"x\":[1]}\n");
    text.push_str("\r\n");
    text.push_str("{\"at\":2,\"connection\":1,\"event\":\"open\",\"x\":{}}\r\n");
    text.push_str("nonsense\n");
    text.push_str("{\"at\":3,\"connection\":1,\"event\":\"end\",\"by\":\"client\"}\n");
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(b"\xff\n");

    let recording = Recording::parse(&bytes).unwrap();

    let lines: Vec<usize> = recording.events.iter().map(|event| event.line).collect();
    assert_eq!(lines, [2, 5]);
    let problems: Vec<String> = recording.problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 3);
    assert!(
        problems[0].starts_with("line 6: not an event"),
        "{problems:?}"
    );
    assert_eq!(
        problems[1],
        "line 7: not an event: missing member `complete`"
    );
    assert_eq!(problems[2], "line 8: not UTF-8");
}

#[test]
fn limits_are_errors_that_name_the_line() {
    let bytes = written(&events());
    let lines: Vec<usize> = bytes
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::len)
        .collect();
    let longest = *lines.iter().max().unwrap();
    let limits = ReadLimits::default();
    let read = |limits| Recording::read(&bytes[..], limits);

    assert!(read(limits.max_line(longest)).is_ok());
    let expected = lines.iter().position(|length| *length == longest).unwrap() + 1;
    match read(limits.max_line(longest - 1)) {
        Err(ReadError::LineTooLong { line, max }) => {
            assert_eq!((line, max), (expected, longest - 1));
        }
        other => panic!("{other:?}"),
    }
    assert!(read(limits.max_events(events().len())).is_ok());
    let few = read(limits.max_events(events().len() - 1));
    assert!(matches!(few, Err(ReadError::TooManyEvents { .. })));
    assert!(read(limits.max_bytes(bytes.len() as u64)).is_ok());
    let small = read(limits.max_bytes(bytes.len() as u64 - 1));
    assert!(matches!(small, Err(ReadError::TooLarge { .. })));
}

#[test]
fn other_files_are_not_recordings() {
    for text in [
        "",
        "\n",
        "{}",
        "[]",
        "hello",
        r#"{"format":"other","version":1,"started":"2026-07-28T12:00:00Z","transport":"stdio"}"#,
    ] {
        assert!(
            matches!(
                Recording::parse(text.as_bytes()),
                Err(ReadError::NotARecording(_))
            ),
            "{text}"
        );
    }
    let newer = r#"{"format":"bowline-recording","version":2,"started":"2026-07-28T12:00:00Z","transport":"stdio"}"#;
    assert!(matches!(
        Recording::parse(newer.as_bytes()),
        Err(ReadError::UnknownVersion(2))
    ));
}

#[test]
fn a_message_in_several_lines_is_written_in_one() {
    let message = Json::parse("{\n\"jsonrpc\":\"2.0\",\r\n\"method\":\"a\\nb\"}").unwrap();
    let kind = EventKind::Message {
        from: Side::Client,
        message,
    };
    let bytes = written(&[Event::new(Duration::ZERO, 1, kind)]);

    assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 2);
    let recording = Recording::parse(&bytes).unwrap();
    let EventKind::Message { message, .. } = &recording.events[0].kind else {
        panic!("a message")
    };
    assert_eq!(
        message.as_str(),
        "{ \"jsonrpc\":\"2.0\",  \"method\":\"a\\nb\"}"
    );
}
