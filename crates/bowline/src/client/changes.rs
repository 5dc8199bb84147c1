//! [`Change`], a change notification of a server, and [`ChangeFilter`], the filter of a subscription.

use bowline_core::Notification;
use bowline_types::{
    NotificationMethod, PromptListChangedNotification, ResourceListChangedNotification,
    ResourceUpdatedNotification, ResourceUpdatedNotificationParams, SubscriptionFilter,
    ToolListChangedNotification,
};
use serde_json::Value;

/// A change at the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// The list of tools changed (`notifications/tools/list_changed`).
    Tools,
    /// The list of prompts changed (`notifications/prompts/list_changed`).
    Prompts,
    /// The list of resources changed (`notifications/resources/list_changed`).
    Resources,
    /// The resource at this URI was updated (`notifications/resources/updated`).
    Resource(String),
    /// Notifications may have been lost: fetch everything again.
    Missed,
    /// Any other notification, such as an extension's.
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

/// The changes to subscribe to; a builder for [`SubscriptionFilter`].
///
/// # Examples
///
/// ```
/// use bowline::client::ChangeFilter;
///
/// let wanted = ChangeFilter::new().tools().resource("file:///notes.txt");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "a filter does nothing until it is passed to `Client::subscribe` or `Client::watch`"]
pub struct ChangeFilter(SubscriptionFilter);

impl ChangeFilter {
    /// Creates an empty filter.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a filter for changes of the lists of tools, prompts and resources.
    pub fn lists() -> Self {
        Self::new().tools().prompts().resources()
    }

    /// Adds changes of the list of tools.
    pub fn tools(mut self) -> Self {
        self.0.tools_list_changed = Some(true);
        self
    }

    /// Adds changes of the list of prompts.
    pub fn prompts(mut self) -> Self {
        self.0.prompts_list_changed = Some(true);
        self
    }

    /// Adds changes of the list of resources.
    pub fn resources(mut self) -> Self {
        self.0.resources_list_changed = Some(true);
        self
    }

    /// Adds updates of the resource at `uri`.
    pub fn resource(mut self, uri: impl Into<String>) -> Self {
        let uris = self.0.resource_subscriptions.get_or_insert_default();
        uris.push(uri.into());
        self
    }

    /// Sets a member that an extension defines. What the server accepts of it is in
    /// [`Subscription::acknowledged_filter`](super::Subscription::acknowledged_filter), in `other`, and its notifications
    /// are received as [`Change::Other`]. Servers of versions before 2026-07-28 do not get it.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::client::ChangeFilter;
    ///
    /// let wanted = ChangeFilter::new().member("ticketIds", serde_json::json!(["A7"]));
    /// ```
    pub fn member(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.other.insert(name.into(), value.into());
        self
    }
}

impl From<ChangeFilter> for SubscriptionFilter {
    fn from(changes: ChangeFilter) -> Self {
        changes.0
    }
}
