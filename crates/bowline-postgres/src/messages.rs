//! [`PostgresMessages`]: messages between replicas as rows and notifications.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline::cluster::{
    AskError, GroupId, PendingAsks, ReplicaId, ReplicaInbox, ReplicaMessages, Unavailable,
    check_message_size,
};
use bowline::exchange::BoxFuture;
use bytes::Bytes;
use tokio_postgres::types::ToSql;

use crate::connection::Database;
use crate::error::unavailable;
use crate::listener::Listener;
use crate::payload::{Payload, group_channel, replica_channel, replica_lock};

/// Messages over Postgres. A replica listens to a channel for itself and to one for each of its groups.
pub(crate) struct PostgresMessages {
    sender: Sender,
    listener: OnceLock<Listener>,
}

/// What sends messages.
#[derive(Clone)]
pub(crate) struct Sender {
    pub(crate) database: Arc<Database>,
    pub(crate) replica: ReplicaId,
    pub(crate) asks: PendingAsks,
}

impl PostgresMessages {
    pub(crate) fn new(database: Arc<Database>, replica: ReplicaId) -> Self {
        Self {
            sender: Sender {
                database,
                replica,
                asks: PendingAsks::default(),
            },
            listener: OnceLock::new(),
        }
    }

    fn listener(&self) -> Result<&Listener, Unavailable> {
        let listener = self.listener.get();
        listener.ok_or_else(|| unavailable("the replica has not started"))
    }
}

impl Sender {
    /// Stores a body, and notifies a channel of it.
    pub(crate) async fn send(
        &self,
        channel: &str,
        prefix: &str,
        body: &[u8],
    ) -> Result<(), Unavailable> {
        let sending = self.database.with(async |connection| {
            let statement = connection.prepare_cached(SEND).await.map_err(unavailable)?;
            let values: [&(dyn ToSql + Sync); 3] = [&body, &channel, &prefix];
            let sent = connection.execute(&statement, &values).await;
            sent.map(drop).map_err(unavailable)
        });
        sending.await
    }

    /// Stores a question and notifies its replica, unless no connection holds the replica's lock; returns whether one
    /// does.
    async fn send_question(
        &self,
        to: ReplicaId,
        prefix: &str,
        body: &[u8],
    ) -> Result<bool, Unavailable> {
        let (lock, channel) = (replica_lock(to), replica_channel(to));
        let sending = self.database.with(async |connection| {
            let statement = connection.prepare_cached(ASK).await.map_err(unavailable)?;
            let values: [&(dyn ToSql + Sync); 4] = [&lock, &body, &channel, &prefix];
            let row = connection.query_one(&statement, &values).await;
            let row = row.map_err(unavailable)?;
            row.try_get(0).map_err(unavailable)
        });
        sending.await
    }
}

impl ReplicaMessages for PostgresMessages {
    fn replica(&self) -> ReplicaId {
        self.sender.replica
    }

    fn start(&self, inbox: Arc<dyn ReplicaInbox>) {
        self.listener
            .get_or_init(|| Listener::start(self.sender.clone(), inbox));
    }

    fn ask(
        &self,
        to: ReplicaId,
        message: Bytes,
        within: Duration,
    ) -> BoxFuture<'_, Result<Bytes, AskError>> {
        Box::pin(async move {
            check_message_size(&message)?;
            let listener = self.listener()?;
            let asking = async {
                // Without listening itself, this replica would not receive the answer.
                listener.connected().await;
                let ask = self.sender.asks.add();
                let prefix = Payload::question_prefix(ask.id(), self.sender.replica);
                if self.sender.send_question(to, &prefix, &message).await? {
                    ask.wait(within).await
                } else {
                    Err(AskError::ReplicaGone)
                }
            };
            let asked = tokio::time::timeout(within, asking).await;
            asked.unwrap_or_else(|_| match listener.is_connected() {
                true => Err(AskError::TimedOut),
                false => Err(Unavailable::timed_out("Postgres", within).into()),
            })
        })
    }

    fn tell<'a>(
        &'a self,
        group: &'a GroupId,
        message: Bytes,
    ) -> BoxFuture<'a, Result<(), Unavailable>> {
        Box::pin(async move {
            let channel = group_channel(group);
            let sent = self
                .sender
                .send(&channel, Payload::MESSAGE_PREFIX, &message);
            sent.await
        })
    }

    fn join<'a>(&'a self, group: &'a GroupId) -> BoxFuture<'a, Result<(), Unavailable>> {
        Box::pin(async move { self.listener()?.join(group).await })
    }

    fn leave(&self, group: &GroupId) {
        if let Some(listener) = self.listener.get() {
            listener.leave(group);
        }
    }
}

const SEND: &str = "
    WITH message AS (INSERT INTO bowline.messages (body) VALUES ($1) RETURNING id)
    SELECT pg_notify($2::text, $3::text || id::text) FROM message";

/// A replica that listens shares its lock; if it can be taken alone, no replica listens.
const ASK: &str = "
    WITH replica AS MATERIALIZED (SELECT NOT pg_try_advisory_xact_lock($1::bigint) AS is_alive),
    message AS (
        INSERT INTO bowline.messages (body) SELECT $2::bytea FROM replica WHERE is_alive RETURNING id
    )
    SELECT is_alive, (SELECT pg_notify($3::text, $4::text || id::text)::text FROM message) FROM replica";
