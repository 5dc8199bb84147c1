//! Announcements that something changed, and those who listen.

use std::sync::Arc;

use bowline_types::{Json, SubscriptionFilter};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// One change. It can be encoded, so that a [`Bus`] may carry it to other replicas of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Change {
    /// The list of tools.
    Tools,
    /// The list of prompts.
    Prompts,
    /// The list of resources, or of their templates.
    Resources,
    /// What the resource at a URI holds.
    Resource(String),
}

/// Carries announcements to those who listen.
///
/// The default is a [`LocalBus`] of the server's own. Where several replicas serve the same clients, give
/// them one that reaches all: it sends what is announced to the others, and what comes from them to a
/// [`LocalBus`] that it keeps for [`listen`](Self::listen). A change that is announced twice does no harm.
///
/// # Examples
///
/// ```
/// use bowline::server::{Bus, Change, Changes, LocalBus};
///
/// /// Tells the other replicas as well.
/// struct Replicated {
///     here: LocalBus,
///     others: std::sync::mpsc::Sender<String>,
/// }
///
/// impl Bus for Replicated {
///     fn announce(&self, change: Change) {
///         let text = serde_json::to_string(&change).unwrap_or_default();
///         let _ = self.others.send(text);
///         self.here.announce(change);
///     }
///     fn listen(&self) -> Changes {
///         self.here.listen()
///     }
/// }
/// ```
pub trait Bus: Send + Sync + 'static {
    /// Tells every listener, here and elsewhere. Must not block.
    fn announce(&self, change: Change);

    /// Listens from now on.
    fn listen(&self) -> Changes;
}

/// A bus within one process. Clones are the same bus.
///
/// # Examples
///
/// Two servers that announce for each other:
///
/// ```
/// use bowline::Server;
/// use bowline::server::LocalBus;
///
/// let bus = LocalBus::default();
/// let public = Server::new("public", "1.0.0").bus(bus.clone());
/// let admin = Server::new("admin", "1.0.0").bus(bus);
/// ```
#[derive(Clone, Debug)]
pub struct LocalBus(broadcast::Sender<Arc<Announced>>);

/// The changes that one listener hears of.
#[derive(Debug)]
pub struct Changes(broadcast::Receiver<Arc<Announced>>);

/// A change as it waits for all listeners. There may be thousands, so that what they would all encode is encoded once.
#[derive(Debug)]
pub(super) struct Announced {
    pub(super) change: Change,
    /// The URI of the resource that changed, if it is one.
    pub(super) uri: Option<Json>,
}

/// What a listener hears.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a listener that forgets one kind misses changes"
)]
pub enum Heard {
    /// One change.
    Change(Change),
    /// More changes than could be kept: everything may have changed.
    TooMany,
}

impl Change {
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

impl Announced {
    pub(super) fn new(change: Change) -> Self {
        let uri = match &change {
            Change::Resource(uri) => Json::encode(uri).ok(),
            _ => None,
        };
        Self { change, uri }
    }
}

impl Bus for LocalBus {
    fn announce(&self, change: Change) {
        if self.0.receiver_count() == 0 {
            return;
        }
        let _ = self.0.send(Arc::new(Announced::new(change)));
    }

    fn listen(&self) -> Changes {
        Changes(self.0.subscribe())
    }
}

impl Default for LocalBus {
    fn default() -> Self {
        Self(broadcast::Sender::new(MOST_WAITING))
    }
}

impl Changes {
    /// The next change; `None` once nobody can announce any more.
    ///
    /// # Cancel safety
    ///
    /// Safe: a change is taken only when it is returned.
    pub async fn next(&mut self) -> Option<Heard> {
        let heard = self.next_announced().await?;
        Some(heard.map_or(Heard::TooMany, |announced| {
            Heard::Change(announced.change.clone())
        }))
    }

    /// As [`next`](Self::next), without a copy; `Some(None)` if there were more changes than could be kept.
    pub(super) async fn next_announced(&mut self) -> Option<Option<Arc<Announced>>> {
        match self.0.recv().await {
            Ok(announced) => Some(Some(announced)),
            Err(RecvError::Lagged(_)) => Some(None),
            Err(RecvError::Closed) => None,
        }
    }
}

/// Announces changes: `server.changed().tools()`.
///
/// # Examples
///
/// ```
/// let server = bowline::Server::new("notes", "1.0.0").resource_updates();
/// server.changed().resource_updated("file:///notes.txt");
/// ```
pub struct Changed<'a> {
    bus: &'a Arc<dyn Bus>,
}

impl<'a> Changed<'a> {
    pub(super) fn new(bus: &'a Arc<dyn Bus>) -> Self {
        Self { bus }
    }

    /// The list of tools changed.
    pub fn tools(&self) {
        self.bus.announce(Change::Tools);
    }

    /// The list of prompts changed.
    pub fn prompts(&self) {
        self.bus.announce(Change::Prompts);
    }

    /// The list of resources, or of their templates, changed.
    pub fn resources(&self) {
        self.bus.announce(Change::Resources);
    }

    /// What the resource holds changed.
    pub fn resource_updated(&self, uri: impl Into<String>) {
        self.bus.announce(Change::Resource(uri.into()));
    }
}

impl std::fmt::Debug for Changed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changed").finish_non_exhaustive()
    }
}

const MOST_WAITING: usize = 256;
