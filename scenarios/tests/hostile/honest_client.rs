//! An honest client, which calls the attacked server before, during and after an attack.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bowline::Client;
use bowline::wire::Lines;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::attack::Target;
use crate::attacked_server::ServerSetup;
use crate::rpc;

/// The transport and era of an honest client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientTransport {
    Modern,
    Legacy,
    Lines,
}

/// The measurements of the honest client.
#[derive(Debug, Default)]
pub(crate) struct Measurements {
    /// The duration of each call, rejections and retries included.
    pub(crate) times: Vec<Duration>,
    /// The number of rejected and retried calls.
    pub(crate) refused: usize,
    pub(crate) failure: Option<String>,
}

impl Measurements {
    pub(crate) fn median(&self) -> Duration {
        let mut times = self.times.clone();
        times.sort();
        times.get(times.len() / 2).copied().unwrap_or_default()
    }

    pub(crate) fn worst(&self) -> Duration {
        self.times.iter().copied().max().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.times.extend(other.times);
        self.refused += other.refused;
        self.failure = self.failure.take().or(other.failure);
    }
}

/// The transports of a server with this setup.
pub(crate) fn transports(setup: ServerSetup) -> &'static [ClientTransport] {
    match setup {
        ServerSetup::ShuttingDown => &[],
        ServerSetup::ModernOnly => &[ClientTransport::Modern, ClientTransport::Lines],
        _ => &[
            ClientTransport::Modern,
            ClientTransport::Legacy,
            ClientTransport::Lines,
        ],
    }
}

/// Calls the server over each transport in turn until `stop` is set; on a separate thread, so that the work of the
/// attackers does not delay the measurements.
pub(crate) fn watch(
    target: Target,
    setup: ServerSetup,
    stop: Arc<AtomicBool>,
) -> JoinHandle<Measurements> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(call_repeatedly(target, setup, stop))
    })
}

async fn call_repeatedly(
    target: Target,
    setup: ServerSetup,
    stop: Arc<AtomicBool>,
) -> Measurements {
    let mut measurements = Measurements::default();
    // With a limit of four requests, the attacker occupies all of them.
    if setup == ServerSetup::FourRequests {
        return measurements;
    }
    while !stop.load(Ordering::Relaxed) && measurements.failure.is_none() {
        measurements.add(once(&target, setup).await);
        crate::pause::pause(Duration::from_millis(50)).await;
    }
    measurements
}

/// Calls the server once over each transport.
pub(crate) async fn once(target: &Target, setup: ServerSetup) -> Measurements {
    let mut measurements = Measurements::default();
    for transport in transports(setup) {
        let begun = Instant::now();
        let mut last = String::new();
        let calling = async {
            loop {
                match call_echo(target, *transport).await {
                    Ok(()) => return,
                    Err(error) => last = error,
                }
                measurements.refused += 1;
                crate::pause::pause(Duration::from_millis(20)).await;
            }
        };
        let answered = tokio::time::timeout(DEADLINE, calling).await;
        measurements.times.push(begun.elapsed());
        if answered.is_err() {
            let failure = format!("no response within {DEADLINE:?} ({transport:?}): {last}");
            measurements.failure.get_or_insert(failure);
            break;
        }
    }
    measurements
}

/// Opens a connection, calls a tool, and closes the connection.
async fn call_echo(target: &Target, transport: ClientTransport) -> Result<(), String> {
    let url = format!("http://{}/mcp", target.http);
    let client = match transport {
        ClientTransport::Modern => Client::connect(&url).protocol_version(rpc::MODERN).await,
        ClientTransport::Legacy => Client::connect(&url).protocol_version(rpc::LEGACY).await,
        ClientTransport::Lines => {
            let stream = TcpStream::connect(target.lines).await;
            Client::from_wire(Lines::tcp(stream.map_err(text)?)).await
        }
    };
    let client = client.map_err(text)?;
    let reply = client.call_tool("echo", json!({"text": "still there?"}));
    let reply = reply.await.map_err(text)?;
    if reply.text() != "still there?" {
        return Err(format!("unexpected result: {:?}", reply.text()));
    }
    client.close().await.map_err(text)
}

/// An error with its causes.
fn text(error: impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// Generous, so that a busy machine does not fail the test.
const DEADLINE: Duration = Duration::from_secs(20);
