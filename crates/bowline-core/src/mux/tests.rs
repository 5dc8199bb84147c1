//! The laws of the engine, one test each, with two engines back to back.

mod held;

mod leaks;

mod output;

mod within;

use super::*;
use bowline_types::ProgressToken;

/// Two ends and an imaginary wire. Time moves only when a test says so.
pub(super) struct Pair {
    pub(super) client: Mux,
    pub(super) server: Mux,
    pub(super) now: Instant,
}

impl Pair {
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

    /// Moves everything that is queued on either side to the other.
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

    /// The request that just arrived at the server.
    pub(super) fn serve_one(&mut self) -> InFlightId {
        match self.server.poll_event() {
            Some(Event::Request { id, .. }) => id,
            other => panic!("expected a request, saw {other:?}"),
        }
    }

    /// Calls and delivers: what the server must answer, and the call.
    pub(super) fn call_and_serve(&mut self) -> (CallId, InFlightId) {
        let call = self.call("tools/call");
        self.deliver();
        (call, self.serve_one())
    }

    pub(super) fn server_says(&mut self, text: &str) {
        self.client.handle_message(self.now, message(text));
    }

    pub(super) fn client_says(&mut self, text: &str) {
        self.server.handle_message(self.now, message(text));
    }

    pub(super) fn assert_empty(&self) {
        assert_eq!(
            (self.client.sizes(), self.server.sizes()),
            (Sizes::default(), Sizes::default())
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

pub(super) fn settled(event: Option<Event>) -> (CallId, Result<Json, Failure>) {
    match event {
        Some(Event::Settled { call, outcome }) => (call, outcome),
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
    let mut pair = Pair::new();
    let (answered, id) = pair.call_and_serve();
    pair.server.respond(&id, ok());
    pair.deliver();
    pair.server_says(r#"{"jsonrpc":"2.0","id":1,"result":{"second":true}}"#);
    pair.client.abandon(answered, &Reason::Dropped);
    pair.client.handle_end(End::Closed);

    assert_eq!(
        settled(pair.client.poll_event()),
        (answered, ok().map_err(Failure::Peer))
    );
    assert_eq!(
        pair.client.poll_event(),
        Some(Event::Oddity(Oddity::UnexpectedResponse(1.into())))
    );
    assert_eq!(pair.client.poll_event(), None);
    assert_eq!(pair.client.poll_transmit(), None);
}

#[test]
fn abandoning_an_unsent_call_removes_it_and_sends_nothing() {
    let mut pair = Pair::new();
    let call = pair.call("tools/call");

    pair.client.abandon(call, &Reason::Dropped);

    assert_eq!(pair.client.poll_transmit(), None);
    assert_eq!(pair.client.poll_event(), None);
    pair.assert_empty();
}

#[test]
fn abandoning_a_sent_call_sends_one_cancel() {
    let mut pair = Pair::new();
    let call = pair.call("tools/call");
    let _request = pair.client.poll_transmit();

    pair.client.abandon(call, &Reason::Dropped);
    pair.client.abandon(call, &Reason::Dropped);

    assert_eq!(
        text(pair.client.poll_transmit()),
        cancel_frame("1", "caller cancelled")
    );
    assert_eq!(pair.client.poll_transmit(), None);
    pair.assert_empty();
}

#[test]
fn abandoning_a_call_that_may_not_be_cancelled_is_purely_local() {
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
        let mut pair = Pair::new();
        let call = pair.call_with(method, options);
        let _request = pair.client.poll_transmit();

        pair.client.abandon(call, &Reason::Dropped);

        assert_eq!(pair.client.poll_transmit(), None, "{method}");
        pair.assert_empty();
    }
}

#[test]
fn an_answer_that_crosses_the_cancel_on_the_wire_is_ignored() {
    let mut pair = Pair::new();
    let (call, id) = pair.call_and_serve();
    pair.server.respond(&id, ok());

    pair.client.abandon(call, &Reason::Dropped);
    pair.deliver();

    assert!(matches!(pair.client.poll_event(), Some(Event::Oddity(_))));
    assert_eq!(pair.client.poll_event(), None);
    assert_eq!(pair.server.poll_event(), None);
    pair.assert_empty();
}

#[test]
fn a_request_the_peer_cancelled_is_never_answered() {
    let mut pair = Pair::new();
    let (call, id) = pair.call_and_serve();
    pair.client
        .abandon(call, &Reason::Given("no longer needed".into()));
    pair.deliver();
    let progress = Notification::new("notifications/progress", None);

    let reason = Some("no longer needed".into());
    assert_eq!(
        pair.server.poll_event(),
        Some(Event::Cancelled {
            id: id.clone(),
            reason
        })
    );
    assert_eq!(
        pair.server.notify_within(&id, progress),
        Err(NotSent::RequestOver)
    );
    pair.server.respond(&id, ok());
    assert_eq!(pair.server.poll_transmit(), None);
    pair.assert_empty();
}

#[test]
fn a_late_answer_does_not_reach_a_successor_with_the_same_id() {
    let mut pair = Pair::new();
    pair.client_says(r#"{"jsonrpc":"2.0","id":7,"method":"first"}"#);
    let first = pair.serve_one();
    pair.client_says(&cancel_frame("7", "x"));
    pair.client_says(r#"{"jsonrpc":"2.0","id":7,"method":"second"}"#);

    pair.server.respond(&first, ok());

    assert_eq!(pair.server.poll_transmit(), None);
    assert_eq!(pair.server.sizes().in_flight, 1);
}

#[test]
fn messages_leave_in_the_order_they_were_queued() {
    let mut pair = Pair::new();
    let first = pair.call("a");
    let _sent = pair.client.poll_transmit();
    pair.client.notify(Notification::new("b", None)).unwrap();
    let withdrawn = pair.call("c");
    pair.client.abandon(first, &Reason::Dropped);
    pair.client.abandon(withdrawn, &Reason::Dropped);
    pair.call("d");

    let sent: Vec<_> = std::iter::from_fn(|| pair.client.poll_transmit())
        .map(|message| match message {
            Message::Request(request) => request.method,
            Message::Notification(notification) => notification.method,
            Message::Response(_) => panic!("nobody asked"),
        })
        .collect();

    assert_eq!(sent, ["b", "notifications/cancelled", "d"]);
}

#[test]
fn a_cancel_is_never_dropped_for_want_of_room() {
    let mut client = Mux::new(Limits {
        queued: 2,
        ..Limits::default()
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
        Err(NotSent::Full)
    );
    assert_eq!(
        client.call(now, "d", None, CallOptions::default()),
        Err(Refused::Full)
    );
    client.abandon(sent, &Reason::Dropped);

    let queued: Vec<_> = std::iter::from_fn(|| client.poll_transmit()).collect();
    assert_eq!(queued.len(), 3);
    assert_eq!(
        text(queued.last().cloned()),
        cancel_frame("1", "caller cancelled")
    );
}

#[test]
fn calls_that_were_withdrawn_leave_their_room_to_others() {
    let mut client = Mux::new(Limits {
        queued: 4,
        ..Limits::default()
    });
    let now = Instant::now();
    for _ in 0..3 {
        client.notify(Notification::new("stays", None)).unwrap();
    }

    for _ in 0..1000 {
        let call = client.call(now, "x", None, CallOptions::default()).unwrap();
        client.abandon(call, &Reason::Dropped);
    }

    assert_eq!(client.sizes().queued, 3);
    assert_eq!(std::iter::from_fn(|| client.poll_transmit()).count(), 3);
    assert_eq!(client.sizes(), Sizes::default());
}

#[test]
fn end_of_stream_fails_every_pending_call_in_call_order_and_leaves_nothing_in_any_table() {
    for end in [End::Closed, End::Broken] {
        let mut pair = Pair::new();
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
        let Some(Event::Request { id, .. }) = pair.client.poll_event() else {
            panic!("a request")
        };
        let unsent = pair.call("d");
        pair.client.notify(Notification::new("n", None)).unwrap();

        pair.client.handle_end(end);

        for call in calls.into_iter().chain([unsent]) {
            assert_eq!(
                settled(pair.client.poll_event()),
                (call, Err(Failure::Ended(end)))
            );
        }
        assert_eq!(
            pair.client.poll_event(),
            Some(Event::Cancelled { id, reason: None })
        );
        assert_eq!(pair.client.sizes(), Sizes::default());
        assert_eq!(pair.client.poll_timeout(), None);
        assert_eq!(pair.client.poll_transmit(), None);
        let after = pair
            .client
            .call(pair.now, "e", None, CallOptions::default());
        assert_eq!(after, Err(Refused::Ended(end)));
    }
}

#[test]
fn a_deadline_fails_the_call_and_tells_the_peer() {
    let mut pair = Pair::new();
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

    let timeout = Err(Failure::Timeout(Overdue::Idle(limit)));
    assert_eq!(settled(pair.client.poll_event()), (call, timeout));
    assert_eq!(
        text(pair.client.poll_transmit()),
        cancel_frame("\"7\"", "timed out after 200ms")
    );
    pair.assert_empty();
}

#[test]
fn a_deadline_of_an_unsent_call_sends_nothing() {
    let mut pair = Pair::new();
    let limit = Duration::from_millis(200);
    pair.call_with(
        "slow",
        CallOptions {
            total_timeout: Some(limit),
            ..CallOptions::default()
        },
    );

    pair.advance(limit);

    assert!(matches!(
        settled(pair.client.poll_event()).1,
        Err(Failure::Timeout(_))
    ));
    assert_eq!(pair.client.poll_transmit(), None);
    pair.assert_empty();
}

#[test]
fn progress_moves_the_idle_deadline_never_the_total_one() {
    let mut pair = Pair::new();
    let second = Duration::from_secs(1);
    let call = pair.call_with(
        "slow",
        CallOptions {
            progress_token: Some("7".into()),
            idle_timeout: Some(2 * second),
            total_timeout: Some(5 * second),
            ..CallOptions::default()
        },
    );
    pair.deliver();

    for _ in 0..4 {
        pair.advance(second);
        // The token comes back as a number: progress correlates in the coerced domain too.
        let token: ProgressToken = 7.into();
        pair.server_says(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
        ));
        assert!(
            matches!(pair.client.poll_event(), Some(Event::Notified { call: c, .. }) if c == call)
        );
    }
    pair.advance(second);

    let timeout = Err(Failure::Timeout(Overdue::Total(5 * second)));
    assert_eq!(settled(pair.client.poll_event()), (call, timeout));
}

#[test]
fn idle_deadlines_stand_still_while_paused_and_total_ones_do_not() {
    let mut pair = Pair::new();
    let second = Duration::from_secs(1);
    let idle = |seconds| CallOptions {
        idle_timeout: Some(seconds * second),
        ..CallOptions::default()
    };
    let before = pair.call_with("a", idle(2));
    pair.client.pause_idle();
    pair.call_with("b", idle(1));
    let limited = CallOptions {
        total_timeout: Some(5 * second),
        ..idle(2)
    };
    let total = pair.call_with("c", limited);

    pair.advance(5 * second);

    let timeout = Err(Failure::Timeout(Overdue::Total(5 * second)));
    assert_eq!(settled(pair.client.poll_event()), (total, timeout));
    assert_eq!(pair.client.poll_event(), None);
    pair.client.resume_idle(pair.now);
    pair.advance(second);
    assert!(matches!(
        settled(pair.client.poll_event()).1,
        Err(Failure::Timeout(Overdue::Idle(_)))
    ));
    assert_eq!(pair.client.poll_event(), None);
    pair.advance(second);
    let timeout = Err(Failure::Timeout(Overdue::Idle(2 * second)));
    assert_eq!(settled(pair.client.poll_event()), (before, timeout));
}

#[test]
fn our_calls_correlate_in_one_coerced_domain_and_ids_travel_verbatim() {
    let cases = [
        (RequestId::from(7), "7", r#""7""#),
        (RequestId::from("7"), r#""7""#, "7"),
        (RequestId::from("a b"), r#""a b""#, r#""a b""#),
    ];
    for (id, sent, echoed) in cases {
        let mut pair = Pair::new();
        let call = pair.call_with("m", with_id(id));

        let frame = text(pair.client.poll_transmit());
        pair.server_says(&format!(
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
fn text_that_is_no_canonical_decimal_is_not_the_number_it_resembles() {
    for echoed in ["007", "+7", " 7", "7.0"] {
        let mut pair = Pair::new();
        pair.call_with("m", with_id(7));
        let _request = pair.client.poll_transmit();

        pair.server_says(&format!(
            r#"{{"jsonrpc":"2.0","id":"{echoed}","result":{{}}}}"#
        ));

        assert!(
            matches!(pair.client.poll_event(), Some(Event::Oddity(_))),
            "{echoed}"
        );
    }
}

#[test]
fn inbound_requests_are_keyed_verbatim() {
    let mut pair = Pair::new();
    pair.client_says(r#"{"jsonrpc":"2.0","id":7,"method":"number"}"#);
    pair.client_says(r#"{"jsonrpc":"2.0","id":"7","method":"text"}"#);
    let (number, text_id) = (pair.serve_one(), pair.serve_one());

    pair.client_says(&cancel_frame("\"7\"", "x"));
    pair.server.respond(&number, ok());
    pair.server.respond(&text_id, ok());

    assert!(matches!(pair.server.poll_event(), Some(Event::Cancelled { id, .. }) if id == text_id));
    assert_eq!(
        text(pair.server.poll_transmit()),
        r#"{"jsonrpc":"2.0","id":7,"result":{}}"#
    );
    assert_eq!(pair.server.poll_transmit(), None);
}

#[test]
fn an_inbound_cancel_matches_by_coercion_if_exactly_one_request_fits() {
    for (id, named) in [("7", "\"7\""), ("\"7\"", "7")] {
        let mut pair = Pair::new();
        pair.client_says(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#));
        let request = pair.serve_one();

        pair.client_says(&cancel_frame(named, "x"));

        assert!(
            matches!(pair.server.poll_event(), Some(Event::Cancelled { id, .. }) if id == request)
        );
    }
}

#[test]
fn a_cancel_for_something_unknown_finished_or_malformed_is_ignored() {
    let mut pair = Pair::new();
    pair.client_says(r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#);
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
        pair.client_says(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#
        ));
    }
    pair.client_says(r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#);
    assert_eq!(pair.server.poll_event(), None);

    pair.server.respond(&request, ok());
    assert!(pair.server.poll_transmit().is_some());
    pair.client_says(&cancel_frame("1", "too late"));
    assert_eq!(pair.server.poll_event(), None);
}

#[test]
fn a_notification_that_names_a_subscription_goes_to_that_call() {
    let mut pair = Pair::new();
    let subscription = CallOptions {
        is_subscription: true,
        ..with_id("L1")
    };
    let listen = pair.call_with("subscriptions/listen", subscription);
    let other = pair.call_with("tools/call", with_id("L2"));
    pair.deliver();
    let news = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
        )
    };

    pair.server_says(&news("\"L1\""));
    pair.server_says(&news("\"L2\""));
    pair.server_says(&news("\"L3\""));
    pair.server_says(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);

    assert!(
        matches!(pair.client.poll_event(), Some(Event::Notified { call, .. }) if call == listen)
    );
    assert!(matches!(
        pair.client.poll_event(),
        Some(Event::Notification(_))
    ));
    assert_eq!(pair.client.poll_event(), None);
    assert!(pair.client.request_id(other).is_some());
}

#[test]
fn a_peers_cancel_ends_its_own_request_or_our_subscription_of_that_id() {
    let mut pair = Pair::new();
    let subscription = CallOptions {
        is_subscription: true,
        ..with_id(1)
    };
    let listen = pair.call_with("subscriptions/listen", subscription);
    let plain = pair.call_with("tools/call", with_id(2));
    pair.deliver();
    pair.server_says(r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#);
    let Some(Event::Request { id, .. }) = pair.client.poll_event() else {
        panic!("a request")
    };

    pair.server_says(&cancel_frame("1", "mine first"));
    pair.server_says(&cancel_frame("2", "not a subscription"));
    pair.server_says(&cancel_frame("\"1\"", "now the subscription"));

    assert!(matches!(pair.client.poll_event(), Some(Event::Cancelled { id: c, .. }) if c == id));
    assert_eq!(
        settled(pair.client.poll_event()),
        (listen, Err(Failure::Unsubscribed))
    );
    assert_eq!(pair.client.request_id(listen), None);
    assert_eq!(pair.client.poll_event(), None);
    assert!(pair.client.request_id(plain).is_some());
}

#[test]
fn a_caller_supplied_id_that_is_in_flight_is_refused() {
    let mut pair = Pair::new();
    let first = pair.call_with("a", with_id(7));

    let second = pair.client.call(pair.now, "b", None, with_id("7"));
    assert_eq!(second, Err(Refused::IdInUse("7".into())));

    assert!(text(pair.client.poll_transmit()).contains(r#""method":"a""#));
    assert_eq!(pair.client.poll_transmit(), None);
    pair.client.abandon(first, &Reason::Dropped);
    assert!(pair.client.call(pair.now, "c", None, with_id("7")).is_ok());
}

#[test]
fn a_minted_id_never_collides_with_a_supplied_one() {
    let mut pair = Pair::new();
    pair.call_with("x", with_id("3"));

    let minted = [(); 3].map(|()| {
        let call = pair.call("y");
        pair.client.request_id(call).cloned().unwrap()
    });

    assert_eq!(minted, [1, 2, 4].map(RequestId::from));
}

#[test]
fn a_duplicate_inbound_id_is_refused_without_settling_the_first_which_still_gets_its_answer() {
    let mut pair = Pair::new();
    pair.client_says(r#"{"jsonrpc":"2.0","id":7,"method":"first"}"#);
    let first = pair.serve_one();

    pair.client_says(r#"{"jsonrpc":"2.0","id":7,"method":"second"}"#);
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
        Some(Event::Oddity(Oddity::DuplicateRequest(7.into())))
    );
    assert_eq!(pair.server.poll_event(), None);
}

#[test]
fn requests_beyond_the_limit_are_shed_and_responses_never() {
    let mut server = Mux::new(Limits {
        in_flight: 1,
        ..Limits::default()
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
    assert!(matches!(server.poll_event(), Some(Event::Request { .. })));
    assert!(matches!(
        server.poll_event(),
        Some(Event::Oddity(Oddity::Overload(_, Overload::InFlight)))
    ));
    assert_eq!(settled(server.poll_event()).0, call);
}

#[test]
fn a_malformed_frame_costs_only_itself() {
    let mut pair = Pair::new();
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
        matches!(settled(pair.client.poll_event()), (call, Err(Failure::Malformed(_))) if call == broken)
    );
    for _ in 0..2 {
        // Request 2 is in flight: an error that names it would settle it.
        assert!(matches!(
            pair.server.poll_transmit(),
            Some(Message::Response(Response { id: None, .. }))
        ));
    }
    assert!(pair.client.request_id(sound).is_some());
    assert_eq!(pair.server.sizes().in_flight, 2);
}

#[test]
fn while_draining_new_requests_are_refused_and_old_ones_still_answered() {
    let mut pair = Pair::new();
    let (_, id) = pair.call_and_serve();

    pair.server.drain();
    pair.client_says(r#"{"jsonrpc":"2.0","id":99,"method":"new"}"#);
    pair.server.respond(&id, ok());

    assert!(text(pair.server.poll_transmit()).contains("shutting down"));
    assert_eq!(
        text(pair.server.poll_transmit()),
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#
    );
}

#[test]
fn a_progress_token_in_use_is_refused() {
    let mut pair = Pair::new();
    let token = |token: &str| CallOptions {
        progress_token: Some(token.into()),
        ..CallOptions::default()
    };
    let first = pair.call_with("a", token("t"));

    let second = pair.client.call(pair.now, "b", None, token("t"));

    assert_eq!(second, Err(Refused::ProgressTokenInUse));
    pair.client.abandon(first, &Reason::Dropped);
    assert!(pair.client.call(pair.now, "c", None, token("t")).is_ok());
}
