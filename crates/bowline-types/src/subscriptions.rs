//! Hearing about changes: `subscriptions/listen` (from 2026-07-28).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Meta, RequestId, ResultType};

/// Which changes a client wants to hear about.
///
/// The set is open: extensions add kinds of changes, which are kept in `other`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SubscriptionFilter {
    /// Of the list of tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_list_changed: Option<bool>,
    /// Of the list of prompts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompts_list_changed: Option<bool>,
    /// Of the list of resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources_list_changed: Option<bool>,
    /// Of the resources at these URIs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_subscriptions: Option<Vec<String>>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// The params of `subscriptions/listen`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SubscriptionsListenRequestParams {
    /// Which changes the client wants to hear about.
    pub notifications: SubscriptionFilter,
    /// What accompanies the request.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl SubscriptionsListenRequestParams {
    /// A wish to hear about these changes.
    #[must_use]
    pub fn new(notifications: SubscriptionFilter) -> Self {
        Self {
            notifications,
            meta: None,
        }
    }
}

/// The result of `subscriptions/listen`, which ends the subscription in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SubscriptionsListenResult {
    /// How to read the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_type: Option<ResultType>,
    /// What accompanies the result: always the id of the subscription.
    #[serde(rename = "_meta")]
    pub meta: Meta,
}

impl SubscriptionsListenResult {
    /// The end of the subscription that the request with this id started.
    #[must_use]
    pub fn new(subscription: &RequestId) -> Self {
        let mut meta = Meta::default();
        meta.set_subscription_id(subscription);
        Self {
            result_type: None,
            meta,
        }
    }
}

/// The params of `notifications/subscriptions/acknowledged`: the changes that the server will tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SubscriptionsAcknowledgedNotificationParams {
    /// Which of the changes the server will tell.
    pub notifications: SubscriptionFilter,
    /// What accompanies the notification.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

impl SubscriptionsAcknowledgedNotificationParams {
    /// A promise to tell these changes.
    #[must_use]
    pub fn new(notifications: SubscriptionFilter) -> Self {
        Self {
            notifications,
            meta: None,
        }
    }
}
