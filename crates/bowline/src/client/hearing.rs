//! What the server says of its own accord, passed on to whoever wants to know.
//!
//! Over a duplex wire its driver calls [`Hearing::hear`] as soon as something arrives; elsewhere the
//! exchange that it came with does. Either way the cache hears it first.

use std::sync::Arc;

use bowline_core::Notification;
use bowline_types::{
    LoggingMessageNotification, LoggingMessageNotificationParams, Notice, ProgressNotification,
    SubscriptionsAcknowledgedNotification,
};

use super::Change;
use super::caching::Caching;
use super::outputs::Outputs;
use crate::Error;
use crate::callback::contained;
use crate::peer::Peer;

/// Called for each log message.
pub(super) type OnLog = Arc<dyn Fn(LoggingMessageNotificationParams) + Send + Sync>;
/// Called for each notification.
pub(super) type OnNotification = Arc<dyn Fn(&Notification) + Send + Sync>;
/// Called for each error that belongs to no call.
pub(super) type OnError = Arc<dyn Fn(&Error) + Send + Sync>;

/// Whoever wants to know.
pub(super) struct Hearing {
    pub(super) caching: Arc<Caching>,
    pub(super) outputs: Arc<Outputs>,
    pub(super) on_log: Option<OnLog>,
    pub(super) on_notification: Option<OnNotification>,
    pub(super) on_error: Option<OnError>,
}

impl Hearing {
    /// Hears everything that comes over a wire.
    pub(super) fn tap(self: &Arc<Self>, peer: &Peer) {
        let hearing = self.clone();
        let tap = move |notification: &Notification| hearing.hear(notification);
        peer.notices().tap(Box::new(tap));
        if let Some(on_error) = self.on_error.clone() {
            let tap = move |error: &Error| contained("errors", || on_error(error));
            peer.notices().tap_errors(Box::new(tap));
        }
    }

    pub(super) fn hear(&self, notification: &Notification) {
        match &*notification.method {
            // These two belong to one call, which hears them itself.
            ProgressNotification::NAME | SubscriptionsAcknowledgedNotification::NAME => {}
            LoggingMessageNotification::NAME => self.hear_log(notification),
            _ => {
                self.hear_change(&Change::from(notification.clone()));
                if let Some(on_notification) = &self.on_notification {
                    contained("notifications", || on_notification(notification));
                }
            }
        }
    }

    /// Takes note of a change before the application learns of it.
    pub(super) fn hear_change(&self, change: &Change) {
        if matches!(change, Change::Other(_)) {
            return;
        }
        self.caching.hear(change);
        if matches!(change, Change::Tools | Change::Missed) {
            self.outputs.forget();
        }
    }

    fn hear_log(&self, notification: &Notification) {
        let params = notification.params.as_ref().map(|params| params.decode());
        match (params, &self.on_log) {
            (Some(Ok(params)), Some(on_log)) => contained("log messages", || on_log(params)),
            (Some(Ok(params)), None) => {
                tracing::debug!(level = ?params.level, data = ?params.data, "the server logs");
            }
            (Some(Err(_)) | None, _) => tracing::warn!("a log message has the wrong shape"),
        }
    }
}
