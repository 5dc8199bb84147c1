//! Announcements that something changed, and those who listen.

use bowline_types::SubscriptionFilter;
use tokio::sync::broadcast;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Tools,
    Prompts,
    Resources,
    Resource(String),
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

/// Carries changes to whoever listens.
#[derive(Clone, Debug)]
pub(super) struct Bus(broadcast::Sender<Change>);

impl Default for Bus {
    fn default() -> Self {
        Self(broadcast::Sender::new(MOST_WAITING))
    }
}

impl Bus {
    pub(super) fn listen(&self) -> broadcast::Receiver<Change> {
        self.0.subscribe()
    }

    fn announce(&self, change: Change) {
        // Fails only if nobody listens, which is fine.
        let _ = self.0.send(change);
    }
}

/// Announces changes: `server.changed().tools()`.
#[derive(Debug)]
pub struct Changed<'a> {
    bus: &'a Bus,
}

impl<'a> Changed<'a> {
    pub(super) fn new(bus: &'a Bus) -> Self {
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

    /// The list of resources changed.
    pub fn resources(&self) {
        self.bus.announce(Change::Resources);
    }

    /// What the resource holds changed.
    pub fn resource_updated(&self, uri: impl Into<String>) {
        self.bus.announce(Change::Resource(uri.into()));
    }
}

const MOST_WAITING: usize = 256;
