//! What belongs to a request of the peer.

use super::*;

#[test]
fn what_belongs_to_a_request_of_the_peer_says_so_on_its_way_out() {
    let mut pair = Pair::new();
    let (_, id) = pair.call_and_serve();
    let within = CallOptions {
        within: Some(id.clone()),
        ..CallOptions::default()
    };
    let asked = pair.server.call(pair.now, "roots/list", None, within);
    let word = Notification::new("word", None);
    pair.server.notify(word.clone()).unwrap();
    pair.server.notify_within(&id, word).unwrap();
    let mut next = || pair.server.poll_outgoing().unwrap().within;

    assert_eq!(
        (next(), next(), next()),
        (Some(id.clone()), None, Some(id.clone()))
    );
    pair.server.abandon(asked.unwrap(), &Reason::Dropped);
    pair.server.respond(&id, ok());
    let mut next = || pair.server.poll_outgoing().unwrap().within;
    assert_eq!((next(), next()), (Some(id.clone()), Some(id)));
}

#[test]
fn what_was_said_within_a_request_does_not_leave_once_that_is_cancelled() {
    let mut pair = Pair::new();
    let (_, id) = pair.call_and_serve();
    let word = Notification::new("word", None);
    pair.server.notify_within(&id, word).unwrap();

    pair.client_says(&cancel_frame("1", "enough"));

    assert_eq!(pair.server.poll_transmit(), None);
    assert_eq!(pair.server.sizes(), Sizes::default());
}

#[test]
fn an_answer_that_has_not_left_is_taken_back_by_a_cancel() {
    for named in ["7", "\"7\""] {
        let mut pair = Pair::new();
        pair.client_says(r#"{"jsonrpc":"2.0","id":7,"method":"asked"}"#);
        let id = pair.serve_one();
        pair.server.respond(&id, ok());

        pair.client_says(&cancel_frame(named, "x"));

        assert_eq!(pair.server.poll_transmit(), None);
        let event = pair.server.poll_event();
        assert!(matches!(event, Some(Event::Cancelled { id: cancelled, .. }) if cancelled == id));
        pair.assert_empty();
    }
}
