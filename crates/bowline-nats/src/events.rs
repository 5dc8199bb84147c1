//! [`Events`]: counts the times that messages to this replica may have been lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_nats::{ConnectOptions, Event};
use tokio::sync::watch;

/// What happens to the connection.
#[derive(Default)]
pub(crate) struct Events {
    losses: watch::Sender<u64>,
    was_disconnected: AtomicBool,
}

impl Events {
    /// Makes the client report its events.
    pub(crate) fn listen(self: &Arc<Self>, options: ConnectOptions) -> ConnectOptions {
        let events = Arc::downgrade(self);
        options.event_callback(move |event| {
            let events = events.clone();
            async move {
                if let Some(events) = events.upgrade() {
                    events.handle(&event);
                }
            }
        })
    }

    /// Returns how many times messages may have been lost: after a broken connection was restored, and when too many
    /// waited.
    pub(crate) fn losses(&self) -> watch::Receiver<u64> {
        self.losses.subscribe()
    }

    fn handle(&self, event: &Event) {
        match event {
            Event::Disconnected => {
                tracing::warn!("lost the connection to NATS");
                self.was_disconnected.store(true, Ordering::SeqCst);
            }
            Event::Connected if self.was_disconnected.swap(false, Ordering::SeqCst) => {
                self.losses.send_modify(|losses| *losses += 1);
            }
            Event::SlowConsumer(_) => self.losses.send_modify(|losses| *losses += 1),
            event => tracing::debug!(%event, "event of the connection to NATS"),
        }
    }
}
