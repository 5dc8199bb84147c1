//! [`Unsolicited`], the notifications of a server that belong to no exchange.

use std::future::poll_fn;
use std::sync::Arc;

use bowline_core::Notification;

use crate::Error;
use crate::peer::{ListenerEvent, NotificationListener};
use crate::signal::Signal;

/// The notifications of a server that belong to no exchange: log messages of legacy servers, list changes,
/// `notifications/elicitation/complete`, custom ones. It does not keep the connection open.
///
/// [`Connection::unsolicited`](super::Connection::unsolicited) returns it. The queue is bounded; what was lost is
/// reported in its place, and later notifications follow.
///
/// # Examples
///
/// ```
/// # async fn example(connection: bowline::client::Connection) {
/// use bowline::client::UnsolicitedEvent;
///
/// let mut unsolicited = connection.unsolicited();
/// while let Some(event) = unsolicited.next().await {
///     match event {
///         UnsolicitedEvent::Notification(notification) => println!("{}", notification.method),
///         lost => println!("some were lost: {lost:?}"),
///     }
/// }
/// # }
/// ```
#[must_use = "dropping it stops the queueing of notifications"]
pub struct Unsolicited {
    source: UnsolicitedSource,
}

enum UnsolicitedSource {
    Wire(NotificationListener),
    /// The transport has none. Ends with the connection.
    None(Arc<Signal>),
}

/// An item of [`Unsolicited`].
#[derive(Debug)]
#[non_exhaustive]
pub enum UnsolicitedEvent {
    /// A notification.
    Notification(Notification),
    /// The server was restarted, or does not know this client any more: it has lost its subscriptions, and may have sent
    /// notifications that were not received. Subscriptions and the log level are restored by the connection, and every
    /// list is reported as changed.
    Reset,
    /// The queue overflowed. Notifications were dropped from here until this item was returned.
    Lagged,
    /// Notifications are not received any more, with the cause: the stream that carries them could not be opened. They
    /// may be after a [reset](Self::Reset). Answers are still received.
    Lost(Arc<Error>),
}

impl Unsolicited {
    pub(super) fn from_wire(listener: NotificationListener) -> Self {
        let source = UnsolicitedSource::Wire(listener);
        Self { source }
    }

    /// Yields no event until `closed` is raised, and then the end.
    pub(super) fn none(closed: Arc<Signal>) -> Self {
        let source = UnsolicitedSource::None(closed);
        Self { source }
    }

    /// Returns the next event; `None` when the connection is over.
    ///
    /// # Cancel safety
    ///
    /// Safe: an event is removed only when it is returned.
    pub async fn next(&mut self) -> Option<UnsolicitedEvent> {
        let listener = match &mut self.source {
            UnsolicitedSource::Wire(listener) => listener,
            UnsolicitedSource::None(closed) => {
                closed.wait().await;
                return None;
            }
        };
        Some(match poll_fn(|cx| listener.poll_next(cx)).await? {
            ListenerEvent::Notification(notification) => {
                UnsolicitedEvent::Notification(notification)
            }
            ListenerEvent::Reset => UnsolicitedEvent::Reset,
            ListenerEvent::Lagged => {
                listener.resume();
                UnsolicitedEvent::Lagged
            }
            ListenerEvent::Lost(error) => {
                listener.resume();
                UnsolicitedEvent::Lost(error)
            }
        })
    }
}

impl std::fmt::Debug for Unsolicited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unsolicited").finish_non_exhaustive()
    }
}
