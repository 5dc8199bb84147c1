//! The host of a client knows which call a request of the server belongs to (`Context::within`), and log messages reach
//! the exchange of their call.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bowline::exchange::{
    CallOptions, Caller, Channel, Dialect, ExchangeEvent, InputError, Outcome, Request,
};
use bowline::server::Args;
use bowline::testing::{MatrixCase, TestTransport, matrix, scripted_peer};
use bowline::types::{
    ClientCapabilities, ElicitRequestFormParams, ElicitSchema, ElicitationCapability, RequestId,
};
use bowline::{Client, Context, Json, Server, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Barrier;

#[derive(Deserialize, JsonSchema)]
struct Question {
    text: String,
}

/// A server whose tool `ask` waits until `concurrent` calls run, and then asks the user.
fn server(concurrent: usize) -> Server {
    let barrier = Arc::new(Barrier::new(concurrent));
    let ask = move |Args(question): Args<Question>, cx: Context| {
        let barrier = barrier.clone();
        async move {
            barrier.wait().await;
            let form = ElicitRequestFormParams::new(question.text, ElicitSchema::new());
            let answer = cx.elicit_raw("question", form).await;
            barrier.wait().await; // no call is answered while another one waits
            answer.map(|_| "thanks")
        }
    };
    Server::new("curious", "1.0.0").tool(Tool::new("ask", ask))
}

/// The calls that the host was asked for, by the text of the question.
type Asked = Arc<Mutex<BTreeMap<String, Option<RequestId>>>>;

async fn connect(case: MatrixCase, server: &Server) -> (Client, Asked) {
    let asked = Asked::default();
    let log = asked.clone();
    let host = move |request: Request, cx: Context| {
        let text = request.params.member("message").unwrap().unwrap();
        let text = text.text().unwrap().into_owned();
        log.lock().unwrap().insert(text, cx.within().cloned());
        std::future::ready(Outcome::Ok(json!({"action": "decline"}).into()))
    };
    let mut capabilities = ClientCapabilities::default();
    capabilities.elicitation = Some(ElicitationCapability::default());
    let connect = case.serve(server).connect;
    let client = connect.host_responder(host, capabilities).await.unwrap();
    (client, asked)
}

async fn ask(client: &Client, id: &'static str) {
    let call = client.call_tool("ask", json!({"text": id})).id(id);
    call.await.unwrap();
}

fn legacy() -> impl Iterator<Item = MatrixCase> {
    let cases = matrix().since("2025-06-18");
    cases.filter(|case| !case.dialect.is_modern())
}

#[tokio::test]
async fn a_host_knows_the_only_call_in_flight() {
    for case in legacy() {
        let (client, asked) = connect(case, &server(1)).await;

        ask(&client, "a").await;

        let asked = asked.lock().unwrap().clone();
        assert_eq!(
            asked,
            BTreeMap::from([("a".to_owned(), Some("a".into()))]),
            "{case}"
        );
    }
}

#[tokio::test]
async fn of_several_calls_a_host_knows_the_right_one_or_none() {
    for case in legacy() {
        let (client, asked) = connect(case, &server(2)).await;

        tokio::join!(ask(&client, "a"), ask(&client, "b"));

        // A duplex wire does not tell. Over Streamable HTTP the stream does, and in process the back channel.
        let is_known = case.transport != TestTransport::Memory;
        let within = |id: &str| (id.to_owned(), is_known.then(|| id.into()));
        let asked = asked.lock().unwrap().clone();
        assert_eq!(asked, BTreeMap::from([within("a"), within("b")]), "{case}");
    }
}

#[tokio::test]
async fn a_log_message_reaches_the_exchange_of_its_call_and_the_callback_once() {
    let (wire, mut server) = scripted_peer();
    let logged = Arc::new(AtomicUsize::new(0));
    let count = logged.clone();
    let dialect = Dialect::LATEST_LEGACY;
    let connect = Client::from_wire(wire).protocol_version(dialect.version);
    let connect = connect.on_log(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let handshake = server.accept_handshake(dialect.version, json!({"logging": {}}));
    let (client, ()) = tokio::join!(connect.into_future(), handshake);
    let client = client.unwrap();
    let request = Request::new(
        "tools/call",
        Json::from(json!({"name": "x"})),
        Arc::new(Caller::new(dialect)),
    );
    let peer = client.peer().unwrap();
    let mut exchange = peer.open(request, CallOptions::default());

    let log = json!({"level": "info", "data": "of the call"});
    let called = server.expect("tools/call").await;
    called
        .notify("notifications/message", log.clone())
        .answer(json!({"content": []}));
    let event = exchange.next_event().await;

    let ExchangeEvent::Notification(notification) = event else {
        panic!("expected the log message, got {event:?}");
    };
    let params: Value = notification.params.unwrap().decode().unwrap();
    assert_eq!(params, log);
    assert!(matches!(
        exchange.next_event().await,
        ExchangeEvent::Answered(Ok(_))
    ));
    assert_eq!(logged.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_log_messages_of_a_call_reach_the_callback_once_on_every_transport() {
    for case in matrix() {
        let log = Tool::new("log", async |cx: Context| {
            cx.log(bowline::types::LoggingLevel::Error, json!("once"));
            Ok::<_, InputError>("done")
        });
        let server = Server::new("talkative", "1.0.0").logging().tool(log);
        let logged = Arc::new(AtomicUsize::new(0));
        let count = logged.clone();
        let connect = case.serve(&server).connect.on_log(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
        });
        let client = connect.await.unwrap();
        client
            .set_log_level(bowline::types::LoggingLevel::Debug)
            .await
            .unwrap();

        client.call_tool("log", ()).await.unwrap();

        assert_eq!(logged.load(Ordering::SeqCst), 1, "{case}");
    }
}
