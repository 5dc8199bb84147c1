//! Two servers of one cluster: changes and effects of one at the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::client::{Change, ChangeFilter, Host, Subscription};
use bowline::cluster::{MemoryCluster, MemoryLink};
use bowline::types::{ElicitAction, ElicitResult};
use bowline::{Client, Context, Server, Tool, ToolError};
use serde_json::{Value, json};

struct Replica {
    server: Server,
    link: MemoryLink,
}

fn replica(cluster: &MemoryCluster, name: &str) -> Replica {
    let replica = cluster.replica().unwrap();
    let link = replica.link();
    let now = Tool::new("now", async || "noon");
    let server = Server::new(name, "1.0.0").tool(now);
    Replica {
        server: server.resource_subscriptions().cluster(replica),
        link,
    }
}

fn filter() -> ChangeFilter {
    ChangeFilter::new().tools().resource("notes://a")
}

async fn next(changes: &mut Subscription) -> Change {
    let next = tokio::time::timeout(Duration::from_secs(60), changes.next()).await;
    next.expect("a change arrives")
        .unwrap()
        .expect("the subscription is open")
}

/// Subscribes at a replica, which acknowledges that when it receives the changes of the others.
async fn subscribed(replica: &Replica) -> (Client, Subscription) {
    let client = Client::in_process(&replica.server).await.unwrap();
    let changes = client.subscribe(filter()).await.unwrap();
    (client, changes)
}

#[tokio::test(start_paused = true)]
async fn a_change_reaches_the_subscriptions_of_every_replica_once() {
    let cluster = MemoryCluster::new();
    let replicas = [replica(&cluster, "notes"), replica(&cluster, "notes")];
    let mut subscriptions = Vec::new();
    for replica in &replicas {
        subscriptions.push(subscribed(replica).await);
    }

    replicas[0].server.changed().resource_updated("notes://a");
    replicas[0].server.changed().tools();

    for (_, changes) in &mut subscriptions {
        let received = [next(changes).await, next(changes).await];
        assert!(received.contains(&Change::Tools), "{received:?}");
        let more = tokio::time::timeout(Duration::from_secs(60), changes.next()).await;
        assert!(more.is_err(), "{more:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn servers_with_other_names_do_not_share_changes() {
    let cluster = MemoryCluster::new();
    let (notes, mail) = (replica(&cluster, "notes"), replica(&cluster, "mail"));
    let (_client, mut changes) = subscribed(&notes).await;

    mail.server.changed().tools();

    let more = tokio::time::timeout(Duration::from_secs(60), changes.next()).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_learns_of_changes_during_an_outage() {
    let cluster = MemoryCluster::new();
    let (first, second) = (replica(&cluster, "notes"), replica(&cluster, "notes"));
    let (_client, mut changes) = subscribed(&second).await;

    // The replica with the subscription was cut off.
    second.link.cut();
    first.server.changed().tools();
    second.link.restore();
    let received = [next(&mut changes).await, next(&mut changes).await];
    assert!(received.contains(&Change::Tools), "{received:?}");

    // The replica with the change was cut off.
    first.link.cut();
    first.server.changed().tools();
    let lost = || first.server.joined_cluster().unwrap().counts().lost;
    assert!(bowline::testing::eventually(|| lost() > 0).await);
    first.link.restore();
    let received = [next(&mut changes).await, next(&mut changes).await];
    assert!(received.contains(&Change::Tools), "{received:?}");
}

#[tokio::test(start_paused = true)]
async fn changes_of_a_replica_reach_its_own_subscriptions_without_the_engine() {
    let cluster = MemoryCluster::new();
    let replica = replica(&cluster, "notes");
    replica.link.cut();
    let client = Client::in_process(&replica.server).await.unwrap();
    let mut changes = client.subscribe(filter()).await.unwrap();

    replica.server.changed().tools();

    assert_eq!(next(&mut changes).await, Change::Tools);
}

/// A tool that asks once, charges once, and asks again.
fn shop(charges: &Arc<AtomicUsize>, cluster: &MemoryCluster) -> Server {
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
    let server = Server::new("shop", "1.0.0").tool(buy);
    server.cluster(cluster.replica().unwrap())
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[allow(dead_code, reason = "its schema is the form")]
struct Answer {
    text: String,
}

#[tokio::test(start_paused = true)]
async fn the_rounds_of_a_request_may_reach_any_replica_and_an_effect_happens_once() {
    let (charges, cluster) = (Arc::new(AtomicUsize::new(0)), MemoryCluster::new());
    let servers = [shop(&charges, &cluster), shop(&charges, &cluster)];
    let mut clients = Vec::new();
    for server in &servers {
        // The answers are sent by hand.
        let host = Host::new().elicitation(async |_| ElicitResult::new(ElicitAction::Decline));
        clients.push(Client::in_process(server).host(host).await.unwrap());
    }
    let reply = clients[0]
        .call_tool("buy", ())
        .manual_input()
        .await
        .unwrap();
    let state = json!(reply.input_required().unwrap().request_state.unwrap());

    // The same state at both replicas, and the next round at the other one.
    let mut next = Vec::new();
    for client in &clients {
        next.push(answer(client, "sure", &state).await);
    }
    next.reverse();
    for (client, state) in clients.iter().zip(&next) {
        assert_eq!(answer(client, "stars", state).await, "charge 1");
    }
    assert_eq!(charges.load(Ordering::SeqCst), 1);
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
        Some(required) => json!(required.request_state.unwrap()),
        None => json!(reply.text()),
    }
}
