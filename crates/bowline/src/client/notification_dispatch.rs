//! Delivers the server's notifications to the cache and to the application's callbacks, in this order.
//!
//! Over a duplex wire the driver calls [`NotificationDispatch::deliver`] for each notification that arrives.
//! Elsewhere the call that the notification belongs to does.

use std::sync::Arc;

use bowline_core::Notification;
use bowline_types::{
    LoggingMessageNotification, LoggingMessageNotificationParams, NotificationMethod,
    ProgressNotification, SubscriptionsAcknowledgedNotification,
};

use super::Change;
use super::cache_policy::CachePolicy;
use super::known_tools::KnownTools;
use crate::Error;
use crate::callback::catch_panic;
use crate::peer::Peer;

/// Called for each log message.
pub(super) type OnLog = Arc<dyn Fn(LoggingMessageNotificationParams) + Send + Sync>;
/// Called for each notification.
pub(super) type OnNotification = Arc<dyn Fn(&Notification) + Send + Sync>;
/// Called for each error that belongs to no call.
pub(super) type OnError = Arc<dyn Fn(&Error) + Send + Sync>;

/// The receivers of notifications.
pub(super) struct NotificationDispatch {
    pub(super) cache_policy: Arc<CachePolicy>,
    pub(super) tools: Arc<KnownTools>,
    pub(super) on_log: Option<OnLog>,
    pub(super) on_notification: Option<OnNotification>,
    pub(super) on_error: Option<OnError>,
}

impl NotificationDispatch {
    /// Delivers every notification that arrives over the wire of `peer`.
    pub(super) fn attach(self: &Arc<Self>, peer: &Peer) {
        let dispatch = self.clone();
        let callback = move |notification: &Notification| dispatch.deliver(notification);
        peer.notification_hub().set_callback(Box::new(callback));
    }

    /// Reports every error that belongs to no call of `peer`.
    pub(super) fn attach_errors(&self, peer: &Peer) {
        if let Some(on_error) = self.on_error.clone() {
            let callback = move |error: &Error| catch_panic("errors", || on_error(error));
            peer.notification_hub()
                .set_error_callback(Box::new(callback));
        }
    }

    pub(super) fn deliver(&self, notification: &Notification) {
        match &*notification.method {
            // These two belong to one call, which handles them itself.
            ProgressNotification::NAME | SubscriptionsAcknowledgedNotification::NAME => {}
            LoggingMessageNotification::NAME => self.deliver_log(notification),
            _ => {
                self.apply_change(&Change::from(notification.clone()));
                if let Some(on_notification) = &self.on_notification {
                    catch_panic("notifications", || on_notification(notification));
                }
            }
        }
    }

    /// Evicts cached results and forgets the tools before the application is notified of the change.
    pub(super) fn apply_change(&self, change: &Change) {
        if matches!(change, Change::Other(_)) {
            return;
        }
        self.cache_policy.apply_change(change);
        if matches!(change, Change::Tools | Change::Missed) {
            self.tools.forget();
        }
    }

    fn deliver_log(&self, notification: &Notification) {
        let params = notification.params.as_ref().map(|params| params.decode());
        match (params, &self.on_log) {
            (Some(Ok(params)), Some(on_log)) => catch_panic("log messages", || on_log(params)),
            (Some(Ok(params)), None) => {
                tracing::debug!(level = ?params.level, data = ?params.data, "log message from the server");
            }
            (Some(Err(_)) | None, _) => tracing::warn!("received a malformed log message"),
        }
    }
}
