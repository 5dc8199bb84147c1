//! [`Echoes`]: messages of a replica to itself, which show what the server has processed.

use std::sync::Arc;

use async_nats::{Client, SubscribeError, Subscriber};
use bowline::cluster::{PendingAsks, Unavailable};
use bytes::Bytes;
use tokio::sync::watch;

use crate::LIMIT;
use crate::error::unavailable;

/// The echoes of a replica. Clones share them.
#[derive(Clone)]
pub(crate) struct Echoes {
    client: Client,
    subject: String,
    waiting: PendingAsks,
    is_subscribed: Arc<watch::Sender<bool>>,
}

impl Echoes {
    pub(crate) fn new(client: Client, subject: String) -> Self {
        Self {
            client,
            subject,
            waiting: PendingAsks::default(),
            is_subscribed: Arc::default(),
        }
    }

    /// Subscribes to the echoes. Until then, [`synchronize`](Self::synchronize) waits.
    pub(crate) async fn subscribe(&self) -> Result<Subscriber, SubscribeError> {
        let subscriber = self.client.subscribe(self.subject.clone()).await?;
        // The client sends in order, so that what is published from now on comes after the subscription.
        self.is_subscribed.send_replace(true);
        Ok(subscriber)
    }

    pub(crate) fn receive(&self, echo: &[u8]) {
        if let Some(id) = echo.first_chunk() {
            self.waiting.answer(u64::from_be_bytes(*id), Bytes::new());
        }
    }

    /// Waits until the server has processed everything that was sent before: it returns a message to its sender after
    /// those.
    pub(crate) async fn synchronize(&self) -> Result<(), Unavailable> {
        let synchronized = tokio::time::timeout(LIMIT, self.round_trip()).await;
        synchronized.unwrap_or_else(|_| Err(Unavailable::timed_out("NATS", LIMIT)))
    }

    async fn round_trip(&self) -> Result<(), Unavailable> {
        // The server drops an echo that nothing has subscribed to. On a busy machine, the task that subscribes may not
        // have run when the first group is joined.
        let mut is_subscribed = self.is_subscribed.subscribe();
        let subscribed = is_subscribed.wait_for(|is_subscribed| *is_subscribed).await;
        drop(subscribed.map_err(unavailable)?);

        let echo = self.waiting.add();
        let id = Bytes::copy_from_slice(&echo.id().to_be_bytes());
        let sent = self.client.publish(self.subject.clone(), id);
        sent.await.map_err(unavailable)?;
        let received = echo.wait(LIMIT).await;
        received
            .map(drop)
            .map_err(|_| Unavailable::timed_out("NATS", LIMIT))
    }
}
