//! Two `bowline bridge --cluster` processes on each engine. Run by `cargo xtask cluster`.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may panic, too"
)]

use std::process::Stdio;
use std::time::Duration;

use bowline::client::Host;
use bowline::types::ElicitResult;
use bowline::{Client, Error};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

const BOWLINE: &str = env!("CARGO_BIN_EXE_bowline");

/// A server of 2025-11-25 that counts the calls of its process. Its tool `ask` asks before it answers.
const SERVER: &str = r#"
count=0
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
while read -r line; do
    id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
    case "$line" in
        *'"id":900'*) answer "$call" "{\"content\":[{\"type\":\"text\",\"text\":\"asked $count\"}]}" ;;
        *'"server/discover"'*)
            printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}\n' "$id" ;;
        *'"initialize"'*)
            answer "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"shell","version":"1"}}' ;;
        *'"tools/list"'*) answer "$id" '{"tools":[]}' ;;
        *'"name":"next"'*)
            count=$((count + 1))
            answer "$id" "{\"content\":[{\"type\":\"text\",\"text\":\"$count\"}]}" ;;
        *'"name":"ask"'*)
            call=$id
            printf '%s\n' '{"jsonrpc":"2.0","id":900,"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}' ;;
    esac
done
"#;

/// A bridge to a stdio server, in a cluster. It is killed when this is dropped.
struct Replica {
    child: Child,
    stderr: Lines<BufReader<ChildStderr>>,
    url: String,
}

impl Replica {
    /// Starts a replica of the cluster with this name. Tests share an engine.
    async fn start(engine: &str, name: &str) -> Self {
        let child = Command::new(BOWLINE)
            .args(["bridge", "--http", "127.0.0.1:0", "--drain-delay", "0"])
            .args(["--cluster", engine, "--cluster-name", name])
            .args(["--", "sh", "-c", SERVER])
            .env("BOWLINE_CLUSTER_KEYS", "07".repeat(32))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = child.unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut seen = Vec::new();
        let url = loop {
            let line = stderr.next_line().await.unwrap();
            let line = line.unwrap_or_else(|| panic!("the bridge has ended: {seen:?}"));
            match line.strip_prefix("bowline: listening on ") {
                Some(url) => break url.to_owned(),
                None => seen.push(line),
            }
        };
        Self { child, stderr, url }
    }

    async fn pair(engine: &str, name: &str) -> [Self; 2] {
        let name = format!("{name} {engine} {}", std::process::id());
        [
            Self::start(engine, &name).await,
            Self::start(engine, &name).await,
        ]
    }

    async fn client(&self) -> Client {
        let answer = async |_| ElicitResult::accept(json!({"name": "Ada"}));
        let client = Client::connect(&self.url).protocol_version("2026-07-28");
        client.host(Host::new().elicitation(answer)).await.unwrap()
    }

    /// Kills it, and waits until it has ended.
    async fn kill(mut self) {
        self.child.kill().await.unwrap();
        // Its last lines, for the output of a failed test.
        while let Ok(Some(line)) = self.stderr.next_line().await {
            eprintln!("{line}");
        }
    }
}

/// Runs a test on every engine that was started.
async fn on_each_engine<F: Future<Output = ()>>(test: impl Fn(String) -> F) {
    let variables = [
        "BOWLINE_POSTGRES_URL",
        "BOWLINE_REDIS_URL",
        "BOWLINE_NATS_URL",
    ];
    let urls: Vec<_> = (variables.iter())
        .filter_map(|variable| std::env::var(variable).ok())
        .collect();
    assert!(!urls.is_empty(), "run by `cargo xtask cluster`");
    for url in urls {
        let limit = Duration::from_secs(60);
        let tested = tokio::time::timeout(limit, test(url.clone())).await;
        assert!(
            tested.is_ok(),
            "the test takes longer than a minute on {url}"
        );
    }
}

async fn next(client: &Client) -> String {
    client.call_tool("next", ()).await.unwrap().text()
}

/// Calls a tool that asks; returns the params of the retry with the answer.
async fn ask(client: &Client) -> Value {
    let params = json!({"name": "ask", "arguments": {}});
    let asked = client.request_raw("tools/call", params).manual_input();
    let asked: Value = asked.await.unwrap().json().decode().unwrap();
    let questions = asked["inputRequests"].as_object();
    let key = questions.unwrap().keys().next().unwrap();
    let answer = json!({"action": "accept", "content": {"name": "Ada"}});
    json!({
        "name": "ask",
        "arguments": {},
        "requestState": asked["requestState"],
        "inputResponses": {key: answer},
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_both_replicas_use_one_process_and_a_parked_call_is_continued_at_either() {
    on_each_engine(|engine| async move {
        let [first, second] = Replica::pair(&engine, "parked").await;
        let clients = [first.client().await, second.client().await];
        for count in 1..=4 {
            assert_eq!(next(&clients[count % 2]).await, count.to_string());
        }

        for (asking, answering) in [(0, 1), (1, 0), (0, 0)] {
            let retry = ask(&clients[asking]).await;
            let answered = clients[answering].request_raw("tools/call", retry);
            let answered = answered.manual_input().await.unwrap();
            let answered = answered.json().as_str().to_owned();
            assert!(answered.contains("asked 4"), "{answered}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clients_of_a_replica_that_was_killed_are_served_by_the_other() {
    on_each_engine(|engine| async move {
        let [first, second] = Replica::pair(&engine, "killed").await;
        let (owner, client) = (first.client().await, second.client().await);
        assert_eq!(next(&owner).await, "1");
        let retry = ask(&owner).await;

        first.kill().await;

        // Postgres finds out within seconds; until then the owner may be alive.
        let lost = loop {
            let request = client.request_raw("tools/call", retry.clone());
            match request.manual_input().await {
                Err(Error::Rpc(error)) if error.message.contains("lost") => break error,
                Err(error) => eprintln!("{error}"),
                Ok(answer) => panic!("the call goes on: {answer:?}"),
            }
        };
        let data: Value = lost.data.unwrap().decode().unwrap();
        assert_eq!(data["mayHaveRun"], true);
        // Another process, with another count.
        assert_eq!(next(&client).await, "1");
    })
    .await;
}
