//! Records the frames of a server, and the start and end of its handlers.
//!
//! A server in a child process reports them on its stderr, one line each; the parent process reads them from there.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline::testing::{Direction, HandlerCounter, HandlerCounts, RecordedEvent, WireRecord};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::handler_monitor::HandlerMonitor;

/// Records frames and counts handlers. Clones share their records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observer {
    pub(crate) record: WireRecord,
    pub(crate) handlers: HandlerMonitor,
    /// The counts at the time of the last [`Observer::clear`].
    cleared: Arc<Mutex<HandlerCounts>>,
    process: watch::Sender<Option<i32>>,
    url: watch::Sender<Option<String>>,
}

/// A line that a child process writes to stderr.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    Event(RecordedEvent),
    Handlers(HandlerCounts),
    ProcessId(i32),
    Url(String),
}

impl Report {
    pub(crate) fn write(&self) {
        eprintln!("{}", serde_json::to_string(self).unwrap());
    }
}

impl Observer {
    /// Creates the observer of a child process, which reports everything to its parent.
    pub(crate) fn reporting() -> Self {
        let mut observer = Self {
            record: WireRecord::with_callback(|event| Report::Event(event.clone()).write()),
            ..Self::default()
        };
        observer.handlers.counter =
            HandlerCounter::with_callback(|counts| Report::Handlers(counts).write());
        observer
    }

    /// Records a line that a child process reported.
    pub(crate) fn read_report(&self, line: &str) {
        match serde_json::from_str(line) {
            Ok(Report::Event(event)) => self.record.push(event),
            Ok(Report::Handlers(counts)) => self.handlers.counter.set(counts),
            Ok(Report::ProcessId(id)) => drop(self.process.send_replace(Some(id))),
            Ok(Report::Url(url)) => drop(self.url.send_replace(Some(url))),
            // Most likely a panic, which belongs to the output of the failed test.
            Err(_) => eprintln!("stderr of the server: {line}"),
        }
    }

    /// Waits for the URL of the reporting process.
    pub(crate) async fn url(&self) -> String {
        let mut url = self.url.subscribe();
        let waiting = tokio::time::timeout(WAIT_LIMIT, url.wait_for(Option::is_some));
        waiting.await.unwrap().unwrap().clone().unwrap()
    }

    /// The id of the reporting process.
    pub(crate) fn process(&self) -> Option<i32> {
        *self.process.borrow()
    }

    /// One line per message. `→` was received from the client, `←` was sent to it; `→ closes 3` is a response that the
    /// client closed before its end.
    pub(crate) fn frames(&self) -> Vec<String> {
        self.record.events().iter().filter_map(line).collect()
    }

    /// Clears the recorded frames and handler counts.
    pub(crate) fn clear(&self) {
        self.record.clear();
        *self.cleared() = self.handlers.counter.counts();
    }

    /// The handlers since the last [`Observer::clear`]. One that was running then counts only when it ends.
    pub(crate) fn counts(&self) -> HandlerCounts {
        self.since_clear(self.handlers.counter.counts())
    }

    fn since_clear(&self, mut counts: HandlerCounts) -> HandlerCounts {
        let cleared = self.cleared();
        counts.started -= cleared.started;
        counts.finished -= cleared.finished;
        counts.dropped -= cleared.dropped;
        counts
    }

    fn cleared(&self) -> std::sync::MutexGuard<'_, HandlerCounts> {
        self.cleared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this many handlers have started.
    pub(crate) async fn wait_for_starts(&self, count: usize) {
        self.wait_until(|counts| counts.started >= count).await;
    }

    /// Waits until this many handlers were dropped.
    pub(crate) async fn wait_for_drops(&self, count: usize) {
        self.wait_until(|counts| counts.dropped >= count).await;
    }

    async fn wait_until(&self, reached: impl Fn(HandlerCounts) -> bool) {
        let waiting = (self.handlers.counter).wait_for(|counts| reached(self.since_clear(*counts)));
        let reached = tokio::time::timeout(WAIT_LIMIT, waiting).await.is_ok();
        let (counts, frames) = (self.counts(), self.frames());
        assert!(reached, "timed out: {counts:?} {frames:#?}");
    }
}

fn line(event: &RecordedEvent) -> Option<String> {
    match event {
        RecordedEvent::Frame(frame) => Some(match frame.direction {
            Direction::Received => format!("→ {}", frame.summary()),
            Direction::Sent => format!("← {}", frame.summary()),
        }),
        RecordedEvent::EmptyRequest(method) => Some(format!("→ {method}")),
        RecordedEvent::Closed(message) | RecordedEvent::Reset(message) => {
            let message = message.json();
            message["method"].as_str()?;
            Some(format!("→ closes {}", message.get("id")?))
        }
        _ => None,
    }
}

/// The time after which a test counts as hung, even on a busy machine.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(30);
