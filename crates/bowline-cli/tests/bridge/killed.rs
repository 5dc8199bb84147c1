//! SIGKILL of `bowline bridge` at random, while calls are in flight: each of them ends in time with an error that says that
//! the connection was lost, no answer goes to another call, and the server behind exits.

use std::time::Duration;

use bowline::wire::Command;
use bowline::{Client, Error};
use serde_json::json;
use tokio::sync::watch;

use crate::support::{BOWLINE, LEGACY, MODERN, Program, children_of, in_time, kill, wait_for_exit};

/// A stdio server that exits at the end of its stdin.
const SERVER: [&str; 2] = [BOWLINE, "serve-demo"];

#[tokio::test]
async fn the_calls_of_clients_over_http_end_when_the_bridge_is_killed() {
    for (round, after) in answered_before_kills() {
        in_time(async {
            let (mut bridge, url) = Program::bridge_to(&SERVER).await;
            let answered = watch::Sender::new(0);
            let mut workers = Vec::new();
            for number in 0..4 {
                let version = [MODERN, LEGACY][number % 2];
                let client = Client::connect(&url).protocol_version(version);
                let client = client.await.unwrap();
                let name = format!("{round}.{number}");
                workers.push(tokio::spawn(work(client, name, answered.clone())));
            }
            wait_for(&answered, after).await;
            let servers = children_of(&bridge.id()).await;

            kill(&bridge.id()).await;

            assert_eq!(bridge.exit().await.code(), None, "ended by a signal");
            for worker in workers {
                for error in worker.await.unwrap() {
                    let is_lost = matches!(error, Error::Transport { .. } | Error::Closed);
                    assert!(is_lost, "{error:?}");
                }
            }
            assert!(!servers.is_empty(), "the bridge has a server");
            for server in &servers {
                wait_for_exit(server).await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn the_calls_of_a_client_over_stdio_end_when_the_bridge_is_killed() {
    for (round, after) in answered_before_kills() {
        in_time(async {
            let (version, other) = match round % 2 {
                0 => (MODERN, "modern"),
                _ => (LEGACY, "legacy"),
            };
            let pid_file = format!("bowline-killed-{}-{round}.pid", std::process::id());
            let pid_file = std::env::temp_dir().join(pid_file);
            // The shell becomes the bridge, so that its id is known.
            let script = r#"echo $$ > "$0"; exec "$@""#;
            let arguments = [BOWLINE, "bridge", "--stdio", "--"];
            let command = Command::new("sh")
                .args(["-c", script])
                .arg(&pid_file)
                .args(arguments)
                .args(SERVER);
            let client = Client::spawn(command).protocol_version(version);
            let client = client.await.unwrap();
            let bridge = std::fs::read_to_string(&pid_file).unwrap();
            std::fs::remove_file(&pid_file).unwrap();
            let bridge = bridge.trim();
            let answered = watch::Sender::new(0);
            let workers = ["a", "b"].map(|worker| {
                let name = format!("{other} {round}.{worker}");
                tokio::spawn(work(client.clone(), name, answered.clone()))
            });
            wait_for(&answered, after).await;
            let servers = children_of(bridge).await;

            kill(bridge).await;

            for worker in workers {
                for error in worker.await.unwrap() {
                    let text = error_chain(&error);
                    assert!(text.contains("signal: 9"), "{text}");
                }
            }
            assert!(!servers.is_empty(), "the bridge has a server");
            for server in &servers {
                wait_for_exit(server).await;
            }
        })
        .await;
    }
}

/// The rounds, and how many calls are answered in each of them before the bridge is killed.
pub(crate) fn answered_before_kills() -> impl Iterator<Item = (u64, u64)> {
    let seed = std::env::var("STORM_SEED").ok();
    let seed: u64 = seed.and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let kills = std::env::var("STORM_KILLS").ok();
    let kills: u64 = kills.and_then(|kills| kills.parse().ok()).unwrap_or(4);
    (0..kills).map(move |round| {
        let mixed = (seed * 1000 + round).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        (round, mixed % 50)
    })
}

async fn wait_for(answered: &watch::Sender<u64>, count: u64) {
    let mut answered = answered.subscribe();
    answered.wait_for(|now| *now >= count).await.unwrap();
}

/// Makes calls one after the other, next to one that is not answered, and returns the errors of the last two.
async fn work(client: Client, name: String, answered: watch::Sender<u64>) -> [Error; 2] {
    let slow = client.call_tool("slow", json!({"seconds": 600}));
    let slow = tokio::spawn(slow.timeout(DEADLINE).start());
    let mut number = 0;
    let last = loop {
        number += 1;
        let text = format!("text {number} of {name}");
        let echo = client.call_tool("echo", json!({"text": text}));
        match echo.timeout(DEADLINE).await {
            Ok(reply) => assert_eq!(reply.text(), text, "an answer to another call"),
            Err(error) => break error,
        }
        answered.send_modify(|count| *count += 1);
    };
    [last, slow.await.unwrap().unwrap_err()]
}

fn error_chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Within which each call must end, also on a busy machine. A call that reaches it fails with another error.
const DEADLINE: Duration = Duration::from_secs(50);
