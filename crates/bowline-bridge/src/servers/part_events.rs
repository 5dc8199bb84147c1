//! [`PartEvents`]: what the servers of a merged subscription have sent, until its client takes it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline::exchange::Notification;
use bowline::{Json, RpcError};
use tokio::sync::Notify;

/// An event of the subscription to one server.
pub(super) struct PartEvent {
    pub(super) server: String,
    pub(super) kind: PartEventKind,
}

pub(super) enum PartEventKind {
    Notification(Notification),
    /// It is opened again.
    Lost,
    /// The server has no subscriptions.
    Ended,
}

/// A queue of events with one consumer.
///
/// The consumer is the handler of the client's request, which HTTP does not poll while the client does not read. The
/// producers do not wait for it, because they read connections that other clients use too. A queue that is full fails
/// instead, as the queue of a subscription to a single server does.
#[derive(Default)]
pub(super) struct PartEvents {
    queue: Mutex<EventQueue>,
    pushed: Notify,
}

#[derive(Default)]
struct EventQueue {
    events: VecDeque<PartEvent>,
    /// The size of the notifications in `events`.
    bytes: usize,
    /// The server whose event found the queue full. Nothing is queued from then on.
    lagged: Option<String>,
}

impl PartEvents {
    pub(super) fn push(&self, event: PartEvent) {
        let mut queue = self.lock();
        if queue.lagged.is_some() {
            return;
        }
        let bytes = size(&event);
        let is_full = queue.events.len() >= MAX_EVENTS || queue.bytes + bytes > MAX_BYTES;
        let dropped = match is_full {
            true => {
                queue.lagged = Some(event.server);
                std::mem::take(&mut queue.events)
            }
            false => {
                queue.bytes += bytes;
                queue.events.push_back(event);
                VecDeque::new()
            }
        };
        drop(queue);
        if !dropped.is_empty() {
            tracing::warn!("the client of a subscription does not read; it ends");
        }
        self.pushed.notify_one();
    }

    /// Returns the next event.
    ///
    /// # Errors
    ///
    /// If the queue was full, so that notifications were lost.
    ///
    /// # Cancel safety
    ///
    /// Safe: an event is removed only when it is returned.
    pub(super) async fn next(&self) -> Result<PartEvent, RpcError> {
        loop {
            let pushed = self.pushed.notified();
            if let Some(next) = self.take() {
                return next;
            }
            pushed.await;
        }
    }

    fn take(&self) -> Option<Result<PartEvent, RpcError>> {
        let mut queue = self.lock();
        if let Some(server) = &queue.lagged {
            return Some(Err(lagged(server)));
        }
        let event = queue.events.pop_front()?;
        queue.bytes -= size(&event);
        Some(Ok(event))
    }

    fn lock(&self) -> MutexGuard<'_, EventQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the error that ends a subscription whose notifications were lost, as that of a subscription to one server.
pub(super) fn lagged(server: &str) -> RpcError {
    let data = serde_json::json!({"upstream": server, "reason": "subscriptionLagged"});
    let what = bowline::Error::Lagged;
    RpcError::internal(format!("upstream `{server}`: {what}")).with_data(Json::from(data))
}

/// Returns the approximate size of the notification in an event.
fn size(event: &PartEvent) -> usize {
    match &event.kind {
        PartEventKind::Notification(notification) => {
            let params = notification.params.as_ref();
            notification.method.len() + params.map_or(0, |params| params.as_bytes().len())
        }
        PartEventKind::Lost | PartEventKind::Ended => 0,
    }
}

/// The limits of the notifications of one exchange in `bowline`. They are for all servers of a subscription together.
const MAX_EVENTS: usize = 1024;
const MAX_BYTES: usize = 8 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn event(bytes: usize) -> PartEvent {
        let params = Json::from(serde_json::Value::from("x".repeat(bytes)));
        PartEvent {
            server: "a".to_owned(),
            kind: PartEventKind::Notification(Notification::new("n", Some(params))),
        }
    }

    #[tokio::test]
    async fn too_many_events_end_the_subscription_and_are_not_kept() {
        let events = PartEvents::default();
        for _ in 0..MAX_EVENTS {
            events.push(event(0));
        }
        assert!(events.next().await.is_ok());

        events.push(event(0));
        events.push(event(0));
        events.push(event(0));

        let error = events.next().await.err().unwrap();
        assert!(error.message.contains("lagged"), "{}", error.message);
        assert!(events.lock().events.is_empty());
    }

    #[tokio::test]
    async fn too_large_events_do_as_well() {
        let events = PartEvents::default();
        events.push(event(MAX_BYTES / 2));
        assert!(events.next().await.is_ok());
        events.push(event(MAX_BYTES / 2));

        events.push(event(MAX_BYTES / 2));

        assert!(events.next().await.is_err());
    }
}
