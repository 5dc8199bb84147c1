//! The engine's clock for one request, as whoever carries the request sees it.

use bowline_types::RequestId;
use tokio::sync::mpsc;

use crate::exchange::{BoxFuture, Stopwatch};
use crate::wire::Received;

/// Tells the engine when the time of a request does not count.
pub(super) struct Held<'a, T> {
    incoming: &'a mpsc::Sender<T>,
    id: &'a RequestId,
}

impl<'a, T: From<Received> + Send + 'static> Held<'a, T> {
    pub(super) fn new(incoming: &'a mpsc::Sender<T>, id: &'a RequestId) -> Self {
        Self { incoming, id }
    }

    fn tell(&self, received: Received) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // Fails only when the wire is gone, and then nobody waits.
            let _ = self.incoming.send(received.into()).await;
        })
    }
}

impl<T: From<Received> + Send + 'static> Stopwatch for Held<'_, T> {
    fn stop(&self) -> BoxFuture<'_, ()> {
        self.tell(Received::Held {
            id: self.id.clone(),
        })
    }

    fn go_on(&self) -> BoxFuture<'_, ()> {
        self.tell(Received::Released {
            id: self.id.clone(),
        })
    }
}
