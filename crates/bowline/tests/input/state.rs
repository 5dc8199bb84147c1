//! The state that a request takes along through the client's hands.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use bowline::exchange::{BoxFuture, Context, Principal, Responder};
use bowline::layer::{Layered, Next};
use bowline::server::StateKeys;
use bowline::types::{CallToolResult, ErrorCode, InputRequiredResult};
use bowline::{Client, Error, RpcError, Server, Tool};
use bowline_core::Outcome;
use bowline_core::era::Request;
use serde_json::{Value, json};

use super::{Heard, MODERN, Said, order, replying, server};

/// Two replicas behind one address, each of which gets every other request.
#[derive(Clone)]
struct InTurn {
    replicas: [Server; 2],
    count: Arc<AtomicUsize>,
}

impl Responder for InTurn {
    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome> {
        let nth = self.count.fetch_add(1, Ordering::Relaxed);
        self.replicas[nth % 2].respond(request, cx)
    }

    fn roots_changed(&self, _: &bowline::exchange::Caller) {}
}

fn in_turn(replicas: [Server; 2]) -> InTurn {
    let count = Arc::default();
    InTurn { replicas, count }
}

#[tokio::test(start_paused = true)]
async fn replicas_that_share_a_key_take_up_each_others_requests() {
    let (today, yesterday) = ([1; 32], [2; 32]);
    let old = StateKeys::new(yesterday).also_open(today);
    let new = StateKeys::new(today).also_open(yesterday);
    let servers = in_turn([server().input_keys(old), server().input_keys(new)]);
    let host = replying(&Heard::default());
    let client = Client::to(&servers)
        .speaking(MODERN)
        .host(host)
        .await
        .unwrap();

    let reply = client.call_tool("order", ()).await.unwrap();

    assert!(
        reply
            .text()
            .starts_with("re: A drink? and re: A snack? for re: Who?")
    );
    assert_eq!(servers.count.load(Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn a_server_within_a_server_leaves_the_rounds_to_the_outer_one() {
    let inner = server();
    let outer = Server::new("outer", "1.0.0").tool(Tool::raw(
        "order",
        json!({"type": "object"}),
        move |_, cx: Context| {
            let (inner, caller) = (inner.clone(), cx.caller().clone());
            async move {
                let params = json!({"name": "order"});
                let request = Request::new("tools/call", params, caller);
                inner
                    .respond(request, cx)
                    .await?
                    .decode()
                    .map_err(bowline::invalid_params)
            }
        },
    ));
    let host = replying(&Heard::default());
    let client = Client::to(&outer)
        .speaking(MODERN)
        .host(host)
        .await
        .unwrap();

    let reply = client.call_tool("order", ()).await.unwrap();

    assert!(
        reply
            .text()
            .starts_with("re: A drink? and re: A snack? for re: Who?")
    );
}

#[tokio::test(start_paused = true)]
async fn a_replica_with_a_key_of_its_own_refuses_the_requests_of_another() {
    let servers = in_turn([server(), server()]);
    let host = replying(&Heard::default());
    let client = Client::to(&servers)
        .speaking(MODERN)
        .host(host)
        .await
        .unwrap();

    let error = client.call_tool("order", ()).await.unwrap_err();

    refused(error, FOREIGN);
}

/// A client that drives its rounds by hand, and the first `input_required` of the tool `order`.
async fn half_way<R: Responder + Clone>(server: &R) -> (Client, InputRequiredResult) {
    let host = replying(&Heard::default());
    let client = Client::to(server)
        .speaking(MODERN)
        .host(host)
        .await
        .unwrap();
    let reply = client.call_tool("order", ()).by_hand().await.unwrap();
    (client, reply.input_required().unwrap())
}

/// What comes of a retry with this state, and these arguments.
async fn retry(client: &Client, state: &str, arguments: Value) -> Result<(), Error> {
    let answers = json!({"name": {"action": "accept", "content": {"said": "Ada"}}});
    let params = json!({
        "name": "order", "arguments": arguments, "inputResponses": answers, "requestState": state,
    });
    let reply = client.raw("tools/call", params).by_hand().await?;
    let asked = reply.input_required().unwrap().input_requests.unwrap();
    assert_eq!(asked.0.keys().collect::<Vec<_>>(), ["drink", "snack"]);
    Ok(())
}

fn refused(error: Error, message: &str) {
    let Error::Peer(RpcError {
        code,
        message: said,
        ..
    }) = error
    else {
        panic!("{error}");
    };
    assert_eq!((code, said.as_str()), (ErrorCode::INVALID_PARAMS, message));
}

const FOREIGN: &str = "the request state is not one that this server made for this request";

#[tokio::test(start_paused = true)]
async fn a_request_is_taken_up_by_hand() {
    let (client, required) = half_way(&server()).await;

    let questions = required.input_requests.unwrap();
    assert_eq!(questions.0.keys().collect::<Vec<_>>(), ["name"]);
    retry(&client, &required.request_state.unwrap(), json!({}))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_state_that_was_tampered_with_is_refused() {
    let (client, required) = half_way(&server()).await;
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
        refused(retry(&client, state, json!({})).await.unwrap_err(), FOREIGN);
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_is_refused_with_another_request() {
    let (client, required) = half_way(&server()).await;
    let state = required.request_state.unwrap();

    let error = retry(&client, &state, json!({"for": "somebody else"}))
        .await
        .unwrap_err();

    refused(error, FOREIGN);
}

#[tokio::test(start_paused = true)]
async fn a_state_is_refused_after_an_hour() {
    let seconds = Arc::new(AtomicU64::new(0));
    let now = seconds.clone();
    let clock = move || UNIX_EPOCH + Duration::from_secs(now.load(Ordering::Relaxed));
    let server = server().input_keys(StateKeys::random().clock(clock));
    let (client, required) = half_way(&server).await;
    let state = required.request_state.unwrap();

    seconds.store(3599, Ordering::Relaxed);
    retry(&client, &state, json!({})).await.unwrap();
    seconds.store(3600, Ordering::Relaxed);
    let error = retry(&client, &state, json!({})).await.unwrap_err();

    refused(
        error,
        "the request state has expired; start again without it",
    );
}

/// The server behind a layer that has found out who is asking.
fn on_behalf_of(name: &'static str, server: &Server) -> Layered {
    Layered::new(server.clone()).layer(move |request: Request, next: Next| {
        next.on_behalf_of(Principal::named(name)).run(request)
    })
}

#[tokio::test(start_paused = true)]
async fn a_state_is_refused_from_anybody_but_the_one_it_was_made_for() {
    let server = server().input_keys([7; 32]);
    let (ada, bob) = (on_behalf_of("ada", &server), on_behalf_of("bob", &server));
    let (as_ada, required) = half_way(&ada).await;
    let state = required.request_state.unwrap();
    let (as_bob, _) = half_way(&bob).await;
    let (as_nobody, _) = half_way(&server).await;

    retry(&as_ada, &state, json!({})).await.unwrap();
    for thief in [as_bob, as_nobody] {
        refused(retry(&thief, &state, json!({})).await.unwrap_err(), FOREIGN);
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_come_without_the_state_do_not_count() {
    let (client, _) = half_way(&server()).await;
    let params = json!({
        "name": "order",
        "inputResponses": {"name": {"action": "accept", "content": {"said": "Ada"}}},
    });

    let reply = client.raw("tools/call", params).by_hand().await.unwrap();

    let asked = reply.input_required().unwrap().input_requests.unwrap();
    assert_eq!(asked.0.keys().collect::<Vec<_>>(), ["name"]);
}

#[tokio::test(start_paused = true)]
async fn answers_that_come_without_the_state_count_where_the_handler_says_so() {
    let tool = Tool::raw("greet", json!({"type": "object"}), async |_, cx| {
        let name: Said = cx.elicit("name", "Who?").even_unasked().await?;
        Ok(CallToolResult::text(name.said))
    });
    let server = Server::new("greeter", "1.0.0").tool(tool);
    let host = replying(&Heard::default());
    let client = Client::to(&server).speaking(MODERN).host(host);
    let client = client.await.unwrap();
    let params = json!({
        "name": "greet",
        "inputResponses": {
            "name": {"action": "accept", "content": {"said": "Ada"}},
            "other": {"action": "accept"},
        },
    });

    let reply = client.raw("tools/call", params).by_hand().await.unwrap();

    assert_eq!(reply.text(), "Ada");
}

#[tokio::test(start_paused = true)]
async fn a_state_that_grows_too_large_fails_the_request() {
    let tool = Tool::raw("hoard", json!({"type": "object"}), async |_, cx| {
        cx.remember(&"x".repeat(70_000))?;
        let name: Said = cx.elicit("name", "Who?").await?;
        Ok(CallToolResult::text(name.said))
    });
    let server = Server::new("hoard", "1.0.0").tool(tool).tool(order());
    let host = replying(&Heard::default());
    let client = Client::to(&server)
        .speaking(MODERN)
        .host(host)
        .await
        .unwrap();

    let error = client.call_tool("hoard", ()).await.unwrap_err();

    assert_eq!(
        error.to_string(),
        "the state of the request cannot be kept (-32603)"
    );
    client.call_tool("order", ()).await.unwrap();
}
