//! Tests of messages that belong to a request of the other side.

use super::*;

#[test]
fn outgoing_messages_name_the_request_of_the_peer_they_belong_to() {
    let mut pair = MuxPair::new();
    let (_, id) = pair.call_and_serve();
    let within = CallOptions {
        within: Some(id.clone()),
        ..CallOptions::default()
    };
    let asked = pair.server.call(pair.now, "roots/list", None, within);
    let notification = Notification::new("note", None);
    pair.server.notify(notification.clone()).unwrap();
    pair.server.notify_within(&id, notification).unwrap();
    let mut next = || pair.server.poll_outgoing().unwrap().within;

    assert_eq!(
        (next(), next(), next()),
        (Some(id.clone()), None, Some(id.clone()))
    );
    pair.server.abandon(asked.unwrap(), &AbandonReason::Dropped);
    pair.server.respond(&id, ok());
    let mut next = || pair.server.poll_outgoing().unwrap().within;
    assert_eq!((next(), next()), (Some(id.clone()), Some(id)));
}

#[test]
fn a_cancel_names_the_request_of_ours_that_it_cancels() {
    let mut pair = MuxPair::new();
    let call = pair
        .client
        .call(pair.now, "ping", None, CallOptions::default())
        .unwrap();
    let id = pair.client.request_id(call).cloned();
    let request = pair.client.poll_outgoing().unwrap();

    pair.client.abandon(call, &AbandonReason::Dropped);

    let cancel = pair.client.poll_outgoing().unwrap();
    assert_eq!((request.cancels, &cancel.cancels), (None, &id));
    // Also if the application sends it itself.
    let Message::Notification(by_hand) = cancel.message else {
        panic!("expected a notification");
    };
    pair.client.notify(by_hand).unwrap();
    assert_eq!(pair.client.poll_outgoing().unwrap().cancels, id);
}

#[test]
fn notifications_of_a_cancelled_request_are_not_sent() {
    let mut pair = MuxPair::new();
    let (_, id) = pair.call_and_serve();
    let notification = Notification::new("note", None);
    pair.server.notify_within(&id, notification).unwrap();

    pair.deliver_to_server(&cancel_frame("1", "enough"));

    assert_eq!(pair.server.poll_transmit(), None);
    assert_eq!(pair.server.sizes(), TableSizes::default());
}

#[test]
fn a_cancel_withdraws_an_unsent_response() {
    for named in ["7", "\"7\""] {
        let mut pair = MuxPair::new();
        pair.deliver_to_server(r#"{"jsonrpc":"2.0","id":7,"method":"asked"}"#);
        let id = pair.serve_one();
        pair.server.respond(&id, ok());

        pair.deliver_to_server(&cancel_frame(named, "x"));

        assert_eq!(pair.server.poll_transmit(), None);
        let event = pair.server.poll_event();
        assert!(
            matches!(event, Some(MuxEvent::Cancelled { id: cancelled, .. }) if cancelled == id)
        );
        pair.assert_empty();
    }
}

const LOG: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}"#;

/// Sends a request and a log message of the server to the client. Returns the call that each is attributed to.
fn attributed(
    pair: &mut MuxPair,
    arrives: impl Fn(&mut Mux, Instant, Message),
) -> (Option<RequestId>, Option<CallId>) {
    let now = pair.now;
    let request = r#"{"jsonrpc":"2.0","id":"asked","method":"roots/list"}"#;
    let mut receive = |frame: &str| {
        let message = Message::decode(&frame.to_owned().into()).unwrap();
        arrives(&mut pair.client, now, message);
        pair.client.poll_event().unwrap()
    };
    let MuxEvent::Request { id, within, .. } = receive(request) else {
        panic!("expected a request");
    };
    let of_log = match receive(LOG) {
        MuxEvent::CallNotification { call, .. } => Some(call),
        MuxEvent::Notification(_) => None,
        other => panic!("expected a notification, saw {other:?}"),
    };
    pair.client.respond(&id, ok());
    while pair.client.poll_transmit().is_some() {}
    (within, of_log)
}

#[test]
fn a_request_of_the_server_belongs_to_the_only_call_in_flight() {
    let mut pair = MuxPair::new();
    assert_eq!(attributed(&mut pair, Mux::handle_message), (None, None));
    for method in ["ping", "subscriptions/listen", "logging/setLevel"] {
        pair.call(method);
    }
    pair.deliver();
    assert_eq!(attributed(&mut pair, Mux::handle_message), (None, None));

    let first = pair.call("tools/call");
    let id = pair.client.request_id(first).cloned();
    assert_eq!(attributed(&mut pair, Mux::handle_message), (None, None)); // not sent yet: this sends it
    let alone = attributed(&mut pair, Mux::handle_message);
    pair.call("tools/call");
    pair.deliver();
    let ambiguous = attributed(&mut pair, Mux::handle_message);

    assert_eq!(alone, (id, Some(first)));
    assert_eq!(ambiguous, (None, None));
}

#[test]
fn a_stream_names_the_call_that_a_request_of_the_server_belongs_to() {
    let mut pair = MuxPair::new();
    let [first, second] = [(); 2].map(|()| pair.call("tools/call"));
    pair.deliver();
    let id = pair.client.request_id(second).cloned().unwrap();
    let within = |mux: &mut Mux, now, message| mux.handle_message_within(now, &id, message);

    let among_several = attributed(&mut pair, within);
    pair.client.abandon(second, &AbandonReason::Dropped);
    let after_its_end = attributed(&mut pair, within);
    let unknown = attributed(&mut pair, Mux::handle_message);

    assert_eq!(among_several, (Some(id.clone()), Some(second)));
    assert_eq!(after_its_end, (None, None));
    let first_id = pair.client.request_id(first).cloned();
    assert_eq!(unknown, (first_id, Some(first)));
}

#[test]
fn a_request_of_the_server_names_its_call_even_if_the_answer_arrived_meanwhile() {
    let mut pair = MuxPair::new();
    let (call, id) = pair.call_and_serve();
    let ours = pair.client.request_id(call).cloned();
    let asked = pair
        .server
        .call(pair.now, "roots/list", None, CallOptions::default());
    asked.unwrap();
    pair.server.respond(&id, ok());

    pair.deliver();

    let events: Vec<_> = std::iter::from_fn(|| pair.client.poll_event()).collect();
    let [MuxEvent::Request { within, .. }, MuxEvent::Settled { .. }] = &events[..] else {
        panic!("expected a request and an answer, saw {events:?}");
    };
    assert_eq!(within, &ours);
}
