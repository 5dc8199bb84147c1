//! [`Listener`]: the task that receives notifications, and listens again after a broken connection.
//!
//! ```text
//! connect ─▶ LISTEN to all channels, share the lock ─▶ receive, join, leave, ping ─┐
//!    ▲                                                  after the first: `missed`   │
//!    └──────────────── delay ◀──────────────── failed ◀─────────────────────────────┘
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline::cluster::{GroupId, ReplicaId, ReplicaInbox, Unavailable};
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_postgres::{AsyncMessage, Client, Connection, Notification};

use crate::LIMIT;
use crate::cleanup;
use crate::error::unavailable;
use crate::messages::Sender;
use crate::payload::{Payload, group_channel, replica_channel, replica_lock};

/// A handle to the task. Dropping it closes the connection, which releases the lock.
pub(crate) struct Listener {
    commands: mpsc::UnboundedSender<Command>,
    connected: watch::Receiver<bool>,
    tasks: [JoinHandle<()>; 2],
}

/// Bounded by the callers that wait for `Join`, and by the groups that are left.
enum Command {
    Join(GroupId, oneshot::Sender<Result<(), Unavailable>>),
    Leave(GroupId),
}

impl Listener {
    pub(crate) fn start(sender: Sender, inbox: Arc<dyn ReplicaInbox>) -> Self {
        let (commands, received) = mpsc::unbounded_channel();
        let (is_connected, connected) = watch::channel(false);
        let cleanup = tokio::spawn(cleanup::run(sender.database.clone()));
        let task = Task {
            sender,
            inbox,
            groups: BTreeMap::new(),
            is_connected,
            answering: JoinSet::new(),
        };
        Self {
            commands,
            connected,
            tasks: [tokio::spawn(task.run(received)), cleanup],
        }
    }

    /// Waits until the replica listens to its channel.
    pub(crate) async fn connected(&self) {
        // Fails if the task has ended, which the caller's limit covers.
        if self.connected.clone().wait_for(|is| *is).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        *self.connected.borrow()
    }

    pub(crate) async fn join(&self, group: &GroupId) -> Result<(), Unavailable> {
        let joining = async {
            self.connected().await;
            let (joined, outcome) = oneshot::channel();
            let _ = self.commands.send(Command::Join(group.clone(), joined));
            outcome.await
        };
        match tokio::time::timeout(LIMIT, joining).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(unavailable("the connection was lost")),
            Err(_) => {
                self.leave(group);
                Err(Unavailable::timed_out("Postgres", LIMIT))
            }
        }
    }

    pub(crate) fn leave(&self, group: &GroupId) {
        let _ = self.commands.send(Command::Leave(group.clone()));
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// A connection that listens. Dropping it closes the connection.
struct ListeningConnection {
    client: Client,
    driver: JoinHandle<()>,
    notifications: mpsc::Receiver<Notification>,
    /// Whether notifications were dropped, because too many wait.
    has_dropped: Arc<AtomicBool>,
}

impl Drop for ListeningConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

struct Task {
    sender: Sender,
    inbox: Arc<dyn ReplicaInbox>,
    /// The groups of this replica by their channels.
    groups: BTreeMap<String, GroupId>,
    is_connected: watch::Sender<bool>,
    /// Answers to other replicas. The inbox bounds them.
    answering: JoinSet<()>,
}

impl Task {
    async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        let mut failures = 0_u32;
        let mut was_connected = false;
        loop {
            match self.connect().await {
                Ok(mut listening) => {
                    failures = 0;
                    self.is_connected.send_replace(true);
                    if was_connected {
                        self.inbox.missed();
                    }
                    was_connected = true;
                    let lost = self.receive(&mut listening, &mut commands).await;
                    self.is_connected.send_replace(false);
                    let Some(error) = lost else {
                        return;
                    };
                    tracing::warn!(%error, "lost the connection to Postgres");
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    tracing::warn!(%error, failures, "failed to connect to Postgres");
                }
            }
            self.wait(failures, &mut commands).await;
        }
    }

    /// Connects, listens to the channels of this replica and its groups, and shares its lock.
    async fn connect(&self) -> Result<ListeningConnection, Unavailable> {
        let (config, tls) = self.sender.database.connector();
        let connecting = within_limit(config.connect(tls.clone()));
        let (client, connection) = connecting.await?;
        let (notify, notifications) = mpsc::channel(QUEUED_NOTIFICATIONS);
        let has_dropped = Arc::<AtomicBool>::default();
        let driver = tokio::spawn(drive(connection, notify, has_dropped.clone()));
        let listening = ListeningConnection {
            client,
            driver,
            notifications,
            has_dropped,
        };
        let mut statements = KEEPALIVE.to_owned();
        let own = replica_channel(self.sender.replica);
        for channel in [&own].into_iter().chain(self.groups.keys()) {
            statements.push_str(&format!("LISTEN {channel}; "));
        }
        // After listening: a replica that is alive receives what it is sent.
        let lock = replica_lock(self.sender.replica);
        statements.push_str(&format!("SELECT pg_advisory_lock_shared({lock})"));
        within_limit(listening.client.batch_execute(&statements)).await?;
        Ok(listening)
    }

    /// Receives notifications until the connection fails; `None` if the handle was dropped.
    async fn receive(
        &mut self,
        listening: &mut ListeningConnection,
        commands: &mut mpsc::UnboundedReceiver<Command>,
    ) -> Option<Unavailable> {
        let mut pings = tokio::time::interval(PING_EVERY);
        let mut batch = Vec::new();
        loop {
            // Notifications come first: the messages of a busy replica must not lag behind its commands.
            let outcome = tokio::select! {
                biased;
                received = listening.notifications.recv_many(&mut batch, MAX_BATCH) => {
                    if received == 0 {
                        Err(unavailable("the connection was closed"))
                    } else {
                        self.handle(&mut batch).await;
                        Ok(())
                    }
                }
                Some(_) = self.answering.join_next() => Ok(()),
                command = commands.recv() => self.perform(&listening.client, command?).await,
                _ = pings.tick() => within_limit(listening.client.batch_execute("")).await,
            };
            if listening.has_dropped.swap(false, Ordering::SeqCst) {
                self.inbox.missed();
            }
            if let Err(error) = outcome {
                return Some(error);
            }
        }
    }

    async fn perform(&mut self, client: &Client, command: Command) -> Result<(), Unavailable> {
        match command {
            Command::Join(group, joined) => {
                let channel = group_channel(&group);
                if self.groups.contains_key(&channel) {
                    let _ = joined.send(Ok(()));
                    return Ok(());
                }
                let listen = format!("LISTEN {channel}");
                let outcome = within_limit(client.batch_execute(&listen)).await;
                if outcome.is_ok() {
                    self.groups.insert(channel, group);
                }
                let _ = joined.send(outcome.clone());
                outcome
            }
            Command::Leave(group) => {
                let channel = group_channel(&group);
                if self.groups.remove(&channel).is_none() {
                    return Ok(());
                }
                let unlisten = format!("UNLISTEN {channel}");
                within_limit(client.batch_execute(&unlisten)).await
            }
        }
    }

    /// Reads the bodies of notifications, and passes the messages on.
    async fn handle(&mut self, batch: &mut Vec<Notification>) {
        let parsed = batch.drain(..).filter_map(|notification| {
            let payload = Payload::parse(notification.payload())?;
            let group = self.groups.get(notification.channel()).cloned();
            Some((payload, group))
        });
        let parsed: Vec<_> = parsed.collect();
        let ids: Vec<i64> = parsed.iter().map(|(payload, _)| payload.body()).collect();
        let bodies = match self.bodies(&ids).await {
            Ok(bodies) => bodies,
            Err(error) => {
                tracing::warn!(%error, "failed to read messages of other replicas");
                return self.inbox.missed();
            }
        };
        let mut has_missed = false;
        for (payload, group) in parsed {
            let body = bodies.get(&payload.body()).cloned();
            match (payload, body) {
                (Payload::Message { .. }, Some(body)) => {
                    // A message to a group that was left a moment ago has none.
                    if let Some(group) = group {
                        self.inbox.deliver(&group, body);
                    }
                }
                (Payload::Answer { id, .. }, Some(body)) => self.sender.asks.answer(id, body),
                (Payload::Question { id, from, .. }, Some(body)) => self.answer(id, from, body),
                // The table is emptied when the server crashes, and its old messages are removed.
                (_, None) => has_missed = true,
            }
        }
        if has_missed {
            self.inbox.missed();
        }
    }

    async fn bodies(&self, ids: &[i64]) -> Result<BTreeMap<i64, Bytes>, Unavailable> {
        let reading = self.sender.database.with(async |connection| {
            let statement = connection
                .prepare_cached(BODIES)
                .await
                .map_err(unavailable)?;
            let rows = connection.query(&statement, &[&ids]).await;
            let mut bodies = BTreeMap::new();
            for row in rows.map_err(unavailable)? {
                let body: Vec<u8> = row.try_get(1).map_err(unavailable)?;
                bodies.insert(row.try_get(0).map_err(unavailable)?, body.into());
            }
            Ok(bodies)
        });
        reading.await
    }

    fn answer(&mut self, id: u64, from: ReplicaId, question: Bytes) {
        let (sender, answer) = (self.sender.clone(), self.inbox.answer(question));
        self.answering.spawn(async move {
            let answer = answer.await;
            let (channel, prefix) = (replica_channel(from), Payload::answer_prefix(id));
            if let Err(error) = sender.send(&channel, &prefix, &answer).await {
                tracing::warn!(%from, %error, "failed to answer a replica");
            }
        });
    }

    /// Waits before the next attempt to connect. Meanwhile the replica joins no group.
    async fn wait(&mut self, failures: u32, commands: &mut mpsc::UnboundedReceiver<Command>) {
        let delay = RETRY_FIRST.saturating_mul(2_u32.saturating_pow(failures.min(10)));
        let until = tokio::time::Instant::now() + delay.min(RETRY_LAST);
        while let Ok(command) = tokio::time::timeout_at(until, commands.recv()).await {
            match command {
                Some(Command::Join(_, joined)) => {
                    let _ = joined.send(Err(unavailable("the connection was lost")));
                }
                Some(Command::Leave(group)) => {
                    self.groups.remove(&group_channel(&group));
                }
                None => return,
            }
        }
    }
}

/// Drives a connection until it ends, and queues its notifications.
async fn drive<S, T>(
    mut connection: Connection<S, T>,
    notify: mpsc::Sender<Notification>,
    has_dropped: Arc<AtomicBool>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut messages = futures_util::stream::poll_fn(move |cx| connection.poll_message(cx));
    while let Some(message) = messages.next().await {
        match message {
            Ok(AsyncMessage::Notification(notification)) => {
                // Does not wait: the answer that the receiver waits for comes over this connection.
                if notify.try_send(notification).is_err() {
                    has_dropped.store(true, Ordering::SeqCst);
                }
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, "the connection to Postgres has failed");
                return;
            }
        }
    }
}

async fn within_limit<T>(
    operation: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Unavailable> {
    match tokio::time::timeout(LIMIT, operation).await {
        Ok(outcome) => outcome.map_err(unavailable),
        Err(_) => Err(Unavailable::timed_out("Postgres", LIMIT)),
    }
}

const BODIES: &str = "SELECT id, body FROM bowline.messages WHERE id = ANY($1)";
/// The server finds out within about 11 seconds that a replica is gone, and releases its lock.
const KEEPALIVE: &str =
    "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; ";
/// A connection whose packets are lost is found out after this time and [`LIMIT`].
const PING_EVERY: Duration = Duration::from_secs(5);
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(2);
const QUEUED_NOTIFICATIONS: usize = 4096;
/// How many bodies are read at a time.
const MAX_BATCH: usize = 32;
