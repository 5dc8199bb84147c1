//! The metrics of `serve-demo` and `bridge`, as an OTLP receiver and Prometheus get them, and the dashboard and the alert
//! rules in `ops`, which must use no other names.

#![cfg(unix)]
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy exempts only `#[test]` functions, not their helpers"
)]

mod exported;
mod load;
mod process;
mod queries;
mod receiver;

use std::collections::BTreeSet;
use std::path::Path;

use bowline::telemetry::names;
use exported::Exported;
use process::ObservedProcess;
use queries::Query;
use receiver::Receiver;

/// Everything that a dashboard may show is exported: a server, a bridge in front of it, and this process, which has
/// tasks and is asked for input.
#[tokio::test]
async fn dashboard_and_rules_use_only_names_that_are_exported() {
    let receiver = Receiver::start().await;
    let server = ObservedProcess::serve_demo(&receiver.endpoint()).await;
    let bridge = ObservedProcess::bridge(&receiver.endpoint(), &server.url).await;
    load::on_server(&server.url).await;
    load::on_bridge(&bridge.url).await;
    load::in_process(&receiver.endpoint(), &server.url).await;
    let mut scraped = Exported::default();
    for process in [&server, &bridge] {
        scraped.add_text(&process.scrape().await);
    }
    // The last metrics are sent when the processes end.
    bridge.terminate().await;
    server.terminate().await;
    let received = receiver.exported();

    // Those that only this process has are not scraped, as it serves no text; all others are the same both ways.
    let only_here = [
        "bowline_server_task_duration_seconds",
        "bowline_client_call_legs",
        "mcp_client_session_duration_seconds",
    ];
    let of_processes = |name: &&String| {
        name.as_str() != "target_info" && !only_here.iter().any(|it| name.starts_with(it))
    };
    let (by_otlp, by_text) = (received.names(), scraped.names());
    assert_eq!(
        by_otlp.iter().filter(of_processes).collect::<Vec<_>>(),
        by_text.iter().filter(of_processes).collect::<Vec<_>>()
    );
    for name in names::metric::ALL.iter().chain(&names::bowline::METRICS) {
        let stem = name.replace('.', "_");
        let is_exported = by_otlp.iter().any(|it| it.starts_with(&stem));
        assert!(is_exported, "{name} is not exported: {by_otlp:#?}");
    }
    let mut used = BTreeSet::new();
    for query in queries_in_ops() {
        query.check(&received);
        used.extend(query.metrics);
    }
    // None is left out of the dashboard.
    let used: BTreeSet<_> = used.iter().map(|name| exported::family(name)).collect();
    let missing = by_otlp.iter().map(|name| exported::family(name));
    let missing: BTreeSet<_> = missing.filter(|it| !used.contains(it)).collect();
    assert_eq!(missing, BTreeSet::from(["target_info"]));
}

fn queries_in_ops() -> Vec<Query> {
    let ops = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops");
    let read = |name: &str| std::fs::read_to_string(ops.join(name)).unwrap();
    let mut queries = queries::of_dashboard(&read("grafana-dashboard.json"));
    assert!(queries.len() > 40, "{}", queries.len());
    let of_rules = queries::of_rules(&read("prometheus-rules.yml"));
    assert!(of_rules.len() > 10, "{}", of_rules.len());
    queries.extend(of_rules);
    queries
}

#[tokio::test]
async fn a_collector_that_is_down_is_reported_once_and_the_server_goes_on() {
    // Nothing listens on a port that was bound and closed.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let server = ObservedProcess::serve_demo(&endpoint).await;
    let client = bowline::Client::connect(&server.url).await.unwrap();

    let reply = client
        .call_tool("add", serde_json::json!({"a": 1, "b": 2}))
        .await;

    assert_eq!(reply.unwrap().text(), "3");
    client.close().await.unwrap();
    let stderr = server.terminate().await;
    let failures = stderr.matches("failed to send telemetry to").count();
    assert_eq!(failures, 1, "{stderr}");
}
