//! `EngineTimeoutControl`, the [`TimeoutControl`] of a legacy request: suspends its timeouts in the engine.

use bowline_types::RequestId;
use tokio::sync::mpsc;

use crate::exchange::{BoxFuture, TimeoutControl};
use crate::wire::Received;

/// Suspends and resumes the timeouts of a request by sending `Received::Paused` and `Received::Resumed`.
pub(super) struct EngineTimeoutControl<'a, T, F> {
    incoming: &'a mpsc::Sender<T>,
    id: &'a RequestId,
    /// Wraps a `Received` into an item of the channel.
    wrap: F,
}

impl<'a, T: Send, F: Fn(Received) -> T + Send + Sync> EngineTimeoutControl<'a, T, F> {
    pub(super) fn new(incoming: &'a mpsc::Sender<T>, id: &'a RequestId, wrap: F) -> Self {
        Self { incoming, id, wrap }
    }

    fn send(&self, received: Received) -> BoxFuture<'_, ()> {
        let item = (self.wrap)(received);
        Box::pin(async move {
            // Fails only when the wire was dropped, and the engine with it.
            let _ = self.incoming.send(item).await;
        })
    }
}

impl<T: Send, F: Fn(Received) -> T + Send + Sync> TimeoutControl
    for EngineTimeoutControl<'_, T, F>
{
    fn pause(&self) -> BoxFuture<'_, ()> {
        let id = self.id.clone();
        self.send(Received::Paused { id })
    }

    fn resume(&self) -> BoxFuture<'_, ()> {
        let id = self.id.clone();
        self.send(Received::Resumed { id })
    }
}

/// Pauses and resumes the timeouts of two controls.
pub(super) struct TimeoutControlPair<'a>(
    pub(super) &'a dyn TimeoutControl,
    pub(super) &'a dyn TimeoutControl,
);

impl TimeoutControl for TimeoutControlPair<'_> {
    fn pause(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.0.pause().await;
            self.1.pause().await;
        })
    }

    fn resume(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.0.resume().await;
            self.1.resume().await;
        })
    }
}
