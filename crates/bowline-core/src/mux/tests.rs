//! The invariants of the engine, one test each, with two connected engines.

mod cancellation;

mod disconnect;

mod ids;

mod leaks;

mod output;

mod pausing;

mod within;

use super::*;
use bowline_types::ProgressToken;

/// Two connected engines. Time advances only by [`MuxPair::advance`].
pub(super) struct MuxPair {
    pub(super) client: Mux,
    pub(super) server: Mux,
    pub(super) now: Instant,
}

impl MuxPair {
    pub(super) fn new() -> Self {
        Self {
            client: Mux::default(),
            server: Mux::default(),
            now: Instant::now(),
        }
    }

    pub(super) fn call(&mut self, method: &'static str) -> CallId {
        self.call_with(method, CallOptions::default())
    }

    pub(super) fn call_with(&mut self, method: &'static str, options: CallOptions) -> CallId {
        self.client.call(self.now, method, None, options).unwrap()
    }

    /// Delivers all queued messages of both sides.
    pub(super) fn deliver(&mut self) {
        loop {
            let (from_client, from_server) =
                (self.client.poll_transmit(), self.server.poll_transmit());
            if from_client.is_none() && from_server.is_none() {
                return;
            }
            from_client
                .into_iter()
                .for_each(|message| self.server.handle_message(self.now, message));
            from_server
                .into_iter()
                .for_each(|message| self.client.handle_message(self.now, message));
        }
    }

    pub(super) fn advance(&mut self, by: Duration) {
        self.now += by;
        self.client.handle_timeout(self.now);
        self.server.handle_timeout(self.now);
    }

    /// Returns the request that just arrived at the server.
    pub(super) fn serve_one(&mut self) -> InFlightId {
        match self.server.poll_event() {
            Some(MuxEvent::Request { id, .. }) => id,
            other => panic!("expected a request, saw {other:?}"),
        }
    }

    /// Makes and delivers a call. Returns the call and the request to answer.
    pub(super) fn call_and_serve(&mut self) -> (CallId, InFlightId) {
        let call = self.call("tools/call");
        self.deliver();
        (call, self.serve_one())
    }

    pub(super) fn deliver_to_client(&mut self, text: &str) {
        self.client.handle_message(self.now, message(text));
    }

    pub(super) fn deliver_to_server(&mut self, text: &str) {
        self.server.handle_message(self.now, message(text));
    }

    pub(super) fn assert_empty(&self) {
        assert_eq!(
            (self.client.sizes(), self.server.sizes()),
            (TableSizes::default(), TableSizes::default())
        );
    }
}

pub(super) fn message(text: &str) -> Message {
    Message::decode(&bytes::Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

pub(super) fn text(message: Option<Message>) -> String {
    let frame = message.expect("a message is queued").to_frame();
    String::from_utf8(frame.to_vec()).unwrap()
}

pub(super) fn ok() -> Outcome {
    Ok(Json::empty_object())
}

pub(super) fn settled(event: Option<MuxEvent>) -> (CallId, Result<Json, CallFailure>) {
    match event {
        Some(MuxEvent::Settled { call, outcome }) => (call, outcome),
        other => panic!("expected the end of a call, saw {other:?}"),
    }
}

pub(super) fn with_id(id: impl Into<RequestId>) -> CallOptions {
    CallOptions {
        id: Some(id.into()),
        ..CallOptions::default()
    }
}

pub(super) fn cancel_frame(id: &str, reason: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"{reason}"}}}}"#
    )
}

#[test]
fn a_call_settles_exactly_once_or_was_abandoned_never_both() {
    let mut pair = MuxPair::new();
    let (answered, id) = pair.call_and_serve();
    pair.server.respond(&id, ok());
    pair.deliver();
    pair.deliver_to_client(r#"{"jsonrpc":"2.0","id":1,"result":{"second":true}}"#);
    pair.client.abandon(answered, &AbandonReason::Dropped);
    pair.client.handle_end(WireEnd::Closed);

    assert_eq!(
        settled(pair.client.poll_event()),
        (answered, ok().map_err(CallFailure::Peer))
    );
    assert_eq!(
        pair.client.poll_event(),
        Some(MuxEvent::Warning(ProtocolWarning::UnexpectedResponse(
            1.into()
        )))
    );
    assert_eq!(pair.client.poll_event(), None);
    assert_eq!(pair.client.poll_transmit(), None);
}

#[test]
fn abandoning_an_unsent_call_removes_it_and_sends_nothing() {
    let mut pair = MuxPair::new();
    let call = pair.call("tools/call");

    pair.client.abandon(call, &AbandonReason::Dropped);

    assert_eq!(pair.client.poll_transmit(), None);
    assert_eq!(pair.client.poll_event(), None);
    pair.assert_empty();
}

#[test]
fn abandoning_a_sent_call_sends_one_cancel() {
    let mut pair = MuxPair::new();
    let call = pair.call("tools/call");
    let _request = pair.client.poll_transmit();

    pair.client.abandon(call, &AbandonReason::Dropped);
    pair.client.abandon(call, &AbandonReason::Dropped);

    assert_eq!(
        text(pair.client.poll_transmit()),
        cancel_frame("1", "caller cancelled")
    );
    assert_eq!(pair.client.poll_transmit(), None);
    pair.assert_empty();
}

#[test]
fn abandoning_a_call_that_may_not_be_cancelled_sends_nothing() {
    let opted_out = CallOptions {
        cancel_on_abandon: false,
        ..CallOptions::default()
    };
    let calls = [
        ("initialize", CallOptions::default()),
        ("server/discover", CallOptions::default()),
        ("tools/call", opted_out),
    ];
    for (method, options) in calls {
        let mut pair = MuxPair::new();
        let call = pair.call_with(method, options);
        let _request = pair.client.poll_transmit();

        pair.client.abandon(call, &AbandonReason::Dropped);

        assert_eq!(pair.client.poll_transmit(), None, "{method}");
        pair.assert_empty();
    }
}

#[test]
fn an_answer_that_crosses_the_cancel_on_the_wire_is_ignored() {
    let mut pair = MuxPair::new();
    let (call, id) = pair.call_and_serve();
    pair.server.respond(&id, ok());

    pair.client.abandon(call, &AbandonReason::Dropped);
    pair.deliver();

    assert!(matches!(
        pair.client.poll_event(),
        Some(MuxEvent::Warning(_))
    ));
    assert_eq!(pair.client.poll_event(), None);
    assert_eq!(pair.server.poll_event(), None);
    pair.assert_empty();
}

#[test]
fn a_request_the_peer_cancelled_is_never_answered() {
    let mut pair = MuxPair::new();
    let (call, id) = pair.call_and_serve();
    pair.client
        .abandon(call, &AbandonReason::Cancelled("no longer needed".into()));
    pair.deliver();
    let progress = Notification::new("notifications/progress", None);

    let reason = Some("no longer needed".into());
    assert_eq!(
        pair.server.poll_event(),
        Some(MuxEvent::Cancelled {
            id: id.clone(),
            reason
        })
    );
    assert_eq!(
        pair.server.notify_within(&id, progress),
        Err(NotifyError::RequestOver)
    );
    pair.server.respond(&id, ok());
    assert_eq!(pair.server.poll_transmit(), None);
    pair.assert_empty();
}

#[test]
fn a_late_answer_does_not_reach_a_successor_with_the_same_id() {
    let mut pair = MuxPair::new();
    pair.deliver_to_server(r#"{"jsonrpc":"2.0","id":7,"method":"first"}"#);
    let first = pair.serve_one();
    pair.deliver_to_server(&cancel_frame("7", "x"));
    pair.deliver_to_server(r#"{"jsonrpc":"2.0","id":7,"method":"second"}"#);

    pair.server.respond(&first, ok());

    assert_eq!(pair.server.poll_transmit(), None);
    assert_eq!(pair.server.sizes().in_flight, 1);
}

#[test]
fn messages_are_sent_in_the_order_they_were_queued() {
    let mut pair = MuxPair::new();
    let first = pair.call("a");
    let _sent = pair.client.poll_transmit();
    pair.client.notify(Notification::new("b", None)).unwrap();
    let withdrawn = pair.call("c");
    pair.client.abandon(first, &AbandonReason::Dropped);
    pair.client.abandon(withdrawn, &AbandonReason::Dropped);
    pair.call("d");

    let sent: Vec<_> = std::iter::from_fn(|| pair.client.poll_transmit())
        .map(|message| match message {
            Message::Request(request) => request.method,
            Message::Notification(notification) => notification.method,
            Message::Response(_) => panic!("there was no request to answer"),
        })
        .collect();

    assert_eq!(sent, ["b", "notifications/cancelled", "d"]);
}

#[test]
fn a_cancel_is_queued_even_if_the_queue_is_full() {
    let mut client = Mux::new(MuxLimits {
        queued: 2,
        ..MuxLimits::default()
    });
    let now = Instant::now();
    let sent = client
        .call(now, "slow", None, CallOptions::default())
        .unwrap();
    let _request = client.poll_transmit();
    client.notify(Notification::new("a", None)).unwrap();
    client.notify(Notification::new("b", None)).unwrap();

    assert_eq!(
        client.notify(Notification::new("c", None)),
        Err(NotifyError::Full)
    );
    assert_eq!(
        client.call(now, "d", None, CallOptions::default()),
        Err(CallRefused::Full)
    );
    client.abandon(sent, &AbandonReason::Dropped);

    let queued: Vec<_> = std::iter::from_fn(|| client.poll_transmit()).collect();
    assert_eq!(queued.len(), 3);
    assert_eq!(
        text(queued.last().cloned()),
        cancel_frame("1", "caller cancelled")
    );
}

#[test]
fn withdrawn_calls_do_not_count_toward_the_queue_limit() {
    let mut client = Mux::new(MuxLimits {
        queued: 4,
        ..MuxLimits::default()
    });
    let now = Instant::now();
    for _ in 0..3 {
        client.notify(Notification::new("stays", None)).unwrap();
    }

    for _ in 0..1000 {
        let call = client.call(now, "x", None, CallOptions::default()).unwrap();
        client.abandon(call, &AbandonReason::Dropped);
    }

    assert_eq!(client.sizes().queued, 3);
    assert_eq!(std::iter::from_fn(|| client.poll_transmit()).count(), 3);
    assert_eq!(client.sizes(), TableSizes::default());
}

#[test]
fn end_of_stream_fails_every_pending_call_in_call_order_and_leaves_nothing_in_any_table() {
    for end in [WireEnd::Closed, WireEnd::Broken] {
        let mut pair = MuxPair::new();
        let late = Duration::from_secs(1);
        let calls = [
            pair.call_with(
                "a",
                CallOptions {
                    idle_timeout: Some(late),
                    ..with_id("z")
                },
            ),
            pair.call("b"),
            pair.call_with("c", with_id(-5)),
        ];
        pair.server
            .call(pair.now, "back", None, CallOptions::default())
            .unwrap();
        pair.deliver();
        let Some(MuxEvent::Request { id, .. }) = pair.client.poll_event() else {
            panic!("a request")
        };
        let unsent = pair.call("d");
        pair.client.notify(Notification::new("n", None)).unwrap();

        pair.client.handle_end(end);

        for call in calls.into_iter().chain([unsent]) {
            assert_eq!(
                settled(pair.client.poll_event()),
                (call, Err(CallFailure::Ended(end)))
            );
        }
        assert_eq!(
            pair.client.poll_event(),
            Some(MuxEvent::Cancelled { id, reason: None })
        );
        assert_eq!(pair.client.sizes(), TableSizes::default());
        assert_eq!(pair.client.poll_timeout(), None);
        assert_eq!(pair.client.poll_transmit(), None);
        let after = pair
            .client
            .call(pair.now, "e", None, CallOptions::default());
        assert_eq!(after, Err(CallRefused::Ended(end)));
    }
}

#[test]
fn a_passed_deadline_fails_the_call_and_sends_a_cancel() {
    let mut pair = MuxPair::new();
    let limit = Duration::from_millis(200);
    let call = pair.call_with(
        "slow",
        CallOptions {
            idle_timeout: Some(limit),
            ..with_id("7")
        },
    );
    let _request = pair.client.poll_transmit();
    assert_eq!(pair.client.poll_timeout(), Some(pair.now + limit));

    pair.advance(limit - Duration::from_nanos(1));
    assert_eq!(pair.client.poll_event(), None);
    pair.advance(Duration::from_nanos(1));

    let timeout = Err(CallFailure::Timeout(CallTimeout::Idle(limit)));
    assert_eq!(settled(pair.client.poll_event()), (call, timeout));
    assert_eq!(
        text(pair.client.poll_transmit()),
        cancel_frame("\"7\"", "timed out after 200ms")
    );
    pair.assert_empty();
}

#[test]
fn a_deadline_of_an_unsent_call_sends_nothing() {
    let mut pair = MuxPair::new();
    let limit = Duration::from_millis(200);
    pair.call_with(
        "slow",
        CallOptions {
            timeout: Some(limit),
            ..CallOptions::default()
        },
    );

    pair.advance(limit);

    assert!(matches!(
        settled(pair.client.poll_event()).1,
        Err(CallFailure::Timeout(_))
    ));
    assert_eq!(pair.client.poll_transmit(), None);
    pair.assert_empty();
}

#[test]
fn progress_moves_the_idle_deadline_never_the_total_one() {
    let mut pair = MuxPair::new();
    let second = Duration::from_secs(1);
    let call = pair.call_with(
        "slow",
        CallOptions {
            progress_token: Some("7".into()),
            idle_timeout: Some(2 * second),
            timeout: Some(5 * second),
            ..CallOptions::default()
        },
    );
    pair.deliver();

    for _ in 0..4 {
        pair.advance(second);
        // The token comes back as a number: progress tokens are compared as `CorrelationKey`s, too.
        let token: ProgressToken = 7.into();
        pair.deliver_to_client(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
        ));
        assert!(
            matches!(pair.client.poll_event(), Some(MuxEvent::CallNotification { call: c, .. }) if c == call)
        );
    }
    pair.advance(second);

    let timeout = Err(CallFailure::Timeout(CallTimeout::Total(5 * second)));
    assert_eq!(settled(pair.client.poll_event()), (call, timeout));
}

#[test]
fn the_deadlines_of_all_calls_are_paused_together() {
    let mut pair = MuxPair::new();
    let second = Duration::from_secs(1);
    let idle = |seconds| CallOptions {
        idle_timeout: Some(seconds * second),
        ..CallOptions::default()
    };
    let limited = CallOptions {
        timeout: Some(4 * second),
        ..idle(9)
    };
    let before = pair.call_with("a", idle(2));
    let total = pair.call_with("c", limited);
    pair.advance(second);
    pair.client.pause_all_deadlines(pair.now);
    pair.call_with("b", idle(1));

    pair.advance(5 * second);

    assert_eq!(pair.client.all_paused_for(pair.now), 5 * second);
    assert_eq!(pair.client.poll_event(), None);
    pair.client.resume_all_deadlines(pair.now);
    pair.advance(second);
    assert!(matches!(
        settled(pair.client.poll_event()).1,
        Err(CallFailure::Timeout(CallTimeout::Idle(_)))
    ));
    assert_eq!(pair.client.poll_event(), None);
    pair.advance(second);
    let timeout = Err(CallFailure::Timeout(CallTimeout::Idle(2 * second)));
    assert_eq!(settled(pair.client.poll_event()), (before, timeout));
    assert_eq!(pair.client.poll_event(), None);
    pair.advance(second);
    let timeout = Err(CallFailure::Timeout(CallTimeout::Total(4 * second)));
    assert_eq!(settled(pair.client.poll_event()), (total, timeout));
    assert_eq!(pair.client.all_paused_for(pair.now), 5 * second);
}

#[test]
fn a_cancel_for_something_unknown_finished_or_malformed_is_ignored() {
    let mut pair = MuxPair::new();
    pair.deliver_to_server(r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#);
    let request = pair.serve_one();
    let params = [
        r#"{"requestId":2}"#,
        r#"{"requestId":"01"}"#,
        r#"{"requestId":true}"#,
        r#"{"requestId":1.0}"#,
        r#"{"requestId":null}"#,
        r#"{"requestId":[1]}"#,
        r#"{"reason":"which?"}"#,
        "{}",
    ];

    for params in params {
        pair.deliver_to_server(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#
        ));
    }
    pair.deliver_to_server(r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#);
    assert_eq!(pair.server.poll_event(), None);

    pair.server.respond(&request, ok());
    assert!(pair.server.poll_transmit().is_some());
    pair.deliver_to_server(&cancel_frame("1", "too late"));
    assert_eq!(pair.server.poll_event(), None);
}

#[test]
fn a_notification_that_names_a_subscription_goes_to_that_call() {
    let mut pair = MuxPair::new();
    let listen = pair.call_with("subscriptions/listen", with_id("L1"));
    let other = pair.call_with("tools/call", with_id("L2"));
    pair.deliver();
    let news = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
        )
    };

    pair.deliver_to_client(&news("\"L1\""));
    pair.deliver_to_client(&news("\"L2\""));
    pair.deliver_to_client(&news("\"L3\""));
    pair.deliver_to_client(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);

    assert!(
        matches!(pair.client.poll_event(), Some(MuxEvent::CallNotification { call, .. }) if call == listen)
    );
    assert!(matches!(
        pair.client.poll_event(),
        Some(MuxEvent::Notification(_))
    ));
    assert_eq!(pair.client.poll_event(), None);
    assert!(pair.client.request_id(other).is_some());
}

#[test]
fn a_peers_cancel_ends_its_own_request_or_our_subscription_of_that_id() {
    let mut pair = MuxPair::new();
    let listen = pair.call_with("subscriptions/listen", with_id(1));
    let plain = pair.call_with("tools/call", with_id(2));
    pair.deliver();
    pair.deliver_to_client(r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#);
    let Some(MuxEvent::Request { id, .. }) = pair.client.poll_event() else {
        panic!("a request")
    };

    pair.deliver_to_client(&cancel_frame("1", "mine first"));
    pair.deliver_to_client(&cancel_frame("2", "not a subscription"));
    pair.deliver_to_client(&cancel_frame("\"1\"", "now the subscription"));

    assert!(matches!(pair.client.poll_event(), Some(MuxEvent::Cancelled { id: c, .. }) if c == id));
    assert_eq!(
        settled(pair.client.poll_event()),
        (listen, Err(CallFailure::Unsubscribed))
    );
    assert_eq!(pair.client.request_id(listen), None);
    assert_eq!(pair.client.poll_event(), None);
    assert!(pair.client.request_id(plain).is_some());
}

#[test]
fn a_duplicate_inbound_id_is_refused_without_settling_the_first_which_still_gets_its_answer() {
    let mut pair = MuxPair::new();
    pair.deliver_to_server(r#"{"jsonrpc":"2.0","id":7,"method":"first"}"#);
    let first = pair.serve_one();

    pair.deliver_to_server(r#"{"jsonrpc":"2.0","id":7,"method":"second"}"#);
    pair.server.respond(&first, ok());

    let Some(Message::Response(Response {
        id: None,
        outcome: Err(refusal),
    })) = pair.server.poll_transmit()
    else {
        panic!("a refusal without an id")
    };
    assert_eq!(refusal.code, ErrorCode::INVALID_REQUEST);
    assert_eq!(
        text(pair.server.poll_transmit()),
        r#"{"jsonrpc":"2.0","id":7,"result":{}}"#
    );
    assert_eq!(
        pair.server.poll_event(),
        Some(MuxEvent::Warning(ProtocolWarning::DuplicateRequest(
            7.into()
        )))
    );
    assert_eq!(pair.server.poll_event(), None);
}

#[test]
fn requests_beyond_the_limit_are_rejected_and_responses_are_not() {
    let mut server = Mux::new(MuxLimits {
        in_flight: 1,
        ..MuxLimits::default()
    });
    let now = Instant::now();
    let call = server
        .call(now, "ours", None, CallOptions::default())
        .unwrap();
    let _request = server.poll_transmit();
    server.handle_message(now, message(r#"{"jsonrpc":"2.0","id":1,"method":"taken"}"#));

    server.handle_message(now, message(r#"{"jsonrpc":"2.0","id":2,"method":"shed"}"#));
    server.handle_message(now, message(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#));

    assert!(text(server.poll_transmit()).contains("overloaded"));
    assert!(matches!(
        server.poll_event(),
        Some(MuxEvent::Request { .. })
    ));
    assert!(matches!(
        server.poll_event(),
        Some(MuxEvent::Warning(ProtocolWarning::Overload(
            _,
            ExceededLimit::InFlight
        )))
    ));
    assert_eq!(settled(server.poll_event()).0, call);
}

#[test]
fn a_malformed_frame_affects_no_other_exchange() {
    let mut pair = MuxPair::new();
    let (broken, _) = pair.call_and_serve();
    let (sound, _) = pair.call_and_serve();
    let malformed = |text: &'static str| {
        Message::decode(&bytes::Bytes::from_static(text.as_bytes())).unwrap_err()
    };

    pair.client
        .handle_malformed(malformed(r#"{"jsonrpc":"2.0","id":"1","error":7}"#));
    pair.server
        .handle_malformed(malformed(r#"{"jsonrpc":"2.0","id":2,"method":7}"#));
    pair.server.handle_malformed(malformed("nonsense"));

    assert!(
        matches!(settled(pair.client.poll_event()), (call, Err(CallFailure::Malformed(_))) if call == broken)
    );
    for _ in 0..2 {
        // Request 2 is in flight: an error with its id would settle it.
        assert!(matches!(
            pair.server.poll_transmit(),
            Some(Message::Response(Response { id: None, .. }))
        ));
    }
    assert!(pair.client.request_id(sound).is_some());
    assert_eq!(pair.server.sizes().in_flight, 2);
}

#[test]
fn a_progress_token_in_use_is_refused() {
    let mut pair = MuxPair::new();
    let token = |token: &str| CallOptions {
        progress_token: Some(token.into()),
        ..CallOptions::default()
    };
    let first = pair.call_with("a", token("t"));

    let second = pair.client.call(pair.now, "b", None, token("t"));

    assert_eq!(second, Err(CallRefused::ProgressTokenInUse));
    pair.client.abandon(first, &AbandonReason::Dropped);
    assert!(pair.client.call(pair.now, "c", None, token("t")).is_ok());
}
