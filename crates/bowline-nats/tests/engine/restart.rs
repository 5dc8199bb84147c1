//! The engine is killed and started again, and slowed down.

use std::sync::Arc;
use std::time::Duration;

use bowline::cluster::{Cluster, GroupEvent, GroupId};
use bowline::testing::TcpProxy;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::fixture;

/// Stops or starts the engine. No other test runs at the same time.
async fn control(verb: &str) {
    let address = std::env::var("BOWLINE_CLUSTER_CONTROL").expect("run by `cargo xtask cluster`");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let line = format!("{verb} nats\n");
    stream.write_all(line.as_bytes()).await.unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).await.unwrap();
    assert_eq!(answer.trim(), "ok");
}

/// A replica, and its connection to the engine.
async fn replica() -> (Cluster, Arc<TcpProxy>) {
    let (engine, proxy) = fixture::connect().await;
    (engine.into(), proxy)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_find_each_other_again_after_a_restart_of_the_engine() {
    let ((first, _first_link), (second, _second_link)) = (replica().await, replica().await);
    let _service = second.serve("echo", |asked| Box::pin(async move { asked.message }));
    let group = GroupId::new("restart", "nats");
    let mut received = second.join(&group).await.unwrap();
    first.tell(&group, "before".into());
    let before = received.next().await.unwrap();
    assert!(matches!(before, GroupEvent::Message { .. }));

    control("stop").await;
    first.tell(&group, "lost".into());
    let marks = first.marks().set(b"restart", b"", WITHIN).await;
    assert!(marks.is_err(), "the engine is away");
    control("start").await;

    // Both have lost their connection, so that the member is told that it missed messages.
    let event = tokio::time::timeout(LIMIT, received.next()).await;
    assert_eq!(event.unwrap(), Some(GroupEvent::Missed));
    let deadline = tokio::time::Instant::now() + LIMIT;
    loop {
        let asked = first
            .ask("echo", second.replica(), "hello".into(), WITHIN)
            .await;
        match asked {
            Ok(answer) => break assert_eq!(answer, "hello"),
            Err(error) => assert!(tokio::time::Instant::now() < deadline, "{error}"),
        }
    }
    first.tell(&group, "after".into());
    loop {
        let event = tokio::time::timeout(LIMIT, received.next()).await;
        match event.unwrap() {
            Some(GroupEvent::Message { body, .. }) if body == "after" => break,
            Some(_) => {}
            None => panic!("the cluster has ended"),
        }
    }
    first.marks().set(b"restart", b"", WITHIN).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_engine_delays_answers_and_loses_none() {
    let ((first, proxy), (second, _link)) = (replica().await, replica().await);
    let _service = second.serve("echo", |asked| Box::pin(async move { asked.message }));
    let ready = first
        .ask("echo", second.replica(), "a".into(), WITHIN)
        .await;
    assert_eq!(ready.unwrap(), "a");

    proxy.slow(Duration::from_millis(400));
    let slow = first
        .ask("echo", second.replica(), "b".into(), WITHIN)
        .await;
    let mark = first.marks().set(b"slow", b"1", WITHIN).await;

    assert_eq!(slow.unwrap(), "b");
    mark.unwrap();
    proxy.stall();
    let begun = tokio::time::Instant::now();
    let stalled = first
        .ask("echo", second.replica(), "c".into(), WITHIN)
        .await;
    let mark = first.marks().read(b"slow").await;
    assert!(stalled.is_err() && mark.is_err());
    assert!(begun.elapsed() < 2 * WITHIN, "{:?}", begun.elapsed());
}

const WITHIN: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(40);
