//! Answering `subscriptions/listen`: an exchange that goes on until somebody ends it.

use bowline_core::era::Request;
use bowline_core::{Notification, Outcome};
use bowline_types::{
    Json, Meta, Notice, PromptListChangedNotification, ResourceListChangedNotification,
    ResourceUpdatedNotification, RpcError, ServerCapabilities, SubscriptionFilter,
    SubscriptionsAcknowledgedNotification, SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams, SubscriptionsListenResult, ToolListChangedNotification,
};
use tokio::sync::SemaphorePermit;

use super::Server;
use super::changes::{Announced, Change, Changes};
use super::router::encode;
use super::tool::invalid_params;
use crate::exchange::Context;

/// A subscription that its caller knows to be open.
///
/// There may be thousands that only wait, so it holds nothing that it does not need while it does.
pub(super) struct Subscription<'a> {
    server: &'a Server,
    cx: Context,
    changes: Changes,
    filter: SubscriptionFilter,
    /// The `_meta` of every notice: whose subscription it is for.
    meta: Json,
    _permit: SemaphorePermit<'a>,
}

impl<'a> Subscription<'a> {
    /// Begins to listen, and acknowledges that.
    pub(super) fn open(
        server: &'a Server,
        request: Request,
        mut cx: Context,
    ) -> Result<Self, RpcError> {
        let wish: SubscriptionsListenRequestParams =
            request.params.decode().map_err(invalid_params)?;
        drop(request);
        let permit = server.offer.subscriptions.take()?;
        let filter = honoured(wish.notifications, &server.offer.capabilities());
        let encoded = encode(&meta(&cx))?;
        // Listening begins before the acknowledgement, so that nothing after it is missed.
        let changes = server.bus.listen();
        let mut acknowledged = SubscriptionsAcknowledgedNotificationParams::new(filter.clone());
        acknowledged.meta = Some(meta(&cx));
        cx.notify::<SubscriptionsAcknowledgedNotification>(&acknowledged);
        cx.let_request_go();
        Ok(Self {
            server,
            cx,
            changes,
            filter,
            meta: encoded,
            _permit: permit,
        })
    }

    /// Tells the caller of changes until it gives up or this end shuts down.
    pub(super) async fn run(mut self) -> Outcome {
        let Self {
            server,
            cx,
            changes,
            filter,
            meta,
            ..
        } = &mut self;
        let telling = async {
            while let Some(heard) = changes.next_announced().await {
                match heard {
                    Some(announced) if announced.change.is_wanted(filter) => {
                        tell(cx, &announced, meta);
                    }
                    Some(_) => {}
                    // Too slow for what happened: everything may have changed, and saying so is enough.
                    None => tell_everything(cx, filter, meta),
                }
            }
        };
        // Shutting down comes first: there may always be one more change.
        tokio::select! {
            biased;
            () = cx.shutting_down() => {}
            () = server.shutting_down() => {}
            () = telling => {}
        }
        encode(&SubscriptionsListenResult::new(cx.request_id()))
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
        let mut bytes = 0;
        let fits = |uri: &&String| {
            bytes += uri.len();
            bytes <= MAX_URI_BYTES
        };
        let granted = uris.iter().take(MOST_URIS).take_while(fits).count();
        uris.truncate(granted);
    }
    wish.other.clear();
    wish
}

fn tell(cx: &Context, announced: &Announced, meta: &Json) {
    let method = match announced.change {
        Change::Tools => ToolListChangedNotification::NAME,
        Change::Prompts => PromptListChangedNotification::NAME,
        Change::Resources => ResourceListChangedNotification::NAME,
        Change::Resource(_) => ResourceUpdatedNotification::NAME,
    };
    let uri = announced.uri.iter().map(|uri| ("uri", uri));
    let params = Json::object([("_meta", meta)].into_iter().chain(uri));
    cx.say(Notification::new(method, Some(params)));
}

fn tell_everything(cx: &Context, filter: &SubscriptionFilter, meta: &Json) {
    let lists = [Change::Tools, Change::Prompts, Change::Resources];
    let lists = lists.into_iter().filter(|list| list.is_wanted(filter));
    // Wanted, every one: looking each of them up among the others would take quadratic time.
    let uris = filter.resource_subscriptions.iter().flatten();
    for change in lists.chain(uris.cloned().map(Change::Resource)) {
        tell(cx, &Announced::new(change), meta);
    }
}

/// Says which subscription something is for.
fn meta(cx: &Context) -> Meta {
    let mut meta = Meta::default();
    meta.set_subscription_id(cx.request_id());
    meta
}

/// What one subscription may watch; the acknowledgement says which of a longer wish are honoured.
const MOST_URIS: usize = 1024;
/// How long they may be together.
const MAX_URI_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use bowline_types::ResourcesCapability;

    use super::*;

    #[test]
    fn a_subscription_watches_so_many_uris_and_so_many_bytes_of_them() {
        let mut has = ServerCapabilities::default();
        let mut resources = ResourcesCapability::default();
        resources.subscribe = Some(true);
        has.resources = Some(resources);
        let honoured_of = |uris: Vec<String>| {
            let mut wish = SubscriptionFilter::default();
            wish.resource_subscriptions = Some(uris);
            honoured(wish, &has).resource_subscriptions.unwrap().len()
        };
        let long = "x".repeat(MAX_URI_BYTES / 4);

        assert_eq!(honoured_of(vec!["a".to_owned(); 2000]), MOST_URIS);
        assert_eq!(honoured_of(vec![long.clone(); 4]), 4);
        assert_eq!(honoured_of(vec![long; 5]), 4);
        assert_eq!(honoured_of(vec!["x".repeat(MAX_URI_BYTES + 1)]), 0);
    }
}
