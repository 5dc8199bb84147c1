//! Questions that are asked at the wrong time, or are about the call of another client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline::client::{ClientBuilder, EraCache, Host};
use bowline::exchange::Dialects;
use bowline::http::HttpService;
use bowline::http::client::HyperClient;
use bowline::http::legacy::Legacy;
use bowline::prelude::*;
use bowline::testing::{HandlerCounter, PipeConnector, ScriptedPeer, scripted_peer};
use bowline::types::{ElicitResult, Root};
use bowline::wire;
use bowline_bridge::{Bridge, Target};
use serde_json::{Value, json};
use tokio::sync::{Barrier, Notify};
use tokio::time::Instant;

use crate::scripted::{
    LEGACY, MODERN, Upstreams, bridge, builder, bystander, elicitation, over_http, text, user,
};

#[tokio::test(start_paused = true)]
async fn a_question_about_an_abandoned_call_is_refused_and_does_not_reach_the_next_client() {
    let (bridge, mut upstreams) = bridge();
    let service = bridge.http();
    let ada = over_http(&service, MODERN).host(user("Ada")).await.unwrap();
    let eve = over_http(&service, MODERN).host(bystander()).await.unwrap();
    let call = tokio::spawn(ada.call_tool("greet", ()).start());
    let mut upstream = upstreams.accept().await;
    let id = upstream.expect("tools/call").await.hold();
    call.abort();
    upstream.expect_cancel(&id).await;

    // The server has not read the cancel yet, or ignores it.
    let asked = Instant::now();
    upstream.send_json(&elicitation("late"));
    let refusal = upstream.next_message().await;
    assert!(
        asked.elapsed() < Duration::from_secs(1),
        "{:?}",
        asked.elapsed()
    );
    tokio::time::advance(Duration::from_secs(10)).await;
    let next = tokio::spawn(eve.call_tool("echo", ()).start());
    upstream.expect("tools/call").await.answer(text("eve"));

    assert_eq!(refusal["id"], "late");
    assert_eq!(refusal["error"]["code"], -32603, "{refusal}");
    assert_eq!(next.await.unwrap().unwrap().text(), "eve");
}

#[tokio::test(start_paused = true)]
async fn a_question_during_a_request_that_cannot_wait_for_input_is_refused_at_once() {
    let (bridge, mut upstreams) = bridge();
    let client = over_http(&bridge.http(), MODERN).host(bystander());
    let client = client.await.unwrap();
    let lister = client.clone();
    let list = tokio::spawn(async move { lister.list_tools().await });
    let mut upstream = upstreams.accept().await;
    let id = upstream.expect("tools/list").await.hold();
    let asked = Instant::now();

    upstream.send_json(&elicitation("listing"));
    let refusal = upstream.next_message().await;
    upstream.answer(id, json!({"tools": []}));

    assert_eq!(refusal["error"]["code"], -32603, "{refusal}");
    assert!(
        asked.elapsed() < Duration::from_secs(1),
        "{:?}",
        asked.elapsed()
    );
    list.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_vanishes_while_its_call_is_parked_costs_the_timeout_and_nothing_more() {
    let (builder, mut upstreams) = builder();
    let bridge = builder.park_timeout(Duration::from_secs(20)).build();
    let service = bridge.http();
    let connect = over_http(&service, MODERN)
        .host(Host::new().elicitation(async |_| std::future::pending().await));
    let client = connect.await.unwrap();
    let call = tokio::spawn(client.call_tool("greet", ()).start());
    let mut upstream = upstreams.accept().await;
    let id = upstream.expect("tools/call").await.hold();
    upstream.send_json(&elicitation("name"));
    for _ in 0..100 {
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    assert_eq!(service.in_flight(), 0, "the call is not parked");
    call.abort();
    drop(client);

    let mut ended = [upstream.next_message().await, upstream.next_message().await];

    ended.sort_by_key(|message| message["id"].is_string());
    let [cancel, refusal] = ended;
    assert_eq!(cancel["method"], "notifications/cancelled");
    assert_eq!(cancel["params"]["requestId"], json!(id));
    assert_eq!(refusal["error"]["code"], -32603, "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn questions_of_two_clients_with_one_principal_do_not_cross() {
    let (builder, mut upstreams) = builder();
    let bridge = builder.max_connections_each(4).build();
    let service = bridge.http();
    let names = ["Ada", "Bea", "Cleo", "Dora"];
    let mut calls = Vec::new();
    for name in names {
        let client = over_http(&service, MODERN).host(user(name)).await.unwrap();
        let called = json!({"caller": name});
        calls.push(tokio::spawn(client.call_tool("greet", called).start()));
    }

    for _ in names {
        let mut upstream = upstreams.accept().await;
        tokio::spawn(async move {
            let call = upstream.expect("tools/call").await;
            let caller = call.params()["arguments"]["caller"].clone();
            let id = call.hold();
            upstream.send_json(&elicitation("name"));
            let answer = upstream.next_message().await;
            let reply = format!("{} is {}", caller, answer["result"]["content"]["name"]);
            upstream.answer(id, text(&reply));
            // Kept open: its calls end before the connection.
            upstream.receive_to_end().await;
        });
    }

    for (name, call) in names.into_iter().zip(calls) {
        let reply = call.await.unwrap().unwrap();
        assert_eq!(reply.text(), format!("\"{name}\" is \"{name}\""));
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_is_refused_if_more_calls_than_connections_may_be_meant() {
    let (builder, mut upstreams) = builder();
    let bridge = builder.max_connections_each(4).build();
    let service = bridge.http();
    let client = over_http(&service, MODERN).host(bystander());
    let client = client.await.unwrap();
    let calls: Vec<_> = (0..5)
        .map(|_| tokio::spawn(client.call_tool("greet", ()).start()))
        .collect();
    let mut peers = Vec::new();
    for _ in 0..4 {
        peers.push(upstreams.accept().await);
    }

    // The fifth call shares one of the four connections.
    let mut held = Vec::new();
    for (index, peer) in peers.iter_mut().enumerate() {
        held.push((index, peer.expect("tools/call").await.hold()));
    }
    let shared = &mut peers[0];
    held.push((0, shared.expect("tools/call").await.hold()));
    shared.send_json(&elicitation("whose"));
    let refusal = shared.next_message().await;

    assert_eq!(refusal["id"], "whose");
    assert_eq!(refusal["error"]["code"], -32603, "{refusal}");
    assert!(upstreams.is_empty());
    for (index, id) in held {
        peers[index].answer(id, text("done"));
    }
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().text(), "done");
    }
}

/// A legacy server over HTTP whose tool asks for a name once two calls of it run.
fn legacy_http_server() -> HttpService {
    let both = Arc::new(Barrier::new(2));
    let greet = move |cx: Context| {
        let both = both.clone();
        async move {
            both.wait().await;
            let name: Name = cx.elicit("name", "Who are you?").await?;
            Ok::<_, ToolError>(format!("hello {}", name.name))
        }
    };
    let server = Server::new("greeter", "1.0.0").tool(Tool::new("greet", greet));
    let service = server.http().legacy(Legacy::sessions());
    service.versions(Dialects::only(|dialect| dialect.version == LEGACY))
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Name {
    name: String,
}

#[tokio::test(start_paused = true)]
async fn the_questions_of_two_calls_on_one_connection_over_http_reach_their_clients() {
    for front in [MODERN, LEGACY] {
        let (upstream, eras) = (legacy_http_server(), EraCache::new());
        let target = Target::new("greeter", move |_| {
            let http = HyperClient::with_connector(PipeConnector::to(&upstream));
            let connect = Client::connect("http://localhost/mcp").http_client(http);
            Ok(connect.era_cache(&eras))
        });
        let service = Bridge::new(target.stateless()).http();
        let names = ["Ada", "Bea"];
        let clients = names.map(|name| over_http(&service, front).host(user(name)));
        let [ada, bea] = clients.map(ClientBuilder::into_future);
        let clients = tokio::try_join!(ada, bea).unwrap();

        let replies = tokio::join!(
            clients.0.call_tool("greet", ()),
            clients.1.call_tool("greet", ())
        );

        assert_eq!(replies.0.unwrap().text(), "hello Ada", "{front}");
        assert_eq!(replies.1.unwrap().text(), "hello Bea", "{front}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_roots_of_a_legacy_client_reaches_a_legacy_server() {
    let (bridge, mut upstreams) = bridge();
    let (near, far) = wire::memory();
    tokio::spawn(bridge.wire().serve(far));
    let host = Host::new()
        .roots(async || vec![Root::new("file:///project")])
        .roots_list_changed();
    let connect = Client::from_wire(near).protocol_version(LEGACY).host(host);
    let connecting = tokio::spawn(connect.into_future());
    let mut upstream = upstreams.accept().await;
    let client = connecting.await.unwrap().unwrap();

    client.roots_changed().unwrap();

    let changed = "notifications/roots/list_changed";
    upstream.expect_notification(changed).await;
}

#[tokio::test(start_paused = true)]
async fn the_request_of_a_modern_server_for_the_roots_reaches_a_legacy_client() {
    let list = async |cx: Context| {
        let roots = cx.roots().await?.roots;
        let uris = roots.iter().map(|root| root.uri.to_string());
        Ok::<_, ToolError>(uris.collect::<Vec<_>>().join(" "))
    };
    let server = Server::new("lister", "1.0.0").tool(Tool::new("list", list));
    let target = Target::new("lister", move |_| {
        Ok(Client::in_process(&server).protocol_version(MODERN))
    });
    let host = Host::new().roots(async || vec![Root::new("file:///project")]);
    let connect = over_http(&Bridge::new(target).http(), LEGACY).host(host);
    let client = connect.await.unwrap();

    let reply = client.call_tool("list", ()).await.unwrap();

    assert_eq!(reply.text(), "file:///project");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_questions_outside_of_calls_is_held_up_to_a_limit_and_then_refused() {
    let (bridge, mut upstreams) = bridge();
    let client = over_http(&bridge.http(), MODERN).host(bystander());
    let client = client.await.unwrap();
    let lister = client.clone();
    let list = tokio::spawn(async move { lister.list_tools().await });
    let mut upstream = upstreams.accept().await;
    upstream
        .expect("tools/list")
        .await
        .answer(json!({"tools": []}));
    list.await.unwrap().unwrap();

    let mut refused = 0;
    for number in 0..200 {
        upstream.send_json(&elicitation(&format!("q{number}")));
        tokio::task::yield_now().await;
    }
    for _ in 0..200 {
        let answer = upstream.next_message().await;
        refused += usize::from(answer["error"].is_object());
    }

    assert_eq!(refused, 200);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_the_server_withdraws_is_not_put_to_the_client() {
    let (bridge, mut upstreams) = bridge();
    let client = over_http(&bridge.http(), MODERN).host(bystander());
    let client = client.await.unwrap();
    let lister = client.clone();
    let list = tokio::spawn(async move { lister.list_tools().await });
    let mut upstream = upstreams.accept().await;
    upstream
        .expect("tools/list")
        .await
        .answer(json!({"tools": []}));
    list.await.unwrap().unwrap();
    upstream.send_json(&elicitation("withdrawn"));
    upstream.notify("notifications/cancelled", json!({"requestId": "withdrawn"}));
    tokio::time::advance(Duration::from_millis(1)).await;

    let call = tokio::spawn(client.call_tool("echo", ()).start());

    upstream.expect("tools/call").await.answer(text("unasked"));
    assert_eq!(call.await.unwrap().unwrap().text(), "unasked");
}

/// A host that answers when the test says so, and counts what it is asked.
struct SlowUser {
    asked: HandlerCounter,
    answer: Arc<Notify>,
}

impl SlowUser {
    fn new() -> (Self, Host) {
        let (asked, answer) = (HandlerCounter::default(), Arc::new(Notify::new()));
        let (counter, notify) = (asked.clone(), answer.clone());
        let host = Host::new().elicitation(move |_| {
            let (counter, notify) = (counter.clone(), notify.clone());
            async move {
                counter.run(notify.notified()).await;
                ElicitResult::accept(json!({"name": "Ada"}))
            }
        });
        (Self { asked, answer }, host)
    }
}

/// A legacy client makes two calls, is asked about one of them, and cancels the other.
async fn cancel_one_of_two_calls(connect: ClientBuilder, mut upstreams: Upstreams) {
    let (user, host) = SlowUser::new();
    let connecting = tokio::spawn(connect.host(host).into_future());
    let mut upstream = upstreams.accept().await;
    let client = connecting.await.unwrap().unwrap();
    let calls = ["first", "second"].map(|name| {
        let call = client.call_tool("greet", json!({"call": name})).start();
        tokio::spawn(call)
    });
    let mut ids = BTreeMap::new();
    for _ in 0..2 {
        let call = upstream.expect("tools/call").await;
        let name = call.params()["arguments"]["call"].as_str().unwrap();
        ids.insert(name.to_owned(), call.hold());
    }
    let [first, second] = calls;
    upstream.send_json(&elicitation("name"));
    user.asked.wait_for(|counts| counts.started == 1).await;

    second.abort();
    upstream.expect_cancel(&ids["second"]).await;
    user.answer.notify_one();
    let answer = upstream.next_message().await;
    upstream.answer(ids.remove("first").unwrap(), text("hello"));

    assert_eq!(answer["result"]["content"]["name"], "Ada", "{answer}");
    assert_eq!(first.await.unwrap().unwrap().text(), "hello");
    assert_eq!(user.asked.counts().started, 1);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_names_no_call_outlives_a_cancelled_call_of_a_client_over_http() {
    let (bridge, upstreams) = bridge();
    let service = bridge.http();

    cancel_one_of_two_calls(over_http(&service, LEGACY), upstreams).await;
}

#[tokio::test(start_paused = true)]
async fn a_question_that_names_no_call_outlives_a_cancelled_call_of_a_client_on_a_wire() {
    let (bridge, upstreams) = bridge();
    let (near, far) = wire::memory();
    tokio::spawn(bridge.wire().serve(far));
    let connect = Client::from_wire(near).protocol_version(LEGACY);

    cancel_one_of_two_calls(connect, upstreams).await;
}

/// Sends a call as a modern client that can be asked, with these further params.
fn send_call(client: &mut ScriptedPeer, id: &str, further: &Value) {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    });
    let mut params = json!({"name": "greet", "arguments": {}, "_meta": meta});
    for (name, value) in further.as_object().unwrap() {
        params[name] = value.clone();
    }
    let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    client.send_json(&call);
}

#[tokio::test(start_paused = true)]
async fn a_state_is_refused_if_it_is_forged_or_of_another_call_and_is_used_once() {
    let (bridge, mut upstreams) = bridge();
    let (wire, mut client) = scripted_peer();
    tokio::spawn(bridge.wire().serve(wire));
    send_call(&mut client, "first", &json!({}));
    let mut upstream = upstreams.accept().await;
    let id = upstream.expect("tools/call").await.hold();
    upstream.send_json(&elicitation("name"));
    let asked = client.next_message().await;
    let state = asked["result"]["requestState"].as_str().unwrap();
    let key = asked["result"]["inputRequests"].as_object().unwrap();
    let key = key.keys().next().unwrap();
    let answers = json!({key: {"action": "accept", "content": {"name": "Ada"}}});
    let retry = |state: &str| json!({"requestState": state, "inputResponses": answers});

    let mut forged = state.to_owned().into_bytes();
    forged[60] = if forged[60] == b'A' { b'B' } else { b'A' };
    let forged = String::from_utf8(forged).unwrap();
    let mut other_call = retry(state);
    other_call["arguments"] = json!({"other": true});
    let refused = [
        retry(&forged),
        retry(""),
        retry("r."),
        retry("r.AAAA"),
        other_call,
    ];
    for further in &refused {
        send_call(&mut client, "refused", further);
        let answer = client.next_message().await;
        assert_eq!(answer["error"]["code"], -32602, "{further} {answer}");
    }
    send_call(&mut client, "retry", &retry(state));
    send_call(&mut client, "again", &retry(state));
    let again = client.next_message().await;
    let answered = upstream.next_message().await;
    upstream.answer(id, text("hello Ada"));
    let hello = client.next_message().await;

    assert_eq!(again["id"], "again");
    assert_eq!(again["error"]["code"], -32602, "{again}");
    assert_eq!(answered["result"]["content"]["name"], "Ada");
    assert_eq!(hello["id"], "retry");
    assert_eq!(hello["result"]["content"][0]["text"], "hello Ada");
    upstream.expect_nothing().await;
}
