//! Our client and our server over a real socket, in every era.

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

/// A service on a socket, and a client of it. The service ends when dropped.
struct Together {
    client: Client,
    serving: JoinHandle<bowline::Result<()>>,
}

impl Together {
    async fn new(service: HttpService, version: &str) -> Self {
        let service = service.legacy(Legacy::sessions().http_sse());
        let bound = service.bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", bound.addr());
        let serving = tokio::spawn(bound.serve());
        let connect = Client::connect(&url).speaking(version);
        let client = tokio::time::timeout(Duration::from_secs(10), connect.into_future());
        let client = client
            .await
            .unwrap_or_else(|_| panic!("{version} does not connect"));
        Self {
            client: client.unwrap(),
            serving,
        }
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

#[tokio::test]
async fn progress_and_an_answer_come_back_in_every_version() {
    for version in VERSIONS {
        let mut stage = Stage::new();
        let together = Together::new(stage.server.http(), version).await;
        let (sender, mut reports) = tokio::sync::mpsc::unbounded_channel();
        let call = together
            .client
            .call_tool("talk", json!({"name": "a"}))
            .on_progress(move |report| sender.send(report.progress).unwrap())
            .start();
        let call = tokio::spawn(call);
        stage.started("a").await;

        stage.release.notify_one();
        let reply = call.await.unwrap().unwrap();

        assert_eq!(reply.text(), "released", "{version}");
        assert_eq!(reports.recv().await, Some(1.0), "{version}");
    }
}

#[tokio::test]
async fn letting_go_drops_the_handler_and_nothing_else_in_every_version() {
    for version in VERSIONS {
        let mut stage = Stage::new();
        let service = stage.server.http();
        let together = Together::new(service.clone(), version).await;
        let client = &together.client;
        let kept = tokio::spawn(client.call_tool("wait", json!({"name": "kept"})).start());
        stage.started("kept").await;
        let lost = tokio::spawn(client.call_tool("wait", json!({"name": "lost"})).start());
        stage.started("lost").await;

        lost.abort();

        stage.dropped("lost").await;
        stage.release.notify_one();
        assert_eq!(kept.await.unwrap().unwrap().text(), "released", "{version}");
        stage.finished("kept").await;
        let next = client.call_tool("echo", json!({})).await.unwrap();
        assert_eq!(next.text(), "{}", "{version}");
    }
}

#[tokio::test]
async fn a_call_that_times_out_drops_its_handler_in_every_version() {
    for version in VERSIONS {
        let mut stage = Stage::new();
        let together = Together::new(stage.server.http(), version).await;

        let late = together
            .client
            .call_tool("talk", json!({"name": "late"}))
            .timeout(Duration::from_millis(200))
            .await;

        assert!(
            matches!(late, Err(Error::Timeout { .. })),
            "{version}: {late:?}"
        );
        stage.started("late").await;
        stage.dropped("late").await;
    }
}

#[tokio::test]
async fn many_calls_at_once_each_get_their_own_answer() {
    for version in VERSIONS {
        let stage = Stage::new();
        let together = Together::new(stage.server.http(), version).await;
        let calls: Vec<_> = (0..50)
            .map(|at| together.client.call_tool("echo", json!({"at": at})).start())
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
async fn closing_a_client_ends_what_the_server_remembers_of_it() {
    for version in VERSIONS {
        let mut stage = Stage::new();
        let service = stage.server.http().legacy(Legacy::sessions().http_sse());
        let bound = service.bind("127.0.0.1:0").await.unwrap();
        let (url, service) = (format!("http://{}/mcp", bound.addr()), bound.service());
        let serving = tokio::spawn(bound.serve());
        let client = Client::connect(&url).speaking(version).await.unwrap();
        let call = tokio::spawn(client.call_tool("wait", json!({"name": "a"})).start());
        stage.started("a").await;

        call.abort();
        client.close().await.unwrap();

        stage.dropped("a").await;
        let gone = async {
            while service.in_flight() + service.sessions() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), gone)
            .await
            .expect(version);
        serving.abort();
    }
}
