//! One transport in one era: calls that are answered, and calls that are let go of.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bowline::{Error, Result};
use serde_json::json;

use super::remains::{Holdings, PATIENCE, eventually};
use super::report::{Microseconds, Row, Said};
use super::screen::Screen;
use super::stage::{Era, Stage, Transport};
use crate::clock;
use crate::counters::Tally;

/// A transport in an era.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) transport: Transport,
    pub(crate) era: Era,
}

impl Cell {
    /// Calls some tools and shows how the last of them comes along.
    pub(crate) async fn tour(self, screen: &Screen) -> Result<()> {
        let stage = Stage::open(self.transport, self.era).await?;
        let client = &stage.client;
        let echo = client.call_tool("echo", json!({"text": "ahoy"})).await?;
        let sum = client.call_tool("add", json!({"a": 1, "b": 2})).await?;
        let label = format!("{self}  echo {}, add {}", echo.text(), sum.text());
        let bar = screen.bar(label);
        let steps = client
            .call_tool("progress", json!({"n": STEPS}))
            .on_progress(move |report| bar.draw(report.progress, report.total))
            .await?;
        screen.line(&format!("  progress {}", steps.text()));
        stage.close().await
    }

    /// Lets go of calls, and looks at what becomes of them.
    pub(crate) async fn let_go(self, row: &mut Row) {
        let before = Holdings::now();
        if let Err(error) = self.let_go_of_all(row).await {
            row.failure = Some(error.to_string());
        }
        let left = before.left_since().await;
        row.left.tasks = left.tasks;
        row.left.descriptors = left.descriptors;
        row.left.children = left.children;
    }

    async fn let_go_of_all(self, row: &mut Row) -> Result<()> {
        let stage = Stage::open(self.transport, self.era).await?;
        reset(&stage).await?;
        stage.heard.take();
        let mut times = Vec::new();
        for _ in 0..CALLS {
            times.extend(let_go_once(&stage).await?);
        }
        row.microseconds = Microseconds::of(times);
        let counted = stage.client.call_tool("stats", ()).await?;
        let tally: Tally = counted.structured()?;
        row.stopped = tally.cancelled;
        row.left.handlers = tally.active;
        reset(&stage).await?;
        row.wire = sort(stage.heard.take());
        eventually(|| stage.entries() == 0).await;
        row.left.entries = stage.entries();
        stage.close().await
    }

    /// What the server must hear for each call.
    pub(crate) fn signal(self) -> Option<&'static str> {
        match (self.transport, self.era) {
            (Transport::InProcess, _) => None,
            (Transport::Memory | Transport::Stdio, _) => Some("notifications/cancelled"),
            (Transport::Http, Era::Modern) => Some("connection closed"),
            (Transport::Http2, Era::Modern) => Some("stream reset"),
            (Transport::Http | Transport::Http2, Era::Legacy) => {
                Some("POST notifications/cancelled")
            }
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (transport, version) = (self.transport.name(), self.era.version());
        write!(f, "{transport:<10}  {version}")
    }
}

/// Begins to count anew. Another process tells what it heard when its counters change, so afterwards all
/// that was heard before is known.
async fn reset(stage: &Stage) -> Result<()> {
    let mut counters = stage.counters.watch();
    stage.client.call_tool("reset", ()).await?;
    // What was not told in time is missing from the row, which says enough.
    let _ = tokio::time::timeout(PATIENCE, counters.changed()).await;
    Ok(())
}

/// Lets go of a call whose handler is at work; how long the handler took to notice, if it did.
async fn let_go_once(stage: &Stage) -> Result<Option<Duration>> {
    let mut tally = stage.counters.watch();
    let before = *tally.borrow();
    let mut call = stage
        .client
        .call_tool("slow", json!({"seconds": 60}))
        // Whoever wants to know of progress gets the head of an HTTP response at once.
        .on_progress(|_| {})
        .start();
    tokio::select! {
        reply = &mut call => return Err(unexpected(reply)),
        started = tally.wait_for(|now| now.started > before.started) => drop(started),
    }

    let let_go = clock::now();
    drop(call);

    let stopped = tally.wait_for(|now| now.cancelled > before.cancelled);
    let Ok(Ok(stopped)) = tokio::time::timeout(PATIENCE, stopped).await else {
        return Ok(None);
    };
    Ok((stopped.dropped_at()).map(|dropped| dropped.saturating_sub(let_go)))
}

fn unexpected(reply: Result<bowline::Reply>) -> Error {
    match reply {
        Err(error) => error,
        Ok(reply) => Error::Protocol {
            what: format!("a call that takes a minute was answered: {}", reply.text()),
            source: None,
        },
    }
}

/// Counts what was heard by what it is, with the last of each as an example.
fn sort(heard: Vec<String>) -> Vec<Said> {
    let mut sorted = BTreeMap::new();
    for words in heard {
        let what = words.split(" {").next().unwrap_or_default().to_owned();
        let said = sorted.entry(what.clone()).or_insert(Said {
            what,
            times: 0,
            example: String::new(),
        });
        said.times += 1;
        said.example = words;
    }
    sorted.into_values().collect()
}

/// How many calls are let go of.
pub(crate) const CALLS: u64 = 20;
const STEPS: u32 = 30;
