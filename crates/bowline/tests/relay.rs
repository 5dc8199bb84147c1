//! Tests of `Relay`: the upstream is a scripted server at the end of a wire, the front a context whose notifications
//! are recorded.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed expectation must fail the test"
)]

use std::sync::{Arc, Mutex};

use bowline::client::Connection;
use bowline::exchange::{
    Answer, CallOptions, Caller, Channel, ConnectionState, Dialect, Notification, NotificationSink,
    Relay, Request,
};
use bowline::testing::{ScriptedPeer, matrix, scripted_peer};
use bowline::types::{LoggingLevel, RequestId};
use bowline::{Client, Context, Error, ErrorCode, Json, RpcError, Server, Tool};
use serde_json::{Value, json};

/// Records the notifications of a context.
#[derive(Default)]
struct Recorded(Mutex<Vec<(String, Value)>>);

impl NotificationSink for Recorded {
    fn notify(&self, notification: Notification) {
        let params = notification.params.map(|params| params.decode().unwrap());
        let recorded = (notification.method.into_owned(), params.unwrap_or_default());
        self.0.lock().unwrap().push(recorded);
    }

    fn back_channel(&self) -> Option<Arc<dyn Channel>> {
        None
    }

    fn connection_state(&self) -> Option<&ConnectionState> {
        None
    }
}

/// A scripted server, and the client of its wire.
struct Upstream {
    client: Client,
    server: ScriptedPeer,
    dialect: &'static Dialect,
}

impl Upstream {
    async fn modern() -> Self {
        let (wire, server) = scripted_peer();
        let dialect = Dialect::LATEST;
        let connect = Client::from_wire(wire).protocol_version(dialect.version);
        let client = connect.await.unwrap();
        Self {
            client,
            server,
            dialect,
        }
    }

    async fn legacy() -> Self {
        let (wire, mut server) = scripted_peer();
        let dialect = Dialect::LATEST_LEGACY;
        let connect = Client::from_wire(wire).protocol_version(dialect.version);
        let capabilities = json!({"tools": {"listChanged": true}, "logging": {}});
        let handshake = server.accept_handshake(dialect.version, capabilities);
        let (client, ()) = tokio::join!(connect.into_future(), handshake);
        let client = client.unwrap();
        Self {
            client,
            server,
            dialect,
        }
    }

    fn open(&self, request: &Request) -> Relay {
        let channel = self.client.peer().expect("the upstream has a wire");
        let mut request = request.clone();
        request.caller = Arc::new(Caller::new(self.dialect));
        Relay::open(channel, request, CallOptions::default())
    }
}

/// A request of a client, and what that client receives.
struct Front {
    request: Request,
    cx: Context,
    recorded: Arc<Recorded>,
}

impl Front {
    fn new(id: impl Into<RequestId>, method: &'static str, params: Value) -> Self {
        Self::of(Caller::new(Dialect::LATEST), id, method, params)
    }

    fn of(caller: Caller, id: impl Into<RequestId>, method: &'static str, params: Value) -> Self {
        let token = serde_json::from_value(params["_meta"]["progressToken"].clone());
        let mut request = Request::new(method, Json::from(params), Arc::new(caller));
        request.progress_token = token.ok();
        let recorded = Arc::new(Recorded::default());
        let cx = Context::new(id.into(), &request, recorded.clone());
        Self {
            request,
            cx,
            recorded,
        }
    }

    fn with_token(id: i64, token: &Value) -> Self {
        Self::new(
            id,
            "tools/call",
            json!({"name": "x", "_meta": {"progressToken": token}}),
        )
    }

    fn received(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut *self.recorded.0.lock().unwrap())
    }
}

const PROGRESS: &str = "notifications/progress";
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
const MESSAGE: &str = "notifications/message";
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

#[tokio::test]
async fn two_fronts_with_the_same_progress_token_each_get_their_own_progress() {
    let mut upstream = Upstream::modern().await;
    let fronts = [1, 2].map(|id| Front::with_token(id, &json!(7)));
    let mut relays = fronts.each_ref().map(|front| upstream.open(&front.request));

    let mut tokens = Vec::new();
    for n in 0..2 {
        let request = upstream.server.expect("tools/call").await;
        let token = request.params()["_meta"]["progressToken"].clone();
        tokens.push(token.clone());
        let progress = json!({"progressToken": token, "progress": n, "com.example/x": [1.50]});
        request
            .notify(PROGRESS, progress)
            .answer(json!({"content": [], "n": n}));
    }
    for (n, (relay, front)) in relays.iter_mut().zip(&fronts).enumerate() {
        let answer = relay.answer(&front.cx).await.unwrap();

        assert_eq!(
            answer,
            Answer::Complete(json!({"content": [], "n": n}).into())
        );
        let progress = json!({"progressToken": 7, "progress": n, "com.example/x": [1.50]});
        assert_eq!(front.received(), [(PROGRESS.to_owned(), progress)]);
    }
    assert_ne!(tokens[0], tokens[1]);
    assert!(!tokens.contains(&json!(7)));
}

#[tokio::test]
async fn without_a_progress_token_none_is_sent_and_progress_is_dropped() {
    let mut upstream = Upstream::modern().await;
    let front = Front::new(
        1,
        "tools/call",
        json!({"name": "x", "_meta": {"com.example/a": 1}}),
    );
    let mut relay = upstream.open(&front.request);

    let request = upstream.server.expect("tools/call").await;
    let meta = request.params()["_meta"].clone();
    let progress = json!({"progressToken": 7, "progress": 1});
    request
        .notify(PROGRESS, progress)
        .answer(json!({"content": []}));
    relay.answer(&front.cx).await.unwrap();

    assert_eq!(
        (&meta["com.example/a"], meta.get("progressToken")),
        (&json!(1), None)
    );
    assert_eq!(front.received(), []);
}

#[tokio::test]
async fn a_handler_in_process_sees_the_token_of_the_relay() {
    let handler = async |request: Request, cx: Context| {
        let meta = request.params.member("_meta").unwrap().unwrap();
        cx.progress(1.0);
        Ok(json!({"token": meta.decode::<Value>().unwrap()["progressToken"]}).into())
    };
    let channel = bowline::exchange::InProcess::new(Arc::new(handler));
    let front = Front::with_token(1, &json!("front"));
    let mut relay = Relay::open(&channel, front.request.clone(), CallOptions::default());

    let Ok(Answer::Complete(result)) = relay.answer(&front.cx).await else {
        panic!("expected a complete result");
    };

    assert!(result.as_str().contains(r#""relay-"#), "{result}");
    let progress = json!({"progressToken": "front", "progress": 1});
    assert_eq!(front.received(), [(PROGRESS.to_owned(), progress)]);
}

#[tokio::test]
async fn notifications_of_a_subscription_carry_the_id_of_the_front() {
    let mut upstream = Upstream::modern().await;
    let listen = json!({"notifications": {"toolsListChanged": true}});
    let front = Front::new("front-1", "subscriptions/listen", listen.clone());
    let mut relay = upstream.open(&front.request);

    let id = upstream
        .server
        .expect("subscriptions/listen")
        .await
        .acknowledge();
    let meta = json!({SUBSCRIPTION_ID: id, "com.example/a": 1});
    upstream.server.notify(
        TOOLS_CHANGED,
        json!({"_meta": meta.clone(), "com.example/b": 2}),
    );
    upstream
        .server
        .answer(id.clone(), json!({"resultType": "complete", "_meta": meta}));
    let answer = relay.answer(&front.cx).await.unwrap();

    assert_ne!(id, RequestId::from("front-1"));
    let meta = json!({SUBSCRIPTION_ID: "front-1", "com.example/a": 1});
    let acknowledged = json!({
        "notifications": listen["notifications"],
        "_meta": {SUBSCRIPTION_ID: "front-1"},
    });
    let changed = json!({"_meta": meta.clone(), "com.example/b": 2});
    let expected = [(ACKNOWLEDGED, acknowledged), (TOOLS_CHANGED, changed)];
    let expected = expected.map(|(method, params)| (method.to_owned(), params));
    assert_eq!(front.received(), expected);
    let result = json!({"resultType": "complete", "_meta": meta});
    assert_eq!(answer, Answer::Complete(result.into()));
}

#[tokio::test]
async fn a_subscription_over_a_legacy_wire_carries_the_id_of_the_front() {
    let mut upstream = Upstream::legacy().await;
    let listen = json!({"notifications": {"toolsListChanged": true}});
    let front = Front::new(9, "subscriptions/listen", listen);
    let mut relay = upstream.open(&front.request);
    upstream
        .server
        .send_json(&json!({"jsonrpc": "2.0", "method": TOOLS_CHANGED}));
    drop(upstream.server);

    let ended = relay.answer(&front.cx).await;

    assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
    let received = front.received();
    let ids = received
        .iter()
        .map(|(method, params)| (&**method, &params["_meta"][SUBSCRIPTION_ID]));
    let nine = json!(9);
    assert_eq!(
        ids.collect::<Vec<_>>(),
        [(ACKNOWLEDGED, &nine), (TOOLS_CHANGED, &nine)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_relay_can_change_its_front() {
    let mut upstream = Upstream::modern().await;
    let [first, second] = [json!("a"), json!("b")].map(|token| Front::with_token(1, &token));
    let mut relay = upstream.open(&first.request);
    let request = upstream.server.expect("tools/call").await;
    let token = request.params()["_meta"]["progressToken"].clone();
    let progress = |n: i32| json!({"progressToken": token, "progress": n});
    let id = request.notify(PROGRESS, progress(1)).hold();

    let waiting = std::time::Duration::from_secs(1);
    let unanswered = tokio::time::timeout(waiting, relay.answer(&first.cx)).await;
    upstream.server.notify(PROGRESS, progress(2));
    upstream.server.answer(id, json!({"content": []}));
    let answer = relay.answer(&second.cx).await;
    let again = relay.answer(&second.cx).await;

    assert!(unanswered.is_err());
    assert!(matches!(answer, Ok(Answer::Complete(_))));
    assert!(matches!(again, Err(Error::Misuse { .. })));
    let received = [first, second].map(|front| front.received());
    let expected = [("a", 1), ("b", 2)].map(|(token, n)| {
        let progress = json!({"progressToken": token, "progress": n});
        vec![(PROGRESS.to_owned(), progress)]
    });
    assert_eq!(received, expected);
}

#[tokio::test]
async fn a_relay_that_is_dropped_or_cancelled_cancels_at_the_upstream() {
    let mut upstream = Upstream::modern().await;
    let front = Front::new(1, "tools/call", json!({"name": "x"}));
    let [dropped, cancelled] = [(); 2].map(|()| upstream.open(&front.request));
    let mut ids = Vec::new();
    for relay in [&dropped, &cancelled] {
        let id = upstream.server.expect("tools/call").await.hold();
        assert_eq!(relay.request_id(), Some(&id));
        ids.push(id);
    }

    drop(dropped);
    cancelled.cancel("enough");

    assert_eq!(
        upstream.server.expect_cancel(&ids[0]).await,
        "caller cancelled"
    );
    assert_eq!(upstream.server.expect_cancel(&ids[1]).await, "enough");
}

#[tokio::test]
async fn cancelling_an_answered_relay_sends_nothing() {
    let mut upstream = Upstream::modern().await;
    let front = Front::new(1, "tools/call", json!({"name": "x"}));
    let mut relay = upstream.open(&front.request);
    upstream
        .server
        .expect("tools/call")
        .await
        .answer(json!({"content": []}));
    relay.answer(&front.cx).await.unwrap();

    relay.cancel("late");

    drop(upstream.client);
    assert_eq!(upstream.server.receive_to_end().await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_front_receives_the_log_messages_of_its_level_only() {
    let (modern, legacy) = (Dialect::LATEST, Dialect::LATEST_LEGACY);
    let cases = [
        (modern, None, 0),
        (modern, Some(LoggingLevel::Error), 1),
        (modern, Some(LoggingLevel::Debug), 2),
        (legacy, None, 2),
        (legacy, Some(LoggingLevel::Error), 1),
    ];
    for (dialect, level, expected) in cases {
        let handler = async |_: Request, cx: Context| {
            for level in ["info", "error"] {
                let params = json!({"level": level, "data": 1}).into();
                cx.send(Notification::new(MESSAGE, Some(params)));
            }
            Ok(Json::empty_object())
        };
        let channel = bowline::exchange::InProcess::new(Arc::new(handler));
        let mut caller = Caller::new(dialect);
        caller.log_level = level;
        let front = Front::of(caller, 1, "tools/call", json!({"name": "x"}));
        let mut relay = Relay::open(&channel, front.request.clone(), CallOptions::default());

        relay.answer(&front.cx).await.unwrap();

        assert_eq!(front.received().len(), expected, "{dialect} {level:?}");
    }
}

/// Relays a request of `front` to an upstream that fails with `error`.
async fn relay_error(front: &Front, error: RpcError) -> Result<Answer, Error> {
    let mut upstream = Upstream::legacy().await;
    let mut relay = upstream.open(&front.request);
    let id = upstream.server.expect("tools/call").await.hold();
    let error = json!({"code": error.code, "message": error.message, "data": error.data});
    let response = json!({"jsonrpc": "2.0", "id": id, "error": error});
    upstream.server.send_json(&response);
    relay.answer(&front.cx).await
}

#[tokio::test]
async fn a_request_is_refused_if_the_error_proves_that_it_did_not_run() {
    let front = Front::new(1, "tools/call", json!({"name": "x"}));
    for (code, expected) in [(-32022, true), (-32601, true), (-32602, false), (7, false)] {
        let mut upstream = Upstream::legacy().await;
        let mut relay = upstream.open(&front.request);
        let call = upstream.server.expect("tools/call").await;
        call.answer_error(ErrorCode(code), "no");

        assert!(!relay.is_refused());
        relay.answer(&front.cx).await.unwrap_err();

        assert_eq!(relay.is_refused(), expected, "{code}");
    }
}

fn rpc_error(answer: Result<Answer, Error>) -> RpcError {
    match answer {
        Err(Error::Rpc(error)) => error,
        other => panic!("expected a JSON-RPC error, got {other:?}"),
    }
}

#[tokio::test]
async fn errors_of_the_connection_to_the_upstream_are_internal_errors_of_the_front() {
    let front = Front::new(1, "tools/call", json!({"name": "x"}));
    for (code, expected) in [
        (-32020, -32603),
        (-32022, -32603),
        (-32021, -32021),
        (-32002, -32002),
        (-32602, -32602),
        (7, 7),
    ] {
        let error = RpcError::new(ErrorCode(code), "no").with_data(json!({"a": 1}));

        let relayed = rpc_error(relay_error(&front, error.clone()).await);

        assert_eq!(relayed.code.0, expected, "{code}");
        match code == expected {
            true => assert_eq!((relayed.message, relayed.data), (error.message, error.data)),
            false => assert_eq!(
                (&*relayed.message, relayed.data),
                ("failed to reach the server: no", None)
            ),
        }
    }
}

fn url_required(url: &str) -> RpcError {
    let elicitation = json!({
        "mode": "url", "message": "Sign in.", "url": url, "elicitationId": "7", "com.example/x": 1,
    });
    let data = json!({"elicitations": [elicitation]});
    RpcError::new(ErrorCode::URL_ELICITATION_REQUIRED, "first sign in").with_data(data)
}

fn front_with_urls(dialect: &'static Dialect, params: Value) -> Front {
    let mut caller = Caller::new(dialect);
    caller.capabilities = serde_json::from_value(json!({"elicitation": {"url": {}}})).unwrap();
    Front::of(caller, 1, "tools/call", params)
}

#[tokio::test]
async fn a_url_that_a_legacy_server_requires_is_a_question_to_a_modern_front() {
    let call = json!({"name": "x"});
    let modern = front_with_urls(Dialect::LATEST, call.clone());
    let legacy = front_with_urls(Dialect::LATEST_LEGACY, call.clone());
    let without = Front::new(1, "tools/call", call);
    let error = url_required("https://a.example");

    let asked = relay_error(&modern, error.clone()).await.unwrap();
    let passed = rpc_error(relay_error(&legacy, error.clone()).await);
    let refused = rpc_error(relay_error(&without, error.clone()).await);
    let unsafe_url = rpc_error(relay_error(&modern, url_required("javascript:x")).await);

    let params = json!({
        "mode": "url", "message": "Sign in.", "url": "https://a.example", "com.example/x": 1,
    });
    let expected = json!({
        "resultType": "input_required",
        "inputRequests": {"url-1": {"method": "elicitation/create", "params": params}},
        "requestState": Relay::SEND_AGAIN,
    });
    let Answer::InputRequired(result) = asked else {
        panic!("expected an input request, got {asked:?}");
    };
    assert_eq!(result.decode::<Value>().unwrap(), expected);
    assert_eq!(passed.data, error.data);
    assert_eq!(refused.code, ErrorCode::MISSING_CLIENT_CAPABILITY);
    assert_eq!(unsafe_url.code, ErrorCode::URL_ELICITATION_REQUIRED);
}

#[tokio::test]
async fn a_retry_after_a_required_url_is_a_new_call_unless_the_user_declined() {
    let mut upstream = Upstream::legacy().await;
    let retry = |action: &str| {
        let answers = json!({"url-1": {"action": action}});
        let params = json!({
            "name": "x", "requestState": Relay::SEND_AGAIN, "inputResponses": answers,
        });
        front_with_urls(Dialect::LATEST, params)
    };

    let (declined, accepted) = (retry("decline"), retry("accept"));
    let refused = rpc_error(upstream.open(&declined.request).answer(&declined.cx).await);
    let mut relay = upstream.open(&accepted.request);
    let sent = upstream.server.expect("tools/call").await;

    assert_eq!(refused.code, ErrorCode::USER_REJECTED);
    assert_eq!(sent.params(), &json!({"name": "x"}));
    sent.answer(json!({"content": []}));
    assert!(relay.answer(&accepted.cx).await.is_ok());
}

#[tokio::test]
async fn the_request_state_of_an_upstream_is_passed_on() {
    let mut upstream = Upstream::modern().await;
    let params =
        json!({"name": "x", "requestState": "s", "inputResponses": {"a": {"action": "decline"}}});
    let front = Front::new(1, "tools/call", params);
    let _relay = upstream.open(&front.request);

    let sent = upstream.server.expect("tools/call").await;

    assert_eq!(sent.params()["requestState"], "s");
    assert_eq!(sent.params()["inputResponses"]["a"]["action"], "decline");
    let _ = sent.hold();
}

/// The request of `front` as one of the connection's client.
fn request_over(connection: &Connection, front: &Front) -> Request {
    let mut request = front.request.clone();
    request.caller = connection.caller();
    request
}

#[tokio::test]
async fn progress_carries_the_token_of_the_front_on_every_transport() {
    let work = Tool::new("work", async |cx: Context| {
        cx.progress(1.0);
        "done"
    });
    let server = Server::new("upstream", "1.0.0").tool(work);
    for case in matrix() {
        let connection = case.serve(&server).connect.connection().await.unwrap();
        let params = json!({"name": "work", "_meta": {"progressToken": "front"}});
        let front = Front::new(1, "tools/call", params);
        let request = request_over(&connection, &front);
        let mut relay = Relay::open(&connection, request, CallOptions::default());

        let answer = relay.answer(&front.cx).await;

        assert!(
            matches!(answer, Ok(Answer::Complete(_))),
            "{case}: {answer:?}"
        );
        let progress = json!({"progressToken": "front", "progress": 1});
        assert_eq!(
            front.received(),
            [(PROGRESS.to_owned(), progress)],
            "{case}"
        );
    }
}

#[tokio::test]
async fn a_subscription_carries_the_id_of_the_front_on_every_transport() {
    for case in matrix() {
        let first = Tool::new("first", async || "1");
        let server = Server::new("upstream", "1.0.0").tool(first);
        let connection = case.serve(&server).connect.connection().await.unwrap();
        let listen = json!({"notifications": {"toolsListChanged": true}});
        let front = Front::new("front", "subscriptions/listen", listen);
        let request = request_over(&connection, &front);
        let mut relay = Relay::open(&connection, request, CallOptions::default());

        let received = async {
            let mut received = Vec::new();
            while received.len() < 2 {
                tokio::task::yield_now().await;
                received.extend(front.received());
                if received.len() == 1 {
                    server.changed().tools();
                }
            }
            received
        };
        let received = tokio::select! {
            biased;
            ended = relay.answer(&front.cx) => panic!("{case}: {ended:?}"),
            received = received => received,
        };

        let id = |at: usize| (&*received[at].0, &received[at].1["_meta"][SUBSCRIPTION_ID]);
        let front_id = json!("front");
        assert_eq!(id(0), (ACKNOWLEDGED, &front_id), "{case}");
        assert_eq!(id(1), (TOOLS_CHANGED, &front_id), "{case}");
    }
}
