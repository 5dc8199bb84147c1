//! `DemoCell`, one transport in one era, which is one row of the report: runs calls to completion, then cancels calls.

use std::fmt;
use std::time::Duration;

use bowline::testing::{ResourceCounts, eventually};
use bowline::{Error, Result};
use serde_json::json;

use super::connection::{DemoConnection, DemoEra, DemoTransport};
use super::leaks::RELEASE_TIMEOUT;
use super::report::{ReportRow, StopLatency};
use super::screen::Screen;
use super::signals::ReceivedSignal;
use crate::clock;
use crate::counters::SlowCallCounts;

/// A transport in an era: one row of the report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DemoCell {
    pub(crate) transport: DemoTransport,
    pub(crate) era: DemoEra,
}

impl DemoCell {
    /// Calls some tools, and shows the progress of the last one.
    pub(crate) async fn call_tools(self, screen: &Screen) -> Result<()> {
        let connection = DemoConnection::open(self.transport, self.era).await?;
        let client = &connection.client;
        let echo = client.call_tool("echo", json!({"text": "ahoy"})).await?;
        let sum = client.call_tool("add", json!({"a": 1, "b": 2})).await?;
        let label = format!("{self}  echo {}, add {}", echo.text(), sum.text());
        let bar = screen.bar(label);
        let steps = client
            .call_tool("progress", json!({"n": STEPS}))
            .on_progress(move |report| bar.draw(report.progress, report.total))
            .await?;
        screen.line(&format!("  progress {}", steps.text()));
        connection.close().await
    }

    /// Drops calls, and records how their handlers stop and what leaks.
    pub(crate) async fn cancel_calls(self, row: &mut ReportRow) {
        let before = ResourceCounts::now();
        if let Err(error) = self.cancel_all_calls(row).await {
            row.failure = Some(error.to_string());
        }
        let leaked = || ResourceCounts::now().since(before);
        eventually(|| leaked() == ResourceCounts::default()).await;
        let left = leaked();
        row.left.tasks = left.tasks;
        row.left.descriptors = left.descriptors;
        row.left.children = left.children;
    }

    async fn cancel_all_calls(self, row: &mut ReportRow) -> Result<()> {
        let connection = DemoConnection::open(self.transport, self.era).await?;
        reset(&connection).await?;
        connection.record.clear();
        let mut times = Vec::new();
        for _ in 0..CALLS {
            times.extend(cancel_one_call(&connection).await?);
        }
        row.stop_latency = StopLatency::of(times);
        let counted = connection.client.call_tool("stats", ()).await?;
        let counts: SlowCallCounts = counted.structured()?;
        row.stopped = counts.cancelled;
        row.left.handlers = counts.active;
        reset(&connection).await?;
        row.wire = ReceivedSignal::count(&connection.record.take(), self.transport.is_http());
        eventually(|| connection.table_entries() == 0).await;
        row.left.entries = connection.table_entries();
        connection.close().await
    }

    /// Returns the cancellation that the server must receive for each call; `None` in process.
    pub(crate) fn signal(self) -> Option<&'static str> {
        match (self.transport, self.era) {
            (DemoTransport::InProcess, _) => None,
            (DemoTransport::Memory | DemoTransport::Stdio, _) => Some("notifications/cancelled"),
            (DemoTransport::Http, DemoEra::Modern) => Some("connection closed"),
            (DemoTransport::Http2, DemoEra::Modern) => Some("stream reset"),
            (DemoTransport::Http | DemoTransport::Http2, DemoEra::Legacy) => {
                Some("POST notifications/cancelled")
            }
        }
    }
}

impl fmt::Display for DemoCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (transport, version) = (self.transport.name(), self.era.version());
        write!(f, "{transport:<10}  {version}")
    }
}

/// Resets the server's counters, and waits until they have changed here. A server in another process reports its events
/// before its counters, so afterwards all earlier events have been recorded.
async fn reset(connection: &DemoConnection) -> Result<()> {
    let mut counters = connection.counters.watch();
    connection.client.call_tool("reset", ()).await?;
    // If this times out, the missing events make the row fail.
    let _ = tokio::time::timeout(RELEASE_TIMEOUT, counters.changed()).await;
    Ok(())
}

/// Drops a call whose handler is running; returns the time until the handler was dropped, if it was.
async fn cancel_one_call(connection: &DemoConnection) -> Result<Option<Duration>> {
    let mut counts = connection.counters.watch();
    let before = *counts.borrow();
    let mut call = connection
        .client
        .call_tool("slow", json!({"seconds": 60}))
        // Sends a progress token, so that the server sends the head of an HTTP response immediately. Without the head,
        // a legacy cancel is delayed, which would add to the measured latency.
        .on_progress(|_| {})
        .start();
    tokio::select! {
        reply = &mut call => return Err(unexpected(reply)),
        started = counts.wait_for(|now| now.started > before.started) => drop(started),
    }

    let call_dropped = clock::now();
    drop(call);

    let stopped = counts.wait_for(|now| now.cancelled > before.cancelled);
    let Ok(Ok(stopped)) = tokio::time::timeout(RELEASE_TIMEOUT, stopped).await else {
        return Ok(None);
    };
    let handler_dropped = stopped.dropped_at();
    Ok(handler_dropped.map(|at| at.saturating_sub(call_dropped)))
}

fn unexpected(reply: Result<bowline::Reply>) -> Error {
    match reply {
        Err(error) => error,
        Ok(reply) => Error::Protocol {
            what: format!("expected a pending call, got the result: {}", reply.text()),
            source: None,
        },
    }
}

/// The number of calls to cancel.
pub(crate) const CALLS: u64 = 20;
const STEPS: u32 = 30;
