//! The laws of servers that share an engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_types::{ElicitAction, ElicitResult};
use serde_json::{Value, json};

use super::{ClusterFixture, EngineLink, WAIT_LIMIT, cluster, unique, until};
use crate::client::{Change, ChangeFilter, Host, Subscription};
use crate::cluster::Cluster;
use crate::{Client, Context, Server, Tool, ToolError};

/// A server, its connection to the engine, and its cluster.
struct Replica {
    server: Server,
    link: Arc<dyn EngineLink>,
    cluster: Cluster,
}

async fn replicas<const N: usize>(
    fixture: &dyn ClusterFixture,
    server: impl Fn(Server) -> Server,
) -> [Replica; N] {
    // Servers of another law have another name, and do not share changes.
    let name = unique("server");
    let replicas = fixture.replicas(N).await.into_iter().map(|replica| {
        let link = replica.link.clone();
        let cluster = cluster(replica);
        let server = server(Server::new(&name, "1.0.0")).cluster(cluster.clone());
        Replica {
            server,
            link,
            cluster,
        }
    });
    let replicas: Vec<_> = replicas.collect();
    replicas
        .try_into()
        .ok()
        .expect("the fixture makes as many as it is asked for")
}

/// Subscribes at a replica, which acknowledges that when it receives the changes of the others.
async fn subscribe(replica: &Replica) -> (Client, Subscription) {
    let client = Client::in_process(&replica.server).await.unwrap();
    let filter = ChangeFilter::new().tools().resource(URI);
    let changes = client.subscribe(filter).await.unwrap();
    (client, changes)
}

async fn next(changes: &mut Subscription) -> Change {
    let next = tokio::time::timeout(WAIT_LIMIT, changes.next()).await;
    let next = next.expect("a change arrives").unwrap();
    next.expect("the subscription is open")
}

fn notes(server: Server) -> Server {
    let now = Tool::new("now", async || "noon");
    server.tool(now).resource_subscriptions()
}

/// A change at one replica is notified to the subscribers of all.
pub async fn changes_reach_the_subscriptions_of_every_replica(fixture: &dyn ClusterFixture) {
    let replicas = replicas::<3>(fixture, notes).await;
    let mut subscriptions = Vec::new();
    for replica in &replicas {
        subscriptions.push(subscribe(replica).await);
    }

    for (number, replica) in replicas.iter().enumerate() {
        replica.server.changed().tools();
        for (_, changes) in &mut subscriptions {
            assert_eq!(next(changes).await, Change::Tools, "of replica {number}");
        }
        replica.server.changed().resource_updated(URI);
        for (_, changes) in &mut subscriptions {
            assert_eq!(next(changes).await, Change::Resource(URI.to_owned()));
        }
    }
}

/// A change while the engine is away from the subscriber, or from the server that changed, is notified afterwards.
pub async fn subscribers_learn_of_changes_during_an_outage(fixture: &dyn ClusterFixture) {
    let [first, second] = &replicas(fixture, notes).await;
    let (_client, mut changes) = subscribe(second).await;

    second.link.cut();
    first.server.changed().tools();
    until("the change was sent", || async {
        first.cluster.counts().told > 0
    })
    .await;
    second.link.restore();
    while next(&mut changes).await != Change::Tools {}

    first.link.cut();
    first.server.changed().resource_updated(URI);
    until("the change could not be sent", || async {
        first.cluster.counts().lost > 0
    })
    .await;
    first.link.restore();
    while next(&mut changes).await != Change::Resource(URI.to_owned()) {}
}

/// The rounds of a request may reach any replica, and what is done once is not done again at another.
pub async fn an_effect_happens_once_at_whichever_replica(fixture: &dyn ClusterFixture) {
    let charges = Arc::new(AtomicUsize::new(0));
    let shop = |server: Server| {
        let charges = charges.clone();
        let buy = Tool::new("buy", move |cx: Context| {
            let charges = charges.clone();
            async move {
                cx.elicit::<Answer>("sure", "Sure?").await?;
                let nth = async { charges.fetch_add(1, Ordering::SeqCst) + 1 };
                let nth = cx.once("charge", nth).await?;
                cx.elicit::<Answer>("stars", "How was it?").await?;
                Ok::<_, ToolError>(format!("charge {nth}"))
            }
        });
        server.tool(buy)
    };
    let mut clients = Vec::new();
    for replica in replicas::<2>(fixture, shop).await {
        let host = Host::new().elicitation(async |_| ElicitResult::new(ElicitAction::Decline));
        let client = Client::in_process(&replica.server).host(host).await;
        clients.push(client.unwrap());
    }
    let reply = clients[0].call_tool("buy", ()).manual_input().await;
    let state = json!(reply.unwrap().input_required().unwrap().request_state);

    // The same state at both replicas, and the next round at the other one.
    let mut states = Vec::new();
    for client in &clients {
        states.push(answer(client, "sure", &state).await);
    }
    states.reverse();
    for (client, state) in clients.iter().zip(&states) {
        assert_eq!(answer(client, "stars", state).await, "charge 1");
    }
    assert_eq!(charges.load(Ordering::SeqCst), 1);
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[allow(dead_code, reason = "its schema is the form")]
struct Answer {
    text: String,
}

/// Answers one elicitation, and returns the next state or the text of the result.
async fn answer(client: &Client, key: &str, state: &Value) -> Value {
    let answers = json!({key: {"action": "accept", "content": {"text": "yes"}}});
    let params = json!({
        "name": "buy", "arguments": {}, "inputResponses": answers, "requestState": state,
    });
    let call = client.request_raw("tools/call", params).manual_input();
    let reply = call.await.unwrap();
    match reply.input_required() {
        Some(required) => json!(required.request_state),
        None => json!(reply.text()),
    }
}

const URI: &str = "notes://a";
