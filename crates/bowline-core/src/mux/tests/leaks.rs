//! Tests that ended calls leave no entries, and that rejected messages create none.

use super::*;

#[test]
fn a_call_that_is_over_leaves_no_deadline() {
    let limited = || CallOptions {
        idle_timeout: Some(Duration::from_secs(1)),
        timeout: Some(Duration::from_secs(9)),
        ..CallOptions::default()
    };
    let mut pair = MuxPair::new();
    pair.call_with("answered", limited());
    pair.deliver();
    let id = pair.serve_one();
    let abandoned = pair.call_with("abandoned", limited());
    assert!(pair.client.poll_timeout().is_some());
    assert_eq!(pair.client.sizes().pending, 2);

    pair.server.respond(&id, ok());
    pair.client.abandon(abandoned, &AbandonReason::Dropped);
    pair.deliver();

    assert_eq!(pair.client.poll_timeout(), None);
}

#[test]
fn a_response_to_an_unsent_call_is_ignored() {
    let mut pair = MuxPair::new();
    let call = pair.call("tools/call");
    let guess = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

    pair.deliver_to_client(guess);

    assert!(matches!(
        pair.client.poll_event(),
        Some(MuxEvent::Warning(_))
    ));
    assert!(text(pair.client.poll_transmit()).contains("tools/call"));
    pair.deliver_to_client(guess);
    assert_eq!(settled(pair.client.poll_event()).0, call);
}

#[test]
fn after_the_end_no_message_is_accepted_or_queued() {
    let mut pair = MuxPair::new();
    pair.server.handle_end(WireEnd::Closed);

    pair.deliver_to_server(r#"{"jsonrpc":"2.0","id":1,"method":"late"}"#);
    pair.deliver_to_server(r#"{"jsonrpc":"2.0","method":"late"}"#);
    let notified = pair.server.notify(Notification::new("late", None));

    assert_eq!(notified, Err(NotifyError::Ended));
    assert_eq!(pair.server.poll_event(), None);
    pair.assert_empty();
}
