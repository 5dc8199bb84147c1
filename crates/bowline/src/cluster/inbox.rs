//! [`Inbox`]: opens received messages, and passes them to services and groups.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use tokio::sync::Semaphore;

use super::envelope::{Envelope, GroupMessage, Status};
use super::groups::GroupTable;
use super::{GroupId, ReplicaId, ReplicaInbox};
use crate::exchange::BoxFuture;
use crate::sync::Mutex;

/// A message of [`Cluster::ask`](super::Cluster::ask).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Asked {
    /// The replica that sent it.
    pub from: ReplicaId,
    /// Its content.
    pub message: Bytes,
}

/// Receives the messages of a replica. It has no reference to the engine, which owns it.
pub(super) struct Inbox {
    envelope: Envelope,
    groups: Arc<GroupTable>,
    services: Arc<Services>,
    answering: Arc<Semaphore>,
}

#[derive(Default)]
struct Services(Mutex<BTreeMap<String, Arc<AnswerFn>>>);

type AnswerFn = dyn Fn(Asked) -> BoxFuture<'static, Bytes> + Send + Sync;

impl Inbox {
    pub(super) fn new(envelope: Envelope, groups: Arc<GroupTable>) -> Self {
        Self {
            envelope,
            groups,
            services: Arc::default(),
            answering: Arc::new(Semaphore::new(MAX_ANSWERING)),
        }
    }

    pub(super) fn serve(&self, service: &str, handler: Arc<AnswerFn>) -> ServiceGuard {
        let guard = ServiceGuard {
            service: service.to_owned(),
            handler: Arc::downgrade(&handler),
            services: Arc::downgrade(&self.services),
        };
        let replaced = self.services.0.lock().insert(service.to_owned(), handler);
        drop(replaced);
        guard
    }
}

impl ReplicaInbox for Inbox {
    fn answer(&self, message: Bytes) -> BoxFuture<'static, Bytes> {
        let refuse = |status: Status| -> BoxFuture<'static, Bytes> {
            Box::pin(std::future::ready(status.to_answer()))
        };
        let Ok(question) = self.envelope.open_question(&message) else {
            tracing::warn!("received a message of a replica with other keys");
            return refuse(Status::NotOpened);
        };
        let handler = self.services.0.lock().get(&question.service).cloned();
        let Some(handler) = handler else {
            return refuse(Status::UnknownService);
        };
        let Ok(permit) = self.answering.clone().try_acquire_owned() else {
            tracing::warn!("too many messages of other replicas; refused one");
            return refuse(Status::Busy);
        };
        let (envelope, message) = (self.envelope.clone(), question.body.clone());
        let asked = Asked {
            from: question.from,
            message,
        };
        Box::pin(async move {
            let _permit = permit;
            let answer = handler(asked).await;
            envelope.seal_answer(&question, &answer)
        })
    }

    fn deliver(&self, group: &GroupId, message: Bytes) {
        match self.envelope.open_to_group(group, &message) {
            Ok((from, GroupMessage::Body(body))) => self.groups.deliver(group, from, body),
            Ok((_, GroupMessage::Lost)) => self.groups.missed(group),
            Err(error) => {
                tracing::warn!(%group, %error, "received a message of a replica with other keys");
            }
        }
    }

    fn missed(&self) {
        tracing::warn!("messages of other replicas may have been lost");
        self.groups.missed_all();
    }
}

/// Ends the service of [`Cluster::serve`](super::Cluster::serve) when it is dropped.
#[must_use = "dropping it ends the service"]
pub struct ServiceGuard {
    service: String,
    handler: Weak<AnswerFn>,
    services: Weak<Services>,
}

impl Drop for ServiceGuard {
    fn drop(&mut self) {
        let Some(services) = self.services.upgrade() else {
            return;
        };
        let mut table = services.0.lock();
        // Another handler may have replaced this one.
        let is_own = table
            .get(&self.service)
            .is_some_and(|handler| Weak::ptr_eq(&Arc::downgrade(handler), &self.handler));
        let removed = is_own.then(|| table.remove(&self.service));
        drop(table);
        drop(removed);
    }
}

impl fmt::Debug for ServiceGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceGuard")
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

/// How many messages are answered at a time.
const MAX_ANSWERING: usize = 256;
