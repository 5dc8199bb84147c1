//! The loss of a connection that the wire opens again.

use super::*;

#[test]
fn a_disconnect_removes_what_was_sent_and_keeps_queued_requests() {
    let mut pair = MuxPair::new();
    let (sent, _) = pair.call_and_serve();
    let also_sent = pair.call("tools/call");
    pair.client.poll_transmit().unwrap();
    let queued = pair.call("tools/list");
    pair.deliver_to_client(r#"{"jsonrpc":"2.0","id":"theirs","method":"ping"}"#);
    let Some(MuxEvent::Request { id, .. }) = pair.client.poll_event() else {
        panic!("expected the request of the server");
    };
    let note = Notification::new("notifications/note", None);
    pair.client.notify_within(&id, note.clone()).unwrap();
    pair.client.notify(note).unwrap();

    let lost = pair.client.handle_disconnect();

    assert_eq!(lost, [sent, also_sent]);
    let cancelled = MuxEvent::Cancelled { id, reason: None };
    assert_eq!(pair.client.poll_event(), Some(cancelled));
    assert_eq!(pair.client.poll_event(), None);
    assert!(pair.client.is_unsent(queued));
    assert!(text(pair.client.poll_transmit()).contains("tools/list"));
    assert_eq!(pair.client.poll_transmit(), None);
    assert_eq!(pair.client.sizes().queued_bytes, 0);
}

#[test]
fn a_response_and_a_cancel_of_the_old_connection_are_not_sent() {
    let mut pair = MuxPair::new();
    let (abandoned, _) = pair.call_and_serve();
    pair.client.abandon(abandoned, &AbandonReason::Dropped);
    pair.deliver_to_client(r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#);
    let Some(MuxEvent::Request { id, .. }) = pair.client.poll_event() else {
        panic!("expected the request of the server");
    };
    pair.client.respond(&id, ok());

    let lost = pair.client.handle_disconnect();

    assert!(lost.is_empty());
    assert_eq!(pair.client.poll_transmit(), None);
    assert_eq!(pair.client.sizes(), TableSizes::default());
    pair.deliver_to_client(r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#);
    assert!(matches!(
        pair.client.poll_event(),
        Some(MuxEvent::Request { .. })
    ));
}

#[test]
fn an_undelivered_request_is_removed_without_a_cancel() {
    let mut pair = MuxPair::new();
    let sent = pair.call_with("tools/call", with_id(7));
    let _request = pair.client.poll_transmit();
    let unsent = pair.call_with("tools/call", with_id(8));

    let undelivered = [7, 8].map(|id| pair.client.handle_undelivered(&id.into()));

    assert_eq!(undelivered, [Some(sent), None]);
    assert!(pair.client.is_unsent(unsent));
    assert!(text(pair.client.poll_transmit()).contains("tools/call"));
    assert_eq!(pair.client.poll_transmit(), None);
    assert_eq!(pair.client.poll_event(), None);
}
