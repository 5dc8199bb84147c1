//! Paths that die without a word: connections that are never made, that swallow what is sent, streams that fall silent.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::future::{Future, pending};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bowline::client::{Change, Changes, Ended};
use bowline::http::client::HyperSend;
use bowline::testing::Pipes;
use bowline::{Client, Error};
use h2::server::Builder;
use http::Uri;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use crate::http2_peer::{Http2Peer, answer, message, serve};
use crate::scripted::{Arrived, Peer, STREAM, Say, event};

async fn client(send: HyperSend) -> Client {
    let connect = Client::connect("http://localhost/mcp").http(send);
    connect.speaking("2026-07-28").await.unwrap()
}

fn chain(error: &dyn StdError) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        told = format!("{told}: {error}");
        cause = error.source();
    }
    told
}

/// Pipes whose first connection swallows everything in both directions as soon as `is_dead` says so.
fn black_hole(peer: &Http2Peer, is_dead: watch::Receiver<bool>) -> Pipes {
    let (through, first) = (peer.pipes(), std::sync::atomic::AtomicBool::new(true));
    Pipes::with(move |mut far| {
        let mut near = through.open();
        let can_die = first.swap(false, std::sync::atomic::Ordering::SeqCst);
        let mut is_dead = is_dead.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = is_dead.wait_for(|is_dead| *is_dead), if can_die => {}
                _ = tokio::io::copy_bidirectional(&mut far, &mut near) => return,
            }
            let _swallowed = tokio::io::copy(&mut far, &mut tokio::io::sink()).await;
        });
    })
}

/// A server that answers every tool but `slow`.
fn peer() -> Http2Peer {
    Http2Peer::new(|_, io| async move {
        serve(io, &Builder::new(), |request, mut respond| async move {
            let message = message(request).await;
            if message["params"]["name"] == "slow" {
                let _ = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
                return;
            }
            let json = crate::http2_peer::done(&message["id"]).to_string();
            let head = crate::http2_peer::head("application/json");
            if let Ok(mut body) = respond.send_response(head, false) {
                let _ = body.send_data(json.into(), true);
            }
        })
        .await;
    })
}

#[tokio::test(start_paused = true)]
async fn a_path_that_swallows_everything_fails_one_call_and_the_next_makes_another_connection() {
    let (peer, is_dead) = (peer(), watch::Sender::new(false));
    let pipes = black_hole(&peer, is_dead.subscribe());
    let client = client(HyperSend::over_http2(pipes)).await;
    let limit = Duration::from_secs(2);
    client.call_tool("quick", ()).await.unwrap();
    is_dead.send_replace(true);

    let lost = client.call_tool("quick", ()).timeout(limit).await;
    let next = client.call_tool("quick", ()).timeout(limit).await;

    assert!(matches!(lost, Err(Error::Timeout { .. })), "{lost:?}");
    assert_eq!(next.unwrap().text(), "done");
    assert_eq!(peer.accepted(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_timed_out_call_leaves_the_connection_of_a_slow_server_in_use() {
    let peer = peer();
    let client = client(HyperSend::over_http2(peer.pipes())).await;

    for _ in 0..5 {
        let limit = Duration::from_secs(2);
        let lost = client.call_tool("slow", ()).timeout(limit).await;
        assert!(matches!(lost, Err(Error::Timeout { .. })), "{lost:?}");
        client.call_tool("quick", ()).await.unwrap();
    }

    assert_eq!(peer.accepted(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_on_a_dead_path_fails_long_before_its_own_timeout() {
    let (peer, is_dead) = (peer(), watch::Sender::new(false));
    let pipes = black_hole(&peer, is_dead.subscribe());
    let client = client(HyperSend::over_http2(pipes)).await;
    client.call_tool("quick", ()).await.unwrap();
    is_dead.send_replace(true);

    let asked = Instant::now();
    let patient = client
        .call_tool("slow", ())
        .timeout(Duration::from_secs(3_600));
    let lost = patient.await.unwrap_err();

    assert!(matches!(lost, Error::Transport { .. }), "{lost:?}");
    assert!(chain(&lost).contains("ping"), "{}", chain(&lost));
    assert!(asked.elapsed() <= Duration::from_secs(60));
    client.call_tool("quick", ()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_long_is_not_lost_while_pings_are_answered() {
    let peer = peer();
    let client = client(HyperSend::over_http2(peer.pipes())).await;

    let patient = client
        .call_tool("slow", ())
        .timeout(Duration::from_secs(3_600));
    let lost = patient.await;

    assert!(matches!(lost, Err(Error::Timeout { .. })), "{lost:?}");
}

fn acknowledged(arrived: &Arrived) -> String {
    let meta = json!({"io.modelcontextprotocol/subscriptionId": arrived.body["id"]});
    let params = json!({"_meta": meta, "notifications": {"toolsListChanged": true}});
    let method = "notifications/subscriptions/acknowledged";
    STREAM.to_owned() + &event(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
}

/// A server that acknowledges subscriptions, and then says what the test sends.
fn listening() -> (
    Peer,
    Pipes,
    mpsc::UnboundedReceiver<mpsc::UnboundedSender<String>>,
) {
    let (streams, opened) = mpsc::unbounded_channel();
    let (peer, pipes) = Peer::in_memory(move |arrived| {
        let (say, said) = mpsc::unbounded_channel();
        streams.send(say).unwrap();
        Say::BytesThenMore(acknowledged(arrived), said)
    });
    (peer, pipes, opened)
}

async fn keep_alive(stream: &mpsc::UnboundedSender<String>, times: usize) {
    for _ in 0..times {
        sleep(INTERVAL).await;
        stream.send(": keep-alive\n\n".into()).unwrap();
    }
}

const INTERVAL: Duration = Duration::from_secs(15);

#[tokio::test(start_paused = true)]
async fn a_stream_that_falls_silent_after_keep_alives_is_lost_after_three_intervals() {
    let (_peer, pipes, mut opened) = listening();
    let client = client(HyperSend::over(pipes)).await;
    let mut changes = client.subscribe(Changes::new().tools()).await.unwrap();
    let stream = opened.recv().await.unwrap();

    let silent_since = async {
        keep_alive(&stream, 3).await;
        Instant::now()
    };
    let hearing = tokio::time::timeout(INTERVAL * 10, changes.next());
    let (lost, silent_since) = tokio::join!(hearing, silent_since);

    let lost = lost.expect("the silence is noticed").unwrap_err();
    assert!(matches!(lost, Error::Transport { .. }), "{lost:?}");
    assert!(lost.to_string().contains("keep-alive"), "{lost}");
    assert_eq!(changes.ended(), Some(Ended::Lost));
    let silence = silent_since.elapsed();
    assert!(
        silence >= INTERVAL * 3 && silence < INTERVAL * 4,
        "{silence:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_whose_stream_falls_silent_subscribes_again_and_says_that_changes_were_missed() {
    let (_peer, pipes, mut opened) = listening();
    let client = client(HyperSend::over(pipes)).await;
    let mut changes = client.watch(Changes::new().tools());

    let speaking = async {
        let stream = opened.recv().await.unwrap();
        keep_alive(&stream, 3).await;
        stream
    };
    let hearing = tokio::time::timeout(INTERVAL * 10, changes.next());
    let (missed, _stream) = tokio::join!(hearing, speaking);

    let missed = missed.expect("the silence is noticed").unwrap();
    assert_eq!(missed, Some(Change::Missed));
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_keep_alives_may_be_silent_for_as_long_as_it_likes() {
    let (_peer, pipes, mut opened) = listening();
    let client = client(HyperSend::over(pipes)).await;
    let mut changes = client.subscribe(Changes::new().tools()).await.unwrap();
    let stream = opened.recv().await.unwrap();

    let saying = async {
        sleep(Duration::from_secs(36_000)).await;
        let change = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        stream.send(event(&change)).unwrap();
    };
    let (heard, ()) = tokio::join!(changes.next(), saying);

    assert_eq!(heard.unwrap(), Some(Change::Tools));
}

/// A connector whose connections are never there.
#[derive(Clone)]
struct Never;

impl tower_service::Service<Uri> for Never {
    type Response = hyper_util::rt::TokioIo<tokio::net::TcpStream>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_does_not_come_about_fails_the_call_in_time() {
    for send in [HyperSend::over(Never), HyperSend::over_http2(Never)] {
        let client = client(send).await;

        let asked = Instant::now();
        let patient = client
            .call_tool("x", ())
            .timeout(Duration::from_secs(3_600));
        let lost = patient.await.unwrap_err();

        let told = chain(&lost);
        assert!(matches!(lost, Error::Transport { .. }), "{told}");
        assert!(told.contains("http://localhost/mcp"), "{told}");
        assert!(told.contains("timed out after 10s"), "{told}");
        assert_eq!(asked.elapsed().as_secs(), 10);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_and_says_nothing_fails_the_call_in_time() {
    let peer = Http2Peer::new(|number, io| async move {
        match number {
            1 => {
                let _held = io;
                pending::<()>().await;
            }
            _ => serve(io, &Builder::new(), answer).await,
        }
    });
    let client = client(HyperSend::over_http2(peer.pipes())).await;

    let patient = client
        .call_tool("x", ())
        .timeout(Duration::from_secs(3_600));
    let lost = patient.await;

    assert!(matches!(lost, Err(Error::Transport { .. })), "{lost:?}");
    assert_eq!(client.call_tool("x", ()).await.unwrap().text(), "done");
}
