//! Tests of cancellation.

use super::*;

#[test]
fn every_request_cancels_when_abandoned_by_default_in_both_directions() {
    let mut pair = MuxPair::new();
    let (ours, _) = pair.call_and_serve();
    let theirs = pair
        .server
        .call(pair.now, "roots/list", None, CallOptions::default());
    pair.deliver();

    pair.client.abandon(ours, &AbandonReason::Dropped);
    pair.server
        .abandon(theirs.unwrap(), &AbandonReason::Dropped);

    for mux in [&mut pair.client, &mut pair.server] {
        assert_eq!(
            text(mux.poll_transmit()),
            cancel_frame("1", "caller cancelled")
        );
        assert_eq!(mux.poll_transmit(), None);
    }
}

#[test]
fn the_reason_distinguishes_dropped_timed_out_and_cancelled_calls() {
    let limit = Duration::from_millis(200);
    let reasons = [
        (AbandonReason::Dropped, "caller cancelled"),
        (
            AbandonReason::Timeout(CallTimeout::Idle(limit)),
            "timed out after 200ms",
        ),
        (
            AbandonReason::Timeout(CallTimeout::Total(limit)),
            "timed out after 200ms",
        ),
        (AbandonReason::Cancelled("bored".to_owned()), "bored"),
    ];
    for (reason, sent) in reasons {
        let mut pair = MuxPair::new();
        let (call, _) = pair.call_and_serve();

        pair.client.abandon(call, &reason);

        assert_eq!(text(pair.client.poll_transmit()), cancel_frame("1", sent));
    }
}

#[test]
fn cancelling_with_a_reason_sends_a_cancel_even_without_cancel_on_abandon() {
    let opted_out = CallOptions {
        cancel_on_abandon: false,
        ..CallOptions::default()
    };
    let mut pair = MuxPair::new();
    let call = pair.call_with("tools/call", opted_out);
    let _request = pair.client.poll_transmit();

    pair.client
        .abandon(call, &AbandonReason::Cancelled("bored".into()));

    assert_eq!(
        text(pair.client.poll_transmit()),
        cancel_frame("1", "bored")
    );
    pair.assert_empty();
}

#[test]
fn on_a_timeout_the_cancel_is_queued_before_the_caller_sees_the_error() {
    let mut pair = MuxPair::new();
    let limit = Duration::from_millis(200);
    let options = CallOptions {
        idle_timeout: Some(limit),
        ..CallOptions::default()
    };
    let sent = pair.call_with("sent", options.clone());
    let _request = pair.client.poll_transmit();
    let stuck = pair.call_with("stuck", options);

    pair.advance(limit);

    // The cancel is still queued, and the callers do not wait for it.
    assert_eq!(pair.client.sizes().queued, 1);
    let timeout = || Err(CallFailure::Timeout(CallTimeout::Idle(limit)));
    assert_eq!(settled(pair.client.poll_event()), (sent, timeout()));
    assert_eq!(settled(pair.client.poll_event()), (stuck, timeout()));
    let cancel = cancel_frame("1", "timed out after 200ms");
    assert_eq!(text(pair.client.poll_transmit()), cancel);
    assert_eq!(pair.client.poll_transmit(), None);
}

#[test]
fn only_sent_requests_are_cancelled() {
    let mut pair = MuxPair::new();
    let calls = ["a", "b", "c"].map(|method| pair.call(method));
    let _a = pair.client.poll_transmit();
    assert_eq!(
        calls.map(|call| pair.client.is_unsent(call)),
        [false, true, true]
    );

    for call in calls {
        pair.client.abandon(call, &AbandonReason::Dropped);
    }

    assert_eq!(
        text(pair.client.poll_transmit()),
        cancel_frame("1", "caller cancelled")
    );
    assert_eq!(pair.client.poll_transmit(), None);
    pair.assert_empty();
}

#[test]
fn a_wire_failure_is_not_a_timeout_and_no_cancel_follows() {
    let mut pair = MuxPair::new();
    let limit = Duration::from_secs(1);
    let options = CallOptions {
        timeout: Some(limit),
        ..CallOptions::default()
    };
    let call = pair.call_with("slow", options);
    pair.deliver();

    pair.client.handle_end(WireEnd::Broken);
    pair.advance(2 * limit);
    pair.client.abandon(call, &AbandonReason::Dropped);

    let broken = Err(CallFailure::Ended(WireEnd::Broken));
    assert_eq!(settled(pair.client.poll_event()), (call, broken));
    assert_eq!(pair.client.poll_event(), None);
    assert_eq!(pair.client.poll_transmit(), None);
}

#[test]
fn a_late_result_or_error_is_dropped_and_the_id_is_free_again() {
    for late in [
        r#""result":{}"#,
        r#""error":{"code":-32603,"message":"late"}"#,
    ] {
        let mut pair = MuxPair::new();
        let call = pair.call_with("x", with_id("mine"));
        pair.deliver();
        pair.client.abandon(call, &AbandonReason::Dropped);

        pair.deliver_to_client(&format!(r#"{{"jsonrpc":"2.0","id":"mine",{late}}}"#));

        // Only for the log: the call was abandoned, so no outcome follows.
        let warning = ProtocolWarning::UnexpectedResponse("mine".into());
        assert_eq!(pair.client.poll_event(), Some(MuxEvent::Warning(warning)));
        assert_eq!(pair.client.poll_event(), None);
        pair.call_with("x", with_id("mine"));
    }
}

#[test]
fn a_chosen_id_reaches_the_peer_verbatim_and_the_next_call_mints_as_before() {
    let mut pair = MuxPair::new();
    for chosen in [RequestId::from("7"), RequestId::from(-3), "x y".into()] {
        pair.call_with("x", with_id(chosen.clone()));
        pair.deliver();
        assert_eq!(pair.serve_one().request_id(), &chosen);
    }

    let minted = pair.call("x");

    assert_eq!(pair.client.request_id(minted), Some(&1.into()));
}

#[test]
fn an_inbound_request_is_registered_on_arrival_so_a_cancel_right_behind_it_finds_it() {
    let mut pair = MuxPair::new();

    pair.deliver_to_server(r#"{"jsonrpc":"2.0","id":7,"method":"x"}"#);
    pair.deliver_to_server(&cancel_frame("7", "at once"));

    let id = pair.serve_one();
    let reason = Some("at once".to_owned());
    let cancelled = MuxEvent::Cancelled {
        id: id.clone(),
        reason,
    };
    assert_eq!(pair.server.poll_event(), Some(cancelled));
    pair.server.respond(&id, ok());
    assert_eq!(pair.server.poll_transmit(), None);
    pair.assert_empty();
}

#[test]
fn at_most_one_answer_per_id() {
    let mut pair = MuxPair::new();
    let (_, id) = pair.call_and_serve();

    pair.server.respond(&id, ok());
    pair.server.respond(&id, ok());
    let after = Notification::new("notifications/progress", None);
    let after = pair.server.notify_within(&id, after);

    assert_eq!(after, Err(NotifyError::RequestOver));
    assert!(pair.server.poll_transmit().is_some());
    assert_eq!(pair.server.poll_transmit(), None);
}

#[test]
fn a_subscription_ends_by_a_result_then_a_cancel_or_by_either() {
    let result = r#"{"jsonrpc":"2.0","id":"s","result":{}}"#.to_owned();
    let cancel = cancel_frame("\"s\"", "over");
    for ends in [vec![&result, &cancel], vec![&result], vec![&cancel]] {
        let mut pair = MuxPair::new();
        let call = pair.call_with("subscriptions/listen", with_id("s"));
        let _request = pair.client.poll_transmit();

        for end in &ends {
            pair.deliver_to_client(end);
        }

        let (settled, outcome) = settled(pair.client.poll_event());
        assert_eq!(settled, call);
        assert_eq!(outcome.is_ok(), ends[0] == &result);
        assert_eq!(pair.client.poll_event(), None);
        assert_eq!(pair.client.poll_transmit(), None);
        pair.assert_empty();
    }
}

#[test]
fn an_error_without_an_id_settles_the_opening_if_no_other_call_is_pending() {
    for opening in ["initialize", "server/discover"] {
        let mut pair = MuxPair::new();
        let call = pair.call(opening);
        let _request = pair.client.poll_transmit();

        pair.client
            .handle_message(pair.now, error_without_id().into());

        let refused = Err(CallFailure::Peer(error_without_id().outcome.unwrap_err()));
        assert_eq!(settled(pair.client.poll_event()), (call, refused));
        pair.assert_empty();
    }
}

#[test]
fn an_error_without_an_id_settles_no_unsent_call_and_none_of_several() {
    let mut pair = MuxPair::new();
    let unsent = pair.call("server/discover");
    pair.client
        .handle_message(pair.now, error_without_id().into());
    let after_unsent = pair.client.poll_event();
    let _request = pair.client.poll_transmit();
    let other = pair.call("tools/call");
    let _request = pair.client.poll_transmit();

    pair.client
        .handle_message(pair.now, error_without_id().into());
    let after_both = pair.client.poll_event();

    let warning = Some(MuxEvent::Warning(ProtocolWarning::ErrorWithoutId(
        error_without_id().outcome.unwrap_err(),
    )));
    assert_eq!((after_unsent, after_both), (warning.clone(), warning));
    for call in [unsent, other] {
        assert!(pair.client.request_id(call).is_some());
    }
}

fn error_without_id() -> Response {
    let error = RpcError::new(ErrorCode::PARSE_ERROR, "what?");
    let (id, outcome) = (None, Err(error));
    Response { id, outcome }
}
