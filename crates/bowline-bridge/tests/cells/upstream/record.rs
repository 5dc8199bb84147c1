//! What an upstream server saw at its socket, in order.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::Value;
use tokio::sync::watch;

/// The record of one upstream server, of all its connections.
#[derive(Debug)]
pub(crate) struct Record {
    entries: Mutex<Vec<Seen>>,
    version: watch::Sender<usize>,
}

/// One entry of the record.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The number of the connection or of the legacy session; 0 over modern HTTP, which has none.
    pub(crate) connection: usize,
    pub(crate) at: Instant,
    pub(crate) event: SeenEvent,
}

#[derive(Clone, Debug)]
pub(crate) enum SeenEvent {
    Request(SeenRequest),
    Notification {
        method: String,
        params: Value,
    },
    /// A response to a question of the server.
    Response,
    /// The client closed the response of the request with this serial number before it was complete.
    Closed(usize),
    /// A message cancelled the request with this serial number.
    Cancelled(usize),
    /// The client broke a rule of the protocol.
    Violation(String),
}

#[derive(Clone, Debug)]
pub(crate) struct SeenRequest {
    /// Its position in the record: ids may repeat on other connections.
    pub(crate) serial: usize,
    pub(crate) id: Value,
    pub(crate) method: String,
    pub(crate) params: Value,
    /// The capabilities of the client, as far as the server has been told of them.
    pub(crate) capabilities: Value,
}

impl Record {
    pub(crate) fn new() -> Self {
        Self {
            entries: Mutex::default(),
            version: watch::Sender::new(0),
        }
    }

    /// Adds an entry, which is made from its serial number, and returns that number.
    pub(crate) fn add(&self, connection: usize, event: impl FnOnce(usize) -> SeenEvent) -> usize {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let serial = entries.len();
        let event = event(serial);
        entries.push(Seen {
            connection,
            at: Instant::now(),
            event,
        });
        drop(entries);
        self.touch();
        serial
    }

    /// Wakes those that wait, because the state of the server has changed.
    pub(crate) fn touch(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    pub(crate) fn entries(&self) -> Vec<Seen> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.clone()
    }

    /// Waits until `find` returns something; it is called again whenever something has happened.
    pub(crate) async fn wait<T>(&self, mut find: impl FnMut(&[Seen]) -> Option<T>) -> T {
        let mut version = self.version.subscribe();
        loop {
            version.mark_unchanged();
            if let Some(found) = find(&self.entries()) {
                return found;
            }
            // The sender lives in `self`.
            let _ = version.changed().await;
        }
    }
}
