//! The engine's clock for one request, as whoever carries the request sees it.

use bowline_types::RequestId;
use tokio::sync::mpsc;

use crate::exchange::{BoxFuture, Stopwatch};
use crate::wire::Received;

/// Tells the engine when the time of a request does not count.
pub(super) struct Held<'a, T, F> {
    incoming: &'a mpsc::Sender<T>,
    id: &'a RequestId,
    /// Makes what the engine is told into what goes over the channel.
    wrap: F,
}

impl<'a, T: Send, F: Fn(Received) -> T + Send + Sync> Held<'a, T, F> {
    pub(super) fn new(incoming: &'a mpsc::Sender<T>, id: &'a RequestId, wrap: F) -> Self {
        Self { incoming, id, wrap }
    }

    fn tell(&self, received: Received) -> BoxFuture<'_, ()> {
        let told = (self.wrap)(received);
        Box::pin(async move {
            // Fails only when the wire is gone, and then nobody waits.
            let _ = self.incoming.send(told).await;
        })
    }
}

impl<T: Send, F: Fn(Received) -> T + Send + Sync> Stopwatch for Held<'_, T, F> {
    fn stop(&self) -> BoxFuture<'_, ()> {
        let id = self.id.clone();
        self.tell(Received::Held { id })
    }

    fn go_on(&self) -> BoxFuture<'_, ()> {
        let id = self.id.clone();
        self.tell(Received::Released { id })
    }
}

/// Two clocks that stop and go on together.
pub(super) struct Both<'a>(pub(super) &'a dyn Stopwatch, pub(super) &'a dyn Stopwatch);

impl Stopwatch for Both<'_> {
    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.0.stop().await;
            self.1.stop().await;
        })
    }

    fn go_on(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.0.go_on().await;
            self.1.go_on().await;
        })
    }
}
