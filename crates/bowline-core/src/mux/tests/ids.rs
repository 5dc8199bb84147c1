//! How the engine compares and assigns request ids.

use super::*;

#[test]
fn responses_match_numeric_and_text_ids_alike_and_ids_are_sent_verbatim() {
    let cases = [
        (RequestId::from(7), "7", r#""7""#),
        (RequestId::from("7"), r#""7""#, "7"),
        (RequestId::from("a b"), r#""a b""#, r#""a b""#),
    ];
    for (id, sent, echoed) in cases {
        let mut pair = MuxPair::new();
        let call = pair.call_with("m", with_id(id));

        let frame = text(pair.client.poll_transmit());
        pair.deliver_to_client(&format!(
            r#"{{"jsonrpc":"2.0","id":{echoed},"result":{{}}}}"#
        ));

        assert_eq!(
            frame,
            format!(r#"{{"jsonrpc":"2.0","id":{sent},"method":"m"}}"#)
        );
        assert_eq!(settled(pair.client.poll_event()).0, call);
        pair.assert_empty();
    }
}

#[test]
fn text_that_is_not_a_canonical_decimal_does_not_match_a_numeric_id() {
    for echoed in ["007", "+7", " 7", "7.0"] {
        let mut pair = MuxPair::new();
        pair.call_with("m", with_id(7));
        let _request = pair.client.poll_transmit();

        pair.deliver_to_client(&format!(
            r#"{{"jsonrpc":"2.0","id":"{echoed}","result":{{}}}}"#
        ));

        assert!(
            matches!(pair.client.poll_event(), Some(MuxEvent::Warning(_))),
            "{echoed}"
        );
    }
}

#[test]
fn inbound_requests_are_keyed_verbatim() {
    let mut pair = MuxPair::new();
    pair.deliver_to_server(r#"{"jsonrpc":"2.0","id":7,"method":"number"}"#);
    pair.deliver_to_server(r#"{"jsonrpc":"2.0","id":"7","method":"text"}"#);
    let (number, text_id) = (pair.serve_one(), pair.serve_one());

    pair.deliver_to_server(&cancel_frame("\"7\"", "x"));
    pair.server.respond(&number, ok());
    pair.server.respond(&text_id, ok());

    assert!(
        matches!(pair.server.poll_event(), Some(MuxEvent::Cancelled { id, .. }) if id == text_id)
    );
    assert_eq!(
        text(pair.server.poll_transmit()),
        r#"{"jsonrpc":"2.0","id":7,"result":{}}"#
    );
    assert_eq!(pair.server.poll_transmit(), None);
}

#[test]
fn an_inbound_cancel_matches_by_coercion_if_exactly_one_request_fits() {
    for (id, named) in [("7", "\"7\""), ("\"7\"", "7")] {
        let mut pair = MuxPair::new();
        pair.deliver_to_server(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#));
        let request = pair.serve_one();

        pair.deliver_to_server(&cancel_frame(named, "x"));

        assert!(
            matches!(pair.server.poll_event(), Some(MuxEvent::Cancelled { id, .. }) if id == request)
        );
    }
}

#[test]
fn a_caller_supplied_id_that_is_in_flight_is_refused() {
    let mut pair = MuxPair::new();
    let first = pair.call_with("a", with_id(7));

    let second = pair.client.call(pair.now, "b", None, with_id("7"));
    assert_eq!(second, Err(CallRefused::IdInUse("7".into())));

    assert!(text(pair.client.poll_transmit()).contains(r#""method":"a""#));
    assert_eq!(pair.client.poll_transmit(), None);
    pair.client.abandon(first, &AbandonReason::Dropped);
    assert!(pair.client.call(pair.now, "c", None, with_id("7")).is_ok());
}

#[test]
fn a_minted_id_never_collides_with_a_supplied_one() {
    let mut pair = MuxPair::new();
    pair.call_with("x", with_id("3"));

    let minted = [(); 3].map(|()| {
        let call = pair.call("y");
        pair.client.request_id(call).cloned().unwrap()
    });

    assert_eq!(minted, [1, 2, 4].map(RequestId::from));
}

#[test]
fn the_id_of_a_call_that_was_abandoned_after_it_was_sent_is_not_generated_again() {
    let mut pair = MuxPair::new();
    let [sent, unsent] = [2, 3].map(|id| pair.call_with("x", with_id(id)));
    let _request = pair.client.poll_transmit();
    for call in [sent, unsent] {
        pair.client.abandon(call, &AbandonReason::Dropped);
    }

    let generated = [(); 2].map(|()| {
        let call = pair.call("y");
        pair.client.request_id(call).cloned().unwrap()
    });

    // A late response to the request 2 would settle the new call.
    assert_eq!(generated, [1, 3].map(RequestId::from));
}
