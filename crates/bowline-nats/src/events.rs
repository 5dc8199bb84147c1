//! [`Events`]: reports to the inbox that messages may have been lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use async_nats::{ConnectOptions, Event};
use bowline::cluster::ReplicaInbox;

/// What happens to the connection.
#[derive(Default)]
pub(crate) struct Events {
    inbox: OnceLock<Arc<dyn ReplicaInbox>>,
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

    pub(crate) fn set_inbox(&self, inbox: Arc<dyn ReplicaInbox>) {
        // Set once: the trait calls `start` once.
        let _ = self.inbox.set(inbox);
    }

    fn handle(&self, event: &Event) {
        match event {
            Event::Disconnected => {
                tracing::warn!("lost the connection to NATS");
                self.was_disconnected.store(true, Ordering::SeqCst);
            }
            Event::Connected if self.was_disconnected.swap(false, Ordering::SeqCst) => {
                self.missed();
            }
            Event::SlowConsumer(_) => self.missed(),
            event => tracing::debug!(%event, "event of the connection to NATS"),
        }
    }

    fn missed(&self) {
        if let Some(inbox) = self.inbox.get() {
            inbox.missed();
        }
    }
}
