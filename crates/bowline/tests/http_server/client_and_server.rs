//! Our client and our server over a TCP socket, in every protocol version.

use std::time::Duration;

use bowline::http::HttpService;
use bowline::http::legacy::Legacy;
use bowline::{Client, Error};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::*;

const VERSIONS: [&str; 5] = [
    "2026-07-28",
    "2025-11-25",
    "2025-06-18",
    "2025-03-26",
    "2024-11-05",
];

/// A service on a socket and a connected client. Dropping it stops the service.
struct ClientAndServer {
    client: Client,
    serving: JoinHandle<bowline::Result<()>>,
}

impl ClientAndServer {
    async fn new(service: HttpService, version: &str) -> Self {
        let service = service.legacy(Legacy::sessions().http_sse());
        let bound = service.bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", bound.local_addr());
        let serving = tokio::spawn(bound.serve());
        let connect = Client::connect(&url).protocol_version(version);
        let client = tokio::time::timeout(Duration::from_secs(10), connect.into_future());
        let client = client
            .await
            .unwrap_or_else(|_| panic!("failed to connect at {version}"));
        Self {
            client: client.unwrap(),
            serving,
        }
    }
}

impl Drop for ClientAndServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

#[tokio::test]
async fn progress_and_a_result_arrive_in_every_version() {
    for version in VERSIONS {
        let mut fixture = ServerFixture::new();
        let pair = ClientAndServer::new(fixture.server.http(), version).await;
        let (sender, mut reports) = tokio::sync::mpsc::unbounded_channel();
        let call = pair
            .client
            .call_tool("progress", json!({"name": "a"}))
            .on_progress(move |report| sender.send(report.progress).unwrap())
            .start();
        let call = tokio::spawn(call);
        fixture.handler_started("a").await;

        fixture.release.notify_one();
        let reply = call.await.unwrap().unwrap();

        assert_eq!(reply.text(), "released", "{version}");
        assert_eq!(reports.recv().await, Some(1.0), "{version}");
    }
}

#[tokio::test]
async fn a_dropped_call_drops_only_its_handler_in_every_version() {
    for version in VERSIONS {
        let mut fixture = ServerFixture::new();
        let service = fixture.server.http();
        let pair = ClientAndServer::new(service.clone(), version).await;
        let client = &pair.client;
        let kept = tokio::spawn(client.call_tool("wait", json!({"name": "kept"})).start());
        fixture.handler_started("kept").await;
        let lost = tokio::spawn(client.call_tool("wait", json!({"name": "lost"})).start());
        fixture.handler_started("lost").await;

        lost.abort();

        fixture.handler_dropped("lost").await;
        fixture.release.notify_one();
        assert_eq!(kept.await.unwrap().unwrap().text(), "released", "{version}");
        fixture.handler_finished("kept").await;
        let next = client.call_tool("echo", json!({})).await.unwrap();
        assert_eq!(next.text(), "{}", "{version}");
    }
}

#[tokio::test]
async fn a_call_that_times_out_drops_its_handler_in_every_version() {
    for version in VERSIONS {
        let mut fixture = ServerFixture::new();
        let pair = ClientAndServer::new(fixture.server.http(), version).await;

        let late = pair
            .client
            .call_tool("progress", json!({"name": "late"}))
            .idle_timeout(Duration::from_millis(200))
            .await;

        assert!(
            matches!(late, Err(Error::Timeout { .. })),
            "{version}: {late:?}"
        );
        fixture.handler_started("late").await;
        fixture.handler_dropped("late").await;
    }
}

#[tokio::test]
async fn concurrent_calls_each_get_their_own_result() {
    for version in VERSIONS {
        let fixture = ServerFixture::new();
        let pair = ClientAndServer::new(fixture.server.http(), version).await;
        let calls: Vec<_> = (0..50)
            .map(|at| pair.client.call_tool("echo", json!({"at": at})).start())
            .collect();

        for (at, call) in calls.into_iter().enumerate() {
            assert_eq!(
                call.await.unwrap().text(),
                format!(r#"{{"at":{at}}}"#),
                "{version}"
            );
        }
    }
}

#[tokio::test]
async fn closing_a_client_releases_its_requests_and_sessions_on_the_server() {
    for version in VERSIONS {
        let mut fixture = ServerFixture::new();
        let service = fixture.server.http().legacy(Legacy::sessions().http_sse());
        let bound = service.bind("127.0.0.1:0").await.unwrap();
        let (url, service) = (
            format!("http://{}/mcp", bound.local_addr()),
            bound.service(),
        );
        let serving = tokio::spawn(bound.serve());
        let client = Client::connect(&url)
            .protocol_version(version)
            .await
            .unwrap();
        let call = tokio::spawn(client.call_tool("wait", json!({"name": "a"})).start());
        fixture.handler_started("a").await;

        call.abort();
        client.close().await.unwrap();

        fixture.handler_dropped("a").await;
        let released = async {
            while service.in_flight() + service.sessions() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), released)
            .await
            .expect(version);
        serving.abort();
    }
}
