//! The orderly end: new work is refused, old work is finished, subscriptions end gracefully.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_handlers_finish_within_their_grace() {
    let mut stage = Stage::new();
    let service = stage.server.http();
    let mut link = Link::to(&service).await;
    let reply = link.send(call_with_progress(1, "talk", "a")).await;
    stage.started("a").await;

    stage.server.shut_down(Duration::from_secs(10));
    tokio::time::advance(Duration::from_secs(5)).await;
    stage.release.notify_one();

    assert_eq!(reply.messages().await.last().unwrap()["id"], 1);
    stage.finished("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_without_a_time_limit_waits_for_the_handlers() {
    let mut stage = Stage::new();
    let service = stage.server.http();
    let mut link = Link::to(&service).await;
    let reply = link.send(call_with_progress(1, "talk", "a")).await;
    stage.started("a").await;

    stage.server.shut_down(Duration::MAX);
    tokio::time::advance(Duration::from_secs(24 * 60 * 60)).await;
    stage.release.notify_one();

    assert_eq!(reply.messages().await.last().unwrap()["id"], 1);
    stage.finished("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_not_done_in_time_is_dropped_and_its_caller_told() {
    let mut stage = Stage::new();
    let service = stage.server.http();
    let mut link = Link::to(&service).await;
    let reply = link.send(call_with_progress(1, "talk", "a")).await;
    stage.started("a").await;
    let begun = Instant::now();

    stage.server.shut_down(Duration::from_secs(10));

    assert_eq!(
        reply.messages().await.last().unwrap()["error"]["code"],
        -32603
    );
    assert_eq!(begun.elapsed().as_secs(), 10);
    stage.dropped("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_subscription_ends_with_a_graceful_result() {
    let stage = Stage::new();
    let mut link = Link::to(&stage.server.http()).await;
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let mut reply = link
        .send(modern("L1", "subscriptions/listen", filter))
        .await;
    reply.chunk().await.unwrap();

    stage.server.shut_down(Duration::from_secs(10));

    let last = reply.messages().await;
    assert_eq!(last[0]["id"], "L1");
    assert_eq!(last[0]["result"]["resultType"], "complete");
}

#[tokio::test]
async fn new_work_is_refused_and_serving_comes_to_its_end() {
    let mut stage = Stage::new();
    let bound = stage.server.http().bind("127.0.0.1:0").await.unwrap();
    let (addr, service) = (bound.addr(), bound.service());
    let serving = tokio::spawn(bound.serve());
    let stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let mut link = Link::over(stream, Vec::new()).await;
    let reply = link.send(call_with_progress(1, "talk", "a")).await;
    stage.started("a").await;
    assert!(service.is_ready());

    stage.server.shut_down(Duration::from_secs(60));

    assert!(!service.is_ready());
    let refused = Link::to(&service)
        .await
        .try_send(call(2, "echo", "b"))
        .await;
    assert!(refused.is_err() || refused.is_ok_and(|reply| reply.status() == 503));
    stage.release.notify_one();
    assert_eq!(reply.messages().await.last().unwrap()["id"], 1);
    serving.await.unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(addr).await.is_err());
}
