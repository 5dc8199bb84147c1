//! Legacy connections, legs, limits and gauges.

use std::collections::{BTreeMap, BTreeSet};

use bowline::client::Host;
use bowline::cluster::{Cluster, GroupId, MemoryCluster};
use bowline::telemetry::names::{attribute as names, bowline as ours, metric};
use bowline::testing::matrix;
use bowline::types::{ElicitAction, ElicitResult};
use bowline::{Client, Context, Limit, Limits, Server, Tool, ToolError};
use opentelemetry::trace::SpanKind;
use serde_json::json;

use super::recorder::{Recorder, attribute};
use super::{Name, server};

#[tokio::test]
async fn only_legacy_connections_have_a_session_duration() {
    for case in matrix() {
        let recorder = Recorder::new();
        let server = server().telemetry(recorder.telemetry());
        let connect = case.serve(&server).connect;
        let client = connect.telemetry(recorder.telemetry()).await.unwrap();
        client
            .call_tool("add", json!({"a": 1, "b": 2}))
            .await
            .unwrap();

        client.close().await.unwrap();

        if case.dialect.is_modern() {
            assert!(
                recorder.points(metric::CLIENT_SESSION_DURATION).is_empty(),
                "{case}"
            );
            assert!(
                recorder.points(metric::SERVER_SESSION_DURATION).is_empty(),
                "{case}"
            );
            continue;
        }
        let client = recorder.recorded(metric::CLIENT_SESSION_DURATION).await;
        assert_eq!(
            client[0].0[names::MCP_PROTOCOL_VERSION],
            case.dialect.version,
            "{case}"
        );
        // In process nothing is held between two requests, so there is no such thing at the server.
        if case.transport != bowline::testing::TestTransport::InProcess {
            let server = recorder.recorded(metric::SERVER_SESSION_DURATION).await;
            assert_eq!(server.len(), 1, "{case}: {server:?}");
            assert_eq!(
                server[0].0[names::MCP_PROTOCOL_VERSION],
                case.dialect.version,
                "{case}"
            );
        }
    }
}

#[tokio::test]
async fn a_call_that_asks_for_input_has_two_legs() {
    let recorder = Recorder::new();
    async fn ask(cx: Context) -> Result<String, ToolError> {
        let answer: Result<Name, _> = cx.elicit("name", "Who are you?").await;
        Ok(answer.is_ok().to_string())
    }
    let server = Server::new("s", "1.0.0").tool(Tool::new("ask", ask));
    let server = server.telemetry(recorder.telemetry());
    let host = Host::new().elicitation(async |_| ElicitResult::new(ElicitAction::Decline));
    let client = Client::in_process(&server)
        .host(host)
        .protocol_version("2026-07-28");
    let client = client.telemetry(recorder.telemetry()).await.unwrap();

    client.call_tool("ask", ()).await.unwrap();

    let legs = recorder.points(ours::CLIENT_CALL_LEGS);
    assert_eq!(legs.len(), 1, "{legs:?}");
    assert_eq!(
        (legs[0].0[names::GEN_AI_TOOL_NAME].as_str(), legs[0].1),
        ("ask", 2.0)
    );
    let handled: Vec<_> = recorder
        .spans()
        .into_iter()
        .filter(|span| span.span_kind == SpanKind::Server && span.name == "tools/call ask")
        .map(|span| attribute(&span, ours::RESULT_TYPE))
        .collect();
    assert_eq!(handled, ["input_required", ""]);
}

#[tokio::test]
async fn each_limit_that_is_reached_is_counted() {
    let recorder = Recorder::new();
    let limits = Limits {
        peer_requests: 0,
        ..Limits::default()
    };
    let server = server().limits(limits).telemetry(recorder.telemetry());
    let (near, far) = bowline::wire::memory();
    tokio::spawn(server.serve(far));

    Client::from_wire(near)
        .protocol_version("2025-11-25")
        .await
        .unwrap_err();

    let points = recorder.points(ours::SERVER_LIMIT_REACHED);
    assert_eq!(points.len(), Limit::ALL.len());
    let reached = points.iter().filter(|(_, count)| *count > 0.0);
    let reached: Vec<_> = reached.map(|(it, _)| it[ours::LIMIT].as_str()).collect();
    assert_eq!(reached, ["peer_requests"]);
}

#[tokio::test]
async fn a_server_reports_its_sessions_and_queues() {
    let recorder = Recorder::new();
    let server = server().telemetry(recorder.telemetry());
    let case = matrix().find(|case| {
        case.transport == bowline::testing::TestTransport::Http && !case.dialect.is_modern()
    });
    let client = case.unwrap().serve(&server).connect.await.unwrap();

    let sessions = recorder.points(ours::SERVER_SESSIONS);
    let queued = recorder.points(ours::SERVER_QUEUED);

    assert_eq!(sessions, [(BTreeMap::new(), 1.0)]);
    let queues: BTreeSet<_> = queued
        .iter()
        .map(|(it, _)| it[ours::QUEUE].as_str())
        .collect();
    assert_eq!(
        queues,
        BTreeSet::from(["event", "kept", "output", "request"])
    );
    drop(client);
}

#[tokio::test]
async fn messages_that_a_replica_sent_and_lost_are_counted_also_after_it_has_ended() {
    let recorder = Recorder::new();
    let memory = MemoryCluster::new();
    let replica = memory.replica().unwrap();
    let (link, group) = (replica.link(), GroupId::new("test", "a"));
    let cluster = Cluster::from(replica);
    let server = server()
        .telemetry(recorder.telemetry())
        .cluster(cluster.clone());
    let service = server.http();
    let mut received = cluster.join(&group).await.unwrap();
    let count = |name| recorder.points(name)[0].1;

    cluster.tell(&group, "told".into());
    received.next().await.unwrap();
    link.cut();
    cluster.tell(&group, "lost".into());
    while cluster.counts().lost == 0 {
        tokio::task::yield_now().await;
    }

    let expected = (cluster.counts().told, cluster.counts().delivered);
    let seen = (count(ours::CLUSTER_TOLD), count(ours::CLUSTER_DELIVERED));
    assert_eq!(seen, (expected.0 as f64, expected.1 as f64));
    assert!(expected.0 >= 1 && expected.1 >= 1, "{expected:?}");
    assert_eq!(count(ours::CLUSTER_LOST), 1.0);
    drop((service, server, received, cluster));
    assert_eq!(count(ours::CLUSTER_LOST), 1.0);
}
