//! Graceful shutdown: new requests are refused, running handlers finish, subscriptions end with a result.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_handlers_finish_within_the_grace_period() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut connection = PlainConnection::http1(&service).await;
    let response = connection.start_call(&mut fixture, 1, "a").await;

    fixture.server.shut_down(Duration::from_secs(10));
    tokio::time::advance(Duration::from_secs(5)).await;
    fixture.release.notify_one();

    assert_eq!(response.messages().await.last().unwrap()["id"], 1);
    fixture.handler_finished("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_without_a_time_limit_waits_for_the_handlers() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut connection = PlainConnection::http1(&service).await;
    let response = connection.start_call(&mut fixture, 1, "a").await;

    fixture.server.shut_down(Duration::MAX);
    tokio::time::advance(Duration::from_secs(24 * 60 * 60)).await;
    fixture.release.notify_one();

    assert_eq!(response.messages().await.last().unwrap()["id"], 1);
    fixture.handler_finished("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_beyond_the_grace_period_is_dropped_and_its_caller_gets_an_error() {
    let mut fixture = ServerFixture::new();
    let service = fixture.server.http();
    let mut connection = PlainConnection::http1(&service).await;
    let response = connection.start_call(&mut fixture, 1, "a").await;
    let begun = Instant::now();

    fixture.server.shut_down(Duration::from_secs(10));

    assert_eq!(
        response.messages().await.last().unwrap()["error"]["code"],
        -32603
    );
    assert_eq!(begun.elapsed().as_secs(), 10);
    fixture.handler_dropped("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_a_subscription_with_a_complete_result() {
    let fixture = ServerFixture::new();
    let mut connection = PlainConnection::http1(&fixture.server.http()).await;
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let mut response = connection
        .send(modern_request("L1", "subscriptions/listen", filter))
        .await;
    response.chunk().await.unwrap();

    fixture.server.shut_down(Duration::from_secs(10));

    let last = response.messages().await;
    assert_eq!(last[0]["id"], "L1");
    assert_eq!(last[0]["result"]["resultType"], "complete");
}

#[tokio::test]
async fn a_shutdown_refuses_new_requests_and_ends_serving() {
    let mut fixture = ServerFixture::new();
    let bound = fixture.server.http().bind("127.0.0.1:0").await.unwrap();
    let (addr, service) = (bound.local_addr(), bound.service());
    let serving = tokio::spawn(bound.serve());
    let stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let mut connection = PlainConnection::over_io(stream, Vec::new()).await;
    let response = connection.start_call(&mut fixture, 1, "a").await;
    assert!(service.is_ready());

    fixture.server.shut_down(Duration::from_secs(60));

    assert!(!service.is_ready());
    let refused = PlainConnection::http1(&service)
        .await
        .try_send(call(2, "echo", "b"))
        .await;
    assert!(refused.is_err() || refused.is_ok_and(|response| response.status() == 503));
    fixture.release.notify_one();
    assert_eq!(response.messages().await.last().unwrap()["id"], 1);
    serving.await.unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(addr).await.is_err());
}
