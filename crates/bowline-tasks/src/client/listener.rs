//! `Listener`, which receives the notifications of a task, where the server supports them.
//!
//! ```text
//! Held ──────begin───────────┐
//!                            ▼
//! Waiting ──pause over──▶ Subscribing ──acknowledged──▶ Open
//!    ▲                      │  │ failed                   │ ended
//!    └──────────────────────┼──┴──────────────────────────┘
//!                           └──refused──▶ Off
//! ```
//!
//! A short task has ended when its status is first requested, and then a subscription would cost more than all the rest:
//! over HTTP/1.1 it is a connection.

use std::future::pending;
use std::sync::Arc;

use bowline::client::{Change, ChangeFilter, Subscription, SubscriptionBuilder};
use bowline::exchange::Notification;
use bowline::{Error, Result};
use bowline_types::ErrorCode;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::backoff::{delay, is_transient};
use super::extension::Settings;
use super::info::TaskInfo;
use super::task::Task;
use crate::protocol::{FILTER_MEMBER, NOTIFICATION_METHOD};

pub(super) struct Listener {
    task: Arc<Task>,
    settings: Settings,
    /// In a row.
    failures: u32,
    state: ListenerState,
}

enum ListenerState {
    /// Until [`Listener::begin`].
    Held,
    Waiting(Instant),
    Subscribing(Box<SubscriptionBuilder>),
    Open(Box<Subscription>),
    /// The server does not send notifications for this task.
    Off,
}

/// What happened to the subscription.
#[derive(Debug)]
pub(super) enum ListenerEvent {
    /// Notifications are received from now on.
    Opened,
    Task(Box<TaskInfo>),
    /// Notifications may have been lost.
    Missed,
    Ended,
    /// A notification that is not about the task.
    Ignored,
}

impl Listener {
    /// Creates a listener that does not subscribe yet.
    pub(super) fn new(task: Arc<Task>, settings: Settings) -> Self {
        Self {
            task,
            settings,
            failures: 0,
            state: ListenerState::Held,
        }
    }

    /// Subscribes, unless that was done before.
    pub(super) fn begin(&mut self) {
        if matches!(self.state, ListenerState::Held) {
            self.subscribe();
        }
    }

    fn subscribe(&mut self) {
        self.state = match self.settings.may_listen() {
            true => ListenerState::Subscribing(Box::new(subscribe(&self.task))),
            false => ListenerState::Off,
        };
    }

    /// Waits for the next event; for ever if the server does not support notifications.
    ///
    /// # Cancel safety
    ///
    /// Safe: the state is kept.
    pub(super) async fn next(&mut self) -> ListenerEvent {
        loop {
            match &mut self.state {
                ListenerState::Held | ListenerState::Off => pending().await,
                ListenerState::Waiting(until) => {
                    sleep_until(*until).await;
                    self.subscribe();
                }
                ListenerState::Subscribing(subscribing) => match subscribing.await {
                    Ok(subscription) => {
                        if self.opened(subscription) {
                            return ListenerEvent::Opened;
                        }
                    }
                    Err(error) => self.failed(&error),
                },
                ListenerState::Open(subscription) => {
                    let next = subscription.next().await;
                    return self.received(next);
                }
            }
        }
    }

    /// Returns whether the server acknowledged the task.
    fn opened(&mut self, subscription: Subscription) -> bool {
        let acknowledged = subscription.acknowledged_filter().other.get(FILTER_MEMBER);
        let ids = acknowledged.and_then(Value::as_array);
        if ids.is_none() {
            self.settings.set_cannot_listen();
        }
        let is_acknowledged = ids.is_some_and(|ids| ids.iter().any(|id| *id == *self.task.id));
        self.state = match is_acknowledged {
            true => ListenerState::Open(Box::new(subscription)),
            false => ListenerState::Off,
        };
        is_acknowledged
    }

    fn received(&mut self, next: Result<Option<Change>>) -> ListenerEvent {
        match next {
            Ok(Some(Change::Other(notification))) => match self.decode(&notification) {
                Some(info) => {
                    self.failures = 0;
                    ListenerEvent::Task(Box::new(info))
                }
                None => ListenerEvent::Ignored,
            },
            Ok(Some(Change::Missed)) => ListenerEvent::Missed,
            Ok(Some(_)) => ListenerEvent::Ignored,
            Ok(None) => {
                self.retry();
                ListenerEvent::Ended
            }
            Err(error) => {
                self.failed(&error);
                ListenerEvent::Ended
            }
        }
    }

    /// Returns the task of a notification. One that is malformed is ignored: the status is requested anyway.
    fn decode(&self, notification: &Notification) -> Option<TaskInfo> {
        if notification.method != NOTIFICATION_METHOD {
            return None;
        }
        let decoded = TaskInfo::decode(notification.params.as_ref()?);
        let decoded = decoded.inspect_err(|error| {
            tracing::warn!(%error, "received a malformed notification of a task");
        });
        let is_ours = |info: &TaskInfo| info.id.as_ref() == Some(&self.task.id);
        decoded.ok().filter(is_ours)
    }

    fn failed(&mut self, error: &Error) {
        tracing::debug!(%error, "the subscription to a task ended");
        if matches!(error, Error::Rpc(error) if error.code == ErrorCode::METHOD_NOT_FOUND) {
            self.settings.set_cannot_listen();
        }
        match is_transient(error) || matches!(error, Error::Cancelled { .. }) {
            true => self.retry(),
            false => self.state = ListenerState::Off,
        }
    }

    /// Subscribes again after a pause, which grows for a server that ends each subscription immediately.
    fn retry(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.state = match self.failures {
            ..MAX_FAILURES => ListenerState::Waiting(Instant::now() + delay(self.failures)),
            _ => ListenerState::Off,
        };
    }
}

fn subscribe(task: &Task) -> SubscriptionBuilder {
    let filter = ChangeFilter::new().member(FILTER_MEMBER, json!([task.id]));
    task.client.subscribe(filter)
}

const MAX_FAILURES: u32 = 20;
