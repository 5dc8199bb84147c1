//! SIGKILL of the bridge: each of its calls ends with a transport error, its servers exit, and the next process tells a
//! client that waited with a parked call that the call was lost.

use std::fmt;
use std::process::Stdio;
use std::time::Duration;

use bowline::client::Host;
use bowline::prelude::*;
use bowline::testing::eventually;
use bowline::types::ElicitResult;
use bowline::{Error, Reply};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::children;
use crate::world::Random;

/// What happened to the calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ended {
    answered: u64,
    /// The bridge was killed.
    failed: u64,
    kills: u64,
    /// Parked calls that the next bridge has reported as lost.
    lost: u64,
}

/// Starts bridges, and kills each of them while calls are in flight.
pub(crate) async fn storm(upstream: &'static str, kills: u64, seed: u64) -> Ended {
    let (mut ended, mut random) = (Ended::default(), Random(seed));
    let mut parked: Option<String> = None;
    for round in 0..=kills {
        let marker = format!("storm-{}-{upstream}-{round}", std::process::id());
        let mut bridge = BridgeProcess::start(upstream, &marker).await;
        if let Some(state) = parked.take() {
            expect_lost(&bridge.url, &state).await;
            ended.lost += 1;
        }
        if round < kills {
            if upstream == "2025-11-25" {
                parked = Some(park(&bridge.url).await);
            }
            let (answered, failed) = kill_under_load(&mut bridge, random.below(60)).await;
            ended.answered += answered;
            ended.failed += failed;
            ended.kills += 1;
        } else {
            bridge.kill().await;
        }
        // They read the end of their stdin, as servers that are well-behaved.
        let is_gone = || children::anywhere(&marker).is_empty();
        let mut is_clean = false;
        for _ in 0..12 {
            is_clean = is_clean || eventually(is_gone).await;
        }
        assert!(is_clean, "left behind: {:?}", children::anywhere(&marker));
    }
    assert!(ended.failed > 0, "{ended}");
    ended
}

/// Makes calls of both eras, and kills the bridge after some of them were answered.
async fn kill_under_load(bridge: &mut BridgeProcess, answered: u64) -> (u64, u64) {
    let count = watch::Sender::new(0);
    let mut workers = Vec::new();
    for number in 0..4 {
        let version = ["2026-07-28", "2025-11-25"][number % 2];
        let connect = Client::connect(&bridge.url).protocol_version(version);
        let client = connect.await.unwrap();
        workers.push(tokio::spawn(work(client, number, count.clone())));
    }
    let mut counted = count.subscribe();
    let waiting = async { counted.wait_for(|count| *count >= answered).await.map(drop) };
    let waited = tokio::time::timeout(DEADLINE * 2, waiting).await;
    assert!(waited.is_ok(), "calls do not end");

    bridge.kill().await;

    let mut failed = 0;
    for worker in workers {
        failed += worker.await.unwrap();
    }
    let answered = *count.borrow();
    (answered, failed)
}

/// Makes calls until one fails; one that is never answered is in flight all the time. Returns how many have failed.
async fn work(client: Client, worker: usize, answered: watch::Sender<u64>) -> u64 {
    let waiting = tokio::spawn(client.call_tool("wait", ()).timeout(DEADLINE * 2).start());
    for number in 0.. {
        let text = format!("text {number} of {worker}");
        let arguments = json!({"text": text, "millis": number % 8});
        match client.call_tool("echo", arguments).timeout(DEADLINE).await {
            Ok(reply) => assert_eq!(reply.text(), text, "an answer to another call"),
            Err(error) => {
                assert_connection_lost(&error);
                break;
            }
        }
        answered.send_modify(|count| *count += 1);
    }
    let waited = waiting.await.unwrap();
    assert_connection_lost(&waited.unwrap_err());
    2
}

fn assert_connection_lost(error: &Error) {
    let is_lost = matches!(error, Error::Transport { .. } | Error::Closed);
    assert!(is_lost, "{error:?}");
}

/// Makes a call that the server asks about, and returns its state.
async fn park(url: &str) -> String {
    let client = asked_client(url).await;
    let asked = client.call_tool("ask", ()).manual_input().timeout(DEADLINE);
    let asked = asked.await.unwrap().input_required().unwrap();
    asked.request_state.unwrap()
}

/// Makes the same call with the state of a bridge that was killed.
async fn expect_lost(url: &str, state: &str) {
    let client = asked_client(url).await;
    let answer = json!({"q1": {"action": "accept", "content": {"text": "42"}}});
    let params = json!({
        "name": "ask", "arguments": {}, "inputResponses": answer, "requestState": state,
    });
    let retried: bowline::Result<Reply> = client.request_raw("tools/call", params).await;
    let Err(Error::Rpc(error)) = retried else {
        panic!("{retried:?}");
    };
    let data: Value = error.data.as_ref().unwrap().decode().unwrap();
    assert_eq!(error.code, bowline::ErrorCode::INTERNAL_ERROR);
    assert_eq!(data, json!({"reason": "callLost", "mayHaveRun": true}));
}

async fn asked_client(url: &str) -> Client {
    let host = Host::new().elicitation(async |_| ElicitResult::accept(json!({})));
    let connect = Client::connect(url).protocol_version("2026-07-28");
    connect.host(host).await.unwrap()
}

/// A bridge in a process of its own.
struct BridgeProcess {
    url: String,
    child: Child,
}

impl BridgeProcess {
    async fn start(upstream: &str, marker: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--bridge", upstream, marker])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(DEADLINE, lines.next_line());
        let url = line.await.unwrap().unwrap().unwrap();
        Self { url, child }
    }

    /// Sends SIGKILL, and waits until the process has ended.
    async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            answered,
            failed,
            kills,
            lost,
        } = self;
        write!(
            f,
            "{kills} kills, {answered} calls answered, {failed} failed, {lost} parked calls lost"
        )
    }
}

/// Within which each call must end, also on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
