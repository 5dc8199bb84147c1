//! The laws of an engine that is killed and started again, and slowed down. For real servers, which `cargo xtask
//! cluster` starts.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::cluster::{Cluster, GroupEvent, GroupId};
use crate::testing::TcpProxy;

/// Stops or starts an engine, at the port of `cargo xtask cluster`. No other test runs at the same time.
async fn control(verb: &str, engine: &str) {
    let address = std::env::var("BOWLINE_CLUSTER_CONTROL").expect("run by `cargo xtask cluster`");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let line = format!("{verb} {engine}\n");
    stream.write_all(line.as_bytes()).await.unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).await.unwrap();
    assert_eq!(answer.trim(), "ok");
}

/// Connects a replica through a proxy of its own.
async fn replica<C: Into<Cluster>>(
    connect: &impl AsyncFn() -> (C, Arc<TcpProxy>),
) -> (Cluster, Arc<TcpProxy>) {
    let (engine, proxy) = connect().await;
    (engine.into(), proxy)
}

/// Messages and marks work again after a restart, and members are told that they missed messages.
///
/// # Cancel safety
///
/// The engine may be stopped when it is dropped.
pub async fn replicas_find_each_other_again_after_a_restart_of_the_engine<C: Into<Cluster>>(
    engine: &str,
    connect: impl AsyncFn() -> (C, Arc<TcpProxy>),
) {
    let ((first, _first_link), (second, _second_link)) =
        (replica(&connect).await, replica(&connect).await);
    let _service = second.serve("echo", |asked| Box::pin(async move { asked.message }));
    let group = GroupId::new("restart", engine);
    let mut received = second.join(&group).await.unwrap();
    first.tell(&group, "before".into());
    let before = received.next().await.unwrap();
    assert!(matches!(before, GroupEvent::Message { .. }));

    control("stop", engine).await;
    first.tell(&group, "lost".into());
    let marks = first.marks().set(b"restart", b"", WITHIN).await;
    assert!(marks.is_err(), "the engine is away");
    control("start", engine).await;

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

/// A slow engine delays answers, and one that does not answer at all is an error in time.
///
/// # Cancel safety
///
/// Safe: only its own connections are slow.
pub async fn a_slow_engine_delays_answers_and_loses_none<C: Into<Cluster>>(
    connect: impl AsyncFn() -> (C, Arc<TcpProxy>),
) {
    let ((first, proxy), (second, _link)) = (replica(&connect).await, replica(&connect).await);
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
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
}

const WITHIN: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(40);
