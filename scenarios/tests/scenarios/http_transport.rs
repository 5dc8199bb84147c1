//! Scenarios that run over HTTP only.

use bowline::client::Host;
use bowline::types::Root;
use bowline::{CallToolResult, Context, Json, Server, Tool};
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::json;

use crate::support::{any_object, echo};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            a_session_works_over_streamable_http,
            "transport:streamable-http:stateful",
            "transport:streamable-http:server-to-client",
        )
        .legacy()
        .since("2025-03-26")
        .over_http(),
        scenario!(a_session_works_over_http_sse, "transport:sse",).over_http_sse(),
        scenario!(
            notifications_arrive_on_the_stream_of_their_request,
            "transport:streamable-http:notifications",
            "client-transport:http:concurrent-streams",
        )
        .over_http(),
        scenario!(
            many_modern_clients_call_concurrently,
            "hosting:http:modern:tools-call-stateless",
            "hosting:stateless:concurrent-clients",
        )
        .modern()
        .over_http(),
    ]
}

/// Calls a tool that sends a request to the client.
async fn call_with_server_request(env: ScenarioEnv) {
    let look = Tool::raw(
        "look",
        any_object(),
        async |arguments: Json, cx: Context| {
            let roots = cx.roots().await?.roots;
            Ok(CallToolResult::text(format!(
                "{arguments} {}",
                roots[0].uri
            )))
        },
    );
    let host = Host::new().roots(async || vec![Root::new("file:///project")]);
    let server = Server::new("s", "1").tool(look);
    let client = env.connect_host(&server, host).await;

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

    assert_eq!(client.dialect().version, env.version());
    assert_eq!(
        replies,
        [
            r#"{"nth":1} file:///project"#,
            r#"{"nth":2} file:///project"#
        ]
    );
    client.close().await.unwrap();
}

async fn a_session_works_over_streamable_http(env: ScenarioEnv) {
    call_with_server_request(env).await;
}

async fn a_session_works_over_http_sse(env: ScenarioEnv) {
    call_with_server_request(env).await;
}

async fn notifications_arrive_on_the_stream_of_their_request(env: ScenarioEnv) {
    let count = Tool::raw(
        "count",
        any_object(),
        async |arguments: Json, cx: Context| {
            let arguments: serde_json::Value = arguments.decode().unwrap();
            let from = arguments["from"].as_f64().unwrap();
            for step in 0..5 {
                cx.progress(from + f64::from(step));
                tokio::task::yield_now().await;
            }
            Ok(CallToolResult::text(arguments["from"].to_string()))
        },
    );
    let client = env.connect(&Server::new("s", "1").tool(count)).await;

    let counting = [10.0, 20.0, 30.0].map(|from| {
        let (report, mut reports) = tokio::sync::mpsc::unbounded_channel();
        let call = client
            .call_tool("count", json!({"from": from}))
            .on_progress(move |notification| report.send(notification.progress).unwrap())
            .into_future();
        tokio::spawn(async move {
            let reply = call.await.unwrap();
            let mut received = Vec::new();
            while let Ok(report) = reports.try_recv() {
                received.push(report);
            }
            (from, reply.text(), received)
        })
    });

    for counted in counting {
        let (from, text, received) = counted.await.unwrap();
        assert_eq!(text, format!("{from:?}"));
        assert_eq!(received, [0.0, 1.0, 2.0, 3.0, 4.0].map(|step| from + step));
    }
}

async fn many_modern_clients_call_concurrently(env: ScenarioEnv) {
    let server = Server::new("s", "1").tool(echo("echo"));
    let mut clients = Vec::new();
    for nth in 0..10 {
        clients.push((nth, env.connect(&server).await));
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
