//! The notifications of a call while no client waits: the last progress, and the last log messages.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline::Json;
use bowline::exchange::{Channel, ConnectionState, Notification, NotificationSink, Request};
use bowline::types::{
    LoggingLevel, LoggingMessageNotification, NotificationMethod, ProgressNotification,
};
use serde::Deserialize;

/// The destination of a parked call's notifications. Other notifications than progress and log messages are dropped.
#[derive(Debug, Default)]
pub(crate) struct KeptNotifications(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// In the order of arrival, with at most one progress notification.
    notifications: VecDeque<Notification>,
    bytes: usize,
}

impl KeptNotifications {
    /// Removes the notifications and returns those for the client of `request`: progress with its token, and log
    /// messages of its level.
    pub(super) fn take(&self, request: &Request) -> Vec<Notification> {
        let kept = std::mem::take(&mut *self.lock());
        let mut notifications = kept.notifications.into_iter().collect::<Vec<_>>();
        notifications.retain_mut(|notification| match kind(notification) {
            Some(NotificationKind::Progress) => set_token(notification, request),
            Some(NotificationKind::Log) => logs(notification, request),
            None => false,
        });
        notifications
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NotificationSink for KeptNotifications {
    fn notify(&self, notification: Notification) {
        let Some(kind) = kind(&notification) else {
            return;
        };
        let params = notification.params.as_ref().map(Json::to_unshared);
        let notification = Notification {
            params,
            ..notification
        };
        self.lock().push(kind, notification);
    }

    fn back_channel(&self) -> Option<Arc<dyn Channel>> {
        None
    }

    fn connection_state(&self) -> Option<&ConnectionState> {
        None
    }
}

impl Kept {
    fn push(&mut self, new: NotificationKind, notification: Notification) {
        let size = size(&notification);
        if size > MAX_KEPT_BYTES {
            return;
        }
        let of_kind = |it: &Notification| kind(it) == Some(new);
        let same = self.notifications.iter().filter(|it| of_kind(it)).count();
        let max = match new {
            NotificationKind::Progress => 1,
            NotificationKind::Log => MAX_KEPT_LOGS,
        };
        if same >= max {
            let oldest = self.notifications.iter().position(of_kind);
            self.remove(oldest);
        }
        while self.bytes + size > MAX_KEPT_BYTES && !self.notifications.is_empty() {
            self.remove(Some(0));
        }
        self.bytes += size;
        self.notifications.push_back(notification);
    }

    fn remove(&mut self, at: Option<usize>) {
        if let Some(removed) = at.and_then(|at| self.notifications.remove(at)) {
            self.bytes -= size(&removed);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NotificationKind {
    Progress,
    Log,
}

fn kind(notification: &Notification) -> Option<NotificationKind> {
    match &*notification.method {
        ProgressNotification::NAME => Some(NotificationKind::Progress),
        LoggingMessageNotification::NAME => Some(NotificationKind::Log),
        _ => None,
    }
}

fn size(notification: &Notification) -> usize {
    let params = notification.params.as_ref();
    params.map_or(0, |params| params.as_bytes().len())
}

/// Writes the token of the retry, which may differ from that of the first request. Returns whether it has one.
fn set_token(notification: &mut Notification, request: &Request) -> bool {
    let token = request.progress_token.as_ref().map(Json::encode);
    let params = notification.params.as_ref();
    let members = params.map(Json::decode::<BTreeMap<String, Json>>);
    let (Some(Ok(token)), Some(Ok(mut members))) = (token, members) else {
        return false;
    };
    members.insert("progressToken".to_owned(), token);
    let members = members.iter().map(|(name, value)| (name.as_str(), value));
    notification.params = Some(Json::object(members));
    true
}

/// Returns whether the sender of the retry receives this log message.
fn logs(notification: &Notification, request: &Request) -> bool {
    #[derive(Deserialize)]
    struct Message {
        level: LoggingLevel,
    }

    let message = notification.params.as_ref().map(Json::decode::<Message>);
    match (request.caller.log_level, message) {
        (Some(least), Some(Ok(message))) => message.level >= least,
        _ => false,
    }
}

/// Part of what each parked call is charged with.
pub(super) const MAX_KEPT_BYTES: usize = 16 * 1024;
const MAX_KEPT_LOGS: usize = 32;
