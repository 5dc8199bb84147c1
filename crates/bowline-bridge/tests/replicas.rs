//! Two bridges as one: clients of each reach what only the other has.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy exempts only `#[test]` functions, not their helpers"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline::Error;
use bowline::client::{Change, ChangeFilter, Host};
use bowline::cluster::{MemoryCluster, MemoryLink};
use bowline::prelude::*;
use bowline::server::{ChangeBus, LocalChangeBus, ServerChange};
use bowline::testing::HandlerCounter;
use bowline::types::ElicitResult;
use bowline_bridge::{Bridge, Target};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Name {
    name: String,
}

/// A server whose every connection has a counter of its own.
fn server(handlers: &HandlerCounter) -> Server {
    let count = Arc::new(AtomicUsize::new(0));
    let next = Tool::new("next", move || {
        let count = count.clone();
        async move { (count.fetch_add(1, Ordering::SeqCst) + 1).to_string() }
    });
    let wait = {
        let handlers = handlers.clone();
        Tool::new("wait", move || {
            let handlers = handlers.clone();
            async move { handlers.run(std::future::pending::<String>()).await }
        })
    };
    let greet = {
        let handlers = handlers.clone();
        Tool::new("greet", move |cx: Context| {
            let handlers = handlers.clone();
            let greeting = async move {
                let name = cx.elicit::<Name>("name", "Who?").await?;
                Ok::<_, ToolError>(format!("Hello, {}!", name.name))
            };
            async move { handlers.run(greeting).await }
        })
    };
    let steps = Tool::new("steps", async |cx: Context| {
        for done in 1..=3 {
            cx.progress(f64::from(done));
        }
        "x".repeat(3 * 1024 * 1024)
    });
    let bus = LocalChangeBus::default();
    let announced = bus.clone();
    let change = Tool::new("change", move || {
        let bus = announced.clone();
        async move {
            bus.publish(ServerChange::Tools);
            "changed"
        }
    });
    Server::new("upstream", "1")
        .change_bus(bus)
        .tool(change)
        .tool(next)
        .tool(wait)
        .tool(greet)
        .tool(steps)
}

/// A bridge that is served over HTTP.
struct Replica {
    bridge: Bridge,
    link: MemoryLink,
    url: String,
    serving: JoinHandle<()>,
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Replica {
    async fn start(cluster: &MemoryCluster, target: Target) -> Self {
        let replica = cluster.replica().unwrap();
        let link = replica.link();
        let bridge = Bridge::new(target).cluster(replica);
        let bound = bridge.http().bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", bound.local_addr());
        let serving = tokio::spawn(async move { bound.serve().await.unwrap() });
        Self {
            bridge,
            link,
            url,
            serving,
        }
    }

    async fn client(&self) -> Client {
        let answer = async |_| ElicitResult::accept(json!({"name": "Ada"}));
        let client = Client::connect(&self.url).protocol_version("2026-07-28");
        client.host(Host::new().elicitation(answer)).await.unwrap()
    }
}

/// Two replicas of a bridge to servers of this version, each with a process of its own for each connection.
async fn replicas(version: &'static str, handlers: &HandlerCounter) -> [Replica; 2] {
    let cluster = MemoryCluster::new();
    let target = || {
        let handlers = handlers.clone();
        Target::new("upstream", move |_| {
            Ok(Client::in_process(&server(&handlers)).protocol_version(version))
        })
    };
    [
        Replica::start(&cluster, target()).await,
        Replica::start(&cluster, target()).await,
    ]
}

async fn next(client: &Client) -> String {
    client.call_tool("next", ()).await.unwrap().text()
}

/// Calls a tool that asks, and returns the params of the retry with the answer.
async fn start_greeting(client: &Client) -> Value {
    let params = json!({"name": "greet", "arguments": {}});
    let asked = client.request_raw("tools/call", params).manual_input();
    let asked: Value = asked.await.unwrap().json().decode().unwrap();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let questions = asked["inputRequests"].as_object().unwrap();
    let key = questions.keys().next().unwrap();
    let answer = json!({"action": "accept", "content": {"name": "Ada"}});
    json!({
        "name": "greet",
        "arguments": {},
        "requestState": asked["requestState"],
        "inputResponses": {key: answer},
    })
}

#[tokio::test]
async fn a_parked_call_is_continued_at_another_replica_and_runs_once() {
    let handlers = HandlerCounter::default();
    let cluster = MemoryCluster::new();
    let target = || {
        let handlers = handlers.clone();
        // Stateless: every replica has connections of its own, and only the parked call has an owner.
        Target::new("upstream", move |_| {
            Ok(Client::in_process(&server(&handlers)).protocol_version("2025-11-25"))
        })
        .stateless()
    };
    let first = Replica::start(&cluster, target()).await;
    let second = Replica::start(&cluster, target()).await;
    let clients = [first.client().await, second.client().await];

    let retry = start_greeting(&clients[0]).await;
    let request = clients[1].request_raw("tools/call", retry.clone());
    let greeted = request.manual_input().await.unwrap();

    assert!(greeted.json().as_str().contains("Hello, Ada!"));
    assert_eq!(handlers.counts().started, 1);
    let again = clients[1].request_raw("tools/call", retry).manual_input();
    let error = again.await.unwrap_err().to_string();
    assert!(error.contains("already used"), "{error}");
    // The client answers by itself, with each request at whichever replica.
    assert_eq!(
        clients[1].call_tool("greet", ()).await.unwrap().text(),
        "Hello, Ada!"
    );
}

#[tokio::test]
async fn a_retry_is_told_that_its_call_was_lost_with_the_replica_that_had_it() {
    let handlers = HandlerCounter::default();
    let [first, second] = replicas("2025-11-25", &handlers).await;
    let retry = start_greeting(&first.client().await).await;
    let client = second.client().await;

    drop(first);
    let request = client.request_raw("tools/call", retry).manual_input();

    let Err(Error::Rpc(error)) = request.await else {
        panic!("the call is continued");
    };
    let data: Value = error.data.unwrap().decode().unwrap();
    assert_eq!(data, json!({"reason": "callLost", "mayHaveRun": true}));
}

#[tokio::test]
async fn clients_of_a_server_with_state_reach_one_process_from_every_replica() {
    for version in ["2026-07-28", "2025-11-25"] {
        let [first, second] = replicas(version, &HandlerCounter::default()).await;
        let clients = [second.client().await, first.client().await];

        let mut counts = Vec::new();
        for number in 0..6 {
            counts.push(next(&clients[number % 2]).await);
        }

        assert_eq!(counts, ["1", "2", "3", "4", "5", "6"], "{version}");
    }
}

#[tokio::test]
async fn a_call_that_was_forwarded_has_its_progress_its_large_result_and_its_cancel() {
    let handlers = HandlerCounter::default();
    let [first, second] = replicas("2026-07-28", &handlers).await;
    let (owner, client) = (first.client().await, second.client().await);
    next(&owner).await;

    let seen = Arc::new(AtomicUsize::new(0));
    let counted = seen.clone();
    let call = client.call_tool("steps", ()).on_progress(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    assert_eq!(call.await.unwrap().text().len(), 3 * 1024 * 1024);
    assert_eq!(seen.load(Ordering::SeqCst), 3);

    let call = tokio::spawn(async move { client.call_tool("wait", ()).await.map(drop) });
    handlers.wait_for(|counts| counts.started == 1).await;
    assert_eq!(first.bridge.usage().requests, 1);
    assert_eq!(second.bridge.usage().requests, 0);
    call.abort();
    handlers.wait_for(|counts| counts.dropped == 1).await;
}

#[tokio::test]
async fn a_subscription_reports_the_changes_of_the_process_that_calls_reach() {
    let [first, second] = replicas("2026-07-28", &HandlerCounter::default()).await;
    let (owner, client) = (first.client().await, second.client().await);
    next(&owner).await;
    let mut changes = client.subscribe(ChangeFilter::new().tools()).await.unwrap();

    owner.call_tool("change", ()).await.unwrap();

    assert_eq!(changes.next().await.unwrap(), Some(Change::Tools));
}

#[tokio::test]
async fn another_replica_takes_over_from_an_owner_that_closes_or_is_gone() {
    let [first, second] = replicas("2026-07-28", &HandlerCounter::default()).await;
    let (owner, client) = (first.client().await, second.client().await);
    assert_eq!(next(&owner).await, "1");
    assert_eq!(next(&client).await, "2");

    first.bridge.close().await;
    assert_eq!(next(&client).await, "1");
    assert_eq!(next(&client).await, "2");

    let [first, second] = replicas("2026-07-28", &HandlerCounter::default()).await;
    let (owner, client) = (first.client().await, second.client().await);
    assert_eq!(next(&owner).await, "1");
    drop(first);
    assert_eq!(next(&client).await, "1");
}

#[tokio::test]
async fn without_the_engine_a_server_with_state_is_refused_and_nothing_runs() {
    let [first, second] = replicas("2026-07-28", &HandlerCounter::default()).await;
    let (owner, client) = (first.client().await, second.client().await);
    next(&owner).await;

    second.link.cut();

    let Err(Error::Rpc(error)) = client.call_tool("next", ()).await else {
        panic!("the call is answered");
    };
    assert_eq!(error.code, bowline::ErrorCode::INTERNAL_ERROR);
    second.link.restore();
    assert_eq!(next(&client).await, "2");
}
