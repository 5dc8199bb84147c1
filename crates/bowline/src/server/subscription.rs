//! Answering `subscriptions/listen`: an exchange that goes on until somebody ends it.

use bowline_core::Outcome;
use bowline_core::era::Request;
use bowline_types::{
    Meta, NotificationParams, PromptListChangedNotification, ResourceListChangedNotification,
    ResourceUpdatedNotification, ResourceUpdatedNotificationParams, ServerCapabilities,
    SubscriptionFilter, SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams, SubscriptionsListenRequestParams,
    SubscriptionsListenResult, ToolListChangedNotification,
};

use super::Server;
use super::changes::{Change, Heard};
use super::router::encode;
use super::tool::invalid_params;
use crate::exchange::Context;

/// Tells the caller of changes until it gives up or this end shuts down.
pub(super) async fn listen(server: &Server, request: Request, cx: Context) -> Outcome {
    let params: SubscriptionsListenRequestParams =
        request.params.decode().map_err(invalid_params)?;
    let _permit = server.offer.subscription_permit()?;
    let filter = honoured(params.notifications, &server.offer.capabilities());
    let meta = subscription_meta(&cx);
    // Listening begins before the acknowledgement, so that nothing after it is missed.
    let mut changes = server.bus.listen();
    let mut acknowledged = SubscriptionsAcknowledgedNotificationParams::new(filter.clone());
    acknowledged.meta = Some(meta.clone());
    cx.notify::<SubscriptionsAcknowledgedNotification>(&acknowledged);
    loop {
        // Shutting down comes first: there may always be one more change.
        let heard = tokio::select! {
            biased;
            () = cx.shutting_down() => return encode(&SubscriptionsListenResult::new(cx.request_id())),
            () = server.shutting_down() => return encode(&SubscriptionsListenResult::new(cx.request_id())),
            heard = changes.next() => heard,
        };
        match heard {
            Some(Heard::Change(change)) if change.is_wanted(&filter) => tell(&cx, &change, &meta),
            Some(Heard::Change(_)) => {}
            // Too slow for what happened: everything may have changed, and saying so is enough.
            Some(Heard::TooMany) => tell_everything(&cx, &filter, &meta),
            None => {
                return encode(&SubscriptionsListenResult::new(cx.request_id()));
            }
        }
    }
}

/// What of the wish can be granted.
fn honoured(mut wish: SubscriptionFilter, has: &ServerCapabilities) -> SubscriptionFilter {
    let granted = |wish: Option<bool>, offered: bool| wish.filter(|wish| *wish && offered);
    let tools = has
        .tools
        .as_ref()
        .is_some_and(|tools| tools.list_changed == Some(true));
    let prompts = has
        .prompts
        .as_ref()
        .is_some_and(|prompts| prompts.list_changed == Some(true));
    let resources = has.resources.as_ref();
    wish.tools_list_changed = granted(wish.tools_list_changed, tools);
    wish.prompts_list_changed = granted(wish.prompts_list_changed, prompts);
    wish.resources_list_changed = granted(
        wish.resources_list_changed,
        resources.is_some_and(|resources| resources.list_changed == Some(true)),
    );
    if resources.is_none_or(|resources| resources.subscribe != Some(true)) {
        wish.resource_subscriptions = None;
    }
    if let Some(uris) = &mut wish.resource_subscriptions {
        uris.truncate(MOST_URIS);
    }
    wish.other.clear();
    wish
}

fn tell(cx: &Context, change: &Change, meta: &Meta) {
    let mut params = NotificationParams::default();
    params.meta = Some(meta.clone());
    match change {
        Change::Tools => cx.notify::<ToolListChangedNotification>(&params),
        Change::Prompts => cx.notify::<PromptListChangedNotification>(&params),
        Change::Resources => cx.notify::<ResourceListChangedNotification>(&params),
        Change::Resource(uri) => {
            let mut params = ResourceUpdatedNotificationParams::new(uri.clone());
            params.meta = Some(meta.clone());
            cx.notify::<ResourceUpdatedNotification>(&params);
        }
    }
}

fn tell_everything(cx: &Context, filter: &SubscriptionFilter, meta: &Meta) {
    let lists = [Change::Tools, Change::Prompts, Change::Resources];
    let uris = filter
        .resource_subscriptions
        .iter()
        .flatten()
        .cloned()
        .map(Change::Resource);
    for change in lists
        .into_iter()
        .chain(uris)
        .filter(|change| change.is_wanted(filter))
    {
        tell(cx, &change, meta);
    }
}

fn subscription_meta(cx: &Context) -> Meta {
    let mut meta = Meta::default();
    meta.set_subscription_id(cx.request_id());
    meta
}

/// What one subscription may watch; the acknowledgement says which of a longer wish are honoured.
const MOST_URIS: usize = 1024;
