//! Tasks of several principals at a server that knows the bridge only: none of them reaches those of another.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy exempts only `#[test]` functions, not their helpers"
)]

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::cluster::MemoryCluster;
use bowline::exchange::{
    CallOptions, Channel as _, ExchangeEvent, Outcome, Principal, Request, Responder as _,
};
use bowline::prelude::*;
use bowline::testing::HandlerCounter;
use bowline::{Error, ErrorCode, Json};
use bowline_bridge::{Bridge, BridgeConfig, Target};
use bowline_tasks::store::MemoryStore;
use bowline_tasks::{TaskCall as _, TaskClient, TaskSettings, Tasks};
use serde_json::{Value, json};

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";
const ERAS: [&str; 2] = [MODERN, LEGACY];

/// A server that takes all clients for one, with a tool that hangs.
fn server(handlers: &HandlerCounter) -> Server {
    let handlers = handlers.clone();
    let hang = Tool::new("hang", move || {
        let handlers = handlers.clone();
        async move { handlers.run(pending::<String>()).await }
    });
    Server::new("upstream", "1")
        .extension(Tasks::new(Arc::new(MemoryStore::new())))
        .tool(hang.with_settings(TaskSettings::new()))
}

fn target(server: &Server, version: &'static str) -> Target {
    let server = server.clone();
    Target::new("upstream", move |_| {
        Ok(Client::in_process(&server).protocol_version(version))
    })
}

/// A bridge to a server of a file.
fn of_file(target: &Target) -> Bridge {
    let config =
        r#"{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b", "disabled": true}}}"#;
    let config = BridgeConfig::from_json(config).unwrap();
    let target = target.clone();
    Bridge::from_config_with(&config, move |_| Ok(target.clone())).unwrap()
}

/// A bridge to one server, one to a server of a file, and one whose connections are shared by all modern clients.
fn bridges(target: &Target) -> [(&'static str, Bridge); 3] {
    [
        ("one server", Bridge::new(target.clone())),
        ("a file", of_file(target)),
        ("shared", Bridge::new(target.clone().stateless())),
    ]
}

/// A client of a bridge that a layer has authenticated.
async fn connect_as(bridge: &Bridge, name: &str, version: &str) -> Client {
    let (bridge, principal) = (bridge.clone(), Principal::named(name));
    let responder = move |request: Request, cx: Context| {
        let (bridge, cx) = (bridge.clone(), cx.with_principal(principal.clone()));
        async move { bridge.respond(request, cx).await }
    };
    let client = Client::in_process(&responder).protocol_version(version);
    match version {
        MODERN => client.extension(TaskClient::new()).await.unwrap(),
        _ => client.await.unwrap(),
    }
}

/// Calls the tool as a task, and returns the id.
async fn start(client: &Client, version: &str) -> String {
    if version == MODERN {
        let task = client.call_tool("hang", ()).as_task().await.unwrap();
        return task.id().unwrap().to_owned();
    }
    let params = json!({"name": "hang", "arguments": {}, "task": {"ttl": 3_600_000}});
    let created = request(client, "tools/call", params).await.unwrap();
    created["task"]["taskId"].as_str().unwrap().to_owned()
}

async fn request(client: &Client, method: &str, params: Value) -> Result<Value, Error> {
    let reply = client.request_raw(method, params).await?;
    Ok(reply.json().decode().unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_tasks_of_another_principal_are_not_found_with_any_verb_in_any_era() {
    let mut cells = 0;
    for (front, back) in ERAS
        .iter()
        .flat_map(|front| ERAS.map(|back| (*front, back)))
    {
        let handlers = HandlerCounter::default();
        let server = server(&handlers);
        for (kind, bridge) in bridges(&target(&server, back)) {
            let cell = format!("{front} to {back}, {kind}");
            let ada = connect_as(&bridge, "ada", front).await;
            let bob = connect_as(&bridge, "bob", front).await;
            let of_ada = start(&ada, front).await;
            let before = handlers.counts();

            for method in ["tasks/get", "tasks/result", "tasks/cancel", "tasks/update"] {
                let ask = async |id: &str| {
                    let params = json!({"taskId": id, "inputResponses": {}});
                    let asked = request(&bob, method, params).await;
                    asked.map_err(|error| error.to_string())
                };
                let (foreign, unknown) = (ask(&of_ada).await, ask("none").await);
                let unknown = unknown.unwrap_err();
                assert_eq!(foreign.unwrap_err(), unknown, "{method}, {cell}");
                assert!(unknown.contains("task not found"), "{unknown}, {cell}");
                cells += 1;
            }
            assert_eq!(handlers.counts().dropped, before.dropped, "{cell}");
            let later = connect_as(&bridge, "ada", front).await;
            for client in [&ada, &later] {
                let params = json!({"taskId": of_ada});
                let found = request(client, "tasks/get", params).await.unwrap();
                assert_eq!(found["status"], "working", "{cell}");
            }
            let params = json!({"taskId": of_ada});
            request(&ada, "tasks/cancel", params).await.unwrap();
            let dropped = before.dropped + 1;
            handlers.wait_for(|counts| counts.dropped == dropped).await;
        }
    }
    assert_eq!(cells, 2 * 2 * 3 * 4);
}

/// A legacy server that lists the tasks of all its clients: to it they are one.
async fn lister(request: Request, names: Arc<Mutex<Vec<String>>>) -> Outcome {
    let params: Value = request.params.decode().unwrap();
    let task = |id: &String| {
        json!({"taskId": id, "status": "working", "createdAt": "2026-01-01T00:00:00Z",
            "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttl": null})
    };
    let result = match &*request.method {
        "server/discover" => json!({
            "supportedVersions": [LEGACY],
            "capabilities": {"tools": {}, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}},
            "serverInfo": {"name": "lister", "version": "1"},
        }),
        "tools/list" => json!({"tools": [{
            "name": "job", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"},
        }]}),
        "tools/call" => {
            let id = params["arguments"]["id"].as_str().unwrap().to_owned();
            names.lock().unwrap().push(id.clone());
            json!({ "task": task(&id) })
        }
        "tasks/list" => {
            let tasks: Vec<_> = names.lock().unwrap().iter().map(task).collect();
            json!({"tasks": tasks, "nextCursor": "more"})
        }
        other => panic!("unexpected request: {other}"),
    };
    Ok(result.into())
}

#[tokio::test(start_paused = true)]
async fn a_list_has_the_tasks_of_the_principal_only() {
    for front in ERAS {
        let tasks = Arc::<Mutex<Vec<String>>>::default();
        let responder = move |request: Request, _: Context| lister(request, tasks.clone());
        let target = Target::new("upstream", move |_| {
            Ok(Client::in_process(&responder).protocol_version(LEGACY))
        });
        for (kind, bridge) in bridges(&target) {
            let list = async |name: &str| {
                let client = connect_as(&bridge, name, front).await;
                let id = format!("{kind} {name}");
                if front == MODERN {
                    let called = client.call_tool("job", json!({ "id": id })).as_task();
                    called.await.unwrap();
                } else {
                    let params = json!({"name": "job", "arguments": {"id": id}, "task": {}});
                    request(&client, "tools/call", params).await.unwrap();
                }
                let page = request(&client, "tasks/list", json!({})).await.unwrap();
                assert!(page["nextCursor"].is_string(), "{page}");
                let tasks = page["tasks"].as_array().unwrap().clone();
                (id, tasks)
            };

            for name in ["ada", "bob"] {
                let (id, tasks) = list(name).await;
                let listed: Vec<_> = tasks.iter().map(|task| &task["taskId"]).collect();
                assert_eq!(listed, [&json!(id)], "{front}, {kind}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_id_that_is_given_twice_is_refused() {
    for version in ERAS {
        let bridge = Bridge::new(target(&server(&HandlerCounter::default()), version));
        let ada = connect_as(&bridge, "ada", version).await;
        let bob = connect_as(&bridge, "bob", version).await;
        let [of_ada, of_bob] = [start(&ada, version).await, start(&bob, version).await];

        for ids in [[&of_ada, &of_bob], [&of_bob, &of_ada]] {
            let params = format!(r#"{{"taskId":"{}","task\u0049d":"{}"}}"#, ids[0], ids[1]);
            let params: Json = Json::parse(params).unwrap();
            let refused = bob.request_raw("tasks/get", params).await.unwrap_err();
            assert!(refused.to_string().contains("`taskId`"), "{refused}");
        }
    }
}

/// Subscribes to tasks.
async fn subscribe(bridge: &Bridge, name: &str, ids: &[&str]) -> ExchangeEvent {
    let (own, principal) = (bridge.clone(), Principal::named(name));
    let responder = move |request: Request, cx: Context| {
        let (own, cx) = (own.clone(), cx.with_principal(principal.clone()));
        async move { own.respond(request, cx).await }
    };
    let connect = Client::in_process(&responder).protocol_version(MODERN);
    let connection = connect.extension(TaskClient::new()).connection().await;
    let connection = connection.unwrap();
    let params = json!({"notifications": {"taskIds": ids}});
    let request = Request::new("subscriptions/listen", params, connection.caller());
    let mut exchange = connection.open(request, CallOptions::default());
    exchange.next_event().await
}

/// Subscribes to tasks, and returns the ids that are acknowledged.
async fn acknowledged(bridge: &Bridge, name: &str, ids: &[&str]) -> Value {
    let ExchangeEvent::Notification(first) = subscribe(bridge, name, ids).await else {
        panic!("expected a notification");
    };
    let mut params: Value = first.params.unwrap().decode().unwrap();
    params["notifications"]["taskIds"].take()
}

#[tokio::test(start_paused = true)]
async fn a_subscription_does_not_hear_of_the_tasks_of_another_principal() {
    for (kind, bridge) in bridges(&target(&server(&HandlerCounter::default()), MODERN)) {
        let ada = connect_as(&bridge, "ada", MODERN).await;
        let bob = connect_as(&bridge, "bob", MODERN).await;
        let [of_ada, of_bob] = [start(&ada, MODERN).await, start(&bob, MODERN).await];

        let ids = acknowledged(&bridge, "bob", &[&of_ada, &of_bob]).await;

        assert_eq!(ids, json!([of_bob]), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_to_too_many_tasks_is_refused() {
    for (kind, bridge) in bridges(&target(&server(&HandlerCounter::default()), MODERN)) {
        let answered = subscribe(&bridge, "ada", &["7"; 1001]).await;

        let ExchangeEvent::Answered(Err(Error::Rpc(refused))) = answered else {
            panic!("expected an error, got {answered:?}, {kind}");
        };
        assert_eq!(refused.code, ErrorCode::INVALID_PARAMS, "{kind}");
        assert!(refused.message.contains("`taskIds`"), "{refused}, {kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn anonymous_clients_reach_the_tasks_of_each_other() {
    for (front, back) in ERAS
        .iter()
        .flat_map(|front| ERAS.map(|back| (*front, back)))
    {
        let bridge = Bridge::new(target(&server(&HandlerCounter::default()), back));
        let connect = || async {
            let client = Client::in_process(&bridge).protocol_version(front);
            match front {
                MODERN => client.extension(TaskClient::new()).await.unwrap(),
                _ => client.await.unwrap(),
            }
        };
        let (first, second) = (connect().await, connect().await);
        let id = start(&first, front).await;

        let found = request(&second, "tasks/get", json!({"taskId": id})).await;

        assert_eq!(found.unwrap()["status"], "working", "{front} to {back}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_at_another_replica_has_the_tasks_of_its_principal() {
    let target = target(&server(&HandlerCounter::default()), MODERN).stateless();
    for new in [of_file, |target: &Target| Bridge::new(target.clone())] {
        let cluster = MemoryCluster::new();
        let bridge = || new(&target).cluster(cluster.replica().unwrap());
        let (first, second) = (bridge(), bridge());
        let ada = connect_as(&first, "ada", MODERN).await;
        let bob = connect_as(&first, "bob", MODERN).await;
        let [of_ada, of_bob] = [start(&ada, MODERN).await, start(&bob, MODERN).await];

        let ids = acknowledged(&second, "ada", &[&of_ada, &of_bob]).await;

        assert_eq!(ids, json!([of_ada]));
    }
}

#[tokio::test(start_paused = true)]
async fn another_replica_finds_the_tasks_of_a_principal_and_no_others() {
    for version in ERAS {
        let server = server(&HandlerCounter::default());
        let cluster = MemoryCluster::new();
        let bridge = || {
            let replica = cluster.replica().unwrap();
            Bridge::new(target(&server, version).stateless()).cluster(replica)
        };
        let (first, second) = (bridge(), bridge());
        let ada = connect_as(&first, "ada", version).await;
        let id = start(&ada, version).await;

        let later = connect_as(&second, "ada", version).await;
        let bob = connect_as(&second, "bob", version).await;
        let get = async |client: &Client| {
            let found = request(client, "tasks/get", json!({"taskId": id})).await;
            found.map(|found| found["status"].clone())
        };

        assert_eq!(get(&later).await.unwrap(), "working", "{version}");
        let refused = get(&bob).await.unwrap_err().to_string();
        assert!(refused.contains("task not found"), "{refused}");
        tokio::time::advance(Duration::from_secs(1)).await;
    }
}
