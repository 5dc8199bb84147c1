//! Answers `subscriptions/listen`: sends change notifications, and those of extensions, until the caller cancels it or
//! the server shuts down.

use std::future::poll_fn;
use std::task::Poll;

use bowline_core::era::Request;
use bowline_core::restrict_filter;
use bowline_core::{Notification, Outcome};
use bowline_types::{
    Json, Meta, NotificationMethod, PromptListChangedNotification, ResourceListChangedNotification,
    ResourceUpdatedNotification, RpcError, ServerCapabilities, SubscriptionFilter,
    SubscriptionsAcknowledgedNotification, SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams, SubscriptionsListenResult, ToolListChangedNotification,
};
use tokio::sync::SemaphorePermit;

use super::change_bus::{ChangeReceiver, QueuedChange, ServerChange};
use super::extension::{OpenedFilter, SubscriptionNotifier, requested_filters};
use super::router::encode;
use super::subscription_hooks::WatchedResources;
use super::tool::invalid_params;
use super::{ServerDefinition, ServerSnapshot};
use crate::exchange::{BoxFuture, Context};

/// Answers `subscriptions/listen`.
pub(super) fn listen<'a>(
    server: &'a ServerSnapshot,
    request: &Request,
    cx: Context,
) -> Result<BoxFuture<'a, Outcome>, RpcError> {
    let params: SubscriptionsListenRequestParams =
        request.params.decode().map_err(invalid_params)?;
    let filter = params.notifications;
    let permit = server.definition.subscriptions.try_acquire()?;
    let requested = requested_filters(&server.definition, &filter, cx.caller())?;
    let joining = server.definition.bus.joining();
    if requested.is_empty() && joining.is_none() {
        let subscription = ActiveSubscription::open(server, permit, filter, cx, Vec::new())?;
        return Ok(Box::pin(subscription.run()));
    }
    // Clients of earlier versions are not told when a watch of lists is in effect. They get every change of their filter
    // once the bus has joined, for what they may miss meanwhile.
    let is_acknowledged = cx.caller().dialect.is_modern();
    let early = (joining.is_some() && !is_acknowledged).then(|| server.definition.bus.subscribe());
    Ok(Box::pin(async move {
        if let Some(joining) = joining {
            joining.await;
        }
        let mut opened = Vec::with_capacity(requested.len());
        for requested in requested {
            opened.push(requested.open(cx.clone()).await?);
        }
        let mut subscription = ActiveSubscription::open(server, permit, filter, cx, opened)?;
        if let Some(early) = early {
            subscription.changes = early;
        }
        // Boxed, so that this future stays small while it waits for the extensions.
        Box::pin(subscription.run()).await
    }))
}

/// An acknowledged subscription.
///
/// A server may have thousands of idle ones, so it keeps only what it needs to send notifications.
pub(super) struct ActiveSubscription<'a> {
    server: &'a ServerSnapshot,
    cx: Context,
    changes: ChangeReceiver,
    filter: SubscriptionFilter,
    /// The `_meta` of every notification, with the subscription id.
    meta: Json,
    /// The notifications of extensions.
    extensions: Vec<BoxFuture<'static, ()>>,
    _watched: Option<Box<WatchedResources<'a>>>,
    _permit: SemaphorePermit<'a>,
}

impl<'a> ActiveSubscription<'a> {
    /// Subscribes to the bus and sends the acknowledgement.
    pub(super) fn open(
        server: &'a ServerSnapshot,
        permit: SemaphorePermit<'a>,
        requested: SubscriptionFilter,
        mut cx: Context,
        mut opened: Vec<OpenedFilter>,
    ) -> Result<Self, RpcError> {
        let mut accepted = accepted_filter(requested, &server.definition.capabilities());
        let encoded = encode(&meta(&cx))?;
        // Subscribed before the acknowledgement, so that no later change is missed.
        let changes = server.definition.bus.subscribe();
        let filter = visible_filter(accepted.clone(), &server.definition, &cx);
        // The last step that has an effect, so that no error follows a call of the hooks.
        let uris = filter.resource_subscriptions.as_deref().unwrap_or_default();
        let watched = WatchedResources::start(&server.definition, &cx, uris);
        for part in &mut opened {
            accepted.other.append(&mut part.accepted);
        }
        let mut acknowledged = SubscriptionsAcknowledgedNotificationParams::new(accepted);
        acknowledged.meta = Some(meta(&cx));
        cx.notify::<SubscriptionsAcknowledgedNotification>(&acknowledged);
        cx.release_request();
        // The values of the request, such as its HTTP head, are kept only if a `visible_to` may read them again.
        if uris.is_empty() || !server.definition.has_hidden_resources() {
            *cx.extensions_mut() = server.definition.state.clone();
        }
        let start =
            |part: OpenedFilter| part.start(SubscriptionNotifier::new(cx.clone(), encoded.clone()));
        let extensions = opened.into_iter().map(start).collect();
        Ok(Self {
            server,
            cx,
            changes,
            filter,
            meta: encoded,
            extensions,
            _watched: watched,
            _permit: permit,
        })
    }

    /// Sends notifications until the server shuts down. A cancelled subscription is dropped.
    pub(super) async fn run(mut self) -> Outcome {
        let Self {
            server,
            cx,
            changes,
            filter,
            meta,
            extensions,
            ..
        } = &mut self;
        let sending = async {
            while let Some(received) = changes.next_queued().await {
                match received {
                    Some(queued) if queued.change.is_wanted(filter) => {
                        notify_change(&server.definition, cx, &queued, meta);
                    }
                    Some(_) => {}
                    // The subscription lagged: one notification for everything in the filter replaces what was lost.
                    None => notify_all(&server.definition, cx, filter, meta),
                }
            }
        };
        // The shutdown comes first: a steady stream of changes would otherwise starve it.
        tokio::select! {
            biased;
            () = cx.shutting_down() => {}
            () = server.shutting_down() => {}
            () = poll_all(extensions) => {}
            () = sending => {}
        }
        encode(&SubscriptionsListenResult::new(cx.request_id()))
    }
}

/// Polls all futures; never ends, because the subscription goes on without those that have ended.
async fn poll_all(futures: &mut Vec<BoxFuture<'static, ()>>) {
    poll_fn(|task| {
        futures.retain_mut(|future| future.as_mut().poll(task).is_pending());
        Poll::Pending
    })
    .await
}

/// Returns the part of the requested filter that the capabilities and limits allow.
fn accepted_filter(
    mut requested: SubscriptionFilter,
    capabilities: &ServerCapabilities,
) -> SubscriptionFilter {
    requested = restrict_filter(requested, capabilities);
    if let Some(uris) = &mut requested.resource_subscriptions {
        let mut bytes = 0;
        let fits = |uri: &&String| {
            bytes += uri.len();
            bytes <= MAX_URI_BYTES
        };
        let accepted = uris.iter().take(MAX_URIS).take_while(fits).count();
        uris.truncate(accepted);
    }
    requested.other.clear();
    requested
}

/// Returns the filter without the resources that the caller does not see. They are acknowledged all the same, as
/// unknown resources are.
fn visible_filter(
    mut filter: SubscriptionFilter,
    definition: &ServerDefinition,
    cx: &Context,
) -> SubscriptionFilter {
    if let Some(uris) = &mut filter.resource_subscriptions {
        uris.retain(|uri| !definition.is_hidden_resource(uri, cx));
    }
    filter
}

/// Sends the notification of a change, unless it is of a resource that the caller does not see any more.
fn notify_change(definition: &ServerDefinition, cx: &Context, queued: &QueuedChange, meta: &Json) {
    if let ServerChange::Resource(uri) = &queued.change
        && definition.is_hidden_resource(uri, cx)
    {
        return;
    }
    let method = match queued.change {
        ServerChange::Tools => ToolListChangedNotification::NAME,
        ServerChange::Prompts => PromptListChangedNotification::NAME,
        ServerChange::Resources => ResourceListChangedNotification::NAME,
        ServerChange::Resource(_) => ResourceUpdatedNotification::NAME,
    };
    let uri = queued.uri.iter().map(|uri| ("uri", uri));
    let params = Json::object([("_meta", meta)].into_iter().chain(uri));
    cx.send(Notification::new(method, Some(params)));
}

fn notify_all(
    definition: &ServerDefinition,
    cx: &Context,
    filter: &SubscriptionFilter,
    meta: &Json,
) {
    let lists = [
        ServerChange::Tools,
        ServerChange::Prompts,
        ServerChange::Resources,
    ];
    let lists = lists.into_iter().filter(|list| list.is_wanted(filter));
    // Without `is_wanted`, which is true for all of them and would take quadratic time.
    let uris = filter.resource_subscriptions.iter().flatten();
    for change in lists.chain(uris.cloned().map(ServerChange::Resource)) {
        notify_change(definition, cx, &QueuedChange::new(change), meta);
    }
}

/// Returns the `_meta` with the subscription id, which is the id of the request.
fn meta(cx: &Context) -> Meta {
    let mut meta = Meta::default();
    meta.set_subscription_id(cx.request_id());
    meta
}

/// The maximum number of URIs in a filter. The acknowledgement lists those that are accepted.
const MAX_URIS: usize = 1024;
/// The maximum total length of these URIs.
const MAX_URI_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use bowline_types::ResourcesCapability;

    use super::*;

    #[test]
    fn a_subscription_filter_is_limited_in_the_number_and_total_length_of_its_uris() {
        let mut has = ServerCapabilities::default();
        let mut resources = ResourcesCapability::default();
        resources.subscribe = Some(true);
        has.resources = Some(resources);
        let accepted_uris = |uris: Vec<String>| {
            let mut requested = SubscriptionFilter::default();
            requested.resource_subscriptions = Some(uris);
            accepted_filter(requested, &has)
                .resource_subscriptions
                .unwrap()
                .len()
        };
        let long = "x".repeat(MAX_URI_BYTES / 4);

        assert_eq!(accepted_uris(vec!["a".to_owned(); 2000]), MAX_URIS);
        assert_eq!(accepted_uris(vec![long.clone(); 4]), 4);
        assert_eq!(accepted_uris(vec![long; 5]), 4);
        assert_eq!(accepted_uris(vec!["x".repeat(MAX_URI_BYTES + 1)]), 0);
    }
}
