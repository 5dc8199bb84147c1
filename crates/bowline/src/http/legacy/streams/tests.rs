//! Tests of routing, resumption and limits of streams.

use bowline_core::{Notification, RawRequest};
use bowline_types::Json;

use super::*;
use crate::http::legacy::event_store::MemoryEventStore;
use crate::limits::Limits;

fn streams() -> SessionStreams {
    let account = Account::total(Limits::default());
    SessionStreams::new(
        StreamLayout::StreamableHttp,
        Box::<MemoryEventStore>::default(),
        account,
    )
}

/// Opens a stream for the answers to these requests, and returns its key and its reader.
fn open(
    streams: &mut SessionStreams,
    ids: impl IntoIterator<Item = i64>,
    form: ResponseForm,
) -> (u64, u64) {
    let (key, reader) = streams.open(form, Vec::new());
    for id in ids {
        streams.expect_answer(&request(id), Some(key), None);
    }
    (key, reader)
}

/// Opens a stream without a reader.
fn unread(
    streams: &mut SessionStreams,
    ids: impl IntoIterator<Item = i64>,
    form: ResponseForm,
) -> u64 {
    let (key, reader) = open(streams, ids, form);
    streams.detach(key, reader);
    key
}

fn request(id: i64) -> RawRequest {
    RawRequest {
        id: id.into(),
        method: "tools/list".into(),
        params: None,
    }
}

fn answer(id: i64) -> Message {
    let outcome = Ok(Json::empty_object());
    let id = Some(id.into());
    Response { id, outcome }.into()
}

fn notification() -> Message {
    Notification::new("word", None).into()
}

fn server_request() -> Message {
    let (method, params) = ("roots/list".into(), None);
    let id = 9.into();
    RawRequest { id, method, params }.into()
}

/// Reads a stream from its start to its end, or until it waits.
fn read(streams: &mut SessionStreams, key: u64) -> (Vec<Bytes>, NextEvent) {
    let (reader, _) = streams.attach(key, Some(0), true).unwrap();
    let mut frames = Vec::new();
    loop {
        match streams.next(key, reader, Waker::noop()) {
            NextEvent::Event { frame, .. } => frames.push(frame),
            last => return (frames, last),
        }
    }
}

#[test]
fn a_slow_reader_of_a_call_loses_notifications_and_not_the_result() {
    for notifications in [2, 3, 4, 100, 1000] {
        let store = Box::new(MemoryEventStore::new(3, 1_000_000));
        let account = Account::total(Limits::default());
        let mut streams = SessionStreams::new(StreamLayout::StreamableHttp, store, account);
        let (key, reader) = open(&mut streams, [1], ResponseForm::Events);
        streams.route(Some(&1.into()), &notification());
        let first = streams.next(key, reader, Waker::noop());
        assert!(matches!(first, NextEvent::Event { .. }), "{first:?}");

        for _ in 0..notifications {
            streams.route(Some(&1.into()), &notification());
        }
        streams.route(None, &answer(1));

        let mut frames = Vec::new();
        let mut last = 1;
        while let NextEvent::Event { position, frame } = streams.next(key, reader, Waker::noop()) {
            assert!(position > last);
            last = position;
            frames.push(frame);
        }
        let kept = [notification(), notification(), answer(1)].map(|message| message.to_frame());
        assert_eq!(frames, kept, "{notifications}");
    }
}

#[test]
fn a_slow_reader_of_unsolicited_messages_is_disconnected() {
    let store = Box::new(MemoryEventStore::new(3, 1_000_000));
    let account = Account::total(Limits::default());
    let mut streams = SessionStreams::new(StreamLayout::StreamableHttp, store, account);
    let (reader, _) = streams.attach(UNSOLICITED, None, false).unwrap();

    for _ in 0..4 {
        streams.route(None, &notification());
    }

    let next = streams.next(UNSOLICITED, reader, Waker::noop());
    assert_eq!(next, NextEvent::End, "it must know that it has missed some");
}

#[test]
fn each_message_is_on_exactly_one_stream() {
    let mut streams = streams();
    let first = unread(&mut streams, [1], ResponseForm::Undecided);
    let second = unread(&mut streams, [2], ResponseForm::Events);

    streams.route(Some(&1.into()), &notification());
    streams.route(None, &notification());
    streams.route(Some(&2.into()), &answer(2));
    streams.route(Some(&1.into()), &answer(1));

    let frame = |message: Message| message.to_frame();
    assert_eq!(
        read(&mut streams, first),
        (
            vec![frame(notification()), frame(answer(1))],
            NextEvent::End
        )
    );
    assert_eq!(
        read(&mut streams, second),
        (vec![frame(answer(2))], NextEvent::End)
    );
    assert_eq!(
        read(&mut streams, UNSOLICITED),
        (vec![frame(notification())], NextEvent::Wait)
    );
}

#[test]
fn a_stream_ends_when_all_its_requests_are_answered() {
    let mut streams = streams();
    let key = unread(&mut streams, [1, 2], ResponseForm::Events);

    streams.route(None, &answer(1));
    assert_eq!(read(&mut streams, key).1, NextEvent::Wait);
    streams.route(None, &answer(2));

    assert_eq!(read(&mut streams, key).1, NextEvent::End);
    assert_eq!(streams.unanswered().len(), 0);
}

#[test]
fn an_answer_after_the_cancel_is_on_no_stream() {
    let mut streams = streams();
    let key = unread(&mut streams, [1], ResponseForm::Events);

    streams.end_cancelled(&1.into());
    streams.route(None, &answer(1));

    let (frames, _) = read(&mut streams, key);
    assert_eq!(frames.len(), 1);
    assert!(String::from_utf8_lossy(&frames[0]).contains("-32800"));
    assert!(read(&mut streams, UNSOLICITED).0.is_empty());
}

#[test]
fn an_id_is_in_flight_until_it_is_answered_or_cancelled() {
    let mut streams = streams();
    open(&mut streams, [1, 2], ResponseForm::Events);
    let ids: [RequestId; 4] = ["1".into(), 3.into(), 2.into(), 1.into()];

    assert_eq!(streams.find_in_flight(ids.iter()), Some(&ids[2]));
    assert!(streams.is_in_flight(&ids[0]), "the other spelling");
    streams.route(None, &answer(1));
    streams.end_cancelled(&2.into());

    assert_eq!(streams.find_in_flight(ids.iter()), None);
    assert!(!streams.is_in_flight(&ids[0]));
}

#[test]
fn a_new_stream_has_its_reader_before_a_get_can_attach() {
    for form in [
        ResponseForm::Undecided,
        ResponseForm::Json,
        ResponseForm::Events,
    ] {
        let mut streams = streams();
        let (key, reader) = open(&mut streams, [1], form);

        assert!(streams.attach(key, None, false).is_err(), "{form:?}");
        assert!(
            streams.streams.get(key).unwrap().is_read_by(reader),
            "{form:?}"
        );
    }
}

#[test]
fn only_positions_of_events_can_be_resumed() {
    let mut streams = streams();
    let json = open(&mut streams, [1], ResponseForm::Json).0;
    let undecided = open(&mut streams, [2], ResponseForm::Undecided).0;
    let events = open(&mut streams, [3], ResponseForm::Events).0;
    streams.route(Some(&3.into()), &notification());

    for (key, position) in [
        (json, 0),
        (undecided, 0),
        (events, 2),
        (events, u64::MAX),
        (UNSOLICITED, 1),
        (events + 1, 0),
        (u64::MAX, u64::MAX),
    ] {
        let refused = streams.attach(key, Some(position), true).err();
        assert_eq!(refused, Some(AttachError::Unknown), "{key}-{position}");
    }
    assert!(streams.attach(events, Some(1), true).is_ok());
    assert!(streams.attach(UNSOLICITED, Some(0), true).is_ok());
}

#[test]
fn the_answers_to_one_post_have_a_bound() {
    let limits = Limits {
        output_bytes: 3500,
        ..Limits::default()
    };
    let account = Account::total(limits);
    let store = Box::<MemoryEventStore>::default();
    let mut streams = SessionStreams::new(StreamLayout::StreamableHttp, store, account.clone());
    let (key, _) = open(&mut streams, 0..10, ResponseForm::Json);

    for id in 0..8_i64 {
        let (id, outcome) = (Some(id.into()), Json::encode(&"x".repeat(1000)));
        let outcome = Ok(outcome.unwrap());
        streams.route(None, &Response { id, outcome }.into());
    }
    streams.route(None, &answer(8));
    streams.end_cancelled(&9.into());

    assert_eq!(streams.unanswered().len(), 0);
    let answers = streams.take_answers(key);
    let text = |frame: &Bytes| String::from_utf8_lossy(frame).into_owned();
    let refused = |frame: &&Bytes| text(frame).contains("output_bytes");
    assert_eq!(answers.len(), 10, "each request has an answer");
    assert_eq!(answers.iter().filter(refused).count(), 5);
    assert_eq!(account.usage().refused(Limit::OutputBytes), 5);
    assert!(text(&answers[9]).contains("-32800"), "short answers stay");
    assert_eq!(streams.output_bytes(), 0);
}

#[test]
fn only_streams_being_read_are_kept_after_the_end() {
    let mut streams = streams();
    unread(&mut streams, [1], ResponseForm::Events);
    let (key, reader) = open(&mut streams, [2], ResponseForm::Events);
    streams.route(None, &notification());
    streams.route(Some(&2.into()), &notification());

    drop(streams.end());

    let next = streams.next(key, reader, Waker::noop());
    assert!(matches!(next, NextEvent::Event { .. }));
    assert_eq!(streams.next(key, reader, Waker::noop()), NextEvent::End);
    assert_eq!(streams.streams.len(), 1);
    streams.detach(key, reader);
    assert_eq!((streams.streams.len(), streams.event_bytes()), (0, 0));
    assert_eq!(streams.output_bytes(), 0);
}

#[test]
fn a_server_request_that_cannot_reach_the_client_gets_an_error() {
    let mut streams = streams();
    open(&mut streams, [1], ResponseForm::Json);

    let routed = streams.route(Some(&1.into()), &server_request());

    assert!(matches!(
        routed.answer,
        Some(Message::Response(Response {
            outcome: Err(_),
            ..
        }))
    ));
    assert!(read(&mut streams, UNSOLICITED).0.is_empty());
}

/// A cancel of what [`server_request`] returns.
fn cancel_of_request() -> Message {
    Notification::new("notifications/cancelled", None).into()
}

fn texts(frames: &[Bytes]) -> Vec<String> {
    let method = |frame: &Bytes| {
        let frame: serde_json::Value = serde_json::from_slice(frame).unwrap();
        frame["method"].as_str().unwrap_or("answer").to_owned()
    };
    frames.iter().map(method).collect()
}

/// Two POSTs that are read and may carry requests.
fn two_posts(streams: &mut SessionStreams) -> [u64; 2] {
    [1, 2].map(|id| {
        let (key, _) = open(streams, [id], ResponseForm::Undecided);
        streams.allow_carrying(key);
        key
    })
}

#[test]
fn a_request_that_belongs_to_none_is_on_the_stream_for_such_messages_if_the_client_reads_it() {
    let mut streams = streams();
    let posts = two_posts(&mut streams);
    streams.attach(UNSOLICITED, None, false).unwrap();

    streams.route(None, &server_request());
    streams.route_cancel(&9.into(), &cancel_of_request());

    let [requests, first, second] = [UNSOLICITED, posts[0], posts[1]].map(|key| {
        streams.commit_to_events(key);
        texts(&read(&mut streams, key).0)
    });
    assert_eq!(requests, ["roots/list", "notifications/cancelled"]);
    assert_eq!((first, second), (vec![], vec![]));
}

#[test]
fn a_request_that_belongs_to_none_is_carried_by_a_post_if_there_is_no_other_stream_to_read() {
    let mut streams = streams();
    let [first, second] = two_posts(&mut streams);
    // None of these: another method, a form that has no requests, and a client that does not read.
    open(&mut streams, [3], ResponseForm::Undecided);
    let (json, _) = open(&mut streams, [4], ResponseForm::Json);
    let unread = unread(&mut streams, [5], ResponseForm::Events);
    streams.allow_carrying(json);
    streams.allow_carrying(unread);

    let routed = streams.route(None, &server_request());
    streams.route_cancel(&9.into(), &cancel_of_request());
    streams.route(None, &answer(2));

    assert!(routed.answer.is_none());
    let carried = texts(&read(&mut streams, second).0);
    assert_eq!(carried, ["roots/list", "notifications/cancelled", "answer"]);
    streams.commit_to_events(first);
    assert!(read(&mut streams, first).0.is_empty());
    assert!(read(&mut streams, UNSOLICITED).0.is_empty());
    assert!(streams.carried.is_empty());
}

#[test]
fn the_end_of_a_post_does_not_end_what_it_carried() {
    let mut streams = streams();
    let [first, second] = two_posts(&mut streams);
    streams.route(None, &server_request());

    let ended = streams.end_cancelled(&2.into());
    assert!(ended.answer.is_none());
    streams.route_cancel(&9.into(), &cancel_of_request());

    assert_eq!(
        texts(&read(&mut streams, second).0),
        ["roots/list", "answer"]
    );
    let later = texts(&read(&mut streams, first).0);
    assert_eq!(later, ["notifications/cancelled"]);
}

#[test]
fn nothing_is_kept_of_a_carried_request_that_is_answered() {
    let mut streams = streams();
    two_posts(&mut streams);
    streams.route(None, &server_request());
    assert_eq!(streams.carried.len(), 1);

    streams.answered(&9.into());

    assert!(streams.carried.is_empty());
}

#[test]
fn an_answer_waits_for_its_reader_however_many_others_are_answered_first() {
    for form in [
        ResponseForm::Undecided,
        ResponseForm::Json,
        ResponseForm::Events,
    ] {
        let mut streams = streams();
        let opened: Vec<(u64, u64)> = (0..3 * MAX_ENDED_STREAMS as i64)
            .map(|id| open(&mut streams, [id], form))
            .collect();

        for id in 0..3 * MAX_ENDED_STREAMS as i64 {
            streams.route(None, &answer(id));
        }

        for (id, (key, reader)) in (0..).zip(opened) {
            let frame = match streams.form(key, Waker::noop()) {
                ResponseForm::Events => match streams.next(key, reader, Waker::noop()) {
                    NextEvent::Event { frame, .. } => Some(frame),
                    _ => None,
                },
                _ => streams.take_answers(key).pop(),
            };
            assert_eq!(frame, Some(answer(id).to_frame()), "{form:?}");
        }
    }
}

#[test]
fn a_json_answer_is_not_kept_after_the_client_disconnects() {
    let mut streams = streams();
    let (key, reader) = open(&mut streams, [1], ResponseForm::Undecided);

    streams.detach(key, reader);
    streams.route(None, &answer(1));

    assert_eq!(
        streams.attach(key, None, false).err(),
        Some(AttachError::Lost)
    );
    assert_eq!(streams.streams.len(), 1);
}

#[test]
fn answers_before_a_notification_stay_before_it() {
    let mut streams = streams();
    let key = unread(&mut streams, [1, 2], ResponseForm::Undecided);

    streams.route(None, &answer(1));
    streams.route(Some(&2.into()), &notification());
    streams.route(None, &answer(2));

    assert_eq!(streams.form(key, Waker::noop()), ResponseForm::Events);
    let frames = [answer(1), notification(), answer(2)].map(|message| message.to_frame());
    assert_eq!(read(&mut streams, key), (frames.to_vec(), NextEvent::End));
}

#[test]
fn the_number_of_resumable_streams_is_bounded() {
    let mut streams = streams();
    let first = unread(&mut streams, [0], ResponseForm::Events);
    streams.route(None, &answer(0));

    for id in 1..=MAX_ENDED_STREAMS as i64 {
        unread(&mut streams, [id], ResponseForm::Events);
        streams.route(None, &answer(id));
    }

    let lost = streams.attach(first, Some(0), true).err();
    assert_eq!(lost, Some(AttachError::Lost));
    assert!(streams.attach(first + 1, Some(0), true).is_ok());
}

#[test]
fn only_an_accepted_request_changes_the_record() {
    let subscribe = RawRequest {
        method: "resources/subscribe".into(),
        params: Some(Json::from(serde_json::json!({"uri": "a:1"})).into()),
        ..request(1)
    };
    let refusal = Response {
        id: Some(1.into()),
        outcome: Err(RpcError::new(ErrorCode::INVALID_PARAMS, "no")),
    };
    type End = fn(&mut SessionStreams, Message) -> Routed;
    let cases: [(&str, End, Message, bool); 3] = [
        (
            "accepted",
            |own, answer| own.route(None, &answer),
            answer(1),
            true,
        ),
        (
            "refused",
            |own, answer| own.route(None, &answer),
            refusal.into(),
            false,
        ),
        (
            "cancelled",
            |own, _| own.end_cancelled(&1.into()),
            answer(1),
            false,
        ),
    ];
    for (what, end, answer, changes) in cases {
        for key in [None, Some(UNSOLICITED)] {
            let mut streams = streams();
            streams.expect_answer(&subscribe, key, None);

            let routed = end(&mut streams, answer.clone());

            let expected = changes.then(|| Box::new(RecordChange::Subscribe("a:1".to_owned())));
            assert_eq!(routed.change, expected, "{what}");
        }
    }
}
