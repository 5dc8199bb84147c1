//! `EngineTimeoutControl`, the [`TimeoutControl`] of a legacy request: suspends its timeouts in the engine.

use bowline_types::RequestId;
use tokio::sync::mpsc;

use super::post_state::AbandonedFlag;
use super::wire_state::Delivery;
use crate::exchange::{BoxFuture, TimeoutControl};
use crate::wire::WireEvent;

/// Suspends and resumes the timeouts of a request by sending `WireEvent::Paused` and `WireEvent::Resumed`.
pub(super) struct EngineTimeoutControl<'a> {
    pub(super) incoming: &'a mpsc::Sender<Delivery>,
    pub(super) id: &'a RequestId,
    pub(super) abandoned: &'a AbandonedFlag,
}

impl EngineTimeoutControl<'_> {
    fn send(&self, event: WireEvent) -> BoxFuture<'_, ()> {
        let delivery = Delivery::for_request(event, self.abandoned);
        Box::pin(async move {
            // Fails only when the wire was dropped, and the engine with it.
            let _ = self.incoming.send(delivery).await;
        })
    }
}

impl TimeoutControl for EngineTimeoutControl<'_> {
    fn pause(&self) -> BoxFuture<'_, ()> {
        let id = self.id.clone();
        self.send(WireEvent::Paused { id })
    }

    fn resume(&self) -> BoxFuture<'_, ()> {
        let id = self.id.clone();
        self.send(WireEvent::Resumed { id })
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
