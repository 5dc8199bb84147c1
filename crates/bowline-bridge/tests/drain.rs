//! The drain of a bridge: a call that waits for an answer between two requests finishes, and new calls are refused.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::time::Duration;

use bowline::client::Host;
use bowline::prelude::*;
use bowline::testing::HandlerCounter;
use bowline::types::{ElicitAction, ElicitResult};
use bowline::{Error, wire};
use bowline_bridge::{Bridge, Target};
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Name {
    name: String,
}

/// A bridge to a legacy server whose tool asks twice.
fn bridge(handlers: &HandlerCounter) -> Bridge {
    let handlers = handlers.clone();
    let greet = Tool::new("greet", move |cx: Context| {
        let handlers = handlers.clone();
        let greeting = async move {
            let first = cx.elicit::<Name>("first", "Who?").await?;
            let second = cx.elicit::<Name>("second", "Who else?").await?;
            Ok::<_, ToolError>(format!("Hello, {} and {}!", first.name, second.name))
        };
        async move { handlers.run(greeting).await }
    });
    let server = Server::new("upstream", "1").tool(greet);
    Bridge::new(Target::new("upstream", move |_| {
        Ok(Client::in_process(&server).protocol_version("2025-11-25"))
    }))
}

/// Declares that the client can be asked. The tests answer themselves.
fn host() -> Host {
    Host::new().elicitation(async |_| ElicitResult::new(ElicitAction::Cancel))
}

/// Calls the tool, or continues the call with an answer.
async fn call(client: &Client, asked: Option<(&Value, &str)>) -> Result<Value, Error> {
    let mut params = json!({"name": "greet", "arguments": {}});
    if let Some((asked, name)) = asked {
        let key = asked["inputRequests"].as_object().unwrap().keys().next();
        let answer = json!({"action": "accept", "content": {"name": name}});
        params["requestState"] = asked["requestState"].clone();
        params["inputResponses"] = json!({key.unwrap(): answer});
    }
    let reply = client.request_raw("tools/call", params).manual_input();
    Ok(reply.await?.json().decode().unwrap())
}

/// Parks a call, drains with `shut_down`, and finishes the call. Returns how many calls were refused.
async fn finish_parked_call(client: &Client, bridge: &Bridge, shut_down: impl FnOnce()) -> usize {
    let asked = call(client, None).await.unwrap();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    assert_eq!(bridge.usage().waiting_calls, 1);

    shut_down();

    let mut refused = 0;
    for _ in 0..3 {
        let error = call(client, None).await.unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_secs(1)), "{error}");
        refused += 1;
    }
    let again = call(client, Some((&asked, "Ada"))).await.unwrap();
    let done = call(client, Some((&again, "Bo"))).await.unwrap();
    assert_eq!(done["content"][0]["text"], "Hello, Ada and Bo!", "{done}");
    refused
}

#[tokio::test]
async fn a_parked_call_finishes_while_a_bridge_over_http_drains() {
    let handlers = HandlerCounter::default();
    let bridge = bridge(&handlers);
    let bound = bridge
        .http()
        .grace(MINUTE)
        .bind("127.0.0.1:0")
        .await
        .unwrap();
    let (service, url) = (
        bound.service(),
        format!("http://{}/mcp", bound.local_addr()),
    );
    let serving = tokio::spawn(bound.serve());
    let client = Client::connect(&url)
        .protocol_version("2026-07-28")
        .host(host());
    let client = client.retry_unavailable(Duration::ZERO).await.unwrap();

    let refused = finish_parked_call(&client, &bridge, || service.shut_down(MINUTE)).await;

    serving.await.unwrap().unwrap();
    let report = service.drain_report();
    assert_eq!((report.refused, report.cancelled), (refused, 0));
    assert_eq!(
        (handlers.counts().finished, handlers.counts().dropped),
        (1, 0)
    );
    bridge.close().await;
}

#[tokio::test]
async fn a_parked_call_finishes_while_a_bridge_over_a_wire_drains() {
    let handlers = HandlerCounter::default();
    let bridge = bridge(&handlers);
    let service = bridge.wire();
    let (near, far) = wire::memory();
    let serving = tokio::spawn(service.clone().serve(far));
    let client = Client::from_wire(near)
        .protocol_version("2026-07-28")
        .host(host());
    let client = client.await.unwrap();

    let refused = finish_parked_call(&client, &bridge, || service.shut_down(MINUTE)).await;

    serving.await.unwrap().unwrap();
    let report = service.drain_report();
    assert_eq!((report.refused, report.cancelled), (refused, 0));
    assert_eq!(
        (handlers.counts().finished, handlers.counts().dropped),
        (1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_parked_call_without_an_answer_ends_with_the_grace_period() {
    let handlers = HandlerCounter::default();
    let bridge = bridge(&handlers);
    let service = bridge.wire();
    let (near, far) = wire::memory();
    let serving = tokio::spawn(service.clone().serve(far));
    let client = Client::from_wire(near)
        .protocol_version("2026-07-28")
        .host(host());
    let client = client.await.unwrap();
    call(&client, None).await.unwrap();
    let begun = tokio::time::Instant::now();

    service.shut_down(MINUTE);
    serving.await.unwrap().unwrap();

    assert_eq!(begun.elapsed(), MINUTE);
    assert_eq!(service.drain_report().cancelled, 1);
}
