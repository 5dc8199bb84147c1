//! Tests of outgoing messages that belong to a request of the peer.

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
