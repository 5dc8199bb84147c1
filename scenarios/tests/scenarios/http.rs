//! What is particular to HTTP; everything else runs over it too.

use bowline::client::Host;
use bowline::types::Root;
use bowline::{CallToolResult, Context, Json, Server, Tool};
use scenarios::{Scenario, World, scenario};
use serde_json::json;

use crate::support::{anything, echo};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            a_conversation_takes_place_over_http,
            "transport:streamable-http:stateful",
            "transport:streamable-http:server-to-client",
        )
        .legacy()
        .since("2025-03-26")
        .over_http(),
        scenario!(
            a_conversation_takes_place_over_two_endpoints,
            "transport:sse",
        )
        .over_two_endpoints(),
        scenario!(
            what_belongs_to_a_request_arrives_with_its_answer_and_not_with_another,
            "transport:streamable-http:notifications",
            "client-transport:http:concurrent-streams",
        )
        .over_http(),
        scenario!(
            many_clients_call_without_a_handshake,
            "hosting:http:modern:tools-call-stateless",
            "hosting:stateless:concurrent-clients",
        )
        .modern()
        .over_http(),
    ]
}

/// A client and a server talk, and the server asks back.
async fn talk(world: World) {
    let look = Tool::raw("look", anything(), async |arguments: Json, cx: Context| {
        let roots = cx.roots().await?.roots;
        Ok(CallToolResult::text(format!(
            "{arguments} {}",
            roots[0].uri
        )))
    });
    let host = Host::new().roots(async || vec![Root::new("file:///project")]);
    let server = Server::new("s", "1").tool(look);
    let client = world
        .connect_with(&server, |connect| connect.host(host))
        .await;

    let replies = [
        client
            .call_tool("look", json!({"nth": 1}))
            .await
            .unwrap()
            .text(),
        client
            .call_tool("look", json!({"nth": 2}))
            .await
            .unwrap()
            .text(),
    ];

    assert_eq!(client.dialect().version, world.version());
    assert_eq!(
        replies,
        [
            r#"{"nth":1} file:///project"#,
            r#"{"nth":2} file:///project"#
        ]
    );
    client.close().await.unwrap();
}

async fn a_conversation_takes_place_over_http(world: World) {
    talk(world).await;
}

async fn a_conversation_takes_place_over_two_endpoints(world: World) {
    talk(world).await;
}

async fn what_belongs_to_a_request_arrives_with_its_answer_and_not_with_another(world: World) {
    let count = Tool::raw("count", anything(), async |arguments: Json, cx: Context| {
        let arguments: serde_json::Value = arguments.decode().unwrap();
        let from = arguments["from"].as_f64().unwrap();
        for step in 0..5 {
            cx.progress(from + f64::from(step));
            tokio::task::yield_now().await;
        }
        Ok(CallToolResult::text(arguments["from"].to_string()))
    });
    let client = world.connect(&Server::new("s", "1").tool(count)).await;

    let counting = [10.0, 20.0, 30.0].map(|from| {
        let (report, mut reports) = tokio::sync::mpsc::unbounded_channel();
        let call = client
            .call_tool("count", json!({"from": from}))
            .on_progress(move |told| report.send(told.progress).unwrap())
            .into_future();
        tokio::spawn(async move {
            let reply = call.await.unwrap();
            let mut heard = Vec::new();
            while let Ok(report) = reports.try_recv() {
                heard.push(report);
            }
            (from, reply.text(), heard)
        })
    });

    for counted in counting {
        let (from, text, heard) = counted.await.unwrap();
        assert_eq!(text, format!("{from:?}"));
        assert_eq!(heard, [0.0, 1.0, 2.0, 3.0, 4.0].map(|step| from + step));
    }
}

async fn many_clients_call_without_a_handshake(world: World) {
    let server = Server::new("s", "1").tool(echo("echo"));
    let mut clients = Vec::new();
    for nth in 0..10 {
        clients.push((nth, world.connect(&server).await));
    }

    let calls: Vec<_> = clients
        .iter()
        .map(|(nth, client)| client.call_tool("echo", json!({"nth": nth})).into_future())
        .map(tokio::spawn)
        .collect();

    for (nth, call) in calls.into_iter().enumerate() {
        let reply = call.await.unwrap().unwrap();
        assert_eq!(reply.text(), json!({"nth": nth}).to_string());
    }
}
