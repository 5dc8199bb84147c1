//! B: more connections than the server accepts, none of which sends a complete request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline::Limits;
use bytes::Bytes;
use tokio::io::AsyncReadExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::attack::{Attack, Target, on_server};
use crate::{http2, runner};

pub(crate) fn attacks() -> Vec<Attack> {
    on_server![
        "B" Default half_heads_on_more_connections_than_the_limit,
        "B" Default bytes_of_tls_on_more_connections_than_the_limit,
        "B" Default silence_on_more_connections_than_the_limit,
        "B" Default a_byte_a_second_on_more_connections_than_the_limit,
    ]
    .to_vec()
}

async fn half_heads_on_more_connections_than_the_limit(target: Target) -> Result<String, String> {
    let heads = [
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: ",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    hold_and_reopen(target, heads.map(Bytes::from), false).await
}

/// The beginning of a TLS hello, whole on one half of the connections and one byte of it on the other. This server has no
/// TLS and answers 400; half a hello to one that has is a test of `crates/bowline/tests/tls`.
async fn bytes_of_tls_on_more_connections_than_the_limit(target: Target) -> Result<String, String> {
    let hello = Bytes::from_static(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]);
    hold_and_reopen(target, [hello.slice(..1), hello], false).await
}

async fn silence_on_more_connections_than_the_limit(target: Target) -> Result<String, String> {
    hold_and_reopen(target, [Bytes::new(), Bytes::new()], false).await
}

async fn a_byte_a_second_on_more_connections_than_the_limit(
    target: Target,
) -> Result<String, String> {
    let heads = ["POST /mcp HTTP/1.1\r\nx: ", "G"];
    hold_and_reopen(target, heads.map(Bytes::from), true).await
}

/// Opens more connections than the server accepts, writes one of the two beginnings to each, and opens those again that
/// the server closes. Fails if a probe is not answered meanwhile.
async fn hold_and_reopen(target: Target, first: [Bytes; 2], drips: bool) -> Result<String, String> {
    let opened = Arc::new(AtomicU64::new(0));
    let mut held = JoinSet::new();
    let all = runner::connections(Limits::default().connections + 1000);
    for number in 0..all {
        let (first, opened, to) = (first[number % 2].clone(), opened.clone(), target.http);
        held.spawn(async move {
            loop {
                // The server may close at any time, and refuse while its queue is full.
                let _ = hold(to, &first, drips, &opened).await;
                crate::pause::pause(REOPEN_PAUSE).await;
            }
        });
    }
    // The server accepts these as fast as the machine allows.
    http2::wait_until_settled(&opened, all as u64, all as u64).await;
    let mut worst = Duration::ZERO;
    for probe in 0..PROBES {
        let begun = Instant::now();
        match timeout(PROBE_DEADLINE, probe_once(target.http)).await {
            Ok(Ok(())) => worst = worst.max(begun.elapsed()),
            Ok(Err(error)) => return Err(format!("probe {probe} failed: {error}")),
            Err(_) => {
                return Err(format!(
                    "probe {probe}: no answer within {PROBE_DEADLINE:?}"
                ));
            }
        }
        crate::pause::pause(PROBE_PAUSE).await;
    }
    let opened = opened.load(Ordering::Relaxed);
    Ok(format!(
        "{all} connections, opened {opened} times; {PROBES} probes, worst {} ms",
        worst.as_millis()
    ))
}

/// Holds one connection until the server closes it.
async fn hold(
    to: SocketAddr,
    first: &[u8],
    drips: bool,
    opened: &AtomicU64,
) -> std::io::Result<()> {
    let mut stream = timeout(PROBE_DEADLINE, TcpStream::connect(to)).await??;
    stream.write_all(first).await?;
    opened.fetch_add(1, Ordering::Relaxed);
    loop {
        let mut read = [0; 64];
        let wait = if drips { DRIP_PAUSE } else { Duration::MAX };
        match timeout(wait, stream.read(&mut read)).await {
            Ok(Ok(0) | Err(_)) => return Ok(()),
            Ok(Ok(_)) => {}
            Err(_) => stream.write_all(b"y").await?,
        }
    }
}

/// Opens a connection for one liveness probe, as Kubernetes does.
async fn probe_once(to: SocketAddr) -> Result<(), String> {
    let mut stream = TcpStream::connect(to).await.map_err(text)?;
    let request = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.map_err(text)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.map_err(text)?;
    match answer.starts_with(b"HTTP/1.1 200") {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&answer).into_owned()),
    }
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}

const PROBES: usize = 20;
const PROBE_PAUSE: Duration = Duration::from_millis(400);
/// Generous, so that a busy machine does not fail the test; the heads that block without a limit do so for 30 s.
const PROBE_DEADLINE: Duration = Duration::from_secs(10);
const DRIP_PAUSE: Duration = Duration::from_secs(1);
/// So that the attacker leaves some processor time to the server.
const REOPEN_PAUSE: Duration = Duration::from_secs(2);
