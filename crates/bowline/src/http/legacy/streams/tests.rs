//! Where each message goes, what can be read again, and what is held meanwhile.

use bowline_core::{Notification, RawRequest};
use bowline_types::Json;

use super::*;
use crate::http::legacy::store::MemoryStore;
use crate::limits::Limits;

fn streams() -> Streams {
    let account = Account::total(Limits::default());
    Streams::new(Layout::PerPost, Box::<MemoryStore>::default(), account)
}

/// A stream for the answers to these requests, and its reader.
fn open(streams: &mut Streams, ids: impl IntoIterator<Item = i64>, form: Form) -> (u64, u64) {
    let (key, reader) = streams.open(form, Vec::new());
    for id in ids {
        streams.expect(&id.into(), Some(key), None);
    }
    (key, reader)
}

/// The same, which nothing reads.
fn unread(streams: &mut Streams, ids: impl IntoIterator<Item = i64>, form: Form) -> u64 {
    let (key, reader) = open(streams, ids, form);
    streams.detach(key, reader);
    key
}

fn answer(id: i64) -> Message {
    let outcome = Ok(Json::empty_object());
    let id = Some(id.into());
    Response { id, outcome }.into()
}

fn word() -> Message {
    Notification::new("word", None).into()
}

fn question() -> Message {
    let (method, params) = ("roots/list".into(), None);
    let id = 9.into();
    RawRequest { id, method, params }.into()
}

/// What is on a stream, to its end or to where it waits.
fn read(streams: &mut Streams, key: u64) -> (Vec<Bytes>, Next) {
    let (reader, _) = streams.attach(key, Some(0), true).unwrap();
    let mut frames = Vec::new();
    loop {
        match streams.next(key, reader, Waker::noop()) {
            Next::Event { frame, .. } => frames.push(frame),
            last => return (frames, last),
        }
    }
}

#[test]
fn each_message_is_on_exactly_one_stream() {
    let mut streams = streams();
    let first = unread(&mut streams, [1], Form::Undecided);
    let second = unread(&mut streams, [2], Form::Events);

    streams.route(Some(&1.into()), &word());
    streams.route(None, &word());
    streams.route(Some(&2.into()), &answer(2));
    streams.route(Some(&1.into()), &answer(1));

    let frame = |message: Message| message.to_frame();
    assert_eq!(
        read(&mut streams, first),
        (vec![frame(word()), frame(answer(1))], Next::End)
    );
    assert_eq!(
        read(&mut streams, second),
        (vec![frame(answer(2))], Next::End)
    );
    assert_eq!(
        read(&mut streams, UNSOLICITED),
        (vec![frame(word())], Next::Wait)
    );
}

#[test]
fn a_stream_is_over_when_all_its_requests_are_answered() {
    let mut streams = streams();
    let key = unread(&mut streams, [1, 2], Form::Events);

    streams.route(None, &answer(1));
    assert_eq!(read(&mut streams, key).1, Next::Wait);
    streams.route(None, &answer(2));

    assert_eq!(read(&mut streams, key).1, Next::End);
    assert_eq!(streams.unanswered().len(), 0);
}

#[test]
fn an_answer_after_the_cancel_is_on_no_stream() {
    let mut streams = streams();
    let key = unread(&mut streams, [1], Form::Events);

    streams.cancelled(&1.into());
    streams.route(None, &answer(1));

    let (frames, _) = read(&mut streams, key);
    assert_eq!(frames.len(), 1);
    assert!(String::from_utf8_lossy(&frames[0]).contains("-32800"));
    assert!(read(&mut streams, UNSOLICITED).0.is_empty());
}

#[test]
fn an_id_is_in_flight_until_it_is_answered_or_cancelled() {
    let mut streams = streams();
    open(&mut streams, [1, 2], Form::Events);
    let ids: [RequestId; 4] = ["1".into(), 3.into(), 2.into(), 1.into()];

    assert_eq!(streams.find_in_flight(ids.iter()), Some(&ids[2]));
    assert!(streams.is_in_flight(&ids[0]), "a cancel may spell it so");
    streams.route(None, &answer(1));
    streams.cancelled(&2.into());

    assert_eq!(streams.find_in_flight(ids.iter()), None);
    assert!(!streams.is_in_flight(&ids[0]));
}

#[test]
fn a_stream_is_read_before_a_get_can_guess_its_key() {
    for form in [Form::Undecided, Form::Json, Form::Events] {
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
fn only_places_of_events_can_be_named() {
    let mut streams = streams();
    let json = open(&mut streams, [1], Form::Json).0;
    let undecided = open(&mut streams, [2], Form::Undecided).0;
    let events = open(&mut streams, [3], Form::Events).0;
    streams.route(Some(&3.into()), &word());

    for (key, place) in [
        (json, 0),
        (undecided, 0),
        (events, 2),
        (events, u64::MAX),
        (UNSOLICITED, 1),
        (events + 1, 0),
        (u64::MAX, u64::MAX),
    ] {
        let refused = streams.attach(key, Some(place), true).err();
        assert_eq!(refused, Some(CannotRead::Unknown), "{key}-{place}");
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
    let store = Box::<MemoryStore>::default();
    let mut streams = Streams::new(Layout::PerPost, store, account.clone());
    let (key, _) = open(&mut streams, 0..10, Form::Json);

    for id in 0..8_i64 {
        let (id, outcome) = (Some(id.into()), Json::encode(&"x".repeat(1000)));
        let outcome = Ok(outcome.unwrap());
        streams.route(None, &Response { id, outcome }.into());
    }
    streams.route(None, &answer(8));
    streams.cancelled(&9.into());

    assert_eq!(streams.unanswered().len(), 0);
    let answers = streams.take_answers(key);
    let text = |frame: &Bytes| String::from_utf8_lossy(frame).into_owned();
    let refused = |frame: &&Bytes| text(frame).contains("output_bytes");
    assert_eq!(answers.len(), 10, "each request has an answer");
    assert_eq!(answers.iter().filter(refused).count(), 5);
    assert_eq!(account.usage().refused(Limit::OutputBytes), 5);
    assert!(text(&answers[9]).contains("-32800"), "it was short");
    assert_eq!(streams.output_bytes(), 0);
}

#[test]
fn what_is_read_outlives_the_end_and_nothing_else_does() {
    let mut streams = streams();
    unread(&mut streams, [1], Form::Events);
    let (key, reader) = open(&mut streams, [2], Form::Events);
    streams.route(None, &word());
    streams.route(Some(&2.into()), &word());

    drop(streams.end());

    let next = streams.next(key, reader, Waker::noop());
    assert!(matches!(next, Next::Event { .. }));
    assert_eq!(streams.next(key, reader, Waker::noop()), Next::End);
    assert_eq!(streams.streams.len(), 1);
    streams.detach(key, reader);
    assert_eq!((streams.streams.len(), streams.event_bytes()), (0, 0));
    assert_eq!(streams.output_bytes(), 0);
}

#[test]
fn a_question_that_cannot_reach_the_client_is_answered_for_it() {
    let mut streams = streams();
    open(&mut streams, [1], Form::Json);

    let routed = streams.route(Some(&1.into()), &question());

    assert!(matches!(
        routed.answer,
        Some(Message::Response(Response {
            outcome: Err(_),
            ..
        }))
    ));
    assert!(read(&mut streams, UNSOLICITED).0.is_empty());
}

#[test]
fn an_answer_waits_for_its_reader_however_many_others_are_answered_first() {
    for form in [Form::Undecided, Form::Json, Form::Events] {
        let mut streams = streams();
        let opened: Vec<(u64, u64)> = (0..3 * MOST_OVER as i64)
            .map(|id| open(&mut streams, [id], form))
            .collect();

        for id in 0..3 * MOST_OVER as i64 {
            streams.route(None, &answer(id));
        }

        for (id, (key, reader)) in (0..).zip(opened) {
            let frame = match streams.form(key, Waker::noop()) {
                Form::Events => match streams.next(key, reader, Waker::noop()) {
                    Next::Event { frame, .. } => Some(frame),
                    _ => None,
                },
                _ => streams.take_answers(key).pop(),
            };
            assert_eq!(frame, Some(answer(id).to_frame()), "{form:?}");
        }
    }
}

#[test]
fn an_answer_in_json_is_not_kept_for_a_client_that_is_gone() {
    let mut streams = streams();
    let (key, reader) = open(&mut streams, [1], Form::Undecided);

    streams.detach(key, reader);
    streams.route(None, &answer(1));

    assert_eq!(
        streams.attach(key, None, false).err(),
        Some(CannotRead::Lost)
    );
    assert_eq!(streams.streams.len(), 1);
}

#[test]
fn what_was_answered_before_a_word_was_said_stays_before_it() {
    let mut streams = streams();
    let key = unread(&mut streams, [1, 2], Form::Undecided);

    streams.route(None, &answer(1));
    streams.route(Some(&2.into()), &word());
    streams.route(None, &answer(2));

    assert_eq!(streams.form(key, Waker::noop()), Form::Events);
    let frames = [answer(1), word(), answer(2)].map(|message| message.to_frame());
    assert_eq!(read(&mut streams, key), (frames.to_vec(), Next::End));
}

#[test]
fn only_so_many_streams_can_be_read_again() {
    let mut streams = streams();
    let first = unread(&mut streams, [0], Form::Events);
    streams.route(None, &answer(0));

    for id in 1..=MOST_OVER as i64 {
        unread(&mut streams, [id], Form::Events);
        streams.route(None, &answer(id));
    }

    let lost = streams.attach(first, Some(0), true).err();
    assert_eq!(lost, Some(CannotRead::Lost));
    assert!(streams.attach(first + 1, Some(0), true).is_ok());
}
