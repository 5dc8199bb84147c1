//! The engine's clock for one request, as whoever carries the request sees it.

use bowline_types::RequestId;
use tokio::sync::mpsc;

use crate::exchange::{BoxFuture, Stopwatch};
use crate::wire::Received;

/// Tells the engine when the time of a request does not count.
pub(super) struct Held<'a> {
    incoming: &'a mpsc::Sender<Received>,
    id: &'a RequestId,
}

impl<'a> Held<'a> {
    pub(super) fn new(incoming: &'a mpsc::Sender<Received>, id: &'a RequestId) -> Self {
        Self { incoming, id }
    }

    fn tell(&self, received: Received) -> BoxFuture<'_, ()> {
        Box::pin(async {
            // Fails only when the wire is gone, and then nobody waits.
            let _ = self.incoming.send(received).await;
        })
    }
}

impl Stopwatch for Held<'_> {
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
