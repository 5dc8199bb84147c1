//! What can change at a server, and which changes a client wants to hear about.

use bowline_core::Notification;
use bowline_types::{
    Notice, PromptListChangedNotification, ResourceListChangedNotification,
    ResourceUpdatedNotification, ResourceUpdatedNotificationParams, SubscriptionFilter,
    ToolListChangedNotification,
};

/// Something that changed at the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// The list of tools.
    Tools,
    /// The list of prompts.
    Prompts,
    /// The list of resources.
    Resources,
    /// What one resource holds.
    Resource(String),
    /// Nobody listened for a while, and anything may have changed: look at everything again.
    Missed,
    /// Something that an extension tells of.
    Other(Notification),
}

impl From<Notification> for Change {
    fn from(notification: Notification) -> Self {
        match &*notification.method {
            ToolListChangedNotification::NAME => Self::Tools,
            PromptListChangedNotification::NAME => Self::Prompts,
            ResourceListChangedNotification::NAME => Self::Resources,
            ResourceUpdatedNotification::NAME => {
                let params = notification.params.as_ref();
                let params: Option<ResourceUpdatedNotificationParams> =
                    params.and_then(|params| params.decode().ok());
                match params {
                    Some(params) => Self::Resource(params.uri),
                    None => Self::Other(notification),
                }
            }
            _ => Self::Other(notification),
        }
    }
}

/// Which changes a client wants to hear about.
///
/// # Examples
///
/// ```
/// use bowline::client::Changes;
///
/// let wanted = Changes::new().tools().resource("file:///notes.txt");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "it is a wish until it is given to `Client::subscribe` or `Client::watch`"]
pub struct Changes(SubscriptionFilter);

impl Changes {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Those of all three lists.
    pub fn lists() -> Self {
        Self::new().tools().prompts().resources()
    }

    /// Those of the list of tools.
    pub fn tools(mut self) -> Self {
        self.0.tools_list_changed = Some(true);
        self
    }

    /// Those of the list of prompts.
    pub fn prompts(mut self) -> Self {
        self.0.prompts_list_changed = Some(true);
        self
    }

    /// Those of the list of resources.
    pub fn resources(mut self) -> Self {
        self.0.resources_list_changed = Some(true);
        self
    }

    /// Those of what the resource at `uri` holds.
    pub fn resource(mut self, uri: impl Into<String>) -> Self {
        let uris = self.0.resource_subscriptions.get_or_insert_default();
        uris.push(uri.into());
        self
    }
}

impl From<Changes> for SubscriptionFilter {
    fn from(changes: Changes) -> Self {
        changes.0
    }
}
