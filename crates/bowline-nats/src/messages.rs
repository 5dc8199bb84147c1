//! [`NatsMessages`]: messages between replicas as requests, and as messages to a subject for each group.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::connection::State;
use async_nats::{Client, Request, Subscriber};
use bowline::cluster::{
    AskError, GroupId, MAX_MESSAGE_BYTES, PendingAsks, ReplicaId, ReplicaInbox, ReplicaMessages,
    Unavailable, check_message_size,
};
use bowline::exchange::BoxFuture;
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::task::{JoinHandle, JoinSet};

use crate::LIMIT;
use crate::error::unavailable;
use crate::events::Events;
use crate::groups::Groups;
use crate::subjects::Subjects;

/// Messages over NATS. The client connects and subscribes again by itself.
pub(crate) struct NatsMessages {
    client: Client,
    events: Arc<Events>,
    replica: ReplicaId,
    subjects: Subjects,
    echoes: PendingAsks,
    groups: Groups,
    started: OnceLock<Started>,
}

struct Started {
    inbox: Arc<dyn ReplicaInbox>,
    task: JoinHandle<()>,
}

impl Drop for Started {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl NatsMessages {
    pub(crate) fn new(
        client: Client,
        events: Arc<Events>,
        replica: ReplicaId,
        subjects: Subjects,
    ) -> Self {
        Self {
            client,
            events,
            replica,
            subjects,
            echoes: PendingAsks::default(),
            groups: Groups::default(),
            started: OnceLock::new(),
        }
    }

    /// Fails at once while the connection is lost: the client would keep messages until it is back.
    fn check_connected(&self) -> Result<(), Unavailable> {
        match self.client.connection_state() {
            State::Connected => Ok(()),
            State::Pending | State::Disconnected => {
                Err(Unavailable::new("NATS", "the connection was lost"))
            }
        }
    }

    /// Waits until the server has processed everything that was sent before: it returns a message to its sender after
    /// those.
    async fn synchronize(&self) -> Result<(), Unavailable> {
        let echo = self.echoes.add();
        let id = Bytes::copy_from_slice(&echo.id().to_be_bytes());
        let sent = self.client.publish(self.subjects.echo(self.replica), id);
        sent.await.map_err(unavailable)?;
        let received = echo.wait(LIMIT).await;
        received
            .map(drop)
            .map_err(|_| Unavailable::timed_out("NATS", LIMIT))
    }
}

impl ReplicaMessages for NatsMessages {
    fn replica(&self) -> ReplicaId {
        self.replica
    }

    fn start(&self, inbox: Arc<dyn ReplicaInbox>) {
        self.events.set_inbox(inbox.clone());
        self.started.get_or_init(|| {
            let task = Task {
                client: self.client.clone(),
                inbox: inbox.clone(),
                echoes: self.echoes.clone(),
                answering: JoinSet::new(),
            };
            let questions = self.subjects.replica(self.replica);
            let echoes = self.subjects.echo(self.replica);
            Started {
                inbox,
                task: tokio::spawn(task.run(questions, echoes)),
            }
        });
    }

    fn ask(
        &self,
        to: ReplicaId,
        message: Bytes,
        within: Duration,
    ) -> BoxFuture<'_, Result<Bytes, AskError>> {
        Box::pin(async move {
            check_message_size(&message)?;
            self.check_connected()?;
            let bytes = message.len();
            let request = Request::new().payload(message).timeout(Some(within));
            let answer = self.client.send_request(self.subjects.replica(to), request);
            let answer = answer.await.map_err(|error| match error.kind() {
                RequestErrorKind::NoResponders => AskError::ReplicaGone,
                RequestErrorKind::TimedOut => match self.check_connected() {
                    Ok(()) => AskError::TimedOut,
                    Err(lost) => lost.into(),
                },
                RequestErrorKind::MaxPayloadExceeded => AskError::TooLarge {
                    bytes,
                    limit: self.client.max_payload().min(MAX_MESSAGE_BYTES),
                },
                _ => unavailable(error).into(),
            })?;
            Ok(answer.payload)
        })
    }

    fn tell<'a>(
        &'a self,
        group: &'a GroupId,
        message: Bytes,
    ) -> BoxFuture<'a, Result<(), Unavailable>> {
        Box::pin(async move {
            self.check_connected()?;
            let sent = self.client.publish(self.subjects.group(group), message);
            sent.await.map_err(unavailable)?;
            self.synchronize().await
        })
    }

    fn join<'a>(&'a self, group: &'a GroupId) -> BoxFuture<'a, Result<(), Unavailable>> {
        Box::pin(async move {
            self.check_connected()?;
            let started = self.started.get();
            let started =
                started.ok_or_else(|| Unavailable::new("NATS", "the replica has not started"))?;
            if !self.groups.contains(group) {
                let subscribed = self.client.subscribe(self.subjects.group(group)).await;
                let messages = subscribed.map_err(unavailable)?;
                self.groups.add(group, messages, started.inbox.clone());
            }
            let joined = self.synchronize().await;
            if joined.is_err() {
                self.groups.remove(group);
            }
            joined
        })
    }

    fn leave(&self, group: &GroupId) {
        self.groups.remove(group);
    }
}

/// Receives questions and echoes.
struct Task {
    client: Client,
    inbox: Arc<dyn ReplicaInbox>,
    echoes: PendingAsks,
    /// Answers to other replicas. The inbox bounds them.
    answering: JoinSet<()>,
}

impl Task {
    async fn run(mut self, questions: String, echoes: String) {
        let subscribed = async {
            let echoes = self.client.subscribe(echoes).await?;
            let questions = self.client.subscribe(questions).await?;
            Ok::<_, async_nats::SubscribeError>((questions, echoes))
        };
        match subscribed.await {
            Ok((questions, echoes)) => self.receive(questions, echoes).await,
            // Only for an invalid subject, or if the client was closed.
            Err(error) => tracing::error!(%error, "failed to subscribe to messages of replicas"),
        }
    }

    async fn receive(&mut self, mut questions: Subscriber, mut echoes: Subscriber) {
        loop {
            // Echoes come first: others wait for them, and they cost nothing.
            tokio::select! {
                biased;
                Some(echo) = echoes.next() => {
                    if let Some(id) = echo.payload.first_chunk() {
                        self.echoes.answer(u64::from_be_bytes(*id), Bytes::new());
                    }
                }
                Some(question) = questions.next() => self.answer(question),
                Some(_) = self.answering.join_next() => {}
                else => return,
            }
        }
    }

    fn answer(&mut self, question: async_nats::Message) {
        let Some(reply) = question.reply else {
            return;
        };
        let (client, answer) = (self.client.clone(), self.inbox.answer(question.payload));
        self.answering.spawn(async move {
            if let Err(error) = client.publish(reply, answer.await).await {
                tracing::warn!(%error, "failed to answer a replica");
            }
        });
    }
}
