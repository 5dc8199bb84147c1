//! Soak test: after many abandoned calls the process holds as many resources as before.

use serde_json::json;

use crate::cell_env::CellEnv;
use crate::column::{Column, HttpVersion, ResponseMode, Transport};
use crate::expected_frames::ExpectedFrames;

/// Every transport, in the newest version of each era that defines it.
pub(crate) fn columns() -> impl Iterator<Item = Column> {
    let transports = [
        Transport::InProcess,
        Transport::Memory,
        Transport::Stdio,
        Transport::Http(HttpVersion::Http1, ResponseMode::Stream),
        Transport::Http(HttpVersion::Http2, ResponseMode::Stream),
        Transport::HttpSse(HttpVersion::Http1),
    ];
    transports.into_iter().flat_map(|transport| {
        let mut eras = Column::all().filter(move |column| column.transport == transport);
        let first = eras.next();
        let legacy = eras.find(|column| !column.is_modern());
        [first, legacy].into_iter().flatten()
    })
}

/// Abandons this many calls and asserts that memory stays bounded and every resource is released.
pub(crate) async fn abandon(calls: usize, column: Column) {
    let env = CellEnv::open(column).await;
    let mut before = 0;
    for nth in 0..calls + WARM_UP {
        if nth == WARM_UP {
            before = memory(env.observer.process());
        }
        let slow = env.client.call_tool("slow", json!({"name": "mine"}));
        // With a progress token the HTTP response is a stream, whose head is sent immediately.
        let mut call = slow.on_progress(|_| {}).start();
        env.poll_into_handler(&mut call).await;
        drop(call);
        env.observer.wait_for_drops(1).await;
        env.observer.clear();
    }
    let grown = memory(env.observer.process()).saturating_sub(before);
    assert!(grown < MAX_GROWTH, "memory grew by {grown} bytes");
    env.end(ExpectedFrames::default()).await;
}

/// The resident memory of this process and another, in bytes; 0 where `/proc` does not exist.
fn memory(other: Option<i32>) -> usize {
    let other = other.map_or(0, |id| memory_of(&id.to_string()));
    memory_of("self") + other
}

fn memory_of(process: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next());
    resident.map_or(0, |kilobytes| kilobytes.parse::<usize>().unwrap() * 1024)
}

/// Calls before the first measurement, in which pools and buffers reach their steady size.
const WARM_UP: usize = 200;
const MAX_GROWTH: usize = 5 * 1024 * 1024;
