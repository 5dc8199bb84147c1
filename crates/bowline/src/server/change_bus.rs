//! The bus that carries change notifications from a [`Server`] to its subscriptions.

use std::sync::Arc;

use bowline_types::{Json, SubscriptionFilter};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::Server;
use crate::exchange::BoxFuture;

/// A change of a list or a resource. Serializable, so that a [`ChangeBus`] can send it to other replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ServerChange {
    /// The list of tools.
    Tools,
    /// The list of prompts.
    Prompts,
    /// The list of resources, or of their templates.
    Resources,
    /// The contents of the resource with this URI.
    Resource(String),
}

/// A publish/subscribe bus for change notifications.
///
/// Defaults to a [`LocalChangeBus`] of the server. Where several replicas serve the same clients, implement a bus that
/// forwards each change to the other replicas, and publishes what it receives from them to a [`LocalChangeBus`], to
/// which [`subscribe`](Self::subscribe) delegates. Publishing a change twice is harmless.
///
/// # Examples
///
/// ```
/// use bowline::server::{ServerChange, ChangeBus, ChangeReceiver, LocalChangeBus};
///
/// /// Forwards changes to the other replicas.
/// struct Replicated {
///     here: LocalChangeBus,
///     others: std::sync::mpsc::Sender<String>,
/// }
///
/// impl ChangeBus for Replicated {
///     fn publish(&self, change: ServerChange) {
///         let text = serde_json::to_string(&change).unwrap_or_default();
///         let _ = self.others.send(text);
///         self.here.publish(change);
///     }
///     fn subscribe(&self) -> ChangeReceiver {
///         self.here.subscribe()
///     }
/// }
/// ```
pub trait ChangeBus: Send + Sync + 'static {
    /// Publishes a change to every receiver of every replica. Must not block.
    fn publish(&self, change: ServerChange);

    /// Subscribes to all changes from now on.
    fn subscribe(&self) -> ChangeReceiver;

    /// Returns a future that ends once changes of other replicas are received, or `None` if they are. A subscription is
    /// acknowledged afterwards, so that its client misses none. The future must end within seconds, also while the other
    /// replicas cannot be reached; the bus then reports [`ChangeEvent::Lagged`] when they can. Defaults to `None`.
    fn joining(&self) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

/// A bus within one process. Clones share it.
///
/// # Examples
///
/// Two servers that share their change notifications:
///
/// ```
/// use bowline::Server;
/// use bowline::server::LocalChangeBus;
///
/// let bus = LocalChangeBus::default();
/// let public = Server::new("public", "1.0.0").change_bus(bus.clone());
/// let admin = Server::new("admin", "1.0.0").change_bus(bus);
/// ```
#[derive(Clone, Debug)]
pub struct LocalChangeBus(broadcast::Sender<Option<Arc<QueuedChange>>>);

/// A subscription to a [`ChangeBus`], returned by [`ChangeBus::subscribe`].
#[derive(Debug)]
pub struct ChangeReceiver(broadcast::Receiver<Option<Arc<QueuedChange>>>);

/// A change in the queue of the bus. The URI is encoded once here, and not by each of possibly thousands of receivers.
#[derive(Debug)]
pub(super) struct QueuedChange {
    pub(super) change: ServerChange,
    /// The encoded URI of [`ServerChange::Resource`].
    pub(super) uri: Option<Json>,
}

/// An item of [`ChangeReceiver`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a receiver that ignores a variant misses changes"
)]
pub enum ChangeEvent {
    /// One change.
    Change(ServerChange),
    /// The receiver lagged and changes were lost: treat every list and resource as changed.
    Lagged,
}

impl ServerChange {
    pub(super) fn is_wanted(&self, filter: &SubscriptionFilter) -> bool {
        match self {
            Self::Tools => filter.tools_list_changed == Some(true),
            Self::Prompts => filter.prompts_list_changed == Some(true),
            Self::Resources => filter.resources_list_changed == Some(true),
            Self::Resource(uri) => filter
                .resource_subscriptions
                .as_ref()
                .is_some_and(|uris| uris.contains(uri)),
        }
    }
}

impl QueuedChange {
    pub(super) fn new(change: ServerChange) -> Self {
        let uri = match &change {
            ServerChange::Resource(uri) => Json::encode(uri).ok(),
            _ => None,
        };
        Self { change, uri }
    }
}

impl ChangeBus for LocalChangeBus {
    fn publish(&self, change: ServerChange) {
        if self.0.receiver_count() == 0 {
            return;
        }
        let _ = self.0.send(Some(Arc::new(QueuedChange::new(change))));
    }

    fn subscribe(&self) -> ChangeReceiver {
        ChangeReceiver(self.0.subscribe())
    }
}

impl LocalChangeBus {
    /// Publishes [`ChangeEvent::Lagged`]: changes were lost, and every list and resource may have changed. For a bus that
    /// receives changes of other replicas, when its connection was broken.
    pub fn publish_lagged(&self) {
        // Fails if there is no receiver.
        let _ = self.0.send(None);
    }
}

impl Default for LocalChangeBus {
    fn default() -> Self {
        Self(broadcast::Sender::new(BUS_CAPACITY))
    }
}

impl ChangeReceiver {
    /// Waits for the next change. Returns `None` once the bus is dropped.
    ///
    /// # Cancel safety
    ///
    /// Safe: a change is removed from the queue only when it is returned.
    pub async fn next(&mut self) -> Option<ChangeEvent> {
        let received = self.next_queued().await?;
        Some(received.map_or(ChangeEvent::Lagged, |queued| {
            ChangeEvent::Change(queued.change.clone())
        }))
    }

    /// As [`next`](Self::next), without cloning the change; `Some(None)` if changes were lost.
    pub(super) async fn next_queued(&mut self) -> Option<Option<Arc<QueuedChange>>> {
        match self.0.recv().await {
            Ok(queued) => Some(queued),
            Err(RecvError::Lagged(_)) => Some(None),
            Err(RecvError::Closed) => None,
        }
    }
}

/// Sends change notifications to subscribers: `server.changed().tools()`.
///
/// # Examples
///
/// ```
/// let server = bowline::Server::new("notes", "1.0.0").resource_subscriptions();
/// server.changed().resource_updated("file:///notes.txt");
/// ```
pub struct ChangeNotifier<'a>(pub(super) &'a Server);

impl ChangeNotifier<'_> {
    /// Sends `notifications/tools/list_changed`.
    pub fn tools(&self) {
        self.publish(ServerChange::Tools);
    }

    /// Sends `notifications/prompts/list_changed`.
    pub fn prompts(&self) {
        self.publish(ServerChange::Prompts);
    }

    /// Sends `notifications/resources/list_changed`, for resources and resource templates.
    pub fn resources(&self) {
        self.publish(ServerChange::Resources);
    }

    /// Sends `notifications/resources/updated` for the resource with this URI.
    pub fn resource_updated(&self, uri: impl Into<String>) {
        self.publish(ServerChange::Resource(uri.into()));
    }

    fn publish(&self, change: ServerChange) {
        self.0.definition().bus.publish(change);
    }
}

impl std::fmt::Debug for ChangeNotifier<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeNotifier").finish_non_exhaustive()
    }
}

/// The capacity of the queue; a receiver that is further behind loses changes.
const BUS_CAPACITY: usize = 256;
