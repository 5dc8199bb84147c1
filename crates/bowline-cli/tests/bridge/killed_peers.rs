//! SIGKILL of the servers and clients of `bowline bridge` at random, while calls are in flight: each call of a killed server
//! ends in time with an error that says so, the next ones are answered by another process, and the calls of a killed client
//! are cancelled.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline::{Client, Error};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::watch;

use crate::FIXTURE;
use crate::killed::answered_before_kills;
use crate::support::{BOWLINE, LEGACY, MODERN, Program, children_of, in_time, kill, wait_for_exit};

#[tokio::test]
async fn the_calls_of_a_killed_stdio_server_fail_with_its_end_and_another_takes_its_place() {
    in_time(async {
        let (mut bridge, url) = Program::bridge_to(&[BOWLINE, "serve-demo"]).await;
        let load = Load::start(&url).await;
        let mut seen = Vec::new();

        for (round, after) in answered_before_kills() {
            load.wait_for_answers(after + 1).await;
            let servers = children_of(&bridge.id()).await;
            if let Some(server) = servers.get(round as usize % servers.len().max(1)) {
                kill(server).await;
            }
            seen.extend(servers);
        }
        load.wait_for_answers(20).await;
        let ended = load.end().await;

        assert!(ended.failed > 0, "{ended:?}");
        bridge.terminate().await;
        assert!(bridge.exit().await.success());
        assert!(!seen.is_empty());
        for server in &seen {
            wait_for_exit(server).await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_calls_of_a_killed_http_server_fail_and_go_on_when_it_is_started_again() {
    in_time(async {
        let mut server = Program::start(&["serve-demo", "--transport", "http"]);
        let url = server.stdout_line().await.unwrap();
        let url = url.strip_prefix("READY ").unwrap().to_owned();
        let port = url.rsplit(':').next().unwrap().strip_suffix("/mcp");
        let port = port.unwrap().to_owned();
        let mut bridge = Program::start(&["bridge", &url, "--http", "127.0.0.1:0"]);
        let front = bridge.stderr_line("bowline: listening on ").await;
        let load = Load::start(&front).await;

        for (_, after) in answered_before_kills() {
            load.wait_for_answers(after + 1).await;
            kill(&server.id()).await;
            server.exit().await;
            load.wait_for_failure().await;
            // Another process may have the port for a moment, as that of an outgoing connection.
            let again = ["serve-demo", "--transport", "http", "--port", &port];
            loop {
                server = Program::start(&again);
                if server.stdout_line().await.is_some() {
                    break;
                }
            }
        }
        load.wait_for_answers(20).await;
        let ended = load.end().await;

        assert!(ended.failed > 0, "{ended:?}");
    })
    .await;
}

#[tokio::test]
async fn the_calls_of_killed_clients_are_cancelled_and_those_of_others_are_not() {
    in_time(async {
        let (mut bridge, url) = Program::bridge_to(&FIXTURE).await;
        let mut clients = Vec::new();
        for _ in 0..6 {
            let mut client = Command::new(BOWLINE);
            let client = client.args(["call", &url, "slow", "seconds=600"]);
            let client = client.stdout(Stdio::null()).stderr(Stdio::null());
            clients.push(
                client
                    .stdin(Stdio::null())
                    .kill_on_drop(true)
                    .spawn()
                    .unwrap(),
            );
        }
        bridge.counts(|counts| counts.active == 6).await;

        let mut others = clients.split_off(3);
        for client in &mut clients {
            client.kill().await.unwrap();
        }

        bridge
            .counts(|counts| (counts.cancelled, counts.active) == (3, 3))
            .await;
        for client in &mut others {
            assert!(
                client.try_wait().unwrap().is_none(),
                "it waits for its call"
            );
            client.kill().await.unwrap();
        }
        bridge.counts(|counts| counts.cancelled == 6).await;
    })
    .await;
}

/// Clients of both eras that make calls one after the other.
struct Load {
    ended: watch::Sender<Ended>,
    is_over: Arc<AtomicBool>,
    workers: Vec<tokio::task::JoinHandle<()>>,
}

/// How calls have ended.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    answered: u64,
    /// The server was killed.
    failed: u64,
}

impl Load {
    async fn start(url: &str) -> Self {
        let (ended, is_over) = (watch::Sender::default(), Arc::new(AtomicBool::new(false)));
        let mut workers = Vec::new();
        for number in 0..4 {
            let version = [MODERN, LEGACY][number % 2];
            let client = Client::connect(url).protocol_version(version);
            let client = client.await.unwrap();
            workers.push(tokio::spawn(work(
                client,
                number,
                ended.clone(),
                is_over.clone(),
            )));
        }
        Self {
            ended,
            is_over,
            workers,
        }
    }

    /// Waits until this many more calls are answered.
    async fn wait_for_answers(&self, count: u64) {
        let answered = self.ended.borrow().answered + count;
        let mut ended = self.ended.subscribe();
        ended
            .wait_for(|ended| ended.answered >= answered)
            .await
            .unwrap();
    }

    /// Waits until one more call has failed.
    async fn wait_for_failure(&self) {
        let failed = self.ended.borrow().failed;
        let mut ended = self.ended.subscribe();
        ended.wait_for(|ended| ended.failed > failed).await.unwrap();
    }

    async fn end(self) -> Ended {
        self.is_over.store(true, Ordering::Relaxed);
        for worker in self.workers {
            worker.await.unwrap();
        }
        *self.ended.borrow()
    }
}

async fn work(
    client: Client,
    worker: usize,
    ended: watch::Sender<Ended>,
    is_over: Arc<AtomicBool>,
) {
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        number += 1;
        let text = format!("text {number} of {worker}");
        let echo = client.call_tool("echo", json!({"text": text}));
        match echo.timeout(DEADLINE).await {
            Ok(reply) => {
                assert_eq!(reply.text(), text, "an answer to another call");
                ended.send_modify(|ended| ended.answered += 1);
            }
            Err(error) => {
                assert_names_the_end(&error);
                ended.send_modify(|ended| ended.failed += 1);
            }
        }
    }
    client.close().await.unwrap();
}

/// Asserts that an error names the server and what has happened to it.
fn assert_names_the_end(error: &Error) {
    let Error::Rpc(rpc) = error else {
        panic!("{error:?}");
    };
    let data: Value = rpc.data.as_ref().unwrap().decode().unwrap();
    assert!(rpc.message.contains("upstream `"), "{rpc}");
    assert!(data["upstream"].is_string(), "{rpc}");
    let reason = data["reason"].as_str().unwrap();
    assert!(
        ["upstreamFailed", "upstreamUnavailable"].contains(&reason),
        "{rpc}"
    );
}

/// Within which each call must end, also on a busy machine. A call that reaches it fails with another error.
const DEADLINE: Duration = Duration::from_secs(50);
