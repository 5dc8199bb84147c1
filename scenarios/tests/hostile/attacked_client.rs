//! The attacked client: a separate process with one thread, whose longest block is measured.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bowline::client::{ChangeFilter, ClientBuilder, Host};
use bowline::types::Root;
use bowline::wire::Lines;
use bowline::{Client, Result};
use serde_json::json;
use tokio::net::TcpStream;

use crate::rpc;

/// Performs a task against the server at this address; prints its peak memory and its longest block.
pub(crate) fn main(task: &str, address: &str) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let longest = Arc::new(AtomicU64::new(0));
    let ended = runtime.block_on(async {
        let measuring = tokio::spawn(measure_blocking(longest.clone()));
        let ended = tokio::time::timeout(TIME_LIMIT, perform(task, address)).await;
        measuring.abort();
        ended
    });
    match ended {
        Err(_) => println!("note the task timed out after {TIME_LIMIT:?}"),
        Ok(Ok(note)) => println!("note {note}"),
        Ok(Err(error)) => println!("note the task failed: {error}"),
    }
    println!("gap {}", longest.load(Ordering::Relaxed));
    println!("peak {}", peak());
    ExitCode::SUCCESS
}

/// Measures the longest time for which one task blocked the runtime's only thread. Uses the processor time of the
/// thread, because on a busy machine it also waits for other processes.
async fn measure_blocking(longest: Arc<AtomicU64>) {
    let begun = Instant::now();
    let now = || processor_time().unwrap_or_else(|| begun.elapsed());
    let mut last = now();
    loop {
        crate::pause::pause(INTERVAL).await;
        let gap = now().saturating_sub(last);
        let gap = u64::try_from(gap.as_millis()).unwrap_or(u64::MAX);
        longest.fetch_max(gap, Ordering::Relaxed);
        last = now();
    }
}

/// The processor time of this thread, if the kernel provides it.
fn processor_time() -> Option<Duration> {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds = statistics.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

async fn perform(task: &str, address: &str) -> Result<String> {
    match task {
        "lines-legacy" => {
            let client = over_lines(address)
                .await
                .protocol_version(rpc::LEGACY)
                .await?;
            let ended = client.call_tool("anything", json!({})).await;
            Ok(format!("the call ended with {:?}", ended.map(drop)))
        }
        "lines-subscribe" => {
            let client = over_lines(address)
                .await
                .protocol_version(rpc::MODERN)
                .await?;
            subscribe_and_wait(&client).await
        }
        "lines-call" => {
            let client = over_lines(address)
                .await
                .protocol_version(rpc::MODERN)
                .await?;
            let call = client
                .call_tool("first", json!({}))
                .on_progress(|_| {})
                .start();
            let ended = client.call_tool("second", json!({})).await;
            drop(call);
            Ok(format!("the second call ended with {:?}", ended.map(drop)))
        }
        "http-subscribe" => {
            let client = over_http(address).await?;
            subscribe_and_wait(&client).await
        }
        "http-call" => {
            let host = Host::new().roots(async || vec![Root::new("file:///")]);
            let client = over_http(address).host(host).await?;
            let ended = client.call_tool("ask", json!({})).await;
            Ok(format!("the call ended with {:?}", ended.map(drop)))
        }
        "http-list" => {
            let client = over_http(address).await?;
            let listed = client.list_tools().await;
            let listed = listed.map(|page| page.len());
            let called = client.call_tool("tool", json!({"p1": "x"})).await;
            Ok(format!(
                "listed {listed:?}, the call ended with {:?}",
                called.map(drop)
            ))
        }
        _ => Ok(format!("unknown task `{task}`")),
    }
}

async fn over_lines(address: &str) -> ClientBuilder {
    Client::from_wire(Lines::tcp(TcpStream::connect(address).await.unwrap()))
}

fn over_http(address: &str) -> ClientBuilder {
    Client::connect(&format!("http://{address}/mcp")).protocol_version(rpc::MODERN)
}

/// Subscribes without reading, while another call is in flight.
async fn subscribe_and_wait(client: &Client) -> Result<String> {
    let subscription = client
        .subscribe(ChangeFilter::new().resource("note://one"))
        .await?;
    let ended = client.call_tool("second", json!({})).await;
    let ended = ended.map(drop);
    drop(subscription);
    Ok(format!("the second call ended with {ended:?}"))
}

/// The peak resident memory of this process, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
    peak.map_or(0, |kilobytes| kilobytes.parse::<u64>().unwrap() * 1024)
}

const INTERVAL: Duration = Duration::from_millis(10);
const TIME_LIMIT: Duration = Duration::from_secs(10);
