//! [`EventLog`]: what a forwarded request has resulted in, until the replica that forwarded it has read it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline::exchange::{Channel, ConnectionState, Notification, NotificationSink, Outcome};
use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::verbs::{ReplicaEvent, ReplicaReply};

/// The events of one forwarded request, as lines. It is also where its notifications go.
pub(super) struct EventLog {
    state: Mutex<LogState>,
    /// Wakes the reader and the task of the request.
    changed: Notify,
    read: Notify,
}

struct LogState {
    /// The bytes that were not acknowledged.
    bytes: Vec<u8>,
    /// The position of the first of them.
    start: u64,
    has_ended: bool,
    is_too_long: bool,
    read_at: Instant,
    was_read: bool,
}

impl EventLog {
    pub(super) fn new() -> Self {
        let state = LogState {
            bytes: Vec::new(),
            start: 0,
            has_ended: false,
            is_too_long: false,
            read_at: Instant::now(),
            was_read: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            read: Notify::new(),
        }
    }

    /// Adds the outcome, which is the last event.
    pub(super) fn end(&self, outcome: Outcome) {
        let event = match outcome {
            Ok(result) => ReplicaEvent::Result(result),
            Err(error) => ReplicaEvent::Error(error),
        };
        let line = line_of(&event);
        let mut state = self.lock();
        state.bytes.extend_from_slice(&line);
        state.has_ended = true;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Returns the bytes after a position, or waits for some. The bytes before it are dropped.
    pub(super) async fn read(&self, after: u64, wait: Duration) -> ReplicaReply {
        let deadline = Instant::now() + wait;
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Before the state is read, so that a change after it is not missed.
            changed.as_mut().enable();
            let reply = self.lock().read(after);
            self.read.notify_waiters();
            match reply {
                Some(reply) => return reply,
                None if tokio::time::timeout_at(deadline, changed).await.is_err() => {
                    return ReplicaReply::Events {
                        bytes: Bytes::new(),
                        is_end: false,
                    };
                }
                None => {}
            }
        }
    }

    /// Waits until too many bytes wait to be read.
    pub(super) async fn too_long(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.lock().is_too_long {
                return;
            }
            changed.await;
        }
    }

    /// Waits until there was no reader for a while: the replica that forwarded the request has ended, or is cut off.
    pub(super) async fn abandoned(&self) {
        loop {
            let gone_at = self.lock().read_at + READER_TIME;
            if gone_at <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(gone_at).await;
        }
    }

    /// Waits until the outcome was read.
    pub(super) async fn read_to_end(&self) {
        loop {
            let mut read = std::pin::pin!(self.read.notified());
            read.as_mut().enable();
            if self.lock().was_read {
                return;
            }
            read.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogState {
    fn read(&mut self, after: u64) -> Option<ReplicaReply> {
        self.read_at = Instant::now();
        let offset = after.checked_sub(self.start).map(usize::try_from);
        let Some(Ok(offset)) =
            offset.filter(|offset| matches!(offset, Ok(it) if *it <= self.bytes.len()))
        else {
            return Some(ReplicaReply::Gone);
        };
        self.bytes.drain(..offset);
        self.start = after;
        if self.bytes.is_empty() && !self.has_ended {
            return None;
        }
        let count = self.bytes.len().min(READ_BYTES);
        let is_end = self.has_ended && count == self.bytes.len();
        self.was_read |= is_end;
        Some(ReplicaReply::Events {
            bytes: Bytes::copy_from_slice(&self.bytes[..count]),
            is_end,
        })
    }
}

fn line_of(event: &ReplicaEvent) -> Vec<u8> {
    // These types always have a JSON form.
    let mut line = serde_json::to_vec(event).unwrap_or_default();
    line.push(b'\n');
    line
}

impl NotificationSink for EventLog {
    fn notify(&self, notification: Notification) {
        let event = ReplicaEvent::Notification {
            method: notification.method.into_owned(),
            params: notification.params,
        };
        let line = line_of(&event);
        let mut state = self.lock();
        // One that is too long by itself is passed on: its reader keeps up.
        if !state.bytes.is_empty() && state.bytes.len() + line.len() > MAX_UNREAD_BYTES {
            state.is_too_long = true;
        } else if !state.has_ended {
            state.bytes.extend_from_slice(&line);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    fn back_channel(&self) -> Option<Arc<dyn Channel>> {
        None
    }

    fn connection_state(&self) -> Option<&ConnectionState> {
        None
    }
}

/// How long a request goes on without a reader.
const READER_TIME: Duration = Duration::from_secs(30);
/// How many bytes of notifications wait to be read, unless it is one that is longer; a request with more is ended.
const MAX_UNREAD_BYTES: usize = 1024 * 1024;
/// How many bytes a reply has at most.
const READ_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use bowline::Json;

    use super::*;

    fn bytes(reply: ReplicaReply) -> (usize, bool) {
        match reply {
            ReplicaReply::Events { bytes, is_end } => (bytes.len(), is_end),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_read_in_parts_and_again_until_they_are_acknowledged() {
        let log = EventLog::new();
        log.notify(Notification::new("notifications/message", None));
        let (first, _) = bytes(log.read(0, READER_TIME).await);
        assert_eq!(bytes(log.read(0, READER_TIME).await), (first, false));

        let large = Json::from(serde_json::json!("x".repeat(READ_BYTES)));
        log.end(Ok(large));
        let after = first as u64;
        assert_eq!(
            bytes(log.read(after, READER_TIME).await),
            (READ_BYTES, false)
        );
        let after = after + READ_BYTES as u64;
        let (rest, is_end) = bytes(log.read(after, READER_TIME).await);

        assert!(is_end && rest > 0);
        log.read_to_end().await;
        assert_eq!(log.read(0, READER_TIME).await, ReplicaReply::Gone);
        assert_eq!(log.read(u64::MAX, READER_TIME).await, ReplicaReply::Gone);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_not_read_is_abandoned_and_one_with_too_many_events_is_too_long() {
        let log = EventLog::new();
        assert_eq!(
            bytes(log.read(0, Duration::from_secs(20)).await),
            (0, false)
        );
        let read_at = Instant::now();
        log.abandoned().await;
        assert!(read_at.elapsed() <= READER_TIME);

        let params = Json::from(serde_json::json!({"data": "x".repeat(MAX_UNREAD_BYTES)}));
        for _ in 0..2 {
            log.notify(Notification::new(
                "notifications/message",
                Some(params.clone()),
            ));
        }
        log.too_long().await;
    }
}
