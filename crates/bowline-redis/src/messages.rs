//! [`RedisMessages`]: messages between replicas as `PUBLISH` and `SUBSCRIBE`.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline::cluster::{
    AskError, GroupId, PendingAsks, ReplicaId, ReplicaInbox, ReplicaMessages, Unavailable,
    check_message_size,
};
use bowline::exchange::BoxFuture;
use bytes::Bytes;

use crate::connection::Connection;
use crate::frame::Frame;
use crate::subscriber::{Channels, Subscriber};

/// Messages over Redis. A replica has a channel for itself and one for each of its groups.
pub(crate) struct RedisMessages {
    sender: Sender,
    subscriber: OnceLock<Subscriber>,
}

/// What publishes messages.
#[derive(Clone)]
pub(crate) struct Sender {
    pub(crate) connection: Arc<Connection>,
    pub(crate) replica: ReplicaId,
    pub(crate) channels: Channels,
    pub(crate) asks: PendingAsks,
}

impl RedisMessages {
    pub(crate) fn new(connection: Arc<Connection>, replica: ReplicaId, prefix: &str) -> Self {
        Self {
            sender: Sender {
                connection,
                replica,
                channels: Channels::new(prefix),
                asks: PendingAsks::default(),
            },
            subscriber: OnceLock::new(),
        }
    }

    fn subscriber(&self) -> Result<&Subscriber, Unavailable> {
        let subscriber = self.subscriber.get();
        subscriber.ok_or_else(|| Unavailable::new("Redis", "the replica has not started"))
    }
}

impl Sender {
    /// Publishes a message; returns how many connections received it.
    pub(crate) async fn publish(&self, channel: &str, bytes: &[u8]) -> Result<i64, Unavailable> {
        let mut command = redis::cmd("PUBLISH");
        command.arg(channel).arg(bytes);
        let receivers = self.connection.run(&command).await;
        receivers.map_err(|error| error.into_unavailable())
    }
}

impl ReplicaMessages for RedisMessages {
    fn replica(&self) -> ReplicaId {
        self.sender.replica
    }

    fn start(&self, inbox: Arc<dyn ReplicaInbox>) {
        self.subscriber
            .get_or_init(|| Subscriber::start(self.sender.clone(), inbox));
    }

    fn ask(
        &self,
        to: ReplicaId,
        message: Bytes,
        within: Duration,
    ) -> BoxFuture<'_, Result<Bytes, AskError>> {
        Box::pin(async move {
            check_message_size(&message)?;
            let subscriber = self.subscriber()?;
            let asking = async {
                // Without a subscription of its own, this replica would not receive the answer.
                subscriber.connected().await;
                let ask = self.sender.asks.add();
                let question = Frame::Question {
                    id: ask.id(),
                    from: self.sender.replica,
                    message,
                };
                let channel = self.sender.channels.replica(to);
                match self.sender.publish(&channel, &question.to_bytes()).await? {
                    0 => Err(AskError::ReplicaGone),
                    _ => ask.wait(within).await,
                }
            };
            let asked = tokio::time::timeout(within, asking).await;
            asked.unwrap_or_else(|_| match subscriber.is_connected() {
                true => Err(AskError::TimedOut),
                false => Err(Unavailable::timed_out("Redis", within).into()),
            })
        })
    }

    fn tell<'a>(
        &'a self,
        group: &'a GroupId,
        message: Bytes,
    ) -> BoxFuture<'a, Result<(), Unavailable>> {
        Box::pin(async move {
            let channel = self.sender.channels.group(group);
            self.sender.publish(&channel, &message).await.map(drop)
        })
    }

    fn join<'a>(&'a self, group: &'a GroupId) -> BoxFuture<'a, Result<(), Unavailable>> {
        Box::pin(async move { self.subscriber()?.join(group).await })
    }

    fn leave(&self, group: &GroupId) {
        if let Some(subscriber) = self.subscriber.get() {
            subscriber.leave(group);
        }
    }
}
