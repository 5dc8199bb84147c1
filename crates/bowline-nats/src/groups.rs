//! [`Groups`]: the subscriptions of a replica to its groups.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::Subscriber;
use bowline::cluster::{GroupId, ReplicaInbox};
use futures_util::StreamExt as _;
use tokio::task::JoinHandle;

/// A task for each group, which passes its messages on.
#[derive(Default)]
pub(crate) struct Groups(Mutex<BTreeMap<GroupId, Delivery>>);

/// Ends the task and with it the subscription when it is dropped.
pub(crate) struct Delivery(JoinHandle<()>);

impl Drop for Delivery {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Groups {
    pub(crate) fn contains(&self, group: &GroupId) -> bool {
        self.lock().contains_key(group)
    }

    pub(crate) fn add(&self, group: &GroupId, messages: Subscriber, inbox: Arc<dyn ReplicaInbox>) {
        let delivery = deliver(group.clone(), messages, inbox);
        let replaced = self.lock().insert(group.clone(), delivery);
        drop(replaced);
    }

    pub(crate) fn remove(&self, group: &GroupId) {
        let removed = self.lock().remove(group);
        drop(removed);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<GroupId, Delivery>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn deliver(group: GroupId, mut messages: Subscriber, inbox: Arc<dyn ReplicaInbox>) -> Delivery {
    Delivery(tokio::spawn(async move {
        while let Some(message) = messages.next().await {
            inbox.deliver(&group, message.payload);
        }
    }))
}
