//! [`Subscriber`]: the task that receives messages, and subscribes again after a broken connection.
//!
//! ```text
//! connect ─▶ subscribe to all channels ─▶ receive, join, leave, ping ─┐
//!    ▲                                        after the first: `missed`│
//!    └──────────── delay ◀──────────── failed ◀────────────────────────┘
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline::cluster::{GroupId, ReplicaId, ReplicaInbox, Unavailable};
use bytes::Bytes;
use futures_util::StreamExt as _;
use redis::aio::{PubSubSink, PubSubStream};
use redis::{Msg, RedisError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::LIMIT;
use crate::error::unavailable;
use crate::frame::Frame;
use crate::messages::Sender;

/// A handle to the task. Dropping it ends the task, and with it the subscriptions.
pub(crate) struct Subscriber {
    commands: mpsc::UnboundedSender<Command>,
    connected: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

/// Bounded by the callers that wait for `Join`, and by the groups that are left.
enum Command {
    Join(GroupId, oneshot::Sender<Result<(), Unavailable>>),
    Leave(GroupId),
}

/// The names of channels.
#[derive(Clone, Debug)]
pub(crate) struct Channels {
    prefix: Arc<str>,
}

impl Channels {
    pub(crate) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.into(),
        }
    }

    pub(crate) fn replica(&self, replica: ReplicaId) -> String {
        format!("{}:replica:{replica}", self.prefix)
    }

    pub(crate) fn group(&self, group: &GroupId) -> String {
        format!("{}:group:{group}", self.prefix)
    }
}

impl Subscriber {
    pub(crate) fn start(sender: Sender, inbox: Arc<dyn ReplicaInbox>) -> Self {
        let (commands, received) = mpsc::unbounded_channel();
        let (is_connected, connected) = watch::channel(false);
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
            task: tokio::spawn(task.run(received)),
        }
    }

    /// Waits until the replica is subscribed to its channel.
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
            Ok(Err(_)) => Err(Unavailable::new("Redis", "the connection was lost")),
            Err(_) => {
                self.leave(group);
                Err(Unavailable::timed_out("Redis", LIMIT))
            }
        }
    }

    pub(crate) fn leave(&self, group: &GroupId) {
        let _ = self.commands.send(Command::Leave(group.clone()));
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.task.abort();
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
            let outcome = self.connect().await;
            match outcome {
                Ok((sink, stream)) => {
                    failures = 0;
                    self.is_connected.send_replace(true);
                    if was_connected {
                        self.inbox.missed();
                    }
                    was_connected = true;
                    let lost = self.receive(sink, stream, &mut commands).await;
                    self.is_connected.send_replace(false);
                    // The other connection is most likely broken too; a command would find out by failing.
                    self.sender.connection.discard();
                    let Some(error) = lost else {
                        return;
                    };
                    tracing::warn!(%error, "lost the connection to Redis");
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    tracing::warn!(%error, failures, "failed to connect to Redis");
                }
            }
            self.wait(failures, &mut commands).await;
        }
    }

    /// Connects, and subscribes to the channels of this replica and its groups.
    async fn connect(&self) -> Result<(PubSubSink, PubSubStream), Unavailable> {
        let subscriber = self.sender.connection.subscriber().await?;
        let (mut sink, stream) = subscriber.split();
        let mut channels = vec![self.sender.channels.replica(self.sender.replica)];
        channels.extend(self.groups.keys().cloned());
        within_limit(sink.subscribe(channels)).await?;
        Ok((sink, stream))
    }

    /// Receives messages until the connection fails; `None` if the handle was dropped.
    async fn receive(
        &mut self,
        mut sink: PubSubSink,
        mut stream: PubSubStream,
        commands: &mut mpsc::UnboundedReceiver<Command>,
    ) -> Option<Unavailable> {
        let mut pings = tokio::time::interval(PING_EVERY);
        loop {
            // Messages come first: the subscriptions of a busy replica must not lag behind its commands.
            let outcome = tokio::select! {
                biased;
                message = stream.next() => match message {
                    Some(message) => {
                        self.handle(&message);
                        Ok(())
                    }
                    None => Err(Unavailable::new("Redis", "the connection was closed")),
                },
                Some(_) = self.answering.join_next() => Ok(()),
                command = commands.recv() => self.perform(&mut sink, command?).await,
                _ = pings.tick() => within_limit(sink.ping::<redis::Value>()).await.map(drop),
            };
            if let Err(error) = outcome {
                return Some(error);
            }
        }
    }

    async fn perform(
        &mut self,
        sink: &mut PubSubSink,
        command: Command,
    ) -> Result<(), Unavailable> {
        match command {
            Command::Join(group, joined) => {
                let channel = self.sender.channels.group(&group);
                if self.groups.contains_key(&channel) {
                    let _ = joined.send(Ok(()));
                    return Ok(());
                }
                let outcome = within_limit(sink.subscribe(&channel)).await;
                if outcome.is_ok() {
                    self.groups.insert(channel, group);
                }
                let _ = joined.send(outcome.clone());
                outcome
            }
            Command::Leave(group) => {
                let channel = self.sender.channels.group(&group);
                match self.groups.remove(&channel) {
                    Some(_) => within_limit(sink.unsubscribe(channel)).await,
                    None => Ok(()),
                }
            }
        }
    }

    fn handle(&mut self, message: &Msg) {
        let bytes = Bytes::copy_from_slice(message.get_payload_bytes());
        if let Some(group) = self.groups.get(message.get_channel_name()) {
            return self.inbox.deliver(group, bytes);
        }
        match Frame::parse(bytes) {
            Some(Frame::Answer { id, message }) => self.sender.asks.answer(id, message),
            Some(Frame::Question { id, from, message }) => {
                let (sender, answer) = (self.sender.clone(), self.inbox.answer(message));
                self.answering.spawn(async move {
                    let message = answer.await;
                    let answer = Frame::Answer { id, message };
                    let channel = sender.channels.replica(from);
                    if let Err(error) = sender.publish(&channel, &answer.to_bytes()).await {
                        tracing::warn!(%from, %error, "failed to answer a replica");
                    }
                });
            }
            // A message to a group that was left a moment ago.
            None => {}
        }
    }

    /// Waits before the next attempt to connect. Meanwhile the replica joins no group.
    async fn wait(&mut self, failures: u32, commands: &mut mpsc::UnboundedReceiver<Command>) {
        let delay = RETRY_FIRST.saturating_mul(2_u32.saturating_pow(failures.min(10)));
        let until = tokio::time::Instant::now() + delay.min(RETRY_LAST);
        while let Ok(command) = tokio::time::timeout_at(until, commands.recv()).await {
            match command {
                Some(Command::Join(_, joined)) => {
                    let error = Unavailable::new("Redis", "the connection was lost");
                    let _ = joined.send(Err(error));
                }
                Some(Command::Leave(group)) => {
                    self.groups.remove(&self.sender.channels.group(&group));
                }
                None => return,
            }
        }
    }
}

async fn within_limit<T>(
    operation: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, Unavailable> {
    match tokio::time::timeout(LIMIT, operation).await {
        Ok(outcome) => outcome.map_err(unavailable),
        Err(_) => Err(Unavailable::timed_out("Redis", LIMIT)),
    }
}

/// A connection whose packets are lost is found out after this time and [`LIMIT`].
const PING_EVERY: Duration = Duration::from_secs(5);
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(2);
