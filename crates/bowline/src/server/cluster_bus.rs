//! [`ClusterBus`]: change notifications between the replicas of a server, as messages to a group.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;

use super::change_bus::{ChangeBus, ChangeReceiver, LocalChangeBus, ServerChange};
use crate::backoff::Backoff;
use crate::cluster::{Cluster, GroupEvent, GroupId, GroupReceiver};
use crate::exchange::BoxFuture;

/// A bus over a [`Cluster`]. Changes of this replica are published here at once, whatever the state of the engine.
pub(super) struct ClusterBus {
    cluster: Cluster,
    group: GroupId,
    here: LocalChangeBus,
    /// The task that publishes the changes of other replicas here, from the first subscription on.
    receiving: OnceLock<AbortOnDrop>,
    /// True once the changes of other replicas are received.
    joined: watch::Sender<bool>,
    /// Whether a subscription was acknowledged although they are not: the next ones do not wait either.
    has_given_up: Arc<AtomicBool>,
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ClusterBus {
    /// Creates a bus for the replicas of the server `name`.
    pub(super) fn new(cluster: Cluster, name: &str) -> Self {
        Self {
            cluster,
            group: GroupId::new("changes", name),
            here: LocalChangeBus::default(),
            receiving: OnceLock::new(),
            joined: watch::Sender::new(false),
            has_given_up: Arc::default(),
        }
    }

    /// Starts to receive the changes of other replicas, unless there is no tokio runtime.
    fn start(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        self.receiving.get_or_init(|| {
            let (cluster, group) = (self.cluster.clone(), self.group.clone());
            let receiving = receive(cluster, group, self.here.clone(), self.joined.clone());
            AbortOnDrop(runtime.spawn(receiving))
        });
    }
}

impl ChangeBus for ClusterBus {
    fn publish(&self, change: ServerChange) {
        match serde_json::to_vec(&change) {
            Ok(text) => self.cluster.tell(&self.group, text.into()),
            Err(error) => tracing::error!(%error, "failed to serialize a change"),
        }
        self.here.publish(change);
    }

    fn subscribe(&self) -> ChangeReceiver {
        let receiver = self.here.subscribe();
        self.start();
        receiver
    }

    fn joining(&self) -> Option<BoxFuture<'static, ()>> {
        self.start();
        if *self.joined.borrow() || self.has_given_up.load(Ordering::Relaxed) {
            return None;
        }
        let (mut joined, has_given_up) = (self.joined.subscribe(), self.has_given_up.clone());
        Some(Box::pin(async move {
            let waiting = joined.wait_for(|joined| *joined);
            if tokio::time::timeout(JOIN_LIMIT, waiting).await.is_err() {
                has_given_up.store(true, Ordering::Relaxed);
                tracing::warn!("serving subscriptions without changes of other replicas");
            }
        }))
    }
}

/// Publishes the changes of other replicas here, until the cluster ends.
async fn receive(
    cluster: Cluster,
    group: GroupId,
    here: LocalChangeBus,
    joined: watch::Sender<bool>,
) {
    let mut received = join(&cluster, &group).await;
    // Subscriptions that did not wait for this may have missed changes of other replicas.
    here.publish_lagged();
    joined.send_replace(true);
    let replica = cluster.replica();
    // A clone in this task would keep the cluster alive.
    drop(cluster);
    while let Some(event) = received.next().await {
        match event {
            // Published here when it was sent.
            GroupEvent::Message { from, .. } if from == replica => {}
            GroupEvent::Message { body, .. } => match serde_json::from_slice(&body) {
                Ok(change) => here.publish(change),
                Err(error) => {
                    // A kind of change that a later version has.
                    tracing::warn!(%error, "failed to read a change of another replica");
                    here.publish_lagged();
                }
            },
            GroupEvent::Missed => here.publish_lagged(),
        }
    }
}

/// Joins a group, again and again while the engine is away.
async fn join(cluster: &Cluster, group: &GroupId) -> GroupReceiver {
    let mut attempt = 0_u32;
    loop {
        if let Ok(received) = cluster.join(group).await {
            return received;
        }
        attempt = attempt.saturating_add(1);
        tokio::time::sleep(RETRY.delay(attempt)).await;
    }
}

const RETRY: Backoff = Backoff {
    min: Duration::from_millis(100),
    max: Duration::from_secs(5),
};
/// How long the first subscriptions wait for the engine.
const JOIN_LIMIT: Duration = Duration::from_secs(5);
