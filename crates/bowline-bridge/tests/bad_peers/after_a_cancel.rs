//! What a legacy server gets, and whom its questions reach, after a call was cancelled and while several run.

use std::time::Duration;

use bowline::client::{Change, ChangeFilter, Host};
use bowline::prelude::*;
use bowline::testing::{HandlerCounter, ScriptedPeer};
use bowline::types::ElicitResult;
use bowline::wire;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::scripted::{LEGACY, MODERN, bridge, bystander, elicitation, over_http, text, user};

type Answer = JoinHandle<bowline::Result<bowline::client::Reply>>;

fn call(client: &Client, tool: &str) -> Answer {
    tokio::spawn(client.call_tool(tool, ()).start())
}

/// Answers a call with the numbers of all calls that the process was sent.
async fn remember(upstream: &mut ScriptedPeer, history: &mut Vec<u64>) {
    let call = upstream.expect("tools/call").await;
    history.push(call.params()["arguments"]["number"].as_u64().unwrap());
    call.answer(text(&json!(history).to_string()));
}

#[tokio::test(start_paused = true)]
async fn calls_after_a_cancelled_one_stay_in_the_process_of_their_client() {
    let (bridge, mut upstreams) = bridge();
    let client = over_http(&bridge.http(), MODERN).host(user("Ada"));
    let client = client.await.unwrap();
    let think = |number: u64| {
        tokio::spawn(
            client
                .call_tool("think", json!({ "number": number }))
                .start(),
        )
    };
    let first = think(1);
    let mut upstream = upstreams.accept().await;
    let mut history = Vec::new();
    remember(&mut upstream, &mut history).await;
    first.await.unwrap().unwrap();
    for number in [2, 3] {
        let next = think(number);
        remember(&mut upstream, &mut history).await;
        next.await.unwrap().unwrap();
    }

    let cancelled = think(4);
    let id = upstream.expect("tools/call").await.hold();
    cancelled.abort();
    upstream.expect_cancel(&id).await;
    let mut last = String::new();
    for number in [5, 6] {
        let next = think(number);
        remember(&mut upstream, &mut history).await;
        last = next.await.unwrap().unwrap().text();
    }

    assert_eq!(last, "[1,2,3,5,6]");
    assert!(upstreams.is_empty());
}

#[tokio::test(start_paused = true)]
async fn calls_at_the_same_time_share_the_process_of_their_client() {
    let (bridge, mut upstreams) = bridge();
    let client = over_http(&bridge.http(), MODERN).host(bystander());
    let client = client.await.unwrap();

    let calls = [call(&client, "first"), call(&client, "second")];
    let mut upstream = upstreams.accept().await;
    let ids = [
        upstream.expect("tools/call").await.hold(),
        upstream.expect("tools/call").await.hold(),
    ];

    for id in ids {
        upstream.answer(id, text("done"));
    }
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().text(), "done");
    }
    assert!(upstreams.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_subscription_hears_what_calls_after_a_cancelled_one_change() {
    let (bridge, mut upstreams) = bridge();
    let client = over_http(&bridge.http(), MODERN).host(user("Ada"));
    let client = client.await.unwrap();
    let subscriber = client.clone();
    let subscribing =
        tokio::spawn(async move { subscriber.subscribe(ChangeFilter::new().tools()).await });
    let mut upstream = upstreams.accept().await;
    let mut changes = subscribing.await.unwrap().unwrap();
    let cancelled = call(&client, "slow");
    let id = upstream.expect("tools/call").await.hold();
    cancelled.abort();
    upstream.expect_cancel(&id).await;

    let change = call(&client, "change");
    let changing = upstream.expect("tools/call").await;
    let changing = changing.notify("notifications/tools/list_changed", json!({}));
    changing.answer(text("changed"));

    assert_eq!(change.await.unwrap().unwrap().text(), "changed");
    assert_eq!(changes.next().await.unwrap(), Some(Change::Tools));
}

/// Asks, and expects that the question is refused.
async fn expect_refusal(upstream: &mut ScriptedPeer, question: &str) -> Value {
    upstream.send_json(&elicitation(question));
    let refusal = upstream.next_message().await;
    assert_eq!(refusal["id"], question, "{refusal}");
    assert_eq!(refusal["error"]["code"], -32603, "{refusal}");
    refusal
}

/// Asks, and expects that the user of a client answers.
async fn expect_answer(upstream: &mut ScriptedPeer, question: &str, user: &str) {
    upstream.send_json(&elicitation(question));
    let answer = upstream.next_message().await;
    assert_eq!(answer["id"], question, "{answer}");
    assert_eq!(answer["result"]["content"]["name"], user, "{answer}");
}

/// Lets time pass, and the other tasks run meanwhile.
async fn pass(time: Duration) {
    for _ in 0..100 {
        tokio::time::advance(time / 100).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_soon_after_a_cancel_is_not_put_to_the_next_call() {
    for is_wire in [false, true] {
        let (bridge, mut upstreams) = bridge();
        let asked = HandlerCounter::default();
        let counter = asked.clone();
        let host = Host::new().elicitation(move |_| {
            let counter = counter.clone();
            async move {
                let answer = async { ElicitResult::accept(json!({"name": "Ada"})) };
                counter.run(answer).await
            }
        });
        let connect = match is_wire {
            true => {
                let (near, far) = wire::memory();
                tokio::spawn(bridge.wire().serve(far));
                Client::from_wire(near).protocol_version(MODERN)
            }
            false => over_http(&bridge.http(), MODERN),
        };
        let client = connect.host(host).await.unwrap();
        let cancelled = call(&client, "first");
        let mut upstream = upstreams.accept().await;
        let id = upstream.expect("tools/call").await.hold();
        cancelled.abort();
        upstream.expect_cancel(&id).await;

        let next = call(&client, "second");
        let id = upstream.expect("tools/call").await.hold();
        expect_refusal(&mut upstream, "late").await;
        assert_eq!(asked.counts().started, 0, "the next call was asked");
        tokio::time::advance(Duration::from_secs(5)).await;
        expect_answer(&mut upstream, "own", "Ada").await;
        upstream.answer(id, text("hello"));

        assert_eq!(next.await.unwrap().unwrap().text(), "hello");
        assert_eq!(asked.counts().started, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_during_several_calls_of_one_client_is_put_to_it() {
    let (bridge, mut upstreams) = bridge();
    let (near, far) = wire::memory();
    tokio::spawn(bridge.wire().serve(far));
    let connect = Client::from_wire(near).protocol_version(MODERN);
    let client = connect.host(user("Ada")).await.unwrap();
    let calls = [call(&client, "first"), call(&client, "second")];
    let mut upstream = upstreams.accept().await;
    let ids = [
        upstream.expect("tools/call").await.hold(),
        upstream.expect("tools/call").await.hold(),
    ];

    expect_answer(&mut upstream, "whose", "Ada").await;
    for id in ids {
        upstream.answer(id, text("done"));
    }

    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().text(), "done");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_during_calls_of_clients_without_a_name_waits_until_one_is_left() {
    let (bridge, mut upstreams) = bridge();
    let service = bridge.http();
    let ada = over_http(&service, MODERN).host(user("Ada")).await.unwrap();
    let eve = over_http(&service, MODERN).host(bystander()).await.unwrap();
    let of_ada = call(&ada, "greet");
    let mut upstream = upstreams.accept().await;
    let id_of_ada = upstream.expect("tools/call").await.hold();
    let of_eve = call(&eve, "echo");
    let id_of_eve = upstream.expect("tools/call").await.hold();

    upstream.send_json(&elicitation("whose"));
    pass(Duration::from_secs(20)).await;
    upstream.answer(id_of_eve, text("eve"));
    assert_eq!(of_eve.await.unwrap().unwrap().text(), "eve");
    let answer = upstream.next_message().await;
    assert_eq!(answer["result"]["content"]["name"], "Ada", "{answer}");
    upstream.answer(id_of_ada, text("hello"));

    assert_eq!(of_ada.await.unwrap().unwrap().text(), "hello");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_waits_is_refused_if_one_of_the_calls_is_cancelled_or_it_takes_too_long() {
    for is_cancelled in [true, false] {
        let (bridge, mut upstreams) = bridge();
        let service = bridge.http();
        let ada = over_http(&service, MODERN).host(bystander()).await.unwrap();
        let eve = over_http(&service, MODERN).host(bystander()).await.unwrap();
        let of_ada = call(&ada, "greet");
        let mut upstream = upstreams.accept().await;
        let id_of_ada = upstream.expect("tools/call").await.hold();
        let of_eve = call(&eve, "echo");
        let id_of_eve = upstream.expect("tools/call").await.hold();
        upstream.send_json(&elicitation("whose"));
        pass(Duration::from_secs(1)).await;

        if is_cancelled {
            of_ada.abort();
        }
        let mut refused = upstream.next_message().await;
        if refused["method"] == "notifications/cancelled" {
            refused = upstream.next_message().await;
        }

        assert_eq!(refused["id"], "whose", "{refused}");
        assert_eq!(refused["error"]["code"], -32603, "{refused}");
        upstream.answer(id_of_eve, text("eve"));
        assert_eq!(of_eve.await.unwrap().unwrap().text(), "eve");
        if !is_cancelled {
            upstream.answer(id_of_ada, text("ada"));
            assert_eq!(of_ada.await.unwrap().unwrap().text(), "ada");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_is_asked_after_a_cancel() {
    let (bridge, mut upstreams) = bridge();
    let (near, far) = wire::memory();
    tokio::spawn(bridge.wire().serve(far));
    let connect = Client::from_wire(near).protocol_version(LEGACY);
    let connecting = tokio::spawn(connect.host(user("Ada")).into_future());
    let mut upstream = upstreams.accept().await;
    let client = connecting.await.unwrap().unwrap();
    let cancelled = call(&client, "first");
    let id = upstream.expect("tools/call").await.hold();
    cancelled.abort();
    upstream.expect_cancel(&id).await;

    let next = call(&client, "second");
    let id = upstream.expect("tools/call").await.hold();
    expect_answer(&mut upstream, "name", "Ada").await;
    upstream.answer(id, text("hello"));

    assert_eq!(next.await.unwrap().unwrap().text(), "hello");
}
