//! The bridge, clients of each era that call through it, and the killer.

use std::fmt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bowline::prelude::*;
use bowline::testing::eventually;
use bowline::{Error, Reply, wire};
use bowline_bridge::{Bridge, Target};
use serde_json::json;
use tokio::sync::watch;

use crate::children;
use crate::pause::pause;
use crate::roles::LAST_WORDS;

/// What happened to the calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ended {
    answered: u64,
    /// The server was killed.
    failed: u64,
    /// The breaker refused them.
    refused: u64,
    kills: u64,
}

struct Shared {
    ended: watch::Sender<Ended>,
    is_over: AtomicBool,
    next_text: AtomicU64,
}

/// Kills servers and clients in turn while calls are in flight.
pub(crate) async fn storm(upstream: &'static str, kills: u64, seed: u64) -> Ended {
    let bridge = bridge(upstream);
    let service = bridge.http();
    let bound = service.clone().bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", bound.local_addr());
    let serving = tokio::spawn(bound.serve());
    let shared = Arc::new(Shared {
        ended: watch::Sender::default(),
        is_over: AtomicBool::new(false),
        next_text: AtomicU64::new(0),
    });
    let mut workers = Vec::new();
    for number in 0..8 {
        let version = ["2026-07-28", "2025-11-25"][number % 2];
        let connect = Client::connect(&url).protocol_version(version);
        let client = connect.await.unwrap();
        let random = Random(seed * 1000 + number as u64 + 1);
        workers.push(tokio::spawn(work(client, shared.clone(), random)));
    }

    kill_at_random(&url, &shared, kills, Random(seed)).await;
    shared.is_over.store(true, Ordering::SeqCst);
    for worker in workers {
        worker.await.unwrap();
    }

    let usage = || bridge.usage();
    let is_idle = || service.in_flight() == 0 && usage().waiting_calls == 0;
    assert!(
        eventually(is_idle).await,
        "{} {:?}",
        service.in_flight(),
        usage()
    );
    assert!(eventually(|| usage().requests == 0).await, "{:?}", usage());
    serving.abort();
    drop((service, bridge));
    assert!(serving.await.is_err());
    let no_children = eventually(|| children::all().is_empty()).await;
    assert!(no_children, "left behind: {:?}", children::all());
    let ended = *shared.ended.borrow();
    assert!(ended.answered > kills && ended.failed > 0, "{ended}");
    ended
}

fn bridge(upstream: &'static str) -> Bridge {
    let program = std::env::current_exe().unwrap();
    let target = Target::new("storm", move |_| {
        let command = wire::Command::new(&program).arg("--serve");
        Ok(Client::spawn(command).protocol_version(upstream))
    });
    Bridge::new(target)
}

/// Makes calls with different texts, one after the other.
async fn work(client: Client, shared: Arc<Shared>, mut random: Random) {
    while !shared.is_over.load(Ordering::SeqCst) {
        let number = shared.next_text.fetch_add(1, Ordering::Relaxed);
        let text = format!("text {number}");
        let arguments = json!({"text": text, "millis": random.below(8)});
        let reply = client.call_tool("echo", arguments).timeout(DEADLINE).await;
        let (kind, wait) = examine(&reply, &text);
        shared.ended.send_modify(|ended| match kind {
            Kind::Answered => ended.answered += 1,
            Kind::Failed => ended.failed += 1,
            Kind::Refused => ended.refused += 1,
        });
        // A client that respects what it is told.
        pause(wait).await;
    }
    client.close().await.unwrap();
}

enum Kind {
    Answered,
    Failed,
    Refused,
}

/// Checks how a call ended. Returns how long its client waits before the next one.
fn examine(reply: &bowline::Result<Reply>, text: &str) -> (Kind, Duration) {
    let error = match reply {
        Ok(reply) => {
            assert_eq!(reply.text(), text, "an answer to another call");
            return (Kind::Answered, Duration::ZERO);
        }
        Err(Error::Rpc(error)) => error,
        Err(error) => panic!("{text}: {error:?}"),
    };
    let data = error.data.as_ref().expect("data that names the server");
    let data: serde_json::Value = data.decode().unwrap();
    assert_eq!(data["upstream"], "storm", "{error}");
    assert!(error.message.contains("upstream `storm`"), "{error}");
    match data["reason"].as_str() {
        Some("upstreamFailed") => {
            assert!(error.message.contains("signal: 9"), "{error}");
            // One that was killed before it could print.
            let printed_nothing = error.message.contains("it printed nothing");
            assert!(
                printed_nothing || error.message.contains(LAST_WORDS),
                "{error}"
            );
            (Kind::Failed, Duration::ZERO)
        }
        Some("upstreamUnavailable") => {
            let millis = data["retryAfterMs"].as_u64().unwrap();
            (Kind::Refused, Duration::from_millis(millis + 1))
        }
        _ => panic!("{text}: {error:?}"),
    }
}

/// Kills a server, or sometimes a client, each time after some answered calls.
async fn kill_at_random(url: &str, shared: &Shared, kills: u64, mut random: Random) {
    let mut client = start_client(url);
    let mut ended = shared.ended.subscribe();
    for _ in 0..kills {
        let answered = shared.ended.borrow().answered + random.below(60);
        // Not kept: it locks the counts.
        let waiting = async {
            ended
                .wait_for(|ended| ended.answered >= answered)
                .await
                .map(drop)
        };
        let waited = tokio::time::timeout(DEADLINE * 4, waiting).await;
        assert!(waited.is_ok(), "calls do not end");
        let servers = children::of("--serve");
        if random.below(4) == 0 {
            end_client(client);
            client = start_client(url);
        } else if !servers.is_empty() {
            let chosen = usize::try_from(random.below(servers.len() as u64)).unwrap();
            children::kill(servers[chosen]);
        }
        shared.ended.send_modify(|ended| ended.kills += 1);
    }
    end_client(client);
}

fn start_client(url: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command.args(["--call", url]).stderr(Stdio::null());
    command.spawn().unwrap()
}

fn end_client(mut client: Child) {
    client.kill().unwrap();
    client.wait().unwrap();
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            answered,
            failed,
            refused,
            kills,
        } = self;
        write!(
            f,
            "{kills} kills, {answered} calls answered, {failed} failed, {refused} refused"
        )
    }
}

/// A sequence of numbers that depends on the seed only.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// Within which each call must end, also on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
