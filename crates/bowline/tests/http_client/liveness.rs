//! Dead connections: connects that never complete, connections that drop all data, streams without keep-alives.

use std::error::Error as StdError;
use std::future::pending;
use std::time::Duration;

use bowline::client::{Change, ChangeFilter, SubscriptionEnd};
use bowline::http::client::HyperClient;
use bowline::testing::PipeConnector;
use bowline::{Client, Error};
use h2::server::Builder;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use crate::http2_server::{Http2Server, answer, message, serve};
use crate::scripted_server::{ReceivedRequest, SSE_HEAD, ScriptedReply, ScriptedServer, event};

async fn client(send: HyperClient) -> Client {
    let connect = Client::connect("http://localhost/mcp").http_client(send);
    connect.protocol_version("2026-07-28").await.unwrap()
}

fn error_chain(error: &dyn StdError) -> String {
    let mut chain = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        chain = format!("{chain}: {error}");
        cause = error.source();
    }
    chain
}

/// A connector whose first connection drops all data in both directions once `is_dead` is true.
fn lossy_connector(server: &Http2Server, is_dead: watch::Receiver<bool>) -> PipeConnector {
    let (through, first) = (server.connector(), std::sync::atomic::AtomicBool::new(true));
    PipeConnector::with(move |mut far| {
        let mut near = through.open();
        let can_die = first.swap(false, std::sync::atomic::Ordering::SeqCst);
        let mut is_dead = is_dead.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = is_dead.wait_for(|is_dead| *is_dead), if can_die => {}
                _ = tokio::io::copy_bidirectional(&mut far, &mut near) => return,
            }
            let _dropped = tokio::io::copy(&mut far, &mut tokio::io::sink()).await;
        });
    })
}

/// A server that answers every tool but `slow`.
fn server() -> Http2Server {
    Http2Server::new(|_, io| async move {
        serve(io, &Builder::new(), |request, mut respond| async move {
            let message = message(request).await;
            if message["params"]["name"] == "slow" {
                let _ = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
                return;
            }
            let json = crate::http2_server::done(&message["id"]).to_string();
            let head = crate::http2_server::head("application/json");
            if let Ok(mut body) = respond.send_response(head, false) {
                let _ = body.send_data(json.into(), true);
            }
        })
        .await;
    })
}

#[tokio::test(start_paused = true)]
async fn a_dead_connection_fails_one_call_and_the_next_reconnects() {
    let (server, is_dead) = (server(), watch::Sender::new(false));
    let connector = lossy_connector(&server, is_dead.subscribe());
    let client = client(HyperClient::with_http2_connector(connector)).await;
    let limit = Duration::from_secs(2);
    client.call_tool("quick", ()).await.unwrap();
    is_dead.send_replace(true);

    let lost = client.call_tool("quick", ()).idle_timeout(limit).await;
    let next = client.call_tool("quick", ()).idle_timeout(limit).await;

    assert!(matches!(lost, Err(Error::Timeout { .. })), "{lost:?}");
    assert_eq!(next.unwrap().text(), "done");
    assert_eq!(server.accepted_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_timed_out_call_keeps_the_connection_to_a_slow_server() {
    let server = server();
    let client = client(HyperClient::with_http2_connector(server.connector())).await;

    for _ in 0..5 {
        let limit = Duration::from_secs(2);
        let lost = client.call_tool("slow", ()).idle_timeout(limit).await;
        assert!(matches!(lost, Err(Error::Timeout { .. })), "{lost:?}");
        client.call_tool("quick", ()).await.unwrap();
    }

    assert_eq!(server.accepted_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_on_a_dead_connection_fails_before_its_timeout() {
    let (server, is_dead) = (server(), watch::Sender::new(false));
    let connector = lossy_connector(&server, is_dead.subscribe());
    let client = client(HyperClient::with_http2_connector(connector)).await;
    client.call_tool("quick", ()).await.unwrap();
    is_dead.send_replace(true);

    let start = Instant::now();
    let call = client
        .call_tool("slow", ())
        .idle_timeout(Duration::from_secs(3_600));
    let lost = call.await.unwrap_err();

    assert!(matches!(lost, Error::Transport { .. }), "{lost:?}");
    assert!(
        error_chain(&lost).contains("ping"),
        "{}",
        error_chain(&lost)
    );
    assert!(start.elapsed() <= Duration::from_secs(60));
    client.call_tool("quick", ()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_slow_call_is_kept_while_pings_are_answered() {
    let server = server();
    let client = client(HyperClient::with_http2_connector(server.connector())).await;

    let call = client
        .call_tool("slow", ())
        .idle_timeout(Duration::from_secs(3_600));
    let lost = call.await;

    assert!(matches!(lost, Err(Error::Timeout { .. })), "{lost:?}");
}

fn acknowledged(request: &ReceivedRequest) -> String {
    let meta = json!({"io.modelcontextprotocol/subscriptionId": request.body["id"]});
    let params = json!({"_meta": meta, "notifications": {"toolsListChanged": true}});
    let method = "notifications/subscriptions/acknowledged";
    SSE_HEAD.to_owned() + &event(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
}

/// A server that acknowledges subscriptions; the test sends the events of their streams.
fn subscription_server() -> (
    ScriptedServer,
    PipeConnector,
    mpsc::UnboundedReceiver<mpsc::UnboundedSender<String>>,
) {
    let (streams, opened) = mpsc::unbounded_channel();
    let (server, connector) = ScriptedServer::in_memory(move |request| {
        let (sender, receiver) = mpsc::unbounded_channel();
        streams.send(sender).unwrap();
        ScriptedReply::BytesThenMore(acknowledged(request), receiver)
    });
    (server, connector, opened)
}

async fn keep_alive(stream: &mpsc::UnboundedSender<String>, times: usize) {
    for _ in 0..times {
        sleep(INTERVAL).await;
        stream.send(": keep-alive\n\n".into()).unwrap();
    }
}

const INTERVAL: Duration = Duration::from_secs(15);

#[tokio::test(start_paused = true)]
async fn a_stream_without_further_keep_alives_fails_after_three_intervals() {
    let (_server, connector, mut opened) = subscription_server();
    let client = client(HyperClient::with_connector(connector)).await;
    let mut changes = client.subscribe(ChangeFilter::new().tools()).await.unwrap();
    let stream = opened.recv().await.unwrap();

    let silent_since = async {
        keep_alive(&stream, 3).await;
        Instant::now()
    };
    let next = tokio::time::timeout(INTERVAL * 10, changes.next());
    let (lost, silent_since) = tokio::join!(next, silent_since);

    let lost = lost
        .expect("the missing keep-alives are noticed")
        .unwrap_err();
    assert!(matches!(lost, Error::Transport { .. }), "{lost:?}");
    assert!(lost.to_string().contains("keep-alive"), "{lost}");
    assert_eq!(changes.ended(), Some(SubscriptionEnd::Lost));
    let silence = silent_since.elapsed();
    assert!(
        silence >= INTERVAL * 3 && silence < INTERVAL * 4,
        "{silence:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_resubscribes_after_missing_keep_alives_and_reports_missed_changes() {
    let (_server, connector, mut opened) = subscription_server();
    let client = client(HyperClient::with_connector(connector)).await;
    let mut changes = client.watch(ChangeFilter::new().tools());

    let sending = async {
        let stream = opened.recv().await.unwrap();
        keep_alive(&stream, 3).await;
        stream
    };
    let next = tokio::time::timeout(INTERVAL * 10, changes.next());
    let (missed, _stream) = tokio::join!(next, sending);

    let missed = missed
        .expect("the missing keep-alives are noticed")
        .unwrap();
    assert_eq!(missed, Some(Change::Missed));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_never_sent_keep_alives_has_no_idle_timeout() {
    let (_server, connector, mut opened) = subscription_server();
    let client = client(HyperClient::with_connector(connector)).await;
    let mut changes = client.subscribe(ChangeFilter::new().tools()).await.unwrap();
    let stream = opened.recv().await.unwrap();

    let sending = async {
        sleep(Duration::from_secs(36_000)).await;
        let change = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        stream.send(event(&change)).unwrap();
    };
    let (received, ()) = tokio::join!(changes.next(), sending);

    assert_eq!(received.unwrap(), Some(Change::Tools));
}

#[tokio::test(start_paused = true)]
async fn a_connect_that_never_completes_times_out_after_ten_seconds() {
    for send in [
        HyperClient::with_connector(|_| pending()),
        HyperClient::with_http2_connector(|_| pending()),
    ] {
        let client = client(send).await;

        let start = Instant::now();
        let call = client
            .call_tool("x", ())
            .idle_timeout(Duration::from_secs(3_600));
        let lost = call.await.unwrap_err();

        let chain = error_chain(&lost);
        assert!(matches!(lost, Error::Transport { .. }), "{chain}");
        assert!(chain.contains("http://localhost/mcp"), "{chain}");
        assert!(chain.contains("timed out after 10s"), "{chain}");
        assert_eq!(start.elapsed().as_secs(), 10);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_completes_the_http2_handshake_fails_the_call() {
    let server = Http2Server::new(|number, io| async move {
        match number {
            1 => {
                let _held = io;
                pending::<()>().await;
            }
            _ => serve(io, &Builder::new(), answer).await,
        }
    });
    let client = client(HyperClient::with_http2_connector(server.connector())).await;

    let call = client
        .call_tool("x", ())
        .idle_timeout(Duration::from_secs(3_600));
    let lost = call.await;

    assert!(matches!(lost, Err(Error::Transport { .. })), "{lost:?}");
    assert_eq!(client.call_tool("x", ()).await.unwrap().text(), "done");
}
