//! The `requestState` that a client returns to the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use bowline::exchange::{Context, Principal, Responder};
use bowline::layer::Next;
use bowline::server::RequestStateKeys;
use bowline::types::{CallToolResult, ErrorCode, InputRequiredResult};
use bowline::{Client, Error, RpcError, Server, Tool};
use bowline_core::era::Request;
use serde_json::{Value, json};

use super::{HostLog, MODERN, TextForm, modern_client, order, replying_host, server};

/// Two replicas that receive requests alternately, and the number of requests.
fn round_robin(replicas: [Server; 2]) -> (impl Responder + Clone, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let responder = move |request: Request, cx: Context| {
        let nth = counter.fetch_add(1, Ordering::Relaxed);
        let replica = replicas[nth % 2].clone();
        async move { replica.respond(request, cx).await }
    };
    (responder, count)
}

#[tokio::test(start_paused = true)]
async fn replicas_that_share_a_key_continue_each_others_requests() {
    let (today, yesterday) = ([1; 32], [2; 32]);
    let old = RequestStateKeys::new(yesterday).also_decrypt(today);
    let new = RequestStateKeys::new(today).also_decrypt(yesterday);
    let (servers, count) = round_robin([
        server().request_state_keys(old),
        server().request_state_keys(new),
    ]);
    let host = replying_host(&HostLog::default());
    let client = modern_client(&servers, host).await;

    let reply = client.call_tool("order", ()).await.unwrap();

    assert!(
        reply
            .text()
            .starts_with("re: A drink? and re: A snack? for re: Who?")
    );
    assert_eq!(count.load(Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn a_nested_server_leaves_the_rounds_to_the_outer_one() {
    let inner = server();
    let outer = Server::new("outer", "1.0.0").tool(Tool::raw(
        "order",
        json!({"type": "object"}),
        move |_, cx: Context| {
            let (inner, caller) = (inner.clone(), cx.caller().clone());
            async move {
                let params = json!({"name": "order"});
                let request = Request::new("tools/call", params, caller);
                let result = inner.respond(request, cx).await?;
                Ok(result.decode()?)
            }
        },
    ));
    let host = replying_host(&HostLog::default());
    let client = modern_client(&outer, host).await;

    let reply = client.call_tool("order", ()).await.unwrap();

    assert!(
        reply
            .text()
            .starts_with("re: A drink? and re: A snack? for re: Who?")
    );
}

#[tokio::test(start_paused = true)]
async fn a_replica_refuses_a_state_sealed_with_another_key() {
    let (servers, _) = round_robin([server(), server()]);
    let host = replying_host(&HostLog::default());
    let client = modern_client(&servers, host).await;

    let error = client.call_tool("order", ()).await.unwrap_err();

    assert_refused(error, STATE_MISMATCH);
}

/// Returns a client and the first `input_required` of the tool `order`.
async fn first_round(server: &Server) -> (Client, InputRequiredResult) {
    let host = replying_host(&HostLog::default());
    let client = modern_client(server, host).await;
    let reply = client.call_tool("order", ()).manual_input().await.unwrap();
    (client, reply.input_required().unwrap())
}

/// Sends the second round with this state and these arguments.
async fn retry(client: &Client, state: &str, arguments: Value) -> Result<(), Error> {
    let answers = json!({"name": {"action": "accept", "content": {"text": "Ada"}}});
    let params = json!({
        "name": "order", "arguments": arguments, "inputResponses": answers, "requestState": state,
    });
    let reply = client
        .request_raw("tools/call", params)
        .manual_input()
        .await?;
    let asked = reply.input_required().unwrap().input_requests.unwrap();
    assert_eq!(asked.0.keys().collect::<Vec<_>>(), ["drink", "snack"]);
    Ok(())
}

fn assert_refused(error: Error, message: &str) {
    let Error::Rpc(RpcError {
        code, message: got, ..
    }) = error
    else {
        panic!("{error}");
    };
    assert_eq!((code, got.as_str()), (ErrorCode::INVALID_PARAMS, message));
}

const STATE_MISMATCH: &str = "`requestState` was not issued by this server for this request";

#[tokio::test(start_paused = true)]
async fn a_request_is_continued_with_manual_input() {
    let (client, required) = first_round(&server()).await;

    let questions = required.input_requests.unwrap();
    assert_eq!(questions.0.keys().collect::<Vec<_>>(), ["name"]);
    retry(&client, &required.request_state.unwrap(), json!({}))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_state_that_was_tampered_with_is_refused() {
    let (client, required) = first_round(&server()).await;
    let state = required.request_state.unwrap();

    let mut changed = state.clone().into_bytes();
    changed[60] = if changed[60] == b'A' { b'B' } else { b'A' };
    let changed = String::from_utf8(changed).unwrap();

    for state in [
        &changed,
        &state[1..],
        &format!("{state}AAAA"),
        "",
        "{}",
        &"A".repeat(100_000),
    ] {
        let error = retry(&client, state, json!({})).await.unwrap_err();
        assert_refused(error, STATE_MISMATCH);
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_is_refused_with_another_request() {
    let (client, required) = first_round(&server()).await;
    let state = required.request_state.unwrap();

    let error = retry(&client, &state, json!({"for": "another user"}))
        .await
        .unwrap_err();

    assert_refused(error, STATE_MISMATCH);
}

#[tokio::test(start_paused = true)]
async fn a_state_is_refused_after_an_hour() {
    let seconds = Arc::new(AtomicU64::new(0));
    let now = seconds.clone();
    let clock = move || UNIX_EPOCH + Duration::from_secs(now.load(Ordering::Relaxed));
    let server = server().request_state_keys(RequestStateKeys::random().clock(clock));
    let (client, required) = first_round(&server).await;
    let state = required.request_state.unwrap();

    seconds.store(3599, Ordering::Relaxed);
    retry(&client, &state, json!({})).await.unwrap();
    seconds.store(3600, Ordering::Relaxed);
    let error = retry(&client, &state, json!({})).await.unwrap_err();

    assert_refused(
        error,
        "`requestState` has expired; retry the request without it",
    );
}

/// Another replica of the server, behind a layer that sets the principal.
fn on_behalf_of(name: &'static str) -> Server {
    replica().layer(move |request: Request, next: Next| {
        next.with_principal(Principal::named(name)).run(request)
    })
}

fn replica() -> Server {
    server().request_state_keys([7; 32])
}

#[tokio::test(start_paused = true)]
async fn a_state_is_refused_for_another_principal() {
    let (ada, bob) = (on_behalf_of("ada"), on_behalf_of("bob"));
    let (as_ada, required) = first_round(&ada).await;
    let state = required.request_state.unwrap();
    let (as_bob, _) = first_round(&bob).await;
    let (anonymous, _) = first_round(&replica()).await;

    retry(&as_ada, &state, json!({})).await.unwrap();
    for other in [as_bob, anonymous] {
        let error = retry(&other, &state, json!({})).await.unwrap_err();
        assert_refused(error, STATE_MISMATCH);
    }
}

#[tokio::test(start_paused = true)]
async fn answers_without_a_state_are_ignored() {
    let (client, _) = first_round(&server()).await;
    let params = json!({
        "name": "order",
        "inputResponses": {"name": {"action": "accept", "content": {"text": "Ada"}}},
    });

    let reply = client
        .request_raw("tools/call", params)
        .manual_input()
        .await
        .unwrap();

    let asked = reply.input_required().unwrap().input_requests.unwrap();
    assert_eq!(asked.0.keys().collect::<Vec<_>>(), ["name"]);
}

#[tokio::test(start_paused = true)]
async fn answers_without_a_state_are_used_with_accept_unsolicited() {
    let tool = Tool::raw("greet", json!({"type": "object"}), async |_, cx| {
        let name: TextForm = cx.elicit("name", "Who?").accept_unsolicited().await?;
        Ok(CallToolResult::text(name.text))
    });
    let server = Server::new("greeter", "1.0.0").tool(tool);
    let host = replying_host(&HostLog::default());
    let client = Client::in_process(&server)
        .protocol_version(MODERN)
        .host(host);
    let client = client.await.unwrap();
    let params = json!({
        "name": "greet",
        "inputResponses": {
            "name": {"action": "accept", "content": {"text": "Ada"}},
            "other": {"action": "accept"},
        },
    });

    let reply = client
        .request_raw("tools/call", params)
        .manual_input()
        .await
        .unwrap();

    assert_eq!(reply.text(), "Ada");
}

#[tokio::test(start_paused = true)]
async fn a_state_that_grows_too_large_fails_the_request() {
    let tool = Tool::raw("hoard", json!({"type": "object"}), async |_, cx| {
        cx.remember(&"x".repeat(70_000)).await?;
        let name: TextForm = cx.elicit("name", "Who?").await?;
        Ok(CallToolResult::text(name.text))
    });
    let server = Server::new("hoard", "1.0.0").tool(tool).tool(order());
    let host = replying_host(&HostLog::default());
    let client = modern_client(&server, host).await;

    let error = client.call_tool("hoard", ()).await.unwrap_err();

    assert_eq!(
        error.to_string(),
        "failed to save the request state (-32603)"
    );
    client.call_tool("order", ()).await.unwrap();
}
