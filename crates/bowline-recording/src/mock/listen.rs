//! Answers `subscriptions/listen`: sends the recorded changes after the acknowledgement.

use std::time::Duration;

use bowline::Context;
use bowline::exchange::{Notification, Outcome, Request};
use bowline_core::json::Object;
use bowline_core::restrict_filter;
use bowline_types::{
    Json, Meta, RpcError, SubscriptionFilter, SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams, SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
};
use serde_json::Value;

use super::MockInner;
use super::play::sleep;
use crate::conversation::{Change, ChangeGroup, RequestKey};

impl MockInner {
    /// Acknowledges a subscription, sends the recorded changes, and waits until the client or the server ends it.
    pub(super) async fn listen(&self, request: &Request, cx: &Context) -> Outcome {
        let key = RequestKey::new(&request.method, &request.params);
        if self.index.contains_key(&key) {
            // The recorded server refused it.
            return self.call(request.clone(), cx).await;
        }
        let nth = self.count_use(&key, cx);
        if let Some(error) = self.faults.failure(key.method(), key.params(), nth) {
            return Err(error);
        }
        let params: SubscriptionsListenRequestParams =
            request.params.decode().map_err(|error| {
                RpcError::invalid_params(format!("invalid subscription filter: {error}"))
            })?;
        let filter = params.notifications;
        let groups = &self.conversation.changes;
        let changes = selected_changes(groups, &filter, nth);
        let mut accepted = restrict_filter(filter, &self.introduction.capabilities);
        accepted.other.retain(|name, _| name == TASK_IDS);
        let mut meta = Meta::default();
        meta.set_subscription_id(cx.request_id());
        let mut acknowledged = SubscriptionsAcknowledgedNotificationParams::new(accepted);
        acknowledged.meta = Some(meta.clone());
        cx.notify::<SubscriptionsAcknowledgedNotification>(&acknowledged);
        let meta = Json::encode(&meta).unwrap_or_else(|_| Json::empty_object());
        let mut last = Duration::ZERO;
        for change in changes {
            sleep(self.faults.delay(change.after.saturating_sub(last))).await;
            last = change.after;
            if let Ok(mut params) = Object::read(&change.params) {
                params.set("_meta", meta.clone());
                let params = params.to_json();
                cx.send(Notification::new(change.method.clone(), Some(params)));
            }
        }
        cx.shutting_down().await;
        let result = SubscriptionsListenResult::new(cx.request_id());
        Json::encode(&result).map_err(|error| RpcError::internal(error.to_string()))
    }
}

/// Returns the changes for a filter: those of the recorded subscription with the same filter, the `nth` one if there were
/// several, or else those of all subscriptions.
fn selected_changes<'a>(
    groups: &'a [ChangeGroup],
    filter: &SubscriptionFilter,
    nth: usize,
) -> Vec<&'a Change> {
    let same = |group: &&ChangeGroup| group.filter.as_ref() == Some(filter);
    let same: Vec<&ChangeGroup> = groups.iter().filter(same).collect();
    if let Some(group) = same.get(nth).or(same.last()) {
        return group.changes.iter().collect();
    }
    let mut selected = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        for change in group.changes.iter().filter(|it| is_wanted(it, filter)) {
            // Two subscriptions that were open at the same time were told of the same changes.
            if at == fullest(groups, change) {
                selected.push(change);
            }
        }
    }
    selected.sort_by_key(|change| change.after);
    selected
}

/// Returns the group with the most changes of the same thing.
fn fullest(groups: &[ChangeGroup], change: &Change) -> usize {
    let count = |group: &ChangeGroup| {
        let same = |it: &&Change| it.method == change.method && it.uri == change.uri;
        group.changes.iter().filter(same).count()
    };
    let counts = groups.iter().map(count).enumerate();
    // The first of several: `max_by_key` returns the last.
    let fullest = counts.rev().max_by_key(|&(_, count)| count);
    fullest.map_or(0, |(at, _)| at)
}

fn is_wanted(change: &Change, filter: &SubscriptionFilter) -> bool {
    match &*change.method {
        "notifications/tools/list_changed" => filter.tools_list_changed == Some(true),
        "notifications/prompts/list_changed" => filter.prompts_list_changed == Some(true),
        "notifications/resources/list_changed" => filter.resources_list_changed == Some(true),
        "notifications/resources/updated" => {
            let uris = filter.resource_subscriptions.as_deref();
            let uri = change.uri.as_ref();
            uris.is_some_and(|uris| uri.is_some_and(|uri| uris.contains(uri)))
        }
        _ => {
            let params: Value = change.params.decode().unwrap_or_default();
            let tasks = filter.other.get(TASK_IDS).and_then(Value::as_array);
            tasks.is_some_and(|tasks| tasks.contains(&params["taskId"]))
        }
    }
}

const TASK_IDS: &str = "taskIds";

#[cfg(test)]
mod tests {
    use super::*;

    fn change(after: u64, method: &'static str, uri: Option<&str>) -> Change {
        Change {
            after: Duration::from_secs(after),
            method: method.into(),
            uri: uri.map(str::to_owned),
            params: Json::empty_object(),
        }
    }

    fn resources(uris: &[&str]) -> SubscriptionFilter {
        let mut filter = SubscriptionFilter::default();
        filter.resource_subscriptions = Some(uris.iter().map(|&uri| uri.to_owned()).collect());
        filter
    }

    const UPDATED: &str = "notifications/resources/updated";
    const TOOLS: &str = "notifications/tools/list_changed";

    #[test]
    fn a_filter_of_its_own_selects_wanted_changes_of_all_subscriptions_once() {
        let groups = [
            ChangeGroup {
                filter: Some(resources(&["a", "b"])),
                changes: vec![change(1, UPDATED, Some("a")), change(4, UPDATED, Some("b"))],
            },
            ChangeGroup {
                filter: None,
                changes: vec![
                    change(2, UPDATED, Some("a")),
                    change(3, UPDATED, Some("a")),
                    change(5, TOOLS, None),
                ],
            },
        ];

        let times = |filter: SubscriptionFilter| -> Vec<u64> {
            let selected = selected_changes(&groups, &filter, 0);
            selected
                .iter()
                .map(|change| change.after.as_secs())
                .collect()
        };

        assert_eq!(times(resources(&["a"])), [2, 3]);
        assert_eq!(times(resources(&["b", "a"])), [2, 3, 4]);
        assert_eq!(times(resources(&["a", "b"])), [1, 4], "as recorded");
        let mut lists = SubscriptionFilter::default();
        lists.tools_list_changed = Some(true);
        assert_eq!(times(lists), [5]);
        assert!(times(SubscriptionFilter::default()).is_empty());
    }
}
