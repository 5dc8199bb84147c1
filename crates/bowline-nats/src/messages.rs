//! [`NatsMessages`]: messages between replicas as requests, and as messages to a subject for each group.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::connection::State;
use async_nats::{Client, Request, Subscriber};
use bowline::cluster::{
    AskError, GroupId, MAX_MESSAGE_BYTES, ReplicaId, ReplicaInbox, ReplicaMessages, Unavailable,
    check_message_size,
};
use bowline::exchange::BoxFuture;
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::echoes::Echoes;
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
    echoes: Echoes,
    groups: Groups,
    started: OnceLock<Started>,
}

struct Started {
    inbox: Arc<dyn ReplicaInbox>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Started {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
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
            echoes: Echoes::new(client.clone(), subjects.echo(replica)),
            client,
            events,
            replica,
            subjects,
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
}

impl ReplicaMessages for NatsMessages {
    fn replica(&self) -> ReplicaId {
        self.replica
    }

    fn start(&self, inbox: Arc<dyn ReplicaInbox>) {
        self.started.get_or_init(|| {
            let task = Task {
                client: self.client.clone(),
                inbox: inbox.clone(),
                echoes: self.echoes.clone(),
                answering: JoinSet::new(),
            };
            let questions = self.subjects.replica(self.replica);
            let losses = self.events.losses();
            let reporting = report_losses(losses, self.echoes.clone(), inbox.clone());
            Started {
                inbox,
                tasks: [tokio::spawn(task.run(questions)), tokio::spawn(reporting)],
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
            self.echoes.synchronize().await
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
            let joined = self.echoes.synchronize().await;
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
    echoes: Echoes,
    /// Answers to other replicas. The inbox bounds them.
    answering: JoinSet<()>,
}

impl Task {
    async fn run(mut self, questions: String) {
        let subscribed = async {
            let questions = self.client.subscribe(questions).await?;
            let echoes = self.echoes.subscribe().await?;
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
                Some(echo) = echoes.next() => self.echoes.receive(&echo.payload),
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

/// Reports that messages may have been lost, for as long as the client exists.
async fn report_losses(
    mut losses: watch::Receiver<u64>,
    echoes: Echoes,
    inbox: Arc<dyn ReplicaInbox>,
) {
    while losses.changed().await.is_ok() {
        // The client is connected before the server has its subscriptions again; what is sent between the two is lost
        // too. If there is no echo, the connection has failed again, and what was lost until now is reported now.
        let _ = echoes.synchronize().await;
        inbox.missed();
    }
}
