//! Tests with a peer that does not read.

use super::*;

const LIMIT: usize = 10_000;

fn mux() -> Mux {
    Mux::new(MuxLimits {
        queued_bytes: LIMIT,
        ..MuxLimits::default()
    })
}

/// Delivers a request of the peer. Returns its id if it was accepted.
fn receive_request(mux: &mut Mux, id: i64) -> Option<InFlightId> {
    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ask"}}"#);
    mux.handle_message(Instant::now(), message(&text));
    let events = std::iter::from_fn(|| mux.poll_event());
    let requests = events.filter_map(|event| match event {
        MuxEvent::Request { id, .. } => Some(id),
        _ => None,
    });
    requests.last()
}

fn long() -> Outcome {
    Ok(Json::encode(&"x".repeat(LIMIT)).unwrap())
}

fn sent(mux: &mut Mux) -> Vec<String> {
    std::iter::from_fn(|| mux.poll_transmit().map(|message| text(Some(message)))).collect()
}

#[test]
fn beyond_the_output_limit_answers_are_short_errors() {
    let mut mux = mux();
    let [first, second] = [1, 2].map(|id| receive_request(&mut mux, id).unwrap());

    let queued = [first, second].map(|id| mux.respond(&id, long()));
    let third = receive_request(&mut mux, 3);

    assert_eq!(queued, [true, false], "an error replaces the second");
    assert_eq!(third, None, "nothing new is begun");
    let sent = sent(&mut mux);
    assert_eq!(sent.len(), 3, "everything is answered");
    assert!(sent[0].len() > LIMIT, "one answer fits, however long it is");
    for short in &sent[1..] {
        assert!(
            short.contains("`output_bytes`") && short.len() < 200,
            "{short}"
        );
    }
    assert!(
        receive_request(&mut mux, 4).is_some(),
        "a peer that reads again is served again"
    );
}

#[test]
fn a_peer_that_keeps_sending_without_reading_chokes_the_queue() {
    let mut mux = mux();
    let mut asked = 0;

    while !mux.is_choked() {
        asked += 1;
        if let Some(id) = receive_request(&mut mux, asked) {
            mux.respond(&id, Ok(Json::empty_object()));
        }
    }
    let held = mux.sizes().queued_bytes;
    for more in 1..1000 {
        receive_request(&mut mux, asked + more);
        let nonsense = Message::decode(&bytes::Bytes::from_static(b"nonsense"));
        mux.handle_malformed(nonsense.unwrap_err());
    }

    assert!(asked > 20, "given up after {asked} requests");
    assert_eq!(mux.sizes().queued_bytes, held);
    assert!(held < 2 * LIMIT + 1000, "{held} bytes are held");
}

#[test]
fn a_long_message_alone_does_not_choke_the_queue() {
    let text = "x".repeat(10 * LIMIT);
    let text = Json::encode(&serde_json::json!({"text": text})).unwrap();
    let call = |mux: &mut Mux| {
        let params = Some(text.clone());
        let call = mux.call(Instant::now(), "ours", params, CallOptions::default());
        assert!(call.is_ok(), "{call:?}");
    };
    let answer = |mux: &mut Mux| {
        let id = receive_request(mux, 1).unwrap();
        mux.respond(&id, Ok(text.clone()));
    };
    for queue in [&call as &dyn Fn(&mut Mux), &answer] {
        let mut mux = mux();

        queue(&mut mux);

        assert!(!mux.is_choked());
        let mut refused = 1;
        while !mux.is_choked() {
            refused += 1;
            assert_eq!(receive_request(&mut mux, refused), None);
        }
        assert!(refused > 20, "given up after {refused} requests");
        assert_eq!(sent(&mut mux).len(), usize::try_from(refused).unwrap());
        assert!(!mux.is_choked());
    }
}

#[test]
fn sent_and_withdrawn_messages_take_no_room() {
    let mut mux = mux();
    let now = Instant::now();
    let [answered, cancelled] = [1, 2].map(|id| receive_request(&mut mux, id).unwrap());
    let notification = || Notification::new("note", None);
    mux.notify_within(&cancelled, notification()).unwrap();
    mux.notify_within(&answered, notification()).unwrap();
    mux.respond(&answered, Ok(Json::empty_object()));
    mux.respond(&cancelled, Ok(Json::empty_object()));
    let call = mux.call(now, "ours", None, CallOptions::default()).unwrap();

    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#;
    mux.handle_message(now, message(cancel));
    mux.abandon(call, &AbandonReason::Dropped);

    assert_eq!(
        sent(&mut mux).len(),
        2,
        "a notification and the answer to the first"
    );
    assert_eq!(mux.sizes(), TableSizes::default());
}

#[test]
fn calls_and_notifications_are_refused_beyond_the_byte_limit() {
    let mut mux = mux();
    let now = Instant::now();
    let params = Json::encode(&serde_json::json!({"text": "x".repeat(LIMIT)})).ok();
    let first = mux.call(now, "long", params, CallOptions::default());

    let second = mux.call(now, "short", None, CallOptions::default());
    let notified = mux.notify(Notification::new("note", None));

    assert!(first.is_ok());
    assert_eq!(second, Err(CallRefused::Full));
    assert_eq!(notified, Err(NotifyError::Full));
}

#[test]
fn an_id_is_in_flight_until_its_response_is_sent() {
    let mut mux = mux();
    let first = receive_request(&mut mux, 7).unwrap();
    mux.respond(&first, Ok(Json::empty_object()));

    assert_eq!(receive_request(&mut mux, 7), None);
    sent(&mut mux);

    assert!(receive_request(&mut mux, 7).is_some());
}
